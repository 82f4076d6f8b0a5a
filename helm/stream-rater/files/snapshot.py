"""Runs in the pod of the job `backup`: has each Redis that takes writes make a snapshot, and waits
until it is written. Ends with an error that says which server made none, and why."""

import os
import sys
import time
from pathlib import Path

import redis

from stream_rater.adapters.redis.client import connect, servers
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import read_settings
from stream_rater.contract.errors import Denied, StoreTrouble

POLL_S = 1.0
BUSY = "rdb_bgsave_in_progress"


def snapshot(server: redis.Redis) -> str:
    """Schedule a snapshot, and wait for it. Returns a line on it. Raises RedisError if it fails."""
    while (before := server.info("persistence"))[BUSY]:
        time.sleep(POLL_S)
    server.bgsave(schedule=True)  # it begins once no append-only file is rewritten
    begun = before["rdb_saves"] + 1
    while (now := server.info("persistence"))["rdb_saves"] < begun or now[BUSY]:
        time.sleep(POLL_S)
    if now["rdb_last_bgsave_status"] != "ok":
        raise redis.RedisError("Redis could not write its snapshot: its own log says why")
    return f"snapshot of {server.dbsize():,} keys after {now['rdb_last_bgsave_time_sec']} s"


def main() -> None:
    """Every server of the settings in turn."""
    try:
        for server in servers(connect(read_settings(Path(sys.argv[1]), os.environ))):
            print(snapshot(server), flush=True)
    except (redis.RedisError, BadConfiguration, Denied, StoreTrouble) as error:
        sys.exit(f"backup: {error}")


if __name__ == "__main__":
    main()
