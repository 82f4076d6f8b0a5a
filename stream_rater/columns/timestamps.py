"""Parses many timestamps in one call, if they have the form of RFC 3339 that nearly all clients
write."""

import numpy as np

from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.columns.strings import StringColumn

UNUSUAL = np.iinfo(np.int64).min
"""Stands for a time in another form, or a text that is no time: `events.parse_time` parses it
instead."""

SHAPE = np.frombuffer(b"0000-00-00T00:00:00", np.uint8).copy()
"""The form of a time, in which 0 stands for any digit."""
ZERO, NINE, POINT, PLUS, MINUS, COLON, ZULU = b"09.+-:Z"
MOST_DECIMALS = 6  # The most decimals of a second; more would be rounded.
FIRST_YEAR, LAST_YEAR = 1000, 9998
DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60
DAYS_BEFORE_MONTH = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365], np.int64)
DAYS_BEFORE_1970 = 719_162
"""The number of days from the first day of year 1 to the first day of 1970."""


@inlined
def _two(data: Bytes, at: int) -> int:
    return int(10 * (np.int64(data[at]) - ZERO) + np.int64(data[at + 1]) - ZERO)


@inlined
def _zone_s(data: Bytes, at: int, end: int) -> int:
    """The number of seconds by which the time zone at the end of the text is ahead of UTC; UNUSUAL
    where there is none."""
    if end - at == 1 and data[at] == ZULU:
        return 0
    if end - at != 6 or (data[at] != PLUS and data[at] != MINUS) or data[at + 3] != COLON:
        return UNUSUAL
    for i in (at + 1, at + 2, at + 4, at + 5):
        if not ZERO <= data[i] <= NINE:
            return UNUSUAL
    hours, minutes = _two(data, at + 1), _two(data, at + 4)
    if hours > 23 or minutes > 59:
        return UNUSUAL
    ahead_s = hours * HOUR_S + minutes * MINUTE_S
    return ahead_s if data[at] == PLUS else -ahead_s


@inlined
def _seconds(data: Bytes, start: int, end: int) -> int:
    for i in range(len(SHAPE)):
        c = data[start + i]
        if not ZERO <= c <= NINE if SHAPE[i] == ZERO else c != SHAPE[i]:
            return UNUSUAL
    year = 100 * _two(data, start) + _two(data, start + 2)
    month, day = _two(data, start + 5), _two(data, start + 8)
    hour, minute, second = _two(data, start + 11), _two(data, start + 14), _two(data, start + 17)
    if not (FIRST_YEAR <= year <= LAST_YEAR and 1 <= month <= 12):
        return UNUSUAL
    leap = int(year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    most = DAYS_BEFORE_MONTH[month] - DAYS_BEFORE_MONTH[month - 1] + leap * (month == 2)
    if not 1 <= day <= most or hour > 23 or minute > 59 or second > 59:
        return UNUSUAL
    at = start + len(SHAPE)
    if data[at] == POINT:
        first = at = at + 1
        while at < end and ZERO <= data[at] <= NINE:
            at += 1
        if not 1 <= at - first <= MOST_DECIMALS:
            return UNUSUAL
    ahead_s = _zone_s(data, at, end)
    if ahead_s == UNUSUAL:
        return UNUSUAL
    before = year - 1
    days = 365 * before + before // 4 - before // 100 + before // 400 - DAYS_BEFORE_1970
    days += DAYS_BEFORE_MONTH[month - 1] + leap * (month > 2) + day - 1
    return int(days * DAY_S + hour * HOUR_S + minute * MINUTE_S + second - ahead_s)


@kernel
def _all_seconds(data: Bytes, starts: Ints, ends: Ints) -> Ints:
    found = np.full(len(ends), UNUSUAL)
    for i in range(len(ends)):
        if ends[i] - starts[i] > len(SHAPE):
            found[i] = _seconds(data, starts[i], ends[i])
    return found


def seconds(texts: StringColumn) -> Ints:
    """(n,) the Unix seconds of each time, rounded down; UNUSUAL where a time has another form."""
    return _all_seconds(texts.data, texts.starts, texts.ends)
