"""The judge judges the answers of a real `serve`, whose index goes back to an older state, and
which is asked for rounds that are not rated yet: it finds nothing, and each planted fault."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from local.servers import Server
from stream_rater.config.settings import Settings
from tests import real
from tests.chaos.judging import ANSWERS, asking, judge_twice, recording, words_of
from tests.chaos.planted import IN_SERVE
from tests.chaos.redis_faults import restored, snapshot
from tests.chaos.scene import advised_redis
from tests.chaos.serving import wait_until_asked
from tests.chaos.standalone import free_port
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.topics import Bytes, Finished, produce
from tests.judge.findings import Findings

PLAYERS, ROUNDS = 8, 12
"""All play in each round, and each is on the leaderboard after half of the first rounds."""
ENOUGH = 40
"""The answers that are waited for: about five about each player."""
FOUND = {"": set(), "older-state-answered": {"back in time"}, "min-offset-ignored": {"min_offset"}}
"""The rules that the judge finds broken."""


def play(at: Settings, first: int) -> None:
    """Send rounds of one ladder."""
    some = [
        {
            "round_id": f"r{first + number}", "ladder": "duels",
            "completed_at": "2026-01-01T00:00:00Z",
            "standings": [
                {"player": f"p{i}", "rank": 1 + (i + number) % 5} for i in range(PLAYERS)
            ],
        }
        for number in range(ROUNDS)
    ]  # fmt: skip
    produce(at, [Bytes(msgspec.json.encode(each), b"duels") for each in some])


@contextmanager
def paused(serve: WorkerProcess) -> Iterator[None]:
    """Stop the process that keeps the index up to date, so that the index stays as it is."""
    tasks = Path(f"/proc/{serve.pid}/task").glob("*/children")
    children = [int(pid) for each in tasks for pid in each.read_text().split()]
    assert children
    for pid in children:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in children:
            os.kill(pid, signal.SIGCONT)


def story(at: Settings, index: Server, worker: WorkerProcess, serve: WorkerProcess) -> None:
    """Rate rounds; set the index back; and ask for rounds that wait for a worker."""

    def rate(first: int) -> None:
        play(at, first)
        wait_until(finished := Finished(at), "all is rated", moves=finished.moves)
        wait_until(
            lambda: serve.metric("stream_rater_serve_events_total") >= (first + ROUNDS) * PLAYERS,
            "the index has all",
        )
        wait_until_asked(serve, ENOUGH)

    rate(0)
    kept = snapshot(index)
    rate(ROUNDS)
    with paused(serve):
        restored(index, kept)
        wait_until_asked(serve, ENOUGH)
    serve.wait_ready()
    wait_until_asked(serve, ENOUGH)
    worker.pause()
    try:
        play(at, 2 * ROUNDS)
        wait_until_asked(serve, ENOUGH)
    finally:
        worker.go_on()
    wait_until(finished := Finished(at), "all is rated", moves=finished.moves)


def judged(at: Settings, folder: Path, fault: str) -> Findings:
    """Play the story with a `serve` that has the fault, and judge it."""
    words = ["tests.chaos.planted", fault] if fault else ["stream_rater"]
    serving = msgspec.structs.replace(at, serve=f"127.0.0.1:{free_port()}", serve_rate=0.0)
    worker = WorkerProcess(at, folder / "worker.log", forked=True)
    try:
        worker.wait_ready()
        with (
            advised_redis(folder / "index") as index,
            recording(
                folder / "live.jsonl.gz", "--name", "live", *words_of(at), *asking([serving.serve])
            ) as live,
        ):
            serve = WorkerProcess(
                msgspec.structs.replace(serving, redis=index.address), folder / "serve.log",
                command=[sys.executable, "-m", *words, "serve"],
            )  # fmt: skip
            try:
                serve.wait_ready()
                story(at, index, worker, serve)
                return judge_twice(live, at)
            finally:
                serve.close()
    finally:
        worker.close()


@pytest.mark.slow  # the judge by hand, answers too: `unit/test_judge.py`
@pytest.mark.parametrize("fault", ["", *IN_SERVE])
def test_it_judges_the_answers_of_a_real_serve(
    settings: real.SettingsFactory, tmp_path: Path, fault: str
) -> None:
    """Answers of each kind. A fault is found by the rule that it breaks, and by no other."""
    found = judged(settings(), tmp_path, fault)
    assert {line.partition(":")[0] for line in found.lines} == FOUND[fault], found.lines
    assert all(found.checked[kind] for kind in ANSWERS), found.checked
