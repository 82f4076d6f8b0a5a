"""A small `make chaos`. Its judge, on real Kafka and `serve`, finds each planted fault, and nothing
without one. (Its counts: `unit/test_chaos.py`; in memory: `simulation/test_judged.py`.)"""

import itertools
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from local.processes import free_port
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, ROOT, given_address
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from tests.chaos.judging import ANSWERS, asking, judge_twice, recording, words_of
from tests.chaos.planted import IN_SERVE
from tests.chaos.season import differing, lobbies
from tests.chaos.serving import wait_until_asked
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.topics import Bytes, Finished, produce, rated
from tests.judge.observations import Findings
from tests.real import SettingsFactory
from tests.rounds import as_json, day, ranked
from tests.unit.test_chaos import ALL
from tests.waits import HANGS_S


def test_what_was_published_last_is_what_the_store_has(settings: SettingsFactory) -> None:
    """A player whose belief in the store differs, or is missing, is named."""
    at = settings()
    store = RedisStore(at)
    store.prepare()
    store.close()
    assert [*differing({("l", "q"): ALL[3]}, at)] == ["l:r3:q: the store has None of ('l', 'q')"]


@pytest.mark.slow  # a snapshot under workers: `test_rebuild.py`
@pytest.mark.skipif(
    bool(given_address(KAFKA_VARIABLE) or given_address(REDIS_VARIABLE)),
    reason="servers are given, and chaos breaks its own",
)
def test_a_fault_and_its_line() -> None:
    """Redis returns to an old snapshot: nothing is lost or doubled, and a JSON object says so."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--quick", "redis-restored"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": "deploy:deploy/tools"},
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert [found[name] for name in ("injected", "lost", "doubled", "wrong")] == [1, 0, 0, 0]
    assert (found["recoveries"], found["ended_themselves"]) == (1, {})
    assert found["updates"] > 1000


# --- the judge: events ---

ROUNDS = 60
IN_MEMORY_TOO = ("event-skipped", "duplicate-rated", "invalid-rated", "rejection-twice")
SLOW = [pytest.param(fault, marks=pytest.mark.slow) for fault in IN_MEMORY_TOO]
ON_KAFKA = ["aborted-is-committed", *SLOW]  # Planted in workers; the first one needs a broker.


def run(at: Settings, folder: Path, *words: str) -> Findings:
    """Rate rounds, some of which are repeated or invalid, by one worker, and judge the run."""
    with (
        closing(WorkerProcess(at, folder / "log", command=words, forked=not words)) as worker,
        recording(folder / "live.jsonl.gz", "--name", "live", *words_of(at)) as live,
    ):
        worker.wait_ready()
        some = [*itertools.islice(lobbies(), ROUNDS)]
        some += [some[3], some[4] | {"round_id": "bad", "standings": some[4]["standings"][:1]}]
        rated(at, *(Bytes(msgspec.json.encode(e), e["ladder"].encode()) for e in some))
        return judge_twice(live, at)


def test_it_finds_nothing_in_a_run_of_workers(settings: SettingsFactory, tmp_path: Path) -> None:
    """The judge has seen all of it, and both of its readers saw the same."""
    found = run(settings(), tmp_path)
    assert found.clean, found.lines
    assert found.checked["changes"] == 8 * ROUNDS
    assert found.checked["rejections"] == 2
    records = 8 * ROUNDS + ROUNDS + 2 + 2
    assert found.checked["records compared between readers"] == records


@pytest.mark.parametrize("fault", ON_KAFKA)
def test_it_finds_a_fault_that_is_planted_in_a_worker(
    settings: SettingsFactory, tmp_path: Path, fault: str
) -> None:
    """The judge does not depend on the state that the worker keeps."""
    words = (sys.executable, "-m", "tests.chaos.planted", fault, "run", "--role", "all")
    found = run(settings(), tmp_path, *words)
    assert found.violations, found.checked


# --- the judge: answers ---

PLAYERS, TURNS = 8, 12  # All play in each round; half of the first rounds list them.
ENOUGH = 40  # So many answers are waited for: about five for each player.
FOUND = {"": set(), "older-state-answered": {"back in time"}, "min-offset-ignored": {"min_offset"}}
"""By fault, the rules that the judge finds broken."""


def play(at: Settings, first: int) -> None:
    names = [f"p{i}" for i in range(PLAYERS)]
    for number in range(TURNS):
        standings = ranked([1 + (i + number) % 5 for i in range(PLAYERS)], names)
        value = as_json(
            *standings, round_id=f"r{first + number}", ladder="duels", completed_at=day(0)
        )
        produce(at, [Bytes(value, b"duels")])


def story(at: Settings, worker: WorkerProcess, serve: WorkerProcess) -> None:
    """Let rounds be rated, twice, and ask about rounds that wait for a worker."""

    def rate(first: int) -> None:
        play(at, first)
        wait_until(Finished(at), "all is rated")
        wait_until(
            lambda: serve.metric("stream_rater_serve_events_total") >= (first + TURNS) * PLAYERS,
            "the index has all",
        )
        wait_until_asked(serve, ENOUGH)

    rate(0)
    rate(TURNS)
    worker.pause()
    try:
        play(at, 2 * TURNS)
        wait_until_asked(serve, ENOUGH)
    finally:
        worker.go_on()
    wait_until(Finished(at), "all is rated")


def judged(at: Settings, folder: Path, fault: str) -> Findings:
    """Play the story with a `serve` that has the fault, and judge it."""
    words = ["tests.chaos.planted", fault] if fault else ["stream_rater"]
    serving = msgspec.structs.replace(at, serve=f"127.0.0.1:{free_port()}", serve_rate=0.0)
    recorded = "--name", "live", *words_of(at), *asking([serving.serve])
    command = [sys.executable, "-m", *words, "serve"]
    with closing(WorkerProcess(at, folder / "worker.log", forked=True)) as worker:
        worker.wait_ready()
        with (
            recording(folder / "live.jsonl.gz", *recorded) as live,
            closing(WorkerProcess(serving, folder / "serve.log", command=command)) as serve,
        ):
            serve.wait_ready()
            story(at, worker, serve)
            return judge_twice(live, at)


@pytest.mark.slow  # the judge by hand, answers too: `unit/test_judge.py`
@pytest.mark.parametrize("fault", ["", *IN_SERVE])
def test_it_judges_answers_of_serve(settings: SettingsFactory, tmp_path: Path, fault: str) -> None:
    """Answers of each kind. A fault is found by the rule that it breaks, and by no other."""
    found = judged(settings(), tmp_path, fault)
    assert {line.partition(":")[0] for line in found.lines} == FOUND[fault], found.lines
    assert all(found.checked[kind] for kind in ANSWERS), found.checked
