"""Invents recordings: of a run without a mistake, in which a test then plants one, and of any size,
to measure the judge: `python -m tests.judge.invented CHANGES`."""

import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.judge.accepted import partition_of
from tests.judge.changes import named
from tests.judge.judge import judged
from tests.judge.observations import End, Line, Run, Seen, write_all

PARTITIONS, SHARDS = 4, 6
LADDERS = ("duels", "lobbies", "ranked")
AT = "2026-01-01T00:00:00Z"
RUN = Run(reader="invented", partitions=PARTITIONS, shards=SHARDS)


class InventedRun:
    """A run whose ratings are arbitrary numbers that go on from each other."""

    def __init__(self, players: int = 40, lobby: int = 8, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._players, self._lobby = players, lobby
        self._last: dict[tuple[str, str], tuple[float, float, int]] = {}
        self._ends: dict[tuple[str, int], int] = {}

    def next_offset(self, topic: str, partition: int) -> int:
        """The next offset of a partition. Some are left out, as ends of transactions are."""
        at = self._ends.get((topic, partition), 0)
        skipped = topic == "changed" and self._random.random() < 0.2
        self._ends[topic, partition] = at + 1 + skipped
        return at

    def round(self, number: int) -> Iterator[Seen]:
        """The records of a round."""
        ladder = LADDERS[number % len(LADDERS)]
        names = self._random.sample(range(self._players), self._lobby)
        standings = [{"player": f"p{name}", "rank": rank} for rank, name in enumerate(names, 1)]
        return self.rated(ladder, f"round-{number}", standings)

    def rated(self, ladder: str, round_id: str, standings: list[dict[str, Any]]) -> Iterator[Seen]:
        """The record of a round, and those of its changes."""
        partition = partition_of(ladder, PARTITIONS)
        offset = self.next_offset("rounds", partition)
        body = {
            "round_id": round_id, "ladder": ladder, "completed_at": AT, "standings": standings
        }  # fmt: skip
        yield Seen(t="rounds", p=partition, o=offset, v=text_of(body), key=ladder)
        for entry in standings:
            yield self.change(ladder, entry["player"], entry["rank"], round_id, offset)

    def change(
        self, ladder: str, player: str, rank: int | None, round_id: str, offset: int, **more: Any
    ) -> Seen:
        """The record of a change."""
        mu, rating, rounds = self._last.get((ladder, player), (1500.0, 1000.0, 0))
        after = mu + self._random.gauss(0.0, 20.0)
        shown, count = after - 100.0, rounds + more.pop("counted", 1)
        body = {
            "event_id": named(ladder, round_id, player), "ladder": ladder, "player": player,
            "round_id": round_id, "completed_at": AT, "rank": rank, "mu": after, "sigma": 100.0,
            "previous_mu": mu, "previous_sigma": 100.0, "performance": after,
            "rating": shown, "previous_rating": rating, "rounds": count,
            "provisional": count < 5, "offset": offset, **more,
        }  # fmt: skip
        self._last[ladder, player] = after, shown, count
        shard = partition_of(player, SHARDS)
        return Seen(
            t="changed", p=shard, o=self.next_offset("changed", shard), v=text_of(body),
            key=named(ladder, player),
        )  # fmt: skip


def text_of(body: Any) -> str:
    """A value, as the file has it."""
    return msgspec.json.encode(body).decode("latin-1")


def whole(records: list[Seen], *others: Line, run: Run = RUN) -> list[Line]:
    """The lines of a file."""
    return [run, *others, *records, End(records=len(records))]


def invented(changes: int) -> Iterator[Line]:
    """The lines of a file of so many changes."""
    run, lobby = InventedRun(players=200_000), 8
    yield RUN
    records = 0
    for number in range(changes // lobby):
        for record in run.round(number):
            records += 1
            yield record
    yield End(records=records)


def main() -> None:
    """Invent a file, judge it, and print how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "invented.jsonl.gz"
        write_all(path, invented(int(sys.argv[1])))
        size = path.stat().st_size
        began_s = time.process_time()
        found = judged(path)
        took_s = time.process_time() - began_s
    for line in found.report():
        print(line)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        msgspec.json.encode(
            {
                "changes": found.checked["changes"],
                "processor_s": round(took_s, 1),
                "file_mb": size // 2**20,
                "memory_mb": memory // 2**10,
            }
        ).decode()
    )


if __name__ == "__main__":
    main()
