"""Digests of beliefs, to compare two stores without both in memory.

On a ladder with corrections, a rebuild fills the fields `verify.SET_BY_CORRECTIONS` in another way
than workers do. So they are left out there, and a belief without rounds counts as none.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from stream_rater.contract.record import Player
from stream_rater.operations.verify import SET_BY_CORRECTIONS
from stream_rater.rating import record

DIGEST_BYTES = 16

Digests = dict[Player, bytes]


def digests_of(beliefs: Sequence[tuple[Player, bytes]], corrected: Collection[str]) -> Digests:
    """The digest of each belief; `corrected` are the ladders with corrections. Raises
    UnknownRecord."""
    found = {player: _digest(data) for player, data in beliefs if player[0] not in corrected}
    others = [each for each in beliefs if each[0][0] in corrected]
    if others:
        held = record.decode([data for _, data in others], 0, 0.0, 1.0)
        played = (held.header["rounds"] > 0).tolist()
        for name in SET_BY_CORRECTIONS:
            held.header[name] = 0
        told = zip(others, record.encode(held), played, strict=True)
        found |= {player: _digest(data) for (player, _), data, counts in told if counts}
    return found


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


class Difference(NamedTuple):
    """The players whose beliefs are not the same in both stores."""

    missing: list[Player]
    """Only in the first one."""
    surplus: list[Player]
    """Only in the second one."""
    differing: list[Player]

    @property
    def first(self) -> Player | None:
        """One of them, if there is any."""
        return next(iter([*self.differing, *self.missing, *self.surplus]), None)


def difference(before: Mapping[Player, bytes], after: Mapping[Player, bytes]) -> Difference:
    """Compare the digests of two stores."""
    return Difference(
        [player for player in before if player not in after],
        [player for player in after if player not in before],
        [player for player, data in after.items() if before.get(player, data) != data],
    )
