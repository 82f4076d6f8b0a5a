"""Backup and restore of Redis as deploy/RUNBOOK.md tells it, timed.

`python -m tests.restore --players 1000000` fills a Redis of its own with beliefs, takes a snapshot,
loses all, and starts from the snapshot.
"""

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import redis

from local.redis_node import start_redis
from stream_rater.adapters.redis import RedisStore
from stream_rater.config import Settings
from stream_rater.pipeline.ports import Application, Player, Position
from stream_rater.pipeline.sharding import shards_of

LADDER = "ranked-eu"
SHARDS = 8
PLAYERS_A_BUCKET = 50
RECORD_BYTES = 89
"""The mean of ten years of Codeforces."""
ROWS_A_CALL = 20_000


def fill(settings: Settings, players: int) -> None:
    """Beliefs of so many players, as the updater writes them; their bytes are their numbers."""
    store = RedisStore(settings)
    store.prepare()
    names = [f"player-{i}" for i in range(players)]
    shards = shards_of(names, SHARDS)
    for shard in range(SHARDS):
        mine = [i for i in range(players) if shards[i] == shard]
        for at in range(0, len(mine), ROWS_A_CALL):
            rows = mine[at : at + ROWS_A_CALL]
            beliefs: list[tuple[Player, bytes]] = [((LADDER, names[i]), record(i)) for i in rows]
            position = Position(at + len(rows), at, b"")
            assert store.apply({shard: Application(position, beliefs)})[shard]
    store.close()


def record(player: int) -> bytes:
    """Bytes that no other player has, and that no snapshot compresses."""
    return hashlib.shake_128(player.to_bytes(8, "little")).digest(RECORD_BYTES)


def snapshot(client: Any) -> None:
    """BGSAVE, and wait for it; Redis does not begin one while it rewrites the append-only file."""
    rest(client)
    client.bgsave(schedule=False)
    rest(client)
    assert client.info("persistence")["rdb_last_bgsave_status"] == "ok"


def rest(client: Any) -> None:
    """Wait until Redis writes nothing in the background."""
    busy = ("rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled")
    while any(client.info("persistence")[name] for name in busy):
        time.sleep(0.01)


def check(settings: Settings, players: int) -> None:
    """Every belief is there, byte for byte."""
    store = RedisStore(settings)
    assert store.count_beliefs() == players
    names = [f"player-{i}" for i in range(players)]
    shards = shards_of(names, SHARDS)
    for at in range(0, players, ROWS_A_CALL):
        asked: dict[int, list[int]] = {}
        for i in range(at, min(at + ROWS_A_CALL, players)):
            asked.setdefault(int(shards[i]), []).append(i)
        found = store.read({s: [(LADDER, names[i]) for i in rows] for s, rows in asked.items()})
        for shard, rows in asked.items():
            assert list(found[shard].records) == [record(i) for i in rows]
    store.close()


def rehearse(players: int, folder: Path) -> dict[str, float]:
    """Seconds, bytes, and that nothing is missing."""
    data, kept = folder / "redis", folder / "backup.rdb"
    buckets = max(1, players // (SHARDS * PLAYERS_A_BUCKET))
    with start_redis(data) as server:
        settings = Settings(redis=server.address, buckets=buckets)
        client: Any = redis.Redis(port=server.port)
        fill(settings, players)
        rest(client)
        used = client.info("memory")["used_memory"]
        began_s = time.monotonic()
        snapshot(client)
        saved_s = time.monotonic() - began_s
        shutil.copy(data / "dump.rdb", kept)
        server.kill()
    shutil.rmtree(data)
    data.mkdir()
    shutil.copy(kept, data / "dump.rdb")
    began_s = time.monotonic()
    with start_redis(data, settings={"appendonly": "no"}) as server:
        loaded_s = time.monotonic() - began_s
        client = redis.Redis(port=server.port)
        client.config_set("appendonly", "yes")
        rest(client)
        appending_s = time.monotonic() - began_s
        server.stop()
    with start_redis(data) as server:  # as it was: from the append-only file now
        check(Settings(redis=server.address, buckets=buckets), players)
    return {
        "players": players, "memory_bytes": used, "memory_bytes_a_player": used / players,
        "snapshot_bytes": kept.stat().st_size, "snapshot_s": saved_s, "load_s": loaded_s,
        "durable_again_s": appending_s,
    }  # fmt: skip


def main() -> int:
    """One JSON object."""
    parser = argparse.ArgumentParser(prog="restore", description=__doc__)
    parser.add_argument("--players", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as folder:
        print(json.dumps(rehearse(given.players, Path(folder))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
