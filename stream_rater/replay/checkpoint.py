"""Checkpoints: what a ladder's rounds before an offset made of its players.

A replay goes on from a checkpoint as from the log's start, with the same result, to the bit. It is
good for a replay if no correction that it does not know changes a round before it. Nothing but time
depends on checkpoints: whoever finds none begins at the log's start.
"""

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from stream_rater.columns.arrays import Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.ladders import Ladder, Ladders
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import Season
from stream_rater.rating.record import UnknownRecord
from stream_rater.replay.id_filter import IdFilter, Kept
from stream_rater.replay.pool import Pool
from stream_rater.rounds.corrections import kind_of

AT_ONCE = 20_000
"""The most players in a piece of a checkpoint."""

KEPT = 4
"""The most checkpoints of a ladder."""

FORMAT = 2
"""Of what is kept: a checkpoint of another format is not used."""

Place = tuple[int, int]
"""Of a correction: the offset of its record, and where it was worked in."""

_encode = msgspec.msgpack.Encoder().encode


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
"""What a decoder raises for bytes that are not those of this release."""


class Unusable(Exception):
    """A checkpoint is not what a replay can begin with. Another one, or the log's start, can be."""


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint is of."""

    offset: int
    """The rounds before it are in it."""
    rules: bytes
    """A digest of all else that its beliefs depend on (`rules_of`)."""
    corrections: tuple[Place, ...]
    """Those that edited its rounds, in the order in which they were worked in: all that were
    accepted when it was made, those at its offset or later, too."""
    last: Place
    """The offset of the ladder's last round before it, and a checksum of that record. A log that
    has another record there is another log."""
    time: int
    """No round before it was completed later, Unix seconds."""
    completed_at: str
    """When its last round was completed, as reported."""
    pieces: int
    """In how many pieces its players and ids are kept."""
    whole: bool = False
    """Whether all pieces were written."""
    id_pieces: int = 0
    """How many of the pieces, the last ones, have the ids of its rounds and of those in them."""

    @property
    def name(self) -> str:
        """What tells it from all other checkpoints of its ladder."""
        digest = hashlib.sha256(self.rules + _encode((self.corrections, self.last)))
        return f"{self.offset}-{digest.hexdigest()[:16]}"

    def read_from(self, window: int) -> int:
        """Where a replay begins to read, to know which rounds after it are duplicates."""
        return max(0, min(self.offset - window, self.last[0]))

    def follows(self, accepted: Sequence[Place]) -> bool:
        """Whether it knows the first of these corrections, and no others."""
        return self.corrections == tuple(accepted[: len(self.corrections)])

    def is_last_in(self, records: Iterable[Record]) -> bool:
        """Whether its last round is in these records. Raises Unusable if another round is at that
        offset: this is another log."""
        there = [each for each in records if each.offset == self.last[0] and not kind_of(each)]
        if any(checksum(each.value) != self.last[1] for each in there):
            raise Unusable("it is of another log")
        return bool(there)


def checksum(value: bytes | None) -> int:
    """Of the bytes of a round."""
    return zlib.crc32(value or b"")


def rules_of(ladders: Ladders, ladder: str, offset: int, window: int, partitions: int) -> bytes:
    """A digest of what decides how the ladder's rounds before an offset are judged and rated."""
    history = [each for each in ladders.history(ladder) if int(each.partition(":")[0]) < offset]
    limits = msgspec.to_builtins(ladders.limits, order="deterministic")
    rules = (FORMAT, ladder, offset, KERNEL_VERSION, window, partitions, history, limits)
    return hashlib.sha256(_encode(rules)).digest()


def heads_in(kept: Mapping[str, bytes]) -> list[Head]:
    """The checkpoints that are kept, the newest first. What this release cannot read is left
    out."""
    found = []
    for data in kept.values():
        try:
            found.append(msgspec.msgpack.decode(data, type=Head))
        except UNREADABLE:
            continue
    return sorted(found, key=lambda head: head.offset, reverse=True)


def encode(head: Head) -> bytes:
    """A head as it is kept."""
    return _encode(head)


def superfluous(heads: Sequence[Head], end: int) -> list[Head]:
    """Of checkpoints, the newest first, those that can go: one of two that are about as far from
    `end`, until no more than KEPT are left. The newest and the oldest stay."""
    left, gone = list(heads), []
    while len(left) > KEPT:
        behind = [end - head.offset + 1 for head in left]
        ratios = {i: behind[i + 1] / behind[i - 1] for i in range(1, len(left) - 1)}
        gone.append(left.pop(min(ratios, key=lambda i: ratios[i])))
    return gone


# --- players ------------------------------------------------------------------------------------


def pieces_of(pool: Pool, rows: Ints) -> Iterator[bytes]:
    """The players in these rows of a pool, in pieces."""
    names = pool.names
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        yield _encode((names.take(some).texts(), pool.records(some)))


def number_of_pieces(players: int) -> int:
    """In how many pieces this many players are kept."""
    return -(-players // AT_ONCE)


def encoded_ids(ids: IdFilter) -> list[bytes]:
    """The ids that may be in a checkpoint's rounds, in pieces."""
    return [_encode(piece) for piece in ids.pieces()]


def ids_of(pieces: Iterable[bytes]) -> IdFilter:
    """The ids in these pieces. Raises Unusable: the pieces may be damaged."""
    try:
        return IdFilter([msgspec.msgpack.decode(piece, type=Kept) for piece in pieces])
    except (*UNREADABLE, ValueError) as error:
        raise Unusable(str(error)) from None


def pool_of(ladder: Ladder, started: tuple[Season, ...], pieces: Iterable[bytes]) -> Pool:
    """The players in these pieces, on a ladder on which these seasons have started. Raises
    Unusable: the pieces may be damaged, or of a release whose records are other ones."""
    pool, put = Pool(ladder, started), 0
    for piece in pieces:
        try:
            players, records = msgspec.msgpack.decode(piece, type=tuple[list[str], list[bytes]])
            pool.put(players, records)
        except (*UNREADABLE, UnknownRecord, ValueError) as error:
            raise Unusable(str(error)) from None
        put += len(players)
    if len(pool) != put:
        raise Unusable("a player is in it twice")
    return pool
