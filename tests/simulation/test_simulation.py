"""Whatever faults happen, the outcome equals that of the sequential replay."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stream_rater.columns import player_map
from stream_rater.config.ladders import Ladder, Ladders
from stream_rater.pipeline.updater import record_cache
from stream_rater.rating.parameters import TwoMoment

from . import game, simulator
from .faults import KINDS, Faults
from .seeds import Outcome, outcome_of, replay_command, without_addresses
from .transitions import TRANSITIONS, Taken, name_of, surprising

FIRST, SEEDS, AT_ONCE = 100, 400, 50
"""The seeds that are played in any case; those that are played in all; and those of each case."""
RARE = (145,)
"""Seeds beyond the first ones with a fault or a transition that those do not have."""

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
    """Beliefs are byte-equal, every event and rejection comes exactly once and in order, nothing is
    stuck, and the machines take no transition that the protocol's diagrams do not have."""
    found = {seed: played(seed) for seed in range(first, first + AT_ONCE)}
    assert failing(found.items()) == ""
    assert surprising(set[Taken]().union(*(each.taken for each in found.values()))) == []


def test_every_kind_of_fault_and_transition_happens() -> None:
    """Every kind of fault happens among the first seeds, and every transition in the protocol's
    diagrams, each of which has a name of its own."""
    faults, taken = Faults(), set[Taken]()
    for seed in (*range(FIRST), *RARE):
        faults += played(seed).faults
        taken |= played(seed).taken
    assert KINDS.keys() - faults.keys() == set()
    assert [name_of(each) for each in TRANSITIONS if each not in taken] == []
    assert len(set(map(name_of, TRANSITIONS))) == len(TRANSITIONS)


@VARIED
def test_fingerprints_that_collide(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    """A fingerprint decides nothing: with a bit or two of hash in it, rounds wait more often and
    fewer records are cached, and all that comes of them is the same."""
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
    """A system that places newcomers ends with the same beliefs. Stage 1 places a newcomer by the
    other players of the first round, and no earlier record shows who they are."""
    rating = TwoMoment(newcomer_offset=-300.0)
    other = TwoMoment(beta=400.0, newcomer_offset=100.0, newcomer_field=0.5)
    for name in ("LADDERS", "CHANGED"):
        ladders = {
            ladder: Ladder(
                rating=rating,
                changes=tuple(replace(each, rating=other) for each in before.changes),
            )
            for ladder, before in getattr(simulator, name).ladders.items()
        }
        for module in (game, simulator):
            monkeypatch.setattr(module, name, Ladders(ladders=ladders))
    assert failing((seed, outcome_of(seed)) for seed in seeds) == ""


def test_same_seed_same_run() -> None:
    """A seed replays to the last byte; otherwise it would be of no use."""
    first, second = list[str](), list[str]()
    assert outcome_of(7, trace=first) == outcome_of(7, trace=second)
    assert list(map(without_addresses, first)) == list(map(without_addresses, second))
