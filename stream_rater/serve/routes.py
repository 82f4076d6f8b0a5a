"""The table of the API's operations, from which the routes and the OpenAPI document are made."""

import base64
import binascii
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from stream_rater.contract.events import MAX_ID_BYTES
from stream_rater.index.reader import RankedRow, RowPlace
from stream_rater.serve import bodies
from stream_rater.serve.problems import Refused

MOST_OFFSET = 2**63 - 1
EVENT_STREAM = "text/event-stream"
JSON = "application/json"
SVG = "image/svg+xml"
JSON_LINES = "application/x-ndjson"
MOST_WAIT_S = 30  # The most seconds that a request may ask to wait.


class Number(NamedTuple):
    """A query parameter that is a whole number from `least` to `most`."""

    description: str
    least: int
    most: int
    default: int | None


class Text(NamedTuple):
    """A query parameter that is a text."""

    description: str


Answered = Literal[
    "ladders", "ladder", "player", "lookup", "history", "leaderboard", "predict", "balance",
    "what-if", "explain", "send-round", "send-rounds", "round", "correct", "seasons", "season",
    "players", "rounds", "card",
]  # fmt: skip
"""Operations that return one answer. `Api._ask` must have a case for each, as mypy checks."""


class Operation(NamedTuple):
    """An operation of the API: a path with a method."""

    name: Answered | Literal["changes"]
    method: str
    path: str
    description: str
    answer: type | None  # The type of the answer in JSON; None if it is no JSON.
    body: Any = None  # The type of the body; None if there is none.
    query: dict[str, Number | Text] = {}  # noqa: RUF012  # never written
    codes: tuple[str, ...] = ()  # The codes of the operation's errors, in addition to COMMON.
    writes: bool = False
    """Whether the operation writes to `round-completed`. Then it needs the token for writing, and
    its body may be as large as a round, and is validated as records are."""
    success: int = 200  # The HTTP status of the answer.
    media_types: tuple[str, ...] = (JSON,)  # The media types of the body.
    produces: str = JSON  # The media type of the answer.

    @property
    def of_writers(self) -> bool:
        """Whether those who write rounds need it: they write, and ask what became of a round."""
        return self.writes or self.name == "round"


LADDER = "/v1/ladders/{ladder}"
PAGE: dict[str, Number | Text] = {
    "limit": Number("Rows of the page, at most", 1, bodies.MOST_ROWS, 50),
    "cursor": Text("`next` of the page before"),
    "around": Text("A player who is to be in the middle"),
}

WAIT = Number("Seconds to wait, at most", 0, MOST_WAIT_S, 0)
FRESH: dict[str, Number | Text] = {
    "min_offset": Number(
        "The answer includes what the records of `round-completed` up to this offset of the "
        "ladder's partition have changed", 0, MOST_OFFSET, None,
    ),
    "wait": WAIT._replace(
        description="With `min_offset`: seconds to wait until the answer can include it",
        default=5,
    ),
}  # fmt: skip

BEGINNINGS: dict[str, Number | Text] = {
    "seed_from": Text(
        "A ladder. Players of the round who have a rating there, and none on this ladder, begin "
        "with that rating: a seed is sent before the round"
    ),
    "seed_sigma": Number("With `seed_from`: points that are added to each sigma", 0, 10**6, 0),
}

COMMON = (
    "bad-request", "unauthorized", "foreign-page", "too-many-requests", "internal",
    "index-unavailable", "not-ready", "busy",
)  # fmt: skip
"""The codes of the errors that every operation may have."""

BODY = ("body-too-slow", "body-too-large", "compressed-body", "invalid")
NOT_FRESH = ("not-yet", "log-unavailable")
WRITING = ("writing-off", "read-only", "log-unavailable", "not-acknowledged", *BODY)

OPERATIONS = (
    Operation("ladders", "GET", "/v1/ladders", "All ladders", bodies.LadderList),
    Operation(
        "ladder", "GET", LADDER, "A ladder: players, parameters, distribution of the ratings",
        bodies.LadderAnswer, codes=("unknown-ladder",),
    ),
    Operation(
        "players", "GET", LADDER + "/players",
        "The players whose ids begin so, in order", bodies.LookupAnswer,
        query={
            "prefix": Text("The beginning of the id, in small or capital letters, too"),
            "limit": Number("Entries, at most", 1, bodies.MOST_FOUND, 10),
        },
        codes=("unknown-ladder",),
    ),
    Operation(
        "rounds", "GET", LADDER + "/rounds",
        "The last rounds of a ladder or player, with their players, newest first",
        bodies.RoundList,
        query={
            "player": Text("Only rounds of this player"),
            "limit": Number("Entries, at most", 1, bodies.MOST_FOUND, 20),
            "before": Number("Only changes before this offset", 0, MOST_OFFSET, None),
        },
        codes=("unknown-ladder", "unknown-player"),
    ),
    Operation(
        "player", "GET", LADDER + "/players/{player}", "A player, with rank and percentile",
        bodies.RankedPlayer, query=FRESH, codes=("unknown-ladder", "unknown-player", *NOT_FRESH),
    ),
    Operation(
        "card", "GET", "/card/{ladder}/{player}",
        "A player as an SVG image, for pages of other sites", None, produces=SVG,
        codes=("unknown-ladder", "unknown-player"),
    ),
    Operation(
        "lookup", "POST", LADDER + "/players:lookup",
        "Many players at once, and what is believed of newcomers", bodies.LookupAnswer,
        bodies.Lookup,
        query=FRESH, codes=("unknown-ladder", *NOT_FRESH, *BODY),
    ),
    Operation(
        "history", "GET", LADDER + "/players/{player}/history",
        "The last changes of a player, newest first", bodies.HistoryAnswer,
        query={
            "limit": Number("Changes, at most", 1, bodies.MOST_ROWS, 20),
            "before": Number("Only changes before this offset", 0, MOST_OFFSET, None),
        },
        codes=("unknown-ladder", "unknown-player"),
    ),
    Operation(
        "leaderboard", "GET", LADDER + "/leaderboard",
        "A page of the leaderboard: the first, the one behind a cursor, or around a player",
        bodies.PageAnswer,
        query=PAGE | FRESH | {
            "recent": Number("Rows have sigma, rounds, and so many last changes", 0, 20, 0)
        },
        codes=("unknown-ladder", "unknown-player", "bad-cursor", "not-listed", *NOT_FRESH),
    ),
    Operation(
        "seasons", "GET", LADDER + "/seasons",
        "The seasons of a ladder, and whether their standings are kept", bodies.SeasonList,
        codes=("unknown-ladder",),
    ),
    Operation(
        "season", "GET", LADDER + "/seasons/{season}/leaderboard",
        "A page of the final standings of a season that has ended: the first, the one behind a "
        "cursor, or around a player", bodies.SeasonPageAnswer,
        query=PAGE,
        codes=("unknown-ladder", "unknown-season", "bad-cursor", "not-listed"),
    ),
    Operation(
        "predict", "POST", LADDER + "/predict",
        "How likely each side of a round is to win, and the rank to expect", bodies.PredictAnswer,
        bodies.PredictQuestion, codes=("unknown-ladder", *BODY),
    ),
    Operation(
        "balance", "POST", LADDER + "/balance",
        "The most even teams of some players, and what to expect of them", bodies.PredictAnswer,
        bodies.BalanceQuestion, codes=("unknown-ladder", *BODY),
    ),
    Operation(
        "what-if", "POST", LADDER + "/what-if",
        "What the result of a round would change; nothing is written", bodies.WhatIfAnswer,
        bodies.WhatIfQuestion, codes=("unknown-ladder", "no-beliefs", *BODY),
    ),
    Operation(
        "explain", "GET", LADDER + "/players/{player}/explain",
        "Which performances pull a player's rating where", bodies.ExplainAnswer,
        codes=("unknown-ladder", "unknown-player", "no-beliefs"),
    ),
    Operation(
        "send-round", "POST", LADDER + "/rounds",
        "Send a round to rate; the answer comes once it is stored for good", bodies.RoundTaken,
        bodies.RoundReport, query=BEGINNINGS, writes=True, success=202,
        codes=(*WRITING, "other-content", "unknown-ladder", "no-beliefs"),
    ),
    Operation(
        "send-rounds", "POST", "/v1/rounds",
        "Send up to 1,000 rounds, as a JSON array or as JSON lines; each is answered by itself",
        bodies.RoundsTaken, list[bodies.RoundReport], codes=WRITING, writes=True,
        media_types=(JSON, JSON_LINES),
    ),
    Operation(
        "round", "GET", LADDER + "/rounds/{round_id}",
        "The state of a round: pending, rated with each change, rejected, duplicate, corrected",
        bodies.RoundStateAnswer,
        query={
            "wait": WAIT._replace(description="Seconds to wait until it is no longer pending"),
            "partition": Number("With `offset`: the place of the round", 0, 2**31 - 1, None),
            "offset": Number("The offset of the round", 0, MOST_OFFSET, None),
        },
        codes=("unknown-round", "writing-off", "not-acknowledged"),
    ),
    Operation(
        "correct", "POST", LADDER + "/corrections",
        "Send a correction, a seed or a reset; the answer comes once it is stored for good",
        bodies.CorrectionTaken,
        bodies.CorrectionReport, codes=WRITING, writes=True, success=202,
    ),
    Operation(
        "changes", "GET", LADDER + "/changes",
        "Each event of rating-changed as a server-sent event; resumed by Last-Event-ID", None,
        produces=EVENT_STREAM, codes=("unknown-ladder", "bad-event-id", "too-many-followers"),
    ),
)  # fmt: skip


def read_query(operation: Operation, given: list[tuple[str, str]]) -> dict[str, int | str | None]:
    """The parameters of a query by name, with default values for absent ones. Raises Refused if a
    parameter is unknown, is given twice, or has an invalid value."""
    found: dict[str, int | str | None] = {
        name: each.default if isinstance(each, Number) else None
        for name, each in operation.query.items()
    }
    for i, (name, value) in enumerate(given):
        place, parameter = f"query.{name}", operation.query.get(name)
        if parameter is None:
            known = ", ".join(operation.query) or "none"
            raise Refused("bad-request", f"no such parameter; there are: {known}", place)
        if any(name == other for other, _ in given[:i]):
            raise Refused("bad-request", "it is given twice: give it once", place)
        found[name] = value if isinstance(parameter, Text) else _number(parameter, value, place)
    return found


def _number(parameter: Number, value: str, place: str) -> int:
    digits = value.isascii() and value.isdecimal() and len(value) < 20
    if not digits or not parameter.least <= int(value) <= parameter.most:
        raise Refused(
            "bad-request", f"give a whole number from {parameter.least} to {parameter.most}", place
        )
    return int(value)


CURSOR_VERSION, MOST_CHARACTERS = 1, 256


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    """A place in the order of rows, not a row. So a cursor stays valid while ranks change, and a
    player whose place does not change is neither omitted nor shown twice."""

    version: int
    rating: float
    player: str


_decode = msgspec.msgpack.Decoder(_Cursor).decode


def encode_cursor(place: RowPlace | RankedRow) -> str:
    """Encode a place as a cursor."""
    packed = msgspec.msgpack.encode(_Cursor(CURSOR_VERSION, place.rating, place.player))
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def next_cursor(rows: Sequence[RankedRow], more: bool) -> str | None:
    """The cursor of the page after these rows; None if there is none."""
    return encode_cursor(rows[-1]) if rows and more else None


def check_page(cursor: str | None, around: str | None) -> None:
    """Raise Refused if a request gives both a cursor and `around`."""
    if around is not None and cursor is not None:
        raise Refused("bad-request", "give `cursor` or `around`, not both", "query.cursor")


def decode_cursor(cursor: str | None) -> RowPlace | None:
    """The place of a cursor; None without a cursor. Raises Refused if the text is none."""
    if cursor is None:
        return None
    try:
        if len(cursor) > MOST_CHARACTERS:
            raise ValueError
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found = _decode(data)
        fits = len(found.player.encode()) <= MAX_ID_BYTES
        if found.version != CURSOR_VERSION or not math.isfinite(found.rating) or not fits:
            raise ValueError
    except (ValueError, binascii.Error, msgspec.DecodeError, UnicodeError):
        raise Refused(
            "bad-cursor", "take `next` of the page before as it is, or leave `cursor` out",
            "query.cursor",
        ) from None  # fmt: skip
    return RowPlace(found.rating, found.player)
