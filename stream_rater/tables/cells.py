"""Reads single cells of a table: ids and numbers. `doubts` reads those that depend on their column.

A cell of a CSV file is a text. A cell of a data frame is a Python value, or None where it is empty.
Each function raises Invalid, with an error code of the event contract, the column and the cure.
"""

import math
import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Final

from stream_rater.rounds.validation import Invalid

SHOWN: Final = 40  # The most characters of a cell that an error shows.
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_EXACT: Final = 2**53

FIRST, DRAWN, SECOND = (1, 2), (1, 1), (2, 1)
"""The ranks of both sides by the three results of a match of two."""


def shown(value: Any) -> str:
    """A cell as an error shows it: quoted, on one line, and not too long."""
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def is_missing(value: Any) -> bool:
    """Whether a cell is None, blank, or a missing value of NumPy or pandas (NaN, NaT, NA)."""
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float):
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType")


def stripped(value: Any) -> str:
    """A cell as a text without the blanks around it; empty if it is missing."""
    return "" if is_missing(value) else str(value).strip()


def mistake(code: str, column: str, text: str) -> Invalid:
    """The error for a cell in this column."""
    return Invalid(code, f"column {column}: {text}")


def identifier(value: Any, column: str) -> str:
    """An id: digits of a whole number, or a text in Unicode's NFC without blanks around it."""
    if isinstance(value, str) and (value := value.strip()):
        return value if value.isascii() else unicodedata.normalize("NFC", value)
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
    amount = math.nan
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        amount = float(value)
        if amount.is_integer() and abs(amount) >= _EXACT and value.strip().lstrip("+-").isdigit():
            return int(value)
    elif isinstance(value, Real | Decimal) and not isinstance(value, bool):
        amount = float(value)
    if is_missing(value):
        raise mistake(code, column, "empty")
    if not math.isfinite(amount):
        cure = ": write a point, not a comma" if isinstance(value, str) and "," in value else ""
        raise mistake(code, column, f"{shown(value)} is no number{cure}")
    return int(amount) if amount.is_integer() and abs(amount) < _EXACT else amount


def order(scores: Sequence[float], *, low: bool = False) -> tuple[int, ...]:
    """The rank of each score: 1 and the number of better ones."""
    if len(scores) == 2:
        first, second = scores if not low else (scores[1], scores[0])
        return FIRST if first > second else SECOND if second > first else DRAWN
    ranks: dict[float, int] = {}
    for place, score in enumerate(sorted(scores, reverse=not low), 1):
        ranks.setdefault(score, place)
    return tuple(ranks[score] for score in scores)
