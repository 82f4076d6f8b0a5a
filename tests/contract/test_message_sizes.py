"""Topics that take no more than Kafka's default takes: what workers write fits into them."""

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from msgspec import Raw

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.contract.corrections import PlayerRemoved, name_of
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import to_json
from stream_rater.contract.sizes import LEAST_BYTES, MOST_BYTES
from stream_rater.pipeline.corrections.correction_ports import (
    NoteCorrections,
    NotedCorrections,
    RecordedCorrection,
)
from stream_rater.pipeline.ports import Agree, Scatter
from tests import real
from tests.contract.rigs import ESTIMATOR, GAIN_S, PARTITIONS, SHARDS, KafkaRig
from tests.integration.topics import make_topics

pytestmark = pytest.mark.integration


@pytest.fixture
def narrow(settings: real.SettingsFactory) -> Iterator[KafkaRig]:
    """The rig on Kafka, whose topics were made with Kafka's default."""
    at = settings(session_timeout_ms=2000, partitions=PARTITIONS, shards=SHARDS)
    make_topics(at, *Topics.of(at).names, config={"max.message.bytes": str(LEAST_BYTES)})
    found = KafkaRig(at)
    yield found
    found.close()


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def test_notes_and_parts_of_the_greatest_size_are_taken(narrow: KafkaRig) -> None:
    """They are notes of a ban wave with long reasons, as older releases recorded them, notes of
    many ladders, and parts."""
    member = narrow.join(ESTIMATOR)
    wave = [
        RecordedCorrection(n, name_of(each), Raw(to_json(each)), 5000)
        for n in range(1500)
        for each in [PlayerRemoved(ladder="a", player=f"p{n}", reason=noise(1000).hex())]
    ]
    member.do(NoteCorrections({"a": wave}))
    assert narrow.join(ESTIMATOR).do(NotedCorrections()) == {"a": wave}
    history = tuple(f"{2**40 + n}:{noise(n + 8).hex()[:16]}" for n in range(50))
    histories = {f"ladder-{n}": history for n in range(1000)}
    assert {ladder: tuple(h) for ladder, h in member.do(Agree(histories)).items()} == histories
    assert member.do(Scatter([(0, noise(MOST_BYTES)), (0, b"x"), (1, noise(MOST_BYTES))])) == [
        0, 1, 0
    ]  # fmt: skip


def test_a_message_that_is_too_large_is_named_with_its_cure(narrow: KafkaRig) -> None:
    """The topic, the size and the command; with the topic's new limit the work goes on."""
    member = narrow.join(ESTIMATOR)
    topic = narrow._admin.topics.parts
    with pytest.raises(LogTrouble) as raised:
        member.do(Scatter([(0, noise(2 * MOST_BYTES))]))
    reported = str(raised.value)
    assert (
        f"{topic} does not take a message of {2 * MOST_BYTES} bytes, and nothing goes on"
        in reported
    )
    assert reported.endswith(f"--entity-name {topic} --add-config max.message.bytes=16777216`")
    enlarge(narrow, topic)
    deadline_s = time.monotonic() + GAIN_S
    while True:  # a broker learns of the new limit a moment later
        try:
            assert len(member.do(Scatter([(0, noise(2 * MOST_BYTES))]))) == 1
            return
        except LogTrouble:
            assert time.monotonic() < deadline_s


def enlarge(rig: KafkaRig, topic: str) -> None:
    entry = ConfigEntry(
        "max.message.bytes", "16777216", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client: Any = rig._admin._client
    client.incremental_alter_configs([resource])[resource].result(10.0)
