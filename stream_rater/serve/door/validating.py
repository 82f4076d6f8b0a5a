"""Validates rounds and corrections before they are written, by the workers' own decoders.

A verdict depends on the ladders file, on the offset that the record will have, and on the time now.
The offset is not known. So a round is refused only if it would be rejected at the known end of the
log and after each later change of its ladder. A valid one may still be rejected by a worker: as a
duplicate, by the terms at its offset, or for the new standings of an amendment.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from stream_rater.columns.sharding import partition_of
from stream_rater.config.ladders import Ladders
from stream_rater.contract import corrections, events
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import MAX_ID_BYTES, UNDECODABLE, to_json
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import SEEDS
from stream_rater.rating.seats import NO_SEAT
from stream_rater.rounds import correction_records
from stream_rater.rounds.batch import OneRound
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.rounds.validation import Invalid

_PLACES = (
    re.compile(r"^(standings[\w.\[\]]*|completed_at|weight|round_id|ladder|from|until|season"
               r"|keep|sigma|players[\w.\[\]]*|player|into|mu|at|rounds):"),
    re.compile(r" - at `\$\.?([^`]*)`"), re.compile(r"missing required field `(\w+)`"),
)  # fmt: skip
_OF_PLAYERS = {
    ("duplicate-player", True): "body.standings", ("bad-id", False): "body.standings",
    ("bad-id", True): "body.players", ("bad-merge", False): "body.into",
}  # fmt: skip
"""The places of mistakes whose text names a player, by code, and by whether it stands twice."""


class ValidRound(NamedTuple):
    """A round that may be written."""

    ladder: str
    round_id: str
    completed_at: str
    partition: int
    players: int  # The number of its players.
    content: int  # What it says, as `content_of` gives it.
    value: bytes  # The record's value: the round as it was sent, with the ladder.
    warnings: list[str]  # As in the answer (`bodies.RoundTaken`).


class ValidCorrection(NamedTuple):
    """A correction, a seed or a reset that may be written."""

    ladder: str
    kind: str
    partition: int
    value: bytes
    round_id: str  # The round that it is about; empty if it is about none.
    batched: bool  # Whether it waits for the others of its batch.


class PathMismatch(Exception):
    """The ladder in the body is not that of the path. The text says so."""


class Validator:
    """Validates bodies. It is for one thread."""

    def __init__(self, ladders: Ladders, partitions: int, end_of: Callable[[int], int]) -> None:
        """`end_of` returns the known end of a partition of `round-completed`."""
        self._ladders, self._partitions, self._end_of = ladders, partitions, end_of
        self._decoder = RoundDecoder(ladders, partitions)

    def rounds(
        self, bodies: Sequence[tuple[bytes, str]], now_s: float
    ) -> list[ValidRound | Invalid | PathMismatch]:
        """Validate rounds, each with the ladder of its path; empty: none. `now_s`: Unix seconds."""
        found: list[ValidRound | Invalid | PathMismatch] = []
        records, other = list[Record](), dict[int, PathMismatch]()
        for i, (body, ladder) in enumerate(bodies):
            value = with_ladder(body, ladder)
            name = ladder_in(value)
            if ladder and name and name != ladder:
                other[i] = _other_ladder(name, ladder)
            records.append(self._record(name, value, now_s))
        rounds, rejections = self._decoder.decode(records)
        valid = iter(rounds)
        for i, (record, rejection) in enumerate(zip(records, rejections, strict=True)):
            each = next(valid) if rejection is None else self._accepted_later(record)
            if i in other:
                found.append(other[i])
            elif each is None:
                assert rejection is not None
                found.append(rejection)
            else:
                found.append(
                    ValidRound(
                        each.ladder, each.round_id, each.completed_at, record.partition,
                        int(each.batch.sizes[0]), content_of(each), record.value or b"",
                        unknown_fields(record.value or b"") if each.batch.unknown[0] else [],
                    )
                )  # fmt: skip
        return found

    def correction(self, body: bytes, ladder: str, now_s: float) -> ValidCorrection:
        """Validate a correction, a seed or a reset. Raises Invalid or PathMismatch."""
        value = with_ladder(body, ladder)
        name = ladder_in(value)
        if name and name != ladder:
            raise _other_ladder(name, ladder)
        kind = corrections.kind_of_line(value)
        if not kind:
            known = ", ".join((*corrections.KINDS, *SEEDS))
            raise Invalid("malformed", f"event_type: give one of {known}")
        record = self._record(name, value, now_s)
        headed = msgspec.structs.replace(record, headers=[(EVENT_TYPE, kind.encode())])
        decoded = self._decoded_correction(headed)
        round_id, batched = getattr(decoded, "round_id", ""), getattr(decoded, "batched", False)
        return ValidCorrection(ladder, kind, record.partition, value, round_id, batched)

    def _decoded_correction(self, record: Record) -> object:
        """The correction, seed or reset. Raises Invalid if it would be rejected at every offset."""
        decode: Callable[[Record, Ladders, int], object] = correction_records.decode_correction
        if correction_records.is_seed(record):
            decode = correction_records.decode_seed
        try:
            return decode(record, self._ladders, self._partitions)
        except Invalid:
            for later in self._later(record):
                with suppress(Invalid):
                    return decode(later, self._ladders, self._partitions)
            raise

    def _accepted_later(self, record: Record) -> OneRound | None:
        """The round, if it is accepted after a later change of its ladder."""
        for later in self._later(record):
            with suppress(Invalid):
                return self._decoder.read(later)
        return None

    def _later(self, record: Record) -> Iterator[Record]:
        """Yield the record at the offsets of the later changes of its ladder."""
        ladder = self._ladders.ladders.get(ladder_in(record.value or b""))
        for offset in ladder.offsets if ladder is not None else ():
            if offset > record.offset:
                yield msgspec.structs.replace(record, offset=offset)

    def warm(self) -> None:
        """Validate a round, so that whatever must be compiled is compiled."""
        body = b'{"ladder":"x","round_id":"x","completed_at":"","standings":[]}'
        self.rounds([(body, "")], 0.0)

    def _record(self, ladder: str, value: bytes, now_s: float) -> Record:
        """The record as the log would have it."""
        fits = 0 < len(ladder) <= MAX_ID_BYTES
        partition = partition_of(ladder, self._partitions) if fits else 0
        return Record(partition, self._end_of(partition), value, received_s=now_s)


def content_of(each: OneRound) -> int:
    """A number, within this process the same for two rounds that say the same, whatever the order
    of their entries and the form of their times. It is not 0."""
    batch, names = each.batch, each.batch.names.hashes
    of = np.repeat(np.arange(len(batch.place)), batch.members)
    sides = np.zeros(len(batch.place), np.uint64)
    np.add.at(sides, of, names)
    seat = batch.seat if (batch.seat != NO_SEAT).any() else sides  # of all entries, or of none
    score = sides if np.isnan(batch.score).all() else batch.score
    order = np.argsort(names)
    entries: list[Any] = [sides, batch.place, seat, score]
    parts = [names, batch.share, *(column[of] for column in entries)]
    numbers = each.time, each.weight, each.ceiling
    return hash((numbers, *(part[order].tobytes() for part in parts))) or 1


MOST_WARNED_BYTES, MOST_WARNINGS = 2**16, 10
"""The most bytes of a round whose unknown fields are named, and the most that are."""
_KNOWN: dict[type, tuple[str, ...]] = {
    each: each.__struct_fields__ for each in (events.RoundCompleted, events.Entry)
}


def unknown_fields(value: bytes) -> list[str]:
    """One line for each unknown field in the record of a valid round, with a known one like it."""
    if len(value) > MOST_WARNED_BYTES:
        return []
    found = dict[str, str]()
    try:
        sent = msgspec.json.decode(value)
    except UNDECODABLE:  # a value that nobody reads
        return []
    parts: list[tuple[str, Any, type]] = [("", sent, events.RoundCompleted)]
    parts += [(f"standings[{i}].", e, events.Entry) for i, e in enumerate(sent["standings"])]
    for place, part, kind in parts:
        for name in part.keys() - _KNOWN[kind]:
            if name not in found and len(found) < MOST_WARNINGS:
                near = difflib.get_close_matches(name, _KNOWN[kind], n=1)
                cure = f": did you mean {near[0]}?" if near else ""
                found[name] = f"{place}{events.shown(name[:MAX_ID_BYTES])}: unknown field{cure}"
    return sorted(found.values())


def place_in(invalid: Invalid) -> str | None:
    """The place of the mistake in the body, if the text of the error has it."""
    found = next(filter(None, (each.search(str(invalid)) for each in _PLACES)), None)
    if found is None:
        return _OF_PLAYERS.get((invalid.code, "twice" in str(invalid)))
    return f"body.{found[1]}"


class _Entry(msgspec.Struct):
    player: str | None = None
    team: list[str] | None = None
    rank: int | None = None
    dnf: bool = False


class _Standings(msgspec.Struct):
    standings: list[_Entry]


_standings = msgspec.json.Decoder(_Standings).decode


def ranks_in(value: bytes) -> dict[str, int | None]:
    """The players in the record of a valid round, with their ranks; None: did not finish."""
    return {
        player: None if entry.dnf else entry.rank
        for entry in _standings(value).standings
        for player in entry.team or ([] if entry.player is None else [entry.player])
    }


class _Named(msgspec.Struct):
    ladder: str | UnsetType = UNSET
    round_id: Any = ""


_named = msgspec.json.Decoder(_Named).decode


def ladder_in(value: bytes) -> str:
    """The ladder that a body names; empty if it names none or is no JSON object."""
    try:
        found = _named(value).ladder
    except UNDECODABLE:
        return ""
    return "" if found is UNSET else str(found)


def id_in(value: bytes) -> str:
    """The id of the round in a body; empty if there is none of at most 128 bytes."""
    try:
        found = _named(value).round_id
    except UNDECODABLE:
        return ""
    return found if isinstance(found, str) and len(found.encode()) <= MAX_ID_BYTES else ""


def with_ladder(body: bytes, ladder: str) -> bytes:
    """The body without blanks around it. If it is an object without a ladder, this one is added."""
    value = body.strip()
    if not ladder or not value.startswith(b"{"):
        return value
    try:
        if _named(value).ladder is not UNSET:
            return value
    except UNDECODABLE:
        return value
    rest = value[1:].lstrip()
    return b'{"ladder":' + to_json(ladder) + (b"" if rest == b"}" else b",") + rest


def _other_ladder(name: str, ladder: str) -> PathMismatch:
    return PathMismatch(
        f"it names ladder {name[:MAX_ID_BYTES]!r}, and the path {ladder!r}: leave one out, or name "
        "the same"
    )
