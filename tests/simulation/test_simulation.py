"""Whatever faults happen, the outcome equals that of the sequential replay. Runs that reached
something new are varied, and `make soak` knows when it has succeeded."""

import dataclasses
import random
from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stream_rater.columns import player_map
from stream_rater.config.ladders import Ladders
from stream_rater.pipeline.updater import record_cache
from stream_rater.rating.parameters import TwoMoment
from tests.simulation.states import PartitionState

from . import explore, game, soak
from .explore import Corpus, Plan
from .faults import KINDS, Faults
from .simulator import Fork, Outcome, Simulation, outcome_of, replay_command, without_addresses
from .transitions import TRANSITIONS, Taken, name_of, surprising

FIRST, SEEDS, AT_ONCE = 100, 400, 50  # Seeds that are always played, all, those of a case.
RARE = (132,)  # seeds beyond the first ones with a fault or a transition that those do not have

CASES: list[Any] = [
    pytest.param(first, marks=pytest.mark.slow) if first >= FIRST else first
    for first in range(0, SEEDS, AT_ONCE)
]
VARIED = pytest.mark.parametrize(
    "seeds", [range(10), pytest.param(range(10, 100), marks=pytest.mark.slow)], ids=str
)


@cache
def played(seed: int) -> Outcome:
    """The outcome of a seed, which is played once in a process."""
    return outcome_of(seed)


def failing(outcomes: Iterable[tuple[int, Outcome]]) -> str:
    """The seeds that violate the protocol, one line each."""
    return "\n".join(
        f"{replay_command(seed)}  # {found.violations[0]:.200}"
        for seed, found in outcomes if found.violations
    )  # fmt: skip


@pytest.mark.parametrize("first", CASES)
def test_seeds(first: int) -> None:
    """Beliefs are byte-equal, each event and rejection is there once, and nothing is stuck."""
    found = {seed: played(seed) for seed in range(first, first + AT_ONCE)}
    assert failing(found.items()) == ""
    assert surprising(set[Taken]().union(*(each.taken for each in found.values()))) == []


def test_every_kind_of_fault_and_transition_happens() -> None:
    """Every kind of fault and each transition of the diagrams happens among the first seeds."""
    faults, taken = Faults(), set[Taken]()
    for seed in (*range(FIRST), *RARE):
        faults += played(seed).faults
        taken |= played(seed).taken
    assert KINDS.keys() - faults.keys() == set()
    assert [name_of(each) for each in TRANSITIONS if each not in taken] == []
    assert len(set(map(name_of, TRANSITIONS))) == len(TRANSITIONS)


@VARIED
def test_fingerprints_that_collide(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    """With hashes of a bit or two, rounds wait more often, and the outcome is the same."""
    whole, one_bit = player_map.fingerprints, np.uint64(1 << player_map.SHARD_BITS)
    kept = player_map.IN_SHARD | player_map.TAKEN | one_bit
    monkeypatch.setattr(player_map, "fingerprints", lambda *given: whole(*given) & kept)
    of_records = record_cache.fingerprints_of
    monkeypatch.setattr(
        record_cache, "fingerprints_of", lambda players: of_records(players) | ~np.uint64(3)
    )
    assert failing((seed, outcome_of(seed)) for seed in seeds) == ""


@VARIED
def test_newcomers_at_the_level_of_their_field(
    monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    """Stage 1 places a newcomer by the other players of the first round. All ends the same."""
    rating = TwoMoment(newcomer_offset=-300.0)
    other = TwoMoment(beta=400.0, newcomer_offset=100.0, newcomer_field=0.5)
    for name in ("LADDERS", "CHANGED"):
        ladders = {
            ladder: replace(
                before,
                rating=rating,
                changes=tuple(replace(each, rating=other) for each in before.changes),
            )
            for ladder, before in getattr(game, name).ladders.items()
        }
        monkeypatch.setattr(game, name, Ladders(ladders=ladders))
    assert failing((seed, outcome_of(seed)) for seed in seeds) == ""


# --- variations of seeds --------------------------------------------------------------------------

OPENING = Taken("estimator", None, PartitionState.OPENING)
LOST = Taken("estimator", PartitionState.OPENING, None)
FORKED = Plan(3, (Fork(100, 5), Fork(900, 6)))


def trace_of(plan: Plan) -> list[str]:
    """What happens in a run, line by line."""
    found = list[str]()
    Simulation(plan.seed, trace=found.append, forks=plan.forks).run()
    return list(map(without_addresses, found))


def test_another_seed_decides_from_its_step_on() -> None:
    """Up to it, the run is the same. A plan replays to the last byte, else it would be useless."""
    whole, forked = trace_of(Plan(7)), trace_of(plan := Plan(7, (Fork(300, 1),)))
    same = next(i for i, (a, b) in enumerate(zip(whole, forked, strict=False)) if a != b)
    assert same > 100
    assert trace_of(plan) == forked


def test_runs_are_varied_where_they_reached_something_new() -> None:
    """A run that reached nothing new is not kept. Earlier forks stay, later ones go."""
    corpus = Corpus(random.Random(1))
    corpus.add(explore.Ran(FORKED, [], {(None, OPENING): 10, (OPENING, LOST): 400}))
    corpus.add(explore.Ran(Plan(4), [], {(OPENING, LOST): 70}))
    plans = list(islice(corpus.plans(20), 40))
    assert plans[::2] == [Plan(20 + i) for i in range(20)]
    for seed, (*earlier, last) in plans[1::2]:
        assert (seed, earlier) == (3, [Fork(100, 5)])
        assert abs(last.step - 400) <= explore.WITHIN


# --- make soak ------------------------------------------------------------------------------------

GOOD = soak.Summary(1, 5, 0, 3, 3, 1, soak.INPUTS, 0, dict.fromkeys(KINDS, 1))


def test_soak_succeeds() -> None:
    """It does if all was run and only mutants failed. Random seeds may miss some of these."""
    flaws: list[dict[str, Any]] = [
        {"violations": 1}, {"seeds": 0}, {"caught": 2}, {"fuzzed": soak.INPUTS - 1},
        {"fuzzed_wrong": 1},
    ]  # fmt: skip
    for flaw in ({}, *flaws):
        complaints = list(dataclasses.replace(GOOD, **flaw).complaints(soak.INPUTS))
        assert len(complaints) == len(flaw), flaw
