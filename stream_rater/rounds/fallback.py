"""Reads the rounds that `fastjson` does not: msgspec decodes each message, in JSON or MessagePack.
Messages that do not contain a round are rejected here: they are nested too deeply, they are not
JSON or MessagePack, or a field has a value of the wrong type."""

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar, cast

import msgspec
import numpy as np

from stream_rater.columns import arrays, ranges, strings
from stream_rater.contract import events
from stream_rater.contract.events import MAX_RANK, UNDECODABLE, Entry, Round, RoundCompleted, shown
from stream_rater.rating.model import DID_NOT_FINISH, Places
from stream_rater.rating.seats import NO_SEAT, SEAT_CURE, SeatCodes, is_seat, seat_code
from stream_rater.rounds import batch, depth, validation

T = TypeVar("T")
LONGEST_TEXT = 200
"""The most characters of msgspec's text that are kept: a field's name in it may be long."""

_FIELD_CODES = (
    (re.compile(r"\.rank`"), "bad-rank"),
    (re.compile(r"\.weight`|`weight`"), "bad-weight"),
    (re.compile(r"\.shares(\[|`)"), "bad-shares"),
    (re.compile(r"\.completed_at`|`completed_at`"), "bad-time"),
    (re.compile(r"\.(round_id|ladder|player|team)(\[[\d.]*\])?`|`(round_id|ladder)`"), "bad-id"),
)
"""The rejection code of a value of the wrong type, by the field; `malformed` for other fields."""


class Decoded(NamedTuple):
    """A round, and whether its message has unknown fields."""

    event: RoundCompleted  # If there are unknown fields, its entries are `LenientEntry`.
    unknown: bool
    packed: bool  # Whether the message is in MessagePack.


def decode(data: bytes, max_depth: int, *, packed: bool) -> Decoded:
    """Decode the round in a message. `packed`: whether it is in MessagePack. Raises Invalid."""
    depth_of = depth.msgpack_depth if packed else depth.json_depth
    if depth_of(data, max_depth) > max_depth:
        raise validation.Invalid("too-deep", f"nesting deeper than {max_depth}")
    with suppress(*UNDECODABLE):  # the second decoder finds the reason
        return Decoded(_decode_strictly(data, packed=packed), unknown=False, packed=packed)
    try:
        return Decoded(_round(data, packed=packed), unknown=True, packed=packed)
    except msgspec.ValidationError as error:
        codes = [code for pattern, code in _FIELD_CODES if pattern.search(str(error))]
        text = validation.with_cure(str(error))
        raise validation.Invalid([*codes, "malformed"][0], text) from None
    except UNDECODABLE as error:
        raise validation.Invalid("malformed", str(error)) from None


def _decode_strictly(data: bytes, *, packed: bool) -> RoundCompleted:
    """Decode the round in a message that has no unknown fields. Raises UNDECODABLE."""
    decode = events.strict_round_from_msgpack if packed else events.strict_round_from_json
    return decode(data)


def _round(data: bytes, *, packed: bool) -> RoundCompleted:
    """Decode the round in a message, which may have unknown fields. Raises UNDECODABLE."""
    return events.round_from_msgpack(data) if packed else events.round_from_json(data)


def unknown_field(data: bytes, *, packed: bool) -> str:
    """Describe the first unknown field of a message; if none, the first rank beside `dnf`."""
    try:
        event = _decode_strictly(data, packed=packed)
    except msgspec.ValidationError as error:
        return shown(str(error)[:LONGEST_TEXT])
    number = next(i for i, each in enumerate(event.standings) if _has_rank_and_dnf(each))
    return f"standings[{number}].rank: beside dnf"


def _has_rank_and_dnf(entry: Entry) -> bool:
    return entry.dnf and entry.rank is not None


def shares_mistake(data: bytes, *, packed: bool) -> str:
    """Describe the first mistake in a message's shares, with its place. There must be one."""
    for number, entry in enumerate(_round(data, packed=packed).standings):
        size, shares = len(_team(entry)), entry.shares or ()
        if entry.shares is not None and len(shares) != size:
            return f"standings[{number}].shares: {len(shares)} for {size} players"
        for share in shares:
            if not (least := validation.LEAST_SHARE) <= share <= 1.0:
                return f"standings[{number}].shares: {share} is not in [{least}, 1]"
    raise AssertionError("the round has good shares")


def seat_mistake(data: bytes, *, packed: bool) -> str:
    """Describe the first invalid seat of a message, with its place. There must be one."""
    entries = _round(data, packed=packed).standings
    number = [_seat(entry, packed=packed) for entry in entries].index(batch.BAD_SEAT)
    value = _value(entries[number].seat, packed=packed)
    return f"standings[{number}].seat: {value} is no name of a seat: {SEAT_CURE}, or leave it out"


def score_mistake(data: bytes, *, packed: bool) -> str:
    """Describe the first invalid score of a message, with its place. There must be one."""
    entries = _round(data, packed=packed).standings
    number = [_score(entry, packed=packed) for entry in entries].index(batch.BAD_SCORE)
    return (
        f"standings[{number}].score: {_value(entries[number].score, packed=packed)} is no finite "
        "number: give one, without quotes, or leave it out"
    )


MISTAKES: Final = {
    "unknown": unknown_field, "shares": shares_mistake, "seat": seat_mistake,
    "score": score_mistake,
}  # fmt: skip
"""The functions that decode a message again to describe a mistake in it."""


def _value(raw: object, *, packed: bool) -> str:
    """The value of a field as JSON, cut to LONGEST_TEXT characters."""
    data = bytes(cast(msgspec.Raw, raw))
    with suppress(*UNDECODABLE, TypeError):  # MessagePack has values that JSON has not
        value = msgspec.msgpack.decode(data) if packed else None
        number = repr(value) if isinstance(value, float) else ""
        text = number or (events.to_json(value) if packed else data).decode()
        return shown(text[:LONGEST_TEXT])
    return "the value"


def columns_of(decoded: Sequence[Decoded]) -> batch.RoundBatch:
    """Convert rounds to columns, with their entries in the order of the messages."""
    rounds = [each.event for each in decoded]
    entries = [entry for each in rounds for entry in each.standings]
    counts = np.array([len(each.standings) for each in rounds], np.int64)
    unknown = np.array([each.unknown for each in decoded], np.bool_)
    unknown |= validation.rounds_with([_has_rank_and_dnf(entry) for entry in entries], counts)
    members, players, share = _players(entries)
    sizes = np.diff(ranges.bounds(members)[ranges.bounds(counts)])
    return batch.reported_batch(
        [_head(each) for each in rounds], unknown, counts, sizes, _places(entries), members, share,
        strings.StringColumn.of(players), *_seats_and_scores(decoded),
    )  # fmt: skip


def _seats_and_scores(decoded: Sequence[Decoded]) -> tuple[SeatCodes, arrays.Floats]:
    """The columns `seat` and `score` of these rounds: BAD_SEAT and BAD_SCORE where a value is not
    valid. Either is empty if no entry has one."""
    both = [(entry, each.packed) for each in decoded for entry in each.event.standings]
    seats = np.array([_seat(entry, packed=packed) for entry, packed in both], np.uint64)
    scores = np.array([_score(entry, packed=packed) for entry, packed in both], np.float64)
    return (
        seats if (seats != NO_SEAT).any() else batch.NO_SEATS,
        scores if not np.isnan(scores).all() else batch.NO_SCORES,
    )


def _given(value: T | msgspec.Raw, decode: Callable[[msgspec.Raw], T]) -> T | None:
    """The value of a field that may be raw; None if it is absent. Raises UNDECODABLE."""
    if not isinstance(value, msgspec.Raw):
        return value
    return decode(value) if bytes(value) else None


def _seat(entry: Entry, *, packed: bool) -> int:
    try:
        seat = _given(entry.seat, events.seat_from_msgpack if packed else events.seat_from_json)
    except UNDECODABLE:
        return batch.BAD_SEAT
    if seat is None:
        return NO_SEAT
    return seat_code(seat) if is_seat(seat) else batch.BAD_SEAT


def _score(entry: Entry, *, packed: bool) -> float:
    """The entry's score; NaN if it has none. Minus zero becomes zero."""
    try:
        score = _given(entry.score, events.score_from_msgpack if packed else events.score_from_json)
    except UNDECODABLE:
        return batch.BAD_SCORE
    if score is None:
        return math.nan
    return score + 0.0 if math.isfinite(score) else batch.BAD_SCORE


def _head(event: RoundCompleted) -> Round:
    """The round without its entries, so that the memory of these can be freed."""
    return Round(
        round_id=event.round_id, ladder=event.ladder, completed_at=event.completed_at,
        weight=event.weight, performance_ceiling=event.performance_ceiling,
    )  # fmt: skip


def _places(entries: Sequence[Entry]) -> Places:
    """(E,) the place of each entry: its rank, DID_NOT_FINISH, NO_RANK or OUT_OF_RANGE."""
    try:
        place = np.array([DID_NOT_FINISH if e.dnf else e.rank for e in entries], np.int64)
    except (TypeError, OverflowError):  # a rank is missing, or has more than 64 bits
        return np.array([_place(entry) for entry in entries], np.int32)
    unusual = (place < 1) | (place > MAX_RANK)
    if unusual.any():
        place[unusual & ~np.array([e.dnf for e in entries])] = validation.OUT_OF_RANGE
    return place.astype(np.int32)


def _place(entry: Entry) -> int:
    if entry.dnf:
        return DID_NOT_FINISH
    if entry.rank is None:
        return validation.NO_RANK
    return entry.rank if 1 <= entry.rank <= MAX_RANK else validation.OUT_OF_RANGE


def _players(entries: Sequence[Entry]) -> tuple[arrays.Ints, list[str], arrays.Floats]:
    """(E,) the number of players of each entry; (P,) the players; and (P,) their shares. An entry
    that has both a player and a team, or neither, counts as having no players. If an entry's number
    of shares differs from its number of players, its players' shares are NaN."""
    players = [entry.player for entry in entries]
    if None in players or [e for e in entries if e.team is not None or e.shares is not None]:
        teams = [_team(entry) for entry in entries]
        shares = [_shares(entry, len(team)) for entry, team in zip(entries, teams, strict=True)]
        return (
            np.array([len(team) for team in teams], np.int64),
            [player for team in teams for player in team],
            np.array([share for own in shares for share in own], np.float64),
        )
    ones = np.ones(len(entries), np.int64)
    return ones, cast(list[str], players), np.ones(len(entries))


def _team(entry: Entry) -> Sequence[str]:
    """The players of an entry; empty if it has both a player and a team, or neither."""
    if (entry.player is None) == (not entry.team):
        return ()
    return entry.team if entry.team else (entry.player or "",)


def _shares(entry: Entry, size: int) -> Sequence[float]:
    """The share of each of an entry's `size` players; NaN if the number of shares is wrong."""
    if entry.shares is None:
        return (1.0,) * size
    return entry.shares if len(entry.shares) == size else (math.nan,) * size
