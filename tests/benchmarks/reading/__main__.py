"""`python -m tests.benchmarks.reading`: how fast `serve` answers. A JSON object a line on standard
output, a table on standard error.

One `serve`, and beside it on the same machine a worker that rates at a steady rate, Kafka,
Redis and who asks. In turns with it the bare framework answers a constant of the same length to the
same questions. Exit code 0: all was measured; 1: it was skipped, the reason is on standard error.
"""

import statistics
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
import numpy as np

from local.servers import signals_as_exit
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from tests.benchmarks.command import a_parser, end, parsed, show
from tests.benchmarks.measure import Result, result
from tests.benchmarks.reading import crowd
from tests.benchmarks.reading.asking import Load, Times, ask, program
from tests.benchmarks.stream.crew import a_crew, a_program, names_of
from tests.benchmarks.stream.ground import a_ground, a_producer
from tests.benchmarks.stream.latency import feed
from tests.benchmarks.stream.rounds import WORKLOADS, up_to
from tests.benchmarks.stream.throughput import SERVICE

WORKLOAD = WORKLOADS["lobby5"]
UPDATES = 2_000.0
"""A second, that the worker beside makes."""
SLICE_S = 2.0
PLAYERS, FEW_PLAYERS = 10_000_000, 1_000_000
"""Of the ladder that is asked about; of a quick run."""
TURNS, SECONDS = 5, 10.0
IDS = 1_000
URLS = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all."""
    asked = parsed(a_parser("tests.benchmarks.reading", __doc__), arguments)
    players, turns = (FEW_PLAYERS, 1) if asked.quick else (PLAYERS, TURNS)
    with signals_as_exit():
        shown = show([("reading", measured(players, turns))])
    return end("bench-serve", asked, shown)


def measured(players: int, turns: int) -> Iterator[Result]:
    """The row of each load. Raises Skipped."""
    program()
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as name, ExitStack() as stack:
        folder = Path(name)
        given = {"serve": "127.0.0.1:0", "serve_rate": 0}
        ground = stack.enter_context(a_ground(folder, given))
        crew = stack.enter_context(a_crew(ground, WORKLOAD, names_of("1"), SERVICE))
        crew.wait_until_joined()
        crowd.fill(crew.settings, players)
        words = ["stream_rater", "serve"]
        api = stack.enter_context(closing(a_program(words, crew.settings, folder / "serve.log")))
        api.wait_ready()
        stack.enter_context(Feeding(crew.settings))
        for load in loads(folder, players):
            size = len(_once(load, api.url))
            words = ["tests.benchmarks.bare", str(size)]
            log = folder / f"{load.name}.log"
            with closing(a_program(words, crew.settings, log)) as bare:
                bare.wait_ready()
                rivals = {"serve": api.url, "bare": bare.url}
                times: dict[str, list[Times]] = {each: [] for each in rivals}
                for _ in range(turns):
                    for rival, url in rivals.items():
                        times[rival].append(ask(load, url, SECONDS))
            crew.check()
            yield row(load, players, size, times)


class Feeding:
    """Rounds for the worker at a steady rate, as long as the block lasts."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._over = settings, threading.Event()
        self._thread = threading.Thread(target=self._feed)

    def __enter__(self) -> "Feeding":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _feed(self) -> None:
        rounds, topic = WORKLOAD.rounds(), Topics.of(self._settings).rounds
        with a_producer(self._settings.kafka, linger_ms=1) as producer:
            while not self._over.is_set():
                some = up_to(int(UPDATES * SLICE_S), rounds)
                feed(producer, topic, some, UPDATES, lambda: None)


def loads(folder: Path, players: int) -> Sequence[Load]:
    """What is asked."""
    numbers = np.random.default_rng(3).choice(players, URLS, replace=False).tolist()
    names = [crowd.player(each) for each in numbers]
    body = folder / "lookup.json"
    body.write_bytes(msgspec.json.encode({"players": names[:IDS]}))
    ladder = f"/v1/ladders/{crowd.LADDER}"
    around = f"{ladder}/leaderboard?limit=25&around="
    return (
        Load("player", [f"{ladder}/players/{name}" for name in names], 1_000),
        Load("lookup", [f"{ladder}/players:lookup"], 50, body),
        Load("around", [around + name for name in names], 200),
    )


def row(load: Load, players: int, size: int, times: dict[str, list[Times]]) -> Result:
    """The figures of a load: medians of the turns."""
    found = {
        f"{rival}_{which}": statistics.median(getattr(each, which) for each in turns)
        for rival, turns in times.items()
        for which in ("p50", "p99")
    }
    beside = {"per_second": load.per_second, "bytes": size, "players": players}
    note = f"medians of {len(times['serve'])} turns"
    return result(f"serve/{load.name}", found["serve_p99"], "ms", found | beside, note)


def _once(load: Load, address: str) -> bytes:
    """One answer."""
    data = load.body.read_bytes() if load.body is not None else None
    with urllib.request.urlopen(urllib.request.Request(address + load.paths[0], data)) as answer:
        found: bytes = answer.read()
    return found


if __name__ == "__main__":
    sys.exit(main())
