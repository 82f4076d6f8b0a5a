"""Writing the log: offsets, transactions and parts, and which members may write them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stream_rater.adapters.kafka import consumer
from stream_rater.columns.player_column import BeliefColumn
from stream_rater.contract.errors import Denied, LogTrouble, Regrouped
from stream_rater.pipeline.ports import (
    NO_BELIEFS,
    NO_PLAYERS,
    REGROUPING_S,
    REGROUPINGS,
    Application,
    Apply,
    CommitSource,
    Committed,
    Effect,
    Event,
    LookForOffsets,
    NewProducer,
    OffsetEvidence,
    Position,
    Publish,
    ReadBeliefs,
    Rejection,
    Scatter,
    ShardEnds,
)
from tests.contract.rigs import (
    ESTIMATOR,
    PARTITIONS,
    SHARDS,
    UPDATER,
    KafkaRig,
    Member,
    Rejected,
    Rig,
    SqliteRig,
    event,
    read_from_start,
    seen,
)
from tests.integration.topics import Bytes

BOTH = frozenset(range(PARTITIONS))
ALL = frozenset(range(SHARDS))


def rejections_of(
    rig: Rig, code: str, *records: tuple[bytes | None, bytes | None]
) -> list[Rejection]:
    """Rejections of such values and keys in partition 0, as they were read."""
    headers = [("content-type", b"application/msgpack"), ("trace", b"1")]
    rig.submit(0, *(Bytes(value, key, headers) for value, key in records))
    member = read_from_start(rig, ESTIMATOR)
    member.poll_until(lambda: len(member.records) == len(records))
    rig.leave(member)
    return [Rejection(each, code, f"why: {code} \u00fc") for each in member.records]


JUNK = [(b"x", None)] * 4


def test_rejections_and_offsets_come_together(rig: Rig) -> None:
    """Never committed is None, not 0. A rejection has its key, value, reason and place."""
    content = [(b"\x00\xff{", b"\xfekey"), (b"", b""), (None, None), (b"x" * 2**23, b"k")]
    rejected = rejections_of(rig, "bad-rank", *content)
    member = read_from_start(rig, ESTIMATOR)
    assert member.do(Committed(BOTH)) == {0: None, 1: None}
    member.do(CommitSource({1: 0}))
    assert member.do(Committed(BOTH)) == {0: None, 1: 0}
    assert member.do(Committed(frozenset())) == {}
    assert rig.rejections() == []
    member.do(CommitSource({0: 1, 1: 9}, rejected[:1]))
    member.do(CommitSource({0: 4}, rejected[1:]))
    assert rig.rejections() == [
        Rejected(0, offset, "bad-rank", "why: bad-rank \u00fc", key, value)
        for offset, (value, key) in enumerate(content)
    ]
    assert member.do(Committed(BOTH)) == {0: 4, 1: 9}
    assert (rig.committed(ESTIMATOR, 0), rig.committed(ESTIMATOR, 1)) == (4, 9)


def test_the_last_rejections_are_found(rig: Rig) -> None:
    """The offset after each partition's last rejection, if any, or after the later record that
    decided (not in a data file, which deletes no offsets)."""
    rejected = rejections_of(rig, "unknown-round", *JUNK)
    member = read_from_start(rig, ESTIMATOR)
    ends = {0: 4, 1: 0}
    assert looked(member, BOTH) == OffsetEvidence({}, ends, parts_deleted=False)
    both = replace(rejected[0], decided_at=2), replace(rejected[1], decided_at=2)
    member.do(CommitSource({0: 3}, both))
    after = 2 if isinstance(rig, SqliteRig) else 3
    assert looked(member, BOTH).after_rejected == {0: after}
    member.do(CommitSource({0: 4}, [rejected[3]]))
    assert looked(member, BOTH) == OffsetEvidence({0: 4}, ends, parts_deleted=False)
    assert looked(member, frozenset([1])).after_rejected == {}
    if isinstance(rig, SqliteRig):
        return  # nothing deletes rejections from a data file
    rig.cut_rejections()
    found = OffsetEvidence({}, ends, parts_deleted=False, rejections_deleted=True)
    assert looked(member, BOTH) == found, "what is left does not show the last ones"


def test_events_and_offsets_come_together(rig: Rig) -> None:
    """In order in their shard's partition, with offsets; ten thousand are one transaction."""
    member = read_from_start(rig, UPDATER)
    first = [event(2, "a"), event(0, "b"), event(2, "c")]
    second = [event(2, "d"), *(event(number % SHARDS, f"{number:05}") for number in range(10_000))]
    member.do(Publish(first, {0: 1, 2: 5}))
    member.do(Publish(second, {2: 6}))
    member.do(Publish([], {1: 2}))
    assert rig.events() == seen([*first, *second])
    assert member.do(Committed(ALL)) == {0: 1, 1: 2, 2: 6}


def test_a_pending_transaction_hides_the_offsets(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a transaction is open, its events are invisible and its offsets cannot be read."""
    member = read_from_start(rig, UPDATER)
    member.do(Publish([event(0, "before")], {0: 1}))
    rig.leave_open(member, Publish([event(0, "never")], {0: 2}))
    assert rig.events() == seen([event(0, "before")])
    monkeypatch.setattr(consumer, "TIMEOUT_S", 0.6)
    with pytest.raises(LogTrouble):
        member.do(Committed(ALL))


AHEAD = 20_000  # So many events that some are in flight before the store has answered.


def applied_ahead(
    rig: Rig, count: int = AHEAD, member: Member | None = None
) -> tuple[Member, list[Event]]:
    """A member (a new one, or this) that applied something and began to send the events."""
    member = member or read_from_start(rig, UPDATER)
    events = [event(number % 2, f"{number:05}") for number in range(count)]
    beliefs = BeliefColumn.of([(("l", "ann"), b"belief")])
    start = member.do(ReadBeliefs({0: NO_PLAYERS}))[0].position.applied
    call = Application(Position(start + 1, start), beliefs)
    before = rig.visible_events()
    assert member.do(Apply(dict.fromkeys((0, 1), call), list(events))) == {0: True, 1: True}
    assert rig.visible_events() == before
    return member, events


def test_events_that_went_ahead_are_published_once(rig: Rig) -> None:
    """Nobody sees the events before they are published with their offsets. The next ones follow."""
    member, events = applied_ahead(rig)
    member.do(Publish(list(events), {0: 1, 1: 1}))
    assert rig.events() == seen(events)
    member.do(Publish([event(2, "next")], {2: 3}))
    assert rig.events() == seen([*events, event(2, "next")])
    assert member.do(Committed(ALL)) == {0: 1, 1: 1, 2: 3}


def test_events_that_went_ahead_in_vain_never_were(rig: Rig) -> None:
    """Other events are published in their place: those of shards that were as expected."""
    member, events = applied_ahead(rig)
    sent = [each for each in events if each.shard == 0]
    member.do(Publish(sent, {0: 1}))
    assert rig.events() == seen(sent)
    assert member.do(Committed(ALL)) == {0: 1, 1: None, 2: None}


@pytest.mark.integration
def test_events_that_went_ahead_are_undone_however_soon(
    kafka_rig: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after another transaction, and however quick Redis is, the same producer continues."""
    member, (first, *_) = applied_ahead(kafka_rig, 1)
    worker: Any = member.performer
    apply, took_s, sent = worker._store.apply, iter(np.linspace(0.0, 0.02, 40)), list[Event]()

    def slowly(applications: Any, on_sent: Callable[[], None]) -> Mapping[int, bool]:
        applied: Mapping[int, bool] = apply(applications, on_sent)
        time.sleep(next(took_s))
        return applied

    monkeypatch.setattr(worker._store, "apply", slowly)
    for turn in range(1, 41):
        member.do(Publish([first], {0: turn}))
        sent, first = [*sent, first], event(0, f"{turn:05}")
        member.do(Apply({0: Application(Position(turn + 1, turn), NO_BELIEFS)}, [first]))
        assert member.do(Committed(ALL)) == {0: turn, 1: None, 2: None}
    assert kafka_rig.events() == seen(sent)


def test_events_that_went_ahead_wait_for_nothing_else(rig: Rig) -> None:
    """Whatever effect follows, the events are gone, and hide nothing from subscribers."""
    member, published = None, list[Event]()
    effects: list[Effect[Any]] = [ShardEnds(), Committed(ALL), NewProducer()]
    for start, effect in enumerate(effects):
        member, _ = applied_ahead(rig, AHEAD if start == 0 else 100, member)
        member.do(effect)
        assert rig.events() == seen(published), effect
        published.append(event(0, f"after {start}"))
        member.do(Publish(published[-1:], {0: start + 2}))
        assert rig.events() == seen(published), effect
        assert member.do(Committed(ALL)) == {0: start + 2, 1: None, 2: None}


def test_events_that_went_ahead_of_another_generation_go_again(rig: Rig) -> None:
    """Their transaction is aborted; after polls the effect publishes them once. What a member gives
    up is assigned a generation later, so it may be refused again."""
    first, events = applied_ahead(rig, 100)
    rig.count_in(rig.join(UPDATER))

    def published() -> bool:
        try:
            first.do(Publish(list(events), dict.fromkeys(first.owned, 1)))
        except Regrouped:
            assert rig.visible_events() == []
            return False
        return True

    assert not published()
    first.poll_until(lambda: bool(first.lost))
    first.poll_until(published)
    assert rig.events() == seen(events)


@pytest.mark.integration
def test_who_is_denied_leaves_no_events_open(
    kafka_rig: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis denies access after events were sent: the worker ends, and nothing stays open."""
    member, (_, *events) = applied_ahead(kafka_rig)
    worker: Any = member.performer
    apply = worker._store.apply

    def denied(*given: Any) -> None:
        apply(*given)
        raise Denied("redis: NOPERM")

    monkeypatch.setattr(worker._store, "apply", denied)
    with pytest.raises(
        Denied, match=r"changing beliefs or writing .*rating-changed: redis: NOPERM"
    ):
        member.do(Apply({0: Application(Position(2, 1), NO_BELIEFS)}, events))
    assert kafka_rig.events() == []


@pytest.mark.integration
def test_what_was_undone_slowly_is_in_doubt(
    kafka_rig: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated request may abort the next transaction, so a new producer must begin that."""
    member, _ = applied_ahead(kafka_rig, 3)
    monkeypatch.setattr("stream_rater.adapters.kafka.producers.SLOW_COMMIT_S", -1.0)
    with pytest.raises(LogTrouble, match="in doubt: it took"):
        member.do(ShardEnds())
    monkeypatch.undo()
    member.do(NewProducer())
    member.do(Publish([event(0, "after")], {0: 1}))
    assert kafka_rig.events() == seen([event(0, "after")])


@pytest.mark.integration
def test_the_time_to_send_events_counts_as_part_of_their_publish(
    kafka_rig: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So `Apply` measures Redis and `Publish` measures Kafka."""
    clock_s, took = [0.0], dict[str, list[float]]()
    at = SimpleNamespace(perf_counter=lambda: clock_s[0], monotonic=time.monotonic)
    monkeypatch.setattr("stream_rater.adapters.driver.time", at)
    member, (_, *events) = applied_ahead(kafka_rig, 3)
    worker: Any = member.performer
    monkeypatch.setattr(worker, "_on_effect", lambda name, s: took.setdefault(name, []).append(s))
    begin = worker._begin

    def begin_in_a_second(events: Sequence[Event]) -> None:
        clock_s[0] += 1.0
        begin(events)

    monkeypatch.setattr(worker, "_begin", begin_in_a_second)
    call = Application(Position(2, 1), NO_BELIEFS)
    groups: list[list[Effect[Any]]]
    groups = [[Publish(events, {0: 1})], [ShardEnds(), Publish(events, {0: 2})]]
    for publishes in groups:
        assert member.do(Apply({0: call}, events)) == {0: True}
        for each in publishes:
            member.do(each)
        call = Application(Position(3, 2), NO_BELIEFS)
    assert took == {"Apply": [0.0, 0.0], "Publish": [1.0, 1.0], "ShardEnds": [0.0]}


def test_a_new_producer_aborts_what_was_open(rig: Rig) -> None:
    """After NewProducer, the old producer's transaction is aborted, and the new one's is not."""
    member = read_from_start(rig, UPDATER)
    member.do(Publish([event(0, "before")], {0: 1}))
    rig.leave_open(member, Publish([event(0, "never"), event(1, "never")], {0: 2, 1: 1}))
    member.do(NewProducer())
    assert member.do(Committed(ALL)) == {0: 1, 1: None, 2: None}
    member.do(Publish([event(0, "after")], {0: 2}))
    assert rig.events() == seen([event(0, "before"), event(0, "after")])
    assert member.do(Committed(ALL)) == {0: 2, 1: None, 2: None}


def test_after_a_transaction_that_did_not_end_nothing_goes_before_a_new_producer(rig: Rig) -> None:
    member = read_from_start(rig, UPDATER)
    rig.leave_open(member, Publish([event(0, "never")], {0: 2}))
    with pytest.raises(LogTrouble):
        member.do(Publish([event(0, "neither")], {0: 3}))
    member.do(NewProducer())
    assert rig.events() == []
    assert rig.committed(UPDATER, 0) is None


@pytest.mark.parametrize("role", [ESTIMATOR, UPDATER])
def test_a_generation_that_is_over_commits_nothing_and_spoils_nothing(rig: Rig, role: str) -> None:
    """After a poll, the same producer commits what is still owned, without starting over."""
    every = ALL if role == UPDATER else BOTH
    (rejected,) = rejections_of(rig, "malformed", *JUNK[:1])
    first = read_from_start(rig, role)

    def commit(partition: int, offset: int, name: str) -> None:
        sent, offsets = event(partition, name), {partition: offset}
        first.do(Publish([sent], offsets) if role == UPDATER else CommitSource(offsets, [rejected]))

    for partition in every:
        commit(partition, 1, "before")
    rig.count_in(rig.join(role))
    with pytest.raises(Regrouped):
        commit(0, 2, "never")
    for _ in range(REGROUPINGS):
        first.poll(REGROUPING_S, no_fetch=True)
        mine = min(first.owned)
        try:
            commit(mine, 3, "after")
            break
        except Regrouped:  # what was lost is dealt out in the next generation
            continue
    assert [rig.committed(role, p) for p in sorted(every)] == [
        3 if p == mine else 1 for p in sorted(every)
    ]
    sent = [*(event(p, "before") for p in every), event(mine, "after")]
    assert sorted(rig.events()) == (sorted(seen(sent)) if role == UPDATER else [])
    assert len(rig.rejections()) == (0 if role == UPDATER else len(sent))


def test_an_evicted_member_writes_nothing(rig: Rig) -> None:
    """No events, offsets or rejections of an evicted member appear, even without a successor."""
    rejected = rejections_of(rig, "malformed", *JUNK[:1])
    updater, estimator = (rig.join(role, evictable=True) for role in (UPDATER, ESTIMATOR))
    updater.poll_until(lambda: updater.owned == ALL)
    estimator.poll_until(lambda: estimator.owned == BOTH)
    updater.do(Publish([event(0, "owner's")], {0: 1}))
    estimator.do(CommitSource({0: 1}))
    second = rig.join(UPDATER)
    rig.evict(updater, [second])
    with pytest.raises(LogTrouble):
        updater.do(Publish([event(0, "zombie's")], {0: 2}))
    second.do(Publish([event(0, "successor's")], {0: 2}))
    updater.do(NewProducer())
    assert rig.events() == seen([event(0, "owner's"), event(0, "successor's")])
    assert second.do(Committed(ALL)) == {0: 2, 1: None, 2: None}
    third = rig.join(ESTIMATOR)
    rig.evict(estimator, [third])
    third.do(CommitSource({0: 7}))
    for rejections in ((), rejected):
        with pytest.raises(LogTrouble):
            estimator.do(CommitSource({0: 2}, rejections))
    rig.leave(third)
    with pytest.raises(LogTrouble):
        estimator.do(CommitSource({0: 3}))
    estimator.do(NewProducer())
    assert (rig.committed(ESTIMATOR, 0), rig.rejections()) == (7, [])


def looked(member: Member, partitions: frozenset[int]) -> OffsetEvidence:
    found: OffsetEvidence = member.do(LookForOffsets(partitions))
    return found


def test_parts_are_read_where_they_were_sent(rig: Rig) -> None:
    """Scatter returns offsets, contiguous, in order, as ShardEnds predicts; updaters read them."""
    member = rig.join(ESTIMATOR)
    assert list(member.do(ShardEnds())) == [0, 0, 0]
    assert list(member.do(Scatter([]))) == []
    parts = [(0, b"a"), (1, b""), (0, b"\x00"), (0, b"d")]
    assert list(member.do(Scatter(parts))) == [0, 0, 1, 2]
    assert list(member.do(ShardEnds())) == [3, 1, 0]
    more = [(2, b"x" * (12 * 2**20)), (0, b"f")]
    assert list(rig.join(ESTIMATOR).do(Scatter(more))) == [0, 3]
    reader = read_from_start(rig, UPDATER)
    reader.poll_until(lambda: len(reader.records) == 6)
    found = {(record.partition, record.offset): record.value for record in reader.records}
    offsets = [0, 0, 1, 2, 0, 3]
    assert found == {(s, o): data for (s, data), o in zip(parts + more, offsets, strict=True)}
