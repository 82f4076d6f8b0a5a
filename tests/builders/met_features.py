"""Three ladders on which features meet: added shards, a torn log with corrections, and two ladders
files. Each begins with a test's place (`settings(partitions=1, shards=2)`) and `worker_process`."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, TopicPartition

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.metadata import LAYOUT_KEY
from stream_rater.config.settings import Settings
from stream_rater.contract.events import ESTIMATORS
from stream_rater.contract.season_ended import PageWritten, encoded
from stream_rater.places import opened
from tests.builders.lines import LADDER, Bytes, a_correction, a_message, a_round
from tests.integration import topics
from tests.integration.processes import Start, done, stopped
from tests.integration.topics import produce, rated, read_topic
from tests.waits import STILL_S, wait_until

PLAYERS = [f"p{i}" for i in range(12)]
SHARDS = 7  # The number of shards after some were added.


def rounds(first: int, count: int, players: Sequence[str] = PLAYERS) -> Iterator[Bytes]:
    """Rounds of four of these players, on one ladder."""
    for number in range(first, first + count):
        yield a_message(a_round(number, *random.Random(number).sample(players, 4)))


def voided(number: int) -> Bytes:
    return a_message(a_correction("round-voided", round_id=f"r{number}"))


def added_shards(at: Settings, start: Start, *, corrected: bool = False) -> Settings:
    """Rate rounds before and after shards are added. Stops its workers; returns new settings."""
    worker = start(at)
    rated(at, *rounds(0, 40), *([voided(5)] if corrected else []))
    stopped(worker)
    topics.add_shards(at, SHARDS)
    at = msgspec.structs.replace(at, shards=SHARDS)
    done(at, "rebuild", "--replace")
    worker = start(at)
    rated(at, *rounds(40, 40))
    stopped(worker)
    return at


def torn_log(
    at: Settings, start: Start, *, corrected: bool, half_season: bool = False
) -> list[Bytes]:
    """Rate a log, and take its last records away as a broker's loss does: parts, events and
    committed offsets of the lost rounds stay. No worker runs then. Returns the lost rounds.
    `corrected`: the rest has a correction. `half_season`: a part of a season's standings exists."""
    worker = start(at)
    rated(at, *rounds(0, 30), *([voided(5)] if corrected else []))
    (kept,) = Admin(at).ends(Topics.of(at).rounds, 1)
    lost = [*rounds(30, 20)]
    rated(at, *lost)
    stopped(worker)
    if half_season:
        page = encoded(PageWritten(ladder=LADDER, season=0, page=0, pages=2, digest=""), "")
        with opened(at, writes=True) as place:
            place.write_standings([page])
    cut(at, kept)
    return lost


def cut(at: Settings, kept: int) -> None:
    """Leave the first records of `round-completed` as they are, and no others."""
    topic = Topics.of(at).rounds
    options = {"bootstrap.servers": at.kafka, "group.id": at.topic_prefix + ESTIMATORS}
    group = Consumer(options, logger=CLIENT_LOGGER)
    committed = group.committed([TopicPartition(topic, 0)], STILL_S)
    first = [
        Bytes(each.value(), each.key(), topics.headers_of(each), 0)
        for each in read_topic(at, topic)
        if (each.offset() or 0) < kept
    ]
    assert len(first) == kept < committed[0].offset
    topics.remove_topic(at, topic)
    topics.make_topics(at, topic)
    produce(at, first)
    group.commit(offsets=committed, asynchronous=False)
    group.close()
    with connect(at) as store:  # a log that is torn is the same topic
        store.hset(LAYOUT_KEY, "topic", Admin(at).topic_id(topic))


CHANGED_FROM = 20  # The offset from which the new file allows more entries.
OLD_FILE = f"""
[ladders.{LADDER}]
rating = {{ system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }}
limits = {{ max_entries = 4 }}
[ladders.other]
rating = {{ system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }}
"""
CHANGE = f"""
[[ladders.{LADDER}.changes]]
from_offset = {CHANGED_FROM}
limits = {{ max_entries = 10 }}
"""


def rolled_out(at: Settings, start: Start, folder: Path, record: Bytes) -> tuple[bool, Settings]:
    """A new ladders file is announced, and the old file's worker owns the partition. Returns
    whether that worker leaves a record from the change's offset on alone, and the new settings. A
    worker with the new file has rated everything by then."""
    old, new = folder / "old.toml", folder / "new.toml"
    old.write_text(OLD_FILE)
    new.write_text(OLD_FILE + CHANGE)
    changed = msgspec.structs.replace(at, ladders=str(new))
    worker = start(msgspec.structs.replace(at, ladders=str(old)))
    rated(at, *rounds(0, 10))
    newer = start(changed, ready=False)
    wait_until(lambda: bool(newer.events("running")), "the change is announced")
    newer.terminate()
    newer.wait()
    rated(at, *rounds(10, CHANGED_FROM - 10))
    produce(at, [record])
    rejected = Topics.of(at).rejected

    def decided() -> bool:
        waits = worker.metric("stream_rater_refused_ladders") == 1
        return waits or bool(read_topic(at, rejected))

    wait_until(decided, "the old worker has come to it")
    left_alone = not read_topic(at, rejected)
    stopped(worker)
    newest = start(changed)
    rated(at)
    stopped(newest)
    return left_alone and not read_topic(at, rejected), changed


def rated_at_once(at: Settings, to: Settings, start: Start) -> Settings:
    """Rate the same log in a new place, whose settings were always those of `at`. Returns these."""
    to = msgspec.structs.replace(to, partitions=at.partitions, shards=at.shards, ladders=at.ladders)
    worker = start(to)
    log = read_topic(at, Topics.of(at).rounds)
    rated(to, *(Bytes(each.value(), each.key(), topics.headers_of(each), 0) for each in log))
    stopped(worker)
    return to
