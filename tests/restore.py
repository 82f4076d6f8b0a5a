"""Timed backup and restore of Redis under running workers, as docs/operations/backup.md has it.

`python -m tests.restore --players 1000000` fills a Redis with the beliefs of this number of
players, each of some rounds. Workers rate rounds of some of the players. A snapshot is taken, and
the workers rate more rounds. Then all of Redis is lost, and it starts from the snapshot. What was
rated since the snapshot comes from the log.
"""

import argparse
import hashlib
import json
import math
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import redis
from confluent_kafka import Message

from local.kafka_node import start_kafka
from local.processes import Server
from local.redis_node import ADVISED, start_redis
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladder, any_ladder
from stream_rater.config.settings import Settings
from stream_rater.pipeline.ports import NO_PLAYERS, Application, Position
from stream_rater.rating.parameters import EloMMR
from stream_rater.replay.pool import Pool
from tests import rounds
from tests.integration.processes import WorkerProcess, wait_until, workers
from tests.integration.topics import Bytes, Finished, headers_of, produce, read_topic
from tests.rounds import Reader

LADDER = "ranked-eu"
PLAYERS_A_BUCKET = 50
FIELD = 10_000
"""Players of a round that makes beliefs."""
MADE_OF = 7
"""Rounds of each player before the workers come: records of 88 bytes (of Codeforces: 89)."""
LOBBY = 50
WORKERS = 2
PATIENCE_S = 120.0

Rated = Mapping[str, bytes | None]
"""Beliefs by player."""


def name(player: int) -> str:
    return f"player-{player}"


def made_beliefs(first: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Records of players after some rounds among themselves, by the kernels, without a log."""
    rating, drawn = EloMMR(weight_limit=0.2, sigma_limit=80.0), random.Random(first)
    reader, pool = Reader(any_ladder(rating)), Pool(Ladder(rating=rating))
    names = [name(i) for i in range(first, first + count)]
    for number in range(MADE_OF):
        drawn.shuffle(names)
        reported = rounds.as_json(
            *rounds.ranked(range(1, count + 1), names), round_id=f"r{number}", ladder=LADDER,
            completed_at=rounds.day(number),
        )  # fmt: skip
        pool.rate(reader.read(reported, received_s=math.inf), number)
    return zip(names, pool.records(pool.rows(StringColumn.of(names))), strict=True)


def fill(settings: Settings, players: int) -> None:
    """Beliefs of so many players, written as the updater writes them; no offset is passed by it."""
    store = RedisStore(settings)
    for first in range(0, players, FIELD):
        beliefs = list(made_beliefs(first, min(FIELD, players - first)))
        shards = shards_of([player for player, _ in beliefs], settings.shards).tolist()
        mine: dict[int, list[Any]] = {}
        for (player, record), shard in zip(beliefs, shards, strict=True):
            mine.setdefault(shard, []).append(((LADDER, player), record))
        assert all(
            store.apply(
                {s: Application(Position(), BeliefColumn.of(b)) for s, b in mine.items()}
            ).values()
        )
    store.close()


def snapshot(client: Any) -> None:
    """BGSAVE, and wait for it; Redis does not begin one while it rewrites the append-only file."""
    rest(client)
    client.bgsave(schedule=False)
    rest(client)
    assert client.info("persistence")["rdb_last_bgsave_status"] == "ok"


def rest(client: Any) -> None:
    """Wait until Redis writes nothing in the background."""
    busy = ("rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled")
    while any(client.info("persistence")[each] for each in busy):
        time.sleep(0.01)


def positions(settings: Settings) -> dict[int, int]:
    """How far each shard's store has come."""
    store = RedisStore(settings)
    stored = store.read(dict.fromkeys(range(settings.shards), NO_PLAYERS))
    store.close()
    return {shard: each.position.applied for shard, each in stored.items()}


def digest(settings: Settings, players: int) -> str:
    """Of every belief, byte for byte; each is there."""
    store, found = RedisStore(settings), hashlib.sha256()
    assert store.count_beliefs() == players
    for first in range(0, players, FIELD):
        names = [name(i) for i in range(first, min(first + FIELD, players))]
        asked: dict[int, list[tuple[str, str]]] = {}
        for player, shard in zip(names, shards_of(names, settings.shards).tolist(), strict=True):
            asked.setdefault(shard, []).append((LADDER, player))
        columns = {shard: PlayerColumn.of(players) for shard, players in asked.items()}
        for shard, stored in sorted(store.read(columns).items()):
            for (_, player), record in zip(asked[shard], stored.records, strict=True):
                assert record is not None, player
                found.update(record)
    store.close()
    return found.hexdigest()


def lobbies(first: int, count: int, players: int) -> list[Bytes]:
    """So many rounds, of players from everywhere; the first ones together have all of a few."""
    drawn, made = random.Random(first), []
    for number in range(first, first + count):
        some = [(number * LOBBY + i) % players for i in range(LOBBY)]
        if players > 100 * LOBBY:
            some = drawn.sample(range(players), LOBBY)
        reported = rounds.as_json(
            *rounds.ranked(range(1, LOBBY + 1), [name(i) for i in some]), ladder=LADDER,
            round_id=f"lobby-{number}", completed_at=rounds.day(MADE_OF),
        )  # fmt: skip
        made.append(Bytes(reported, LADDER.encode()))
    return made


@dataclass
class Rehearsal:
    """A Redis of one's own, which is lost and put back under workers."""

    settings: Settings
    """All but Redis."""
    folder: Path
    players: int
    made: bool
    """Whether the players have beliefs before the workers come; else all is in the log."""
    each: int
    """Rounds before the snapshot, and again after it."""
    measured: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Note the seconds that the block takes."""
        began_s = time.monotonic()
        yield
        self.measured[what] = round(time.monotonic() - began_s, 3)

    def run(self, finally_: Callable[[Settings], None] = lambda _: None) -> dict[str, float]:
        """Seconds and bytes; fails where a belief is missing or differs. `finally_` is called while
        the workers and the restored Redis run."""
        data = self.folder / "redis"
        (self.folder / "workers").mkdir(parents=True)
        first = start_redis(data, settings=ADVISED)
        at = msgspec.structs.replace(
            self.settings, redis=first.address,
            buckets=max(1, self.players // (self.settings.shards * PLAYERS_A_BUCKET)),
        )  # fmt: skip
        second: Server | None = None
        with workers(self.folder / "workers") as start:
            try:
                started = [start(at) for _ in range(WORKERS)]
                before = self._until_lost(at, first, data)
                second = self._restored(at, first.port, data, before[1])
                self._check(at, before[0], started)
                finally_(at)
            finally:
                for server in filter(None, (first, second)):
                    server.kill()
        return self.measured

    def _until_lost(self, at: Settings, server: Server, data: Path) -> tuple[str, dict[int, int]]:
        """Lose all, and leave only the snapshot, which is taken half-way.

        The result is the digest of the beliefs and the positions from before the loss.
        """
        client: Any = redis.Redis(port=server.port)
        if self.made:
            with self.timed("fill_s"):
                fill(at, self.players)
            # Beliefs know the offset of their last round: nothing that is to be rated may be there.
            produce(at, [Bytes(b"rated before", LADDER.encode())] * MADE_OF)
        self._rate(at, lobbies(0, self.each, self.players))
        used = client.info("memory")["used_memory"]
        self.measured |= {"players": self.players, "memory_bytes_a_player": used / self.players}
        with self.timed("snapshot_s"):
            snapshot(client)
        kept = self.folder / "backup.rdb"
        shutil.copy(data / "dump.rdb", kept)
        self.measured["snapshot_bytes"] = kept.stat().st_size
        self._rate(at, lobbies(self.each, self.each, self.players))
        found = digest(at, self.players), positions(at)
        server.kill()
        shutil.rmtree(data)
        data.mkdir()
        kept.rename(data / "dump.rdb")
        return found

    def _rate(self, at: Settings, some: Sequence[Bytes]) -> None:
        produce(at, some)
        wait_until(Finished(at), "all is rated")

    def _restored(self, at: Settings, port: int, data: Path, applied: Mapping[int, int]) -> Server:
        """Restore as the page has it: from the snapshot, then append-only, without a restart.

        The workers apply the log's tail at the same time.
        """
        with self.timed("load_s"):
            server = start_redis(data, port=port, settings={**ADVISED, "appendonly": "no"})
        client: Any = redis.Redis(port=port)
        with self.timed("durable_again_s"):
            client.config_set("appendonly", "yes")
            with self.timed("tail_s"):
                wait_until(
                    lambda: positions(at) == applied, "the tail is applied",
                    moves=lambda: positions(at),
                )  # fmt: skip
            rest(client)
        return server

    def _check(self, at: Settings, beliefs: str, started: Sequence[WorkerProcess]) -> None:
        """Every belief is as before, and no event is published twice."""
        assert digest(at, self.players) == beliefs
        reported = sum(w.metric("stream_rater_updates_total", outcome="replayed") for w in started)
        assert reported == self.each * LOBBY, f"{reported} beliefs were applied again"
        self.measured["replayed"] = reported
        events = read_topic(at, Topics.of(at).changed)
        different = len({message_id(each) for each in events})
        assert different == len(events) == 2 * reported, f"{different} of {len(events)} events"


def message_id(message: Message) -> bytes:
    return dict(headers_of(message))["ce_id"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="restore", description=__doc__)
    parser.add_argument("--players", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=400, help="before the snapshot, and after")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as name_:
        folder = Path(name_)
        (folder / "kafka").mkdir()
        with start_kafka(folder / "kafka") as kafka:
            settings = Settings(kafka=kafka.address, http="127.0.0.1:0")
            done = Rehearsal(settings, folder, given.players, True, given.rounds).run()
    print(json.dumps(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
