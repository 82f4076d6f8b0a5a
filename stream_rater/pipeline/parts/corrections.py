"""A correction part: new records of players of one shard, as one message of
`performance-estimated`.

A correction at offset c of `round-completed` is worked in by a replay of the edited log. The
players whose belief it changes get the belief that the replay gives them, whole. A row is fresh
under the same rule as a round's: c is after the `last` of the belief that the shard holds.
"""

from typing import Annotated

import msgspec

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.pipeline.parts.schema import OLDEST_KERNEL, NotAPart, UnknownPart, check_kernel
from stream_rater.rating.stages import RatingRule

CORRECTION = 3
"""The first element of the message, where parts of rounds have schema.VERSION."""


class CorrectionPart(msgspec.Struct, frozen=True, array_like=True):
    """n players of one ladder and shard, and their beliefs after a correction."""

    version: Annotated[int, msgspec.Meta(ge=CORRECTION, le=CORRECTION)]
    kernel: int
    """The KERNEL_VERSION of the replay."""
    shards: int
    """How many shards there were."""
    offset: int
    """Of the correction in `round-completed`."""
    ladder: str
    cause: str
    """The correction's kind: its header `event-type`."""
    round_id: str
    """Of the round that was corrected, or the empty string."""
    completed_at: str
    """When the ladder's last round before the correction was completed, as reported."""
    rule: RatingRule
    """By which the ladder's ratings are displayed."""
    threshold: float
    """Points by which a displayed rating must move for an event to be told at once."""
    players: list[str]
    """(n,)"""
    records: list[bytes]
    """(n,) without meaning are `last` and all `previous_` fields."""

    def __len__(self) -> int:
        return len(self.players)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CorrectionPart).decode


def encode(part: CorrectionPart) -> bytes:
    """The message."""
    return _encode(part)


def is_correction(data: bytes) -> bool:
    """Whether a message says that it is a correction part."""
    return data[:1] == _BEGINS[:1] and data[1:2] == _BEGINS[1:2]


_BEGINS = bytes([0x90 | len(CorrectionPart.__struct_fields__), CORRECTION])


def decode(
    data: bytes, kernel: int = KERNEL_VERSION, *, oldest: int = OLDEST_KERNEL
) -> CorrectionPart:
    """The correction part in a message, if it is of a kernel version from `oldest` to ours,
    `kernel`. Raises UnknownPart, or NotAPart."""
    if not is_correction(data):
        raise NotAPart("no correction part")
    try:
        part = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownPart(f"correction part: {error}") from None
    check_kernel(part.kernel, kernel, oldest)
    if len(part.players) != len(part.records) or len(set(part.players)) < len(part.players):
        raise UnknownPart("correction part: a record a player, and each player once")
    return part
