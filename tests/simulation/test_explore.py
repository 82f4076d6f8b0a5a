"""Runs that reached something new are varied from there on."""

import random
from itertools import islice

from stream_rater.pipeline.states import PartitionState

from .explore import WITHIN, Corpus, Plan, Ran, command, run
from .seeds import without_addresses
from .simulator import Fork, Simulation
from .transitions import Taken

OPENING = Taken("estimator", None, PartitionState.OPENING)
LOST = Taken("estimator", PartitionState.OPENING, None)


def trace_of(plan: Plan) -> list[str]:
    """What happens in a run, line by line."""
    found = list[str]()
    Simulation(plan.seed, trace=found.append, forks=plan.forks).run()
    return list(map(without_addresses, found))


def test_another_seed_decides_from_its_step_on() -> None:
    """Before it, the run is the same, and a plan replays to the last byte."""
    whole, forked = trace_of(Plan(7)), trace_of(plan := Plan(7, (Fork(300, 1),)))
    same = next(i for i, (a, b) in enumerate(zip(whole, forked, strict=False)) if a != b)
    assert same > 100
    assert trace_of(plan) == forked


def test_runs_are_varied_where_they_reached_something_new() -> None:
    """A run that reached nothing new is not kept. Earlier forks stay, later ones go."""
    corpus = Corpus(random.Random(1))
    kept = Plan(3, (Fork(100, 5), Fork(900, 6)))
    corpus.add(Ran(kept, [], {(None, OPENING): 10, (OPENING, LOST): 400}))
    corpus.add(Ran(Plan(4), [], {(OPENING, LOST): 70}))
    plans = list(islice(corpus.plans(20), 40))
    fresh, varied = plans[::2], plans[1::2]
    assert fresh == [Plan(20 + i) for i in range(20)]
    for each in varied:
        *earlier, last = each.forks
        assert each.seed == 3
        assert earlier == [Fork(100, 5)]
        assert abs(last.step - 400) <= WITHIN


def test_run_says_what_it_reached() -> None:
    """Each pair with its step, those of before the first step, too; and a failure has a command."""
    ran = run(Plan(7))
    assert ran.violations == []
    assert {first for first, _ in ran.pairs} >= {None}
    assert max(ran.pairs.values()) > 100
    assert command(Plan(3, (Fork(100, 5), Fork(900, 6)))) == (
        ".venv/bin/python -m tests.simulation 3 --fork 100:5 --fork 900:6"
    )
