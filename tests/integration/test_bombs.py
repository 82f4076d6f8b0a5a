"""Records that are large, or small only while compressed, are rejected and never stop a worker.
librdkafka decompresses a whole batch at once. It refuses a zstd batch of 90 MB, reports this again
and again, and does not continue by itself."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.events import UPDATERS
from tests.integration.bad_rounds import KEY, LADDERS, MEBIBYTE, a_round
from tests.integration.processes import Start, done, most_memory, refused, stopped, wait_until
from tests.integration.test_service import assert_all_rated_once
from tests.integration.topics import Finished, delete_records, headers_of, make_topics, read_topic
from tests.real import SettingsFactory
from tests.waits import STILL_S

BOMB_BYTES = 100 * MEBIBYTE
LARGE_BYTES = 50_000_000
TOPIC_BYTES = 64 * MEBIBYTE
MANY = 24  # The number of records in a batch that cannot be read.
MOST_MEMORY = 1536 * MEBIBYTE  # For a worker: 536 MiB were measured. All bombs are 1.2 GB.


def send(at: Settings, codec: str, *values: bytes, topic: str = "") -> list[str]:
    """Append in one batch, to the rounds or to another topic. Returns the broker's errors."""
    options: Any = {
        "bootstrap.servers": at.kafka, "compression.type": codec,
        "message.max.bytes": 2 * BOMB_BYTES, "batch.size": 2 * BOMB_BYTES,
        "queue.buffering.max.kbytes": 2_000_000,
        "linger.ms": 60_000,  # one batch, however long it takes to fill: `flush` sends it
    }  # fmt: skip
    producer = Producer(options, logger=CLIENT_LOGGER)
    errors: list[str] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            errors.append(error.name())

    for value in values:
        producer.produce(
            topic or Topics.of(at).rounds, value, KEY, partition=0, on_delivery=delivered
        )
    assert producer.flush(STILL_S) == 0
    return errors


@pytest.mark.parametrize(
    "codecs", [("zstd", "lz4"), pytest.param(("gzip", "snappy"), marks=pytest.mark.slow)]
)
def test_bombs_do_not_kill_or_stop(
    settings: SettingsFactory, worker_process: Start, codecs: tuple[str, ...]
) -> None:
    """Among bombs and a message of 50 MB, all valid rounds are rated, and `verify` agrees."""
    at = settings(partitions=1)
    names, large = Topics.of(at), {"max.message.bytes": str(TOPIC_BYTES)}
    make_topics(at, names.rounds, names.parts, names.rejected, config=large)  # and no others
    many = [b"%d" % n + bytes(BOMB_BYTES // MANY) for n in range(MANY)]
    attacks: list[tuple[str, list[bytes]]] = [
        *((codec, [bytes(BOMB_BYTES)]) for codec in codecs),
        ("zstd", many),
        ("none", [bytes(LARGE_BYTES)]),
    ]
    rounds = 0
    for codec, values in attacks:
        assert send(at, "none", a_round(round_id=f"before-{rounds}")) == []
        rounds += 1
        assert send(at, codec, *values) == []
    assert send(at, "none", a_round(round_id="last")) == []
    worker = worker_process(at, ready=False)
    finished = Finished(at)
    wait_until(lambda: not worker.running or finished(), "all is finished", every_s=0.2)
    assert worker.running, worker.log()
    assert worker.metric("stream_rater_restarts_total") == 0, worker.log()
    sizes = [len(value) for _, values in attacks for value in values]
    rejected = read_topic(at, Topics.of(at).rejected)
    found = [{**dict[str, Any](headers_of(each)), "value": each.value()} for each in rejected]
    offsets = [int(headers["source-offset"]) for headers in found]
    assert offsets == sorted(set(offsets)) and len(offsets) == len(sizes)
    alone = [headers for headers in found if headers["error-code"] == b"malformed"]
    # The producer decides about batches. It was once seen to send the first of many records alone.
    assert all(headers["value"] in many for headers in alone) and len(alone) < MANY / 2
    of_batches = [headers for headers in found if headers not in alone]
    for headers in of_batches:  # as much as there is, and how much there was
        assert headers["error-code"] == b"too-large"
        unread = headers["error"].startswith(b"batch not decompressed")
        assert (headers["value"] is None) == unread
        if unread:
            assert headers["original-bytes"] == b"unknown"
        elif "original-bytes" in headers:
            assert headers["original-bytes"] == b"%d" % (BOMB_BYTES + len(KEY))
            assert len(headers["value"]) > TOPIC_BYTES - MEBIBYTE
        else:
            assert headers["value"] == bytes(LARGE_BYTES)
    unread_count = [headers["value"] is None for headers in of_batches].count(True)
    assert unread_count == MANY + codecs.count("zstd") - len(alone)
    assert len(read_topic(at, Topics.of(at).changed)) == 2 * (rounds + 1)
    print(f"peak {most_memory(worker.pid) / MEBIBYTE:.0f} MiB")
    assert most_memory(worker.pid) < MOST_MEMORY
    assert f"{rounds + 1} rounds replayed, {len(sizes)} rejected" in done(at, "verify")


@pytest.mark.slow
def test_a_large_round_is_rated_where_the_limit_is_raised(
    settings: SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """Topics limit only compressed batches, so they stay. Larger rounds are still rejected."""
    ladders = tmp_path / "ladders.toml"
    ladders.write_text(f"limits.max_bytes = {LARGE_BYTES}\n{LADDERS}")
    at = settings(partitions=1, ladders=str(ladders))
    worker = worker_process(at)
    codecs = ("lz4", "zstd")
    for codec in codecs:
        assert send(at, codec, a_round(round_id=codec).ljust(LARGE_BYTES)) == []
    assert send(at, "lz4", a_round(round_id="larger").ljust(LARGE_BYTES + 1)) == []
    wait_until(Finished(at), "all is finished", every_s=0.2)
    assert worker.metric("stream_rater_restarts_total") == 0, worker.log()
    rejected = read_topic(at, Topics.of(at).rejected)
    assert [dict(headers_of(each))["error-code"] for each in rejected] == [b"too-large"]
    assert len(read_topic(at, Topics.of(at).changed)) == 2 * len(codecs)


@pytest.mark.slow
def test_a_topic_that_is_kept_uncompressed_takes_no_bombs(settings: SettingsFactory) -> None:
    """With compression.type=uncompressed, the broker itself decompresses, measures and refuses."""
    at = settings(partitions=1)
    config = {"compression.type": "uncompressed", "max.message.bytes": str(16 * MEBIBYTE)}
    topic = Topics.of(at).rounds
    make_topics(at, topic, config=config)
    for codec in ("gzip", "zstd"):
        assert send(at, codec, bytes(BOMB_BYTES)) == ["MSG_SIZE_TOO_LARGE"], codec
    assert Admin(at).ends(topic, 1) == [0]


@pytest.mark.slow  # by hand: `unit/test_shard.py`, `unit/test_rebuild.py`
def test_a_part_that_is_not_decompressed(settings: SettingsFactory, worker_process: Start) -> None:
    """A worker refuses the shard, and so does a rebuild. Once the record is deleted and the offset
    after it is committed, as the runbook says, a rebuild repairs everything."""
    at = settings(partitions=1, shards=1)
    worker = worker_process(at)
    assert send(at, "none", *(a_round(round_id=f"before-{i}") for i in range(5))) == []
    wait_until(Finished(at), "all is finished", every_s=0.2)
    parts = Topics.of(at).parts
    (bad,) = Admin(at).ends(parts, 1)
    assert send(at, "zstd", bytes(BOMB_BYTES), topic=parts) == []
    assert send(at, "none", *(a_round(round_id=f"after-{i}") for i in range(5))) == []
    wait_until(lambda: worker.metric("stream_rater_refused_shards") == 1, "the shard is refused")
    assert f"offset {bad}: batch not decompressed" in worker.get("/readyz")[1]
    stopped(worker)
    said = refused(at, "rebuild", "--replace", code=1)
    assert f"offset {bad}: batch not decompressed" in said
    delete_records(at, parts, {0: bad + 1})
    assert f"commit {bad + 1} for the updaters' group" in refused(at, "rebuild", "--replace")
    Admin(at).commit(UPDATERS, parts, {0: bad + 1})
    done(at, "rebuild", "--replace")
    worker_process(at)
    wait_until(Finished(at), "all is finished", every_s=0.2)
    assert_all_rated_once(at, 10)
