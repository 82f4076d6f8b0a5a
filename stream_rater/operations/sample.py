"""The ladders that `verify --sample` compares.

Each ladder has a place from 0 to 1, by a hash of its id. A sample of a share has the ladders whose
place is below the share, so that it is always the same, and part of every larger sample.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from stream_rater.runtime.progress import counted

HASH_BYTES = 8


class Sample(NamedTuple):
    """Some of the ladders that have rounds."""

    share: float
    """The share that was asked for."""
    ladders: frozenset[str]
    """The chosen ladders: at least one, if there is any."""
    known: int
    """The number of all ladders."""

    @classmethod
    def of(cls, share: float, ladders: Iterable[str]) -> "Sample":
        """The sample of this share of the ladders. If no place is below the share, it is the ladder
        with the first place."""
        in_order = sorted(ladders, key=lambda ladder: (place_of(ladder), ladder))
        chosen = [each for each in in_order if place_of(each) < share] or in_order[:1]
        return cls(share, frozenset(chosen), len(in_order))

    def described(self, players: int, all_players: int, records: int) -> str:
        """What the sample has covered, and that it proves nothing else. `players`: the number of
        its players. `records`: the number of records in the whole log."""
        return (
            f"This is a sample of {self.share:g}: {len(self.ladders):,} of "
            f"{counted(self.known, 'ladder')}, {players:,} of {counted(all_players, 'player')}, in "
            f"a log of {counted(records, 'record')}. Nothing is proven about the others"
        )


def place_of(ladder: str) -> float:
    """The place of a ladder, at least 0 and less than 1."""
    digest = hashlib.blake2b(ladder.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES)
    number = int.from_bytes(digest.digest(), "big")
    return number / (1 << 8 * HASH_BYTES)
