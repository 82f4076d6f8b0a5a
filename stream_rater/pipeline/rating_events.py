"""Telling the world: one `rating-changed` for each row, from the belief after it.

What an event is, `RatingChanged` says, and `encoded` makes it so: the oracle. Of thousands
`written` makes the same bytes: one call of the encoder writes their numbers, one kernel puts them,
the ids and the words between them in their places.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Bytes, Flags, Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.strings import LaidOut, lay_out, put, put_number
from stream_rater.contract.events import RatingChanged, escape, joined, to_json
from stream_rater.contract.tracecontext import Trace
from stream_rater.parts.rows import Rows
from stream_rater.pipeline.ports import Event
from stream_rater.rating import systems
from stream_rater.rating.model import DID_NOT_FINISH, PERFORMANCE, Table

_BELIEF = ("mu", "sigma", "previous_mu", "previous_sigma")
NUMBERS = 7
"""Of an event that are no integers: these four, performance, and the rating and that before."""


def told(rows: Rows, header: Table) -> "Told":
    """One event a row; `header` has the (n,) beliefs after it."""
    mu, sigma, previous_mu, previous_sigma = belief = [header[name] for name in _BELIEF]
    rating = systems.ratings(rows.laws, rows.law, mu, sigma)
    previous = systems.ratings(rows.laws, rows.law, previous_mu, previous_sigma)
    numbers = np.column_stack((*belief, rows.evidence[:, PERFORMANCE], rating, previous))
    return written(rows, numbers, header["rounds"].astype(np.int64))


@dataclass(frozen=True, slots=True, repr=False)
class Abreast(Collection[Event]):
    """Events of several shards: the first of each, then the others, shard by shard.

    So a transaction takes in all its partitions at its start, with one or two requests, not with
    one each time another shard's turn comes.
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
    """Each event by its struct: of (n, NUMBERS), and (n,) rounds played."""
    events = []
    round_ids, times = rows.round_ids.texts(), rows.completed_at.texts()
    players = zip(rows.players, rows.round.tolist(), rows.law.tolist(), strict=True)
    more = zip(rows.place.tolist(), counts.tolist(), numbers.tolist(), strict=True)
    for ((ladder, player), r, law), (place, count, row) in zip(players, more, strict=True):
        mu, sigma, previous_mu, previous_sigma, performance, rating, previous_rating = row
        changed = RatingChanged(
            event_id=joined(ladder, round_ids[r], player),
            ladder=ladder,
            player=player,
            round_id=round_ids[r],
            completed_at=times[rows.completed[r]],
            rank=None if place == DID_NOT_FINISH else place,
            mu=mu,
            sigma=sigma,
            previous_mu=previous_mu,
            previous_sigma=previous_sigma,
            performance=performance,
            rating=rating,
            previous_rating=previous_rating,
            rounds=count,
            provisional=count < rows.laws[law].provisional_rounds,
        )
        key, event_id = joined(ladder, player).encode(), changed.event_id.encode()
        moment = changed.completed_at, rows.traces.get(r)
        events.append(Event(shard, key, to_json(changed), event_id, *moment))
    return events


# --- all at once ----------------------------------------------------------------------------------

Texts = tuple[Bytes, Ints, Ints]
"""As in LaidOut: all of them, where each starts and where it ends."""


def _texts(names: LaidOut) -> Texts:
    return names.data, names.starts, names.ends


_ESCAPED = np.zeros(256, np.bool_)
"""Which bytes keys or JSON escape."""
_ESCAPED[:32] = _ESCAPED[[*b'%:{}"\\']] = True


@kernel
def _is_plain(data: Bytes, starts: Ints, ends: Ints, escaped: Flags) -> bool:
    for i in range(len(ends)):
        for k in range(starts[i], ends[i]):
            if escaped[data[k]]:
                return False
    return True


class Spelt(NamedTuple):
    """Ids as they are written in keys, in JSON, and where JSON tells a key."""

    key: Texts
    json: Texts
    both: Texts


def _spelt(ids: LaidOut) -> Spelt:
    plain = _texts(ids)
    if _is_plain(*plain, _ESCAPED):
        return Spelt(plain, plain, plain)
    texts = ids.texts()
    keys = [escape(each) for each in texts]
    return Spelt(_texts(lay_out(keys)), _texts(_in_json(texts)), _texts(_in_json(keys)))


def _in_json(texts: Sequence[str]) -> LaidOut:
    return lay_out([to_json(each)[1:-1].decode() for each in texts])


WORDS: Texts = _texts(
    lay_out(
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
            "true}",
            "false}",
            ":",
        ]
    )
)
"""What stands between an event's values, then values that are words."""
ID, LADDER, PLAYER, ROUND, TIME, RANK, NUMBER = range(7)
COUNT, PROVISIONAL, NULL, TRUE, FALSE, COLON = range(NUMBER + NUMBERS, NUMBER + NUMBERS + 6)
COMMA = ord(",")
DIGITS = 20
"""Of an integer, at most."""


Moment = tuple[str, Trace | None]
"""What the events of a round have in common: when it was completed, and its trace."""


def _moments(rows: Rows) -> tuple[list[Moment], Ints]:
    """Moments, and (n,) which of them is each row's: one a time where nothing is traced."""
    times = rows.completed_at.texts()
    if not rows.traces:
        return [(each, None) for each in times], rows.completed[rows.round]
    told = enumerate(rows.completed.tolist())
    return [(times[i], rows.traces.get(r)) for r, i in told], rows.round


class Told:
    """Events as bytes: key, id and value of each, one behind the other, (3n,) ends."""

    def __init__(self, rows: Rows, data: bytes, ends: Ints) -> None:
        self._data = data
        self._ends = ends
        self._moments, self._moment = _moments(rows)

    def of(self, shard: int, rows: slice) -> "Written":
        """Of these rows, which are a shard's."""
        first = int(self._ends[3 * rows.start - 1]) if rows.start else 0
        ends = self._ends[3 * rows.start : 3 * rows.stop]
        return Written(shard, self._data, first, ends, self._moments, self._moment[rows])


class Written(Collection[Event]):
    """Some of them. Each is cut out when it is looked at, so that there are never thousands of
    them in memory."""

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
    """The i-th text."""
    data, starts, ends = texts
    return put(out, at, data, starts[i], ends[i])


@kernel
def _comma(numbers: Bytes, start: int) -> int:
    """Where the next one is."""
    at = np.uint64(start)
    while numbers[at] != COMMA:
        at += np.uint64(1)
    return int(at)


@kernel
def _write(
    words: Texts, players: Spelt, ladders: Spelt, round_ids: Spelt, times: Texts, numbers: Bytes,
    of: Ints, ladder: Ints, time: Ints, place: Ints, counts: Ints, provisional: Ints, out: Bytes,
) -> Ints:  # fmt: skip
    """Key, id and value of each event, one behind the other; returns (3n,) where each ends.

    `of` is each row's round; `time` is the rounds', the other columns are the rows'; each of
    `numbers` has a comma behind it.
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


def written(rows: Rows, numbers: Floats, counts: Ints) -> Told:
    """The same events."""
    if len(rows) == 0:
        return Told(rows, b"", np.empty(0, np.int64))
    players, ladders = _spelt(rows.players.names), _spelt(rows.players.ladders.names)
    round_ids, times = _spelt(rows.round_ids), _spelt(rows.completed_at).json
    provisional = np.array([each.provisional_rounds for each in rows.laws], np.int64)[rows.law]
    told = np.frombuffer(to_json(numbers.ravel().tolist())[1:-1] + b",", np.uint8)
    size = _room(len(rows), players, ladders, round_ids, times) + len(told)
    out = np.empty(size, np.uint8)
    ends = _write(
        WORDS, players, ladders, round_ids, times, told, rows.round, rows.players.ladder,
        rows.completed, rows.place, counts, provisional, out,
    )  # fmt: skip
    return Told(rows, out[: ends[-1]].tobytes(), ends)


def _room(rows: int, players: Spelt, ladders: Spelt, round_ids: Spelt, times: Texts) -> int:
    """Bytes that suffice for all but the numbers: `both` is the longest that an id is written."""
    ladder, round_id, time = (
        int(_sizes(each).max()) for each in (ladders.both, round_ids.both, times)
    )
    longest = len(WORDS[0]) + 4 * ladder + 4 * round_id + time + 2 * DIGITS
    return rows * longest + 4 * int(_sizes(players.both).sum())


def _sizes(texts: Texts) -> Ints:
    _, starts, ends = texts
    return ends - starts
