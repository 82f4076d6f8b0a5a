"""A seed part: ratings that seeds or resets give to players of one shard, as one message of
`performance-estimated`.

It is columnar, as a part of rounds is: what a record of `round-completed` says is written once, and
what it says of each player is a column. Seeds and resets are never in one part. No player has two
rows in a part; a player's second row is in a later part of the shard.

A row of a seed changes a belief only if the player has no round yet, and a row of a reset only if
the player has one. The updater decides this, since only the shard's beliefs show it. As with all
rows, the offset of the record must also be after the belief's `last`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.seeds import RESET, SEEDS
from stream_rater.pipeline.parts import schema, unpacking
from stream_rater.pipeline.parts.decoder import Rows
from stream_rater.pipeline.parts.schema import OLDEST_KERNEL, NotAPart, UnknownPart, check_kernel
from stream_rater.rating.stages import RatingRule

SEEDED = 4  # The first element of the message, where parts of rounds have schema.VERSION.


class RecordInPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record of `round-completed`: a seed or a reset."""

    offset: int  # The offset of the record.
    time: int  # The time from which on the ratings count, Unix seconds.
    round_id: str
    completed_at: str  # The same time, as reported.


class _Message(msgspec.Struct, frozen=True, array_like=True):
    version: Annotated[int, msgspec.Meta(ge=SEEDED, le=SEEDED)]
    kernel: int
    shards: int
    kind: str
    ladder: str
    rule: RatingRule
    records: tuple[RecordInPart, ...]
    record: bytes
    mu: bytes
    sigma: bytes
    rounds: bytes
    players: list[str]


@dataclass(frozen=True, eq=False)
class SeedPart:
    """n rows, each of which is one player in one of the part's records. All records are of one
    ladder, and all of them are seeds or all are resets."""

    kind: str  # `players-seeded` or `player-reset`.
    ladder: str
    rule: RatingRule  # The ladder's rule at the records.
    records: Sequence[RecordInPart]
    record: Ints  # (n,) the index of each row's record.
    names: StringColumn  # (n,) the ids of the players.
    mu: Floats  # (n,) the ratings (float32). NaN where a reset keeps the rating.
    sigma: Floats  # (n,) the uncertainties (float32); of a reset the least one afterwards.
    rounds: Ints  # (n,) the number of rounds that stand behind each rating; 0 of a reset.
    shards: int = 0  # The number of shards when the part was made.
    kernel: int = KERNEL_VERSION  # The KERNEL_VERSION of the worker that made the part.

    def __len__(self) -> int:
        return len(self.record)

    @property
    def is_reset(self) -> bool:
        """Whether the records are resets."""
        return self.kind == RESET

    @property
    def column(self) -> PlayerColumn:
        """(n,) the players, with their ladder."""
        ladders = LadderColumn(StringColumn.of([self.ladder]))
        return PlayerColumn(ladders, np.zeros(len(self), np.int64), self.names)

    @property
    def offset(self) -> Ints:
        """(n,) the offset of each row's record in `round-completed`."""
        return np.array([each.offset for each in self.records], np.int64)[self.record]

    @property
    def time(self) -> Ints:
        """(n,) the time of each row's record, Unix seconds."""
        return np.array([each.time for each in self.records], np.int64)[self.record]

    def take(self, rows: Ints) -> "SeedPart":
        """A part of these rows only, with the records that they need."""
        needed, record = np.unique(self.record[rows], return_inverse=True)
        return SeedPart(
            self.kind, self.ladder, self.rule, [self.records[i] for i in needed.tolist()], record,
            self.names.take(rows), self.mu[rows], self.sigma[rows], self.rounds[rows],
            self.shards, self.kernel,
        )  # fmt: skip

    @cached_property
    def as_rows(self) -> Rows:
        """The rows as if their records were rounds that nobody finished, without a performance."""
        heads, n = self.records, len(self)
        texts = StringColumn.of(
            [self.ladder, *(text for each in heads for text in (each.round_id, each.completed_at))]
        )
        names = StringColumn.concat([self.names, texts])
        starts, ends = names.starts[n:], names.ends[n:]
        rounds, columns = (
            np.zeros((unpacking.ROUND, len(heads)), np.int64),
            np.zeros((unpacking.ROW, n), np.int64),
        )
        rounds[unpacking.OFFSET] = [each.offset for each in heads]
        rounds[unpacking.TIME] = [each.time for each in heads]
        rounds[unpacking.LADDER], rounds[unpacking.LADDER_END] = starts[0], ends[0]
        rounds[unpacking.ID], rounds[unpacking.ID_END] = starts[1::2], ends[1::2]
        rounds[unpacking.AT], rounds[unpacking.AT_END] = starts[2::2], ends[2::2]
        columns[unpacking.INDEX] = self.record
        columns[unpacking.NAME], columns[unpacking.NAME_END] = names.starts[:n], names.ends[:n]
        nothing = np.full((n, schema.EVIDENCE_COLUMNS), np.nan)
        return Rows(names.data, [self.rule], rounds, columns, nothing, np.zeros(n, np.uint64), {})


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Message).decode
_BEGINS = bytes([0x90 | len(_Message.__struct_fields__), SEEDED])


def encode(part: SeedPart) -> bytes:
    """Encode a seed part as a message."""
    return _encode(
        _Message(
            SEEDED, part.kernel, part.shards, part.kind, part.ladder, part.rule,
            tuple(part.records), part.record.astype("<i4").tobytes(),
            part.mu.astype("<f4").tobytes(), part.sigma.astype("<f4").tobytes(),
            part.rounds.astype("<i4").tobytes(), part.names.texts(),
        )
    )  # fmt: skip


def is_seeded(data: bytes) -> bool:
    """Whether a message begins as a seed part does."""
    return data[:2] == _BEGINS


def decode(data: bytes, kernel: int = KERNEL_VERSION, *, oldest: int = OLDEST_KERNEL) -> SeedPart:
    """Decode the seed part in a message. Raises NotAPart if the message does not begin as one, and
    UnknownPart if the part is damaged or its kernel version is not in `oldest` to `kernel`, which
    is this release's own."""
    if not is_seeded(data):
        raise NotAPart("no seed part")
    try:
        message = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownPart(f"seed part: {error}") from None
    check_kernel(message.kernel, kernel, oldest)
    _check(message)
    return SeedPart(
        message.kind, message.ladder, message.rule, message.records,
        np.frombuffer(message.record, "<i4").astype(np.int64), StringColumn.of(message.players),
        np.frombuffer(message.mu, "<f4").astype(np.float64),
        np.frombuffer(message.sigma, "<f4").astype(np.float64),
        np.frombuffer(message.rounds, "<i4").astype(np.int64), message.shards, message.kernel,
    )  # fmt: skip


def _check(message: _Message) -> None:
    """Check that the columns have the right lengths and that each row has a record. Raises
    UnknownPart."""
    if message.kind not in SEEDS:
        raise UnknownPart(f"seed part: of kind {message.kind!r}")
    rows = len(message.players)
    columns = message.record, message.mu, message.sigma, message.rounds
    if any(len(column) != 4 * rows for column in columns):
        raise UnknownPart(f"seed part: columns differ in length from its {rows} players")
    record = np.frombuffer(message.record, "<i4")
    if rows and not 0 <= int(record.min()) <= int(record.max()) < len(message.records):
        raise UnknownPart("seed part: a row of no record")
    if len(set(message.players)) < rows:
        raise UnknownPart("seed part: a player stands in it twice")
