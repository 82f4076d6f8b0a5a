"""A part: the slice of a wave that one shard needs, as one message of `performance-estimated`.

Columnar: what belongs to a round is said once, what belongs to a player is a column. It carries all
that stage 2 computes with, so the updater needs no configuration of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

from stream_rater.rating.compiled import KERNEL_VERSION
from stream_rater.rating.model import Evidence, Ints, Places
from stream_rater.rating.systems import Law

VERSION = 1

EVIDENCE_COLUMNS = 3


class UnknownPart(ValueError):
    """A message that is no part of a version that this release understands."""


class RoundInPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One round of a wave."""

    offset: int
    """Of the round in `round-completed`; it orders the rounds of a ladder."""
    law: int
    """Index of its ladder's law."""
    time: int
    round_id: str
    ladder: str
    completed_at: str


class _Message(msgspec.Struct, frozen=True, array_like=True):
    version: Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
    laws: tuple[Law, ...]
    rounds: tuple[RoundInPart, ...]
    round_index: bytes
    place: bytes
    evidence: bytes
    players: list[str]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one shard: n players, each in one of the part's rounds."""

    laws: Sequence[Law]
    rounds: Sequence[RoundInPart]
    round_index: Ints
    """(n,) index of each row's round."""
    place: Places
    """(n,) as in Wave."""
    evidence: Evidence
    """(n, 3) as in Wave's Evidence."""
    players: Sequence[str]

    def slice(self, rows: Ints) -> "Part":
        """A part of these rows only, with the rounds and laws that they need."""
        rounds, index = np.unique(self.round_index[rows], return_inverse=True)
        return Part(
            laws=self.laws,
            rounds=[self.rounds[i] for i in rounds],
            round_index=index,
            place=self.place[rows],
            evidence=self.evidence[rows],
            players=[self.players[i] for i in rows],
        )


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Message).decode


def encode(part: Part) -> bytes:
    """The message."""
    return _encode(
        _Message(
            version=VERSION,
            laws=tuple(part.laws),
            rounds=tuple(part.rounds),
            round_index=part.round_index.astype("<i4").tobytes(),
            place=part.place.astype("<i4").tobytes(),
            evidence=part.evidence.astype("<f8").tobytes(),
            players=list(part.players),
        )
    )


def decode(data: bytes) -> Part:
    """The part in a message; raises UnknownPart."""
    try:
        message = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownPart(f"part: {error}") from None
    for law in message.laws:
        if law.kernel != KERNEL_VERSION:
            raise UnknownPart(
                f"part: computed by kernel version {law.kernel}, this release has {KERNEL_VERSION}"
            )
    evidence = np.frombuffer(message.evidence, "<f8").reshape(-1, EVIDENCE_COLUMNS)
    return Part(
        laws=message.laws,
        rounds=message.rounds,
        round_index=np.frombuffer(message.round_index, "<i4").astype(np.int64),
        place=np.frombuffer(message.place, "<i4"),
        evidence=evidence,
        players=message.players,
    )
