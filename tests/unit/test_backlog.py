"""The backlog: rounds that wait keep their columns and their order, whatever comes and goes."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_map import Fingerprints
from stream_rater.pipeline.estimator import backlog as backlog_
from stream_rater.pipeline.estimator.backlog import Backlog
from stream_rater.pipeline.estimator.estimation import PendingRounds
from tests.builders.cases import cases
from tests.builders.pending import pending_of

WAVE = 6


def everybody(players: Fingerprints, sizes: Ints) -> Flags:
    """All rounds are ready: no player has a pending part."""
    assert sizes.sum() == len(players)
    return np.ones(len(sizes), np.bool_)


def all_fit(tickets: Ints) -> Ints:
    return tickets


def contents(pending: PendingRounds) -> list[tuple[object, ...]]:
    """Offset, partition, size, players and fingerprints of each round."""
    ends = np.cumsum(pending.sizes).tolist()
    names = pending.rounds.names.texts()
    columns = (pending.offsets.tolist(), pending.partitions.tolist(), pending.sizes.tolist(), ends)
    return [
        (
            offset,
            partition,
            size,
            names[end - size : end],
            pending.fingerprints[end - size : end].tolist(),
        )
        for offset, partition, size, end in zip(*columns, strict=True)
    ]


def rounds_of(sizes: list[int], first: int, partition: int = 0) -> PendingRounds:
    """Rounds at offsets from there on."""
    pending = pending_of(sizes, offsets=range(first, first + len(sizes)))
    pending.partitions = pending.partitions + partition
    return pending


def test_a_wave_is_of_those_that_come_first() -> None:
    """As many as it has room for; what does not fit, or is not ready, or not wanted, stays. Players
    that wait are counted: of a round larger than a wave as many as a wave has."""
    backlog = Backlog(WAVE)
    backlog.add(pending_of([2, 3, 4, 2, 2], offsets=[10, 20, 30, 40, 50]))

    def offsets(wave: PendingRounds) -> list[int]:
        return wave.offsets.tolist()

    assert offsets(backlog.wave(all_fit, everybody)) == [10, 20]
    assert offsets(backlog.wave(lambda tickets: tickets[tickets != 1], everybody)) == [10, 30]
    assert offsets(backlog.wave(all_fit, lambda _, sizes: sizes == 2)) == [10, 40, 50]
    assert offsets(backlog.wave(all_fit, lambda _, sizes: sizes > 9)) == []
    backlog = Backlog(WAVE)
    backlog.add(pending_of([2, 10]))
    assert (len(backlog), backlog.waiting, backlog.oversize) == (2, 2 + WAVE, 1)
    backlog.finish(backlog.take(np.array([1])))
    assert (len(backlog), backlog.waiting, backlog.oversize) == (1, 2, 0)
    assert backlog.contains(np.array([0, 1, 2])).tolist() == [True, False, False]


@cases("looked_at", [1, 2, 100])
def test_all_are_looked_at_until_a_wave_is_full(
    looked_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some at a time."""
    monkeypatch.setattr(backlog_, "CANDIDATES_AT_ONCE", looked_at)
    backlog = Backlog(WAVE)
    backlog.add(pending_of([2] * 9))
    wave = backlog.wave(lambda tickets: tickets[tickets % 2 == 0], everybody)
    assert wave.tickets.tolist() == [0, 2, 4]
    wave = backlog.wave(lambda tickets: tickets[tickets > 6], everybody)
    assert wave.tickets.tolist() == [7, 8]


@given(
    st.lists(st.lists(st.integers(2, 5), min_size=1, max_size=6), max_size=12),
    st.integers(0, 2**32),
)
def test_columns_stay_with_their_rounds(some: list[list[int]], seed: int) -> None:
    """Through blocks that are joined, begun, tidied and dropped."""
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog_, "BLOCK", rng.choice([1, 8, 100]))
        patch.setattr(backlog_, "COMPACT_AFTER", rng.randint(0, 3))
        backlog, stored, first = Backlog(WAVE), dict[int, tuple[Any, ...]](), 0
        for sizes in some:
            pending = rounds_of(sizes, first, partition=rng.randint(0, 2))
            backlog.add(pending)
            stored |= dict(zip(pending.tickets.tolist(), contents(pending), strict=True))
            first += len(sizes)
            if rng.random() < 0.2:
                gone = rng.randint(0, 2)
                backlog.drop([gone])
                stored = {ticket: each for ticket, each in stored.items() if each[1] != gone}
            free = backlog._graph.candidates().tolist()
            done = np.array(sorted(rng.sample(free, rng.randint(0, len(free)))), np.int64)
            pending = backlog.take(done)
            assert contents(pending) == [stored.pop(ticket) for ticket in done.tolist()]
            backlog.finish(pending)
            left = np.array(list(stored), np.int64)
            assert contents(backlog.take(left)) == list(stored.values())
            assert backlog.sizes(left).tolist() == [each[2] for each in stored.values()]
            assert len(backlog) == len(stored)
            assert backlog.contains(np.arange(first)).nonzero()[0].tolist() == list(stored)
            assert (
                sum(each.count for each in backlog._blocks)
                <= 2 * max(backlog_.BLOCK, sum(each[2] for each in stored.values()))
                + backlog_.BLOCK
            )


@cases("block", [1, 20])
def test_who_stays_keeps_nobody_elses_name(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many came with a round that waits, or come after it."""
    monkeypatch.setattr(backlog_, "BLOCK", block)
    backlog = Backlog(3 * WAVE)
    backlog.add(pending_of([3] + [2] * 20, ladders=["delayed"]))
    for _ in range(50):
        backlog.add(pending_of([2, 2, 2]))
        backlog.finish(backlog.wave(lambda tickets: tickets[tickets > 0], everybody))
    assert len(backlog) <= 21
    while len(wave := backlog.wave(lambda tickets: tickets[tickets > 0], everybody)):
        backlog.finish(wave)
    assert len(backlog) == 1
    assert sum(len(each.rounds.names.data) for each in backlog._blocks) < 3 * (3 + block)
