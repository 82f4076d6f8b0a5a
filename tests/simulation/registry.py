"""The scenarios, each with the mutant that it catches: the protocol with one rule left out."""

from collections.abc import Callable
from typing import Any, NamedTuple

from .actors import PRODUCTION, Machines
from .stage import Stage

Scenario = Callable[[Stage], None]


class Mutant(NamedTuple):
    """A rule that is left out, and the scenario that ends in a violation without it."""

    rule: str
    machines: Machines
    scenario: Scenario
    stuck: bool
    """Whether it ends in work that is never finished, and not in a wrong rating."""


MUTANTS: dict[str, Mutant] = {}
"""By name. It is complete once `mutants` is imported."""


def catches(
    name: str, rule: str, *classes: type[Any], stuck: bool = False
) -> Callable[[Scenario], Scenario]:  # fmt: skip
    """Register a scenario that catches the mutant of this name, which has these classes."""
    machines = {
        role: each
        for each in classes for role, kind in vars(PRODUCTION).items() if issubclass(each, kind)
    }  # fmt: skip
    assert len(machines) == len(classes)

    def register(scenario: Scenario) -> Scenario:
        assert name not in MUTANTS
        MUTANTS[name] = Mutant(rule, Machines(**machines), scenario, stuck)
        return scenario

    return register


def play(scenario: Scenario, machines: Machines) -> list[str]:
    """The violations after machines have played the scenario."""
    stage = Stage(machines)
    with stage.patches:
        scenario(stage)
        return stage.finish()


def caught(mutant: Mutant) -> bool:
    """Whether the mutant ends its scenario with a violation. A machine that is stuck is one only
    where the rule is there for that."""
    found = play(mutant.scenario, mutant.machines)
    return bool(found) and found[0].startswith("stuck") == mutant.stuck
