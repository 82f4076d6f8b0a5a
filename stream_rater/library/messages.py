"""A round that is given as Python values, as a message of `round-completed`.

So it takes the road of all other rounds, and is valid by the same rules. What only Python values
can have wrong is refused here. A refusal names its place in the arguments, not in the message.
"""

import math
import operator
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from numbers import Number, Real
from typing import Any, NamedTuple, NoReturn

import msgspec

from stream_rater.contract.events import MAX_RANK, MSGPACK, Entry, RoundCompleted
from stream_rater.contract.record import Record
from stream_rater.library.results import InvalidRound, Shares, Side
from stream_rater.rounds.validation import QUOTE_IT, Invalid, id_mistake

HEADERS = (("content-type", MSGPACK.encode()),)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RoundCompleted).decode

_PLACES = (
    (r"^standings\[(\d+)\]\.rank\b", r"ranks[\1]"),
    (r"^standings\[(\d+)\]\.shares\b", r"shares[\1]"),
    (r"^standings\b", "sides"),
)
"""Places in a message, and what they are called in the arguments."""


class Sides(NamedTuple):
    """The sides of a round or of a prediction, checked."""

    players: list[tuple[str, ...]]
    """By side, its players."""
    places: dict[str, str]
    """By player, where they stand in the arguments."""


def sides_of(sides: Sequence[Side]) -> Sides:
    """The players of each side. Raises InvalidRound."""
    if isinstance(sides, str):
        _refuse("malformed", f"sides: {sides!r} is a text, not a list of sides")
    found = Sides([], {})
    for i, side in enumerate(_listed("sides", sides)):
        alone = isinstance(side, str | Number)  # a number is no id, which `check_id` tells
        members: Sequence[Any] = (side,) if alone else _listed(f"sides[{i}]", side)
        if not members:
            _refuse("malformed", f"sides[{i}]: nobody: name one player at least")
        for k, player in enumerate(members):
            place = f"sides[{i}]" if alone else f"sides[{i}][{k}]"
            check_id(place, player)
            if player in found.places:
                where = f"{found.places[player]} and {place}"
                _refuse("duplicate-player", f"{where}: player {player!r} stands in the round twice")
            found.places[player] = place
        found.players.append(tuple(members))
    return found


def factor_of(value: object) -> float:
    """A factor of a variance. Raises InvalidRound."""
    factor = number("malformed", "variance_factor", value)
    if not 0.0 < factor < math.inf:
        _refuse("malformed", f"variance_factor: {factor!r} is not above 0; 1 is the model as it is")
    return factor


def check_teams(teams: object, players: int) -> None:
    """Raise InvalidRound for what is no number of teams of so many players."""
    if not isinstance(teams, int) or not 2 <= teams <= players:
        _refuse(
            "malformed",
            f"teams: {teams!r} of {players} players: give a whole number from 2 to their number",
        )


def check_id(place: str, value: object) -> None:
    """Raise InvalidRound for what is no id."""
    if not isinstance(value, str):
        cure = f"{QUOTE_IT}: {str(value)!r}" if isinstance(value, Number) else "ids are texts"
        _refuse("bad-id", f"{place}: {value!r} is no id: {cure}")
    try:
        value.encode()
        mistake = id_mistake(value)
    except UnicodeEncodeError:
        mistake = "not to be encoded as UTF-8"
    if mistake:
        _refuse("bad-id", f"{place}: {mistake}")


def _listed(place: str, values: Any) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        _refuse("malformed", f"{place}: {values!r} is no list")


def _refuse(code: str, message: str) -> NoReturn:
    raise InvalidRound(code, message)


def ranks_of(ranks: Sequence[int | None] | None, sides: int) -> list[int | None]:
    """The rank of each side, None for who did not finish; in the order of the sides unless given.

    Raises InvalidRound.
    """
    if ranks is None:
        return list(range(1, sides + 1))
    given = _listed("ranks", ranks)
    if len(given) != sides:
        _refuse("bad-rank", f"ranks: {len(given)} for {sides} sides")
    return [None if rank is None else _rank(f"ranks[{i}]", rank) for i, rank in enumerate(given)]


def _rank(place: str, rank: Any) -> int:
    """A whole number; one that has more than 64 bits is as wrong as the next greater one."""
    try:
        return min(max(operator.index(rank), 0), MAX_RANK + 1)
    except TypeError:
        _refuse("bad-rank", f"{place}: {rank!r} is no whole number; None: did not finish")


def shares_of(
    shares: Sequence[Shares] | None, players: Sequence[Sequence[str]]
) -> list[tuple[float, ...] | None]:
    """By side, the part of the round that each of its players played; None where all played the
    whole round. Raises InvalidRound."""
    if shares is None:
        return [None] * len(players)
    given = _listed("shares", shares)
    if len(given) != len(players):
        _refuse("bad-shares", f"shares: {len(given)} for {len(players)} sides; None: all of it")
    return [None if each is None else _parts(f"shares[{i}]", each) for i, each in enumerate(given)]


def _parts(place: str, parts: Any) -> tuple[float, ...]:
    """The shares of a side: numbers, or one number for a player alone."""
    if isinstance(parts, Real):
        return (number("bad-shares", place, parts),)
    listed = enumerate(_listed(place, parts))
    return tuple(number("bad-shares", f"{place}[{k}]", part) for k, part in listed)


def number(code: str, place: str, value: Any) -> float:
    """A number as a float. Raises InvalidRound of this code."""
    if not isinstance(value, Real):
        _refuse(code, f"{place}: {value!r} is no number")
    return float(value)


def time_of(completed_at: datetime | str) -> str:
    """A time as RFC 3339 writes it. Raises InvalidRound for one without a zone."""
    if isinstance(completed_at, str):
        if not completed_at.isascii():
            _refuse("bad-time", f"completed_at: {completed_at!r} is no RFC 3339 time")
        return completed_at
    if not isinstance(completed_at, datetime):
        _refuse("bad-time", f"completed_at: {completed_at!r} is neither a datetime nor a text")
    if completed_at.tzinfo is None:
        _refuse("bad-time", "completed_at: a datetime without a zone: give tzinfo=UTC, or another")
    return completed_at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def standings_of(
    sides: Sides, ranks: Sequence[int | None] | None, shares: Sequence[Shares] | None
) -> list[Entry]:
    """The standings, in the order of the sides. Raises InvalidRound."""
    columns = sides.players, ranks_of(ranks, len(sides.players)), shares_of(shares, sides.players)
    return [
        Entry(
            player=players[0] if len(players) == 1 else None,
            team=players if len(players) > 1 else None,
            rank=rank, dnf=rank is None, shares=parts,
        )
        for players, rank, parts in zip(*columns, strict=True)
    ]  # fmt: skip


def message_of(
    ladder: str, round_id: str, completed_at: str, standings: list[Entry], weight: float = 1.0,
    performance_ceiling: float | None = None,
) -> bytes:  # fmt: skip
    """A round in MessagePack, which holds every float, infinite ones and NaN, too. Raises
    InvalidRound."""
    check_id("round_id", round_id)
    if performance_ceiling is not None:
        performance_ceiling = number("malformed", "performance_ceiling", performance_ceiling)
    return _encode(
        RoundCompleted(
            round_id=round_id, ladder=ladder, completed_at=completed_at, standings=standings,
            weight=number("bad-weight", "weight", weight), performance_ceiling=performance_ceiling,
        )
    )  # fmt: skip


def renamed(message: bytes, ladder: str) -> bytes:
    """The same round on another ladder."""
    return _encode(msgspec.structs.replace(_decode(message), ladder=ladder))


def record_of(offset: int, message: bytes) -> Record:
    """The message at this offset; its time is never too late."""
    return Record(0, offset, message, HEADERS, received_s=math.inf)


def refusal_of(invalid: Invalid) -> InvalidRound:
    """Why a round is refused, with the place in the arguments."""
    message = str(invalid)
    for place, ours in _PLACES:
        message = re.sub(place, ours, message)
    return InvalidRound(invalid.code, message)
