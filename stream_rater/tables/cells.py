"""Reads single cells of a table: ids, numbers, ranks and results.

A cell of a CSV file is a text. A cell of a data frame is a Python value, or None where it is empty.
Each function raises Invalid, with an error code of the event contract, the column and the cure.
"""

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Final

from stream_rater.rounds.validation import Invalid

DNF: Final = "dnf"
"""The rank, in any case, of somebody who did not finish."""

SHOWN: Final = 40
"""The most characters of a cell that an error shows."""

_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_PAIR: Final = re.compile(r"(\d+(?:\.\d+)?)\s*[-–—:]\s*(\d+(?:\.\d+)?)")
_TRUE: Final = frozenset({"true", "t", "yes", "y", "1", "dnf"})
_FALSE: Final = frozenset({"false", "f", "no", "n", "0", ""})
_EXACT: Final = 2**53

FIRST, DRAWN, SECOND = (1, 2), (1, 1), (2, 1)
"""The ranks of both sides by the three results of a match of two."""

RESULTS: Final = {
    "h": FIRST, "home": FIRST, "w": FIRST, "win": FIRST, "won": FIRST,
    "d": DRAWN, "draw": DRAWN, "drawn": DRAWN, "tie": DRAWN, "tied": DRAWN,
    "a": SECOND, "away": SECOND, "l": SECOND, "loss": SECOND, "lost": SECOND, "lose": SECOND,
    "1/2-1/2": DRAWN, "½-½": DRAWN,
}  # fmt: skip
"""The ranks by the texts of results, which are those of the first side."""


def shown(value: Any) -> str:
    """A cell as an error shows it: quoted, on one line, and not too long."""
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def is_missing(value: Any) -> bool:
    """Whether a cell is empty: None, a text of blanks, or one of the missing values of NumPy and
    pandas (NaN, NaT, NA)."""
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float):
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType")


def mistake(code: str, column: str, text: str) -> Invalid:
    """The error for a cell in this column."""
    return Invalid(code, f"column {column}: {text}")


def identifier(value: Any, column: str) -> str:
    """An id: a text as it is, or a whole number as its digits."""
    if isinstance(value, str) and value:
        return value
    if is_missing(value):
        raise mistake("bad-id", column, "empty")
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Real) and not isinstance(value, bool):
        raise mistake(
            "bad-id", column,
            f"{value!r} is a fraction, not an id: whole numbers with gaps become fractions in "
            "pandas, so convert the column first, as by .astype('Int64')",
        )  # fmt: skip
    raise mistake("bad-id", column, f"{shown(value)} is no id: ids are texts or whole numbers")


def players(value: Any, column: str) -> tuple[str, ...]:
    """The players of a cell: one id, or a list of the ids of a team's members."""
    if isinstance(value, list | tuple):
        if not value:
            raise mistake("bad-id", column, "an empty list")
        return tuple(identifier(each, column) for each in value)
    return (identifier(value, column),)


def number(value: Any, column: str, code: str = "malformed") -> int | float:
    """A finite number. A whole number is an int, so that all kinds of tables give the same."""
    if type(value) is int:
        return value
    if type(value) is str and value.isdecimal() and value.isascii() and len(value) < 16:
        return int(value)  # nearly all
    found: float | None = None
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        found = float(value)
        if found.is_integer() and abs(found) >= _EXACT and value.strip().lstrip("+-").isdigit():
            return int(value)
    elif isinstance(value, Real | Decimal) and not isinstance(value, bool):
        found = float(value)
    if is_missing(value):
        raise mistake(code, column, "empty")
    if found is None or not math.isfinite(found):
        cure = ": write a point, not a comma" if isinstance(value, str) and "," in value else ""
        raise mistake(code, column, f"{shown(value)} is no number{cure}")
    return int(found) if found.is_integer() and abs(found) < _EXACT else found


def rank(value: Any, column: str) -> int | None:
    """A rank; None for `DNF`, which is somebody who did not finish."""
    if isinstance(value, str) and value.strip().lower() == DNF:
        return None
    if is_missing(value):
        raise mistake("bad-rank", column, "empty: write DNF for who did not finish")
    found = number(value, column, "bad-rank") if not _is_word(value) else 0.5
    if isinstance(found, float) or found < 1:
        raise mistake(
            "bad-rank", column,
            f"{shown(value)} is no rank: give 1, 2, …, or DNF for who did not finish",
        )  # fmt: skip
    return found


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and not _NUMBER.fullmatch(value.strip())


def flag(value: Any, column: str) -> bool:
    """Whether a cell says yes. An empty cell says no."""
    if is_missing(value):
        return False
    text = str(value).strip().lower()
    if isinstance(value, float) and value in (0.0, 1.0):
        return value == 1.0
    if text not in _TRUE and text not in _FALSE:
        raise mistake("malformed", column, f"{shown(value)} is neither true nor false")
    return text in _TRUE


def text(value: Any, column: str) -> str | None:
    """A text, such as a seat; None if the cell is empty."""
    return None if is_missing(value) else identifier(value, column)


def result(value: Any, column: str) -> tuple[tuple[int, int], tuple[int | float, ...]]:
    """The ranks of both sides by a cell with the result of a match, and both scores, if it has
    them."""
    if is_missing(value):
        raise mistake("bad-rank", column, "empty: who won?")
    given = str(value).strip()
    if (found := RESULTS.get(given.lower().replace(" ", ""))) is not None:
        return found, (0.5, 0.5) if given[0] in "1½" else ()
    if isinstance(value, str) and (pair := _PAIR.fullmatch(given)):
        scores = number(pair[1], column), number(pair[2], column)
        return order(scores)[:2], scores  # type: ignore[return-value]
    raise mistake(
        "bad-rank", column,
        f"{shown(value)} is no result: give 1-0, 0-1 or 1/2-1/2, other scores as 3-2, H, D or A, "
        "or W, D or L, of the first side",
    )  # fmt: skip


def order(scores: Sequence[float], *, low: bool = False) -> tuple[int, ...]:
    """The rank of each score: 1 and the number of better ones."""
    if len(scores) == 2:
        first, second = scores if not low else (scores[1], scores[0])
        return FIRST if first > second else SECOND if second > first else DRAWN
    ranks: dict[float, int] = {}
    for place, each in enumerate(sorted(scores, reverse=not low), 1):
        ranks.setdefault(each, place)
    return tuple(ranks[each] for each in scores)
