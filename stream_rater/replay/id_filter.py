"""A filter for the ids in a ladder's rounds, seeds and resets. The answer "no" is certain; the
answer "yes" may be wrong.

The ids of the latest rounds are stored as 64-bit hashes, and earlier ids as Bloom filters of
PER_FILTER ids each. With 16 bits for each id and 8 probes, the false-positive rate of one filter is
1 in 2,000. A false positive costs time and changes no result.

B. H. Bloom, "Space/time trade-offs in hash coding with allowable errors", 1970.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Bytes, Flags, Hashes
from stream_rater.columns.siphash import Key
from stream_rater.columns.strings import StringColumn, hash_each
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.seed_records import Seed

PER_FILTER = 2**16  # The number of ids in a Bloom filter.
BITS = 2**20  # The number of bits of a Bloom filter.
PROBES = 8
NEW_AT_ONCE = 2**13  # The number of new hashes that are collected before they are added together.
FILTERS_IN_PIECE = 16  # The most Bloom filters in a stored piece, which take 2 MiB.
ROUNDS = Key(np.uint64(0x726F756E64206964), np.uint64(1))
PLAYERS = Key(np.uint64(0x706C617965722069), np.uint64(1))
"""The keys of the hashes. They are public, because a filter must mean the same to every worker. An
attacker who chooses ids by these keys can only make corrections slower."""


class FilterPiece(NamedTuple):
    """A piece of a filter, as it is stored."""

    last: bytes  # The hashes that are not in a Bloom filter yet, as bytes.
    filters: list[bytes]


class IdFilter:
    """The ids of the added rounds and of the players in them."""

    def __init__(self, pieces: Sequence[FilterPiece] = ()) -> None:
        """Restore a filter. Raises ValueError if these are not its pieces."""
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

    def add(self, rounds: RoundBatch) -> None:
        """Add the ids of rounds and of the players in them."""
        self._add(_hashes(StringColumn.of([head.round_id for head in rounds.heads]), ROUNDS))
        self._add(_hashes(rounds.names, PLAYERS))

    def add_seed(self, seed: Seed) -> None:
        """Add the id of a seed or a reset, and those of its players."""
        self._add(_hashes(StringColumn.of([seed.round_id]), ROUNDS))
        self._add(_hashes(seed.names, PLAYERS))

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

    def _may_have(self, text: str, key: Key) -> bool:
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


def _hashes(texts: StringColumn, key: Key) -> Hashes:
    return hash_each(texts.data, texts.starts, texts.ends, key)


def _probes(hashes: Hashes) -> npt.NDArray[np.int64]:
    """(n, PROBES) the indices of each hash's bits in a Bloom filter."""
    first, step = hashes & np.uint64(0xFFFFFFFF), (hashes >> np.uint64(32)) | np.uint64(1)
    steps = np.multiply(step[:, None], np.arange(PROBES, dtype=np.uint64), dtype=np.uint64)
    found = np.add(first[:, None], steps, dtype=np.uint64)
    probes: npt.NDArray[np.int64] = np.bitwise_and(found, np.uint64(BITS - 1)).astype(np.int64)
    return probes
