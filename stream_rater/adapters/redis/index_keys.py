"""The names of the index's keys in Redis. The braces keep a ladder in one slot of a cluster."""

from collections.abc import Iterable
from typing import NamedTuple

from stream_rater.adapters.redis.client import connect, failures_named, servers
from stream_rater.config.settings import Settings
from stream_rater.contract.events import MAX_ID_BYTES, escape

INDEX = "stream-rater:index"

ROOT = f"{{{INDEX}}}"
"""Sorted set: `topic:NAME` (score 0) of what the index is made of; `ladder:ID` (score 0) for every
ladder that has an index; and `partition:P` with the offset before which the ladders of all events
are here."""
EVERY_KEY = f"*{INDEX}*"
"""Matches all keys of the index."""
SUMMARY = b"summary"
"""A field of a ladder's state that is no partition."""
SIZES = b"sizes"
"""The other one: how many members players, ranks, bins and histories have, with spaces between. So
a key that is lost by itself is missed."""
NO_LADDER = "-" * (MAX_ID_BYTES + 1)
"""No ladder has an id as long as this; rights are tried on its keys, which stay empty. (Empty
braces would not keep them in one slot.)"""


class LadderKeys(NamedTuple):
    """The keys of one ladder."""

    players: str
    """Hash: player to IndexedPlayer."""
    ranks: str
    """Sorted set of those listed; the score is minus the displayed rating, so that equal ones are
    in order of id."""
    bins: str
    """Hash: bin of the histogram to how many are in it."""
    histories: str
    """Hash: player to History."""
    state: str
    """Hash: SUMMARY to LadderSummary; SIZES; and by partition of `rating-changed`: the index has
    every event before this offset."""


class Root(NamedTuple):
    """What stands in ROOT."""

    ladders: list[str]
    """In order of their bytes."""
    positions: dict[int, int]
    """Offsets by partition."""
    topics: list[str]
    """The topic; none if nothing was read yet."""


def root_of(found: Iterable[tuple[bytes, float]]) -> Root:
    """What these members and scores say."""
    root = Root([], {}, [])
    for member, score in found:
        kind, _, name = member.decode().partition(":")
        if kind == "partition":
            root.positions[int(name)] = int(score)
        else:
            (root.ladders if kind == "ladder" else root.topics).append(name)
    return root


def topic_member(topic: str) -> str:
    """The topic's member of ROOT."""
    return f"topic:{topic}"


def member_of(ladder: str) -> str:
    """A ladder's member of ROOT."""
    return f"ladder:{ladder}"


def partition_member(partition: int) -> str:
    """A partition's member of ROOT."""
    return f"partition:{partition}"


def keys_of(ladder: str) -> LadderKeys:
    """The keys of a ladder's index."""
    start = f"{INDEX}:{{{escape(ladder)}}}:"
    return LadderKeys(*(start + name for name in LadderKeys._fields))


def drop_index(settings: Settings) -> None:
    """Delete the whole index. Whoever follows makes it anew. Raises StoreTrouble or Denied."""
    client = connect(settings)
    with failures_named():
        for server in servers(client):
            for key in list(server.scan_iter(match=EVERY_KEY, count=10_000)):
                client.unlink(key)
