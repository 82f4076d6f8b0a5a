"""The scenarios, each with the mutant that it catches: the protocol with one rule left out."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

from stream_rater.adapters.local_driver import Steps
from stream_rater.pipeline.corrections.correction_job import CorrectionJob
from stream_rater.pipeline.corrections.correction_validator import QueueLookahead
from stream_rater.pipeline.corrections.correction_work import SeedWork, Work
from stream_rater.pipeline.corrections.corrections import Corrections
from stream_rater.pipeline.estimator.admission import MakeCorrections
from stream_rater.pipeline.estimator.estimator import Estimator

from .actors import PRODUCTION, Machines
from .stage import Stage

Scenario = Callable[[Stage], None]
T = TypeVar("T")


class Mutant(NamedTuple):
    """A rule that is left out, and the scenario that ends in a violation without it."""

    rule: str
    machines: Machines
    scenario: Scenario
    stuck: bool  # whether it ends in work that is never finished, and not in a wrong rating


MUTANTS: dict[str, Mutant] = {}  # By name. It is complete once `mutants` is imported.


def catches(
    name: str, rule: str, *classes: type[Any], stuck: bool = False
) -> Callable[[Scenario], Scenario]:  # fmt: skip
    """Register a scenario and the mutant that it catches. `classes` leave out the rule."""
    machines = {
        role: each
        for each in map(machine_of, classes)
        for role, kind in vars(PRODUCTION).items() if issubclass(each, kind)
    }  # fmt: skip
    assert len(machines) == len(classes)

    def register(scenario: Scenario) -> Scenario:
        assert name not in MUTANTS
        MUTANTS[name] = Mutant(rule, Machines(**machines), scenario, stuck)
        return scenario

    return register


def machine_of(part: type[Any]) -> type[Any]:
    """A class of a machine, or an estimator with a class of its corrections."""
    if issubclass(part, QueueLookahead):
        return _with_job(partial(CorrectionJob, make_ahead=part))
    if issubclass(part, CorrectionJob):
        return _with_job(part)
    if issubclass(part, SeedWork):
        return _with_corrections(partial(Corrections, make_seed_work=part))
    return _with_corrections(part) if issubclass(part, Corrections) else part


def altered(kind: type[T], **members: object) -> type[T]:
    """A subclass with these members: a mutant whose rule is one of them."""
    return type(kind.__name__, (kind,), members)


def nothing(*_: object) -> Steps:
    """Replaces a method that asks for effects: it asks for none."""
    yield from ()


def within(kind: type[T], method: str, owner: object, name: str, value: object) -> type[T]:
    """A subclass in whose method another class or module has this value under a name."""
    whole = getattr(kind, method)

    def patched(*given: Any, **options: Any) -> Any:
        with patch.object(owner, name, value):
            return whole(*given, **options)

    return altered(kind, **{method: patched})


def _with_job(make_job: Callable[..., CorrectionJob]) -> type[Estimator]:
    return _with_corrections(partial(Corrections, make_work=partial(Work, make_job=make_job)))


def _with_corrections(make: MakeCorrections) -> type[Estimator]:
    class Altered(Estimator):
        """An estimator that makes its corrections by `make`."""

        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options, make_corrections=make)

    return Altered


def play(scenario: Scenario, machines: Machines) -> list[str]:
    stage = Stage(machines)
    with stage.patches:
        scenario(stage)
        return stage.finish()


def caught(mutant: Mutant) -> bool:
    """Whether the mutant's scenario ends in a violation. Being stuck is one if `stuck` is set."""
    found = play(mutant.scenario, mutant.machines)
    return bool(found) and found[0].startswith("stuck") == mutant.stuck
