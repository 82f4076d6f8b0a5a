"""Digests of beliefs. They compare two stores without holding both of them in memory.

On a ladder with corrections, a rebuild fills the fields `verify.SET_BY_CORRECTIONS` in another way
than workers do. So digests on such a ladder leave these fields out, and a belief without rounds has
no digest. Seeds and resets are no corrections.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from stream_rater.config.errors import Failed
from stream_rater.contract.events import shown
from stream_rater.contract.record import Player
from stream_rater.operations.compare_store import SET_BY_CORRECTIONS
from stream_rater.rating import record

Digests = dict[Player, bytes]


def digests_of(
    batches: Iterable[list[tuple[Player, bytes]]], corrected: Collection[str]
) -> Digests:
    """The digest of each belief. `batches`: players with their encoded beliefs. `corrected`: the
    ladders with corrections. Raises Failed if this release cannot read one."""
    digests: Digests = {}
    try:
        for batch in batches:
            digests |= _digests_of(batch, corrected)
    except record.UnknownRecord as error:
        raise Failed(str(error)) from None
    return digests


def _digests_of(beliefs: Sequence[tuple[Player, bytes]], corrected: Collection[str]) -> Digests:
    digests = {player: _digest(data) for player, data in beliefs if player[0] not in corrected}
    others = [belief for belief in beliefs if belief[0][0] in corrected]
    if others:
        decoded = record.decode([data for _, data in others], 0, 0.0, 1.0)
        played = (decoded.header["rounds"] > 0).tolist()
        for name in SET_BY_CORRECTIONS:
            decoded.header[name] = 0
        normalized = zip(others, record.encode(decoded), played, strict=True)
        digests |= {player: _digest(data) for (player, _), data, counts in normalized if counts}
    return digests


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


class StoreDifference(NamedTuple):
    """The players whose beliefs are only in the first store, only in the second, or differ."""

    missing: list[Player]
    surplus: list[Player]
    differing: list[Player]

    @property
    def first(self) -> Player | None:
        """One of these players; None if there is none."""
        return next(iter([*self.differing, *self.missing, *self.surplus]), None)

    def __str__(self) -> str:
        """The numbers of these players, and one of them, for an error message."""
        ladder, player = map(shown, self.first or ("", ""))
        return (
            f"{len(self.differing)} beliefs are different, {len(self.missing)} missing and "
            f"{len(self.surplus)} too many, first ladder {ladder!r}, player {player!r}"
        )


def difference(before: Mapping[Player, bytes], after: Mapping[Player, bytes]) -> StoreDifference:
    """Compare the digests of two stores."""
    return StoreDifference(
        [player for player in before if player not in after],
        [player for player in after if player not in before],
        [player for player, data in after.items() if before.get(player, data) != data],
    )
