"""`python -m tests.benchmarks.standalone`: a standalone process beside one worker on Kafka and
Redis, on the same processors, in turns. A JSON object a line on standard output, a table on
standard error.

The rate is that of a backlog. The latency is from the moment a round is due to the moment the event
reaches a client that follows its ladder. `ingest` is the time to a 202 of `serve`, beside an
endpoint that only produces to Kafka. `large` is the size and the start of a file with many
changes. Exit code 0: all was measured.
"""

import argparse
import itertools
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console

from local.servers import signals_as_exit
from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.log import NewRound, SqliteLog
from stream_rater.columns.sharding import partition_of
from stream_rater.config.settings import Settings
from stream_rater.contract.events import JSON
from tests.benchmarks.document import writing
from tests.benchmarks.measure import Result, result, table
from tests.benchmarks.posting import Posted, post
from tests.benchmarks.stream.crew import a_crew, names_of
from tests.benchmarks.stream.ground import Ground, a_ground, processor_s
from tests.benchmarks.stream.rounds import WORKLOADS, Round, ladder_name, limited, up_to
from tests.benchmarks.stream.throughput import SERVICE, measured
from tests.benchmarks.stream.throughput import Run as RunOfService
from tests.integration.processes import WorkerProcess

WORKLOAD = WORKLOADS["lobby5"]
TURNS, QUICK = 3, 10
RATE, SECONDS = 1_000.0, 20.0
"""Updates a second, and for how long, where the latency is measured."""
FIRST, LAST = 0.1, 0.9
"""The part of the backlog that counts: kernels are loaded before it, and the end is not full."""
LOOK_S = 0.1
WARM = 200
"""Rounds that are rated before the latency is measured."""
LARGE, CHUNK = 10_000_000, 100_000
"""The updates of a large file, and how many rounds a transaction appends to it."""
POSTS, INGEST_S = 1_000.0, 10.0
"""Posts a second to `serve`, and for how long in each turn."""
TOKEN = "posting"
ROUNDS = "/v1/ladders/{ladder}/rounds"
HEADERS = (("content-type", JSON.encode()),)
RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB", re.M)
LAG = re.compile(rb"^stream_rater_serve_lag (\S+)", re.M)
COUNTER = re.compile(rb'^stream_rater_events_total\{outcome="published"\} (\S+)', re.M)


class Process(NamedTuple):
    """A standalone process."""

    popen: "subprocess.Popen[str]"
    port: int

    def published(self) -> float:
        """The number of events that it has published."""
        found = COUNTER.search(get(self.port, "/metrics"))
        assert found is not None
        return float(found[1])

    def lag(self) -> float:
        """The number of events that are not in the index yet."""
        found = LAG.search(get(self.port, "/metrics"))
        assert found is not None
        return float(found[1])

    def processor_s(self) -> float:
        """Seconds of processor time of it and its children."""
        return sum(map(processor_s, self._pids()))

    def memory_mib(self) -> float:
        """Resident memory of it and its children."""
        texts = [Path(f"/proc/{each}/status").read_text() for each in self._pids()]
        return sum(int(RESIDENT.findall(text)[0]) for text in texts) / 1024

    def _pids(self) -> list[int]:
        """It and its children."""
        tasks = Path(f"/proc/{self.popen.pid}/task").iterdir()
        children = [each for task in tasks for each in (task / "children").read_text().split()]
        return [self.popen.pid, *map(int, children)]


def get(port: int, path: str) -> bytes:
    """The answer to a question."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30.0) as answer:
        body: bytes = answer.read()
        return body


@contextmanager
def a_process(file: Path) -> Iterator[Process]:
    """A standalone process on this file, until the block ends."""
    command = [sys.executable, "-m", "stream_rater", "standalone", str(file)]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    ) as popen:
        assert popen.stderr is not None
        port = next(json.loads(line)["port"] for line in popen.stderr if '"event": "http"' in line)
        try:
            yield Process(popen, port)
        finally:
            popen.terminate()
            popen.communicate()


def fill(file: Path, rounds: Sequence[Round]) -> None:
    """Append rounds to a file that no process has open."""
    database = Database.open(file)
    try:
        log = SqliteLog(database)
        now_s = time.time()
        with database.turn():
            log.submit_all(
                [
                    NewRound(
                        partition_of(each.ladder, len(log.rounds)), each.value, HEADERS, now_s,
                        each.ladder.encode(),
                    )
                    for each in rounds
                ]
            )  # fmt: skip
    finally:
        database.close()


class Run(NamedTuple):
    """A backlog that was rated."""

    rate: float
    """Updates a second."""
    processor_us: float
    """Per update."""
    file_bytes: float
    """Bytes of the data file per update."""
    index_bytes: float


def backlog(folder: Path, rounds: Sequence[Round]) -> Run:
    """Rate a backlog by a standalone process."""
    file = folder / "ratings.db"
    fill(file, rounds)
    updates = sum(len(each.players) for each in rounds)
    with a_process(file) as process:
        seen: list[tuple[float, float, float]] = []
        while not seen or seen[-1][1] < updates:
            seen.append((time.monotonic(), process.published(), process.processor_s()))
            time.sleep(LOOK_S)
        counted = [each for each in seen if FIRST * updates <= each[1] <= LAST * updates]
    (began_s, first, used_s), (ended_s, last, all_s) = counted[0], counted[-1]
    index = file.with_name(f"{file.name}-index").stat().st_size
    return Run(
        (last - first) / (ended_s - began_s), (all_s - used_s) / (last - first) * 1e6,
        file.stat().st_size / updates, index / updates,
    )  # fmt: skip


def latency(folder: Path, rounds: Sequence[Round]) -> dict[str, float]:
    """Milliseconds until 202, and until the event came, at RATE updates a second."""
    context = multiprocessing.get_context("spawn")
    with a_process(folder / "latency.db") as process:
        ours, theirs = context.Pipe()
        warm, counted = rounds[:WARM], rounds[WARM:]
        post(process.port, ROUNDS, warm, RATE / WORKLOAD.size)
        ladder = counted[0].ladder
        updates = sum(len(each.players) for each in counted)
        follower = context.Process(
            target=_follow, args=(process.port, ladder, updates, theirs), daemon=True
        )
        follower.start()
        ours.recv()
        posted = post(process.port, ROUNDS, counted, RATE / WORKLOAD.size)
        came_s: list[tuple[str, float]] = ours.recv()
    late = sorted(at_s - posted.due_s[round_id] for round_id, at_s in came_s)
    late = late[int(0.1 * len(late)) :]  # the first that came are not the first that were due
    return {
        "p50": 1000.0 * late[len(late) // 2], "p99": 1000.0 * late[int(0.99 * len(late))],
        "accepted_p50": posted.quantile_ms(0.5), "accepted_p99": posted.quantile_ms(0.99),
    }  # fmt: skip


def _follow(port: int, ladder: str, updates: int, ours: Connection) -> None:
    """Follow a ladder until so many events have come, and send when each came."""
    came: list[tuple[str, float]] = []
    url = f"http://127.0.0.1:{port}/v1/ladders/{ladder}/changes"
    with urllib.request.urlopen(url, timeout=60.0) as stream:
        ours.send(True)
        for line in stream:
            if line.startswith(b"data: {") and (found := json.loads(line[6:])):
                came.append((found["round_id"], time.time()))
                if len(came) == updates:
                    break
    ours.send(came)


def with_serve(ground: Ground, folder: Path, rounds: Sequence[Round]) -> RunOfService:
    """Rate a backlog by a worker with Kafka and Redis, while `serve` keeps the index of its
    events."""
    with ExitStack() as stack:

        def begin(settings: Settings) -> None:
            given = msgspec.structs.replace(settings, serve="127.0.0.1:0")
            command = [sys.executable, "-m", "stream_rater", "serve"]
            process = WorkerProcess(given, folder / "serve.log", command=command)
            stack.enter_context(closing(process)).wait_ready()

        return measured(ground, WORKLOAD, rounds, "1", before=begin)


def large(file: Path, updates: int) -> Result:
    """The size of a file after so many updates, and seconds until a process on it is ready."""
    rounds = limited(updates, WORKLOAD.rounds(3))
    while some := list(itertools.islice(rounds, CHUNK)):
        fill(file, some)
    with a_process(file) as process:
        began_s = time.monotonic()
        while process.published() < updates:
            time.sleep(LOOK_S)
        rated_s = time.monotonic() - began_s
        while process.lag():
            time.sleep(LOOK_S)
        indexed_s = time.monotonic() - began_s
    gib = 2**30
    index = file.with_name(f"{file.name}-index").stat().st_size
    began_s = time.monotonic()
    with a_process(file) as process:
        listening_s = time.monotonic() - began_s
        while not _ready(process.port):
            time.sleep(0.01)
        ready_s = time.monotonic() - began_s
        get(process.port, f"/v1/ladders/{ladder_name(0)}/leaderboard")
        board_s = time.monotonic() - began_s
        memory = process.memory_mib()
    ratio = {
        "file_gib": file.stat().st_size / gib, "index_gib": index / gib, "rated_s": rated_s,
        "indexed_s": indexed_s,
        "listening_s": listening_s, "ready_s": ready_s, "board_s": board_s, "memory_mib": memory,
    }  # fmt: skip
    return result("standalone/large", ready_s, "s until ready", ratio, f"{updates:,} updates")


def _ready(port: int) -> bool:
    try:
        get(port, "/readyz")
    except OSError:
        return False
    return True


def ingest(ground: Ground, folder: Path, rounds: Sequence[Round], turns: int) -> Result:
    """Milliseconds until 202 of single posts to `serve`, and to an endpoint that only produces."""
    given = {"serve": "127.0.0.1:0", "serve_write_token": TOKEN}
    commands = {"serve": ["stream_rater", "serve"], "bare": ["tests.benchmarks.bare_door"]}
    found: dict[str, list[Posted]] = {name: [] for name in commands}
    with a_crew(ground, WORKLOAD, names_of("1"), SERVICE, **given) as crew, ExitStack() as stack:
        crew.wait_until_joined()
        processes = {}
        for name, words in commands.items():
            command = [sys.executable, "-m", *words]
            process = WorkerProcess(crew.settings, folder / f"{name}.log", command=command)
            processes[name] = stack.enter_context(closing(process))
            process.wait_ready()
        left = iter(rounds)
        for _ in range(turns):
            for name, process in processes.items():
                some = list(itertools.islice(left, int(POSTS * INGEST_S)))
                port = int(process.url.rpartition(":")[2])
                found[name].append(post(port, ROUNDS, some, POSTS, TOKEN))
        crew.wait_until_finished()
    ratio = {
        f"{name}_p{per_cent}": statistics.median(each.quantile_ms(per_cent / 100) for each in runs)
        for name, runs in found.items()
        for per_cent in (50, 99)
    }
    note = f"{POSTS:,.0f} posts/s, medians of {turns} turns"
    return result("serve/ingest1000", ratio["serve_p99"], "ms, p99", ratio, note)


def measured_all(quick: bool) -> Iterator[Result]:
    """Each figure."""
    part = QUICK if quick else 1
    updates, turns = WORKLOAD.updates // part, 1 if quick else TURNS
    rounds = up_to(updates, WORKLOAD.rounds())
    ours, theirs, both = [], [], []
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as name:
        folder = Path(name)
        with a_ground(folder, {}) as ground:
            for turn in range(turns):
                own = folder / f"turn-{turn}"
                own.mkdir()
                ours.append(backlog(own, rounds))
                theirs.append(measured(ground, WORKLOAD, rounds, "1"))
                both.append(with_serve(ground, own, rounds))
            posts = int(2 * turns * POSTS * INGEST_S) * WORKLOAD.size
            ingested = ingest(ground, folder, up_to(posts, WORKLOAD.rounds(2)), turns)
        rate = statistics.median(each.rate for each in ours)
        service = statistics.median(each.rate for each in theirs)
        served = statistics.median(each.rate for each in both)
        ratio = {
            "service": rate / service, "service_rate": service,
            "served": rate / served, "served_rate": served,
            "processor_us": statistics.median(each.processor_us for each in ours),
            "service_us": statistics.median(each.all_us for each in theirs),
            "file_bytes": ours[-1].file_bytes, "index_bytes": ours[-1].index_bytes,
        }  # fmt: skip
        yield result("standalone/lobby5", rate, "updates/s", ratio, f"{updates} updates, backlog")
        one = up_to(
            int(RATE * SECONDS / part) + WARM * WORKLOAD.size, WORKLOADS["hot-ladder"].rounds()
        )
        found = latency(folder, one)
        yield result("standalone/latency1000", found["p99"], "ms, p99", found, "1,000 updates/s")
        yield ingested
        yield large(folder / "large.db", LARGE // (10 * part if quick else 1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all."""
    program = "python -m tests.benchmarks.standalone"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything: does it run?")
    writing.add_option(parser)
    asked = parser.parse_args(arguments)
    writing.check(parser, write=asked.write, unlike={"--quick": asked.quick})
    done = []
    with signals_as_exit():
        for each in measured_all(asked.quick):
            print(msgspec.json.encode(each).decode(), flush=True)
            done.append(each)
    Console(stderr=True).print(table(done))
    if asked.write:
        own = sys.argv[1:] if arguments is None else arguments
        writing.write_run("bench-standalone", done, own)
    return 0


if __name__ == "__main__":
    sys.exit(main())
