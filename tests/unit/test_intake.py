"""What an estimator takes in: verdicts by a record and the W offsets before it; waiting rounds."""

import random
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_map import Fingerprints
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.record import Record
from stream_rater.pipeline.estimator import backlog as backlog_
from stream_rater.pipeline.estimator.backlog import Backlog
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.replay.edited_log import RecordValidator
from stream_rater.rounds.validation import Invalid
from tests.builders.cases import cases
from tests.builders.machines import pending_of
from tests.rounds import as_json

WINDOW, WAVE = 5, 6


def record(offset: int, value: bytes, partition: int = 0) -> Record:
    return Record(partition, offset, value, received_s=4e9)


def verdict(verdicts: RecordValidator, offset: int, value: bytes, partition: int = 0) -> str:
    _, (rejection,) = verdicts.decode([record(offset, value, partition)])
    return "valid" if rejection is None else rejection.code


def named(round_id: str, ladder: str = "a") -> bytes:
    return as_json(round_id=round_id, ladder=ladder)


@pytest.fixture
def verdicts() -> RecordValidator:
    return RecordValidator(ANY_LADDER, WINDOW)


def test_duplicates_within_the_window(verdicts: RecordValidator) -> None:
    """The first one is named. A repetition is an occurrence, so W offsets decide a verdict."""
    assert verdict(verdicts, 10, named("r")) == "valid"
    _, (rejection,) = verdicts.decode([record(15, named("r"))])
    assert rejection is not None and rejection.code == "duplicate-round"
    assert "stands at offset 10" in str(rejection)
    assert (rejection.ladder, rejection.round_id) == ("a", "r")
    assert verdict(verdicts, 19, named("r")) == "duplicate-round"
    assert verdict(verdicts, 25, named("r")) == "valid"


def test_who_takes_an_id(verdicts: RecordValidator) -> None:
    """A rejected round takes none; one that rates nobody does. Ids are unique per ladder."""
    bad = {"player": "ann", "rank": 0}, {"player": "bob", "rank": 1}
    assert verdict(verdicts, 0, as_json(*bad, round_id="r", ladder="a")) == "bad-rank"
    assert verdict(verdicts, 1, named("r")) == "valid"
    assert verdict(verdicts, 2, named("r", "b")) == "valid"
    nobody = [{"player": p, "dnf": True} for p in ("ann", "bob")]
    assert verdict(verdicts, 3, as_json(*nobody, round_id="s", ladder="a")) == "valid"
    assert verdict(verdicts, 4, named("s")) == "duplicate-round"


def test_a_successor_that_reads_the_window_first_has_the_same_verdicts() -> None:
    """If it starts W offsets before c, from c on."""
    rng = random.Random(3)
    log = [
        b"junk" if rng.random() < 0.1 else named(f"r{rng.randrange(6)}", rng.choice("ab"))
        for _ in range(120)
    ]
    whole = RecordValidator(ANY_LADDER, WINDOW)
    expected = [verdict(whole, offset, value) for offset, value in enumerate(log)]
    assert set(expected) == {"valid", "malformed", "duplicate-round"}
    for c in range(0, len(log), 7):
        start = max(0, c - WINDOW)
        successor = RecordValidator(ANY_LADDER, WINDOW)
        found = [verdict(successor, o, value) for o, value in enumerate(log[start:], start)]
        assert found[c - start :] == expected[c:]


def test_many_records_as_one_by_one() -> None:
    """However many at once, of several partitions and ladders, with gaps and duplicates."""
    for at_once, share in product((2, 3, 50, 300), (0.0, 0.1, 0.4)):
        rng, ends, log = random.Random(at_once), [0, 0, 0], list[Record]()
        for number in range(300):
            partition = rng.choice([0, 0, 0, 1, 2])
            ends[partition] += rng.choice([1, 1, 1, 2, 4])
            old = number - rng.choice([1, 2, 4, 9])
            round_id = f"r{old if rng.random() < share else number}"
            log.append(record(ends[partition], named(round_id, rng.choice("ab")), partition))
        single, together = RecordValidator(ANY_LADDER, WINDOW), RecordValidator(ANY_LADDER, WINDOW)
        expected = [single.decode([each])[1][0] for each in log]
        found = list[Invalid | None]()
        for first in range(0, len(log), at_once):
            rounds, rejections = together.decode(log[first : first + at_once])
            assert len(rounds) == rejections.count(None)
            found += rejections
        assert list(map(str, found)) == list(map(str, expected)), (at_once, share)
        assert (len(set(map(str, expected))) > 1) == (share > 0.0), "duplicates"


def test_remembers_no_more_than_the_window(verdicts: RecordValidator) -> None:
    """It remembers the rounds of two spans of little more than W offsets, which may have gaps."""
    for i in range(100):
        verdict(verdicts, 3 * i, named(f"r{i}", f"l{i}"))
        window = verdicts._duplicates[0]
        assert len(window._young) + len(window._old) <= 4


def everybody(players: Fingerprints, sizes: Ints) -> Flags:
    """All rounds are ready: no player has a pending part."""
    assert sizes.sum() == len(players)
    return np.ones(len(sizes), np.bool_)


def all_fit(tickets: Ints) -> Ints:
    return tickets


def contents(pending: PendingRounds) -> list[tuple[object, ...]]:
    """Offset, partition, size, players and fingerprints of each round."""
    names, fingerprints = pending.rounds.names.texts(), pending.fingerprints.tolist()
    ends = np.cumsum(pending.sizes).tolist()
    columns = (pending.offsets.tolist(), pending.partitions.tolist(), pending.sizes.tolist(), ends)
    return [
        (offset, partition, size, names[end - size : end], fingerprints[end - size : end])
        for offset, partition, size, end in zip(*columns, strict=True)
    ]


def test_a_wave_is_of_those_that_come_first() -> None:
    """As many as there is room for. A round larger than a wave counts as a wave of players."""
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


@cases("at_once", [1, 2, 100])
def test_all_are_looked_at_until_a_wave_is_full(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_, "CANDIDATES_AT_ONCE", at_once)
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
            pending = pending_of(sizes, offsets=range(first, first + len(sizes)))
            pending.partitions = pending.partitions + rng.randint(0, 2)
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
            kept = sum(each.count for each in backlog._blocks)
            needed = sum(each[2] for each in stored.values())
            assert kept <= 2 * max(backlog_.BLOCK, needed) + backlog_.BLOCK


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
