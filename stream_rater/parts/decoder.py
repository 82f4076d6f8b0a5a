"""Parts as stage 2 reads them: the columns of many messages in a row, each part a piece of them.

Most messages have a dozen rows, and what is done for each one by itself takes longer than its rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import msgspec
import numpy as np

from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.ranges import spread
from stream_rater.columns.strings import SECRET_KEY, StringColumn
from stream_rater.contract.tracecontext import Trace
from stream_rater.parts import schema, unpacking
from stream_rater.parts.schema import OLDEST_KERNEL, UnknownPart
from stream_rater.parts.unpacking import (
    ID,
    INDEX,
    LADDER,
    LEAST_ROUND,
    LEAST_ROW,
    NAME,
    NAME_END,
    ROUND,
    ROW,
    RULE,
    TRACE,
    TRACE_END,
)
from stream_rater.rating.model import Evidence
from stream_rater.rating.systems import RatingRule
from stream_rater.rounds.fastjson import runs

TOGETHER_BYTES = 2**18
"""So much is read in one call, and kept as long as any part of it is waiting."""

Laws = tuple[RatingRule, ...]


@dataclass(frozen=True, slots=True)
class PartBatch:
    """R rounds and n rows of parts."""

    data: Bytes
    """Where their texts are."""
    rules: list[RatingRule]
    """Different ones."""
    rounds: Ints
    """(ROUND, R) as `unpacking` tells them, but for the rules, which are indices into these."""
    rows: Ints
    """(ROW, n)"""
    evidence: Evidence
    """(n, 3) as in Wave's Evidence."""
    marks: Fingerprints
    """(n,) which differ where ladders or names do, but by chance."""
    traces: dict[int, Trace | None]
    """Of the rounds that have one."""


@dataclass(frozen=True, slots=True)
class PartView:
    """A part of a slab."""

    part_batch: PartBatch
    first_round: int
    last_round: int
    """Its rounds are those before it."""
    first: int
    last: int
    """Its rows are those before it."""
    shards: int = 0
    """For how many shards it was cut; 0: unknown."""
    home: int = unpacking.NOWHERE
    """To which one of these all of its players belong; NOWHERE: unknown, or not all to one."""

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def marks(self) -> Fingerprints:
        """(n,) of its players."""
        return self.part_batch.marks[self.first : self.last]

    @property
    def players(self) -> list[str]:
        """(n,) ids."""
        rows = self.part_batch.rows[:, self.first : self.last]
        return StringColumn(self.part_batch.data, rows[NAME], rows[NAME_END]).texts()

    def traced(self) -> Iterator[tuple[Trace, str, str]]:
        """Those of its rounds that have a trace, with their ladder and id."""
        for r, trace in self.part_batch.traces.items():
            if trace and self.first_round <= r < self.last_round:
                yield trace, _text(self.part_batch, LADDER, r), _text(self.part_batch, ID, r)


def _text(part_batch: PartBatch, column: int, r: int) -> str:
    """One of a round's texts."""
    start, end = part_batch.rounds[column : column + 2, r].tolist()
    return part_batch.data[start:end].tobytes().decode()


def read_all(messages: Sequence[bytes], kernel: int = KERNEL_VERSION) -> list[PartView | None]:
    """The part in each; None where `read` is to say what there is."""
    return [each for some in runs(messages, TOGETHER_BYTES) for each in _read(some, kernel)]


def read(data: bytes, kernel: int = KERNEL_VERSION) -> PartView:
    """The part in a message, however it is written; raises as `parts.decode` does, and UnknownPart,
    too, where it has a player twice."""
    part = schema.decode(data, kernel)
    ladders = [part.rounds[i].ladder for i in part.round_index.tolist()]
    if len(set(zip(ladders, part.players, strict=True))) < len(ladders):
        raise UnknownPart("part: a player stands in it twice")
    (piece,) = _read([schema.encode(part)], kernel, are_distinct=True)
    if piece is None:
        raise UnknownPart("part: a number is too large")
    return piece


def _read(
    messages: Sequence[bytes], kernel: int, *, are_distinct: bool = False
) -> list[PartView | None]:
    """`are_distinct`: the players in each are known to be."""
    data = np.frombuffer(bytearray().join((*messages, unpacking.PADDING)), np.uint8)
    part_batch, found = _unpacked(data, np.cumsum([len(each) for each in messages], dtype=np.int64))
    part_batch.traces.update(_traces(part_batch))
    damaged = [r for r, trace in part_batch.traces.items() if trace is None]
    pieces, all_laws = list[PartView | None](), list[Laws]()
    first_round = first = 0
    for start, end, last_round, last, distinct, shards, home in found.tolist():
        rules = _laws(data[start:end].tobytes(), kernel) if distinct or are_distinct else None
        if rules is None or (damaged and any(first_round <= r < last_round for r in damaged)):
            pieces.append(None)
        else:
            pieces.append(PartView(part_batch, first_round, last_round, first, last, shards, home))
            all_laws.append(rules)
        first_round, first = last_round, last
    if len(all_laws) < len(messages):  # a slab has nothing but its pieces
        taken = [m for m, piece in zip(messages, pieces, strict=True) if piece is not None]
        again = iter(_read(taken, kernel, are_distinct=are_distinct) if taken else ())
        return [None if piece is None else next(again) for piece in pieces]
    _number_laws(part_batch, found[:, unpacking.ROUNDS], all_laws)
    return pieces


def _unpacked(data: Bytes, ends: Ints) -> tuple[PartBatch, Ints]:
    """What is found, with nothing of rules and traces yet."""
    most_rounds, most = 1 + len(data) // LEAST_ROUND, 1 + len(data) // LEAST_ROW
    rounds, rows = np.empty((ROUND, most_rounds), np.int64), np.empty((ROW, most), np.int64)
    evidence, marks = np.empty((most, schema.EVIDENCE_COLUMNS)), np.empty(most, np.uint64)
    seen = evidence.view(np.uint8).ravel()
    found = unpacking.unpack(data, ends, rounds, rows, seen, marks, SECRET_KEY)
    last_round, last = found[-1, [unpacking.ROUNDS, unpacking.ROWS]].tolist()
    rounds, rows = rounds[:, :last_round].copy(), rows[:, :last].copy()
    return PartBatch(data, [], rounds, rows, evidence[:last].copy(), marks[:last].copy(), {}), found


def _number_laws(part_batch: PartBatch, round_ends: Ints, rules: Sequence[Laws]) -> None:
    """Number those of all messages, of which equal ones are one."""
    numbers: dict[RatingRule, int] = {}
    start, before, own = 0, Laws(), list[int]()
    for some, end in zip(rules, round_ends.tolist(), strict=True):
        if some is not before:
            before, own = some, [numbers.setdefault(each, len(numbers)) for each in some]
        if own != list(range(len(own))):
            part_batch.rounds[RULE, start:end] = np.array(own, np.int64)[
                part_batch.rounds[RULE, start:end]
            ]
        start = end
    part_batch.rules.extend(numbers)


@lru_cache(maxsize=256)
def _laws(packed: bytes, kernel: int) -> Laws | None:
    """Those that a message has; None if they are not all ours to apply."""
    try:
        rules = _decode_laws(packed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return rules if all(OLDEST_KERNEL <= each.kernel <= kernel for each in rules) else None


def _traces(part_batch: PartBatch) -> Iterator[tuple[int, Trace | None]]:
    """By round, where there is one; None if it is damaged."""
    starts, ends = part_batch.rounds[TRACE], part_batch.rounds[TRACE_END]
    for r in np.flatnonzero(ends).tolist():
        try:
            yield r, _decode_trace(part_batch.data[starts[r] : ends[r]].tobytes())
        except (msgspec.DecodeError, UnicodeDecodeError):
            yield r, None


_decode_laws = msgspec.msgpack.Decoder(Laws).decode
_decode_trace = msgspec.msgpack.Decoder(Trace).decode

NO_ROWS = PartView(
    PartBatch(
        np.empty(0, np.uint8), [], np.empty((ROUND, 0), np.int64), np.empty((ROW, 0), np.int64),
        np.empty((0, schema.EVIDENCE_COLUMNS)), np.empty(0, np.uint64), {},
    ),
    0, 0, 0, 0,
)  # fmt: skip
"""What a message that is no part does to a shard."""


def concat(views: Sequence[PartView]) -> tuple[PartBatch, Ints]:
    """One batch that has all these parts, and (n,) which of its rows are theirs, part by part."""
    batches = list({id(each.part_batch): each.part_batch for each in views}.values())
    ends = accumulate(len(each.marks) for each in batches)
    bases = {id(each): end - len(each.marks) for each, end in zip(batches, ends, strict=True)}
    firsts = np.array([bases[id(each.part_batch)] + each.first for each in views], np.int64)
    rows = spread(firsts, np.array([len(each) for each in views], np.int64))
    return batches[0] if len(batches) == 1 else _concat(batches), rows


def _concat(batches: Sequence[PartBatch]) -> PartBatch:
    """All of these batches in turn."""
    rules: dict[RatingRule, int] = {}
    all_rounds, all_rows, traces = list[Ints](), list[Ints](), dict[int, Trace | None]()
    size = count = 0
    for part_batch in batches:
        rounds, rows = part_batch.rounds.copy(), part_batch.rows.copy()
        numbers = [rules.setdefault(each, len(rules)) for each in part_batch.rules]
        rounds[RULE] = np.array(numbers, np.int64)[rounds[RULE]]
        rounds[ID:TRACE] += size
        rows[NAME:] += size
        rows[INDEX] += count
        traces |= {r + count: trace for r, trace in part_batch.traces.items()}
        size, count = size + len(part_batch.data), count + rounds.shape[1]
        all_rounds.append(rounds)
        all_rows.append(rows)
    return PartBatch(
        np.concatenate([each.data for each in batches]),
        list(rules),
        np.concatenate(all_rounds, axis=1),
        np.concatenate(all_rows, axis=1),
        np.concatenate([each.evidence for each in batches]),
        np.concatenate([each.marks for each in batches]),
        traces,
    )
