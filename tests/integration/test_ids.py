"""Ids that try to collide, to reach other keys, or to break a line; and a game backend whose Kafka
client uses librdkafka's default partitioner."""

import itertools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Producer

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.metadata import LADDERS_KEY, LAYOUT_KEY
from stream_rater.contract.events import rating_changed_from_json
from tests import real
from tests.integration.bad_rounds import a_round
from tests.integration.processes import WorkerProcess, stream_rater, wait_until
from tests.integration.topics import Bytes, Finished, headers_of, produce, published, read_topic
from tests.waits import STILL_S

IDS = [
    "a", "a:b", "a%3Ab", "a%253Ab", "{0}:position", "0}:position", "*", "[a]", "a\nb", "a\r\n",
    "a\0", "\x1b[2J", "\u2028", "é", "e\u0301", "\U0001f9d9", "a b", '"a"', "\\", "' or 1", "$.x",
    "stream-rater:layout", "0:belief:a:0",
]  # fmt: skip
KEY = re.compile(r"\{\d+\}:(position|belief:[^:{}]+:\d+)")


LADDERS = [f"ladder-{number}" for number in range(12)]


def test_ids_stay_apart(
    settings: real.SettingsFactory, worker_process: Callable[..., WorkerProcess]
) -> None:
    """Each id is used as ladder, round and player. All are rated as themselves, once; Redis has
    only our keys; the log has one line for each event. No round is lost by the default
    partitioner."""
    at = settings()
    worker = worker_process(at)
    standings = [{"player": player, "rank": 1 + i} for i, player in enumerate(IDS)]
    sent = [
        Bytes(a_round(*standings, round_id=each, ladder=ladder), ladder.encode())
        for ladder, each in itertools.product(IDS, IDS[:3])
    ]
    twice = [{"player": player, "rank": 1} for player in (IDS[8], IDS[8])]
    produce(at, [*sent, *(Bytes(a_round(*twice, ladder=ladder)) for ladder in IDS)])
    wait_until(Finished(at), "everything is finished", every_s=0.2)
    changes = read_topic(at, Topics.of(at).changed)
    events = [rating_changed_from_json(message.value() or b"") for message in changes]
    found = {(each.ladder, each.round_id, each.player): each for each in events}
    assert found.keys() == set(itertools.product(IDS, IDS[:3], IDS))
    assert len(changes) == len(found) == len({event.event_id for event in found.values()})
    assert len({message.key() for message in changes}) == len(IDS) ** 2
    with connect(at) as client:
        found_keys = {key.decode() for key in client.scan_iter(count=1000)}
    keys = found_keys - {LADDERS_KEY, LAYOUT_KEY, real.CLAIM}
    assert [key for key in keys if not KEY.fullmatch(key)] == []
    assert {key.split(":")[2] for key in keys if "belief" in key} == {escaped(each) for each in IDS}
    verified = stream_rater("verify", settings=at)
    assert verified.returncode == 0, verified.stderr
    assert f"{len(IDS) ** 2} beliefs compared: all equal" in verified.stdout
    assert all("event" in json.loads(line) for line in worker.log().splitlines())
    watched = stream_rater("watch", "--from-start", "--count", f"{len(found)}", settings=at)
    lines = watched.stdout.split("\n")
    assert len(lines) == len(found) + 1 and all(line.isprintable() for line in lines)
    no_round_is_lost_by_the_default_partitioner(at)


def escaped(ladder: str) -> str:
    """The ladder as it is in a key."""
    return "".join(f"%{ord(c):02X}" if c in "%:{}" else c for c in ladder)


def reported(at: real.Settings, ladders: list[str], **options: str) -> None:
    settings: Mapping[str, Any] = {"bootstrap.servers": at.kafka, **options}
    producer = Producer(dict(settings), logger=CLIENT_LOGGER)
    for ladder in ladders:
        value = a_round(round_id=f"of {ladder}", ladder=ladder)
        producer.produce(Topics.of(at).rounds, value, ladder.encode())
    assert producer.flush(STILL_S) == 0


def rejected(at: real.Settings) -> dict[str, str]:
    """By ladder, why its round was rejected."""
    found = {}
    for message in read_topic(at, Topics.of(at).rejected):
        headers = dict(headers_of(message))
        if headers["error-code"] == b"wrong-partition":
            found[(message.key() or b"").decode()] = headers["error"].decode()
    return found


def rated(at: real.Settings) -> set[str]:
    return {each.ladder for each in published(at)}.intersection(LADDERS)


def no_round_is_lost_by_the_default_partitioner(at: real.Settings) -> None:
    """Check that each round is rated, or rejected with the remedy, and that with the remedy the
    rejected ones are rated, too."""
    reported(at, LADDERS)
    wait_until(Finished(at), "everything is finished", every_s=0.2)
    refused = rejected(at)
    assert set(refused) | rated(at) == set(LADDERS)
    assert not set(refused) & rated(at)
    assert 0 < len(refused) < len(LADDERS), "the two partitioners agree on some"
    assert all("partitioner=murmur2_random" in why for why in refused.values())
    reported(at, list(refused), partitioner="murmur2_random")
    wait_until(Finished(at), "everything is finished", every_s=0.2)
    assert rated(at) == set(LADDERS)
    assert len(rejected(at)) == len(refused)
    assert stream_rater("verify", settings=at).returncode == 0
