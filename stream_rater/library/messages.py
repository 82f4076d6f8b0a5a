"""Turns a round that is given as Python values into a message of `round-completed`.

So the round is handled like all others, and validated by the same rules. Mistakes that only Python
values can have are rejected here. A rejection names the place in the arguments, not in the message.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import UTC, datetime
from numbers import Number, Real
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta, structs

from stream_rater.config.ladders import Limits
from stream_rater.contract import events
from stream_rater.contract.corrections import EVENT_TYPE, from_message, kind_of_line
from stream_rater.contract.events import MAX_ID_BYTES, MAX_RANK, MSGPACK, Entry, to_json
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import SEEDS
from stream_rater.library.results import InvalidRound, Shares, Side
from stream_rater.rating.seats import SEAT_CURE, is_seat
from stream_rater.rating.stages import LEAST_WEIGHT
from stream_rater.rounds.batch import MAX_TIME_LENGTH
from stream_rater.rounds.validation import QUOTE_IT, Invalid, id_mistake

MOST_PLAIN = 100
"""The most sides of a round, and the most members of a side, for which it is plain."""
HEADERS = (("content-type", MSGPACK.encode()),)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(events.RoundCompleted).decode

_PLACES = (
    (r"^standings\[(\d+)\]\.(rank|seat|score)\b", r"\2s[\1]"),
    (r"^standings\[(\d+)\]\.shares\b", r"shares[\1]"),
    (r"^standings\b", "sides"),
)
"""Patterns of places in a message, each with the name of this place in the arguments."""


Sides = list[tuple[str, ...]]  # The players of each side.


def sides_of(sides: Sequence[Side], what: str = "sides") -> Sides:
    """The players of each side. `what` is the argument's name. Raises InvalidRound."""
    if isinstance(sides, str):
        _reject("malformed", f"{what}: {sides!r} is a text, not a list of {what}")
    found, places = Sides(), dict[str, str]()
    for i, side in enumerate(_as_list(what, sides)):
        alone = isinstance(side, str | Number)  # `check_id` rejects a number
        members: Sequence[Any] = (side,) if alone else _as_list(f"{what}[{i}]", side)
        if not members:
            _reject("malformed", f"{what}[{i}]: nobody: name one player at least")
        for k, player in enumerate(members):
            place = f"{what}[{i}]" if alone else f"{what}[{i}][{k}]"
            check_id(place, player)
            if player in places:
                where = f"{places[player]} and {place}"
                _reject("duplicate-player", f"{where}: player {player!r} stands in the round twice")
            places[player] = place
        found.append(tuple(members))
    return found


def factor_of(value: object) -> float:
    """A finite number above 0 as a factor of a variance. Raises InvalidRound."""
    factor = number("malformed", "variance_factor", value)
    if not 0.0 < factor < math.inf:
        _reject("malformed", f"variance_factor: {factor!r} is not above 0; 1 is the model as it is")
    return factor


def fraction_of(value: object) -> float:
    """The fraction of a ladder's rounds that only build experience. Raises ValueError."""
    if not isinstance(value, Real) or not 0.0 <= float(value) < 1.0:
        raise ValueError(f"train: {value!r} is not in [0, 1); 0.1 leaves out the first tenth")
    return float(value)


def check_teams(teams: object, players: int) -> None:
    """Raise InvalidRound if this many players cannot form this number of teams."""
    if not isinstance(teams, int) or not 2 <= teams <= players:
        _reject(
            "malformed",
            f"teams: {teams!r} of {players} players: give a whole number from 2 to their number",
        )


def check_id(place: str, value: object) -> None:
    """Raise InvalidRound if the value is not an id. `place`: its place in the arguments."""
    if not isinstance(value, str):
        cure = f"{QUOTE_IT}: {str(value)!r}" if isinstance(value, Number) else "ids are texts"
        _reject("bad-id", f"{place}: {value!r} is no id: {cure}")
    try:
        value.encode()
        mistake = id_mistake(value)
    except UnicodeEncodeError:
        mistake = "not to be encoded as UTF-8"
    if mistake:
        _reject("bad-id", f"{place}: {mistake}")


def _as_list(place: str, values: Any) -> list[Any]:
    if isinstance(values, Set | Mapping):
        what = f"a {type(values).__name__} has no order that counts"
        _reject("malformed", f"{place}: {what}: give a list, with ranks apart, as ranks=[1, 2]")
    try:
        return list(values)
    except TypeError:
        _reject("malformed", f"{place}: {values!r} is no list")


def _reject(code: str, message: str) -> NoReturn:
    raise InvalidRound(code, message)


def _by_side(
    code: str, name: str, values: Sequence[Any] | None, sides: int,
    read: Callable[[str, Any], Any], hint: str = "",
) -> list[Any]:  # fmt: skip
    """What `read` makes of each side's value and its place; None for a side without a value, and
    for each if there are no values. Raises InvalidRound."""
    if values is None:
        return [None] * sides
    listed = _as_list(name, values)
    if len(listed) != sides:
        _reject(code, f"{name}: {len(listed)} for {sides} sides{hint}")
    return [None if each is None else read(f"{name}[{i}]", each) for i, each in enumerate(listed)]


def _rank(place: str, rank: Any) -> int:
    """A rank as a whole number. A value out of range becomes the nearest invalid number: that fits
    into the message, and is rejected there. Raises InvalidRound if it is no whole number."""
    try:
        return min(max(operator.index(rank), 0), MAX_RANK + 1)
    except TypeError:
        _reject("bad-rank", f"{place}: {rank!r} is no whole number; None: did not finish")


def _parts(place: str, parts: Any) -> tuple[float, ...]:
    """The shares of a side: a list of numbers, or one number for a side of one player."""
    if isinstance(parts, Real):
        return (number("bad-shares", place, parts),)
    listed = enumerate(_as_list(place, parts))
    return tuple(number("bad-shares", f"{place}[{k}]", part) for k, part in listed)


def _seat(place: str, seat: Any) -> str:
    if not (isinstance(seat, str) and is_seat(seat)):
        _reject("bad-seat", f"{place}: {seat!r} is no name of a seat: {SEAT_CURE}")
    return seat


def _score(place: str, value: Any) -> float:
    score = number("bad-score", place, value)
    if not math.isfinite(score):
        _reject("bad-score", f"{place}: {score} is not finite; None: no score")
    return score


def number(code: str, place: str, value: Any) -> float:
    """The value as a float. Raises InvalidRound with this code if it is not a number."""
    if not isinstance(value, Real):
        _reject(code, f"{place}: {value!r} is no number")
    return float(value)


def time_of(completed_at: datetime | str, place: str = "completed_at") -> str:
    """A time as RFC 3339 text, for the argument `place`. A text is validated later. Raises
    InvalidRound for a datetime without a zone, a text that is not ASCII, or another type."""
    if isinstance(completed_at, str):
        if not completed_at.isascii():
            _reject("bad-time", f"{place}: {completed_at!r} is no RFC 3339 time")
        return completed_at
    if not isinstance(completed_at, datetime):
        _reject("bad-time", f"{place}: {completed_at!r} is neither a datetime nor a text")
    if completed_at.tzinfo is None:
        _reject("bad-time", f"{place}: a datetime without a zone: give tzinfo=UTC, or another")
    return completed_at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def standings_of(
    sides: Sides, ranks: Sequence[int | None] | None, shares: Sequence[Shares] | None,
    seats: Sequence[str | None] | None = None, scores: Sequence[float | None] | None = None,
) -> list[Entry]:  # fmt: skip
    """The standings, in the order of the sides. `ranks`: None for a side that did not finish; by
    default, the sides are in order. `shares`: the part that each player played; None: all of the
    round. Raises InvalidRound."""
    n = len(sides)
    placed = range(1, n + 1) if ranks is None else _by_side("bad-rank", "ranks", ranks, n, _rank)
    parts_of = _by_side("bad-shares", "shares", shares, n, _parts, "; None: all of it")
    if isinstance(seats, str):
        _reject("bad-seat", f"seats: {seats!r} is a text, not a list of seats")
    seat_of = _by_side("bad-seat", "seats", seats, n, _seat, "; None: no seat")
    score_of = _by_side("bad-score", "scores", scores, n, _score, "; None: no score")
    return [
        Entry(
            player=players[0] if len(players) == 1 else None,
            team=players if len(players) > 1 else None,
            rank=rank, dnf=rank is None, shares=parts, seat=seat, score=score,
        )
        for players, rank, parts, seat, score in zip(
            sides, placed, parts_of, seat_of, score_of, strict=True
        )
    ]  # fmt: skip


def message_of(
    ladder: str, round_id: str, completed_at: str, standings: list[Entry], weight: float = 1.0,
    performance_ceiling: float | None = None,
) -> bytes:  # fmt: skip
    """A round in MessagePack, which has all floats, including NaN. Raises InvalidRound."""
    check_id("round_id", round_id)
    if performance_ceiling is not None:
        performance_ceiling = number("malformed", "performance_ceiling", performance_ceiling)
    return _encode(
        events.RoundCompleted(
            round_id=round_id, ladder=ladder, completed_at=completed_at, standings=standings,
            weight=number("bad-weight", "weight", weight), performance_ceiling=performance_ceiling,
        )
    )  # fmt: skip


Id = Annotated[str, Meta(min_length=1)]
Team = Annotated[tuple[Id, ...], Meta(min_length=1, max_length=MOST_PLAIN)]
Rank = Annotated[int, Meta(ge=1, le=MAX_RANK)]


class Plain(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A round that is valid without a look at its message: of sides of equal sizes."""

    given: Annotated[tuple[Id | Team, ...], Meta(min_length=2, max_length=MOST_PLAIN)]
    ranks: tuple[Rank, ...] = ()  # Without them, the sides are in order.
    weight: Annotated[float, Meta(ge=LEAST_WEIGHT, le=Limits().max_weight)] = 1.0
    ladder: str = ""
    round_id: Id = "-"
    completed_at: Annotated[str, Meta(max_length=MAX_TIME_LENGTH)] = ""

    def __post_init__(self) -> None:
        players, sizes = list[str](), set[int]()
        for side in self.given:
            if isinstance(side, str):
                players.append(side)
                sizes.add(1)
            else:
                players += side
                sizes.add(len(side))
        n = len(self.ranks) or len(self.given)
        if n != len(self.given) or len(sizes) > 1 or len({*players}) < len(players):
            raise ValueError
        text = "".join(players) + self.round_id
        if len(text) > MAX_ID_BYTES or not text.isascii():
            text.encode()  # UnicodeEncodeError is a ValueError
            if any(map(id_mistake, (*players, self.round_id))):
                raise ValueError

    @property
    def sides(self) -> Sides:
        """The players of each side."""
        return [(each,) if isinstance(each, str) else each for each in self.given]


def renamed(message: bytes | Plain, ladder: str) -> bytes | Plain:
    """The same round, seed or reset on another ladder."""
    if isinstance(message, Plain):
        return structs.replace(message, ladder=ladder)
    if kind := _seed_kind(message):
        return to_json(structs.replace(from_message(SEEDS[kind], message), ladder=ladder))
    return _encode(structs.replace(_decode(message), ladder=ladder))


def _seed_kind(message: bytes) -> str:
    """The kind of a seed or a reset, which are JSON; empty for a round, which is MessagePack."""
    return kind_of_line(message) if message.startswith(b"{") else ""


def record_of(offset: int, message: bytes | Plain) -> Record:
    """A record with this message, received infinitely late: no time of a round is too far ahead."""
    if isinstance(message, Plain):
        standings = standings_of(message.sides, message.ranks or None, None)
        head = message.ladder, message.round_id, message.completed_at
        message = message_of(*head, standings, message.weight)
    kind = _seed_kind(message)
    headers = ((EVENT_TYPE, kind.encode()),) if kind else HEADERS
    return Record(0, offset, message, headers, received_s=math.inf)


def argument_error(invalid: Invalid) -> InvalidRound:
    """The error for a rejected round, with the place in the arguments instead of the message."""
    message = str(invalid)
    for place, ours in _PLACES:
        message = re.sub(place, ours, message)
    if "RFC3339" in message:
        message += ": write a day, a time and a zone, as 2020-01-01T00:00:00Z"
    return InvalidRound(invalid.code, message)
