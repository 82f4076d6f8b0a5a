"""Arbitrary bytes on real Kafka: each code is reached, and the stream continues. One worker is sent
everything at once, valid rounds in between; then each test checks one fact. A faulty producer's
partition is paused; ids try to collide, to reach other keys, or to break a line."""

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from local.servers import Addresses
from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.reader import read_all
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.metadata import LAYOUT_KEY
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import ROUND_REJECTIONS
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.replay.edited_log import RecordValidator
from tests import real
from tests.integration import bad_rounds
from tests.integration.bad_rounds import BAD, KEY, LADDERS, MEBIBYTE, a_round, bad_records
from tests.integration.processes import Start, WorkerProcess, done, workers
from tests.integration.topics import Bytes, Finished, headers_of, produce, published, read_topic
from tests.real import SettingsFactory
from tests.waits import STILL_S, wait_until

CODES = ROUND_REJECTIONS.keys() - {"bad-score"}
"""The codes that a round is rejected by. No ladder here uses scores."""

RANDOM = 400

Place = tuple[int, int]


@dataclass
class Aftermath:
    """What was sent, what came out, and the worker, which is still running."""

    settings: Settings
    worker: WorkerProcess
    sent: dict[Place, Bytes]
    codes: dict[Place, str]  # The expected codes of the bad records.
    good: set[Place]
    rejected: dict[Place, list[dict[str, bytes]]] = field(default_factory=dict)
    """The headers of the rejections, with the key and the value as `key` and `value`."""
    players: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of events by round and player."""


def _read_rejected(settings: Settings) -> dict[Place, list[dict[str, Any]]]:
    rejected: dict[Place, list[dict[str, Any]]] = {}
    for message in read_topic(settings, Topics.of(settings).rejected):
        headers = dict[str, Any](headers_of(message))
        headers |= {"key": message.key(), "value": message.value()}
        place = int(headers["source-partition"]), int(headers["source-offset"])
        rejected.setdefault(place, []).append(headers)
    return rejected


def _send(settings: Settings) -> tuple[dict[Place, Bytes], dict[Place, str], set[Place]]:
    sent: dict[Place, Bytes] = {}
    codes: dict[Place, str] = {}
    good: set[Place] = set()
    numbers = itertools.count()

    def send(records: list[Bytes]) -> list[Place]:
        done = produce(settings, records)
        places = [(each.partition() or 0, each.offset() or 0) for each in done]
        sent.update(zip(places, records, strict=True))
        return places

    def send_good(count: int) -> None:
        good.update(send([bad_rounds.good_record(next(numbers)) for _ in range(count)]))

    send_good(3)
    for code, some in itertools.groupby(bad_records(), key=lambda each: each[0]):
        codes |= dict.fromkeys(send([record for _, record in some]), code)
        send_good(1)
    send(list(bad_rounds.random_bytes(random.Random(7), RANDOM)))
    send_good(3)
    # What only another client can send: a header whose name is no text.
    headers = [(b"\xff\xfe", b"x"), (b"content-type", b"application/json"), (b"\xc3", None)]
    (partition,) = {partition for partition, _ in good}
    for value, is_good in ((bad_rounds.good_record(300).value or b"", True), (b"no round", False)):
        topic = Topics.of(settings).rounds
        offset = bad_rounds.append(
            settings.kafka, topic, partition, value, key=KEY, headers=headers
        )
        sent[partition, offset] = Bytes(value, KEY)
        if is_good:
            good.add((partition, offset))
        else:
            codes[partition, offset] = "malformed"
    send_good(3)
    return sent, codes, good


@pytest.fixture(scope="module")
def aftermath(
    addresses: Addresses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Aftermath]:
    """A worker that was sent everything and has finished it."""
    folder = tmp_path_factory.mktemp("bad-input")
    ladders = folder / "ladders.toml"
    ladders.write_text(LADDERS)
    with real.a_place(addresses) as place, workers(folder) as start:
        settings = msgspec.structs.replace(place, ladders=str(ladders))
        worker = start(settings)
        sent, codes, good = _send(settings)
        finished = Finished(settings)
        wait_until(lambda: not worker.running or finished(), "everything is finished", every_s=0.2)
        done = Aftermath(settings, worker, sent, codes, good, _read_rejected(settings))
        for event in published(settings):
            done.players[event.round_id, event.player] += 1
        yield done


def test_each_code_is_reached(aftermath: Aftermath) -> None:
    """Exactly the bad records are rejected, each with its code, and every code occurs."""
    assert set(BAD) == set(aftermath.codes.values()) == CODES
    found = {
        place: {headers["error-code"].decode() for headers in aftermath.rejected[place]}
        for place in aftermath.codes
    }
    assert found == {place: {code} for place, code in aftermath.codes.items()}


def test_each_rejection_comes_once(aftermath: Aftermath) -> None:
    """Each invalid record is rejected exactly once, and no valid one is."""
    at, verdicts = aftermath.settings, dict[Place, str]()  # from the log; "": a valid round
    validator = RecordValidator(ladders_of_settings(at), at.duplicate_window, at.partitions)
    for record in read_all(at, Topics.of(at).rounds, at.partitions):
        _, (rejection,) = validator.decode([record])
        verdicts[record.partition, record.offset] = "" if rejection is None else rejection.code
    assert verdicts.keys() == aftermath.sent.keys()
    expected = {place: [code] for place, code in verdicts.items() if code}
    found = {
        place: [headers["error-code"].decode() for headers in rejections]
        for place, rejections in aftermath.rejected.items()
    }
    assert found == expected
    assert sum(place not in aftermath.codes for place in found) > RANDOM // 2


def test_rejections_hold_the_original(aftermath: Aftermath) -> None:
    """A rejection has key and value byte for byte, content type, topic, and a reason in words."""
    topic = Topics.of(aftermath.settings).rounds.encode()
    for place, (headers,) in aftermath.rejected.items():
        sent = aftermath.sent[place]
        assert headers["value"] == sent.value
        assert headers["key"] == sent.key
        assert headers["source-topic"] == topic
        assert headers["ce_type"] == b"round-rejected"
        assert len(headers["error"].decode()) > 3
        content_type = dict(sent.headers).get("content-type", b"application/json")
        assert headers["content-type"] == content_type


def test_nothing_valid_is_lost(aftermath: Aftermath) -> None:
    """Valid rounds before, between and after are all rated, with one event for each player."""
    assert not aftermath.good & aftermath.rejected.keys()
    names = {f"good-{number}" for number in (*range(len(aftermath.good) - 1), 300)}
    expected = {(name, player): 1 for name in names for player in ("ann", "bob")}
    found = {k: count for k, count in aftermath.players.items() if k[0].startswith("good-")}
    assert found == expected
    assert max(aftermath.players.values()) == 1


def test_the_worker_goes_on(aftermath: Aftermath) -> None:
    """No input makes it exit or start over. Metrics and `verify` know the number of rejections."""
    worker = aftermath.worker
    assert worker.running
    assert worker.metric("stream_rater_restarts_total") == 0
    assert worker.get("/healthz") == worker.get("/readyz") == (200, "ok\n")
    counted = Counter(
        each["error-code"].decode() for some in aftermath.rejected.values() for each in some
    )
    found = {code: worker.metric("stream_rater_rejected_total", code=code) for code in CODES}
    assert found == counted
    rejected = worker.metric("stream_rater_rounds_total", outcome="rejected")
    assert rejected == sum(counted.values())
    assert f"{len(aftermath.rejected)} rejected" in done(aftermath.settings, "verify")


def test_a_record_larger_than_any_topic_takes(aftermath: Aftermath) -> None:
    """A record that fits only when compressed is rejected with its length and its first bytes."""
    settings = aftermath.settings
    value = b" " * (40 * MEBIBYTE) + a_round()
    options = {"message.max.bytes": 64 * MEBIBYTE, "compression.type": "zstd"}
    packed_small = Producer({"bootstrap.servers": settings.kafka, **options})
    (partition,) = {partition for partition, _ in aftermath.good}
    packed_small.produce(Topics.of(settings).rounds, value, KEY, partition=partition)
    assert packed_small.flush(STILL_S) == 0
    (after,) = produce(settings, [bad_rounds.good_record(400)])
    wait_until(Finished(settings), "everything is finished", every_s=0.2)
    (headers,) = _read_rejected(settings)[partition, (after.offset() or 0) - 1]
    assert headers["error-code"] == b"too-large"
    assert headers["original-bytes"] == str(len(value) + len(KEY)).encode()
    assert headers["key"] == KEY
    assert value.startswith(headers["value"])
    assert len(headers["value"]) > 15 * MEBIBYTE
    assert aftermath.worker.metric("stream_rater_restarts_total") == 0


# --- a flood ---

FLOOD = 8000
FOR_LONG, A_WHILE = 100, 400
"""Allowed rejections per second; a burst may have ten seconds' worth of them. Then the partition
is paused: for 70 seconds, which suffices on any machine, or for 10."""
REST_METRIC, EVENTS_METRIC = "stream_rater_resting_partitions", "stream_rater_events_total"
PAUSED = "partitions paused: too many rejections"


def flooded(settings: SettingsFactory, worker_process: Start, per_second: int) -> WorkerProcess:
    """A worker of two partitions, the first of which is paused, with a round at its end."""
    at = settings(partitions=2, rejects_per_second=per_second)
    worker = worker_process(at)
    produce(at, [Bytes(b"junk %d" % n, partition=0) for n in range(FLOOD)])
    wait_until(lambda: bool(worker.events(PAUSED)), "the partition rests")
    produce(at, [Bytes(a_round(round_id="behind"), partition=0)])
    return worker


def test_neighbours_of_a_flood_are_rated(settings: SettingsFactory, worker_process: Start) -> None:
    """The metric says that the partition is paused, and the worker is healthy."""
    worker = flooded(settings, worker_process, FOR_LONG)
    produce(worker.settings, [Bytes(a_round(round_id="beside", ladder="us"), partition=1)])
    wait_until(lambda: worker.metric(EVENTS_METRIC) >= 2, "the neighbour's round is rated")
    assert worker.metric(EVENTS_METRIC) == 2
    wait_until(lambda: worker.metric(REST_METRIC) == 1, "the metric shows that one rests")
    assert worker.get("/healthz")[0] == worker.get("/readyz")[0] == 200


@pytest.mark.slow
def test_a_flood_costs_little_and_what_is_behind_it_is_rated_later(
    settings: SettingsFactory, worker_process: Start
) -> None:
    """Each of its records is rejected once, with a pause in between that the metric shows."""
    worker = flooded(settings, worker_process, A_WHILE)
    cpu_s = partial(worker.metric, "process_cpu_seconds_total")
    used_s = cpu_s()
    wait_until(lambda: worker.metric(REST_METRIC) == 1, "the metric shows it")
    wait_until(lambda: worker.metric(REST_METRIC) == 0, "it goes on", every_s=0.2)
    assert cpu_s() - used_s < 4.0  # of the ten seconds or more that it rested
    wait_until(lambda: worker.metric(EVENTS_METRIC) == 2, "the round behind the flood is rated")
    wait_until(Finished(worker.settings), "all is finished")
    assert worker.metric("stream_rater_rejected_total", code="malformed") == FLOOD
    assert worker.metric("stream_rater_restarts_total") == 0


# --- ids ---

IDS = [
    "a", "a:b", "a%3Ab", "a%253Ab", "{0}:position", "0}:position", "*", "[a]", "a\nb", "a\r\n",
    "a\0", "\x1b[2J", "\u2028", "é", "e\u0301", "\U0001f9d9", "a b", '"a"', "\\", "' or 1", "$.x",
    "stream-rater:layout", "0:belief:a:0",
]  # fmt: skip
OUR_KEY = re.compile(r"\{\d+\}:(position|belief:[^:{}]+:\d+)")


TWELVE = [f"ladder-{number}" for number in range(12)]


def test_ids_stay_apart(settings: SettingsFactory, worker_process: Start) -> None:
    """Each id is used as ladder, round and player. All are rated once. Redis has only our keys, the
    log has one line for each event, and the default partitioner loses no round."""
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
    keys = found_keys - {LAYOUT_KEY, real.CLAIM}
    assert [key for key in keys if not OUR_KEY.fullmatch(key)] == []
    assert {key.split(":")[2] for key in keys if "belief" in key} == {escaped(each) for each in IDS}
    assert f"{len(IDS) ** 2} beliefs compared: all equal" in done(at, "verify")
    assert all("event" in json.loads(line) for line in worker.log().splitlines())
    lines = done(at, "watch", "--from-start", "--count", len(found)).split("\n")
    assert len(lines) == len(found) + 1 and all(line.isprintable() for line in lines)
    no_round_is_lost_by_the_default_partitioner(at)


def escaped(ladder: str) -> str:
    """The ladder as it is in a key."""
    return "".join(f"%{ord(c):02X}" if c in "%:{}" else c for c in ladder)


def reported_by(at: Settings, ladders: list[str], **options: str) -> None:
    producer = Producer({"bootstrap.servers": at.kafka, **options}, logger=CLIENT_LOGGER)
    for ladder in ladders:
        value = a_round(round_id=f"of {ladder}", ladder=ladder)
        producer.produce(Topics.of(at).rounds, value, ladder.encode())
    assert producer.flush(STILL_S) == 0
    wait_until(Finished(at), "everything is finished", every_s=0.2)


def misplaced(at: Settings) -> dict[str, str]:
    """By ladder, why its round was rejected."""
    found = {}
    for message in read_topic(at, Topics.of(at).rejected):
        headers = dict(headers_of(message))
        if headers["error-code"] == b"wrong-partition":
            found[(message.key() or b"").decode()] = headers["error"].decode()
    return found


def rated_ladders(at: Settings) -> set[str]:
    return {each.ladder for each in published(at)}.intersection(TWELVE)


def no_round_is_lost_by_the_default_partitioner(at: Settings) -> None:
    """Check that each round is rated, or rejected with a remedy by which it is rated then."""
    reported_by(at, TWELVE)
    refused = misplaced(at)
    assert set(refused) | rated_ladders(at) == set(TWELVE)
    assert not set(refused) & rated_ladders(at)
    assert 0 < len(refused) < len(TWELVE), "the two partitioners agree on some"
    assert all("partitioner=murmur2_random" in why for why in refused.values())
    reported_by(at, list(refused), partitioner="murmur2_random")
    assert rated_ladders(at) == set(TWELVE)
    assert len(misplaced(at)) == len(refused)
    done(at, "verify")
