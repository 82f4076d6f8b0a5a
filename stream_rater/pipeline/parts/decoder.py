"""Parts as stage 2 reads them: many messages decoded at once into columns, of which each part is a
view.

Most messages have a dozen rows: decoding each message by itself would take longer than its rows.
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
from stream_rater.pipeline.parts import schema, unpacking
from stream_rater.pipeline.parts.schema import OLDEST_KERNEL, UnknownPart
from stream_rater.pipeline.parts.unpacking import (
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
from stream_rater.rating.stages import RatingRule
from stream_rater.rounds.fastjson import runs

TOGETHER_BYTES = 2**18
"""Messages are decoded in one call while they have no more bytes together. Their batch is kept as
long as any part of it waits to be applied."""

Rules = tuple[RatingRule, ...]


@dataclass(frozen=True, slots=True)
class PartBatch:
    """R rounds and n rows of parts."""

    data: Bytes
    """The messages: where the strings of all columns are."""
    rules: list[RatingRule]
    """Each different one once."""
    rounds: Ints
    """(ROUND, R) what `unpacking` finds of each round; RULE is an index into `rules`."""
    rows: Ints
    """(ROW, n) what `unpacking` finds of each row."""
    evidence: Evidence
    """(n, 4) as in Wave's Evidence."""
    fingerprints: Fingerprints
    """(n,) hashes of ladder and name: those of two players differ, but by chance."""
    traces: dict[int, Trace | None]
    """By number of its round, where a round has one."""


@dataclass(frozen=True, slots=True)
class PartView:
    """One part: some rounds and rows of a batch."""

    part_batch: PartBatch
    first_round: int
    last_round: int
    """The number after its last round."""
    first: int
    last: int
    """The number after its last row."""
    shards: int = 0
    """How many shards it was cut for; 0: unknown."""
    home: int = unpacking.NOWHERE
    """The one of these shards that all its players belong to; NOWHERE: unknown, or more than one.
    """

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def fingerprints(self) -> Fingerprints:
        """(n,) of its players."""
        return self.part_batch.fingerprints[self.first : self.last]

    @property
    def players(self) -> list[str]:
        """(n,) ids."""
        rows = self.part_batch.rows[:, self.first : self.last]
        return StringColumn(self.part_batch.data, rows[NAME], rows[NAME_END]).texts()

    def traced(self) -> Iterator[tuple[Trace, str, str]]:
        """The traces of its rounds, where they have one, with their ladder and id."""
        for r, trace in self.part_batch.traces.items():
            if trace and self.first_round <= r < self.last_round:
                yield trace, _text(self.part_batch, LADDER, r), _text(self.part_batch, ID, r)


def _text(part_batch: PartBatch, column: int, r: int) -> str:
    """One of a round's texts."""
    start, end = part_batch.rounds[column : column + 2, r].tolist()
    return part_batch.data[start:end].tobytes().decode()


def read_all(messages: Sequence[bytes], kernel: int = KERNEL_VERSION) -> list[PartView | None]:
    """The part in each message; None where it takes `read` to find a part or a mistake."""
    return [each for some in runs(messages, TOGETHER_BYTES) for each in _read(some, kernel)]


def read(data: bytes, kernel: int = KERNEL_VERSION) -> PartView:
    """The part in one message, whatever forms of MessagePack it is written in.

    Raises what `schema.decode` raises; UnknownPart, too, if a player stands in it twice.
    """
    part = schema.decode(data, kernel)
    ladders = [part.rounds[i].ladder for i in part.round_index.tolist()]
    if len(set(zip(ladders, part.players, strict=True))) < len(ladders):
        raise UnknownPart("part: a player stands in it twice")
    (view,) = _read([schema.encode(part)], kernel, are_distinct=True)
    if view is None:
        raise UnknownPart("part: a number is too large")
    return view


def _read(
    messages: Sequence[bytes], kernel: int, *, are_distinct: bool = False
) -> list[PartView | None]:
    """`are_distinct`: in no message a player stands twice; else this is looked at."""
    data = np.frombuffer(bytearray().join((*messages, unpacking.PADDING)), np.uint8)
    part_batch, found = _unpacked(data, np.cumsum([len(each) for each in messages], dtype=np.int64))
    part_batch.traces.update(_traces(part_batch))
    damaged = [r for r, trace in part_batch.traces.items() if trace is None]
    views, all_rules = list[PartView | None](), list[Rules]()
    first_round = first = 0
    for start, end, last_round, last, distinct, shards, home in found.tolist():
        rules = _rules(data[start:end].tobytes(), kernel) if distinct or are_distinct else None
        if rules is None or (damaged and any(first_round <= r < last_round for r in damaged)):
            views.append(None)
        else:
            views.append(PartView(part_batch, first_round, last_round, first, last, shards, home))
            all_rules.append(rules)
        first_round, first = last_round, last
    if len(all_rules) < len(messages):  # a batch has no rows but its parts'
        taken = [m for m, view in zip(messages, views, strict=True) if view is not None]
        again = iter(_read(taken, kernel, are_distinct=are_distinct) if taken else ())
        return [None if view is None else next(again) for view in views]
    _number_rules(part_batch, found[:, unpacking.ROUNDS], all_rules)
    return views


def _unpacked(data: Bytes, ends: Ints) -> tuple[PartBatch, Ints]:
    """A batch without rules and traces yet, and (M, MESSAGE) what is found of each message."""
    most_rounds, most = 1 + len(data) // LEAST_ROUND, 1 + len(data) // LEAST_ROW
    rounds, rows = np.empty((ROUND, most_rounds), np.int64), np.empty((ROW, most), np.int64)
    evidence, fingerprints = np.empty((most, schema.EVIDENCE_COLUMNS)), np.empty(most, np.uint64)
    seen = evidence.view(np.int64)
    found = unpacking.unpack(data, ends, rounds, rows, seen, fingerprints, SECRET_KEY)
    last_round, last = found[-1, [unpacking.ROUNDS, unpacking.ROWS]].tolist()
    rounds, rows = rounds[:, :last_round].copy(), rows[:, :last].copy()
    return PartBatch(
        data, [], rounds, rows, evidence[:last].copy(), fingerprints[:last].copy(), {}
    ), found


def _number_rules(part_batch: PartBatch, round_ends: Ints, rules: Sequence[Rules]) -> None:
    """Collect the rules of all messages, equal ones once, and number those of the rounds anew."""
    numbers: dict[RatingRule, int] = {}
    start, before, own = 0, Rules(), list[int]()
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
def _rules(packed: bytes, kernel: int) -> Rules | None:
    """The rules in a message; None if not all are of kernel versions that we apply."""
    try:
        rules = _decode_rules(packed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return rules if all(OLDEST_KERNEL <= each.kernel <= kernel for each in rules) else None


def _traces(part_batch: PartBatch) -> Iterator[tuple[int, Trace | None]]:
    """The traces that rounds have, by number of the round; None for a damaged one."""
    starts, ends = part_batch.rounds[TRACE], part_batch.rounds[TRACE_END]
    for r in np.flatnonzero(ends).tolist():
        try:
            yield r, _decode_trace(part_batch.data[starts[r] : ends[r]].tobytes())
        except (msgspec.DecodeError, UnicodeDecodeError):
            yield r, None


_decode_rules = msgspec.msgpack.Decoder(Rules).decode
_decode_trace = msgspec.msgpack.Decoder(Trace).decode

NO_ROWS = PartView(
    PartBatch(
        np.empty(0, np.uint8), [], np.empty((ROUND, 0), np.int64), np.empty((ROW, 0), np.int64),
        np.empty((0, schema.EVIDENCE_COLUMNS)), np.empty(0, np.uint64), {},
    ),
    0, 0, 0, 0,
)  # fmt: skip
"""The part of no rows: what a message that is no part does to a shard."""


def concat(views: Sequence[PartView]) -> tuple[PartBatch, Ints]:
    """One batch that has all these parts, and (n,) which of its rows are theirs, part by part."""
    batches = list({id(each.part_batch): each.part_batch for each in views}.values())
    ends = accumulate(len(each.fingerprints) for each in batches)
    bases = {
        id(each): end - len(each.fingerprints) for each, end in zip(batches, ends, strict=True)
    }
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
        np.concatenate([each.fingerprints for each in batches]),
        traces,
    )
