"""Checkpoints: the beliefs about a ladder's players after all rounds before an offset.

A replay that begins at a checkpoint gives the same result, bit for bit, as one that begins at the
log's start. A replay may use a checkpoint if the checkpoint includes all corrections that change a
round before it. Checkpoints only save time: a replay that finds none begins at the log's start.
What is said of rounds here also holds for seeds and resets.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stream_rater.columns import siphash
from stream_rater.columns.arrays import Bytes, Flags, Hashes, Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.strings import StringColumn, hash_each
from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Record, checksum
from stream_rater.rating.parameters import RatingConfig, Season
from stream_rater.rating.record import UnknownRecord
from stream_rater.replay.pool import Pool
from stream_rater.rounds import batch
from stream_rater.rounds.correction_records import Seed, is_correction

PLAYERS_PER_PIECE = 20_000  # The most players in one piece of a checkpoint.
MOST_CHECKPOINTS = 4  # The most checkpoints that are stored for a ladder.
FORMAT = 3
"""The format of stored checkpoints. Those of another format are not used. Releases that write
format 2 know no seeds."""

RecordPlace = tuple[int, int]
"""The place of a correction: the offset of its record, and the offset at which it was applied."""
encode = msgspec.msgpack.Encoder().encode

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
"""The exceptions that a decoder raises for bytes that this release did not write."""


class UnusableCheckpoint(Exception):
    """A replay cannot begin at this checkpoint; it may at another one, or at the log's start."""


class CheckpointHead(msgspec.Struct, frozen=True, array_like=True):
    """The description of a checkpoint."""

    offset: int  # The checkpoint includes all rounds before this offset.
    rules: bytes  # A digest of everything else that the beliefs depend on (`rules_of`).
    corrections: tuple[RecordPlace, ...]
    """The corrections that edited the rounds, in the order in which they were applied. They are all
    corrections that were accepted when the checkpoint was made, also those at its offset or
    later."""
    last: RecordPlace
    """The offset of the ladder's last round, seed or reset before the checkpoint, and a checksum of
    that record. A log with another record at that offset is a different log."""
    time: int  # No round, seed or reset before the checkpoint has a later time (Unix seconds).
    completed_at: str  # The time of the last of them, as reported.
    pieces: int  # The number of pieces that store its players and ids.
    whole: bool = False  # Whether all pieces have been written.
    id_pieces: int = 0
    """The number of pieces, at the end, that store the ids of its rounds and of their players."""

    @property
    def name(self) -> str:
        """A name that no other checkpoint of the ladder has."""
        digest = hashlib.sha256(self.rules + encode((self.corrections, self.last)))
        return f"{self.offset}-{digest.hexdigest()[:16]}"

    def read_from(self, window: int) -> int:
        """The offset from which a replay must read, to find the duplicates among later rounds."""
        return max(0, min(self.offset - window, self.last[0]))

    def follows(self, accepted: Sequence[RecordPlace]) -> bool:
        """Whether the checkpoint's corrections are the first ones of `accepted`, and no others."""
        return self.corrections == tuple(accepted[: len(self.corrections)])

    def is_last_in(self, records: Iterable[Record]) -> bool:
        """Whether its last record is among these. Raises UnusableCheckpoint if another record is at
        that offset, because this is a different log then."""
        at = [each for each in records if each.offset == self.last[0]]
        there = [each for each in at if not is_correction(each)]
        if any(checksum(each.value) != self.last[1] for each in there):
            raise UnusableCheckpoint("it is of another log")
        return bool(there)


def rules_of(ladders: Ladders, ladder: str, offset: int, window: int, partitions: int) -> bytes:
    """A digest of all settings that decide how the ladder's rounds before an offset are validated
    and rated."""
    history = [each for each in ladders.history(ladder) if int(each.partition(":")[0]) < offset]
    limits = msgspec.to_builtins(ladders.limits, order="deterministic")
    rules = (FORMAT, ladder, offset, KERNEL_VERSION, window, partitions, history, limits)
    return hashlib.sha256(encode(rules)).digest()


def heads_in(kept: Mapping[str, bytes]) -> list[CheckpointHead]:
    """The heads of the stored checkpoints that this release can read, the newest first."""
    found = []
    for data in kept.values():
        with suppress(*UNREADABLE):
            found.append(msgspec.msgpack.decode(data, type=CheckpointHead))
    return sorted(found, key=lambda head: head.offset, reverse=True)


def superfluous(heads: Sequence[CheckpointHead], end: int) -> list[CheckpointHead]:
    """The checkpoints to delete among `heads`, which come newest first. While more than
    MOST_CHECKPOINTS are left, one whose neighbours are about equally far from `end` is dropped. The
    newest and the oldest stay."""
    left, dropped = list(heads), []
    while len(left) > MOST_CHECKPOINTS:
        distances = [end - head.offset + 1 for head in left]
        ratios = {i: distances[i + 1] / distances[i - 1] for i in range(1, len(left) - 1)}
        dropped.append(left.pop(min(ratios, key=lambda i: ratios[i])))
    return dropped


# --- the ids in rounds, seeds and resets ---------------------------------------------------------

PER_FILTER = 2**16  # The number of ids in a Bloom filter.
BITS = 2**20  # The number of bits of a Bloom filter.
PROBES = 8
NEW_AT_ONCE = 2**13  # The number of new hashes that are collected before they are added together.
FILTERS_IN_PIECE = 16  # The most Bloom filters in a stored piece, which take 2 MiB.
ROUNDS = siphash.Key(np.uint64(0x726F756E64206964), np.uint64(1))
PLAYERS = siphash.Key(np.uint64(0x706C617965722069), np.uint64(1))
"""The keys of the hashes. They are public, because a filter must mean the same to every worker. An
attacker who chooses ids by these keys can only make corrections slower."""


class FilterPiece(NamedTuple):
    """A piece of a filter, as it is stored."""

    last: bytes  # The hashes that are not in a Bloom filter yet, as bytes.
    filters: list[bytes]


class IdFilter:
    """A filter for the ids in a ladder's rounds, seeds and resets. The answer "no" is certain; the
    answer "yes" may be wrong.

    The ids of the latest rounds are stored as 64-bit hashes, and earlier ids as Bloom filters of
    PER_FILTER ids each. With 16 bits for each id and 8 probes, the false-positive rate of one
    filter is 1 in 2,000. A false positive costs time and changes no result.

    B. H. Bloom, "Space/time trade-offs in hash coding with allowable errors", 1970.
    """

    def __init__(self, pieces: Sequence[FilterPiece] = ()) -> None:
        """Restore a filter from its pieces. Raises ValueError if they are not those of a filter."""
        filters = [each for piece in pieces for each in piece.filters]
        if any(len(each) * 8 != BITS for each in filters):
            raise ValueError("a filter has another size")
        self._filters: list[Bytes] = [np.frombuffer(each, np.uint8) for each in filters]
        last = b"".join(piece.last for piece in pieces)
        self._last: Hashes = np.frombuffer(last, np.uint64)
        """The sorted hashes that are not in a Bloom filter yet."""
        self._unmerged: list[Hashes] = []
        self._unmerged_count = 0
        """The number of hashes in `_unmerged`."""

    def add(self, of: batch.RoundBatch | Seed) -> None:
        """Add the ids of rounds, or that of a seed or a reset, and those of their players."""
        heads = of.heads if isinstance(of, batch.RoundBatch) else [of.head]
        self._add(_hashes(StringColumn.of([head.round_id for head in heads]), ROUNDS))
        self._add(_hashes(of.names, PLAYERS))

    def _add(self, hashes: Hashes) -> None:
        self._unmerged.append(hashes)
        self._unmerged_count += len(hashes)
        if self._unmerged_count >= NEW_AT_ONCE:
            self._merge_new()

    def _merge_new(self) -> None:
        """Move the new hashes into `_last`, except those that a Bloom filter seems to have. Each
        PER_FILTER hashes become a Bloom filter."""
        if not self._unmerged_count:
            return
        new = np.unique(np.concatenate(self._unmerged))
        self._unmerged, self._unmerged_count = [], 0
        self._last = np.union1d(self._last, new[~self._in_filters(new)])
        while len(self._last) >= PER_FILTER:
            bits = np.zeros(BITS, np.bool_)
            bits[_probes(self._last[:PER_FILTER])] = True
            self._filters.append(np.packbits(bits))
            self._last = self._last[PER_FILTER:]

    def _in_filters(self, hashes: Hashes) -> Flags:
        found, probes = np.zeros(len(hashes), np.bool_), _probes(hashes)
        for each in self._filters:
            found |= (each[probes >> 3] >> (7 - (probes & 7)) & 1).all(axis=1)
        return found

    def may_have_round(self, round_id: str) -> bool:
        """Whether a round with this id may have been added."""
        return self._may_have(round_id, ROUNDS)

    def may_have_player(self, name: str) -> bool:
        """Whether a round with a player of this name may have been added."""
        return self._may_have(name, PLAYERS)

    def _may_have(self, text: str, key: siphash.Key) -> bool:
        self._merge_new()
        one = _hashes(StringColumn.of([text]), key)
        place = int(np.searchsorted(self._last, one[0]))
        in_last = place < len(self._last) and self._last[place] == one[0]
        return bool(in_last or self._in_filters(one)[0])

    def pieces(self) -> list[FilterPiece]:
        """The filter in the form in which it is stored: one piece or more."""
        self._merge_new()
        filters = [each.tobytes() for each in self._filters]
        last = self._last.tobytes()
        return [
            FilterPiece(b"" if first else last, filters[first : first + FILTERS_IN_PIECE])
            for first in range(0, max(1, len(filters)), FILTERS_IN_PIECE)
        ]


def _hashes(texts: StringColumn, key: siphash.Key) -> Hashes:
    return hash_each(texts.data, texts.starts, texts.ends, key)


def _probes(hashes: Hashes) -> npt.NDArray[np.int64]:
    """(n, PROBES) the indices of each hash's bits in a Bloom filter."""
    first, step = hashes & np.uint64(0xFFFFFFFF), (hashes >> np.uint64(32)) | np.uint64(1)
    steps = np.multiply(step[:, None], np.arange(PROBES, dtype=np.uint64), dtype=np.uint64)
    found = np.add(first[:, None], steps, dtype=np.uint64)
    probes: npt.NDArray[np.int64] = np.bitwise_and(found, np.uint64(BITS - 1)).astype(np.int64)
    return probes


# --- players ------------------------------------------------------------------------------------


def pieces_of(pool: Pool, rows: Ints) -> Iterator[bytes]:
    """Yield the encoded players in these rows of a pool, at most PLAYERS_PER_PIECE in a piece."""
    names = pool.names
    for first in range(0, len(rows), PLAYERS_PER_PIECE):
        own_rows = rows[first : first + PLAYERS_PER_PIECE]
        yield encode((names.take(own_rows).texts(), pool.records(own_rows)))


def number_of_pieces(players: int) -> int:
    """The number of pieces that store this many players."""
    return -(-players // PLAYERS_PER_PIECE)


def encoded_ids(ids: IdFilter) -> list[bytes]:
    """Encode the ids that may be in a checkpoint's rounds, in pieces."""
    return [encode(piece) for piece in ids.pieces()]


def ids_of(pieces: Iterable[bytes]) -> IdFilter:
    """Decode the ids in these pieces. Raises UnusableCheckpoint if the pieces are damaged."""
    try:
        return IdFilter([msgspec.msgpack.decode(piece, type=FilterPiece) for piece in pieces])
    except (*UNREADABLE, ValueError) as error:
        raise UnusableCheckpoint(str(error)) from None


def pool_of(rating: RatingConfig, started: tuple[Season, ...], pieces: Iterable[bytes]) -> Pool:
    """Decode the players in these pieces, on a ladder on which the seasons `started` have started.
    Raises UnusableCheckpoint if the pieces are damaged, or if a release with another record format
    wrote them."""
    pool, put = Pool(rating, started), 0
    for piece in pieces:
        try:
            players, records = msgspec.msgpack.decode(piece, type=tuple[list[str], list[bytes]])
            pool.put(players, records)
        except (*UNREADABLE, UnknownRecord, ValueError) as error:
            raise UnusableCheckpoint(str(error)) from None
        put += len(players)
    if len(pool) != put:
        raise UnusableCheckpoint("a player is in it twice")
    return pool
