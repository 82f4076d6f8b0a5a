"""A reading process notices partitions that are added, and ignores none of them in what it does."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stream_rater.adapters.kafka import reader, round_log, topics
from stream_rater.adapters.kafka.reader import follow
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Record, WorkersProgress
from stream_rater.index import folder
from stream_rater.index.follower import Follower
from stream_rater.index.log import Watcher
from stream_rater.places.kafka import KafkaPlace
from stream_rater.serve.door.read_your_writes import Settled
from stream_rater.serve.http.event_stream import Hub
from tests.builders.consumers import Topic
from tests.unit.test_serve_feed import Followed, events, in_a_loop


def records(partition: int, count: int) -> list[Record]:
    return [Record(partition, o, b"%d:%d" % (partition, o)) for o in range(count)]


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """A topic of one partition, for every reader. Its partitions are counted at every turn."""
    found = Topic(records(0, 2))
    monkeypatch.setattr(reader, "new_consumer", found.client)
    monkeypatch.setattr(reader, "COUNT_S", 0.0)
    monkeypatch.setattr(topics, "Admin", lambda *_, **__: Kafka(found))
    return found


class Kafka:
    """An Admin's answers, if every topic has as many partitions as one, and all is rated."""

    def __init__(self, topic: Topic) -> None:
        self.topics, self._topic = topics.Topics("rounds", "parts", "changed", "no", "notes"), topic
        self.fewer = ""
        """A topic without the newest partition."""

    def topic_id(self, name: str) -> str:
        return "id"

    def configuration(self, name: str) -> dict[str, str]:
        return {}

    def starts(self, name: str, partitions: int) -> list[int]:
        return [0] * partitions

    def partitions_of(self, *names: str) -> list[int]:
        return [len(self.all_ends(name)) for name in names]

    def ends(self, name: str, partitions: int) -> list[int]:
        return self.all_ends(name)[:partitions]

    def all_ends(self, name: str) -> list[int]:
        return [*map(len, self._topic.partitions[: -1 if name == self.fewer else None])]

    def committed(self, _: str, __: str, partitions: int) -> dict[int, int | None]:
        return {p: len(self._topic.partitions[p]) for p in range(partitions)}


def kafka_place() -> KafkaPlace:
    """The place of the topics. It asks no server."""
    return KafkaPlace(Settings(kafka="127.0.0.1:1"), 1.0)


def test_who_watches_gets_each_record_once(topic: Topic) -> None:
    """So they do from partitions that are added, once Kafka shows that they exist."""
    for from_start in (True, False):
        topic.partitions = [records(0, 2)]
        topic.away = True
        watched, found = follow(Settings(), "t", 1, from_start=from_start), list[bytes | None]()

        def take(watched: Any = watched, found: list[bytes | None] = found) -> None:
            while (record := next(watched)) is not None:
                found.append(record.value)

        take()
        topic.partitions += [records(1, 2), []]
        take()
        topic.away = False
        topic.partitions[0] += records(0, 3)[2:]
        take()
        take()
        topic.partitions[2] += records(2, 1)
        take()
        before = [b"0:0", b"0:1"] if from_start else []
        assert found == [*before, b"0:2", b"1:0", b"1:1", b"2:0"]


def test_rejections_of_added_partitions_are_read(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are read, without a look back from the end. Positions are of all partitions."""
    monkeypatch.setattr(reader, "REJECTIONS_BACK", 1)
    topic.partitions = [rejections(0, 2)]
    seen, positions, at = list[tuple[int, int]](), list[list[int]](), list[int]()
    for some in filter(None, kafka_place().follow_rejections(at)):
        seen += [each.place for each in some]
        positions.append([*at])
        if len(at) == 2:
            break
        topic.partitions.append(rejections(1, 3))
    assert seen == [(0, 1), (1, 0), (1, 1), (1, 2)]
    assert positions == [[2], [2, 3]]


def rejections(partition: int, count: int) -> list[Record]:
    """Rejections of the rounds at the same places."""
    return [
        Record(partition, offset, b"{}", headers=[
            ("source-partition", b"%d" % partition), ("source-offset", b"%d" % offset),
        ])
        for offset in range(count)
    ]  # fmt: skip


def test_progress_is_that_of_all_shards(topic: Topic) -> None:
    """At every question. While one of both topics lacks the new shard, there is no progress."""
    found = kafka_place()
    assert found.progress() == WorkersProgress([2], [2], [2], [2], [2])
    topic.partitions.append(records(1, 3))
    assert found.progress() == WorkersProgress([2], [2, 3], [2, 3], [2, 3], [2, 3])
    found.admin.fewer = "changed"  # type: ignore[attr-defined]
    with pytest.raises(LogTrouble, match="differ in partitions"):
        found.progress()


def test_an_answer_needs_the_events_of_old_and_of_new_shards() -> None:
    """A player's earlier events are in another partition. What was settled stays settled."""
    settled = Settled()
    settled.observe(WorkersProgress([5], [2], [2], [7], [0]))
    assert settled.needed(0, 4, [0]) == {0: 7} and settled.read([7], [0]) == [5]
    more = WorkersProgress([6], [2, 0, 0], [2, 0, 0], [8, 0, 0], [0])
    settled.observe(more)
    assert settled.needed(0, 5, [2]) == {0: 8, 1: 0, 2: 0}
    assert settled.read([7], [0]) == [5]
    settled.observe(more._replace(rated=[9], part_ends=[2, 0, 1], change_ends=[8, 0, 3]))
    assert settled.needed(0, 8, [2]) is None  # the part is not applied
    settled.observe(WorkersProgress([9], [2, 0, 1], [2, 0, 1], [8, 0, 3], [0]))
    assert settled.needed(0, 8, [2]) == {0: 8, 1: 0, 2: 3}


@in_a_loop
async def test_a_client_gets_the_events_of_added_partitions() -> None:
    """Ids name all partitions, and older ids stay valid. A gap in the reading sends a reset."""
    hub = Hub()
    hub.begin([0])
    old = Followed(hub)
    hub.publish(events(0, 0, 1))
    assert await Followed(hub, "2.1").read() == ["reset", "id:2"]  # who gave it has read more
    hub.begin([0, 0])
    back = Followed(hub, "2")
    hub.publish([*events(0, 0, 1), *events(1, 0)])
    assert await old.read() == ["id:0", "0:0@1", "0:1@2", "1:0@2.1"]
    assert (await back.read())[-1] == "1:0@2.1"
    hub.begin([2, 1, 4])  # another process was faster
    hub.publish(events(2, 4))
    assert await old.read() == ["reset", "id:2.1.4", "2:4@2.1.5"]
    hub.begin([9, 1, 5])
    assert await old.read() == ["reset", "id:9.1.5"]
    hub.begin([8, 0, 0])
    hub.publish([*events(0, 8, 9), *events(1, 0), *events(2, 4)])
    assert await old.read() == ["0:9@10.1.5"]


class Restarts(Watcher):
    """Notes what a follower reports, and stops it once it has read both partitions."""

    def __init__(self, topic: Topic, where: Path) -> None:
        self.topic, self.reports = topic, list[Any]()
        self.follower = Follower(where, partial(round_log.KafkaLog, Settings()), 5, self)

    def begun(self, positions: Sequence[int]) -> None:
        self.reports.append(("begun", [*positions]))

    def trouble(self, why: str) -> None:
        self.reports.append(why)

    def checkpointed(self, positions: Sequence[int], ends: Sequence[int]) -> None:
        assert ends == positions
        self.reports.append(("checkpointed", [*positions]))
        if len(positions) == 2:
            self.follower.stop()
        else:
            self.topic.partitions.append(records(1, 3))


def test_the_index_is_complete_with_the_added_partitions_only(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower begins again with them, and says so."""
    monkeypatch.setattr(round_log.KafkaLog, "standings", lambda _: None)
    folder.Hold(tmp_path).close()
    watcher = Restarts(topic, tmp_path)
    watcher.follower.run()
    assert watcher.reports == [
        ("begun", [0]), ("checkpointed", [2]),
        "kafka: changed has 2 partitions now: reading begins again",
        ("begun", [0, 0]), ("checkpointed", [2, 3]),
    ]  # fmt: skip
