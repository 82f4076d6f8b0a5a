"""Parts that give beliefs to players of one shard: correction parts and seed parts.

A correction at offset c of `round-completed` is applied by a replay of the edited log. Each player
whose belief it changes gets the whole belief that results from the replay. A row changes a stored
belief under the same rule as a row of a round: c must be after the `last` of the belief that the
shard has.

A seed part has the ratings that seeds or resets give to players. It is columnar, as a part of
rounds is: what a record says is written once, and what it says of each player is a column. Seeds
and resets are never in one part. A player's second row is in a later part of the shard. A row of a
seed changes a belief only if the player has no round yet, and a row of a reset only if the player
has one. The updater decides this, since only the shard's beliefs show it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.sharding import shards_of_names
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.seeds import SEEDS
from stream_rater.pipeline.parts import schema, unpacking
from stream_rater.pipeline.parts.decoder import PartView, Rows
from stream_rater.pipeline.parts.schema import OLDEST_KERNEL, NotAPart, UnknownPart, check_kernel
from stream_rater.rating.stages import RatingRule

CORRECTION, SEEDED = 3, 4
"""The first element of the messages, where parts of rounds have schema.VERSION."""


class RecordInPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record of `round-completed`: a seed or a reset."""

    offset: int  # The offset of the record.
    time: int
    """The time from which on the ratings count, in Unix seconds."""
    round_id: str
    completed_at: str  # The same time, as reported.


def rows_of(
    ladder: str, rule: RatingRule, records: Sequence[RecordInPart], record: Ints,
    names: StringColumn, given: StringColumn | Floats,
) -> Rows:  # fmt: skip
    """The rows of players of one ladder, as if the records were rounds that nobody finished,
    without a performance. `record` (n,) is the index of each row's record, `names` (n,) are the
    players, and `given` (n,) or (n, 3) is what the rows give to them: encoded beliefs, or mu, sigma
    and the number of rounds."""
    n, of = len(record), unpacking
    texts = [text for each in records for text in (each.round_id, each.completed_at)]
    all_texts = StringColumn.concat([names, StringColumn.of([ladder, *texts])])
    starts, ends = all_texts.starts[n:], all_texts.ends[n:]
    rounds = np.zeros((of.ROUND, len(records)), np.int64)
    rounds[of.OFFSET] = [each.offset for each in records]
    rounds[of.TIME] = [each.time for each in records]
    rounds[of.LADDER], rounds[of.LADDER_END] = starts[0], ends[0]
    rounds[of.ID], rounds[of.ID_END] = starts[1::2], ends[1::2]
    rounds[of.AT], rounds[of.AT_END] = starts[2::2], ends[2::2]
    columns = np.zeros((of.ROW, n), np.int64)
    columns[of.INDEX] = record
    columns[of.NAME], columns[of.NAME_END] = all_texts.starts[:n], all_texts.ends[:n]
    nothing = np.full((n, schema.EVIDENCE_COLUMNS), np.nan)
    # The players of a part are distinct, so any distinct numbers can be their fingerprints.
    prints = np.arange(n, dtype=np.uint64)
    return Rows(all_texts.data, [rule], rounds, columns, nothing, prints, {}, given)


def _view(rows: Rows, shards: int, cause: str, threshold: float = 0.0) -> PartView:
    """The part that these rows are."""
    homes = set(shards_of_names(rows.players.names, shards).tolist()) if shards else set[int]()
    home = homes.pop() if len(homes) == 1 else unpacking.NOWHERE
    return PartView(rows, 0, rows.rounds.shape[1], 0, len(rows), shards, home, cause, threshold)


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
    """The points by which a displayed rating must move for its event to be published at once."""
    players: list[str]  # (n,) the ids of the players.
    records: list[bytes]
    """(n,) the encoded beliefs. Their `last` and `previous_` fields have no meaning."""

    @property
    def view(self) -> PartView:
        """The part, as updaters apply it."""
        place = [RecordInPart(self.offset, 0, self.round_id, self.completed_at)]
        names, records = StringColumn.of(self.players), StringColumn.of_bytes(self.records)
        index = np.zeros(len(names), np.int64)
        rows = rows_of(self.ladder, self.rule, place, index, names, records)
        return _view(rows, self.shards, self.cause, self.threshold)


class _SeedMessage(msgspec.Struct, frozen=True, array_like=True):
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

    def take(self, rows: Ints) -> "SeedPart":
        """A part of these rows only, with the records that they need."""
        needed, record = np.unique(self.record[rows], return_inverse=True)
        return replace(
            self, records=[self.records[i] for i in needed.tolist()], record=record,
            names=self.names.take(rows), mu=self.mu[rows], sigma=self.sigma[rows],
            rounds=self.rounds[rows],
        )  # fmt: skip

    @property
    def view(self) -> PartView:
        """The part, as updaters apply it."""
        given: Floats = np.column_stack((self.mu, self.sigma, self.rounds.astype(np.float64)))
        rows = rows_of(self.ladder, self.rule, self.records, self.record, self.names, given)
        return _view(rows, self.shards, self.kind)


_encode = msgspec.msgpack.Encoder().encode
_decode_correction = msgspec.msgpack.Decoder(CorrectionPart).decode
_decode_seeds = msgspec.msgpack.Decoder(_SeedMessage).decode
_CORRECTION_BEGINS = bytes([0x90 | len(CorrectionPart.__struct_fields__), CORRECTION])
_SEEDS_BEGIN = bytes([0x90 | len(_SeedMessage.__struct_fields__), SEEDED])

M = TypeVar("M", CorrectionPart, _SeedMessage)


def is_correction(data: bytes) -> bool:
    """Whether a message begins as a correction part does."""
    return data[:2] == _CORRECTION_BEGINS


def is_seeded(data: bytes) -> bool:
    """Whether a message begins as a seed part does."""
    return data[:2] == _SEEDS_BEGIN


def encode_correction(part: CorrectionPart) -> bytes:
    """Encode a correction part as a message."""
    return _encode(part)


def encode_seeds(part: SeedPart) -> bytes:
    """Encode a seed part as a message."""
    return _encode(
        _SeedMessage(
            SEEDED, part.kernel, part.shards, part.kind, part.ladder, part.rule,
            tuple(part.records), part.record.astype("<i4").tobytes(),
            part.mu.astype("<f4").tobytes(), part.sigma.astype("<f4").tobytes(),
            part.rounds.astype("<i4").tobytes(), part.names.texts(),
        )
    )  # fmt: skip


def decode_correction(
    data: bytes, kernel: int = KERNEL_VERSION, *, oldest: int = OLDEST_KERNEL
) -> CorrectionPart:
    """Decode the correction part in a message. Raises NotAPart if it does not begin as one, and
    UnknownPart if it is damaged or its kernel version is not in `oldest` to `kernel`."""
    is_one = is_correction(data)
    part = _decoded("correction part", _decode_correction, data, is_one, (kernel, oldest))
    if len(part.players) != len(part.records) or len(set(part.players)) < len(part.players):
        raise UnknownPart("correction part: a record a player, and each player once")
    return part


def decode_seeds(
    data: bytes, kernel: int = KERNEL_VERSION, *, oldest: int = OLDEST_KERNEL
) -> SeedPart:
    """Decode the seed part in a message. Raises the errors that `decode_correction` raises."""
    message = _decoded("seed part", _decode_seeds, data, is_seeded(data), (kernel, oldest))
    _check(message)
    return SeedPart(
        message.kind, message.ladder, message.rule, message.records,
        np.frombuffer(message.record, "<i4").astype(np.int64), StringColumn.of(message.players),
        np.frombuffer(message.mu, "<f4").astype(np.float64),
        np.frombuffer(message.sigma, "<f4").astype(np.float64),
        np.frombuffer(message.rounds, "<i4").astype(np.int64), message.shards, message.kernel,
    )  # fmt: skip


def read(data: bytes, kernel: int, *, oldest: int = OLDEST_KERNEL) -> PartView | None:
    """The correction part or seed part in a message; None if it has neither. Raises UnknownPart."""
    if is_correction(data):
        return decode_correction(data, kernel, oldest=oldest).view
    return decode_seeds(data, kernel, oldest=oldest).view if is_seeded(data) else None


def _decoded(
    name: str, decode: Callable[[bytes], M], data: bytes, is_one: bool, kernels: tuple[int, int]
) -> M:
    if not is_one:
        raise NotAPart(f"no {name}")
    try:
        message = decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownPart(f"{name}: {error}") from None
    check_kernel(message.kernel, *kernels)
    return message


def _check(message: _SeedMessage) -> None:
    """Raise UnknownPart if a column has the wrong length, a row has no record, a player has two
    rows, or the kind is unknown."""
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
