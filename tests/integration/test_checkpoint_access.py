"""`checkpoint` on servers that enforce rights: the least suffice, and each of them is needed."""

import re

import pytest

from stream_rater.config.settings import Settings
from stream_rater.replay.checkpoint import Head, encode
from tests.integration import rights
from tests.integration.processes import stream_rater
from tests.integration.test_access import COMMANDS, Castle, castle, finished

__all__ = ["castle", "finished"]

ONLY_HALF = """
redis.call('SELECT', ARGV[1])
for _, key in ipairs(redis.call('KEYS', 'stream-rater:checkpoint*')) do
  redis.call('UNLINK', key)
end
redis.call('HSET', 'stream-rater:checkpoints:eu', ARGV[2], ARGV[3])
"""
"""Leaves one checkpoint in a database, which is not whole."""


@pytest.mark.parametrize("less", [None, *rights.REDIS["checkpoint"]])
def test_each_right_is_needed_for_checkpoints(
    castle: Castle, finished: Settings, less: str | None
) -> None:
    """One is made and an unfinished one deleted, and the next run begins at it; or one line says
    what was denied."""
    half = Head(0, b"", (), (0, 0), 0, "", pieces=1)
    database = finished.redis.rpartition("/")[2]
    castle.redis.client.eval(ONLY_HALF, 0, database, half.name, encode(half))
    user = castle.user(finished, "checkpoint", less)
    done = [stream_rater(*COMMANDS["checkpoint"], settings=user) for _ in range(2)]
    if less is None:
        assert [each.returncode for each in done] == [0, 0], done
        assert "2 players" in done[0].stdout and "there is one" in done[1].stdout
        return
    failed = [each for each in done if each.returncode]
    assert failed, done
    for each in failed:
        lines = [line for line in each.stderr.splitlines() if not line.startswith("{")]
        assert (each.returncode, len(lines)) == (1, 1), each
        assert re.fullmatch("stream-rater: .*redis.*", lines[0]), lines[0]
