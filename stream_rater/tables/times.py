"""Reads the times of a table's rows.

A time is one of: RFC 3339; a date, with or without a time of day (2024-08-16 20:00); a compact date
(20240816); a date with the day and the month in an order that the column decides (16/08/2024); or
the time since 1970 in seconds or milliseconds. Without a zone it is in UTC.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from itertools import chain
from numbers import Real
from typing import Any, Final, NoReturn

from stream_rater.contract.events import EPOCH, parse_time
from stream_rater.tables.cells import is_missing, mistake, shown

ORDERS: Final = ("dmy", "mdy", "ymd")
"""The orders of day, month and year in a date."""
UNITS: Final = {"s": 1_000_000, "ms": 1_000}
"""The microseconds of each unit of a number."""
FORMATS: Final = (*ORDERS, *UNITS)

MOST_CACHED: Final = 50_000
"""The most texts whose times are stored: a day has many matches."""

_CLOCK: Final = (
    r"(?P<H>\d\d?):(?P<M>\d\d)(?::(?P<S>\d\d)(?:[.,](?P<f>\d{1,9}))?)?"
    r"\s*(?P<zone>[Zz]|UTC|[+-]\d\d:?\d\d)?"
)
_DATED: Final = re.compile(
    r"(?:(?P<y>\d{4})(?P<sep>[-/.])(?P<m>\d\d?)(?P=sep)(?P<d>\d\d?)"
    r"|(?P<c>\d{8})(?=$|[Tt ])"
    r"|(?P<one>\d\d?)(?P<cut>[-/.])(?P<two>\d\d?)(?P=cut)(?P<year>\d{4}|\d\d))"
    rf"(?:[Tt ]\s*{_CLOCK})?"
)
_OF_DAY: Final = re.compile(_CLOCK)
_NUMBER: Final = re.compile(r"\d{1,19}(\.\d*)?")
_SECOND: Final = timedelta(microseconds=1)

Moment = tuple[int, str]
"""A time in microseconds since 1970, by which rounds are put in order, and as RFC 3339 text."""

NO_TIME: Final[Moment] = (0, "1970-01-01T00:00:00Z")
"""The time of all rounds of a table without times, so that no time passes between them."""


class Times:
    """Reads the cells of a column of times."""

    def __init__(self, column: str, form: str = "") -> None:
        """`form`: one of FORMATS, if the caller says it; otherwise each cell decides."""
        self.column = column
        self.order = form if form in ORDERS else ""
        """The order of day, month and year where the year is not the first; empty: unknown."""
        self._unit = UNITS.get(form)
        self._cache: dict[Any, Moment] = {}

    def of(self, value: Any, of_day: Any = None) -> Moment:
        """The time in a cell. `of_day`: the cell beside it with the time of day, if there is one.
        Raises Invalid."""
        key = value if of_day is None else (value, of_day)
        try:
            return self._cache[key]
        except (KeyError, TypeError):
            pass
        found = self._read(value) if of_day is None else self._read_both(value, of_day)
        if len(self._cache) >= MOST_CACHED:
            self._cache.clear()
        self._cache[key] = found
        return found

    def decided(
        self, values: Iterable[tuple[int, Any]], place: int
    ) -> tuple[Iterator[tuple[int, Any]], tuple[Any, Any] | None]:
        """Read rows until one decides the order of day and month. Returns all rows, and None, or
        the line and the cell of the first row that has no order if no row decides.

        `place`: the place of the time in a row.
        """
        rows = iter(values)
        if self.order or self._unit:
            return rows, None
        seen: list[tuple[int, Any]] = []
        undecided: tuple[Any, Any] | None = None
        for row in rows:
            seen.append(row)
            cell = row[1][place]
            if is_missing(cell):
                continue
            found = _DATED.fullmatch(cell.strip()) if isinstance(cell, str) else None
            if found is None or found["one"] is None:
                break  # the column has other dates
            one, two = int(found["one"]), int(found["two"])
            if 12 < one <= 31 and two <= 12:
                self.order = "dmy"
            elif 12 < two <= 31 and one <= 12:
                self.order = "mdy"
            elif one != two and undecided is None:
                undecided = row[0], cell
            if self.order:
                break
        else:
            self.order = "dmy" if undecided is None else ""
            return chain(seen, rows), undecided
        return chain(seen, rows), None

    def _read_both(self, value: Any, of_day: Any) -> Moment:
        if is_missing(of_day):
            return self._read(value)
        if isinstance(of_day, time):
            of_day = of_day.isoformat()
        if not isinstance(of_day, str) or not _OF_DAY.fullmatch(of_day.strip()):
            self._fail(of_day, "no time of day: give it as 20:45")
        if isinstance(value, datetime) and value.time() == time():
            value = value.date()
        day = value.isoformat() if isinstance(value, date) else str(value)
        return self._read(f"{day.strip()} {of_day.strip()}")

    def _read(self, value: Any) -> Moment:
        if is_missing(value):
            raise mistake("bad-time", self.column, "empty")
        if isinstance(value, datetime):
            return _moment(value)
        if isinstance(value, date):
            return _moment(datetime(value.year, value.month, value.day))
        if isinstance(value, Real) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            self._fail(value, "no time")
        text = value.strip()
        if self._unit is None and (found := _DATED.fullmatch(text)):
            return self._dated(text, found)
        if _NUMBER.fullmatch(text):
            return self._counted(text)
        self._fail(value, "no time: give RFC 3339, a date, or seconds since 1970")

    def _dated(self, text: str, found: re.Match[str]) -> Moment:
        year, month, day = self._day(text, found)
        zone = found["zone"]
        try:
            if zone and text[10:11] == "T" and found["y"]:
                parse_time(text)  # it stays as it is
                return _moment(datetime.fromisoformat(text))[0], text
        except ValueError:
            pass
        fraction = (found["f"] or "").ljust(6, "0")[:6]
        try:
            at = datetime(
                year, month, day, int(found["H"] or 0), int(found["M"] or 0), int(found["S"] or 0),
                int(fraction), tzinfo=_zone(zone),
            )  # fmt: skip
            return _moment(at)
        except (ValueError, OverflowError):
            self._fail(
                text, "no date" if not found["H"] else "no time: there is no such day or hour"
            )

    def _day(self, text: str, found: re.Match[str]) -> tuple[int, int, int]:
        if found["y"]:
            return int(found["y"]), int(found["m"]), int(found["d"])
        if compact := found["c"]:
            return int(compact[:4]), int(compact[4:6]), int(compact[6:])
        one, two, year = int(found["one"]), int(found["two"]), int(found["year"])
        if self.order == "ymd":
            return _century(one), two, year
        if not self.order:
            self._fail(text, f"no time: is {one} the day or the month? Name the column as "
                             f"time={self.column}:dmy or :mdy")  # fmt: skip
        if len(found["year"]) == 2:
            year = _century(year)
        return (year, two, one) if self.order == "dmy" else (year, one, two)

    def _counted(self, text: str) -> Moment:
        whole, _, part = text.partition(".")
        unit = self._unit
        if unit is None and 9 <= len(whole) <= 10:
            unit = UNITS["s"]
        if unit is None and 12 <= len(whole) <= 13:
            unit = UNITS["ms"]
        if unit is None:
            self._fail(
                text, "no time: seconds since 1970 have 10 digits and milliseconds 13; name the "
                f"column as time={self.column}:s or :ms if it counts these"
            )  # fmt: skip
        micros = int(whole) * unit + int((part + "0" * 6)[:6]) * unit // 1_000_000
        try:
            return _moment(EPOCH + timedelta(microseconds=micros))
        except OverflowError:
            self._fail(text, "no time: beyond the year 9999")

    def _fail(self, value: Any, why: str) -> NoReturn:
        raise mistake("bad-time", self.column, f"{shown(value)} is {why}") from None


def _century(year: int) -> int:
    """A year of two digits: 69 to 99 are in the last century, as in POSIX."""
    return year + (1900 if year >= 69 else 2000)


def _zone(text: str | None) -> timezone:
    if not text or text in "ZzUTC":
        return UTC
    size = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-size if text[0] == "-" else size)


def _moment(at: datetime) -> Moment:
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    text = at.replace(tzinfo=None).isoformat()
    return (at - EPOCH) // _SECOND, f"{text}Z"
