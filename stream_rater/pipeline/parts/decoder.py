"""Decodes parts for stage 2: many messages become columns in one call, and each part is a view of
some of their rows.

Most messages have a dozen rows. If each message were decoded by itself, the fixed cost of a call
would be larger than the cost of its rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

import msgspec
import numpy as np

from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.ranges import spread
from stream_rater.columns.strings import SECRET_KEY, StringColumn, distinct
from stream_rater.contract.record import Trace, runs
from stream_rater.pipeline.parts import legacy, schema
from stream_rater.pipeline.parts import unpacking as at
from stream_rater.pipeline.parts.schema import OLDEST_KERNEL, Head, UnknownPart
from stream_rater.rating.model import Evidence
from stream_rater.rating.stages import RatingRule

TOGETHER_BYTES = 2**18
"""The most bytes of the messages that one call decodes. Their rows stay in memory as long as any of
their parts waits to be applied."""


@dataclass(frozen=True, eq=False)
class Rows:
    """n rows of parts, each of which is one player in one record: in a round, or in a seed, a reset
    or a correction. There are R records; one that is in several parts is listed once for each."""

    data: Bytes  # The bytes of the messages, which contain the strings of all columns.
    rules: list[RatingRule]  # The distinct rules of all rounds.
    rounds: Ints
    """(ROUND, R) the values that `unpacking` finds for each round. RULE indexes `rules`."""
    columns: Ints  # (ROW, n) the values that `unpacking` finds for each row.
    evidence: Evidence  # (n, 4) as in Part, with NaN in columns that a part lacks.
    fingerprints: Fingerprints
    """(n,) hashes of ladder and player, without the shard that those of `player_map` have. Two
    players may share one by chance."""
    traces: dict[int, Trace | None]
    """The trace context of each round that has one, by the round's index."""

    def __len__(self) -> int:
        return len(self.fingerprints)

    @property
    def round(self) -> Ints:
        """(n,) index of each row's round."""
        index: Ints = self.columns[at.INDEX]
        return index

    @property
    def place(self) -> Ints:
        """(n,) the place of each row's player, as in Wave."""
        place: Ints = self.columns[at.PLACE]
        return place

    @cached_property
    def rule_index(self) -> Ints:
        """(n,) index of each row's rule."""
        index: Ints = self.rounds[at.RULE][self.columns[at.INDEX]]
        return index

    @cached_property
    def offset(self) -> Ints:
        """(n,) offset of each row's round in `round-completed`."""
        offset: Ints = self.rounds[at.OFFSET][self.columns[at.INDEX]]
        return offset

    @property
    def time(self) -> Ints:
        """(n,) when each row's round was completed, Unix seconds."""
        time: Ints = self.rounds[at.TIME][self.columns[at.INDEX]]
        return time

    @cached_property
    def players(self) -> PlayerColumn:
        """(n,) the player of each row."""
        ids = StringColumn(self.data, *self.rounds[at.LADDER : at.LADDER_END + 1])
        ladders, ladder = distinct(ids)
        names = StringColumn(self.data, *self.columns[at.NAME : at.NAME_END + 1])
        return PlayerColumn(LadderColumn(ladders), ladder[self.columns[at.INDEX]], names)

    @property
    def beliefs(self) -> StringColumn:
        """(n,) the encoded belief that each row of a correction gives to its player."""
        return StringColumn(self.data, *self.columns[at.BELIEF : at.BELIEF_END + 1])

    @property
    def round_ids(self) -> StringColumn:
        """(R,) the id of each round."""
        return StringColumn(self.data, *self.rounds[at.ID : at.ID_END + 1])

    @property
    def completed_at(self) -> tuple[StringColumn, Ints]:
        """The distinct times of completion, as reported, and (R,) the index of each round's."""
        return distinct(StringColumn(self.data, *self.rounds[at.AT : at.AT_END + 1]))

    def take(self, rows: Ints) -> "Rows":
        """Return these rows only, with all rounds."""
        return Rows(
            self.data, self.rules, self.rounds, self.columns.take(rows, axis=1),
            self.evidence[rows], self.fingerprints[rows], self.traces,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartView:
    """One part: consecutive rounds and rows among those that were decoded together."""

    decoded: Rows  # The rows of all parts that were decoded with this one.
    first_round: int
    last_round: int  # The index after the part's last round.
    first: int
    last: int  # The index after the part's last row.
    shards: int = 0  # The number of shards that the part was cut for; 0: unknown.
    home: int = at.NOWHERE
    """The shard that all players of the part belong to; NOWHERE: unknown, or several shards."""
    cause: str = ""
    """The kind of the records, as in Head. If they are no rounds, the part is applied in a call of
    its own."""
    threshold: float = 0.0  # As in Head.
    epoch: bytes | None = None  # As in Head.
    arrived_s: float = 0.0  # As in Head.

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def players(self) -> list[str]:
        """(n,) the ids of the part's players."""
        columns = self.decoded.columns[:, self.first : self.last]
        return StringColumn(self.decoded.data, columns[at.NAME], columns[at.NAME_END]).texts()

    def traced(self) -> Iterator[tuple[Trace, str, str]]:
        """Yield the trace, ladder and id of each round that has a trace."""
        for r, trace in self.decoded.traces.items():
            if trace and self.first_round <= r < self.last_round:
                yield trace, _text(self.decoded, at.LADDER, r), _text(self.decoded, at.ID, r)


def _text(rows: Rows, column: int, r: int) -> str:
    """The text of round r whose start is in this column, and its end in the next column."""
    start, end = rows.rounds[column : column + 2, r].tolist()
    return rows.data[start:end].tobytes().decode()


def read_all(messages: Sequence[bytes], kernel: int = KERNEL_VERSION) -> list[PartView | None]:
    """Decode the part in each message. The result is None for a message that only `read` can decode
    or refuse."""
    kernels = OLDEST_KERNEL, kernel
    return [each for group in runs(messages, TOGETHER_BYTES) for each in _read(group, kernels)]


def read(data: bytes, kernel: int = KERNEL_VERSION, *, oldest: int = OLDEST_KERNEL) -> PartView:
    """Decode the part in one message, of this version or of one that the last release wrote.
    `oldest` to `kernel`, which is this release's own, are the accepted kernel versions. Raises
    RebuildMark for a mark, NotAPart for a message that does not begin as a part, and UnknownPart
    for a part that is damaged, of another version, or has a player twice."""
    if (version := schema.version_of(data)) != schema.VERSION:
        data = schema.encode(legacy.decode(data, version))
    decoded, (found,) = _unpacked([data])
    try:
        head = _decode_head(data[found[at.HEAD] : found[at.HEAD_END]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownPart(f"part: {error}") from None
    for rule in head.rules:
        schema.check_kernel(rule.kernel, kernel, oldest)
    (view,) = _read([data], (oldest, kernel), are_distinct=True)
    if view is None:
        raise UnknownPart("part: damaged")
    if len(set(decoded.players)) < len(decoded):
        raise UnknownPart("part: a player stands in it twice")
    return view


def _read(
    messages: Sequence[bytes], kernels: tuple[int, int], *, are_distinct: bool = False
) -> list[PartView | None]:
    """Decode messages together, whose kernel version must be from the first to the second of
    `kernels`. `are_distinct` asserts that no message has a player twice; otherwise the fingerprints
    are compared."""
    decoded, found = _unpacked(messages)
    damaged = [r for r, trace in decoded.traces.items() if trace is None]
    views, all_rules = list[PartView | None](), list[Sequence[RatingRule]]()
    first_round = first = 0
    for start, end, rules, last_round, last, distinct_players, shards, home in found.tolist():
        is_known = end and (distinct_players or are_distinct)
        head = _head(decoded.data[start:end].tobytes(), kernels) if is_known else None
        is_damaged = damaged and any(first_round <= r < last_round for r in damaged)
        if head is None or len(head.rules) != rules or is_damaged:
            views.append(None)
        else:
            views.append(PartView(
                decoded, first_round, last_round, first, last, shards, home, head.cause,
                head.threshold, head.epoch, head.arrived_s,
            ))  # fmt: skip
            all_rules.append(head.rules)
        first_round, first = last_round, last
    if len(all_rules) < len(messages):  # rows must come from taken messages only
        taken = [m for m, view in zip(messages, views, strict=True) if view is not None]
        decoded_again = iter(_read(taken, kernels, are_distinct=are_distinct) if taken else ())
        return [None if view is None else next(decoded_again) for view in views]
    _renumber_rules(decoded, found[:, at.ROUNDS], all_rules)
    return views


def _unpacked(messages: Sequence[bytes]) -> tuple[Rows, Ints]:
    """The rows of the messages, with an empty list of rules; and (M, MESSAGE) the values that
    `unpacking` finds for each message."""
    data = np.frombuffer(bytearray().join((*messages, at.PADDING)), np.uint8)
    ends = np.cumsum([len(each) for each in messages], dtype=np.int64)
    most_rounds, most = at.most(data, ends)
    rounds = np.empty((at.ROUND, most_rounds), np.int64)
    columns = np.empty((at.ROW, most), np.int64)
    evidence, fingerprints = np.empty((most, schema.EVIDENCE_COLUMNS)), np.empty(most, np.uint64)
    bits = evidence.view(np.int64)
    found = at.unpack(data, ends, rounds, columns, bits, fingerprints, SECRET_KEY)
    last_round, last = found[-1, [at.ROUNDS, at.ROWS]].tolist()
    rounds, columns = rounds[:, :last_round].copy(), columns[:, :last].copy()
    evidence, fingerprints = evidence[:last].copy(), fingerprints[:last].copy()
    traces = {r: _trace(data, *rounds[[at.TRACE, at.TRACE_END], r].tolist())
              for r in np.flatnonzero(rounds[at.TRACE_END]).tolist()}  # fmt: skip
    return Rows(data, [], rounds, columns, evidence, fingerprints, traces), found


def _trace(data: Bytes, start: int, end: int) -> Trace | None:
    """Decode the trace context in these bytes. Returns None if it is damaged."""
    try:
        return _decode_trace(data[start:end].tobytes())
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _renumber_rules(decoded: Rows, round_ends: Ints, rules: Sequence[Sequence[RatingRule]]) -> None:
    """Collect the distinct rules of all messages, and make the rounds' RULE an index into them."""
    numbers: dict[RatingRule, int] = {}
    start, own = 0, list[int]()
    before: Sequence[RatingRule] = ()
    for group, end in zip(rules, round_ends.tolist(), strict=True):
        if group is not before:
            before, own = group, [numbers.setdefault(each, len(numbers)) for each in group]
        if own != list(range(len(own))):
            column = decoded.rounds[at.RULE, start:end]
            column[:] = np.array(own, np.int64)[column]
        start = end
    decoded.rules.extend(numbers)


@lru_cache(maxsize=256)
def _head(packed: bytes, kernels: tuple[int, int]) -> Head | None:
    """Decode the head of a message. Returns None if it is damaged, or if this worker cannot apply
    the kernel version of one of its rules."""
    try:
        head = _decode_head(packed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return head if all(kernels[0] <= each.kernel <= kernels[1] for each in head.rules) else None


_decode_head = msgspec.msgpack.Decoder(Head).decode
_decode_trace = msgspec.msgpack.Decoder(Trace).decode

NO_ROWS = PartView(
    Rows(
        np.empty(0, np.uint8), [], np.empty((at.ROUND, 0), np.int64),
        np.empty((at.ROW, 0), np.int64), np.empty((0, schema.EVIDENCE_COLUMNS)),
        np.empty(0, np.uint64), {},
    ),
    0, 0, 0, 0,
)  # fmt: skip
"""A part without rows. It is queued in place of a message that is not a part."""


def rows_of(views: Sequence[PartView]) -> Rows:
    """The rows of these parts, part by part. `views` must not be empty."""
    decoded = list({id(each.decoded): each.decoded for each in views}.values())
    ends = accumulate(map(len, decoded))
    bases = {id(each): end - len(each) for each, end in zip(decoded, ends, strict=True)}
    firsts = np.array([bases[id(each.decoded)] + each.first for each in views], np.int64)
    sizes = np.array([each.last - each.first for each in views], np.int64)
    return (decoded[0] if len(decoded) == 1 else _concat(decoded)).take(spread(firsts, sizes))


def _concat(decoded: Sequence[Rows]) -> Rows:
    """Concatenate these rows."""
    rules: dict[RatingRule, int] = {}
    all_rounds, all_columns, traces = list[Ints](), list[Ints](), dict[int, Trace | None]()
    size = count = 0
    for each in decoded:
        rounds, columns = each.rounds.copy(), each.columns.copy()
        numbers = [rules.setdefault(rule, len(rules)) for rule in each.rules]
        rounds[at.RULE] = np.array(numbers, np.int64)[rounds[at.RULE]]
        rounds[at.ID : at.TRACE] += size
        columns[at.NAME :] += size
        columns[at.INDEX] += count
        traces |= {r + count: trace for r, trace in each.traces.items()}
        size, count = size + len(each.data), count + rounds.shape[1]
        all_rounds.append(rounds)
        all_columns.append(columns)
    return Rows(
        np.concatenate([each.data for each in decoded]),
        list(rules),
        np.concatenate(all_rounds, axis=1),
        np.concatenate(all_columns, axis=1),
        np.concatenate([each.evidence for each in decoded]),
        np.concatenate([each.fingerprints for each in decoded]),
        traces,
    )
