"""A corner of Kafka and Redis that is the demo's own, however full the servers are.

On servers that the demo started, that is all of them. On a user's servers it is a topic prefix that
nobody has, and a Redis database that was empty and is marked as taken. At the end only what the
demo made is deleted: its topics and consumer groups, its keys one by one (never FLUSHDB), and the
function library unless it was there before.
"""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import confluent_kafka.admin as admin_api
import redis
from confluent_kafka import KafkaException

from local.servers import Addresses
from local.tools import FORGET, KAFKA_VARIABLE, REDIS_VARIABLE, given_address
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.calls import LIBRARY
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.events import ESTIMATORS, UPDATERS

CLAIM = "stream-rater:demo"
"""The key that marks a database as taken."""

OUR_KEYS = ("{*}:belief:*", "{*}:position", "stream-rater:*")
DATABASES = 16
"""The number of databases of a Redis by default."""

KEPT = {f"{PREFIX}REPLICATION", f"{PREFIX}LOG_LEVEL"}
"""The user's settings that also hold in the demo."""

TIMEOUT_S = 30.0


class NoCorner(Exception):
    """The user's servers have no room for the demo; the message is one line that says why."""


@contextmanager
def corner(at: Addresses) -> Iterator[dict[str, str]]:
    """The environment of the demo's programs, which puts them into a corner of the servers."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PREFIX) or name in KEPT
    }
    with _database(at.redis) as url, _topics(at.kafka) as prefix:
        environment[KAFKA_VARIABLE] = at.kafka
        environment[REDIS_VARIABLE] = url
        environment[f"{PREFIX}TOPIC_PREFIX"] = prefix
        yield environment


@contextmanager
def _topics(kafka: str) -> Iterator[str]:
    """A topic prefix. On a user's Kafka, its topics and groups are deleted at the end."""
    if given_address(KAFKA_VARIABLE) is None:
        yield ""
        return
    prefix = f"demo-{secrets.token_hex(4)}-"
    client = admin_api.AdminClient({"bootstrap.servers": kafka, "log_level": 2})
    try:
        client.list_topics(timeout=TIMEOUT_S)
    except KafkaException as error:
        raise NoCorner(
            f"Kafka at {kafka} does not answer: {error.args[0].str()} {_cure(KAFKA_VARIABLE)}"
        ) from None
    try:
        yield prefix
    finally:
        _delete_topics(client, kafka, prefix)


def _delete_topics(client: admin_api.AdminClient, kafka: str, prefix: str) -> None:
    topics = Topics.of(Settings(topic_prefix=prefix))
    try:
        names = list(topics.names)
        futures = client.delete_topics(names)
        futures |= client.delete_consumer_groups([prefix + ESTIMATORS, prefix + UPDATERS])
        for future in futures.values():
            future.exception(TIMEOUT_S)  # most likely it was never created
    except (KafkaException, TimeoutError) as error:
        print(f"demo: topics {prefix}* may be left on {kafka}: {error}", file=sys.stderr)


@contextmanager
def _database(address: str) -> Iterator[str]:
    """The URL of a database. On a user's Redis it was empty before, and is empty afterwards."""
    if given_address(REDIS_VARIABLE) is None:
        yield f"redis://{address}/0"
        return
    url, client, had_library = _claimed(address)
    try:
        yield url
    finally:
        _clean(client, url, had_library)


def _clean(client: "redis.Redis", url: str, had_library: bool) -> None:
    """Delete what the demo made. If that fails, print so, without hiding an earlier error."""
    try:
        _delete_keys(client)
        if not had_library:
            with suppress(redis.ResponseError):  # no process has loaded it
                client.function_delete(LIBRARY)
    except redis.RedisError as error:
        print(f"demo: keys of the demo may be left at {hidden(url)}: {error}", file=sys.stderr)
    finally:
        client.close()


def _claimed(address: str) -> "tuple[str, redis.Redis, bool]":
    """Claim the last empty database. Returns its URL, a client of it, and whether the server had
    our functions before. Raises NoCorner if none is empty."""
    for number in reversed(range(DATABASES)):
        url = with_database(address, number)
        try:
            client: redis.Redis = redis.Redis.from_url(url, socket_timeout=TIMEOUT_S)
            if client.dbsize() == 0 and client.set(CLAIM, "1", nx=True):
                if client.dbsize() == 1:
                    return url, client, bool(client.function_list(library=LIBRARY))
                client.delete(CLAIM)  # somebody else began to use it just now
            client.close()
        except redis.ResponseError:
            continue  # the server has fewer databases
        except (redis.RedisError, ValueError) as error:
            raise NoCorner(f"Redis at {hidden(address)}: {error} {_cure(REDIS_VARIABLE)}") from None
    raise NoCorner(
        f"Redis at {hidden(address)} has no empty database (of {DATABASES}) for the demo, which "
        f"touches no other: unset {REDIS_VARIABLE} to let it start a Redis of its own"
    )


def _cure(variable: str) -> str:
    """A text for a server that does not answer: which variable names it, and that the demo starts
    a server of its own without it."""
    return f"(the address is that of {variable}; without it, the demo starts its own: {FORGET})"


def with_database(address: str, number: int) -> str:
    """The URL of a server with another database number."""
    parts = urlsplit(address if "://" in address else f"redis://{address}")
    if parts.scheme not in {"redis", "rediss"}:
        raise NoCorner(f"the demo needs a redis:// address, not {parts.scheme}://")
    return parts._replace(path=f"/{number}").geturl()


def hidden(address: str) -> str:
    """An address without its password."""
    return address.rpartition("@")[2]


def _delete_keys(client: "redis.Redis") -> None:
    for pattern in OUR_KEYS:
        batch: list[bytes] = []
        for key in client.scan_iter(match=pattern, count=1000):
            batch.append(key)
            if len(batch) == 1000:
                client.unlink(*batch)
                batch.clear()
        if batch:
            client.unlink(*batch)
