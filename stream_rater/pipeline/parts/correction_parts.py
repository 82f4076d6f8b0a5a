"""A correction part: new records of players of one shard, as one message of
`performance-estimated`.

A correction at offset c of `round-completed` is applied by a replay of the edited log. Each player
whose belief it changes gets the whole belief that results from the replay. A row changes a stored
belief under the same rule as a row of a round: c must be after the `last` of the belief that the
shard has.
"""

from typing import Annotated

import msgspec

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.pipeline.parts.schema import OLDEST_KERNEL, NotAPart, UnknownPart, check_kernel
from stream_rater.rating.stages import RatingRule

CORRECTION = 3  # The first element of the message, where parts of rounds have schema.VERSION.


class CorrectionPart(msgspec.Struct, frozen=True, array_like=True):
    """n players of one ladder and shard, and their beliefs after a correction."""

    version: Annotated[int, msgspec.Meta(ge=CORRECTION, le=CORRECTION)]
    kernel: int  # The KERNEL_VERSION of the replay.
    shards: int  # The number of shards when the part was made.
    offset: int  # The offset of the correction in `round-completed`.
    ladder: str
    cause: str  # The correction's kind: its header `event-type`.
    round_id: str  # The id of the round that was corrected, or the empty string.
    completed_at: str
    """The time of completion, as reported, of the ladder's last round before the correction."""
    rule: RatingRule  # The rule by which the ladder's ratings are displayed.
    threshold: float
    """The number of points by which a displayed rating must move for its event to be published at
    once."""
    players: list[str]  # (n,) the ids of the players.
    records: list[bytes]
    """(n,) the encoded beliefs. Their `last` and `previous_` fields have no meaning."""

    def __len__(self) -> int:
        return len(self.players)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CorrectionPart).decode


def encode(part: CorrectionPart) -> bytes:
    """Encode a correction part as a message."""
    return _encode(part)


def is_correction(data: bytes) -> bool:
    """Whether a message begins as a correction part does."""
    return data[:1] == _BEGINS[:1] and data[1:2] == _BEGINS[1:2]


_BEGINS = bytes([0x90 | len(CorrectionPart.__struct_fields__), CORRECTION])


def decode(
    data: bytes, kernel: int = KERNEL_VERSION, *, oldest: int = OLDEST_KERNEL
) -> CorrectionPart:
    """Decode the correction part in a message. Raises NotAPart if the message does not begin as
    one, and UnknownPart if the part is damaged or its kernel version is not in `oldest` to
    `kernel`, which is this release's own."""
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
