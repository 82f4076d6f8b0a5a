"""The index that releases before this one kept in Redis: its keys are ignored, and deleted."""

from stream_rater.adapters.redis.client import connect, servers, translated_failures
from stream_rater.adapters.redis.login import login_of
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings

INDEX = "stream-rater:index"
EVERY_KEY = f"*{INDEX}*"  # A pattern of all keys of the index.
VIEWS = f"{INDEX}:views"
"""Sorted set: the Unix times at which a process last kept an index of a ladder, if any ladder has
views."""
KEEP_S = 600.0  # The interval at which such a process says that it keeps them.


def drop_index(settings: Settings, now_s: float | None = None) -> int:
    """Delete the whole index. Returns the number of keys. Raises StoreTrouble or Denied.

    `now_s`: the present Unix time. With it, BadConfiguration is raised if a process of an earlier
    release has kept the index since KEEP_S ago.
    """
    client = connect(settings)
    with translated_failures(login_of(settings)):
        if now_s is not None and client.zcount(VIEWS, now_s - KEEP_S, "+inf"):
            raise BadConfiguration(
                "a `serve` of an earlier release keeps the index in Redis: stop all of them, and "
                f"run it again {KEEP_S / 60:.0f} minutes later"
            )
        count = 0
        for server in servers(client):
            keys = list(server.scan_iter(match=EVERY_KEY, count=10_000))
            for key in keys:
                client.unlink(key)
            count += len(keys)
    return count
