"""The format of a part: one message of `performance-estimated`, with the rows of a wave that one
shard needs, or some of them if they are many.

It is columnar: a round's values are written once, and players' values are columns. A part contains
every input of stage 2, so the updater needs no configuration of its own.

Every version is a MessagePack array that begins with the version's number. A message with another
beginning is not a part, and does not change a shard's state. A message that begins as a part and
cannot be understood is refused; nothing in it is guessed.

A part names the number of shards that it was cut for. A worker that was paused while shards were
added may wake up and send parts that were cut for fewer shards. They are ignored: the worker's
successor sends their rows to the shards where they belong now.

Three version numbers are not used for parts of rounds: one is for correction parts, one for seed
parts (`belief_parts`), and one for marks. `rebuild` writes a mark to each shard. The store's state
at the mark comes from the rebuild, not from the parts before it. Releases that do not know one of
these kinds refuse it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import msgspec
import numpy as np

from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import KERNEL_VERSION, kernel
from stream_rater.columns.strings import StringColumn, put
from stream_rater.contract.record import Trace
from stream_rater.rating.model import BEGAN, Evidence, Places
from stream_rater.rating.stages import RatingRule

VERSION = 1

MARK = 2

OLDEST_KERNEL = 2
"""The oldest kernel version whose evidence has the same meaning for stage 2 as ours. Parts of this
version and later ones, up to our own, are applied. Parts of a newer kernel wait for workers of its
release."""

EVIDENCE_COLUMNS = 4
"""The number of evidence columns in memory. In a message the last column, BEGAN, is left out if it
is NaN for all rows."""

LIST, TEXT, BYTES = (0x90, 15, 0xDC), (0xA0, 31, 0xDA), (0, -1, 0xC5)
"""MessagePack's type codes of each kind: the first code that contains the size, and the greatest
such size (-1: there is none); then the code that is followed by a size of two bytes. The next code
is followed by four bytes. The code before it, which a list does not have, is followed by one."""
LONGEST_HEAD = 5
LISTS_AND_COLUMNS = 5  # The number of lists and columns in a message.
PLACE_BYTES, SHORT_EVIDENCE, EVIDENCE_BYTES = 4, 8 * BEGAN, 8 * EVIDENCE_COLUMNS
"""Bytes in a row. The index of its round takes as many bytes as its place. The evidence is short if
its last column is left out; the evidence of older kernels is always short."""


class UnknownPart(ValueError):
    """A damaged message, or a part of a version that this release does not understand."""


class NotAPart(ValueError):
    """A message that is not a part of any release."""


class CutForFewer(NotAPart):
    """A part that was cut for fewer shards, and was sent after shards were added."""


class RebuildMark(NotAPart):
    """The mark of a rebuild."""

    def __init__(self, shards: int) -> None:
        super().__init__(f"the mark of a rebuild for {shards} shards")
        self.shards = shards


class RoundInPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One round of a wave."""

    offset: int  # The offset of the round in `round-completed`. It orders the rounds of a ladder.
    rule: int  # The index of the round's RatingRule among the part's rules.
    time: int
    round_id: str
    ladder: str
    completed_at: str
    trace: Trace | None = None
    """Parts of older releases end before this field, and those releases do not read it."""


class _Message(msgspec.Struct, frozen=True, array_like=True):
    version: Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
    rules: tuple[RatingRule, ...]
    rounds: tuple[RoundInPart, ...]
    round_index: bytes
    place: bytes
    evidence: bytes
    players: list[str]
    shards: int = 0
    """Parts of older releases end before this field, and those releases do not read it."""


@dataclass(frozen=True, slots=True)
class Part:
    """n rows, each of which is one player in one of the part's rounds. In a message, all rows are
    of one shard. The estimator makes one Part of a whole wave, and `encode_pieces` cuts it."""

    rules: Sequence[RatingRule]
    rounds: Sequence[RoundInPart]
    round_index: Ints  # (n,) the index of each row's round.
    place: Places  # (n,) the place of each row's player, as in Wave.
    evidence: Evidence  # (n, 3) or (n, 4) the evidence, with the columns of Wave's Evidence.
    names: StringColumn  # (n,) the ids of the players, as a column.
    shards: int = 0
    """The number of shards when the part was cut; 0: unknown, because the release was older."""

    @property
    def players(self) -> Sequence[str]:
        """(n,) the ids of the players."""
        return self.names.texts()

    def take(self, rows: Ints) -> "Part":
        """Return a part of these rows only, with the rounds that they need and all rules."""
        rounds, index = np.unique(self.round_index[rows], return_inverse=True)
        return Part(
            rules=self.rules,
            rounds=[self.rounds[i] for i in rounds.tolist()],
            round_index=index,
            place=self.place[rows],
            evidence=self.evidence[rows],
            names=self.names.take(rows),
            shards=self.shards,
        )


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Message).decode
_decode_mark = msgspec.msgpack.Decoder(tuple[int, int]).decode
_MARK_BEGINS = _encode((MARK, 0))[:2]


@kernel
def _put_head(out: Bytes, at: int, size: int, kind: tuple[int, int, int]) -> int:
    """Write the head of a LIST, a TEXT or BYTES of this size. Returns the position after it."""
    short, most, long = kind
    if size <= most:
        out[at] = short | size
        return at + 1
    width = 1 if size < 2**8 and long != LIST[2] else 2 if size < 2**16 else 4
    out[at] = long - 1 + width // 2
    for k in range(width):
        out[at + 1 + k] = (size >> (8 * (width - 1 - k))) & 255
    return at + 1 + width


@kernel
def _count_distinct(index: Ints) -> tuple[Ints, Ints]:
    """The distinct numbers, and the index of each among them. Equal ones must be adjacent."""
    different, which = np.empty(len(index), np.int64), np.empty(len(index), np.int64)
    count = 0
    for i in range(len(index)):
        if i == 0 or index[i] != index[i - 1]:
            different[count] = index[i]
            count += 1
        which[i] = count - 1
    return different[:count], which


@kernel
def _put_message(
    out: Bytes, at: int, rows: Ints, opening: Bytes, heads: Bytes, head_ends: Ints,
    round_index: Ints, place: Bytes, evidence: Bytes, width: int, names: Bytes, starts: Ints,
    ends: Ints, closing: Bytes,
) -> int:  # fmt: skip
    """Write the message of these rows to `out`. Returns the position after it. In `place` and
    `evidence` each row has its own bytes; in `evidence` they are `width` for each row."""
    rounds, which = _count_distinct(round_index[rows])
    at = _put_head(out, put(out, at, opening, 0, len(opening)), len(rounds), LIST)
    for r in rounds:
        at = put(out, at, heads, head_ends[r - 1] if r else 0, head_ends[r])
    at = _put_head(out, at, PLACE_BYTES * len(rows), BYTES)
    for number in which:
        for k in range(PLACE_BYTES):
            out[at + k] = (number >> (8 * k)) & 255
        at += PLACE_BYTES
    at = _put_head(out, at, PLACE_BYTES * len(rows), BYTES)
    for i in rows:
        at = put(out, at, place, PLACE_BYTES * i, PLACE_BYTES * (i + 1))
    at = _put_head(out, at, width * len(rows), BYTES)
    for i in rows:
        own = width * i
        at = put(out, at, evidence, own, own + SHORT_EVIDENCE)
        if width > SHORT_EVIDENCE:
            at = put(out, at, evidence, own + SHORT_EVIDENCE, own + EVIDENCE_BYTES)
    at = _put_head(out, at, len(rows), LIST)
    for i in rows:
        at = _put_head(out, at, ends[i] - starts[i], TEXT)
        at = put(out, at, names, starts[i], ends[i])
    return put(out, at, closing, 0, len(closing))


@kernel
def _messages(
    rows: Ints, cuts: Ints, opening: Bytes, heads: Bytes, head_ends: Ints,
    round_index: Ints, place: Bytes, evidence: Bytes, width: int, names: Bytes, starts: Ints,
    ends: Ints, closing: Bytes,
) -> tuple[Bytes, Ints]:  # fmt: skip
    """The messages, one after the other, and the position after each of them."""
    size = len(cuts) * (len(opening) + len(closing) + LISTS_AND_COLUMNS * LONGEST_HEAD)
    for k in range(len(rows)):
        i = rows[k]
        r = round_index[i]
        size += head_ends[r] - (head_ends[r - 1] if r else 0)
        size += 2 * PLACE_BYTES + width + LONGEST_HEAD + ends[i] - starts[i]
    out, message_ends = np.empty(size, np.uint8), np.empty(len(cuts), np.int64)
    at = first = 0
    for k in range(len(cuts)):
        at = _put_message(
            out, at, rows[first : cuts[k]], opening, heads, head_ends,
            round_index, place, evidence, width, names, starts, ends, closing,
        )  # fmt: skip
        message_ends[k], first = at, cuts[k]
    return out, message_ends


def mark(shards: int) -> bytes:
    """Encode the mark that a rebuild for this number of shards writes to each of them."""
    return _encode((MARK, shards))


def encode(part: Part) -> bytes:
    """Encode a part as one message."""
    (message,) = encode_pieces(part, np.arange(len(part.place)), [len(part.place)])
    return message


def encode_pieces(part: Part, rows: Ints, cuts: Sequence[int]) -> list[bytes]:
    """Encode these rows as several messages, each up to the next of the cuts, with the rounds that
    its rows need. Rows of a round must be adjacent. A round is encoded once, and copied to each
    message."""
    opening = bytes([LIST[0] | len(_Message.__struct_fields__)]) + _encode(VERSION)
    heads, names = StringColumn.of_bytes([_encode(each) for each in part.rounds]), part.names
    evidence = part.evidence
    if evidence.shape[1] > BEGAN and np.isnan(evidence[:, BEGAN]).all():
        evidence = evidence[:, :BEGAN]
    out, ends = _messages(
        rows, np.array(cuts, np.int64), np.frombuffer(opening + _encode(part.rules), np.uint8),
        heads.data, heads.ends, part.round_index,
        np.frombuffer(part.place.astype("<i4").tobytes(), np.uint8),
        np.frombuffer(evidence.astype("<f8").tobytes(), np.uint8), 8 * evidence.shape[1],
        names.data, names.starts, names.ends,
        np.frombuffer(_encode(part.shards), np.uint8),
    )  # fmt: skip
    return [out[start:end].tobytes() for start, end in pairwise([0, *ends.tolist()])]


def decode(data: bytes, kernel: int = KERNEL_VERSION, *, oldest: int = OLDEST_KERNEL) -> Part:
    """Decode the part in a message. `oldest` to `kernel`, which is this release's own, are the
    accepted kernel versions. Raises RebuildMark for a mark, NotAPart for a message that does not
    begin as a part, and UnknownPart for a part that is damaged or of another version."""
    if not _looks_like_part(data):
        raise NotAPart(f"no part of any version, it begins with {data[:8].hex() or 'nothing'}")
    try:
        if data.startswith(_MARK_BEGINS):
            raise RebuildMark(_decode_mark(data)[1])
        message = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownPart(f"part: {error}") from None
    for rule in message.rules:
        check_kernel(rule.kernel, kernel, oldest)
    columns = _check_columns(message)
    return Part(
        rules=message.rules,
        rounds=message.rounds,
        round_index=np.frombuffer(message.round_index, "<i4").astype(np.int64),
        place=np.frombuffer(message.place, "<i4"),
        evidence=np.frombuffer(message.evidence, "<f8").reshape(-1, columns),
        names=StringColumn.of(message.players),
        shards=message.shards,
    )


def check_kernel(computed_by: int, ours: int, oldest: int = OLDEST_KERNEL) -> None:
    """Raise UnknownPart unless kernels of version `ours` can apply a part that was computed by
    version `computed_by`."""
    text = f"part: computed by kernel version {computed_by}, this worker has {ours}"
    if computed_by > ours:
        raise UnknownPart(f"{text}: it waits for a worker of the newer release")
    if computed_by < oldest:
        raise UnknownPart(f"{text}: let workers of the older release finish first")


def _looks_like_part(data: bytes) -> bool:
    """Whether a message is an array whose first element is a small positive number. The array's
    length may be in its code, or have 16 or 32 bits."""
    array = data[:1]
    head = 1 if b"\x90" <= array <= b"\x9f" else {b"\xdc": 3, b"\xdd": 5}.get(array, 0)
    return head > 0 and b"\x00" < data[head : head + 1] <= b"\x7f"


def _check_columns(message: _Message) -> int:
    """Check that the columns have the right lengths and that every index is in range. Returns the
    number of evidence columns. Raises UnknownPart."""
    rows = len(message.players)
    is_short = not rows or len(message.evidence) != rows * EVIDENCE_BYTES
    evidence = SHORT_EVIDENCE if is_short else EVIDENCE_BYTES
    widths = ((message.round_index, 4), (message.place, 4), (message.evidence, evidence))
    if any(len(column) != rows * width for column, width in widths):
        raise UnknownPart(f"part: columns differ in length from its {rows} players")
    index = np.frombuffer(message.round_index, "<i4")
    if rows and not 0 <= int(index.min()) <= int(index.max()) < len(message.rounds):
        raise UnknownPart("part: a row of no round")
    rules = {each.rule for each in message.rounds}
    if rules and not 0 <= min(rules) <= max(rules) < len(message.rules):
        raise UnknownPart("part: a round without a rule")
    return evidence // 8
