"""The estimator, its effects answered by hand: openings, waits, refusals and bounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from stream_rater.columns.sharding import ANYWHERE, shards_of
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Record
from stream_rater.pipeline import ports
from stream_rater.pipeline.estimator import estimator as module
from stream_rater.pipeline.estimator import input_partition
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.estimator.progress import READ_AHEAD
from stream_rater.rating import record as belief_record
from stream_rater.rating.model import newcomers
from tests.builders import lines
from tests.builders.lines import a_record
from tests.builders.machines import NOWHERE, Agreed, ByHand, Recorder
from tests.rounds import as_json

SHARDS = 2
ZERO = [name for name in "abcdefghijkl" if shards_of([name], SHARDS)[0] == 0]
ONE = [name for name in "abcdefghijkl" if shards_of([name], SHARDS)[0] == 1]


@pytest.fixture
def hand(observer: Recorder) -> ByHand:
    return by_hand(observer)


def by_hand(
    observer: Recorder, wave_players: int = 4, rejects_per_second: float = 0.0, **options: Any
) -> ByHand:
    """The same, with waves of this size, this limit and these options; no belief is cached."""
    return Agreed(
        Estimator(
            ANY_LADDER, SHARDS, ANYWHERE, window=3, wave_players=wave_players,
            rejects_per_second=rejects_per_second, observer=observer, idle_s=0.1,
            commit_every_s=0.0, **{"cache_bytes": 0, **options},
        ).run()
    )  # fmt: skip


def round_at(offset: int, *players: str, partition: int = 0) -> Record:
    """A record of `round-completed`: players in order of place, on the partition's ladder."""
    line = lines.a_round(offset, *players, ladder=f"ladder-{partition}")
    return a_record(offset, line, partition)


a_round = round_at  # The name by which `test_oversize_round` imports it.


def opened(
    hand: ByHand,
    *,
    committed: Mapping[int, int | None] = {0: 0},
    ends: Sequence[int] = (0, 0),
    starts: Mapping[int, int] | None = None,
    remains: ports.OffsetEvidence | None = None,
) -> ports.Seek:
    """Answer all effects of opening. `remains`: where it looks for offsets that are forgotten."""
    found = {p: None if c is None else ports.SourceCommit(c) for p, c in committed.items()}
    hand.answer(ports.CommittedSource, found, partitions=frozenset(committed))
    if remains is not None:
        forgotten = frozenset(p for p, c in committed.items() if c is None)
        hand.answer(ports.LookForOffsets, remains, partitions=forgotten)
        least = {p: remains.after_rejected.get(p, 0) for p in forgotten}
        hand.answer(ports.CommitSource, offsets=least, rejections=())
    here = {s: ports.StoredShard(NOWHERE) for s in range(len(ends))}
    hand.answer(ports.ReadBeliefs, here, players=dict.fromkeys(here, ports.NO_PLAYERS))
    hand.answer(ports.ShardEnds, ends)
    starts = starts or dict.fromkeys(committed, 0)
    hand.answer(ports.LogStarts, starts)
    after_rejected = remains.after_rejected if remains is not None else {}
    reached = {p: after_rejected.get(p, c or 0) for p, c in committed.items()}
    if known := {p: c for p, c in reached.items() if c > starts[p]}:
        tails = {p: ports.SourceTail(c, 0) for p, c in known.items()}
        hand.answer(ports.SourceTails, tails, offsets=known)
    hand.answer(ports.NotedCorrections, {})
    return hand.answer(ports.Seek)


def owning(hand: ByHand, *partitions: int, ends: Sequence[int] = (0, 0)) -> None:
    hand.answer(ports.Poll, ports.Polled(0.0, gained=frozenset(partitions)))
    opened(hand, committed=dict.fromkeys(partitions, 0), ends=ends)


def read(hand: ByHand, *records: Record, now_s: float = 0.0) -> None:
    hand.answer(ports.Poll, ports.Polled(now_s, records=records))


def header(last: int) -> bytes:
    """The header of a belief whose last round was at this offset."""
    beliefs = newcomers(1, 1, 1500.0, 350.0, coded=True)
    beliefs.header["last"] = last
    beliefs.header["rounds"] = 1
    return belief_record.encode(beliefs)[0][: belief_record.HEADER_SIZE]


NOBODY = bytes(belief_record.HEADER_SIZE)


def priors(hand: ByHand, applied: int = 0, last: int | None = None) -> ports.ReadPriors:
    """Answer for all shards asked: this far, all players new or with this last offset."""
    asked = hand.expect(ports.ReadPriors)
    each = NOBODY if last is None else header(last)
    answer = {s: ports.Priors(applied, each * len(players)) for s, players in asked.players.items()}
    return hand.answer(ports.ReadPriors, answer)


def parts_sent(hand: ByHand, *offsets: int) -> ports.Scatter:
    return hand.answer(ports.Scatter, list(offsets))


def test_opening_fetches_c_before_it_sets_the_floors(hand: ByHand, observer: Recorder) -> None:
    """It reads the W offsets before c again. Rounds that were deleted unread are reported."""
    hand.answer(ports.Poll, ports.Polled(0.0, gained=frozenset([0])))
    assert opened(hand, committed={0: 10}).offsets == {0: 7}
    hand.expect(ports.Poll)
    observer = Recorder()
    hand = by_hand(observer)
    hand.answer(ports.Poll, ports.Polled(0.0, gained=frozenset([0, 1, 2])))
    seek = opened(
        hand,
        committed={0: 0, 1: None, 2: 4},
        starts={0: 6, 1: 6, 2: 4},
        remains=ports.OffsetEvidence({}, {1: 6}, parts_deleted=False),
    )
    assert seek.offsets == {0: 6, 1: 6, 2: 4}
    assert observer.missing == [(0, 0, 6)]


def test_a_partition_that_is_lost_in_trouble_is_not_opened(hand: ByHand) -> None:
    """The others are, by a new producer."""
    owning(hand, 0, 1)
    hand.fail(ports.Poll, LogTrouble("down"))
    hand.answer(ports.Poll, ports.Polled(0.0, lost=frozenset([1]), gained=frozenset([2])))
    hand.answer(ports.NewProducer)
    assert opened(hand, committed={0: 0, 2: 0}).offsets == {0: 0, 2: 0}


def test_repeated_trouble_rests_ever_longer(hand: ByHand) -> None:
    """Up to a second, polling for membership; success ends it."""
    owning(hand, 0)
    pauses = []
    hand.fail(ports.Poll, LogTrouble("down"))
    for _ in range(9):
        pauses.append(hand.answer(ports.Poll, ports.Polled(0.0), no_fetch=True).timeout_s)
        hand.fail(ports.NewProducer, LogTrouble("down"))
    assert pauses == [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    hand.answer(ports.Poll, ports.Polled(0.0), no_fetch=True)
    hand.answer(ports.NewProducer)
    opened(hand)
    read(hand)
    hand.fail(ports.Poll, LogTrouble("down"))
    hand.expect(ports.Poll, timeout_s=0.0, no_fetch=True)


def test_priors_are_asked_for_once_positions_allow(hand: ByHand) -> None:
    """Below the floor only positions are looked at, which is cheap."""
    owning(hand, 0, ends=(5, 0))
    read(hand, round_at(0, ZERO[0], ONE[0]))
    assert priors(hand, applied=4).players == {0: ()}
    read(hand)
    assert priors(hand, applied=5).players == {0: ()}
    read(hand)
    assert priors(hand, applied=5).players == {
        0: [("ladder-0", ZERO[0])], 1: [("ladder-0", ONE[0])],
    }  # fmt: skip
    hand.expect(ports.Scatter)


def test_belief_of_another_version_holds_up_its_shard_only(
    hand: ByHand, observer: Recorder
) -> None:
    """The shard is tried again after a while; nothing is guessed, and nobody dies."""
    owning(hand, 0)
    read(hand, round_at(0, ZERO[0], ZERO[1]), round_at(1, ONE[0], ONE[1]))
    unknown = b"\x63" + NOBODY[1:]
    hand.answer(ports.ReadPriors, {0: ports.Priors(0, unknown * 2), 1: ports.Priors(0, NOBODY * 2)})
    parts_sent(hand, 0)
    assert observer.refused == [(0, "belief record: version 99, this release reads 3 and 4")]
    read(hand, now_s=module.REFUSED_S - 0.1)
    priors(hand, applied=1)
    read(hand, now_s=module.REFUSED_S)
    assert len(priors(hand, applied=1).players[0]) == 2
    assert observer.opened == [0]
    hand.expect(ports.Scatter)


def test_uninformative_round_is_done_at_once(hand: ByHand) -> None:
    """Nobody finished, so no belief is read."""
    owning(hand, 0)
    value = as_json({"player": "a", "dnf": True}, {"player": "b", "dnf": True}, ladder="ladder-0")
    read(hand, Record(0, 0, value, received_s=4e9))
    hand.answer(ports.CommitSource, offsets={0: 1})


def test_reading_rests_while_many_players_wait(hand: ByHand) -> None:
    """A few waves may wait. A partition with many, or behind an unready round, stops no other."""
    owning(hand, 0, ends=(5, 5))
    most = READ_AHEAD * 4
    read(hand, *(round_at(i, "a", "b") for i in range(most // 2)))
    priors(hand)
    hand.answer(ports.Poll, ports.Polled(0.0), no_fetch=False)
    priors(hand)
    read(hand, round_at(50, "a", "b"))
    priors(hand)
    hand.expect(ports.Poll, no_fetch=True)
    hand = by_hand(Recorder())
    owning(hand, 0, 1, ends=(5, 5))
    waiting = [round_at(i, "a", "b") for i in range(READ_AHEAD * 2 + 1)]
    read(hand, round_at(0, "c", "d", partition=1), *waiting)
    priors(hand)
    hand.answer(ports.Poll, ports.Polled(0.0), no_fetch=False, paused=frozenset([0]))
    priors(hand)
    most = READ_AHEAD * 4 // 2
    read(hand, *(round_at(i, "c", "d", partition=1) for i in range(1, most // 2)))
    priors(hand)
    hand.expect(ports.Poll, no_fetch=True, paused=frozenset([0, 1]))
    hand = by_hand(Recorder())
    owning(hand, 0, ends=(5, 0))
    junk = [Record(0, i, b"junk") for i in range(1, 2 + READ_AHEAD * 4)]
    read(hand, round_at(0, ZERO[0], ZERO[1]), *junk)
    priors(hand, applied=4)
    hand.expect(ports.Poll, no_fetch=True)


def test_reading_rests_while_large_rejections_wait(
    hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their bytes stay in memory until they are committed."""
    monkeypatch.setattr(input_partition, "MOST_REJECTED_BYTES", 100)
    owning(hand, 0, ends=(5, 0))
    read(hand, round_at(0, ZERO[0], ZERO[1]), Record(0, 1, b"x" * 101))
    priors(hand, applied=4)
    hand.answer(ports.Poll, ports.Polled(0.0), no_fetch=True)
    priors(hand, applied=5)
    hand.answer(ports.Poll, ports.Polled(0.0), no_fetch=True)
    priors(hand, applied=5)
    parts_sent(hand, 5)
    commit = hand.answer(ports.CommitSource, offsets={0: 2})
    assert [each.code for each in commit.rejections] == ["malformed"]
    hand.expect(ports.Poll, no_fetch=False)


def test_large_slices_travel_in_chunks() -> None:
    """All must be acknowledged; the player waits for the last."""
    hand = Agreed(Estimator(ANY_LADDER, 1, ANYWHERE, rows_per_part=2, cache_bytes=0).run())
    owning(hand, 0, ends=(0,))
    read(hand, round_at(0, *"abcde"))
    priors(hand)
    assert len(hand.expect(ports.Scatter).parts) == 3
    parts_sent(hand, 4, 5, 7)
    hand.answer(ports.CommitSource)
    read(hand, round_at(1, "a", "b"))
    priors(hand, applied=7)
    read(hand)
    priors(hand, applied=8)
    read(hand)
    assert len(priors(hand, applied=8).players[0]) == 2


def test_a_flooded_partition_rests(observer: Recorder) -> None:
    """It rests until its bucket has leaked; others do not. A worker that gains it counts again."""
    hand = by_hand(observer, rejects_per_second=1.0)
    owning(hand, 0, 1)
    read(hand, *(Record(0, offset, b"junk") for offset in range(13)), now_s=100.0)
    assert len(hand.answer(ports.CommitSource, offsets={0: 13}).rejections) == 13
    read(hand, Record(1, 0, b"junk"), now_s=101.0)
    hand.answer(ports.CommitSource, offsets={1: 1})
    hand.answer(ports.Poll, ports.Polled(102.9), paused=frozenset({0}))
    hand.answer(ports.Poll, ports.Polled(103.1), paused=frozenset({0}))
    hand.expect(ports.Poll, paused=frozenset(), no_fetch=False)
    assert observer.paused == [{0}, set()]
    hand = by_hand(observer, rejects_per_second=1.0)
    owning(hand, 0)
    read(hand, *(Record(0, offset, b"junk") for offset in range(99)))
    hand.answer(ports.CommitSource)
    hand.answer(ports.Poll, ports.Polled(0.0, lost=frozenset({0})), paused=frozenset({0}))
    hand.expect(ports.Poll, paused=frozenset())
