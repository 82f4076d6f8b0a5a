"""`python -m tests.benchmarks.standalone`: a standalone process beside one worker on Kafka and
Redis, on the same processors, in turns. A JSON object a line on standard output, a table on
standard error.

The rate is that of a backlog. The latency is from the moment a round is due to the moment the event
reaches a client that follows its ladder. `ingest` is the time to a 202 of `serve`, beside an
endpoint that only produces to Kafka. `large` is the size and the start of a file with many
changes. Exit code 0: all was measured.
"""

import asyncio
import itertools
import json
import multiprocessing
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np

from local.servers import signals_as_exit
from stream_rater.columns.arrays import Floats
from stream_rater.config.settings import Settings
from tests.benchmarks.command import a_parser, end, parsed, show
from tests.benchmarks.measure import Result, result
from tests.benchmarks.replaying import append
from tests.benchmarks.stream.crew import a_crew, a_program, names_of
from tests.benchmarks.stream.ground import Ground, a_ground, processor_s, resident_bytes
from tests.benchmarks.stream.rounds import WORKLOADS, Round, ladder_name, limited, up_to, updates_of
from tests.benchmarks.stream.throughput import SERVICE, measured
from tests.benchmarks.stream.throughput import Run as RunOfService
from tests.integration.processes import WorkerProcess, wait_until

# --- posts ----------------------------------------------------------------------------------------

CONNECTIONS = 16
STEADY = 0.2  # Posts of this first part of the time are not counted.
TIMEOUT_S = 60.0


class Posted(NamedTuple):
    due_s: dict[str, float]  # When each round was due, Unix seconds.
    answered_s: Floats  # (n,) how long each answer took that counts, in seconds.

    def quantile_ms(self, share: float) -> float:
        """The time in ms that this share of the answers did not exceed."""
        return 1000.0 * float(np.quantile(self.answered_s, share, method="inverted_cdf"))


def post(
    url: str, path: str, rounds: Sequence[Round], per_second: float, token: str = ""
) -> Posted:
    """Post each round to this path of its `{ladder}`; AssertionError if an answer is no 202."""
    return asyncio.run(_post(int(url.rpartition(":")[2]), path, rounds, per_second, token))


async def _post(
    port: int, path: str, rounds: Sequence[Round], per_second: float, token: str
) -> Posted:
    due = asyncio.Queue[tuple[Round, float] | None]()
    begin_s = time.time() + 0.1
    due_s = {each.round_id: begin_s + i / per_second for i, each in enumerate(rounds)}
    took: dict[str, float] = {}

    async def worker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (given := await due.get()) is not None:
            each, at_s = given
            head = (
                f"POST {path.format(ladder=each.ladder)} HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(each.value)}\r\n"
                + (f"Authorization: Bearer {token}\r\n" if token else "")
                + "\r\n"
            )
            writer.write(head.encode() + each.value)
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)
            length = next(
                int(line.split(b":")[1])
                for line in answer.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            )
            body = await asyncio.wait_for(reader.readexactly(length), TIMEOUT_S)
            took[each.round_id] = time.time() - at_s
            assert answer.startswith(b"HTTP/1.1 202"), (answer, body)
        writer.close()

    workers = [asyncio.create_task(worker()) for _ in range(CONNECTIONS)]
    for each in rounds:
        at_s = due_s[each.round_id]
        if (wait_s := at_s - time.time()) > 0.0005:
            await asyncio.sleep(wait_s)
        due.put_nowait((each, at_s))
    for _ in workers:
        due.put_nowait(None)
    await asyncio.gather(*workers)
    counted = rounds[int(STEADY * len(rounds)) :]
    return Posted(due_s, np.array([took[each.round_id] for each in counted]))


# --- what is measured -----------------------------------------------------------------------------

WORKLOAD = WORKLOADS["lobby5"]
TURNS, QUICK = 3, 10
RATE, SECONDS = 1_000.0, 20.0  # Updates a second, and for how long, where the latency is measured.
FIRST, LAST = 0.1, 0.9  # The part of the backlog that counts, without loading kernels or the end.
LOOK_S = 0.1
WARM = 200  # Rounds that are rated before the latency is measured.
LARGE = 10_000_000  # The updates of a large file.
POSTS, INGEST_S = 1_000.0, 10.0  # Posts a second to `serve`, and for how long in each turn.
TOKEN, SERVE = "posting", ["stream_rater", "serve"]
ROUNDS = "/v1/ladders/{ladder}/rounds"


@contextmanager
def a_process(file: Path) -> Iterator[WorkerProcess]:
    """A standalone process on this file, which listens, until the block ends."""
    words = ["stream_rater", "standalone", str(file), "--listen", "127.0.0.1:0"]
    with closing(a_program(words, Settings(), file.with_suffix(".log"))) as process:
        wait_until(lambda: bool(process.url), "it listens", every_s=0.01)
        yield process
        process.terminate()
        process.wait()


def published(process: WorkerProcess) -> float:
    return process.metric("stream_rater_events_total", outcome="published")


def pids(process: WorkerProcess) -> list[int]:
    """It and its children."""
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    children = [each for task in tasks for each in (task / "children").read_text().split()]
    return [process.pid, *map(int, children)]


def bytes_of_index(file: Path) -> int:
    """Of the file beside a data file."""
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}-index/*/data.mdb"))


def backlog(folder: Path, rounds: Sequence[Round]) -> dict[str, float]:
    """Rate a backlog by a standalone process: its rate, and what an update takes."""
    file = folder / "ratings.db"
    append(file, rounds, time.time())
    updates = updates_of(rounds)
    with a_process(file) as process:
        seen: list[tuple[float, float, float]] = []
        while not seen or seen[-1][1] < updates:
            used_s = sum(map(processor_s, pids(process)))
            seen.append((time.monotonic(), published(process), used_s))
            time.sleep(LOOK_S)
        counted = [each for each in seen if FIRST * updates <= each[1] <= LAST * updates]
    (began_s, first, used_s), (ended_s, last, all_s) = counted[0], counted[-1]
    return {
        "rate": (last - first) / (ended_s - began_s),
        "processor_us": (all_s - used_s) / (last - first) * 1e6,
        "file_bytes": file.stat().st_size / updates, "index_bytes": bytes_of_index(file) / updates,
    }  # fmt: skip


def latency(folder: Path, rounds: Sequence[Round]) -> dict[str, float]:
    """Milliseconds until 202, and until the event came, at RATE updates a second."""
    context = multiprocessing.get_context("spawn")
    with a_process(folder / "latency.db") as process:
        ours, theirs = context.Pipe()
        warm, counted = rounds[:WARM], rounds[WARM:]
        post(process.url, ROUNDS, warm, RATE / WORKLOAD.size)
        given = f"{process.url}/v1/ladders/{counted[0].ladder}/changes", updates_of(counted), theirs
        context.Process(target=_follow, args=given, daemon=True).start()
        ours.recv()
        posted = post(process.url, ROUNDS, counted, RATE / WORKLOAD.size)
        came_s: list[tuple[str, float]] = ours.recv()
    late = sorted(at_s - posted.due_s[round_id] for round_id, at_s in came_s)
    late = late[int(0.1 * len(late)) :]  # the first that came are not the first that were due
    return {
        "p50": 1000.0 * late[len(late) // 2], "p99": 1000.0 * late[int(0.99 * len(late))],
        "accepted_p50": posted.quantile_ms(0.5), "accepted_p99": posted.quantile_ms(0.99),
    }  # fmt: skip


def _follow(url: str, updates: int, ours: Connection) -> None:
    """Follow a ladder until so many events have come, and send when each came."""
    came: list[tuple[str, float]] = []
    with urllib.request.urlopen(url, timeout=60.0) as stream:
        ours.send(True)
        for line in stream:
            if line.startswith(b"data: {") and (found := json.loads(line[6:])):
                came.append((found["round_id"], time.time()))
                if len(came) == updates:
                    break
    ours.send(came)


def with_serve(ground: Ground, folder: Path, rounds: Sequence[Round]) -> RunOfService:
    """Rate a backlog by a worker with Kafka and Redis, while `serve` keeps the index."""
    with ExitStack() as stack:

        def begin(settings: Settings) -> None:
            given = msgspec.structs.replace(settings, serve="127.0.0.1:0")
            stack.enter_context(closing(a_program(SERVE, given, folder / "serve.log"))).wait_ready()

        return measured(ground, WORKLOAD, rounds, "1", before=begin)


def large(file: Path, updates: int) -> Result:
    """The size of a file after so many updates, and seconds until a process on it is ready."""
    append(file, limited(updates, WORKLOAD.rounds(3)), time.time())
    ratio = dict[str, float]()
    with a_process(file) as process:
        began_s = time.monotonic()
        while published(process) < updates:
            time.sleep(LOOK_S)
        ratio["rated_s"] = time.monotonic() - began_s
        while process.metric("stream_rater_serve_lag"):
            time.sleep(LOOK_S)
        ratio["indexed_s"] = time.monotonic() - began_s
    ratio |= {"file_gib": file.stat().st_size / 2**30, "index_gib": bytes_of_index(file) / 2**30}
    began_s = time.monotonic()
    with a_process(file) as process:
        ratio["listening_s"] = time.monotonic() - began_s
        while process.get("/readyz")[0] != 200:
            time.sleep(0.01)
        ratio["ready_s"] = time.monotonic() - began_s
        process.get(f"/v1/ladders/{ladder_name(0)}/leaderboard")
        ratio["board_s"] = time.monotonic() - began_s
        ratio["memory_mib"] = sum(map(resident_bytes, pids(process))) / 2**20
    note = f"{updates:,} updates"
    return result("standalone/large", ratio["ready_s"], "s until ready", ratio, note)


def ingest(ground: Ground, folder: Path, rounds: Sequence[Round], turns: int) -> Result:
    """Milliseconds until 202 of single posts to `serve`, and to an endpoint that only produces."""
    given = {"serve": "127.0.0.1:0", "serve_write_token": TOKEN}
    commands = {"serve": SERVE, "bare": ["tests.benchmarks.bare"]}
    found: dict[str, list[Posted]] = {name: [] for name in commands}
    with a_crew(ground, WORKLOAD, names_of("1"), SERVICE, **given) as crew, ExitStack() as stack:
        crew.wait_until_joined()
        processes = {}
        for name, words in commands.items():
            process = a_program(words, crew.settings, folder / f"{name}.log")
            processes[name] = stack.enter_context(closing(process))
            process.wait_ready()
        left = iter(rounds)
        for _ in range(turns):
            for name, process in processes.items():
                some = list(itertools.islice(left, int(POSTS * INGEST_S)))
                found[name].append(post(process.url, ROUNDS, some, POSTS, TOKEN))
        crew.wait_until_finished()
    ratio = {
        f"{name}_p{per_cent}": median(each.quantile_ms(per_cent / 100) for each in runs)
        for name, runs in found.items()
        for per_cent in (50, 99)
    }
    note = f"{POSTS:,.0f} posts/s, medians of {turns} turns"
    return result("serve/ingest1000", ratio["serve_p99"], "ms, p99", ratio, note)


def measured_all(quick: bool) -> Iterator[Result]:
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
        ratio = {name: median(each[name] for each in ours) for name in ours[0]}
        rate = ratio.pop("rate")
        ratio["service_us"] = median(each.all_us for each in theirs)
        for name, runs in (("service", theirs), ("served", both)):
            ratio[f"{name}_rate"] = median(each.rate for each in runs)
            ratio[name] = rate / ratio[f"{name}_rate"]
        yield result("standalone/lobby5", rate, "updates/s", ratio, f"{updates} updates, backlog")
        few = int(RATE * SECONDS / part) + WARM * WORKLOAD.size
        found = latency(folder, up_to(few, WORKLOADS["hot-ladder"].rounds()))
        yield result("standalone/latency1000", found["p99"], "ms, p99", found, "1,000 updates/s")
        yield ingested
        yield large(folder / "large.db", LARGE // (10 * part if quick else 1))


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parsed(a_parser("tests.benchmarks.standalone", __doc__), arguments)
    with signals_as_exit():
        shown = show([("standalone", measured_all(asked.quick))])
    return end("bench-standalone", asked, shown)


if __name__ == "__main__":
    sys.exit(main())
