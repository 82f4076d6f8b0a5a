"""Timed backup and restore of Redis under workers (docs/operations/backup.md): `python -m
tests.restore --players 1000000`. Half of the rounds are rated after the snapshot; then all is lost,
and what the snapshot lacks comes from the log."""

import argparse
import hashlib
import json
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

from local.kafka_node import start_kafka
from local.processes import Server
from local.redis_node import ADVISED, start_redis
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.pipeline.ports import NO_PLAYERS
from tests import rounds
from tests.integration.processes import WorkerProcess, wait_until, workers
from tests.integration.topics import Bytes, Finished, headers_of, produce, read_topic

LADDER = "ranked-eu"
PLAYERS_A_BUCKET = 50
LOBBY = 50
WORKERS = 2


def name(player: int) -> str:
    return f"player-{player}"


def snapshot(client: Any) -> None:
    """Run BGSAVE to its end. Redis does not begin one while it rewrites the append-only file."""
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
    """By shard, how far its beliefs in Redis have come (`applied`)."""
    store = RedisStore(settings)
    stored = store.read(dict.fromkeys(range(settings.shards), NO_PLAYERS))
    store.close()
    return {shard: each.position.applied for shard, each in stored.items()}


def digest(settings: Settings, players: int) -> str:
    """A digest of every belief's bytes. Fails if one is missing."""
    store, found = RedisStore(settings), hashlib.sha256()
    beliefs = sorted(pair for some in store.beliefs() for pair in some)
    store.close()
    assert len(beliefs) == players
    for (_, player), record in beliefs:
        found.update(player.encode() + record)
    return found.hexdigest()


def lobbies(first: int, count: int, players: int) -> list[Bytes]:
    """`count` rounds, in which all of the players meet."""
    made = []
    for number in range(first, first + count):
        names = [name((number * LOBBY + i) % players) for i in range(LOBBY)]
        reported = rounds.as_json(
            *rounds.ranked(range(1, LOBBY + 1), names), ladder=LADDER,
            round_id=f"lobby-{number}", completed_at=rounds.day(0),
        )  # fmt: skip
        made.append(Bytes(reported, LADDER.encode()))
    return made


@dataclass
class Rehearsal:
    """A Redis of its own, which is lost and restored while workers run."""

    settings: Settings  # All but Redis.
    folder: Path
    players: int
    each: int  # Rounds before the snapshot, and again after it.
    measured: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Record the seconds that the block takes."""
        began_s = time.monotonic()
        yield
        self.measured[what] = round(time.monotonic() - began_s, 3)

    def run(self, finally_: Callable[[Settings], None] = lambda _: None) -> dict[str, float]:
        """Return seconds and bytes, or fail if a belief differs. `finally_` runs before the end."""
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
        """Lose all but the snapshot. Returns beliefs' digest and positions from before the loss."""
        client: Any = redis.Redis(port=server.port)
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
        """Restore as the page says, then append-only, while the workers apply the log's tail."""
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
        different = len({dict(headers_of(each))["ce_id"] for each in events})
        assert different == len(events) == 2 * reported, f"{different} of {len(events)} events"


def main() -> int:
    parser = argparse.ArgumentParser(prog="restore", description=__doc__)
    parser.add_argument("--players", type=int, default=1_000_000)
    players = parser.parse_args().players
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as name_:
        folder = Path(name_)
        (folder / "kafka").mkdir()
        with start_kafka(folder / "kafka") as kafka:
            settings = Settings(kafka=kafka.address, http="127.0.0.1:0")
            done = Rehearsal(settings, folder, players, each=-(-players // LOBBY)).run()
    print(json.dumps(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
