"""Invents recordings of a run without a mistake, in which a test then plants one."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.judge.accepted import partition_of
from tests.judge.changes import named
from tests.judge.observations import End, Line, Run, Seen

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
        at = self._ends.get((topic, partition), 0)
        skipped = topic == "changed" and self._random.random() < 0.2
        self._ends[topic, partition] = at + 1 + skipped
        return at

    def round(self, number: int) -> Iterator[Seen]:
        ladder = LADDERS[number % len(LADDERS)]
        names = self._random.sample(range(self._players), self._lobby)
        standings = [{"player": f"p{name}", "rank": rank} for rank, name in enumerate(names, 1)]
        return self.rated(ladder, f"round-{number}", standings)

    def rated(self, ladder: str, round_id: str, standings: list[dict[str, Any]]) -> Iterator[Seen]:
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
    return msgspec.json.encode(body).decode("latin-1")


def whole(records: list[Seen], *others: Line, run: Run = RUN) -> list[Line]:
    return [run, *others, *records, End(records=len(records))]
