"""Writing the log: offsets, transactions and parts, and which members may write them."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stream_rater.columns.player_column import BeliefColumn
from stream_rater.contract.errors import Denied, LogTrouble, Regrouped
from stream_rater.pipeline.ports import (
    NO_BELIEFS,
    REGROUPING_S,
    REGROUPINGS,
    Application,
    Apply,
    CommitSource,
    Committed,
    Effect,
    Event,
    NewProducer,
    Position,
    Publish,
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
    event,
    hurried,
    read_from_start,
    seen,
    settle,
)
from tests.integration.topics import Bytes

BOTH = frozenset(range(PARTITIONS))
ALL = frozenset(range(SHARDS))


def rejection(rig: Rig, code: str, value: bytes | None, key: bytes | None = None) -> Rejection:
    """A rejection of a record of partition 0, as it was read."""
    rig.submit(0, Bytes(value, key, [("content-type", b"application/msgpack"), ("trace", b"1")]))
    member = read_from_start(rig, ESTIMATOR)
    member.poll_until(lambda: len(member.records) > 0)
    rig.leave(member)
    return Rejection(member.records[-1], code, f"why: {code} \u00fc")


def test_nothing_is_committed_at_first(rig: Rig) -> None:
    """If nothing was ever committed, Committed returns None, which differs from a committed 0."""
    member = read_from_start(rig, ESTIMATOR)
    assert member.do(Committed(BOTH)) == {0: None, 1: None}
    member.do(CommitSource({1: 0}))
    assert member.do(Committed(BOTH)) == {0: None, 1: 0}
    assert member.do(Committed(frozenset())) == {}


def test_offsets_alone_are_committed(rig: Rig) -> None:
    """The group finds these offsets, and nothing is rejected."""
    member = read_from_start(rig, ESTIMATOR)
    member.do(CommitSource({0: 3, 1: 4}))
    member.do(CommitSource({0: 5}))
    assert member.do(Committed(BOTH)) == {0: 5, 1: 4}
    assert (rig.committed(ESTIMATOR, 0), rig.committed(ESTIMATOR, 1)) == (5, 4)
    assert rig.rejections() == []


@pytest.mark.parametrize(
    ("value", "key"), [(b"\x00\xff{", b"\xfekey"), (b"", b""), (None, None), (b"x" * 2**23, b"k")]
)
def test_rejections_and_offsets_come_together(
    rig: Rig, value: bytes | None, key: bytes | None
) -> None:
    """A rejection carries the original key and value, reason and place, with the offsets."""
    rejected = rejection(rig, "bad-rank", value, key)
    member = read_from_start(rig, ESTIMATOR)
    member.do(CommitSource({0: 1, 1: 9}, [rejected]))
    assert rig.rejections() == [Rejected(0, 0, "bad-rank", "why: bad-rank \u00fc", key, value)]
    assert member.do(Committed(BOTH)) == {0: 1, 1: 9}


def test_events_and_offsets_come_together(rig: Rig) -> None:
    """Events arrive in their shard's partition in order, and the offsets with them."""
    member = read_from_start(rig, UPDATER)
    first = [event(2, "a"), event(0, "b"), event(2, "c")]
    second = [event(2, "d")]
    member.do(Publish(first, {0: 1, 2: 5}))
    member.do(Publish(second, {2: 6}))
    member.do(Publish([], {1: 2}))
    assert rig.events() == seen([*first, *second])
    assert member.do(Committed(ALL)) == {0: 1, 1: 2, 2: 6}


def test_a_large_transaction_holds(rig: Rig) -> None:
    """Ten thousand events are one transaction."""
    events = [event(number % SHARDS, f"{number:05}") for number in range(10_000)]
    member = read_from_start(rig, UPDATER)
    member.do(Publish(events, {0: 1}))
    assert rig.events() == seen(events)


def test_a_pending_transaction_hides_the_offsets(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a transaction is open, its events are invisible and its offsets cannot be read."""
    member = read_from_start(rig, UPDATER)
    member.do(Publish([event(0, "before")], {0: 1}))
    rig.leave_open(member, Publish([event(0, "never")], {0: 2}))
    assert rig.events() == seen([event(0, "before")])
    with hurried(monkeypatch), pytest.raises(LogTrouble):
        member.do(Committed(ALL))


AHEAD = 20_000
"""So many events that some are in flight before the store has answered."""


def applied_ahead(rig: Rig, count: int = AHEAD) -> tuple[Member, list[Event]]:
    """A member that applied something and began to send the events."""
    member = read_from_start(rig, UPDATER)
    events = [event(number % 2, f"{number:05}") for number in range(count)]
    call = Application(Position(1), BeliefColumn.of([(("l", "ann"), b"belief")]))
    calls = dict.fromkeys((0, 1), call)
    assert member.do(Apply(calls, list(events))) == {0: True, 1: True}
    assert rig.visible_events() == []
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


@pytest.mark.parametrize("effect", [ShardEnds(), Committed(ALL), NewProducer()])
def test_events_that_went_ahead_wait_for_nothing_else(rig: Rig, effect: Effect[Any]) -> None:
    """Whatever effect follows, the events are gone, and hide nothing from subscribers."""
    member, _ = applied_ahead(rig)
    member.do(effect)
    assert rig.events() == []
    member.do(Publish([event(0, "after")], {0: 2}))
    assert rig.events() == seen([event(0, "after")])
    assert member.do(Committed(ALL)) == {0: 2, 1: None, 2: None}


def test_events_that_went_ahead_of_another_generation_go_again(rig: Rig) -> None:
    """Their transaction is aborted. After polls, the same effect publishes them once. What a member
    gives up is assigned in one more generation, so it may be refused more than once."""
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
    """An open transaction is not continued."""
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
    rejected = rejection(rig, "malformed", b"x")
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


def test_an_evicted_member_cannot_publish(rig: Rig) -> None:
    """The events and offsets of an evicted member do not appear."""
    first = rig.join(UPDATER, evictable=True)
    first.poll_until(lambda: first.owned == ALL)
    first.do(Publish([event(0, "owner's")], {0: 1}))
    second = rig.join(UPDATER)
    rig.evict(first, [second])
    with pytest.raises(LogTrouble):
        first.do(Publish([event(0, "zombie's")], {0: 2}))
    second.do(Publish([event(0, "successor's")], {0: 2}))
    first.do(NewProducer())
    assert rig.events() == seen([event(0, "owner's"), event(0, "successor's")])
    assert second.do(Committed(ALL)) == {0: 2, 1: None, 2: None}


def test_an_evicted_member_cannot_commit(rig: Rig) -> None:
    """It can commit neither offsets nor rejections, even after its successor has left."""
    rejected = rejection(rig, "malformed", b"x")
    first = rig.join(ESTIMATOR, evictable=True)
    first.poll_until(lambda: first.owned == BOTH)
    first.do(CommitSource({0: 1}))
    second = rig.join(ESTIMATOR)
    rig.evict(first, [second])
    second.do(CommitSource({0: 7}))
    for rejections in ((), (rejected,)):
        with pytest.raises(LogTrouble):
            first.do(CommitSource({0: 2}, rejections))
    rig.leave(second)
    with pytest.raises(LogTrouble):
        first.do(CommitSource({0: 3}))
    first.do(NewProducer())
    assert rig.committed(ESTIMATOR, 0) == 7
    assert rig.rejections() == []


def test_a_member_that_polled_after_the_rebalance_can_publish(rig: Rig) -> None:
    """A member that keeps some shards continues to publish after it has polled."""
    first = rig.join(UPDATER)
    first.poll_until(lambda: first.owned == ALL)
    second = rig.join(UPDATER)
    settle(first, second)
    theirs, ours = min(second.owned), min(first.owned)
    second.do(Publish([event(theirs, "b")], {theirs: 1}))
    first.do(Publish([event(ours, "a")], {ours: 1}))
    assert rig.events() == seen([event(ours, "a"), event(theirs, "b")])


def sent_offsets(rig: Rig, parts: Sequence[tuple[int, bytes]]) -> Sequence[int]:
    return rig.join(ESTIMATOR).do(Scatter(parts))


def test_sent_parts_have_offsets(rig: Rig) -> None:
    """Scatter returns each part's offset in its shard, contiguous and in the order given."""
    assert list(sent_offsets(rig, [(0, b"a"), (1, b"b"), (0, b"c"), (0, b"d")])) == [0, 0, 1, 2]
    assert list(sent_offsets(rig, [(2, b"e"), (0, b"f")])) == [0, 3]
    assert list(sent_offsets(rig, [])) == []


def test_parts_are_read_where_they_were_sent(rig: Rig) -> None:
    """An updater reads the bytes of a part at the offset that Scatter returned."""
    large = b"x" * (12 * 2**20)
    parts = [(0, b"a"), (1, b""), (2, large), (0, b"\x00")]
    offsets = sent_offsets(rig, parts)
    member = read_from_start(rig, UPDATER)
    member.poll_until(lambda: len(member.records) == 4)
    found = {(record.partition, record.offset): record.value for record in member.records}
    assert found == {(s, o): data for (s, data), o in zip(parts, offsets, strict=True)}


def test_shard_ends(rig: Rig) -> None:
    """ShardEnds returns the offsets that the next parts will have."""
    member = rig.join(ESTIMATOR)
    assert list(member.do(ShardEnds())) == [0, 0, 0]
    member.do(Scatter([(0, b"a"), (2, b"b"), (2, b"c")]))
    assert list(member.do(ShardEnds())) == [1, 0, 2]
    assert list(member.do(Scatter([(2, b"d")]))) == [2]
