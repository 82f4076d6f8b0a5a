"""Reads the times of a table's rows. A time is one of: RFC 3339; a date, with or without a time of
day (2024-08-16 20:00); a compact date (20240816); a date with the day and the month in an order
that the column decides (16/08/2024); or the time since 1970 in seconds or milliseconds. Without a
zone it is in UTC."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from numbers import Real
from typing import Any, Final, NoReturn

from stream_rater.contract.events import EPOCH, parse_time
from stream_rater.tables.doubts import ROWS, Doubts, ReadColumn
from stream_rater.tables.sources import is_missing, mistake, shown

ORDERS: Final = ("dmy", "mdy", "ymd")  # The orders of day, month and year in a date.
UNITS: Final = {"s": 1_000_000, "ms": 1_000}  # The microseconds of each unit of a number.
FORMATS: Final = (*ORDERS, *UNITS)
_BY_DIGITS: Final = dict.fromkeys((9, 10), UNITS["s"]) | dict.fromkeys((12, 13), UNITS["ms"])
MOST_CACHED: Final = 50_000  # The most texts whose times are stored: a day has many matches.

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


class Times(ReadColumn):
    """Reads the cells of a column of times."""

    def __init__(self, name: str, doubts: Doubts, form: str = "") -> None:
        """`form`: one of FORMATS, if the caller says it; otherwise the column decides."""
        super().__init__(name, doubts)
        form = form or self.reading.dates
        if form and form not in FORMATS:
            doubts.ask(f"{form!r} is no form of a time: give {', '.join(FORMATS)}")
        self._order = form if form in ORDERS else doubts.decided.get(name, "")
        self._is_given = bool(form)
        self._fits = dict.fromkeys(ORDERS, True)
        self._shown: set[str] = set()
        """The orders of which `seen` has a date that can be only one."""
        self._unit = UNITS.get(form)
        self._cache: dict[Any, Moment] = {}
        self._is_read, self._unread = False, ""

    def of(self, value: Any, of_day: Any = None) -> Moment:
        """The time in a cell. `of_day`: the cell beside it with the time of day. Raises Invalid."""
        key = value if of_day is None else (value, of_day)
        try:
            return self._cache[key]
        except (KeyError, TypeError):
            pass
        moment = self._read(value) if of_day is None else self._read_both(value, of_day)
        self._is_read = True
        if len(self._cache) >= MOST_CACHED:
            self._cache.clear()
        self._cache[key] = moment
        return moment

    def settle(self) -> bool:
        if self._unread and not self._is_read:
            cure = self.reading.by_columns({"time": ""})
            self.ask(f"no cell is a time ({self._unread}): name another, or none, as {cure}")
        fits = [order for order, does in self._fits.items() if does]
        texts = self._open(fits)
        if self._is_given or not self.seen:
            return False
        if not fits:
            texts, fits = [text for text in self.seen if text not in self._open()], [*ORDERS]
        if texts and len(fits) > 1:
            both = "; ".join(
                f"{self.seen[text]} is {' or '.join(_as(text, by) for by in _days(text, fits))}"
                for text in texts[:ROWS]
            )
            fits = [order for order in fits if any(order in _days(text, fits) for text in texts)]
            cures = " or ".join(self.reading.by("dates", order) for order in fits)
            self.ask(f"in which order are day, month and year? {both}: say {cures}")
        before = self._order
        self._order = self.doubts.decided[self.name] = fits[0]
        return bool(self._open()) and fits[0] not in (before, ORDERS[0])

    def _open(self, orders: Sequence[str] = ORDERS) -> list[str]:
        """The texts that are several dates, depending on which of these orders holds."""
        return [text for text in self.seen if len(set(_days(text, orders).values())) > 1]

    def said(self) -> str:
        text = next(iter(self._open()), "")
        return f"{shown(text)} is {_as(text, self._order)}" if text and self._order else ""

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
            raise mistake("bad-time", self.name, "empty")
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
        if zone and text[10:11] == "T" and found["y"]:
            with suppress(ValueError):
                parse_time(text)  # it stays as it is
                return _moment(datetime.fromisoformat(text))[0], text
        fraction = (found["f"] or "").ljust(6, "0")[:6]
        try:
            at = datetime(
                year, month, day, int(found["H"] or 0), int(found["M"] or 0), int(found["S"] or 0),
                int(fraction), tzinfo=_zone(zone),
            )  # fmt: skip
            return _moment(at)
        except (ValueError, OverflowError):
            self._fail(text, "no time: there is no such day or hour" if found["H"] else "no date")

    def _day(self, text: str, found: re.Match[str]) -> tuple[int, int, int]:
        if found["y"]:
            return int(found["y"]), int(found["m"]), int(found["d"])
        if compact := found["c"]:
            return int(compact[:4]), int(compact[4:6]), int(compact[6:])
        days = _days(text)
        if not self._is_given and days:
            for order in ORDERS:
                self._fits[order] &= order in days
            if len(set(days.values())) > 1:
                self.note(text)
            elif (order := min(days)) not in self._shown:
                self._shown.add(order)
                self.seen[text] = self.row_of(text)
        if not days or (self._order and self._order not in days):
            self._fail(text, "no date")
        return days[self._order or next(iter(days))]

    def _counted(self, text: str) -> Moment:
        whole, _, part = text.partition(".")
        unit = self._unit or _BY_DIGITS.get(len(whole))
        if unit is None:
            self._fail(
                text, "no time: seconds since 1970 have 10 digits and milliseconds 13; name the "
                f"column as time={self.name}:s or :ms if it counts these"
            )  # fmt: skip
        micros = int(whole) * unit + int((part + "0" * 6)[:6]) * unit // 1_000_000
        try:
            return _moment(EPOCH + timedelta(microseconds=micros))
        except OverflowError:
            self._fail(text, "no time: beyond the year 9999")

    def _fail(self, value: Any, why: str) -> NoReturn:
        self._unread = self._unread or self.row_of(value)
        raise mistake("bad-time", self.name, f"{shown(value)} is {why}") from None


def _days(text: str, orders: Sequence[str] = ORDERS) -> dict[str, tuple[int, int, int]]:
    """By each of these orders in which a text is a date, its year, month and day."""
    found = _DATED.fullmatch(text)
    assert found is not None, "it was matched before"
    one, two, year = int(found["one"]), int(found["two"]), int(found["year"])
    short = len(found["year"]) == 2
    late = _century(year) if short else year
    days = {"dmy": (late, two, one), "mdy": (late, one, two), "ymd": (_century(one), two, year)}
    return {
        order: days[order] for order in orders
        if 1 <= days[order][1] <= 12 and 1 <= days[order][2] <= 31 and (short or order != "ymd")
    }  # fmt: skip


def _as(text: str, order: str) -> str:
    year, month, day = _days(text)[order]
    return f"{year:04}-{month:02}-{day:02} by {order}"


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
