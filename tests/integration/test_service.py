"""A running worker: its probes, metrics, assignment, end and log; and a season on defaults."""

import json
import os
import re
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import pytest

from local.kafka_node import DEFAULTS, FORMATTED, PROPERTIES, start_kafka
from local.servers import Addresses, start_redis
from local.tools import find_redis_server
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.operations import verify
from tests import real, rounds
from tests.builders import lines
from tests.builders.lines import Bytes, a_message
from tests.integration import processes
from tests.integration.processes import PATIENTLY, Start, WorkerProcess, done, refused
from tests.integration.topics import Finished, produce, published, read_topic
from tests.real import SettingsFactory
from tests.waits import STILL_S, wait_until

SOME_DAY = "2020-05-01T20:15:05Z"
LONG_SESSION_MS = 300_000  # Longer than any test waits without movement.


def a_round(number: int, ladder: str = "", players: int = 2) -> Bytes:
    """A valid round of a few players, in one of eight ladders."""
    ladder = ladder or f"ladder-{number % 8}"
    names = [f"p{(number + i) % 40}" for i in range(players)]
    return a_message(lines.a_round(number, *names, ladder=ladder, completed_at=SOME_DAY))


def events_of(settings: Settings) -> Counter[tuple[str, str, str]]:
    """How often each (ladder, round, player) was published."""
    return Counter((each.ladder, each.round_id, each.player) for each in published(settings))


def assert_all_rated_once(settings: Settings, count: int, players: int = 2) -> None:
    found = events_of(settings)
    assert len(found) == count * players
    assert set(found.values()) == {1}
    verify.verify(settings, wait_s=STILL_S)


def lag(worker: WorkerProcess, topic: str) -> dict[int, float]:
    return {
        int(labels["partition"]): value
        for name, labels, value in processes.samples(worker.get("/metrics")[1])
        if name == "stream_rater_lag_records" and labels["topic"] == topic
    }


def test_probes_metrics_and_logs(settings: SettingsFactory, worker_process: Start) -> None:
    """Probes are ok, metrics count, the log has JSON lines. Ctrl-C ends an idle worker at once."""
    at = settings()
    worker = worker_process(at, forked=False)
    assert worker.get("/healthz") == (200, "ok\n")
    assert worker.get("/readyz") == (200, "ok\n")
    assert worker.get("/")[0] == worker.get("/metric")[0] == 404
    for role in ("estimator", "updater"):
        assert worker.metric("stream_rater_owned", role=role) == 4
    produce(at, [Bytes(b"bad")])
    produce(at, [a_round(number) for number in range(40)])
    wait_until(lambda: worker.metric("stream_rater_events_total") == 80, "all are published")
    wait_until(Finished(at), "all is committed")
    assert worker.metric("stream_rater_rounds_total", outcome="accepted") == 40
    assert worker.metric("stream_rater_rounds_total", outcome="scattered") == 40
    assert worker.metric("stream_rater_updates_total", outcome="applied") == 80
    for role, stage in (
        ("estimator", "Poll"), ("estimator", "ReadBeliefs"), ("estimator", "Scatter"),
        ("estimator", "CommitSource"), ("updater", "Poll"), ("updater", "ReadBeliefs"),
        ("updater", "Apply"), ("updater", "Publish"),
    ):  # fmt: skip
        labels = {"role": role, "stage": stage}
        assert worker.metric("stream_rater_stage_seconds_count", **labels) > 0
        assert worker.metric("stream_rater_stage_seconds_sum", **labels) > 0.0
        bucket = worker.metric("stream_rater_stage_seconds_bucket", **labels, le="+Inf")
        assert bucket >= 1
    topics = Topics.of(at)  # a worker asks for their ends once a second
    wait_until(lambda: set(lag(worker, topics.parts).values()) == {0}, "no part is left")
    wait_until(lambda: set(lag(worker, topics.rounds).values()) == {0}, "no round is left")
    inspected(at)
    os.kill(worker.pid, signal.SIGINT)
    assert worker.wait() == 0
    records = [json.loads(line) for line in worker.log().splitlines()]
    assert all({"event", "level", "timestamp", "role"} <= each.keys() for each in records)
    (rejected,) = worker.events("round rejected")
    assert (rejected["code"], rejected["offset"]) == ("malformed", 0)


def inspected(at: Settings) -> None:
    """Check that `inspect` shows each partition's owner, and a player's belief."""
    all_of_it = done(at, "inspect")
    topics = re.findall(r"^\S*?([\w-]+): partitions (\d),", all_of_it, re.MULTILINE)
    assert dict(topics) == {
        "round-completed": "4", "performance-estimated": "4", "rating-changed": "4",
        "round-rejected": "1", "ladders-noted": "1",
    }  # fmt: skip
    rows = [line.split() for line in all_of_it.splitlines() if "1/1" in line]
    assert [row[0] for row in rows] == [*"0123" * 3, "0", "0"]
    for _, _, start, end, committed, *in_redis, behind in (row[:-3] for row in rows[:8]):
        assert (start, behind) == ("0", "0")
        assert {committed, *in_redis} == {end}
    assert {row[-1] for row in rows[:8]} == {"/127.0.0.1"}
    assert {len(row) for row in rows[8:]} == {4}
    player = done(at, "inspect", "--ladder", "ladder-1", "--player", "p1")
    assert re.match(r"p1 on ladder-1\nshown: \d+\.\d\nbelieved: \d+\.\d give", player)
    assert "(listpack)" in player
    assert re.search(
        r"\nlast rounds, by \S*rating-changed, partition \d, from offset 0 on:\n"
        r"  2\S+ +rank \d +\(new\) -> +\d+\.\d  \S+\n$",
        player,
    )
    nobody = refused(at, "inspect", "--ladder", "ladder-1", "--player", "q", code=1)
    assert nobody.startswith("stream-rater: ladder 'ladder-1' has no player 'q'")


def test_lag_is_what_waits(settings: SettingsFactory, worker_process: Start) -> None:
    """Without updater and cache, rounds wait: the lag says how many. It is healthy, not ready."""
    at = settings(partitions=2, instance_id="one", cache_mb=0, ready_lag=3)
    worker = worker_process(at, role="estimator")
    rounds = [a_round(40 * number, "ladder-0") for number in range(10)]
    busy = produce(at, rounds[:1])[0].partition() or 0
    sent = partial(worker.metric, "stream_rater_rounds_total", outcome="scattered")
    wait_until(lambda: sent() == 1, "the first one was sent")
    produce(at, rounds[1:])  # they wait until an updater has applied the first one
    produce(at, [Bytes(b"bad", b"x", partition=1 - busy)])
    waiting = {busy: 9.0, 1 - busy: 0.0}
    wait_until(lambda: lag(worker, Topics.of(at).rounds) == waiting, "nine rounds wait")
    wait_until(lambda: worker.get("/readyz")[0] == 503, "it is behind")
    assert worker.get("/readyz")[1] == "estimator: 9 records of a partition behind\n"
    assert worker.get("/healthz")[0] == 200
    worker.kill()
    again = worker_process(at, role="estimator", ready=False)
    wait_until(lambda: lag(again, Topics.of(at).rounds) == waiting, "they are still records")
    updater = worker_process(at, role="updater")
    assert updater.metric("stream_rater_owned", role="updater") == 4
    wait_until(lambda: updater.metric("stream_rater_events_total") == 20, "the updater helps")
    wait_until(lambda: again.get("/readyz")[0] == 200, "it has caught up")
    wait_until(Finished(at), "all is committed")
    assert_all_rated_once(at, 10)


def test_sigterm_finishes_what_is_in_hand(settings: SettingsFactory, worker_process: Start) -> None:
    """A worker that is stopped while rounds arrive exits with 0 and leaves nothing to repair."""
    at = settings()
    worker = worker_process(at)
    count = 0

    def at_work() -> bool:
        nonlocal count
        produce(at, [a_round(number) for number in range(count, count + 100)])
        count += 100
        return worker.metric("stream_rater_events_total") > 100

    wait_until(at_work, "it publishes while rounds arrive")
    worker.terminate()
    while worker.running:  # so that there are unrated rounds whenever it stops
        produce(at, [a_round(number) for number in range(count, count + 100)])
        count += 100
    assert worker.wait() == 0
    assert [event["event"] for event in worker.events()][-1] == "stopped"
    successor = worker_process(at)
    wait_until(Finished(at), "the rest is done")
    assert successor.metric("stream_rater_updates_total", outcome="replayed") == 0
    assert successor.metric("stream_rater_events_total", outcome="settled") == 0
    assert_all_rated_once(at, count)


def test_workers_share(settings: SettingsFactory, worker_process: Start) -> None:
    """A second one takes half. A surplus one is ready, and takes over. The last one has all."""
    at = settings(partitions=2, shards=2)
    first = worker_process(at)
    produce(at, [a_round(number) for number in range(300)])
    second = worker_process(at)
    assert shares(second) == (1, 1), "a newcomer is ready once it has its share"
    wait_until(lambda: shares(first) == (1, 1), "each has half")
    third = worker_process(at)
    assert shares(third) == (0, 0)
    produce(at, [a_round(number) for number in range(300, 600)])
    finished = Finished(at)
    wait_until(finished, "both rate")
    assert second.metric("stream_rater_events_total") > 0
    second.terminate()
    assert second.wait() == 0
    wait_until(lambda: shares(third) == shares(first) == (1, 1), "the third takes over")
    third.terminate()
    assert third.wait() == 0
    wait_until(lambda: shares(first) == (2, 2), "the first has all again")
    produce(at, [a_round(number) for number in range(600, 900)])
    wait_until(finished, "the first rates on")
    assert_all_rated_once(at, 900)


def test_an_instance_comes_back_quickly(settings: SettingsFactory, worker_process: Start) -> None:
    """After a kill or a stop, a successor with the instance_id has the assignment at once, before
    the session ends. Until then, no other worker gains or loses any partition."""
    at = settings(instance_id="one", session_timeout_ms=LONG_SESSION_MS)
    worker = worker_process(at)
    other = worker_process(msgspec.structs.replace(at, instance_id="two"))
    wait_until(lambda: shares(worker) == shares(other) == (2, 2), "each has half")
    before = assignments(other)
    for turn, killed in enumerate((True, False)):
        produce(at, [a_round(number) for number in range(600 * turn, 600 * (turn + 1))])
        wait_until(partial(at_work, worker), "it is at work")
        if killed:
            worker.kill()
        else:
            worker.terminate()
            assert worker.wait() == 0
        worker = worker_process(at)
        wait_until(Finished(at), "the successor has done all")
        assert shares(worker) == shares(other) == (2, 2)
        assert assignments(other) == before
        assert assignments(worker) == (1, 1)
    assert_all_rated_once(at, 1200)


def at_work(worker: WorkerProcess) -> bool:
    return worker.metric("stream_rater_events_total") > 50


def shares(worker: WorkerProcess) -> tuple[float, float]:
    return both(worker, "stream_rater_owned")


def assignments(worker: WorkerProcess) -> tuple[float, float]:
    return both(worker, "stream_rater_assignments_total")


def both(worker: WorkerProcess, name: str) -> tuple[float, float]:
    return worker.metric(name, role="estimator"), worker.metric(name, role="updater")


LARGE = 48_000


def large_round(players: int, id_bytes: int) -> bytes:
    """A round of so many players, with ids of this length."""
    names = [f"{i:0{id_bytes}}" for i in range(players)]
    standings = rounds.ranked([1 + i // 3 for i in range(players)], names)
    return rounds.as_json(*standings, completed_at=SOME_DAY)


def test_a_large_round(settings: SettingsFactory, worker_process: Start) -> None:
    """As many players as eight megabytes hold in one round are all rated, once each."""
    at = settings()
    value = large_round(LARGE, 128)
    assert 7 * 2**20 < len(value) < 8 * 2**20
    worker = worker_process(at)
    produce(at, [Bytes(value, b"ranked-eu")])
    wait_until(
        lambda: worker.metric("stream_rater_events_total") == LARGE,
        "all are published", every_s=0.2,
    )  # fmt: skip
    wait_until(Finished(at), "all is committed")
    assert worker.metric("stream_rater_restarts_total") == 0
    found = events_of(at)
    assert len(found) == LARGE
    assert set(found.values()) == {1}


# --- a Kafka and a Redis on which everything that a client notices is the default ---

KAFKAS_LIMIT = 1_048_588  # The default `message.max.bytes`, the largest batch of a topic.
FEW, MANY = 200, 12_000


def test_nothing_kinder_is_set() -> None:
    """The broker has its default limits, time-outs and automatic creation of topics."""
    given = {**PROPERTIES, **DEFAULTS}
    kinder = ("bytes", "timeout", "interval", "auto.", "retention", "delay")
    assert {k: v for k, v in given.items() if any(each in k for each in kinder)} == DEFAULTS


@pytest.mark.slow
@pytest.mark.skipif(
    not FORMATTED.is_dir() or find_redis_server() is None, reason="no servers are installed here"
)
def test_a_season_on_defaults(tmp_path: Path, worker_process: Start) -> None:
    """With large rounds, rejections, a correction, a kill and a Redis restart, all is right."""
    with (
        start_redis(tmp_path / "redis") as redis,
        start_kafka(tmp_path / "kafka", properties=DEFAULTS) as kafka,
        real.a_place(Addresses(kafka.address, redis.address), ours=True) as at,
    ):
        first, _ = worker_process(at), worker_process(at)
        value = large_round(MANY, 100)
        bad = b"[" + value + b"]"
        assert len(value) > KAFKAS_LIMIT
        produce(at, [a_round(number) for number in range(FEW)])
        produce(at, [Bytes(value), Bytes(bad), Bytes(b"bad")])
        finished = Finished(at)
        wait_until(finished, "all is rated")
        rejected = read_topic(at, Topics.of(at).rejected)
        assert sorted(len(each.value() or b"") for each in rejected) == [3, len(bad)]
        produce(at, [a_round(number) for number in range(FEW, 2 * FEW)])
        first.kill()
        worker_process(at)
        wait_until(finished, "the rest is rated")
        redis.restart()
        done(at, "correct", "void", "ladder-1", "r1")
        produce(at, [a_round(number) for number in range(2 * FEW, 3 * FEW)])
        wait_until(finished, "the correction is applied")
        events = published(at)
        assert len({each.event_id for each in events}) == len(events)
        assert sum(each.correction is None for each in events) == 2 * 3 * FEW + MANY
        assert any(each.correction is not None for each in events)
        assert "all equal, bit for bit" in done(at, "verify", "--wait", PATIENTLY)
