"""`serve` finds that its index was made from a `rating-changed` that is another one now: Kafka was
restored, or has lost its last records. It ends in one line, with the cure."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
import redis

from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.index_keys import TAILS, drop_index
from stream_rater.config.settings import Settings
from tests import real
from tests.builders.serves import ServeHere
from tests.contract.test_serve_index import an_event, contents
from tests.integration.processes import Answering, wait_until
from tests.integration.serving import Serve, ask
from tests.integration.test_serve import EU, rated
from tests.integration.test_service import Start
from tests.integration.topics import Bytes, other_producers, produce, remove_topic

LOOKUP = "/v1/ladders/eu/players:lookup"


def publish(at: Settings, ratings: Iterable[float]) -> None:
    """Events of one player, all in one partition."""
    values = [
        Bytes(msgspec.json.encode(an_event("p", i, rating, ladder="eu")), partition=0)
        for i, rating in enumerate(ratings)
    ]
    produce(at, values, Topics.of(at).changed)


def renew(at: Settings, ratings: Iterable[float]) -> None:
    remove_topic(at, Topics.of(at).changed)
    Admin(at).create_topics()
    other_producers()  # in a new topic, kfake refuses the next number of an idempotent one
    publish(at, ratings)


def rating(api: Answering) -> float | None:
    """The player's rating; None while there is no answer."""
    found = ask(api, LOOKUP, {"players": ["p"]})
    return float(found.json["players"][0]["rating"]) if found.status == 200 else None


def has_checkpoint(at: Settings) -> bool:
    return TAILS.encode() in contents(at)


def test_a_topic_that_was_replaced(
    settings: real.SettingsFactory, serve: ServeHere, serve_process: Serve
) -> None:
    """A copy with equal events is as good. Of another one that is longer than before, only a record
    shows it: `serve` ends in one line. Of a shorter one its end shows it. Once the index is
    deleted, it is made from the present topic. A running process finds it, too, since its next
    offset is beyond the new end."""
    at = settings()
    Admin(at).create_topics()
    publish(at, [1500.0, 1600.0, 1700.0])
    api = serve(at)
    wait_until(partial(has_checkpoint, at), "a checkpoint has stored the last record")
    assert rating(api) == 1700.0
    api.close()

    renew(at, [1500.0, 1600.0, 1700.0])
    api = serve(at)
    assert rating(api) == 1700.0
    api.close()

    renew(at, [1500.0, 1600.0, 1800.0, 1900.0])
    process = serve_process(at, ready=False)
    assert process.wait() == 1, process.log()
    said = process.log().splitlines()[-1]
    assert said.startswith("stream-rater: ")
    assert "partition 0 has another record at offset 2: delete the keys that begin with" in said

    renew(at, [1500.0, 1600.0])
    said = serve(at, ready=False).wait()
    assert "partition 0 was read to 3, and it ends at 2: delete the keys that begin with" in said

    drop_index(at)
    api = serve(at)
    assert rating(api) == 1600.0
    renew(at, [1550.0])
    assert "partition 0 was read to 2, and it ends at" in api.wait()


def test_a_record_that_is_not_there(
    settings: real.SettingsFactory, worker_process: Start, serve: ServeHere
) -> None:
    """Compaction may have removed it. Here the end of a transaction has its offset."""
    at = settings()
    rated(at, worker_process, 10)
    ends = Admin(at).ends(Topics.of(at).changed, 4)
    client: Any = redis.Redis.from_url(at.redis)
    client.hset(TAILS, mapping={p: f"{end - 1} 1" for p, end in enumerate(ends) if end})
    client.close()
    assert ask(serve(at), f"/v1/ladders/{EU}/players/ann").status == 200
