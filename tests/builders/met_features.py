"""Three ladders on which features meet: a log whose shards were added, a torn log with
corrections, and two ladders files at once.

Each begins with a place of a test (`settings(partitions=1, shards=2)`) and `worker_process`.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.metadata import LAYOUT_KEY
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged, rating_changed_from_json
from stream_rater.contract.groups import ESTIMATORS
from tests.builders.lines import LADDER, Bytes, a_correction, a_message, a_round
from tests.integration.erasing import stopped
from tests.integration.processes import PATIENTLY, WorkerProcess, stream_rater
from tests.integration.topics import (
    Finished,
    headers_of,
    make_topics,
    produce,
    read_topic,
    remove_topic,
)
from tests.waits import STILL_S, wait_until

Start = Callable[..., WorkerProcess]
Who = tuple[str, str]

PLAYERS = [f"p{i}" for i in range(12)]
SHARDS = 7
"""After some were added."""


def rounds(first: int, count: int, players: Sequence[str] = PLAYERS) -> Iterator[Bytes]:
    """Rounds of four of these players, on one ladder."""
    for number in range(first, first + count):
        yield a_message(a_round(number, *random.Random(number).sample(players, 4)))


def voided(number: int) -> Bytes:
    return a_message(a_correction("round-voided", round_id=f"r{number}"))


def rated(at: Settings, records: Sequence[Bytes]) -> None:
    """Report rounds to the ladder's partition, and wait until all is rated."""
    produce(at, [each._replace(partition=0) for each in records])
    wait_until(finished := Finished(at), "all is rated", moves=finished.moves)


def done(at: Settings, *words: str) -> str:
    ended = stream_rater(*words, settings=at)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def all_equal(at: Settings) -> bool:
    """What `verify` says of all beliefs, once the workers have finished."""
    ended = stream_rater("verify", "--wait", PATIENTLY, settings=at)
    return ended.returncode == 0 and "all equal, bit for bit" in ended.stdout


def newest_events(at: Settings) -> Mapping[Who, RatingChanged]:
    """Of each player the event with the greatest offset, whatever partition it is in."""
    found = dict[Who, RatingChanged]()
    for message in read_topic(at, Topics.of(at).changed):
        event = rating_changed_from_json(message.value() or b"")
        who = event.ladder, event.player
        if who not in found or event.offset >= found[who].offset:
            found[who] = event
    return found


# --- shards that were added -----------------------------------------------------------------------


def added_shards(at: Settings, start: Start, *, corrected: bool = False) -> Settings:
    """Rounds before and after the shards were added as docs/operations/upgrades.md says: the events
    of a player may be in two partitions. No worker runs any more. Returns the new settings."""
    worker = start(at)
    rated(at, [*rounds(0, 40), *([voided(5)] if corrected else [])])
    stopped(worker)
    topics = Topics.of(at)
    client = AdminClient({"bootstrap.servers": at.kafka}, logger=CLIENT_LOGGER)
    more = [NewPartitions(name, SHARDS) for name in (topics.parts, topics.changed)]
    for future in client.create_partitions(more).values():
        future.result(STILL_S)
    counted = Admin(at).partitions
    wait_until(lambda: {counted()[n] for n in (topics.parts, topics.changed)} == {SHARDS}, "more")
    at = msgspec.structs.replace(at, shards=SHARDS)
    done(at, "rebuild", "--replace")
    worker = start(at)
    rated(at, [*rounds(40, 40)])
    stopped(worker)
    return at


# --- a log that lost its end ----------------------------------------------------------------------


def torn_log(at: Settings, start: Start, *, corrected: bool) -> list[Bytes]:
    """A log of rounds that lost its last records, as a broker's loss does: the parts and events of
    the lost rounds stay, and so do the committed offsets. No worker runs. Returns the lost rounds,
    to be reported again. `corrected`: a correction stands in the part that is left."""
    worker = start(at)
    rated(at, [*rounds(0, 30), *([voided(5)] if corrected else [])])
    (kept,) = Admin(at).ends(Topics.of(at).rounds, 1)
    lost = [*rounds(30, 20)]
    rated(at, lost)
    stopped(worker)
    cut(at, kept)
    return lost


def cut(at: Settings, kept: int) -> None:
    """Leave the first records of `round-completed` as they are, and no others."""
    topic = Topics.of(at).rounds
    options = {"bootstrap.servers": at.kafka, "group.id": at.topic_prefix + ESTIMATORS}
    group = Consumer(options, logger=CLIENT_LOGGER)
    committed = group.committed([TopicPartition(topic, 0)], STILL_S)
    first = [
        Bytes(each.value(), each.key(), headers_of(each), 0)
        for each in read_topic(at, topic)
        if (each.offset() or 0) < kept
    ]
    assert len(first) == kept < committed[0].offset
    remove_topic(at, topic)
    make_topics(at, topic)
    produce(at, first)
    group.commit(offsets=committed, asynchronous=False)
    group.close()
    with connect(at) as store:  # a log that is torn is the same topic
        store.hset(LAYOUT_KEY, "topic", Admin(at).topic_id(topic))


# --- two ladders files ----------------------------------------------------------------------------

CHANGED_FROM = 20
"""The offset from which the new file allows more entries."""
_FILE = f"""
[ladders.{LADDER}]
rating = {{ system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }}
limits = {{ max_entries = 4 }}
"""
_CHANGE = f"""
[[ladders.{LADDER}.changes]]
from_offset = {CHANGED_FROM}
limits = {{ max_entries = 10 }}
"""


class TwoFiles(NamedTuple):
    """Settings of one place with the old file, and with the new one."""

    old: Settings
    new: Settings


def two_files(at: Settings, start: Start, folder: Path) -> tuple[TwoFiles, WorkerProcess]:
    """A worker with the old ladders file, which stands at CHANGED_FROM, and owns the partition when
    a worker with the new one has announced its change and has gone again."""
    both = []
    for name, text in (("old", _FILE), ("new", _FILE + _CHANGE)):
        path = folder / f"{name}.toml"
        path.write_text(text)
        both.append(msgspec.structs.replace(at, ladders=str(path)))
    files = TwoFiles(*both)
    worker = start(files.old)
    rated(at, [*rounds(0, 10)])
    newer = start(files.new, ready=False)
    wait_until(lambda: bool(newer.events("running")), "the change is announced")
    newer.terminate()
    newer.wait()
    rated(at, [*rounds(10, CHANGED_FROM - 10)])
    return files, worker
