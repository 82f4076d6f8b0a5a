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
from stream_rater.columns.strings import SECRET_KEY, LaidOut
from stream_rater.contract.tracecontext import Trace
from stream_rater.parts import schema, unpacking
from stream_rater.parts.schema import OLDEST_KERNEL, UnknownPart
from stream_rater.parts.unpacking import (
    ID,
    INDEX,
    LADDER,
    LAW,
    LEAST_ROUND,
    LEAST_ROW,
    NAME,
    NAME_END,
    ROUND,
    ROW,
    TRACE,
    TRACE_END,
)
from stream_rater.rating.model import Evidence
from stream_rater.rating.systems import Law
from stream_rater.rounds.fastjson import runs

TOGETHER_BYTES = 2**18
"""So much is read in one call, and kept as long as any part of it is waiting."""

Laws = tuple[Law, ...]


@dataclass(frozen=True, slots=True)
class Slab:
    """R rounds and n rows of parts."""

    data: Bytes
    """Where their texts are."""
    laws: list[Law]
    """Different ones."""
    rounds: Ints
    """(ROUND, R) as `unpacking` tells them, but for the laws, which are indices into these."""
    rows: Ints
    """(ROW, n)"""
    evidence: Evidence
    """(n, 3) as in Wave's Evidence."""
    marks: Fingerprints
    """(n,) which differ where ladders or names do, but by chance."""
    traces: dict[int, Trace | None]
    """Of the rounds that have one."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a slab."""

    slab: Slab
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
        return self.slab.marks[self.first : self.last]

    @property
    def players(self) -> list[str]:
        """(n,) ids."""
        rows = self.slab.rows[:, self.first : self.last]
        return LaidOut(self.slab.data, rows[NAME], rows[NAME_END]).texts()

    def traced(self) -> Iterator[tuple[Trace, str, str]]:
        """Those of its rounds that have a trace, with their ladder and id."""
        for r, trace in self.slab.traces.items():
            if trace and self.first_round <= r < self.last_round:
                yield trace, _text(self.slab, LADDER, r), _text(self.slab, ID, r)


def _text(slab: Slab, column: int, r: int) -> str:
    """One of a round's texts."""
    start, end = slab.rounds[column : column + 2, r].tolist()
    return slab.data[start:end].tobytes().decode()


def read_all(messages: Sequence[bytes], kernel: int = KERNEL_VERSION) -> list[Piece | None]:
    """The part in each; None where `read` is to say what there is."""
    return [each for some in runs(messages, TOGETHER_BYTES) for each in _read(some, kernel)]


def read(data: bytes, kernel: int = KERNEL_VERSION) -> Piece:
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
) -> list[Piece | None]:
    """`are_distinct`: the players in each are known to be."""
    data = np.frombuffer(bytearray().join((*messages, unpacking.PADDING)), np.uint8)
    slab, found = _unpacked(data, np.cumsum([len(each) for each in messages], dtype=np.int64))
    slab.traces.update(_traces(slab))
    damaged = [r for r, trace in slab.traces.items() if trace is None]
    pieces, all_laws = list[Piece | None](), list[Laws]()
    first_round = first = 0
    for start, end, last_round, last, distinct, shards, home in found.tolist():
        laws = _laws(data[start:end].tobytes(), kernel) if distinct or are_distinct else None
        if laws is None or (damaged and any(first_round <= r < last_round for r in damaged)):
            pieces.append(None)
        else:
            pieces.append(Piece(slab, first_round, last_round, first, last, shards, home))
            all_laws.append(laws)
        first_round, first = last_round, last
    if len(all_laws) < len(messages):  # a slab has nothing but its pieces
        taken = [m for m, piece in zip(messages, pieces, strict=True) if piece is not None]
        again = iter(_read(taken, kernel, are_distinct=are_distinct) if taken else ())
        return [None if piece is None else next(again) for piece in pieces]
    _number_laws(slab, found[:, unpacking.ROUNDS], all_laws)
    return pieces


def _unpacked(data: Bytes, ends: Ints) -> tuple[Slab, Ints]:
    """What is found, with nothing of laws and traces yet."""
    most_rounds, most = 1 + len(data) // LEAST_ROUND, 1 + len(data) // LEAST_ROW
    rounds, rows = np.empty((ROUND, most_rounds), np.int64), np.empty((ROW, most), np.int64)
    evidence, marks = np.empty((most, schema.EVIDENCE_COLUMNS)), np.empty(most, np.uint64)
    seen = evidence.view(np.uint8).ravel()
    found = unpacking.unpack(data, ends, rounds, rows, seen, marks, SECRET_KEY)
    last_round, last = found[-1, [unpacking.ROUNDS, unpacking.ROWS]].tolist()
    rounds, rows = rounds[:, :last_round].copy(), rows[:, :last].copy()
    return Slab(data, [], rounds, rows, evidence[:last].copy(), marks[:last].copy(), {}), found


def _number_laws(slab: Slab, round_ends: Ints, laws: Sequence[Laws]) -> None:
    """Number those of all messages, of which equal ones are one."""
    numbers: dict[Law, int] = {}
    start, before, own = 0, Laws(), list[int]()
    for some, end in zip(laws, round_ends.tolist(), strict=True):
        if some is not before:
            before, own = some, [numbers.setdefault(each, len(numbers)) for each in some]
        if own != list(range(len(own))):
            slab.rounds[LAW, start:end] = np.array(own, np.int64)[slab.rounds[LAW, start:end]]
        start = end
    slab.laws.extend(numbers)


@lru_cache(maxsize=256)
def _laws(packed: bytes, kernel: int) -> Laws | None:
    """Those that a message has; None if they are not all ours to apply."""
    try:
        laws = _decode_laws(packed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return laws if all(OLDEST_KERNEL <= each.kernel <= kernel for each in laws) else None


def _traces(slab: Slab) -> Iterator[tuple[int, Trace | None]]:
    """By round, where there is one; None if it is damaged."""
    starts, ends = slab.rounds[TRACE], slab.rounds[TRACE_END]
    for r in np.flatnonzero(ends).tolist():
        try:
            yield r, _decode_trace(slab.data[starts[r] : ends[r]].tobytes())
        except (msgspec.DecodeError, UnicodeDecodeError):
            yield r, None


_decode_laws = msgspec.msgpack.Decoder(Laws).decode
_decode_trace = msgspec.msgpack.Decoder(Trace).decode

NO_ROWS = Piece(
    Slab(
        np.empty(0, np.uint8), [], np.empty((ROUND, 0), np.int64), np.empty((ROW, 0), np.int64),
        np.empty((0, schema.EVIDENCE_COLUMNS)), np.empty(0, np.uint64), {},
    ),
    0, 0, 0, 0,
)  # fmt: skip
"""What a message that is no part does to a shard."""


def together(pieces: Sequence[Piece]) -> tuple[Slab, Ints]:
    """A slab with all of them, and (n,) which of its rows are theirs, one piece after the other."""
    slabs = list({id(each.slab): each.slab for each in pieces}.values())
    ends = accumulate(len(each.marks) for each in slabs)
    bases = {id(each): end - len(each.marks) for each, end in zip(slabs, ends, strict=True)}
    firsts = np.array([bases[id(each.slab)] + each.first for each in pieces], np.int64)
    index = spread(firsts, np.array([len(each) for each in pieces], np.int64))
    return slabs[0] if len(slabs) == 1 else _joined(slabs), index


def _joined(slabs: Sequence[Slab]) -> Slab:
    laws: dict[Law, int] = {}
    all_rounds, all_rows, traces = list[Ints](), list[Ints](), dict[int, Trace | None]()
    size = count = 0
    for slab in slabs:
        rounds, rows = slab.rounds.copy(), slab.rows.copy()
        numbers = [laws.setdefault(each, len(laws)) for each in slab.laws]
        rounds[LAW] = np.array(numbers, np.int64)[rounds[LAW]]
        rounds[ID:TRACE] += size
        rows[NAME:] += size
        rows[INDEX] += count
        traces |= {r + count: trace for r, trace in slab.traces.items()}
        size, count = size + len(slab.data), count + rounds.shape[1]
        all_rounds.append(rounds)
        all_rows.append(rows)
    return Slab(
        np.concatenate([each.data for each in slabs]),
        list(laws),
        np.concatenate(all_rounds, axis=1),
        np.concatenate(all_rows, axis=1),
        np.concatenate([each.evidence for each in slabs]),
        np.concatenate([each.marks for each in slabs]),
        traces,
    )
