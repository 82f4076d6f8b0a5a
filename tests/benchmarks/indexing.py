"""`python -m tests.benchmarks.indexing`: how fast the index takes in JSON events of random players
and answers, by one process; times are of its processor, without making the events."""

import asyncio
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from stream_rater.contract.events import rating_changed_from_json, to_json
from stream_rater.index import folder
from stream_rater.index.reader import IndexReader, RowPlace
from stream_rater.index.tables import Tail
from stream_rater.index.writer import AT_ONCE, IndexWriter
from tests.benchmarks.command import a_parser, end, parsed, show
from tests.benchmarks.measure import Result, result
from tests.builders.indexes import LADDER, an_event

PLAYERS, FEW_PLAYERS = 10_000_000, 1_000_000
STEADY = 300_000  # The events after those that made each player.
QUESTIONS = 5_000
MEAN, SPREAD = 1500.0, 300.0
LOOKED_UP, ROWS = 50, 50


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parsed(a_parser("tests.benchmarks.indexing", __doc__), arguments)
    players = FEW_PLAYERS if asked.quick else PLAYERS
    return end("bench-index", asked, show([("indexing", measured(players))]))


def measured(players: int) -> Iterator[Result]:
    """The rows of an index of so many players."""
    rng = random.Random(7)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name, closing(folder.Hold(Path(name))):
        store = folder.begin(Path(name), "log", time.time())
        writer = IndexWriter(store, 20)
        order = list(range(players))
        rng.shuffle(order)
        yield _rate("cold", _taken_in(writer, order, 1, rng), players, store)
        some = [rng.randrange(players) for _ in range(STEADY)]
        yield _rate("steady", _taken_in(writer, some, 7, rng), players, store)
        yield from _answers(store, players, rng)
        folder.closed(store)


def name_of(number: int) -> str:
    return f"p{number:08}"


def _taken_in(
    writer: IndexWriter, players: Sequence[int], rounds: int, rng: random.Random
) -> float:
    """Events per second of the processor."""
    spent_s, (at,) = 0.0, writer.positions(1)
    for first in range(0, len(players), AT_ONCE):
        events = [
            an_event(name_of(player), at + i, rng.gauss(MEAN, SPREAD), rounds=rounds)
            for i, player in enumerate(players[first : first + AT_ONCE])
        ]
        values = [*map(to_json, events)]
        begun_s = time.process_time()
        placed = [((0, at + i), rating_changed_from_json(each)) for i, each in enumerate(values)]
        at += len(placed)
        writer.apply(placed, [at], {0: Tail(at - 1, 0)})
        spent_s += time.process_time() - begun_s
    writer.reached([at], current=True)
    return len(players) / spent_s


def _rate(name: str, per_second: float, players: int, store: folder.Store) -> Result:
    size = (store.path / folder.DATA).stat().st_blocks * 512
    beside = {
        "players": players, "disk_bytes": size / players,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip
    return result(f"index/{name}", per_second, "events/s", beside, "of one processor")


def _answers(store: folder.Store, players: int, rng: random.Random) -> Iterator[Result]:
    reader = IndexReader(20)
    reader.use(store.path)

    def somebody() -> str:
        return name_of(rng.randrange(players))

    questions: dict[str, Any] = {
        "player": lambda: reader.player(LADDER, somebody()),
        "lookup": lambda: reader.players(LADDER, [somebody() for _ in range(LOOKED_UP)]),
        "page": lambda: reader.page(LADDER, RowPlace(rng.gauss(MEAN, SPREAD), ""), ROWS),
        "around": lambda: reader.around(LADDER, somebody(), ROWS),
        "history": lambda: reader.history(LADDER, somebody()),
        "ladder": lambda: reader.ladder(LADDER),
    }

    async def asked(name: str) -> np.ndarray:
        times = []
        for _ in range(QUESTIONS):
            question = questions[name]()
            begun_s = time.thread_time()
            await question
            times.append(time.thread_time() - begun_s)
        return np.array(times) * 1e6

    for name in questions:
        p50, p99 = np.percentile(asyncio.run(asked(name)), [50, 99])
        beside = {"p50": float(p50), "p99": float(p99), "players": players}
        yield result(f"index/{name}", float(p99), "us", beside, f"{QUESTIONS} questions")
    reader.close()


if __name__ == "__main__":
    sys.exit(main())
