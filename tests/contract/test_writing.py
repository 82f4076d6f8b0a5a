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
from stream_rater.pipeline import ports
from tests.contract import rigs
from tests.integration.topics import Bytes
from tests.real import GROUP_PROTOCOL

NO_BELIEFS = BeliefColumn.of(())

INTERRUPTED = pytest.mark.skipif(
    GROUP_PROTOCOL == "consumer", reason="a member commits until it has given its partitions up"
)

BOTH = frozenset(range(rigs.PARTITIONS))
ALL = frozenset(range(rigs.SHARDS))


def rejections_of(
    rig: rigs.Rig, code: str, *records: tuple[bytes | None, bytes | None]
) -> list[ports.Rejection]:
    """Rejections, with this code, of records in partition 0 with these values and keys."""
    headers = [("content-type", b"application/msgpack"), ("trace", b"1")]
    rig.submit(0, *(Bytes(value, key, headers) for value, key in records))
    member = rigs.read_from_start(rig, rigs.ESTIMATOR)
    member.poll_until(lambda: len(member.records) == len(records))
    rig.leave(member)
    return [ports.Rejection(each, code, f"why: {code} \u00fc") for each in member.records]


JUNK = [(b"x", None)] * 4


def test_rejections_and_offsets_come_together(rig: rigs.Rig) -> None:
    """Without a commit there is None, not 0. A rejection has key, value, reason and place."""
    content = [(b"\x00\xff{", b"\xfekey"), (b"", b""), (None, None), (b"x" * 2**23, b"k")]
    rejected = rejections_of(rig, "bad-rank", *content)
    member = rigs.read_from_start(rig, rigs.ESTIMATOR)
    assert member.do(ports.Committed(BOTH)) == {0: None, 1: None}
    member.do(ports.CommitSource({1: 0}))
    assert member.do(ports.Committed(BOTH)) == {0: None, 1: 0}
    assert member.do(ports.Committed(frozenset())) == {}
    assert rig.rejections() == []
    member.do(ports.CommitSource({0: 1, 1: 9}, rejected[:1]))
    member.do(ports.CommitSource({0: 4}, rejected[1:]))
    assert rig.rejections() == [
        rigs.Rejected(0, offset, "bad-rank", "why: bad-rank \u00fc", key, value)
        for offset, (value, key) in enumerate(content)
    ]
    assert member.do(ports.Committed(BOTH)) == {0: 4, 1: 9}
    assert (rig.committed(rigs.ESTIMATOR, 0), rig.committed(rigs.ESTIMATOR, 1)) == (4, 9)


def test_the_last_rejections_are_found(rig: rigs.Rig) -> None:
    """The offset after each partition's last rejection is found, or after the later record that
    decided it. (A data file, whose committed offsets stay, does without the latter.)"""
    rejected = rejections_of(rig, "unknown-round", *JUNK)
    member = rigs.read_from_start(rig, rigs.ESTIMATOR)
    ends = {0: 4, 1: 0}
    assert looked(member, BOTH) == ports.OffsetEvidence({}, ends, parts_deleted=False)
    both = replace(rejected[0], decided_at=2), replace(rejected[1], decided_at=2)
    member.do(ports.CommitSource({0: 3}, both))
    after = 2 if isinstance(rig, rigs.SqliteRig) else 3
    assert looked(member, BOTH).after_rejected == {0: after}
    member.do(ports.CommitSource({0: 4}, [rejected[3]]))
    assert looked(member, BOTH) == ports.OffsetEvidence({0: 4}, ends, parts_deleted=False)
    assert looked(member, frozenset([1])).after_rejected == {}
    if isinstance(rig, rigs.SqliteRig):
        return  # nothing deletes rejections from a data file
    rig.cut_rejections()
    found = ports.OffsetEvidence({}, ends, parts_deleted=False, rejections_deleted=True)
    assert looked(member, BOTH) == found, "what is left does not show the last ones"


def test_events_and_offsets_come_together(rig: rigs.Rig) -> None:
    """Events come in order to their shard, with offsets. 10,000 of them are one transaction."""
    member = rigs.read_from_start(rig, rigs.UPDATER)
    first = [rigs.event(2, "a"), rigs.event(0, "b"), rigs.event(2, "c")]
    second = [
        rigs.event(2, "d"),
        *(rigs.event(number % rigs.SHARDS, f"{number:05}") for number in range(10_000)),
    ]
    member.do(ports.Publish(first, {0: 1, 2: 5}))
    member.do(ports.Publish(second, {2: 6}))
    member.do(ports.Publish([], {1: 2}))
    assert rig.events() == rigs.seen([*first, *second])
    assert member.do(ports.Committed(ALL)) == {0: 1, 1: 2, 2: 6}


def test_a_pending_transaction_hides_the_offsets(
    rig: rigs.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a transaction is open, its events are invisible and its offsets cannot be read."""
    member = rigs.read_from_start(rig, rigs.UPDATER)
    member.do(ports.Publish([rigs.event(0, "before")], {0: 1}))
    rig.leave_open(member, ports.Publish([rigs.event(0, "never")], {0: 2}))
    assert rig.events() == rigs.seen([rigs.event(0, "before")])
    monkeypatch.setattr(consumer, "TIMEOUT_S", 0.6)
    with pytest.raises(LogTrouble):
        member.do(ports.Committed(ALL))


AHEAD = 20_000  # Enough events for some to be in flight before the store has answered.


def applied_ahead(
    rig: rigs.Rig, count: int = AHEAD, member: rigs.Member | None = None
) -> tuple[rigs.Member, list[ports.Event]]:
    """A member (new, or the given one) that applied something and began to send its events."""
    member = member or rigs.read_from_start(rig, rigs.UPDATER)
    events = [rigs.event(number % 2, f"{number:05}") for number in range(count)]
    beliefs = BeliefColumn.of([(("l", "ann"), b"belief")])
    start = member.do(ports.ReadBeliefs({0: ports.NO_PLAYERS}))[0].position.applied
    call = ports.Application(ports.Position(start + 1, start), beliefs)
    before = rig.visible_events()
    assert member.do(ports.Apply(dict.fromkeys((0, 1), call), list(events))) == {0: True, 1: True}
    assert rig.visible_events() == before
    return member, events


def test_events_that_went_ahead_are_published_once(rig: rigs.Rig) -> None:
    """No subscriber sees them before their offsets are committed. The next events follow."""
    member, events = applied_ahead(rig)
    member.do(ports.Publish(list(events), {0: 1, 1: 1}))
    assert rig.events() == rigs.seen(events)
    member.do(ports.Publish([rigs.event(2, "next")], {2: 3}))
    assert rig.events() == rigs.seen([*events, rigs.event(2, "next")])
    assert member.do(ports.Committed(ALL)) == {0: 1, 1: 1, 2: 3}


def test_events_that_went_ahead_in_vain_never_were(rig: rigs.Rig) -> None:
    """They are aborted; the events of those shards that were as expected are published instead."""
    member, events = applied_ahead(rig)
    sent = [each for each in events if each.shard == 0]
    member.do(ports.Publish(sent, {0: 1}))
    assert rig.events() == rigs.seen(sent)
    assert member.do(ports.Committed(ALL)) == {0: 1, 1: None, 2: None}


@pytest.mark.integration
def test_events_that_went_ahead_are_undone_however_soon(
    kafka_rig: rigs.KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same producer continues, right after another transaction and however quick Redis is."""
    member, (first, *_) = applied_ahead(kafka_rig, 1)
    worker: Any = member.performer
    apply, took_s, sent = worker._store.apply, iter(np.linspace(0.0, 0.02, 40)), list[ports.Event]()

    def slowly(applications: Any, on_sent: Callable[[], None]) -> Mapping[int, bool]:
        applied: Mapping[int, bool] = apply(applications, on_sent)
        time.sleep(next(took_s))
        return applied

    monkeypatch.setattr(worker._store, "apply", slowly)
    for turn in range(1, 41):
        member.do(ports.Publish([first], {0: turn}))
        sent, first = [*sent, first], rigs.event(0, f"{turn:05}")
        member.do(
            ports.Apply({0: ports.Application(ports.Position(turn + 1, turn), NO_BELIEFS)}, [first])
        )
        assert member.do(ports.Committed(ALL)) == {0: turn, 1: None, 2: None}
    assert kafka_rig.events() == rigs.seen(sent)


def test_events_that_went_ahead_wait_for_nothing_else(rig: rigs.Rig) -> None:
    """Whatever other effect follows aborts them, so that they hide nothing from subscribers."""
    member, published = None, list[ports.Event]()
    effects: list[ports.Effect[Any]] = [
        ports.ShardEnds(),
        ports.Committed(ALL),
        ports.NewProducer(),
    ]
    for start, effect in enumerate(effects):
        member, _ = applied_ahead(rig, AHEAD if start == 0 else 100, member)
        member.do(effect)
        assert rig.events() == rigs.seen(published), effect
        published.append(rigs.event(0, f"after {start}"))
        member.do(ports.Publish(published[-1:], {0: start + 2}))
        assert rig.events() == rigs.seen(published), effect
        assert member.do(ports.Committed(ALL)) == {0: start + 2, 1: None, 2: None}


@INTERRUPTED
def test_events_that_went_ahead_of_another_generation_go_again(rig: rigs.Rig) -> None:
    """Their transaction is aborted. After polls, the same effect publishes them once; it may be
    refused again first, as partitions that are given up are assigned a generation later."""
    first, events = applied_ahead(rig, 100)
    rig.count_in(rig.join(rigs.UPDATER))

    def published() -> bool:
        try:
            first.do(ports.Publish(list(events), dict.fromkeys(first.owned, 1)))
        except Regrouped:
            assert rig.visible_events() == []
            return False
        return True

    assert not published()
    first.poll_until(lambda: bool(first.lost))
    first.poll_until(published)
    assert rig.events() == rigs.seen(events)


@pytest.mark.integration
def test_who_is_denied_leaves_no_events_open(
    kafka_rig: rigs.KafkaRig, monkeypatch: pytest.MonkeyPatch
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
        member.do(ports.Apply({0: ports.Application(ports.Position(2, 1), NO_BELIEFS)}, events))
    assert kafka_rig.events() == []


@pytest.mark.integration
def test_what_was_undone_slowly_is_in_doubt(
    kafka_rig: rigs.KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated request may abort the next transaction, so a new producer must begin that."""
    member, _ = applied_ahead(kafka_rig, 3)
    monkeypatch.setattr("stream_rater.adapters.kafka.producers.SLOW_COMMIT_S", -1.0)
    with pytest.raises(LogTrouble, match="in doubt: it took"):
        member.do(ports.ShardEnds())
    monkeypatch.undo()
    member.do(ports.NewProducer())
    member.do(ports.Publish([rigs.event(0, "after")], {0: 1}))
    assert kafka_rig.events() == rigs.seen([rigs.event(0, "after")])


@pytest.mark.integration
def test_the_time_to_send_events_counts_as_part_of_their_publish(
    kafka_rig: rigs.KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So `Apply` measures Redis and `Publish` measures Kafka."""
    clock_s, took = [0.0], dict[str, list[float]]()
    at = SimpleNamespace(perf_counter=lambda: clock_s[0], monotonic=time.monotonic)
    monkeypatch.setattr("stream_rater.adapters.driver.time", at)
    member, (_, *events) = applied_ahead(kafka_rig, 3)
    worker: Any = member.performer
    monkeypatch.setattr(worker, "_on_effect", lambda name, s: took.setdefault(name, []).append(s))
    begin = worker._begin

    def begin_in_a_second(events: Sequence[ports.Event]) -> None:
        clock_s[0] += 1.0
        begin(events)

    monkeypatch.setattr(worker, "_begin", begin_in_a_second)
    call = ports.Application(ports.Position(2, 1), NO_BELIEFS)
    groups: list[list[ports.Effect[Any]]]
    groups = [[ports.Publish(events, {0: 1})], [ports.ShardEnds(), ports.Publish(events, {0: 2})]]
    for publishes in groups:
        assert member.do(ports.Apply({0: call}, events)) == {0: True}
        for each in publishes:
            member.do(each)
        call = ports.Application(ports.Position(3, 2), NO_BELIEFS)
    assert took == {"Apply": [0.0, 0.0], "Publish": [1.0, 1.0], "ShardEnds": [0.0]}


def test_a_new_producer_aborts_what_was_open(rig: rigs.Rig) -> None:
    """After NewProducer, the old producer's transaction is aborted, and the new one's is not."""
    member = rigs.read_from_start(rig, rigs.UPDATER)
    member.do(ports.Publish([rigs.event(0, "before")], {0: 1}))
    rig.leave_open(
        member, ports.Publish([rigs.event(0, "never"), rigs.event(1, "never")], {0: 2, 1: 1})
    )
    member.do(ports.NewProducer())
    assert member.do(ports.Committed(ALL)) == {0: 1, 1: None, 2: None}
    member.do(ports.Publish([rigs.event(0, "after")], {0: 2}))
    assert rig.events() == rigs.seen([rigs.event(0, "before"), rigs.event(0, "after")])
    assert member.do(ports.Committed(ALL)) == {0: 2, 1: None, 2: None}


def test_after_a_transaction_that_did_not_end_nothing_goes_before_a_new_producer(
    rig: rigs.Rig,
) -> None:
    member = rigs.read_from_start(rig, rigs.UPDATER)
    rig.leave_open(member, ports.Publish([rigs.event(0, "never")], {0: 2}))
    with pytest.raises(LogTrouble):
        member.do(ports.Publish([rigs.event(0, "neither")], {0: 3}))
    member.do(ports.NewProducer())
    assert rig.events() == []
    assert rig.committed(rigs.UPDATER, 0) is None


@INTERRUPTED
@pytest.mark.parametrize("role", [rigs.ESTIMATOR, rigs.UPDATER])
def test_a_generation_that_is_over_commits_nothing_and_spoils_nothing(
    rig: rigs.Rig, role: str
) -> None:
    """After a poll, the same producer commits what is still owned, without starting over."""
    every = ALL if role == rigs.UPDATER else BOTH
    (rejected,) = rejections_of(rig, "malformed", *JUNK[:1])
    first = rigs.read_from_start(rig, role)

    def commit(partition: int, offset: int, name: str) -> None:
        sent, offsets = rigs.event(partition, name), {partition: offset}
        first.do(
            ports.Publish([sent], offsets)
            if role == rigs.UPDATER
            else ports.CommitSource(offsets, [rejected])
        )

    for partition in every:
        commit(partition, 1, "before")
    rig.count_in(rig.join(role))
    with pytest.raises(Regrouped):
        commit(0, 2, "never")
    for _ in range(ports.REGROUPINGS):
        first.poll(ports.REGROUPING_S, no_fetch=True)
        mine = min(first.owned)
        try:
            commit(mine, 3, "after")
            break
        except Regrouped:  # what was lost is dealt out in the next generation
            continue
    assert [rig.committed(role, p) for p in sorted(every)] == [
        3 if p == mine else 1 for p in sorted(every)
    ]
    sent = [*(rigs.event(p, "before") for p in every), rigs.event(mine, "after")]
    assert sorted(rig.events()) == (sorted(rigs.seen(sent)) if role == rigs.UPDATER else [])
    assert len(rig.rejections()) == (0 if role == rigs.UPDATER else len(sent))


def test_an_evicted_member_writes_nothing(rig: rigs.Rig) -> None:
    """No events, offsets or rejections of it appear, even after its successor has left."""
    rejected = rejections_of(rig, "malformed", *JUNK[:1])
    updater, estimator = (rig.join(role, evictable=True) for role in (rigs.UPDATER, rigs.ESTIMATOR))
    updater.poll_until(lambda: updater.owned == ALL)
    estimator.poll_until(lambda: estimator.owned == BOTH)
    updater.do(ports.Publish([rigs.event(0, "owner's")], {0: 1}))
    estimator.do(ports.CommitSource({0: 1}))
    second = rig.join(rigs.UPDATER)
    rig.evict(updater, [second])
    with pytest.raises(LogTrouble):
        updater.do(ports.Publish([rigs.event(0, "zombie's")], {0: 2}))
    second.do(ports.Publish([rigs.event(0, "successor's")], {0: 2}))
    updater.do(ports.NewProducer())
    assert rig.events() == rigs.seen([rigs.event(0, "owner's"), rigs.event(0, "successor's")])
    assert second.do(ports.Committed(ALL)) == {0: 2, 1: None, 2: None}
    third = rig.join(rigs.ESTIMATOR)
    rig.evict(estimator, [third])
    third.do(ports.CommitSource({0: 7}))
    for rejections in ((), rejected):
        with pytest.raises(LogTrouble):
            estimator.do(ports.CommitSource({0: 2}, rejections))
    rig.leave(third)
    with pytest.raises(LogTrouble):
        estimator.do(ports.CommitSource({0: 3}))
    estimator.do(ports.NewProducer())
    assert (rig.committed(rigs.ESTIMATOR, 0), rig.rejections()) == (7, [])


def looked(member: rigs.Member, partitions: frozenset[int]) -> ports.OffsetEvidence:
    found: ports.OffsetEvidence = member.do(ports.LookForOffsets(partitions))
    return found


def test_parts_are_read_where_they_were_sent(rig: rigs.Rig) -> None:
    """Scatter returns the offset of each part, as ShardEnds predicts; updaters read them there."""
    member = rig.join(rigs.ESTIMATOR)
    assert list(member.do(ports.ShardEnds())) == [0, 0, 0]
    assert list(member.do(ports.Scatter([]))) == []
    parts = [(0, b"a"), (1, b""), (0, b"\x00"), (0, b"d")]
    assert list(member.do(ports.Scatter(parts))) == [0, 0, 1, 2]
    assert list(member.do(ports.ShardEnds())) == [3, 1, 0]
    more = [(2, b"x" * (12 * 2**20)), (0, b"f")]
    assert list(rig.join(rigs.ESTIMATOR).do(ports.Scatter(more))) == [0, 3]
    reader = rigs.read_from_start(rig, rigs.UPDATER)
    reader.poll_until(lambda: len(reader.records) == 6)
    found = {(record.partition, record.offset): record.value for record in reader.records}
    offsets = [0, 0, 1, 2, 0, 3]
    assert found == {(s, o): data for (s, data), o in zip(parts + more, offsets, strict=True)}
