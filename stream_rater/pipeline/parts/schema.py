"""A part: the slice of a wave that one shard needs, as one message of `performance-estimated`.

It is columnar: a round's values are written once, and players' values are columns. A part carries
all that stage 2 computes with, so the updater needs no configuration of its own.

Every version is a MessagePack array that begins with the version's number. A message that does not
begin so is no part, and leaves a shard's state as it is. A message that does, and cannot be
understood, is refused; nothing in it is guessed.

A part names the number of shards that it was cut for. After shards were added, a worker that was
paused since before may wake up and send parts that were cut for fewer shards. They are ignored: the
worker's successor sends their rows to the shards where they belong now.

Two numbers are not those of parts of rounds: that of correction parts (`corrections`), and that of
a mark. `rebuild` writes a mark to each shard: the store's
state at the mark comes from the rebuild, not from the parts before it. Releases that do not know
marks refuse them.
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
from stream_rater.contract.tracecontext import Trace
from stream_rater.rating.model import BEGAN, Evidence, Places
from stream_rater.rating.stages import RatingRule

VERSION = 1

MARK = 2

OLDEST_KERNEL = 2
"""Evidence of kernels from this version on means the same to stage 2. So parts of workers of such a
release are applied. Parts of a newer kernel than ours wait for its workers."""

EVIDENCE_COLUMNS = 4
"""In memory. In a message the last one, BEGAN, is left out unless it says something of a row."""

SHORT_LIST, LONG_LIST, SHORT_TEXT, LONG_TEXT, LONG_BYTES = 0x90, 0xDC, 0xA0, 0xDA, 0xC5
"""MessagePack's codes: those of short lists and texts have the size in them; behind the others the
size has two bytes."""
LONGEST_HEAD = 5
LISTS_AND_COLUMNS = 5
"""Of a message."""
PLACE_BYTES, SHORT_EVIDENCE, EVIDENCE_BYTES = 4, 8 * BEGAN, 8 * EVIDENCE_COLUMNS
"""Of a row. The index of its round takes as many bytes as its place. The evidence is short without
its last column; so is that of older kernels, always."""


class UnknownPart(ValueError):
    """A message that is no part of a version that this release understands, or a damaged one."""


class NotAPart(ValueError):
    """A message that no release ever wrote."""


class CutForFewer(NotAPart):
    """A part that was cut when there were fewer shards, and sent after others were added."""


class Rebuilt(NotAPart):
    """The mark of a rebuild."""

    def __init__(self, shards: int) -> None:
        super().__init__(f"the mark of a rebuild for {shards} shards")
        self.shards = shards


class RoundInPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One round of a wave."""

    offset: int
    """Of the round in `round-completed`; it orders the rounds of a ladder."""
    rule: int
    """Index of its ladder's rule."""
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
    """Rows of one shard: n players, each in one of the part's rounds."""

    rules: Sequence[RatingRule]
    rounds: Sequence[RoundInPart]
    round_index: Ints
    """(n,) index of each row's round."""
    place: Places
    """(n,) as in Wave."""
    evidence: Evidence
    """(n, 3) or (n, 4) as in Wave's Evidence."""
    names: StringColumn
    """(n,) of the players."""
    shards: int = 0
    """How many shards there were when it was cut; 0: unknown, it is of an older release."""

    @property
    def players(self) -> Sequence[str]:
        """(n,) ids."""
        return self.names.texts()

    def take(self, rows: Ints) -> "Part":
        """A part of these rows only, with the rounds and rules that they need."""
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
def _put_head(out: Bytes, at: int, size: int, short: int, most: int, long: int) -> int:
    """Write the head of a list, a text or bytes of this size; returns where it ends.

    It has one byte up to the size `most`, and else three or five; those of texts and bytes may have
    two. `long` is the code of the form with a size of 16 bits.
    """
    if size <= most:
        out[at] = short | size
        return at + 1
    width = 1 if size < 2**8 and long != LONG_LIST else 2 if size < 2**16 else 4
    out[at] = long - 1 + width // 2
    for k in range(width):
        out[at + 1 + k] = (size >> (8 * (width - 1 - k))) & 255
    return at + 1 + width


@kernel
def _put_list_head(out: Bytes, at: int, size: int) -> int:
    return _put_head(out, at, size, SHORT_LIST, 15, LONG_LIST)


@kernel
def _put_bytes_head(out: Bytes, at: int, size: int) -> int:
    return _put_head(out, at, size, 0, -1, LONG_BYTES)


@kernel
def _counted(index: Ints) -> tuple[Ints, Ints]:
    """Each different number once, and which of these each number is; equal ones stand together."""
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
    """The message of these rows; of `place` and `evidence` each row has its bytes, `width` of the
    latter."""
    rounds, which = _counted(round_index[rows])
    at = _put_list_head(out, put(out, at, opening, 0, len(opening)), len(rounds))
    for r in rounds:
        at = put(out, at, heads, head_ends[r - 1] if r else 0, head_ends[r])
    at = _put_bytes_head(out, at, PLACE_BYTES * len(rows))
    for number in which:
        for k in range(PLACE_BYTES):
            out[at + k] = (number >> (8 * k)) & 255
        at += PLACE_BYTES
    at = _put_bytes_head(out, at, PLACE_BYTES * len(rows))
    for i in rows:
        at = put(out, at, place, PLACE_BYTES * i, PLACE_BYTES * (i + 1))
    at = _put_bytes_head(out, at, width * len(rows))
    for i in rows:
        own = width * i
        at = put(out, at, evidence, own, own + SHORT_EVIDENCE)
        if width > SHORT_EVIDENCE:
            at = put(out, at, evidence, own + SHORT_EVIDENCE, own + EVIDENCE_BYTES)
    at = _put_list_head(out, at, len(rows))
    for i in rows:
        at = _put_head(out, at, ends[i] - starts[i], SHORT_TEXT, 31, LONG_TEXT)
        at = put(out, at, names, starts[i], ends[i])
    return put(out, at, closing, 0, len(closing))


@kernel
def _messages(
    rows: Ints, cuts: Ints, opening: Bytes, heads: Bytes, head_ends: Ints,
    round_index: Ints, place: Bytes, evidence: Bytes, width: int, names: Bytes, starts: Ints,
    ends: Ints, closing: Bytes,
) -> tuple[Bytes, Ints]:  # fmt: skip
    """Messages one after the other, and where each ends."""
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
    """The mark that a rebuild for so many shards writes to each of them."""
    return _encode((MARK, shards))


def encode(part: Part) -> bytes:
    """The message."""
    (message,) = encode_pieces(part, np.arange(len(part.place)), [len(part.place)])
    return message


def encode_pieces(part: Part, rows: Ints, cuts: Sequence[int]) -> list[bytes]:
    """A message for each piece of these rows, up to each of the cuts, with the rounds it needs.

    Rows of a round stand together. A round is encoded once, and copied to each message.
    """
    opening = bytes([SHORT_LIST | len(_Message.__struct_fields__)]) + _encode(VERSION)
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
    """The part in a message, if it is of a kernel version from `oldest` to ours, `kernel`.

    Raises UnknownPart, or NotAPart, of a mark Rebuilt.
    """
    if not _begins_like_a_part(data):
        raise NotAPart(f"no part of any version, it begins with {data[:8].hex() or 'nothing'}")
    try:
        if data.startswith(_MARK_BEGINS):
            raise Rebuilt(_decode_mark(data)[1])
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
    """Whether kernels of version `ours` apply what others have computed. Raises UnknownPart."""
    says = f"part: computed by kernel version {computed_by}, this worker has {ours}"
    if computed_by > ours:
        raise UnknownPart(f"{says}: it waits for a worker of the newer release")
    if computed_by < oldest:
        raise UnknownPart(f"{says}: let workers of the older release finish first")


def _begins_like_a_part(data: bytes) -> bool:
    """An array (short, of 16 or of 32 bits' length) whose first element is a small number."""
    array = data[:1]
    head = 1 if b"\x90" <= array <= b"\x9f" else {b"\xdc": 3, b"\xdd": 5}.get(array, 0)
    return head > 0 and b"\x00" < data[head : head + 1] <= b"\x7f"


def _check_columns(message: _Message) -> int:
    """The columns are as long as they must be, and every index points at something. Returns how
    many the evidence has."""
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
