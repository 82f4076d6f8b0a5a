"""The names of the index's keys in Redis. The braces keep a ladder in one slot of a cluster."""

from collections.abc import Iterable
from typing import NamedTuple

from stream_rater.adapters.redis.client import connect, servers, translated_failures
from stream_rater.adapters.redis.login import login_of
from stream_rater.config.settings import Settings
from stream_rater.contract.events import MAX_ID_BYTES, escape

INDEX = "stream-rater:index"

ROOT = f"{{{INDEX}}}"
"""The sorted set that lists the parts of the index: `topic:NAME` (score 0), the topic that the
index is made of; `ladder:ID` (score 0) for every ladder that has an index; and `partition:P`, whose
score is an offset: the ladders of all events before it are listed."""
EVERY_KEY = f"*{INDEX}*"
"""A pattern of all keys of the index."""
SUMMARY = b"summary"
"""The field of a ladder's state with its LadderSummary."""
SIZES = b"sizes"
"""The field of a ladder's state with the numbers of members of players, ranks, bins and histories,
separated by spaces. The number of members of dues follows if it is not 0. They show whether a
single key was lost."""
SWEPT = b"swept"
"""The field of a ladder's state with the place before which nobody is listed, if players can leave
the list without an event: a moment in Unix seconds, a space, and the id of a player."""
VIEWS = f"{INDEX}:views"
"""Sorted set: for each index of a ladder, `VIEWS_ID:LADDER` with the Unix time at which a process
last kept it. An index that nobody has kept for a day is deleted."""
NO_LADDER = "-" * (MAX_ID_BYTES + 1)
"""An id that is longer than any ladder's. Rights are tried on its keys, which stay empty. (An empty
id would not do: empty braces do not keep keys in one slot.)"""


class LadderKeys(NamedTuple):
    """The keys of one ladder."""

    players: str
    """Hash: player to IndexedPlayer."""
    ranks: str
    """Sorted set of the listed players. The score is minus the displayed rating, so that players
    with equal ratings are in order of id."""
    bins: str
    """Hash: bin of the histogram to the number of players in it."""
    histories: str
    """Hash: player to History."""
    state: str
    """Hash: SUMMARY; SIZES; SWEPT; and for each partition of `rating-changed` an offset: the index
    has every event before it."""
    dues: str
    """Sorted set of the listed players who leave the list without an event. The score is the moment
    in Unix seconds."""


SEASONS = f"{INDEX}:seasons"
"""The hash about the standings of past seasons: `topic`, the topic that they are made of;
`partition:P`, the offset before which everything is written; and `season:NUMBER:LADDER`, the number
of players in the standings of a season."""


TAILS = f"{INDEX}:tails"
"""Hash: partition of `rating-changed` to the offset of the last record that was read, a space, and
its checksum. It shows whether the topic still has the records that the index is made of."""


class SeasonKeys(NamedTuple):
    """The keys of the standings of one season."""

    players: str
    """Hash: player to IndexedStanding."""
    ranks: str
    """Sorted set of the players, as in LadderKeys."""


class Root(NamedTuple):
    """The contents of ROOT."""

    ladders: list[str]
    """The ids of the ladders, in order of their bytes."""
    positions: dict[int, int]
    """The offset of each partition."""
    topics: list[str]
    """The topic; empty if nothing has been read yet."""


def root_of(found: Iterable[tuple[bytes, float]]) -> Root:
    """Convert the members and scores of ROOT."""
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


def keys_of(ladder: str, views: str = "") -> LadderKeys:
    """The keys of a ladder's index by the views with this id. Processes with other views have
    another index, so they do not disturb each other while the ladders file is replaced."""
    start = f"{INDEX}:{{{escape(ladder)}}}:" + (f"{views}:" if views else "")
    return LadderKeys(*(start + name for name in LadderKeys._fields))


def season_keys(ladder: str, season: int) -> SeasonKeys:
    """The keys of the standings of a season."""
    start = f"{INDEX}:{{{escape(ladder)}}}:season:{season}:"
    return SeasonKeys(*(start + name for name in SeasonKeys._fields))


def summaries_key(ladder: str) -> str:
    """The key of a hash: number of a season to SeasonKept, of all seasons whose standings are
    written."""
    return f"{INDEX}:{{{escape(ladder)}}}:seasons"


def drop_index(settings: Settings) -> None:
    """Delete the whole index. A process that follows makes it again. Raises StoreTrouble or
    Denied."""
    client = connect(settings)
    with translated_failures(login_of(settings)):
        for server in servers(client):
            for key in list(server.scan_iter(match=EVERY_KEY, count=10_000)):
                client.unlink(key)
