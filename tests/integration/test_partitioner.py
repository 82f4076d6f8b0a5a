"""A game backend whose Kafka client uses librdkafka's default partitioner."""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Producer

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.contract.events import rating_changed_from_json
from tests import real
from tests.integration.bad_rounds import a_round
from tests.integration.processes import WorkerProcess, stream_rater, wait_until
from tests.integration.topics import Finished, headers_of, read_topic
from tests.waits import STILL_S

LADDERS = [f"ladder-{number}" for number in range(12)]


def reported(at: real.Settings, ladders: list[str], **options: str) -> None:
    """Report a round of each ladder, with the ladder as its key."""
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
        assert headers["error-code"] == b"wrong-partition"
        found[(message.key() or b"").decode()] = headers["error"].decode()
    return found


def rated(at: real.Settings) -> set[str]:
    """The ladders that were rated."""
    changes = read_topic(at, Topics.of(at).changed)
    return {rating_changed_from_json(each.value() or b"").ladder for each in changes}


def test_no_round_is_lost_by_the_default_partitioner(
    settings: real.SettingsFactory, worker_process: Callable[..., WorkerProcess]
) -> None:
    """Each round is rated, or rejected with the remedy. With the remedy, the rejected ones are
    rated, too."""
    at = settings()
    worker_process(at)
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
