"""`move --from` and `verify --mirror` between two Kafkas keep every offset and every rating."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest

from local.kafka_node import FORMATTED, start_kafka
from local.servers import Addresses
from stream_rater.adapters.kafka.producers import Copier
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from stream_rater.contract.record import Record
from stream_rater.places import opened
from tests import real
from tests.builders.lines import Bytes
from tests.contract.places import check_copied
from tests.integration import processes
from tests.integration.erasing import beliefs, season
from tests.integration.processes import Start, file_of, refused, stopped
from tests.integration.test_corrections import RANKED, correct, played, verified
from tests.integration.topics import headers_of, in_transactions, produce, rated, read_topic

pytestmark = pytest.mark.skipif(not FORMATTED.is_dir(), reason="no Kafka is installed here")

Elsewhere = Callable[..., Settings]


@pytest.fixture(scope="module")
def other_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_kafka(tmp_path_factory.mktemp("other") / "kafka") as server:
        yield server.address


@pytest.fixture
def elsewhere(settings: real.SettingsFactory, other_kafka: str) -> Iterator[Elsewhere]:
    """Makes settings of the second Kafka, with a Redis database and a prefix of their own."""
    addresses = Addresses(other_kafka, settings().redis)
    with ExitStack() as stack:
        yield lambda **changes: msgspec.structs.replace(
            stack.enter_context(real.a_place(addresses)), **changes
        )


done = partial(processes.done, quiet=True)


def with_a_past(at: Settings, worker_process: Start) -> None:
    """Rate a season with corrections (one pending), invalid records, and an aborted transaction."""
    worker = worker_process(at)
    rated(at, *season(0, 40), *season(0, 4), Bytes(b"no round"), played(60, "walter", "p1"))
    correct(at, "void", RANKED, "r11")
    correct(at, "merge", RANKED, "walter", "p2")
    in_transactions(at, [*season(40, 6)], [*season(46, 4)], abort={1})
    rated(at, *season(50, 4))
    correct(at, "remove", RANKED, "p6", "--batched")
    in_transactions(at, [*season(54, 4)], abort={0})
    stopped(worker)


def test_a_kafka_is_moved(
    settings: real.SettingsFactory, elsewhere: Elsewhere, worker_process: Start, tmp_path: Path
) -> None:
    """Workers go on there, with a correction of an old round and the pending one. Those on the old
    Kafka do not start any more, and it cannot be moved again."""
    at, to = settings(shards=4), elsewhere(shards=3)
    with_a_past(at, worker_process)
    before, source = beliefs(at), file_of(at, tmp_path)
    assert "equal to those in" in done(to, "move", "--from", source)
    with opened(at) as old, opened(to) as new:
        assert check_copied(old, new) == len(read_topic(at, Topics.of(at).rejected)) > 0
    assert beliefs(to).keys() == before.keys()
    said = refused(at, "verify", "--mirror", file_of(to, tmp_path))
    assert "ladders-noted: its messages are not those of" in said, "its records are equal"

    worker_process(to)
    rated(to, *season(100, 12))
    correct(to, "void", RANKED, "r12")
    correct(to, "apply", RANKED)
    assert "all equal" in verified(to)
    assert f"were moved to {Topics.of(to).rounds} on {to.kafka}" in refused(at, "run")
    assert "were moved to" in refused(elsewhere(), "move", "--from", source)


@pytest.mark.slow
def test_what_cannot_be_moved_is_refused(
    settings: real.SettingsFactory, elsewhere: Elsewhere, worker_process: Start, tmp_path: Path
) -> None:
    """In one line with the remedy: the place itself, its Redis, another window, unrated rounds,
    running workers, other topics. After a rebuild, a place that was moved can be used on."""
    at, to = settings(), elsewhere()
    worker = worker_process(at)
    rated(at, *season(0, 4))
    source = file_of(at, tmp_path)
    assert "it names the topics of" in refused(at, "move", "--from", source)
    same = msgspec.structs.replace(to, redis=at.redis)
    assert "it names the Redis of STREAM_RATER_REDIS" in refused(same, "move", "--from", source)
    other = msgspec.structs.replace(to, duplicate_window=7)
    assert "which rounds are accepted depends on it" in refused(other, "move", "--from", source)
    assert "workers are in the group" in refused(to, "move", "--from", source)
    assert "name a data file, or give --from" in refused(to, "move")
    stopped(worker)
    produce(at, [*season(4, 4)])
    assert "not finished: stop the reports" in refused(to, "move", "--from", source)
    worker = worker_process(at)
    rated(at)
    stopped(worker)
    Admin(msgspec.structs.replace(to, partitions=3)).create_topics()
    assert "has 3 partitions, and " in refused(to, "move", "--from", source)
    to = elsewhere()
    Admin(to).create_topics()
    Copier(to, Topics.of(to).rounds).write([Record(0, 0, b"x")])
    assert "holds records, or once had some" in refused(to, "move", "--from", source)
    before = beliefs(at)
    done(elsewhere(), "move", "--from", source)
    assert "were moved to" in refused(at, "run")
    done(at, "rebuild", "--replace")
    assert beliefs(at) == before
    stopped(worker_process(at))


# --- mirrors -------------------------------------------------------------------------------------


def mirror(at: Settings, to: Settings, *topics: str) -> None:
    """Copy what a subscriber reads to the same partitions of another Kafka, as mirrors do."""
    for name in topics:
        found = [
            Bytes(each.value(), each.key(), headers_of(each), each.partition() or 0)
            for each in read_topic(at, getattr(Topics.of(at), name))
        ]
        produce(to, found, getattr(Topics.of(to), name))


@pytest.mark.slow
def test_a_mirror_is_compared_and_used(
    settings: real.SettingsFactory, elsewhere: Elsewhere, worker_process: Start, tmp_path: Path
) -> None:
    """It is equal, or behind. With committed offsets, a rebuild there has the same ratings."""
    at, to = settings(shards=2), elsewhere(shards=2)
    worker = worker_process(at)
    rated(at, *season(0, 24), *season(0, 4), played(60, "walter", "p1"))
    correct(at, "void", RANKED, "r11")
    Admin(to).create_topics()
    mirror(at, to, "rounds", "changed", "ladder_events")
    before = beliefs(at)
    compare = partial(done, at, "verify", "--mirror", file_of(to, tmp_path))
    found = compare()
    assert "26 accepted records" in found and "the mirror is 0 records behind" in found
    rated(at, *season(24, 6))
    found = compare()
    assert "26 accepted records" in found and "the mirror is 6 records behind" in found
    stopped(worker)
    admin, topics = Admin(to), Topics.of(to)
    admin.commit(ESTIMATORS, topics.rounds, dict(enumerate(admin.all_ends(topics.rounds))))
    admin.commit(UPDATERS, topics.parts, dict.fromkeys(range(2), 0))
    done(to, "rebuild")
    assert beliefs(to).keys() == before.keys()
    assert "all equal" in verified(to)
