"""Encodes the `rating-changed` events: one for each row, from the belief after the row.

`encoded` makes each event from a `RatingChanged` struct; it is the oracle. `written` makes the same
bytes for thousands of events at once: one call of the JSON encoder writes their numbers, and one
kernel puts numbers, ids and field names in their places.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Bytes, Flags, Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.strings import StringColumn, put, put_number
from stream_rater.contract.events import escape, joined, to_json
from stream_rater.contract.tracecontext import Trace
from stream_rater.pipeline.parts.rows import Rows
from stream_rater.pipeline.ports import Event
from stream_rater.rating import stages
from stream_rater.rating.model import DID_NOT_FINISH, PERFORMANCE, Table
from stream_rater.replay.rating_changes import changed_of

_BELIEF = ("mu", "sigma", "previous_mu", "previous_sigma")
NUMBERS = 7
"""Number of floating-point fields in an event: the four of _BELIEF, the performance, the rating and
the previous rating."""


def encode_events(rows: Rows, header: Table) -> "EncodedEvents":
    """Encode one event for each row. `header` holds the (n,) belief headers after the rows."""
    mu, sigma, previous_mu, previous_sigma = belief = [header[name] for name in _BELIEF]
    rating = stages.ratings(rows.rules, rows.rule, mu, sigma)
    previous = stages.ratings(rows.rules, rows.rule, previous_mu, previous_sigma)
    numbers = np.column_stack((*belief, rows.evidence[:, PERFORMANCE], rating, previous))
    return written(rows, numbers, header["rounds"].astype(np.int64))


@dataclass(frozen=True, slots=True, repr=False)
class InterleavedEvents(Collection[Event]):
    """The events of several shards: first one event of each shard, then the others, shard by shard.

    So a transaction adds all its partitions at its start, with one or two requests. Otherwise it
    would send a request each time it comes to the next shard.
    """

    shards: Sequence[Collection[Event]]

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    def __iter__(self) -> Iterator[Event]:
        turns = [iter(each) for each in self.shards]
        firsts = [event for turn in turns for event in islice(turn, 1)]
        return chain(firsts, *turns)

    def __contains__(self, event: object) -> bool:
        return any(event in each for each in self.shards)

    def __repr__(self) -> str:
        return repr(list(self))


# --- one by one -----------------------------------------------------------------------------------


def encoded(shard: int, rows: Rows, numbers: Floats, counts: Ints) -> list[Event]:
    """Encode events one by one with the RatingChanged struct. `numbers` is (n, NUMBERS); `counts`
    holds the (n,) rounds played."""
    events = []
    round_ids, times = rows.round_ids.texts(), rows.completed_at.texts()
    players = zip(rows.players, rows.round.tolist(), rows.rule.tolist(), strict=True)
    more = zip(
        rows.place.tolist(), counts.tolist(), rows.offset.tolist(), numbers.tolist(), strict=True
    )
    for ((ladder, player), r, rule), (place, count, offset, row) in zip(players, more, strict=True):
        changed = changed_of(
            ladder, round_ids[r], player, times[rows.completed[r]], place, row, count, offset,
            rows.rules[rule],
        )  # fmt: skip
        key, event_id = joined(ladder, player).encode(), changed.event_id.encode()
        moment = changed.completed_at, rows.traces.get(r)
        events.append(Event(shard, key, to_json(changed), event_id, *moment))
    return events


# --- all at once ----------------------------------------------------------------------------------

Texts = tuple[Bytes, Ints, Ints]
"""The columns of a StringColumn: the bytes, and where each string starts and ends."""


def _texts(names: StringColumn) -> Texts:
    return names.data, names.starts, names.ends


_ESCAPED = np.zeros(256, np.bool_)
"""(256,) whether a key or a JSON string escapes the byte."""
_ESCAPED[:32] = _ESCAPED[[*b'%:{}"\\']] = True


@kernel
def _is_plain(data: Bytes, starts: Ints, ends: Ints, escaped: Flags) -> bool:
    for i in range(len(ends)):
        for k in range(starts[i], ends[i]):
            if escaped[data[k]]:
                return False
    return True


class Spelt(NamedTuple):
    """Ids in the three forms that an event needs: escaped for keys, escaped for JSON, and escaped
    for a key inside JSON."""

    key: Texts
    json: Texts
    both: Texts


def _spelt(ids: StringColumn) -> Spelt:
    plain = _texts(ids)
    if _is_plain(*plain, _ESCAPED):
        return Spelt(plain, plain, plain)
    texts = ids.texts()
    keys = [escape(each) for each in texts]
    return Spelt(_texts(StringColumn.of(keys)), _texts(_in_json(texts)), _texts(_in_json(keys)))


def _in_json(texts: Sequence[str]) -> StringColumn:
    return StringColumn.of([to_json(each)[1:-1].decode() for each in texts])


WORDS: Texts = _texts(
    StringColumn.of(
        [
            '{"event_id":"',
            '","ladder":"',
            '","player":"',
            '","round_id":"',
            '","completed_at":"',
            '","rank":',
            ',"mu":',
            ',"sigma":',
            ',"previous_mu":',
            ',"previous_sigma":',
            ',"performance":',
            ',"rating":',
            ',"previous_rating":',
            ',"rounds":',
            ',"provisional":',
            "null",
            ',"season":',
            'true,"offset":',
            'false,"offset":',
            ":",
            "}",
        ]
    )
)
"""The texts between an event's values, followed by the values that are words."""
ID, LADDER, PLAYER, ROUND, TIME, RANK, NUMBER = range(7)
COUNT, PROVISIONAL, NULL, SEASON, TRUE, FALSE, COLON, END = range(
    NUMBER + NUMBERS, NUMBER + NUMBERS + 8
)
COMMA = ord(",")
DIGITS = 20
"""The most digits of an integer."""


Moment = tuple[str, Trace | None]
"""What all events of a round share: the time when it was completed, and its trace context."""


def _moments(rows: Rows) -> tuple[list[Moment], Ints]:
    """Distinct moments, and (n,) the index of each row's moment. Without traces there is one moment
    for each distinct time."""
    times = rows.completed_at.texts()
    if not rows.traces:
        return [(each, None) for each in times], rows.completed[rows.round]
    time_of_round = enumerate(rows.completed.tolist())
    return [(times[i], rows.traces.get(r)) for r, i in time_of_round], rows.round


class EncodedEvents:
    """Encoded events: the bytes of key, event id and value of each event in turn, and the (3n,)
    ends of these."""

    def __init__(self, rows: Rows, data: bytes, ends: Ints) -> None:
        self._data = data
        self._ends = ends
        self._moments, self._moment = _moments(rows)

    def of(self, shard: int, rows: slice) -> "EventSlice":
        """The events of these rows, all of which belong to one shard."""
        first = int(self._ends[3 * rows.start - 1]) if rows.start else 0
        ends = self._ends[3 * rows.start : 3 * rows.stop]
        return EventSlice(shard, self._data, first, ends, self._moments, self._moment[rows])


class EventSlice(Collection[Event]):
    """A range of encoded events. An Event object is made only when it is iterated over, so that
    there are never thousands of them in memory."""

    def __init__(
        self, shard: int, data: bytes, first: int, ends: Ints,
        moments: Sequence[Moment], moment: Ints,
    ) -> None:  # fmt: skip
        self._shard = shard
        self._data = data
        self._first = first
        self._ends = ends
        self._moments = moments
        self._moment = moment

    def __len__(self) -> int:
        return len(self._moment)

    def __iter__(self) -> Iterator[Event]:
        shard, data, moments = self._shard, self._data, self._moments
        of, end = self._moment.tolist(), iter(self._ends.tolist())
        start = self._first
        for i, key, event_id, value in zip(of, end, end, end, strict=True):
            yield Event(
                shard, data[start:key], data[event_id:value], data[key:event_id], *moments[i]
            )
            start = value

    def __contains__(self, event: object) -> bool:
        return any(event == each for each in self)


@kernel
def _put(out: Bytes, at: int, texts: Texts, i: int) -> int:
    """Copy the i-th string to `out` at `at`; return the end of the copy."""
    data, starts, ends = texts
    return put(out, at, data, starts[i], ends[i])


@kernel
def _comma(numbers: Bytes, start: int) -> int:
    """The index of the next comma, from `start` on."""
    at = np.uint64(start)
    while numbers[at] != COMMA:
        at += np.uint64(1)
    return int(at)


@kernel
def _write(
    words: Texts, players: Spelt, ladders: Spelt, round_ids: Spelt, times: Texts, numbers: Bytes,
    of: Ints, ladder: Ints, time: Ints, place: Ints, counts: Ints, provisional: Ints, offset: Ints,
    season: Ints, out: Bytes,
) -> Ints:  # fmt: skip
    """Write key, event id and value of each event in turn; return the (3n,) ends.

    `of` is the round of each row. `time` is a column of the rounds, the other columns are columns
    of the rows. Each number in `numbers` is followed by a comma.
    """
    ends = np.empty(3 * len(of), np.int64)
    at = number = 0
    for i in range(len(of)):
        r, on = of[i], ladder[i]
        at = _put(out, _put(out, at, ladders.key, on), words, COLON)
        ends[3 * i] = at = _put(out, at, players.key, i)
        at = _put_id(out, at, words, ladders.key, on, round_ids.key, r, players.key, i)
        ends[3 * i + 1] = at
        at = _put(out, at, words, ID)
        at = _put_id(out, at, words, ladders.both, on, round_ids.both, r, players.both, i)
        at = _put(out, _put(out, at, words, LADDER), ladders.json, on)
        at = _put(out, _put(out, at, words, PLAYER), players.json, i)
        at = _put(out, _put(out, at, words, ROUND), round_ids.json, r)
        at = _put(out, _put(out, at, words, TIME), times, time[r])
        at = _put(out, at, words, RANK)
        known = place[i] != DID_NOT_FINISH
        at = put_number(out, at, place[i]) if known else _put(out, at, words, NULL)
        for word in range(NUMBER, NUMBER + NUMBERS):
            at = _put(out, at, words, word)
            comma = _comma(numbers, number)
            at = put(out, at, numbers, number, comma)
            number = comma + 1
        at = put_number(out, _put(out, at, words, COUNT), counts[i])
        at = _put(out, at, words, PROVISIONAL)
        at = _put(out, at, words, TRUE if counts[i] < provisional[i] else FALSE)
        at = put_number(out, at, offset[i])
        if season[i] > 0:
            at = put_number(out, _put(out, at, words, SEASON), season[i])
        at = _put(out, at, words, END)
        ends[3 * i + 2] = at
    return ends


@kernel
def _put_id(
    out: Bytes, at: int, words: Texts, ladders: Texts, ladder: int, round_ids: Texts, r: int,
    players: Texts, i: int,
) -> int:  # fmt: skip
    at = _put(out, _put(out, at, ladders, ladder), words, COLON)
    at = _put(out, _put(out, at, round_ids, r), words, COLON)
    return _put(out, at, players, i)


def written(rows: Rows, numbers: Floats, counts: Ints) -> EncodedEvents:
    """Encode all events at once: the same bytes as `encoded`. `numbers` is (n, NUMBERS); `counts`
    holds the (n,) rounds played."""
    if len(rows) == 0:
        return EncodedEvents(rows, b"", np.empty(0, np.int64))
    players, ladders = _spelt(rows.players.names), _spelt(rows.players.ladders.names)
    round_ids, times = _spelt(rows.round_ids), _spelt(rows.completed_at).json
    provisional = np.array([each.provisional_rounds for each in rows.rules], np.int64)[rows.rule]
    season = np.array([each.season or 0 for each in rows.rules], np.int64)[rows.rule]
    digits = np.frombuffer(to_json(numbers.ravel().tolist())[1:-1] + b",", np.uint8)
    size = _room(len(rows), players, ladders, round_ids, times) + len(digits)
    out = np.empty(size, np.uint8)
    ends = _write(
        WORDS, players, ladders, round_ids, times, digits, rows.round, rows.players.ladder,
        rows.completed, rows.place, counts, provisional, rows.offset, season, out,
    )  # fmt: skip
    return EncodedEvents(rows, out[: ends[-1]].tobytes(), ends)


def _room(rows: int, players: Spelt, ladders: Spelt, round_ids: Spelt, times: Texts) -> int:
    """An upper bound of the events' bytes without their floating-point numbers. `both` is the
    longest form of an id."""
    ladder, round_id, time = (
        int(_sizes(each).max()) for each in (ladders.both, round_ids.both, times)
    )
    longest = len(WORDS[0]) + 4 * ladder + 4 * round_id + time + 4 * DIGITS
    return rows * longest + 4 * int(_sizes(players.both).sum())


def _sizes(texts: Texts) -> Ints:
    _, starts, ends = texts
    return ends - starts
