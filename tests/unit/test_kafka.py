"""What we make of what Kafka's clients report of topics, and of records, ends and errors."""

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from stream_rater.adapters import access
from stream_rater.adapters.kafka import consumer, reader, topics
from stream_rater.adapters.kafka.consumer import Fenced, Input
from stream_rater.adapters.kafka.ladder_events import LadderEvents
from stream_rater.adapters.kafka.records import Messages
from stream_rater.adapters.kafka.topic_rules import topic_settings
from stream_rater.adapters.kafka.topics import Admin, offset_of
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble, TopicMismatch, Unled
from stream_rater.pipeline.ports import Poll, SourceCommit
from stream_rater.rounds.lines import PlainRecords
from tests.builders.cases import cases
from tests.builders.consumers import Client, input_of_nobody, input_with

AT = Settings(kafka="127.0.0.1:1")


def test_an_offset_is_one() -> None:
    """Zero is one. None is trouble: taken for the log's end, it made a worker refuse its shard."""
    assert [offset_of(answered(SimpleNamespace(offset=offset))) for offset in (0, 7)] == [0, 7]
    for offset in (-1, -1001):
        with pytest.raises(LogTrouble, match="leader"):
            offset_of(answered(SimpleNamespace(offset=offset)))


@cases("trouble", [None, Unled("no leader within the time"), Denied("no right")])
def test_topics_of_another_process_have_leaders_first(trouble: Exception | None) -> None:
    """A worker that finds all topics waits, too. Whoever needs a leader or a right will say so."""
    admin = Admin(AT)
    names = patch.object(admin, "partitions", return_value=dict.fromkeys(admin.topics.names, 2))
    with names, patch.object(admin, "ends", side_effect=trouble) as ends:
        admin.create_topics()
    asked = [call.args for call in ends.mock_calls]
    assert asked == [(name, 2) for name in admin.topics.names[: 1 if trouble else None]]


# --- brokers learn of a topic and of its leaders one after the other ------------------------------

SIZED = Settings(kafka="127.0.0.1:1", partitions=2, shards=3)
UNKNOWN, *OTHERS = (
    KafkaException(KafkaError(code))
    for code in (
        KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.KAFKA_STORAGE_ERROR,
    )
)  # fmt: skip
KNOWN = {name: count for name, (count, _) in topic_settings(SIZED).items()}
COPY = SimpleNamespace(isrs=[1], replicas=[1])


def answered(result: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(result, KafkaException):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


class Brokers:
    """A client whose every other answer, the first among them, comes from a broker without news."""

    def __init__(self) -> None:
        self.asked = 0
        self.unled = 4 * [UNKNOWN, *OTHERS]
        """The next answers of partitions, before they are led."""

    def knows(self) -> bool:
        self.asked += 1
        return self.asked % 2 == 0

    def list_topics(self, topic: str = "", *, timeout: float) -> Any:
        known = KNOWN.items() if self.knows() else ()
        partitions = {name: dict.fromkeys(range(count), COPY) for name, count in known}
        return SimpleNamespace(
            topics={name: SimpleNamespace(partitions=some) for name, some in partitions.items()}
        )

    def create_topics(self, new: Any, **_: Any) -> Any:
        return {each.topic: answered(None) for each in new}

    def list_offsets(self, asked: Any, **_: Any) -> Any:
        found = self.unled.pop() if self.unled else SimpleNamespace(offset=0)
        return {each: answered(found) for each in asked}

    def describe_configs(self, resources: Any, **options: Any) -> Any:
        (resource,) = resources
        _, made = topic_settings(SIZED)[resource.name]
        configs = {name: SimpleNamespace(value=value) for name, value in made.items()}
        return {resource: answered(configs if self.knows() else UNKNOWN)}

    def describe_topics(self, asked: Any, **options: Any) -> Any:
        reported = SimpleNamespace(topic_id="id") if self.knows() else UNKNOWN
        return {name: answered(reported) for name in KNOWN}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    found, brokers = Admin(SIZED), Brokers()
    monkeypatch.setattr(found, "_client", brokers)
    monkeypatch.setattr(topics, "NEW_TOPIC_PAUSE_S", 0.0)
    return found


def test_topics_that_were_just_created_are_asked_for_until_a_broker_knows(admin: Admin) -> None:
    """Whatever is asked of them, and who leads their partitions before anybody reads them."""
    admin.create_topics()
    assert admin.check_topics() == admin.partitions() == KNOWN
    assert admin.copies("round-completed") == [(1, 1), (1, 1)]
    assert admin.topic_id("round-completed") == "id"


def test_topics_that_we_did_not_create_are_missing_at_once(admin: Admin) -> None:
    with pytest.raises(TopicMismatch, match="topic round-completed does not exist"):
        admin.check_topics()


def test_a_worker_waits_for_the_leaders_of_topics_that_exist(admin: Admin) -> None:
    """Whatever says that there is none; but not for ever."""
    assert LadderEvents(SIZED, admin).read().ladders == []
    brokers = cast(Brokers, admin._client)
    assert not brokers.unled
    with patch.object(topics, "TIMEOUT_S", 0.0), pytest.raises(LogTrouble, match="Unknown topic"):
        admin.configuration("round-completed")
    brokers.unled = 3 * OTHERS
    with patch.object(topics, "TIMEOUT_S", 0.0), pytest.raises(LogTrouble, match="eader"):
        admin.ends("round-completed", 2)


# --- a command's requests wait longer for a busy broker than a service's --------------------------

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
NOT_CONNECTED = KafkaException(KafkaError(KafkaError._TRANSPORT))


class BusyBroker:
    """A client whose requests all time out. It notes how long each would have waited."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self.unanswered = TIMED_OUT

    def _timed_out(self, keys: Any, request_timeout: float) -> dict[Any, "Future[Any]"]:
        self.waits_s.append(request_timeout)
        return dict.fromkeys(keys, answered(TIMED_OUT))

    describe_consumer_groups = list_offsets = _timed_out

    def list_topics(self, topic: str = "", *, timeout: float) -> None:
        if topic:
            raise TIMED_OUT
        self._timed_out((), timeout)
        raise self.unanswered

    def poll(self, timeout: float) -> None:
        """Nothing is reported."""


COMMANDS_S, SERVICES_S = topics.COMMAND_TIMEOUT_S, topics.REQUEST_TIMEOUT_S


@cases("options, longest_s", [({}, COMMANDS_S), ({"request_timeout_s": SERVICES_S}, SERVICES_S)])
def test_the_longest_wait(options: dict[str, float], longest_s: float) -> None:
    """The first request for offsets is short in both: its leader may be a former one. The first one
    for all topics shows whether a broker is busy or not there."""
    admin, broker = Admin(AT, **options), BusyBroker()
    admin._client = cast(Any, broker)
    with pytest.raises(LogTrouble):
        admin.ends("topic", 2)
    with pytest.raises(LogTrouble):
        admin.members("group")
    assert broker.waits_s == [SERVICES_S, longest_s, longest_s]
    for broker.unanswered, waits_s in (
        (TIMED_OUT, sorted([topics.TIMEOUT_S, longest_s])),
        (NOT_CONNECTED, [min(topics.TIMEOUT_S, longest_s)]),
    ):
        broker.waits_s.clear()
        with pytest.raises(LogTrouble, match="is the server running"):
            admin.partitions()
        assert broker.waits_s == waits_s


# --- an input: offsets without records ----------------------------------------------------------

WATERMARK, UNREAD = 10, 7  # The high watermark, and the offset after the last record that was read.


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Input]:
    """An input that has read all records of a partition."""
    client = Client()
    client.end = WATERMARK
    with input_with(client) as found:
        found.seek({0: UNREAD})
        yield found


def report(to: Input, next_offset: int = WATERMARK, waiting: int = 0) -> None:
    """Give it statistics, which have more than is read of them."""
    of_one = {"partition": 0, "next_offset": next_offset, "fetchq_cnt": waiting, "hi_offset": 10}
    none = {"partition": -1, "next_offset": -1001, "fetchq_cnt": 0}
    topics = {"t": {"topic": "t", "partitions": {"0": of_one, "-1": none}}}
    to._on_statistics(json.dumps({"name": "client", "brokers": {}, "topics": topics}))


def end_of(found: Input) -> int:
    found.log_ends = {0: found.consumer.end}  # type: ignore[attr-defined]
    return found.ends()[0]


def test_offsets_without_records_do_not_count(fetched: Input) -> None:
    """Nothing is known before the first statistics, and what is new counts at once."""
    assert end_of(fetched) == WATERMARK
    report(fetched)
    assert end_of(fetched) == UNREAD
    fetched.consumer.end = WATERMARK + 1  # type: ignore[attr-defined]
    assert end_of(fetched) == WATERMARK + 1


def test_statistics_that_do_not_count(fetched: Input) -> None:
    """Those that are late, of records in the client, of a fetch that is over, or before a pause."""
    for next_offset, waiting in ((WATERMARK - 1, 0), (WATERMARK, 1)):
        report(fetched, next_offset, waiting)
        assert end_of(fetched) == WATERMARK
    for sought, pauses in ((UNREAD - 2, []), (UNREAD, [{0}]), (UNREAD, [{0}, set[int]()])):
        fetched._pause(set())
        fetched.seek({0: UNREAD})
        report(fetched)
        if sought != UNREAD:
            fetched.seek({0: sought})
        for paused in pauses:
            fetched._pause(paused)
        assert end_of(fetched) == WATERMARK
    fetched._pause({0})
    report(fetched)
    assert end_of(fetched) == WATERMARK


# --- records of a batch that is not decompressed --------------------------------------------------

FIRST, LAST = 4, 8  # Offsets of the batch.
BAD = KafkaError(KafkaError._BAD_COMPRESSION, "zstd")


class UnreadableClient(Client):
    """A consumer that reports a batch's first offset twice a poll, until it is sought beyond."""

    end = LAST + 1

    def poll(self, _: float) -> Message | None:
        return Message(topic="t", partition=0, offset=FIRST, error=BAD) if self.at <= LAST else None

    def consume(self, *_: Any) -> list[Message]:
        return [each for each in [self.poll(0.0)] if each is not None]

    def incremental_assign(self, some: Sequence[TopicPartition]) -> None:
        for each in some:
            self.seek(each)


def test_each_is_reported_once() -> None:
    """From where they are sought: inside the batch, or before it, as after trouble."""
    with input_with(UnreadableClient()) as spoilt:
        for first, polls, due in (
            (FIRST, 7, [4, 5, 6, 7, 8]), (6, 4, [6, 7, 8]), (5, 2, [5, 6]),
            (FIRST, 7, [4, 5, 6, 7, 8]),
        ):  # fmt: skip
            spoilt.seek({0: first})
            found = [each for _ in range(polls) for each in spoilt.poll(Poll(0.0)).records]
            assert all(each.unreadable and each.value is None for each in found)
            assert [each.offset for each in found] == due


def test_they_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """From any of them on, one a call, and to before any of them."""
    client = UnreadableClient()
    monkeypatch.setattr(client, "assign", client.incremental_assign, raising=False)
    monkeypatch.setattr(reader, "new_consumer", lambda *_, **__: client)
    again = reader.Rereader(AT, "t")
    for first, end in ((4, 9), (6, 9), (4, 7), (7, 8)):
        found: list[int] = []
        while records := again.read(0, (found or [first - 1])[-1] + 1, end):
            found += [each.offset for each in records if each.unreadable]
        assert found == [*range(first, end)]


# --- a record that arrives just as the wait of a poll ends ----------------------------------------

RECORDS = 3


class LateClient(Client):
    """A consumer whose records arrive just after the wait for the first one."""

    end = RECORDS

    def poll(self, _: float) -> None:
        """Nothing has arrived by the end of the wait."""

    def consume(self, *_: Any) -> list[Message]:
        offsets, self.at = range(self.at, RECORDS), RECORDS
        return [Message(topic="t", partition=0, offset=each, value=b"x") for each in offsets]


def test_late_records_are_returned_once() -> None:
    """Waking the client's thread by a seek must not go back before them."""
    with input_with(LateClient()) as late:
        late._reading, late._next, late._moved_s = {0}, {0: 0}, time.monotonic()
        polls = [[each.offset for each in late.poll(Poll(0.0)).records] for _ in range(3)]
        assert polls == [[*range(RECORDS)], [], []]


# --- what becomes of messages ---------------------------------------------------------------------


def a_client_message(offset: int, value: bytes | None, headers: Any) -> Any:
    """A message that reports unreadable headers only once, as the client's messages do."""
    left = [headers]

    def asked() -> Any:
        assert left, "asked twice"
        if isinstance(headers, Exception):
            raise left.pop()
        return headers

    return SimpleNamespace(
        error=lambda: None, partition=lambda: 3, offset=lambda: offset, value=lambda: value,
        key=lambda: b"key", timestamp=lambda: (1, 5000), headers=asked,
    )  # fmt: skip


def test_headers_are_asked_for_once() -> None:
    """A record whose headers the client cannot represent has none, whatever comes with it."""
    for value, others in itertools.product(
        (b"{}", None), (None, [("event-type", b"season-started")])
    ):
        unreadable = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        messages = [a_client_message(7, value, unreadable), a_client_message(8, b"{}", others)]
        first, second = Messages(frozenset()).rounds(messages)
        assert (first.partition, first.offset, first.value, first.headers) == (3, 7, value, ())
        assert second.headers == (others or ())


def test_records_without_headers_are_columns() -> None:
    """Each of them is the record that it would be alone."""
    found = Messages(frozenset()).rounds([a_client_message(each, b"{}", None) for each in range(3)])
    assert isinstance(found, PlainRecords)
    assert [(each.offset, each.value, each.received_s) for each in found] == [
        (each, b"{}", 5.0) for each in range(3)
    ]


# --- what ends a client is reported once, and must not be missed ----------------------------------

DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
FENCED = KafkaError(KafkaError.FENCED_INSTANCE_ID, "fenced")


def test_all_brokers_down_is_trouble_once() -> None:
    """It has the last broker's reason, once, because that may be repaired by the next time."""
    with input_of_nobody() as found:
        found._on_error(DOWN)
        with pytest.raises(LogTrouble, match=r"brokers are down$"):
            found._raise_reported([])
        found._raise_reported([])
        found._on_error(KafkaError(KafkaError._SSL, "certificate verify failed"))
        found._raise_reported([])  # one of several: the client goes on with the others
        found._on_error(DOWN)
        with pytest.raises(LogTrouble, match=r"are down: certificate verify failed") as caught:
            found._raise_reported([])
        assert caught.value.cause == "tls"
        found._on_error(DOWN)
        with pytest.raises(LogTrouble, match=r"are down$"):
            found._raise_reported([])


def test_what_ends_the_client_outweighs_the_rest() -> None:
    """The callback may report it before or after the rest, or a poll among its records."""
    among_records = [Message(topic="parts", error=FENCED)]
    for errors, records in (([DOWN, FENCED], []), ([FENCED, DOWN], []), ([DOWN], among_records)):
        with input_of_nobody() as found:
            for error in errors:
                found._on_error(error)
            with pytest.raises(Fenced):
                found._raise_reported(records)


def test_a_named_worker_joins_again_before_it_believes_that_it_is_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It joins as a fresh member, and does not believe it until it was a member for some time."""
    clients = list[Client]()

    def new_client(*_: Any) -> Client:
        clients.append(Client())
        return clients[-1]

    def no_client(*_: Any) -> Client:
        raise LogTrouble("no token")

    monkeypatch.setattr(access, "new_consumer", new_client)
    found = Input(Settings(kafka="127.0.0.1:1", instance_id="w-1"), "t", "g")
    found.poll(Poll(0.0, no_fetch=True))
    found._assigned(found.consumer, [TopicPartition("t", p) for p in (0, 1)])
    assert found.poll(Poll(0.0, no_fetch=True)).gained == {0, 1}
    found.seek({0: UNREAD})
    found._on_error(FENCED)
    with monkeypatch.context() as failing, pytest.raises(LogTrouble, match="no token"):
        failing.setattr(access, "new_consumer", no_client)
        found.poll(Poll(0.0, no_fetch=True))
    with pytest.raises(LogTrouble, match="fenced: if nobody else has STREAM_RATER_INSTANCE_ID=w-1"):
        found.poll(Poll(0.0, no_fetch=True))  # tries again
    assert len(clients) == 2 and found.consumer is cast(Any, clients[1])
    assert not found.not_read()
    clients[1].name = ""  # until it has joined
    polled = found.poll(Poll(0.0, no_fetch=True))
    assert (polled.lost, polled.gained) == ({0, 1}, frozenset())
    assert not found.joined
    with pytest.raises(LogTrouble, match="no longer a member"):
        found.membership()
    found._on_error(FENCED)
    with pytest.raises(Fenced, match=r"another worker has STREAM_RATER_INSTANCE_ID=w-1, too"):
        found.poll(Poll(0.0, no_fetch=True))
    found._again_s -= consumer.AGAIN_S
    with pytest.raises(LogTrouble):
        raise found._translated(FENCED)


def test_members_by_the_group_protocol_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers choose for them. A client is a member while it has an epoch, with or without
    partitions. Brokers without the protocol, and a name that is taken, are different errors."""
    client, made = Client(), dict[str, Any]()

    def new_consumer(_: Settings, options: dict[str, Any]) -> Client:
        made.update(options)
        return client

    monkeypatch.setattr(access, "new_consumer", new_consumer)
    at = Settings(kafka="127.0.0.1:1", instance_id="w-1", group_protocol="consumer")
    found = Input(at, "t", "g")
    assert made["group.protocol"] == "consumer" and made["group.instance.id"] == "w-1"
    chosen = "session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"
    assert not made.keys() & {*chosen}
    for epoch, joined in ((0, False), (1, True), (-1, False)):
        client.epoch = epoch
        found._read_membership()
        assert found.joined == joined and (found._metadata is not None) == joined
    old = KafkaError(KafkaError._FATAL, "Fatal error: Broker: API version not supported: ...")
    with pytest.raises(Denied, match=r"STREAM_RATER_GROUP_PROTOCOL=consumer takes Kafka 4\.0"):
        raise found._translated(old)
    used = KafkaError(
        KafkaError._FATAL, "Fatal error: The instance ID is still used by another member"
    )
    for _ in range(3):  # until the session of the one that was killed is over
        with pytest.raises(LogTrouble, match="joining again helps"):
            raise found._translated(used)
    with pytest.raises(Fenced, match="another worker has"):
        raise found._translated(FENCED)


def test_a_worker_without_a_name_believes_what_ends_its_client() -> None:
    with input_of_nobody() as found, pytest.raises(Fenced, match=r"^kafka: fenced$"):
        raise found._translated(FENCED)


# --- a call that succeeds may fail for one partition ----------------------------------------------

NO_OFFSET = -1001
UNSTABLE = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT, "unstable")
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied")


def asked(who: str, error: KafkaError | None) -> Any:
    """What a worker or command gets from a client whose partition 1 has this error."""
    answer = [
        SimpleNamespace(partition=0, offset=7, metadata="", error=None),
        SimpleNamespace(partition=1, offset=NO_OFFSET, metadata=None, error=error),
    ]
    client: Any = SimpleNamespace(committed=lambda *_, **__: answer, commit=lambda *_, **__: answer)
    if who == "worker":
        with input_of_nobody() as found:
            found.consumer = client
            return found.committed(frozenset([0, 1]))
    admin: Any = Admin(AT)
    admin._reader = lambda group: client
    return admin._stable("g", "t", 2) if who == "command" else admin.commit("g", "t", {0: 7})


def test_an_error_of_one_partition_is_trouble() -> None:
    """Taken for "never committed", it would have the whole partition read again."""
    for who in ("worker", "command", "who commits"):
        for error, kind in ((UNSTABLE, LogTrouble), (DENIED, Denied)):
            with pytest.raises(kind, match=error.str()):
                asked(who, error)
    assert asked("worker", None) == {0: 7, 1: None}
    assert asked("command", None) == {0: SourceCommit(7), 1: None}


def test_a_coordinator_that_hangs_is_asked_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a request that timed out, another client asks, which finds the present coordinator."""

    def hang(*_: Any, **__: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    answer = [SimpleNamespace(partition=0, offset=7, metadata="", error=None)]
    there = SimpleNamespace(committed=lambda *_, **__: answer)
    hanging = SimpleNamespace(commit=hang), SimpleNamespace(committed=hang, poll=lambda _: None)
    clients = iter((*hanging, there))
    monkeypatch.setattr(access, "new_consumer", lambda *_, **__: next(clients))
    admin = Admin(AT)
    with pytest.raises(LogTrouble):
        admin.commit("g", "t", {0: 7})
    assert admin.committed("g", "t", 1) == {0: 7}
