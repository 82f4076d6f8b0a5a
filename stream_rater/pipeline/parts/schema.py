"""The format of a part: one message of `performance-estimated`, with the rows of a wave that one
shard needs, or some of them if they are many.

A part contains every input of stage 2, so the updater needs no configuration of its own. It is of
rounds, or of seeds, of resets, or of one correction; `cause` says which. A message is a MessagePack
array: the version's number, the `Head`, and the columns (`_put_columns`). What all rows share is
once in the head, what the rows of a record share is once in the record's columns, and a column
takes as many bytes for each number as its largest number needs.

Every version is a MessagePack array that begins with the version's number. A message with another
beginning is not a part, and does not change a shard's state. A message that begins as a part and
cannot be understood is refused; nothing in it is guessed. `legacy` reads the versions of the last
release.

A part names the number of shards that it was cut for. A worker that was paused while shards were
added may wake up and send parts that were cut for fewer shards. They are ignored: the worker's
successor sends their rows to the shards where they belong now.

One version's number is not used for parts: it is for marks. `rebuild` writes a mark to each shard.
The store's state at the mark comes from the rebuild, not from the parts before it.

A part also names the epoch of the store that it was computed from. A part that a worker sends after
it slept through a rebuild lies behind the mark, names another epoch, and is ignored, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import msgspec
import numpy as np

from stream_rater.columns.arrays import Bytes, Flags, Floats, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.columns.strings import StringColumn, put
from stream_rater.contract.events import MOST_BYTES
from stream_rater.contract.record import Trace
from stream_rater.rating.model import Evidence, Places
from stream_rater.rating.stages import RatingRule

VERSION = 5

MARK = 2

OLDEST_KERNEL = 2
"""The oldest kernel version whose evidence has the same meaning for stage 2 as ours. Parts of this
version and later ones, up to our own, are applied. Parts of a newer kernel wait for workers of its
release."""

EVIDENCE_COLUMNS = 4  # The most evidence columns that this release reads.

BEGINS = bytes((0x93, VERSION))  # The first bytes of a part: of an array with three elements.
SIZES, BIN = 4, 0xC6  # MessagePack's code of bytes whose size takes SIZES bytes.

OF_RECORD, OF_ROW = 7, 4
"""The columns of records: offset, rule and time, and the sizes of id, ladder, time of completion
and trace; and those of rows: index of the record and place, and the sizes of name and belief."""
WIDTHS = 17
"""The bytes before those with the width of each column: four numbers of four bytes, which say how
many records, rules and rows there are and how many shards the part was cut for (0: unknown); and
one byte with the number of evidence columns, up to the last one that is not all NaN."""


Epochs = Sequence[bytes | None]
"""By shard, the epoch of the store whose beliefs an estimator has read; None: unknown."""


class UnknownPart(ValueError):
    """A damaged message, or a part of a version that this release does not understand."""


class NotAPart(ValueError):
    """A message that is not a part of any release."""


class CutForFewer(NotAPart):
    """A part that was cut for fewer shards, and was sent after shards were added."""


class OfOlderStore(NotAPart):
    """A part that was computed from beliefs of before the last rebuild, and was sent after it."""


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """The mark of a rebuild in one shard."""

    version: int
    shards: int
    epoch: bytes | None = None  # The epoch that the rebuild gave the store; None: unknown.
    pending: int = 0
    """The first offset whose part was not published when the mark was written. Updaters apply the
    parts from there up to the mark, whatever their epochs."""


class RebuildMark(NotAPart):
    """The mark of a rebuild."""

    def __init__(self, mark: Mark) -> None:
        super().__init__(f"the mark of a rebuild for {mark.shards} shards")
        self.mark = mark


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What all rows of a part share."""

    rules: tuple[RatingRule, ...]
    cause: str = ""
    """The kind of the records, if they are seeds, resets or a correction; empty for rounds."""
    threshold: float = 0.0
    """The points by which a correction must move a displayed rating for its event to be published
    at once."""
    epoch: bytes | None = None
    """The epoch of the store whose beliefs the estimator had read in this shard; None: unknown."""
    arrived_s: float = 0.0
    """When the first of the wave's rounds arrived in the log, Unix seconds; 0: unknown, or not of
    rounds. Older releases ignore it."""


@dataclass(frozen=True, slots=True)
class Part:
    """n rows, each of which is one player in one of R records: of rounds, or of seeds, of resets or
    of a correction. In a message, all rows are of one shard. The estimator makes one Part of a
    whole wave, and `encode_pieces` cuts it."""

    rules: Sequence[RatingRule]
    offset: Ints  # (R,) the offsets in `round-completed`. They order the records of a ladder.
    rule: Ints  # (R,) the index of each record's RatingRule among the rules.
    time: Ints
    """(R,) the times of completion, in Unix seconds; of seeds and resets, the times from which on
    they count."""
    round_id: Sequence[str]
    ladder: Sequence[str]
    completed_at: Sequence[str]  # (R,) the same times, as reported.
    trace: Sequence[Trace | None]
    round_index: Ints  # (n,) the index of each row's record.
    place: Places  # (n,) the place of each row's player, as in Wave.
    evidence: Evidence
    """(n, 3) or (n, 4) the evidence, with the columns of Wave's Evidence. Rows of seeds and resets
    have mu, sigma and the number of rounds in its place; NaN where a reset keeps mu."""
    names: StringColumn  # (n,) the ids of the players, as a column.
    shards: int = 0  # The number of shards when the part was cut; 0: unknown.
    cause: str = ""  # As in Head.
    threshold: float = 0.0  # As in Head.
    beliefs: StringColumn | None = None
    """(n,) the encoded beliefs that a correction gives to the players; None for other records.
    Their `last` and `previous_` fields have no meaning."""
    epoch: bytes | None = None  # As in Head.
    arrived_s: float = 0.0  # As in Head.

    @classmethod
    def of_correction(
        cls, rule: RatingRule, offset: int, about: tuple[str, str, str], names: StringColumn,
        shards: int, cause: str, threshold: float = 0.0, beliefs: StringColumn | None = None,
    ) -> "Part":  # fmt: skip
        """The part of a correction. `about`: the id of the corrected round, or the empty string,
        the ladder, and the time that the events have."""
        zero, n = np.zeros(1, np.int64), len(names)
        round_id, ladder, completed_at = ([each] for each in about)
        return cls(
            [rule], np.array([offset]), zero, zero, round_id, ladder, completed_at, [None],
            np.zeros(n, np.int64), np.zeros(n, np.int32), np.full((n, 1), np.nan), names, shards,
            cause, threshold, beliefs,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.place)

    @property
    def players(self) -> Sequence[str]:
        """(n,) the ids of the players."""
        return self.names.texts()

    def take(self, rows: Ints) -> "Part":
        """Return a part of these rows only, with the records and rules that they need."""
        needed, index = np.unique(self.round_index[rows], return_inverse=True)
        rules, rule = np.unique(self.rule[needed], return_inverse=True)
        records = needed.tolist()
        return replace(
            self,
            rules=[self.rules[i] for i in rules.tolist()], rule=rule,
            offset=self.offset[needed], time=self.time[needed],
            round_id=[self.round_id[i] for i in records], ladder=[self.ladder[i] for i in records],
            completed_at=[self.completed_at[i] for i in records],
            trace=[self.trace[i] for i in records],
            round_index=index, place=self.place[rows], evidence=self.evidence[rows],
            names=self.names.take(rows),
            beliefs=None if self.beliefs is None else self.beliefs.take(rows),
        )  # fmt: skip


_encode = msgspec.msgpack.Encoder().encode
_decode_mark = msgspec.msgpack.Decoder(Mark).decode
_MARKS = {_encode((MARK, *range(1, n)))[:2] for n in (2, 4)}  # The first bytes of marks.


def mark(shards: int, epoch: bytes, pending: int) -> bytes:
    """Encode the mark that a rebuild for this number of shards writes to one of them (`Mark`)."""
    return _encode(Mark(MARK, shards, epoch, pending))


def version_of(data: bytes) -> int:
    """The version of the part in a message. Raises RebuildMark for a mark, NotAPart for a message
    that does not begin as a part, and UnknownPart for a damaged mark."""
    array = data[:1]
    head = 1 if b"\x90" <= array <= b"\x9f" else {b"\xdc": 3, b"\xdd": 5}.get(array, 0)
    if not (head > 0 and b"\x00" < data[head : head + 1] <= b"\x7f"):
        raise NotAPart(f"no part of any version, it begins with {data[:8].hex() or 'nothing'}")
    if data[:2] in _MARKS:
        try:
            raise RebuildMark(_decode_mark(data))
        except msgspec.DecodeError as error:
            raise UnknownPart(f"part: {error}") from None
    return data[head]


def check_kernel(computed_by: int, ours: int, oldest: int = OLDEST_KERNEL) -> None:
    """Raise UnknownPart unless kernels of version `ours` can apply a part that was computed by
    version `computed_by`."""
    text = f"part: computed by kernel version {computed_by}, this worker has {ours}"
    if computed_by > ours:
        raise UnknownPart(f"{text}: it waits for a worker of the newer release")
    if computed_by < oldest:
        raise UnknownPart(f"{text}: let workers of the older release finish first")


def encode(part: Part) -> bytes:
    """Encode a part as one message."""
    (message,) = encode_pieces(part, np.arange(len(part)), [len(part)])
    return message


def encode_pieces(part: Part, rows: Ints, cuts: Sequence[int]) -> list[bytes]:
    """Encode these rows as several messages, each up to the next of the cuts, with the records that
    its rows need. Rows of a record must be adjacent."""
    head = _encode(Head(tuple(part.rules), part.cause, part.threshold, part.epoch, part.arrived_s))
    opening = BEGINS + bytes((BIN,)) + len(head).to_bytes(SIZES, "big") + head + bytes((BIN,))
    count, numbers = len(part.offset), np.array((part.offset, part.rule, part.time))
    texts = StringColumn.of([*part.round_id, *part.ladder, *part.completed_at])
    traces = StringColumn.of_bytes([_encode(each) if each else b"" for each in part.trace])
    texts = StringColumn.concat([texts, traces])
    names, beliefs = part.names, part.names if part.beliefs is None else part.beliefs
    evidence: Floats = np.ascontiguousarray(part.evidence, np.float64)
    out, ends = _messages(
        np.frombuffer(opening, np.uint8), len(part.rules), part.shards, rows,
        np.array(cuts, np.int64), numbers, texts.data, texts.starts.reshape(4, count),
        texts.ends.reshape(4, count), part.round_index, part.place.astype(np.int64),
        evidence.view(np.int64), np.isnan(evidence), names.data, names.starts, names.ends,
        part.beliefs is not None, beliefs.data, beliefs.starts, beliefs.ends,
    )  # fmt: skip
    return [out[start:end].tobytes() for start, end in pairwise([0, *ends.tolist()])]


def messages(
    part: Part, order: Ints, by_shard: Sequence[tuple[int, slice]], most_rows: int, epochs: Epochs
) -> list[tuple[int, bytes]]:  # fmt: skip
    """Encode rows of a part by shard, as (shard, message). `order` has the rows, and `by_shard` the
    shards with their slices of it, one after the other. A message has at most `most_rows` rows, and
    at most MOST_BYTES bytes unless it has a single row."""
    found, first = list[tuple[int, bytes]](), 0
    for epoch, group in groupby(by_shard, lambda each: epochs[each[0]]):
        part, shards, cuts = replace(part, epoch=epoch), list[int](), list[int]()
        for shard, where in group:
            ends = [*range(where.start + most_rows, where.stop, most_rows), where.stop]
            shards += [shard] * len(ends)
            cuts += [end - first for end in ends]
        rows = order[first : first + cuts[-1]]
        encoded = encode_pieces(part, rows, cuts)
        first += cuts[-1]
        if max(map(len, encoded)) <= MOST_BYTES:
            found += zip(shards, encoded, strict=True)
            continue
        pieces = np.split(rows, cuts[:-1])
        for shard, own, whole in zip(shards, pieces, encoded, strict=True):
            some = [whole] if len(whole) <= MOST_BYTES else _halves(part.take(own))
            found += [(shard, message) for message in some]
    return found


def _halves(part: Part) -> list[bytes]:
    """Encode a part, cut in halves until each message fits."""
    message = encode(part)
    if len(message) <= MOST_BYTES or len(part) == 1:
        return [message]
    rows, half = np.arange(len(part)), len(part) // 2
    return [*_halves(part.take(rows[:half])), *_halves(part.take(rows[half:]))]


@kernel
def _count_distinct(index: Ints, different: Ints, which: Ints) -> int:
    """Write the distinct numbers to `different`, and the index of each among them to `which`. Equal
    numbers must be adjacent. Returns how many are distinct."""
    count = 0
    for i in range(len(index)):
        if i == 0 or index[i] != index[i - 1]:
            different[count] = index[i]
            count += 1
        which[i] = count - 1
    return count


@inlined
def _put_little(out: Bytes, at: int, value: int, width: int) -> int:
    """Write an integer in so many bytes, the lowest first. Indices are unsigned (`strings.put`)."""
    for k in range(width):
        out[np.uint64(at + k)] = (value >> (8 * k)) & 255
    return at + width


@inlined
def _put_ints(out: Bytes, at: int, widths: int, column: int, values: Ints, count: int) -> int:
    """Write a column of integers, and its width at `widths` + `column`."""
    least, most = np.int64(0), np.int64(0)
    for i in range(count):
        least, most = min(least, values[i]), max(most, values[i])
    width = 8
    if least >= 0:
        width = 0 if most == 0 else 1 if most < 2**8 else 2 if most < 2**16 else 4
        width = 8 if most >= 2**32 else width
    out[widths + column] = width
    if width == 1:
        for i in range(count):
            out[np.uint64(at + i)] = values[i]
    elif width == 2:
        for i in range(count):
            _put_little(out, at + 2 * i, values[i], 2)
    elif width == 4:
        for i in range(count):
            _put_little(out, at + 4 * i, values[i], 4)
    elif width == 8:
        for i in range(count):
            _put_little(out, at + 8 * i, values[i], 8)
    return at + width * count


@kernel
def _put_columns(
    out: Bytes, at: int, rules: int, shards: int, rows: Ints, numbers: Ints, texts: Bytes,
    text_starts: Ints, text_ends: Ints, round_index: Ints, place: Ints, evidence: Ints,
    missing: Flags, names: Bytes, starts: Ints, ends: Ints, has_beliefs: bool, beliefs: Bytes,
    belief_starts: Ints, belief_ends: Ints, different: Ints, which: Ints, scratch: Ints,
) -> int:  # fmt: skip
    """Write the columns of these rows, and return the position after them. First come the numbers
    of WIDTHS, and the width in bytes of each column; then the columns, number by number and the
    lowest byte first; then the bytes of ids, ladders, times, traces, names and beliefs, each
    column's one after the other. A column of width 0 has only zeros, or in the evidence only NaN.
    """
    n = len(rows)
    count = _count_distinct(round_index[rows], different, which)
    for value in (count, rules, n, shards):
        at = _put_little(out, at, value, 4)
    columns = evidence.shape[1]
    while columns > 0 and missing[rows, columns - 1].all():
        columns -= 1
    widths = _put_little(out, at, columns, 1)
    at = widths + OF_RECORD + OF_ROW + columns
    for c in range(3):
        for r in range(count):
            scratch[r] = numbers[c, different[r]]
        at = _put_ints(out, at, widths, c, scratch, count)
    for c in range(4):
        for r in range(count):
            scratch[r] = text_ends[c, different[r]] - text_starts[c, different[r]]
        at = _put_ints(out, at, widths, 3 + c, scratch, count)
    at = _put_ints(out, at, widths, OF_RECORD, which, n)
    for i in range(n):
        scratch[i] = place[rows[i]]
    at = _put_ints(out, at, widths, OF_RECORD + 1, scratch, n)
    for i in range(n):
        scratch[i] = ends[rows[i]] - starts[rows[i]]
    at = _put_ints(out, at, widths, OF_RECORD + 2, scratch, n)
    for i in range(n):
        scratch[i] = belief_ends[rows[i]] - belief_starts[rows[i]] if has_beliefs else 0
    at = _put_ints(out, at, widths, OF_RECORD + 3, scratch, n)
    for c in range(columns):
        width = 0
        for i in range(n):
            width = width if missing[rows[i], c] else 8
        out[widths + OF_RECORD + OF_ROW + c] = width
        for i in range(n if width else 0):
            at = _put_little(out, at, evidence[rows[i], c], 8)
    for c in range(4):
        for r in range(count):
            at = put(out, at, texts, text_starts[c, different[r]], text_ends[c, different[r]])
    for i in rows:
        at = put(out, at, names, starts[i], ends[i])
    for i in rows:
        if has_beliefs:
            at = put(out, at, beliefs, belief_starts[i], belief_ends[i])
    return at


@kernel
def _messages(
    opening: Bytes, rules: int, shards: int, rows: Ints, cuts: Ints, numbers: Ints, texts: Bytes,
    text_starts: Ints, text_ends: Ints, round_index: Ints, place: Ints, evidence: Ints,
    missing: Flags, names: Bytes, starts: Ints, ends: Ints, has_beliefs: bool, beliefs: Bytes,
    belief_starts: Ints, belief_ends: Ints,
) -> tuple[Bytes, Ints]:  # fmt: skip
    """The messages, one after the other, and the position after each of them."""
    columns = OF_RECORD + OF_ROW + evidence.shape[1]
    size, longest, first = len(cuts) * (len(opening) + SIZES + WIDTHS + columns), 0, 0
    for k in range(len(cuts)):
        longest, last = max(longest, cuts[k] - first), -1
        for i in rows[first : cuts[k]]:
            r = round_index[i]
            if r != last:
                size += 8 * OF_RECORD
                for c in range(4):
                    size += text_ends[c, r] - text_starts[c, r]
                last = r
            size += 8 * columns + ends[i] - starts[i]
            if has_beliefs:
                size += belief_ends[i] - belief_starts[i]
        first = cuts[k]
    out, message_ends = np.empty(size, np.uint8), np.empty(len(cuts), np.int64)
    different, which = np.empty(longest, np.int64), np.empty(longest, np.int64)
    scratch = np.empty(longest, np.int64)
    at = first = 0
    for k in range(len(cuts)):
        begin = put(out, at, opening, 0, len(opening)) + SIZES
        at = _put_columns(
            out, begin, rules, shards, rows[first : cuts[k]], numbers, texts, text_starts,
            text_ends, round_index, place, evidence, missing, names, starts, ends, has_beliefs,
            beliefs, belief_starts, belief_ends, different, which, scratch,
        )  # fmt: skip
        for b in range(SIZES):
            out[begin - SIZES + b] = ((at - begin) >> (8 * (SIZES - 1 - b))) & 255
        message_ends[k], first = at, cuts[k]
    return out, message_ends
