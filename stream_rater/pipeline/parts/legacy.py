"""Reads parts of the versions that the last release wrote: 1 for rounds, 3 for a correction, and 4
for seeds or resets. Updaters read them for one release, `rebuild` as long as a log may have them.

In all of them what a record says is written once, and what it says of each player is a column. The
evidence in a part of rounds may lack its last column.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from stream_rater.columns.strings import StringColumn
from stream_rater.contract.record import Trace
from stream_rater.contract.seeds import SEEDS
from stream_rater.pipeline.parts.schema import EVIDENCE_COLUMNS, Part, UnknownPart
from stream_rater.rating.model import BEGAN
from stream_rater.rating.stages import RatingRule

ROUNDS, CORRECTION, SEEDED = 1, 3, 4  # The first element of the messages.


class _Round(msgspec.Struct, frozen=True, array_like=True, gc=False):
    offset: int
    rule: int
    time: int
    round_id: str
    ladder: str
    completed_at: str
    trace: Trace | None = None


class _Rounds(msgspec.Struct, frozen=True, array_like=True):
    version: Annotated[int, msgspec.Meta(ge=ROUNDS, le=ROUNDS)]
    rules: tuple[RatingRule, ...]
    rounds: tuple[_Round, ...]
    round_index: bytes
    place: bytes
    evidence: bytes
    players: list[str]
    shards: int = 0

    def part(self) -> Part:
        n = len(self.players)
        widths = 8 * BEGAN, 8 * EVIDENCE_COLUMNS
        if len(self.evidence) not in (n * widths[0], n * widths[1]):
            raise UnknownPart(f"part: columns differ in length from its {n} players")
        index = _column(self.round_index, "<i4", n)
        _check_index(index, len(self.rounds))
        if any(not 0 <= each.rule < len(self.rules) for each in self.rounds):
            raise UnknownPart("part: a round without a rule")
        evidence = np.frombuffer(self.evidence, "<f8").reshape(n, -1) if n else np.empty((0, BEGAN))
        return Part(
            rules=self.rules, **_columns(self.rounds), round_index=index,
            place=_column(self.place, "<i4", n).astype(np.int32), evidence=evidence,
            names=StringColumn.of(self.players), shards=self.shards,
        )  # fmt: skip


class _Correction(msgspec.Struct, frozen=True, array_like=True):
    version: Annotated[int, msgspec.Meta(ge=CORRECTION, le=CORRECTION)]
    kernel: int
    shards: int
    offset: int
    ladder: str
    cause: str
    round_id: str
    completed_at: str
    rule: RatingRule
    threshold: float
    players: list[str]
    records: list[bytes]

    def part(self) -> Part:
        n = len(self.players)
        if n != len(self.records):
            raise UnknownPart("part: a record a player")
        rule = msgspec.structs.replace(self.rule, kernel=self.kernel)
        about = self.round_id, self.ladder, self.completed_at
        return Part.of_correction(
            rule, _number(self.offset), about, StringColumn.of(self.players), self.shards,
            self.cause, self.threshold, StringColumn.of_bytes(self.records),
        )  # fmt: skip


class _SeedRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    offset: int
    time: int
    round_id: str
    completed_at: str


class _Seeds(msgspec.Struct, frozen=True, array_like=True):
    version: Annotated[int, msgspec.Meta(ge=SEEDED, le=SEEDED)]
    kernel: int
    shards: int
    kind: str
    ladder: str
    rule: RatingRule
    records: tuple[_SeedRecord, ...]
    record: bytes
    mu: bytes
    sigma: bytes
    rounds: bytes
    players: list[str]

    def part(self) -> Part:
        if self.kind not in SEEDS:
            raise UnknownPart(f"part: of kind {self.kind!r}")
        n = len(self.players)
        index = _column(self.record, "<i4", n)
        _check_index(index, len(self.records))
        columns = (self.mu, "<f4"), (self.sigma, "<f4"), (self.rounds, "<i4")
        given = np.column_stack([_column(*each, n).astype(np.float64) for each in columns])
        records = [
            _Round(each.offset, 0, each.time, each.round_id, self.ladder, each.completed_at)
            for each in self.records
        ]
        rule = msgspec.structs.replace(self.rule, kernel=self.kernel)
        return Part(
            rules=[rule], **_columns(records), round_index=index, place=np.zeros(n, np.int32),
            evidence=given, names=StringColumn.of(self.players), shards=self.shards,
            cause=self.kind,
        )  # fmt: skip


def _number(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise UnknownPart("part: a number is too large")
    return value


def _columns(records: Sequence[_Round]) -> dict[str, Any]:
    """The columns of these records, by name."""
    columns = {name: [getattr(each, name) for each in records] for name in _Round.__struct_fields__}
    numbers = {
        name: np.array([*map(_number, columns[name])], np.int64)
        for name in ("offset", "rule", "time")
    }
    return columns | numbers


def _column(data: bytes, kind: str, rows: int) -> np.ndarray:
    """A column of four bytes a row. Integers become those of 64 bits."""
    if len(data) != 4 * rows:
        raise UnknownPart(f"part: columns differ in length from its {rows} players")
    column = np.frombuffer(data, kind)
    return column.astype(np.int64) if kind == "<i4" else column


def _check_index(index: Sequence[int] | np.ndarray, count: int) -> None:
    if len(index) and not 0 <= int(np.min(index)) <= int(np.max(index)) < count:
        raise UnknownPart("part: a row of no record")


FORMS: dict[int, type[_Rounds | _Correction | _Seeds]] = {
    ROUNDS: _Rounds, CORRECTION: _Correction, SEEDED: _Seeds,
}  # fmt: skip


def decode(data: bytes, version: int) -> Part:
    """Decode the part in a message of this version. Raises UnknownPart."""
    if version not in FORMS:
        raise UnknownPart(f"part: version {version} is of another release")
    try:
        return msgspec.msgpack.decode(data, type=FORMS[version]).part()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownPart(f"part: {error}") from None
