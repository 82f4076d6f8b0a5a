"""`erase` on servers that enforce rights: the least ones suffice, and each of them is needed."""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.contract.events import joined, to_json
from stream_rater.contract.groups import ESTIMATORS
from stream_rater.serve.index.writer import IndexWriter
from tests.contract.test_serve_index import an_event
from tests.integration import rights
from tests.integration.processes import complaints, stream_rater
from tests.integration.rights import Rights, least_to_erase
from tests.integration.secured import Acl
from tests.integration.test_access import (
    AT_ONCE,
    Castle,
    Ended,
    castle,
    some_rounds,
)
from tests.integration.topics import Bytes, produce

__all__ = ["castle"]

NEW = "new."
NOWHERE = Settings(topic_prefix="")
NEEDED = least_to_erase(NOWHERE, NEW)
KAFKA_CASES = [str(each) for each in NEEDED.kafka]
REDIS_CASES = [rule for rule in NEEDED.redis if rule != rights.KNOWING]


@pytest.fixture(scope="module")
def builder(castle: Castle) -> str:
    """A user who may do everything in Redis."""
    name = next(castle.users)
    castle.redis.allow(name, "~*", "+@all")
    return name


def rated(castle: Castle, builder: str) -> Settings:
    """A place whose rounds are rated, with an event of ann's, a piece of a checkpoint and an index,
    and with new topics beside it."""
    at = castle.place()
    own = castle.settings(builder, at.topic_prefix, int(at.redis.rpartition("/")[2]))
    opened = castle.opened(own)
    Admin(msgspec.structs.replace(opened, topic_prefix=f"{at.topic_prefix}{NEW}")).create_topics()
    produce(opened, some_rounds())
    event_fields = {"event_id": joined("eu", "r1", "ann"), "player": "ann"}
    admin = Admin(opened)
    event = Bytes(to_json(event_fields), joined("eu", "ann").encode(), partition=0)
    produce(opened, [event], admin.topics.changed)
    ends = admin.ends(admin.topics.rounds, admin.partitions()[admin.topics.rounds])
    admin.commit(ESTIMATORS, admin.topics.rounds, dict(enumerate(ends)))
    done = stream_rater("rebuild", settings=opened)
    assert done.returncode == 0, done.stderr
    RedisStore(own).checkpoints.write("eu", "any", 0, b"piece")
    index = IndexWriter(own)
    index.begin(admin.topics.changed, 1)
    index.check()
    index.apply([an_event("ann", 0, ladder="eu")], [1])
    return at


def user(castle: Castle, at: Settings, given: Rights) -> Settings:
    """A new user with these rights there."""
    name = next(castle.users)
    castle.kafka.allow(name, given.kafka)
    castle.redis.allow(name, *given.redis)
    return castle.settings(name, at.topic_prefix, int(at.redis.rpartition("/")[2]))


def erase(at: Settings, *words: str) -> Ended:
    new = f"{at.topic_prefix}{NEW}"
    words = ("erase", "ann", "--to", new, *words)
    return stream_rater(*words, settings=at)


def least_at(at: Settings) -> Rights:
    return least_to_erase(at, f"{at.topic_prefix}{NEW}")


def to_delete(given: Rights, at: Settings) -> Rights:
    """These rights, and that to delete the old topics."""
    names = dict.fromkeys(
        each.name for each in given.kafka if each.kind == "TOPIC" and NEW not in each.name
    )
    assert len(names) == 5
    return replace(given, kafka=(*given.kafka, *(Acl("TOPIC", n, "DELETE") for n in names)))


def test_the_least_rights_suffice(castle: Castle, builder: str) -> None:
    """With that to delete topics, if it is asked to; without it the rest is done, and a line says
    what is left."""
    at = rated(castle, builder)
    done = erase(user(castle, at, to_delete(least_at(at), at)), "--delete-old")
    assert (done.returncode, complaints(done.stderr)) == (0, []), done.stderr
    assert "2 beliefs, all equal" in done.stdout and "1 tombstone written" in done.stdout
    at = rated(castle, builder)
    ended = erase(user(castle, at, least_at(at)), "--delete-old")
    (line,) = complaints(ended.stderr)
    assert ended.returncode == 1
    assert "authorization failed: all else is done, and the old topics hold the id" in line
    assert "2 beliefs, all equal" in ended.stdout


def lacking(at: Settings, case: str) -> Rights:
    """The rights without one, which is named without the prefix of the place."""
    named: Sequence[str] = [*map(str, NEEDED.kafka), *NEEDED.redis]
    there = least_at(at)
    lost: Any = [*there.kafka, *there.redis][named.index(case)]
    return there.without(lost)


@pytest.fixture(scope="module")
def attempts(castle: Castle, builder: str) -> Iterator[dict[str, Callable[[], Ended]]]:
    """Every case, a few at a time. Without the right to load functions it finds none."""

    def attempt(case: str) -> Ended:
        at = rated(castle, builder)
        return erase(user(castle, at, lacking(at, case)))

    first = "+function|load"
    at = rated(castle, builder)
    castle.redis.client.function_flush()
    found = erase(user(castle, at, lacking(at, first)))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {
            case: pool.submit(attempt, case)
            for case in itertools.chain(KAFKA_CASES, REDIS_CASES)
            if case != first
        }
        yield {first: lambda: found, **{case: each.result for case, each in futures.items()}}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", [*KAFKA_CASES, *REDIS_CASES])
def test_each_right_is_needed(attempts: dict[str, Callable[[], Ended]], case: str) -> None:
    """Without the right, the exit code is 1 or 2, and one line says who denied access."""
    ended = attempts[case]()
    lines = complaints(ended.stderr)
    assert ended.returncode in (1, 2) and len(lines) == 1, ended.stdout + ended.stderr
    server = "redis" if case in REDIS_CASES else "kafka|topic"
    assert re.fullmatch(rf"stream-rater: .*({server}).*", lines[0]), lines[0]
