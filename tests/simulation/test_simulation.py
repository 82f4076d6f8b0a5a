"""Whatever faults happen, the outcome equals that of the sequential replay."""

import numpy as np
import pytest
from msgspec.structs import replace

from stream_rater.columns import player_map
from stream_rater.config import Ladder, Ladders
from stream_rater.rating.parameters import TwoMoment

from . import game, simulator
from .faults import KINDS, Faults
from .seeds import outcome_of, replay_command

SEEDS = 2000
AT_ONCE = 200
"""Seeds for each test case: few enough to spread over processes, and enough that every fault
happens."""


@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(AT_ONCE, SEEDS, AT_ONCE))],
)
def test_seeds(first: int) -> None:
    """Beliefs are byte-equal, every event and rejection comes exactly once and in order, and
    nothing is stuck. Faults of every kind happen on the way."""
    failing, faults = {}, Faults()
    for seed in range(first, first + AT_ONCE):
        found, there = outcome_of(seed)
        faults += there
        if found:
            failing[seed] = found
    assert not failing, "\n".join(
        f"{replay_command(seed)}  # {found[0]:.200}" for seed, found in failing.items()
    )
    assert not KINDS.keys() - faults.keys()


def test_fingerprints_that_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fingerprint decides nothing: with one bit of hash in it, rounds wait more often, and all
    that comes of them is the same."""
    whole, one_bit = player_map.fingerprints, np.uint64(1 << player_map.SHARD_BITS)
    kept = player_map.IN_SHARD | player_map.TAKEN | one_bit
    monkeypatch.setattr(player_map, "fingerprints", lambda *given: whole(*given) & kept)
    failing = {seed: found for seed in range(AT_ONCE) if (found := outcome_of(seed)[0])}
    assert not failing


def test_newcomers_at_the_level_of_their_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stage 1 makes of newcomers depends on whom they play with, and no record tells it before
    their first round. So everything ends the same for a system that places them."""
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
    failing = {seed: found for seed in range(AT_ONCE) if (found := outcome_of(seed)[0])}
    assert not failing


def test_same_seed_same_run() -> None:
    """A seed replays to the last byte; otherwise it would be of no use."""
    assert outcome_of(7, trace=(first := [])) == outcome_of(7, trace=(second := []))
    assert first == second
