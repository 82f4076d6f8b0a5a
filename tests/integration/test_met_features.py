"""Where features meet: shards that were added, a torn log with corrections, two ladders files."""

import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.metadata import LAYOUT_KEY
from stream_rater.config.settings import Settings
from stream_rater.contract.groups import ESTIMATORS
from tests.builders.lines import LADDER, Bytes, a_correction, a_message, a_round
from tests.integration import topics
from tests.integration.processes import Start, done, stopped
from tests.integration.test_corrections import rated, verified
from tests.integration.test_move_kafka import file_of
from tests.integration.topics import newest_events, produce, read_topic
from tests.real import SettingsFactory
from tests.waits import STILL_S, wait_until

PLAYERS = [f"p{i}" for i in range(12)]
SHARDS = 7
"""After some were added."""

broken = pytest.mark.xfail(strict=True, raises=(AssertionError, subprocess.TimeoutExpired))
"""What the next issue mends: it then passes, and so the mark must go."""


@pytest.fixture
def at(settings: SettingsFactory) -> Settings:
    """One ladder, in one partition."""
    return settings(partitions=1, shards=2)


def rounds(first: int, count: int, players: Sequence[str] = PLAYERS) -> Iterator[Bytes]:
    """Rounds of four of these players, on one ladder."""
    for number in range(first, first + count):
        yield a_message(a_round(number, *random.Random(number).sample(players, 4)))


def voided(number: int) -> Bytes:
    return a_message(a_correction("round-voided", round_id=f"r{number}"))


# --- shards that were added -----------------------------------------------------------------------


def added_shards(at: Settings, start: Start, *, corrected: bool = False) -> Settings:
    """Rounds before and after the shards were added as docs/operations/upgrades.md says: the events
    of a player may be in two partitions. No worker runs any more. Returns the new settings."""
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


def test_beliefs_and_events_agree_after_new_shards(at: Settings, worker_process: Start) -> None:
    """Every belief equals the replay, and the event with the greatest offset has its rounds."""
    at = added_shards(at, worker_process)
    verified(at)
    played = {player: event.rounds for (_, player), event in newest_events(at).items()}
    counted = dict.fromkeys(PLAYERS, 0)
    for each in rounds(0, 80):
        for entry in msgspec.json.decode(each.value or b"")["standings"]:
            counted[entry["player"]] += 1
    assert played == counted


@broken
@pytest.mark.slow
def test_a_move_keeps_the_newest_events(
    at: Settings, settings: SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """Also where a player's events are in two partitions."""
    at = added_shards(at, worker_process, corrected=True)
    before, to = newest_events(at), settings(partitions=1, shards=2)
    done(to, "move", "--from", file_of(at, tmp_path))
    assert newest_events(to) == before


# --- a log that lost its end ----------------------------------------------------------------------


def torn_log(at: Settings, start: Start, *, corrected: bool) -> list[Bytes]:
    """A log of rounds that lost its last records, as a broker's loss does: the parts and events of
    the lost rounds stay, and so do the committed offsets. No worker runs. Returns the lost rounds,
    to be reported again. `corrected`: a correction stands in the part that is left."""
    worker = start(at)
    rated(at, *rounds(0, 30), *([voided(5)] if corrected else []))
    (kept,) = Admin(at).ends(Topics.of(at).rounds, 1)
    lost = [*rounds(30, 20)]
    rated(at, *lost)
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


@pytest.mark.parametrize("corrected", [False, pytest.param(True, marks=[broken, pytest.mark.slow])])
def test_rounds_that_a_log_lost_are_rated_when_they_are_reported_again(
    corrected: bool, at: Settings, worker_process: Start
) -> None:
    """After one rebuild, beliefs equal the replay of what is left, and then of all."""
    lost = torn_log(at, worker_process, corrected=corrected)
    done(at, "rebuild", "--replace")
    verified(at)  # what is left
    worker = worker_process(at)
    rated(at, *lost)
    verified(at)  # all
    stopped(worker)


# --- two ladders files ----------------------------------------------------------------------------

CHANGED_FROM = 20
"""The offset from which the new file allows more entries."""
OLD_FILE = f"""
[ladders.{LADDER}]
rating = {{ system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }}
limits = {{ max_entries = 4 }}
"""
CHANGE = f"""
[[ladders.{LADDER}.changes]]
from_offset = {CHANGED_FROM}
limits = {{ max_entries = 10 }}
"""


def rolled_out(at: Settings, start: Start, folder: Path, record: Bytes) -> tuple[bool, Settings]:
    """Whether the old worker leaves a record of the time after the change alone, and the settings
    of the new one, which has rated all.

    The old worker stands at CHANGED_FROM, and owns the partition: a worker with the new file has
    announced its change, and has gone again.
    """
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
    start(changed)
    rated(at)
    return left_alone and not read_topic(at, rejected), changed


@pytest.mark.parametrize("entries", [4, pytest.param(6, marks=[broken, pytest.mark.slow])])
def test_a_worker_with_the_old_ladders_file_waits(
    entries: int, at: Settings, worker_process: Start, tmp_path: Path
) -> None:
    """From the offset of the change on it rejects nothing, whichever file accepts it."""
    record = a_message(a_round(100, *PLAYERS[:entries]))._replace(partition=0)
    left_alone, new = rolled_out(at, worker_process, tmp_path, record)
    assert left_alone
    verified(new)
