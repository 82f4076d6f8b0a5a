"""Whatever faults happen, the outcome equals that of the sequential replay."""

import re
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
from .seeds import outcome_of, replay_command
from .transitions import TRANSITIONS, Taken, name_of, surprising

SEEDS = 400
AT_ONCE = 25
"""Seeds for each test case: so few that a case is over soon on a busy machine, too."""
ENOUGH = 200
"""Seeds that are played in any case, and among which every kind of fault happens."""
RARE = (317,)
"""Seeds with a transition that is rarer than one in ENOUGH: Settling to Refused is one in 200."""


CASES: list[Any] = [
    pytest.param(first, marks=pytest.mark.slow) if first >= ENOUGH else first
    for first in range(0, SEEDS, AT_ONCE)
]
"""The first seed of each case. Beyond the first ENOUGH, they are slow."""


@cache
def played(first: int) -> tuple[dict[int, list[str]], Faults, set[Taken]]:
    """What failed, by seed; and the faults and the transitions of AT_ONCE seeds."""
    failing, faults, taken = {}, Faults(), set[Taken]()
    for seed in range(first, first + AT_ONCE):
        found = outcome_of(seed)
        faults += found.faults
        taken |= found.taken
        if found.violations:
            failing[seed] = found.violations
    return failing, faults, taken


@pytest.mark.parametrize("first", CASES)
def test_seeds(first: int) -> None:
    """Beliefs are byte-equal, every event and rejection comes exactly once and in order, nothing is
    stuck, and the machines take no transition that the protocol's diagrams do not have."""
    failing, _, taken = played(first)
    assert not failing, "\n".join(
        f"{replay_command(seed)}  # {found[0]:.200}" for seed, found in failing.items()
    )
    assert surprising(taken) == []


def test_every_kind_of_fault_and_transition_happens() -> None:
    """Every kind of fault happens among the first seeds, and every transition in the protocol's
    diagrams. A process does not run a seed twice for this."""
    faults, taken = Faults(), set[Taken]()
    for begin in range(0, ENOUGH, AT_ONCE):
        _, there, there_taken = played(begin)
        faults += there
        taken |= there_taken
    assert not KINDS.keys() - faults.keys()
    taken = taken.union(*(outcome_of(seed).taken for seed in RARE))
    assert [name_of(each) for each in TRANSITIONS if each not in taken] == []


def test_each_transition_has_a_name_of_its_own() -> None:
    """So a table can say which one was reached, and how often."""
    assert len({name_of(each) for each in TRANSITIONS}) == len(TRANSITIONS)


CHUNKS = pytest.mark.parametrize("first", range(0, ENOUGH, AT_ONCE))


@CHUNKS
def test_fingerprints_that_collide(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """A fingerprint decides nothing: with a bit or two of hash in it, rounds wait more often and
    fewer records are cached, and all that comes of them is the same."""
    whole, one_bit = player_map.fingerprints, np.uint64(1 << player_map.SHARD_BITS)
    kept = player_map.IN_SHARD | player_map.TAKEN | one_bit
    monkeypatch.setattr(player_map, "fingerprints", lambda *given: whole(*given) & kept)
    of_records = record_cache.fingerprints_of
    monkeypatch.setattr(
        record_cache, "fingerprints_of", lambda players: of_records(players) | ~np.uint64(3)
    )
    seeds = range(first, first + AT_ONCE)
    failing = {seed: found for seed in seeds if (found := outcome_of(seed)[0])}
    assert not failing


@CHUNKS
def test_newcomers_at_the_level_of_their_field(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
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
    seeds = range(first, first + AT_ONCE)
    failing = {seed: found for seed in seeds if (found := outcome_of(seed)[0])}
    assert not failing


def test_same_seed_same_run() -> None:
    """A seed replays to the last byte; otherwise it would be of no use."""
    first, second = list[str](), list[str]()
    assert outcome_of(7, trace=first) == outcome_of(7, trace=second)
    assert list(map(without_addresses, first)) == list(map(without_addresses, second))


def without_addresses(line: str) -> str:
    """A line of the trace. Encoded corrections are shown by their addresses."""
    return re.sub(r"object at 0x[0-9a-f]+", "object", line)
