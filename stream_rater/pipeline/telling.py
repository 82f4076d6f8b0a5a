"""Telling the world: one `rating-changed` for each row of a part, from the belief after it.

What an event is, `RatingChanged` says, and `encoded` makes it so: the oracle, which also serves
where an id holds a character that keys or JSON escape. Of all others `written` makes the same
bytes: one call of the encoder writes the numbers of thousands, one kernel puts them, the ids and
the words between them in their places.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, islice

import numpy as np

from stream_rater.events import RatingChanged, escape, to_json
from stream_rater.names import Bytes, LaidOut, lay_out, put, put_number
from stream_rater.pipeline.parts import Part
from stream_rater.pipeline.ports import Event
from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import DID_NOT_FINISH, PERFORMANCE, Floats, Ints, Table

_BELIEF = ("mu", "sigma", "previous_mu", "previous_sigma")
NUMBERS = 7
"""Of an event that are no integers: these four, performance, and the rating and that before."""

_IN_JSON = '"\\\\\x00-\x1f'
_escaped_in_id = re.compile(f"[%:{{}}{_IN_JSON}]").search
_escaped_in_json = re.compile(f"[{_IN_JSON}]").search


def events_of(shard: int, part: Part, header: Table) -> Collection[Event]:
    """One event a row, at least one; `header` has the (n,) beliefs after it."""
    rating, previous = _ratings(part, header)
    belief = [header[name] for name in _BELIEF]
    numbers = np.column_stack((*belief, part.evidence[:, PERFORMANCE], rating, previous))
    counts = header["rounds"].astype(np.int64)
    tell: Callable[..., Collection[Event]] = written if _is_plain(part) else encoded
    return tell(shard, part, numbers, counts)


def _ratings(part: Part, header: Table) -> tuple[Floats, Floats]:
    """(n,) what is shown after the round and before it, each row by its ladder's law."""
    law = np.array([each.law for each in part.rounds])[part.round_index]
    shown = np.empty((2, len(law)))
    for i, each in enumerate(part.laws):
        rows = law == i
        shown[0, rows] = each.rating(header["mu"][rows], header["sigma"][rows])
        shown[1, rows] = each.rating(header["previous_mu"][rows], header["previous_sigma"][rows])
    return shown[0], shown[1]


def _is_plain(part: Part) -> bool:
    """Whether all that an event quotes stands there as it is."""
    ladders = {each.ladder for each in part.rounds}
    ids = [*ladders, *[each.round_id for each in part.rounds], *part.players]
    times = {each.completed_at for each in part.rounds}
    return not (_escaped_in_id(" ".join(ids)) or _escaped_in_json(" ".join(times)))


class Together(Collection[Event]):
    """Events of several, in order."""

    def __init__(self, parts: Sequence[Collection[Event]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[Event]:
        return chain.from_iterable(self._parts)

    def __contains__(self, event: object) -> bool:
        return any(event in each for each in self._parts)

    def __repr__(self) -> str:
        return repr(list(self))


class Abreast(Together):
    """Events of several shards: the first of each, then the others, shard by shard.

    So a transaction takes in all its partitions at its start, with one or two requests, not with
    one each time another shard's turn comes.
    """

    def __iter__(self) -> Iterator[Event]:
        turns = [iter(each) for each in self._parts]
        firsts = [event for turn in turns for event in islice(turn, 1)]
        return chain(firsts, *turns)


# --- one by one -----------------------------------------------------------------------------------


def encoded(shard: int, part: Part, numbers: Floats, counts: Ints) -> list[Event]:
    """Each event by its struct: of (n, NUMBERS), and (n,) rounds played."""
    events = []
    rows = zip(part.players, part.round_index.tolist(), part.place.tolist(), strict=True)
    told = zip(counts.tolist(), numbers.tolist(), strict=True)
    for (player, r, place), (count, row) in zip(rows, told, strict=True):
        of = part.rounds[r]
        ladder, round_id, name = escape(of.ladder), escape(of.round_id), escape(player)
        mu, sigma, previous_mu, previous_sigma, performance, rating, previous_rating = row
        changed = RatingChanged(
            event_id=f"{ladder}:{round_id}:{name}",
            ladder=of.ladder,
            player=player,
            round_id=of.round_id,
            completed_at=of.completed_at,
            rank=None if place == DID_NOT_FINISH else place,
            mu=mu,
            sigma=sigma,
            previous_mu=previous_mu,
            previous_sigma=previous_sigma,
            performance=performance,
            rating=rating,
            previous_rating=previous_rating,
            rounds=count,
            provisional=count < part.laws[of.law].provisional_rounds,
        )
        key, event_id = f"{ladder}:{name}".encode(), changed.event_id.encode()
        events.append(Event(shard, key, to_json(changed), event_id, of.completed_at, of.trace))
    return events


# --- all at once ----------------------------------------------------------------------------------

Texts = tuple[Bytes, Ints, Ints]
"""As in LaidOut: all of them, where each starts and where it ends."""


def _texts(names: LaidOut) -> Texts:
    return names.data, names.starts, names.ends


def _distinct(texts: Sequence[str]) -> tuple[Texts, Ints]:
    """Each of them once, and which one each is."""
    index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    which = np.fromiter(map(index.__getitem__, texts), np.int64, len(texts))
    return _texts(lay_out(list(index))), which


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


class Written(Collection[Event]):
    """Events as bytes: key, id and value of each, one behind the other, (3n,) ends. Each is cut out
    when it is looked at, so that there are never thousands of them in memory."""

    def __init__(self, shard: int, part: Part, data: bytes, ends: Ints) -> None:
        self._shard = shard
        self._part = part
        self._data = data
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends) // 3

    def __iter__(self) -> Iterator[Event]:
        shard, data = self._shard, self._data
        rounds = [(each.completed_at, each.trace) for each in self._part.rounds]
        of, end = self._part.round_index.tolist(), iter(self._ends.tolist())
        start = 0
        for r, key, event_id, value in zip(of, end, end, end, strict=True):
            yield Event(
                shard, data[start:key], data[event_id:value], data[key:event_id], *rounds[r]
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
    words: Texts, players: Texts, ladders: Texts, round_ids: Texts, times: Texts, numbers: Bytes,
    of: Ints, ladder: Ints, time: Ints, place: Ints, counts: Ints, provisional: Ints, out: Bytes,
) -> Ints:  # fmt: skip
    """Key, id and value of each event, one behind the other; returns (3n,) where each ends.

    `of` is each row's round; `ladder`, `time` and `provisional` are the rounds'; each of `numbers`
    has a comma behind it.
    """
    ends = np.empty(3 * len(of), np.int64)
    at = number = 0
    for i in range(len(of)):
        r = of[i]
        at = _put(out, _put(out, at, ladders, ladder[r]), words, COLON)
        ends[3 * i] = start = at = _put(out, at, players, i)
        at = _put(out, _put(out, at, ladders, ladder[r]), words, COLON)
        at = _put(out, _put(out, at, round_ids, r), words, COLON)
        ends[3 * i + 1] = end = at = _put(out, at, players, i)
        at = put(out, _put(out, at, words, ID), out, start, end)
        at = _put(out, _put(out, at, words, LADDER), ladders, ladder[r])
        at = _put(out, _put(out, at, words, PLAYER), players, i)
        at = _put(out, _put(out, at, words, ROUND), round_ids, r)
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
        at = _put(out, at, words, TRUE if counts[i] < provisional[r] else FALSE)
        ends[3 * i + 2] = at
    return ends


def written(shard: int, part: Part, numbers: Floats, counts: Ints) -> Written:
    """The same events, of ids with nothing to escape."""
    rounds = part.rounds
    players = _texts(lay_out(part.players))
    round_ids = _texts(lay_out([each.round_id for each in rounds]))
    ladders, ladder = _distinct([each.ladder for each in rounds])
    times, time = _distinct([each.completed_at for each in rounds])
    told = np.frombuffer(to_json(numbers.ravel().tolist())[1:-1] + b",", np.uint8)
    provisional = [part.laws[each.law].provisional_rounds for each in rounds]
    of = part.round_index
    out = np.empty(_room(len(of), players, ladders, round_ids, times) + len(told), np.uint8)
    ends = _write(
        WORDS, players, ladders, round_ids, times, told, of, ladder, time,
        part.place.astype(np.int64), counts, np.array(provisional, np.int64), out,
    )  # fmt: skip
    return Written(shard, part, out[: ends[-1]].tobytes(), ends)


def _room(rows: int, players: Texts, *others: Texts) -> int:
    """Bytes that suffice for all but the numbers."""
    longest = sum(int((ends - starts).max()) for _, starts, ends in others)
    return rows * (len(WORDS[0]) + 2 * DIGITS + 4 * longest) + 4 * len(players[0])
