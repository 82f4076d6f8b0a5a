"""`python -m tests.benchmarks.reading`: how fast `serve` answers. A JSON object a line on standard
output, a table on standard error.

One `serve`, whose index has a ladder of millions of players, and beside it on the same machine a
worker that rates at a steady rate, Kafka, Redis and who asks. oha asks at a steady rate, whatever
the answers do; times count from when a request was due. In turns with `serve` the bare framework
answers a constant of the same length to the same questions. Exit code 0: all was measured; 1: it
was skipped, the reason is on standard error.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from local.servers import signals_as_exit
from local.steps import in_a_thread
from local.tools import SERVERS
from stream_rater.adapters.kafka.round_log import KafkaLog
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.index.folder import Hold, begin, end
from stream_rater.index.writer import IndexWriter
from tests.benchmarks.command import a_parser, parsed, show
from tests.benchmarks.command import end as ended
from tests.benchmarks.measure import Result, Skipped, result
from tests.benchmarks.stream.crew import a_crew, a_program, names_of
from tests.benchmarks.stream.ground import a_ground, a_producer
from tests.benchmarks.stream.latency import feed
from tests.benchmarks.stream.rounds import WORKLOADS, up_to
from tests.benchmarks.stream.throughput import SERVICE
from tests.builders.indexes import an_event

# --- who asks -------------------------------------------------------------------------------------

CONNECTIONS = 40
NEEDED = "oha is not installed: `cargo install oha --root .servers/oha`"


@dataclass(frozen=True)
class Load:
    """What is asked, again and again."""

    name: str
    paths: Sequence[str]  # One of them is asked for each time, chosen at random.
    per_second: int
    body: Path | None = None  # Of a POST.


def ask(load: Load, address: str) -> dict[str, float]:
    """How long answers took, in ms. AssertionError where one is no 200."""
    words = [
        program(), "--no-tui", "--output-format", "json", "-z", f"{SECONDS:g}s",
        "-q", str(load.per_second), "-c", str(CONNECTIONS), "--latency-correction",
    ]  # fmt: skip
    if load.body is not None:
        words += ["-m", "POST", "-D", str(load.body), "-T", "application/json"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as urls:
        urls.writelines(f"{address}{path}\n" for path in load.paths)
        urls.flush()
        words += ["--urls-from-file", urls.name]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    reported = msgspec.json.decode(done.stdout)
    codes, errors = reported["statusCodeDistribution"], reported["errorDistribution"]
    # Requests that are under way when the time is over are cut off.
    wrong = {name: n for name, n in errors.items() if "deadline" not in name}
    assert set(codes) == {"200"} and not wrong, f"{load.name}: {codes} {errors}"
    return {each: 1000.0 * reported["latencyPercentiles"][each] for each in ("p50", "p99")}


def program() -> str:
    """oha. Raises Skipped."""
    own = SERVERS / "oha" / "bin" / "oha"
    found = str(own) if own.exists() else shutil.which("oha")
    if found is None:
        raise Skipped(NEEDED)
    return found


# --- who is asked about ---------------------------------------------------------------------------

LADDER = "crowd"
DIGITS = 7  # Of the number in a player's id: as many players as that has.
AT_ONCE = 5_000
MEAN, SPREAD = 1500.0, 300.0


def name_of(number: int) -> str:
    return f"p{number:0{DIGITS}}"


def fill(where: Path, log: str, players: int) -> None:
    """Write the index of so many listed players."""
    with closing(Hold(where)):
        store = begin(where, log, time.time())
        writer, partitions = IndexWriter(store, 20), 4
        for first, ratings in _ratings(players):
            some = [
                ((0, 0), an_event(name_of(first + i), first + i, rating, ladder=LADDER))
                for i, rating in enumerate(ratings)
            ]
            writer.apply(some, [0] * partitions)
        end(store, log, [0] * partitions)


def _ratings(players: int) -> Iterator[tuple[int, list[float]]]:
    random = np.random.default_rng(7)
    for first in range(0, players, AT_ONCE):
        yield first, random.normal(MEAN, SPREAD, min(AT_ONCE, players - first)).tolist()


# --- what is measured -----------------------------------------------------------------------------

WORKLOAD = WORKLOADS["lobby5"]
UPDATES = 2_000.0  # A second, that the worker beside makes.
SLICE_S = 2.0
PLAYERS, FEW_PLAYERS = 10_000_000, 1_000_000  # Of the ladder that is asked about; of a quick run.
TURNS, SECONDS = 5, 10.0
IDS = 1_000
URLS = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parsed(a_parser("tests.benchmarks.reading", __doc__), arguments)
    players, turns = (FEW_PLAYERS, 1) if asked.quick else (PLAYERS, TURNS)
    with signals_as_exit():
        shown = show([("reading", measured(players, turns))])
    return ended("bench-serve", asked, shown)


def measured(players: int, turns: int) -> Iterator[Result]:
    """The row of each load. Raises Skipped."""
    program()
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as name, ExitStack() as stack:
        folder = Path(name)
        given = {"serve": "127.0.0.1:0", "serve_rate": 0}
        ground = stack.enter_context(a_ground(folder, given))
        crew = stack.enter_context(a_crew(ground, WORKLOAD, names_of("1"), SERVICE))
        crew.wait_until_joined()
        at = msgspec.structs.replace(crew.settings, index=str(folder / "index"))
        with closing(KafkaLog(at)) as topics, closing(topics.changed()) as topic:
            fill(folder / "index", topic.id, players)
        words = ["stream_rater", "serve"]
        api = stack.enter_context(closing(a_program(words, at, folder / "serve.log")))
        api.wait_ready()
        stack.enter_context(feeding(crew.settings))
        for load in loads(folder, players):
            size = len(_once(load, api.url))
            words = ["tests.benchmarks.bare", str(size)]
            log = folder / f"{load.name}.log"
            with closing(a_program(words, crew.settings, log)) as bare:
                bare.wait_ready()
                rivals = {"serve": api.url, "bare": bare.url}
                times: dict[str, list[dict[str, float]]] = {each: [] for each in rivals}
                for _ in range(turns):
                    for rival, url in rivals.items():
                        times[rival].append(ask(load, url))
            crew.check()
            yield row(load, players, size, times)


def feeding(settings: Settings) -> AbstractContextManager[None]:
    """Rounds for the worker at a steady rate, as long as the block lasts."""
    rounds = WORKLOAD.rounds()

    def feed_on(over: threading.Event) -> None:
        with a_producer(settings.kafka, linger_ms=1) as producer:
            while not over.is_set():
                some = up_to(int(UPDATES * SLICE_S), rounds)
                feed(producer, Topics.of(settings).rounds, some, UPDATES, lambda: None)

    return in_a_thread(feed_on)


def loads(folder: Path, players: int) -> Sequence[Load]:
    numbers = np.random.default_rng(3).choice(players, URLS, replace=False).tolist()
    names = [name_of(each) for each in numbers]
    body = folder / "lookup.json"
    body.write_bytes(msgspec.json.encode({"players": names[:IDS]}))
    ladder = f"/v1/ladders/{LADDER}"
    around = f"{ladder}/leaderboard?limit=25&around="
    return (
        Load("player", [f"{ladder}/players/{name}" for name in names], 1_000),
        Load("lookup", [f"{ladder}/players:lookup"], 50, body),
        Load("around", [around + name for name in names], 200),
    )


def row(load: Load, players: int, size: int, times: dict[str, list[dict[str, float]]]) -> Result:
    """The figures of a load: medians of the turns."""
    found = {
        f"{rival}_{which}": statistics.median(each[which] for each in turns)
        for rival, turns in times.items()
        for which in ("p50", "p99")
    }
    beside = {"per_second": load.per_second, "bytes": size, "players": players}
    note = f"medians of {len(times['serve'])} turns"
    return result(f"serve/{load.name}", found["serve_p99"], "ms", found | beside, note)


def _once(load: Load, address: str) -> bytes:
    data = load.body.read_bytes() if load.body is not None else None
    with urllib.request.urlopen(urllib.request.Request(address + load.paths[0], data)) as answer:
        found: bytes = answer.read()
    return found


if __name__ == "__main__":
    sys.exit(main())
