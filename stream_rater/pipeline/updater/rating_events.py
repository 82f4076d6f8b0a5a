"""Encodes the `rating-changed` events: one event for each row, from the belief after the row.

`encode_together` makes the bytes of thousands of `RatingChanged` structs at once: the JSON encoder
writes their numbers in one call, and one kernel copies numbers, ids and field names into place.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Bytes, Flags, Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.strings import StringColumn, put, put_number
from stream_rater.contract.events import escape, to_json
from stream_rater.contract.record import Trace
from stream_rater.contract.seeds import SEEDS
from stream_rater.pipeline.parts.decoder import Rows
from stream_rater.pipeline.parts.unpacking import ID as ID_START
from stream_rater.pipeline.parts.unpacking import ID_END, INDEX, OFFSET, PLACE, RULE
from stream_rater.pipeline.ports import Event
from stream_rater.rating import stages
from stream_rater.rating.model import DID_NOT_FINISH, PERFORMANCE, Table

BELIEF = ("mu", "sigma", "previous_mu", "previous_sigma")
CORRECTION = "correction"
"""The second part of the event id of a correction, before its offset. A round's event id has the
round's id there."""
NUMBERS = 7
"""The number of floating-point fields in an event: the four of BELIEF, the performance, the rating
and the previous rating."""

RoundTime = tuple[str, Trace | None]
"""The time when a round was completed, as reported, and its trace context."""


class ShardEvents(NamedTuple):
    """The encoded events of one shard, in order."""

    shard: int
    data: bytes
    """The key, event id and value of each event in turn. Other shards' events may be in it, too."""
    start: int  # The index in `data` of the first event.
    ends: Ints  # (3n,) the index in `data` after each key, event id and value.
    times: Sequence[RoundTime]
    time: Ints  # (n,) the index of each event's time among `times`.

    def texts(self) -> Iterator[tuple[bytes, bytes, bytes, int]]:
        """Yield the key, event id and value of each event, in order, and the index of its time."""
        data, start, end = self.data, self.start, iter(self.ends.tolist())
        for time, key, event_id, value in zip(self.time.tolist(), end, end, end, strict=True):
            yield data[start:key], data[key:event_id], data[event_id:value], time
            start = value

    def events(self) -> Iterator[Event]:
        """Decode the events, in order."""
        for key, event_id, value, time in self.texts():
            yield Event(self.shard, key, value, event_id, *self.times[time])


class Events(Collection[Event]):
    """Encoded events of some shards. The first event of each shard comes first, then the others,
    shard by shard.

    With this order, a transaction adds all its partitions at its start, with one or two requests.
    Otherwise it would send a request whenever it reaches the next shard. Event objects are made
    only during iteration, so that there are never thousands of them in memory. To send the events,
    a driver needs none.
    """

    def __init__(self, runs: Iterable[ShardEvents] = ()) -> None:
        self.runs = tuple(runs)  # The events of each call and shard, still encoded.

    @classmethod
    def of(cls, shard: int, events: Sequence[Event]) -> "Events":
        """Encode these events of one shard."""
        texts = [text for each in events for text in (each.key, each.event_id, each.value)]
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        times = [(each.time, each.trace) for each in events]
        return cls([ShardEvents(shard, b"".join(texts), 0, ends, times, np.arange(len(events)))])

    @classmethod
    def encoded(cls, events: Collection[Event]) -> "Events":
        """These events of any shards: they themselves, if they are encoded."""
        if isinstance(events, Events):
            return events
        by_shard: dict[int, list[Event]] = {}
        for each in events:
            by_shard.setdefault(each.shard, []).append(each)
        return cls.combined(cls.of(shard, own) for shard, own in by_shard.items())

    @classmethod
    def combined(cls, events: Iterable["Events"]) -> "Events":
        """Combine the events of all of these."""
        return cls(run for each in events for run in each.runs)

    def __len__(self) -> int:
        return sum(len(run.time) for run in self.runs)

    def __iter__(self) -> Iterator[Event]:
        runs = [run.events() for run in self.runs]
        firsts = [event for run in runs for event in islice(run, 1)]
        return chain(firsts, *runs)

    def __contains__(self, event: object) -> bool:
        return any(event == each for each in self)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same events of the same calls. A driver uses this to find that it
        has sent them already. Nothing is decoded: the runs are compared by identity."""
        if not isinstance(other, Events) or len(self.runs) != len(other.runs):
            return False
        return all(mine is theirs for mine, theirs in zip(self.runs, other.runs, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def encode_events(
    rows: Rows, header: Table, cuts: Mapping[int, slice], cause: str = ""
) -> dict[int, Events]:
    """Encode one event for each row. `header` (n,) has the belief headers after the rows, and
    `cuts` the range of each shard's rows. `cause` is the kind of the records if they are not
    rounds. Returns the events of each shard."""
    mu, sigma, previous_mu, previous_sigma = belief = [header[name] for name in BELIEF]
    rating = stages.ratings(rows.rules, rows.rule_index, mu, sigma)
    previous = stages.ratings(rows.rules, rows.rule_index, previous_mu, previous_sigma)
    performance = np.full(len(rows), np.nan) if cause else rows.evidence[:, PERFORMANCE]
    numbers = np.column_stack((*belief, performance, rating, previous))
    return encode_together(rows, numbers, header["rounds"].astype(np.int64), cuts, cause)


# --- all at once ----------------------------------------------------------------------------------

Texts = tuple[Bytes, Ints, Ints]
"""The columns of a StringColumn: the bytes, and where each string starts and ends."""


def _texts(names: StringColumn) -> Texts:
    return names.data, names.starts, names.ends


_ESCAPED = np.zeros(256, np.bool_)  # (256,) whether a key or a JSON string must escape the byte.
_ESCAPED[:32] = _ESCAPED[[*b'%:{}"\\']] = True


@kernel
def _is_plain(data: Bytes, starts: Ints, ends: Ints, escaped: Flags) -> bool:
    for i in range(len(ends)):
        for k in range(starts[i], ends[i]):
            if escaped[data[k]]:
                return False
    return True


class EscapedIds(NamedTuple):
    """Ids in the three forms that an event needs: escaped for a key, escaped for a JSON string, and
    escaped for a key inside a JSON string."""

    key: Texts
    json: Texts
    both: Texts


def _escaped(ids: StringColumn) -> EscapedIds:
    plain = _texts(ids)
    if _is_plain(*plain, _ESCAPED):
        return EscapedIds(plain, plain, plain)
    texts = ids.texts()
    keys = [escape(each) for each in texts]
    return EscapedIds(
        _texts(StringColumn.of(keys)), _texts(_in_json(texts)), _texts(_in_json(keys))
    )


def _in_json(texts: Sequence[str]) -> StringColumn:
    return StringColumn.of([to_json(each)[1:-1].decode() for each in texts])


WORDS: Texts = _texts(StringColumn.of([
    '{"event_id":"', '","ladder":"', '","player":"', '","round_id":"', '","completed_at":"',
    '","rank":', ',"mu":', ',"sigma":', ',"previous_mu":', ',"previous_sigma":', ',"performance":',
    ',"rating":', ',"previous_rating":', ',"rounds":', ',"provisional":', "null", ',"season":',
    'true,"offset":', 'false,"offset":', ":", "}", ',"round_id":"', '"}',
]))  # fmt: skip
"""The fixed texts of an event: those before its values, the values that are words, a colon, the
closing brace, and the texts around the id of the record that caused it."""
ID, LADDER, PLAYER, ROUND, TIME, RANK, NUMBER = range(7)
COUNT, PROVISIONAL, NULL, SEASON, TRUE, FALSE, COLON, END, CAUSED, END_CAUSE = range(
    NUMBER + NUMBERS, NUMBER + NUMBERS + 10
)
COMMA = ord(",")
DIGITS = 20  # The most characters of an integer.


@kernel
def _put(out: Bytes, at: int, texts: Texts, i: int) -> int:
    """Copy the i-th string to `out` at `at`; return the end of the copy."""
    data, starts, ends = texts
    return put(out, at, data, starts[i], ends[i])


@kernel
def _write(
    words: Texts, players: EscapedIds, ladders: EscapedIds, round_ids: EscapedIds, times: Texts,
    numbers: Bytes, rows: Ints, rounds: Ints, ladder: Ints, time: Ints, counts: Ints,
    provisional: Ints, season: Ints, cause: Texts, out: Bytes,
) -> Ints:  # fmt: skip
    """Write the key, event id and value of each event in turn. Returns the (3n,) ends.

    `rows` and `rounds` have the columns of `unpacking`. `ladder` and `counts` are columns of the
    rows, `time` is a column of the rounds, `provisional` and `season` are columns of the rules.
    Each number in `numbers` is followed by a comma. `cause` is empty, or it has one text: what an
    event says of the record that caused it, up to that record's offset.
    """
    ends = np.empty(3 * len(counts), np.int64)
    at = number = 0
    for i in range(len(counts)):
        r, ladder_index, place = rows[INDEX, i], ladder[i], rows[PLACE, i]
        rule = rounds[RULE, r]
        at = _put(out, _put(out, at, ladders.key, ladder_index), words, COLON)
        ends[3 * i] = at = _put(out, at, players.key, i)
        at = _put_id(out, at, words, ladders.key, ladder_index, round_ids.key, r, players.key, i)
        ends[3 * i + 1] = at
        at = _put(out, at, words, ID)
        at = _put_id(out, at, words, ladders.both, ladder_index, round_ids.both, r, players.both, i)
        at = _put(out, _put(out, at, words, LADDER), ladders.json, ladder_index)
        at = _put(out, _put(out, at, words, PLAYER), players.json, i)
        at = _put(out, _put(out, at, words, ROUND), round_ids.json, r)
        at = _put(out, _put(out, at, words, TIME), times, time[r])
        at = _put(out, at, words, RANK)
        known = place != DID_NOT_FINISH
        at = put_number(out, at, place) if known else _put(out, at, words, NULL)
        for word in range(NUMBER, NUMBER + NUMBERS):
            at = _put(out, at, words, word)
            comma = np.uint64(number)
            while numbers[comma] != COMMA:
                comma += np.uint64(1)
            at = put(out, at, numbers, number, int(comma))
            number = int(comma) + 1
        at = put_number(out, _put(out, at, words, COUNT), counts[i])
        at = _put(out, at, words, PROVISIONAL)
        at = _put(out, at, words, TRUE if counts[i] < provisional[rule] else FALSE)
        at = put_number(out, at, rounds[OFFSET, r])
        if season[rule] > 0:
            at = put_number(out, _put(out, at, words, SEASON), season[rule])
        if len(cause[1]) > 0:
            at = put_number(out, _put(out, at, cause, 0), rounds[OFFSET, r])
            if rounds[ID_END, r] > rounds[ID_START, r]:
                at = _put(out, _put(out, at, words, CAUSED), round_ids.json, r)
                at = _put(out, at, words, END_CAUSE)
            else:
                at = _put(out, at, words, END)
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


def encode_together(
    rows: Rows, numbers: Floats, counts: Ints, cuts: Mapping[int, slice], cause: str = ""
) -> dict[int, Events]:
    """Encode all events at once. `numbers` (n, NUMBERS) has the floating-point fields (NaN for
    none), `counts` (n,) the numbers of rounds played, and `cuts` the range of each shard's rows.
    `cause`: as in `encode_events`."""
    times, time = rows.completed_at
    texts = times.texts()
    data, ends = _encoded(rows, numbers, counts, texts, time, cause)
    round_times: list[RoundTime] = [(each, None) for each in texts]
    row_times = time[rows.round]
    if rows.traces:  # a trace differs from round to round, so each round has its own RoundTime
        round_times = [(texts[i], rows.traces.get(r)) for r, i in enumerate(time.tolist())]
        row_times = rows.round
    found = {}
    for shard, cut in cuts.items():
        start = int(ends[3 * cut.start - 1]) if cut.start else 0
        own = ends[3 * cut.start : 3 * cut.stop]
        found[shard] = Events([ShardEvents(shard, data, start, own, round_times, row_times[cut])])
    return found


def _encoded(
    rows: Rows, numbers: Floats, counts: Ints, completed_at: Sequence[str], completed: Ints,
    cause: str,
) -> tuple[bytes, Ints]:  # fmt: skip
    """The bytes of all events, and the (3n,) ends of the key, event id and value of each.
    `completed` (R,) is the index of each round's time among `completed_at`."""
    if len(rows) == 0:
        return b"", np.empty(0, np.int64)
    players, ladders = _escaped(rows.players.names), _escaped(rows.players.ladders.names)
    round_ids, times = _escaped(rows.round_ids), _texts(_in_json(completed_at))
    if cause and cause not in SEEDS:
        by_offset = [f"{CORRECTION}:{offset}" for offset in rows.rounds[OFFSET].tolist()]
        ids = _texts(StringColumn.of(by_offset))
        round_ids = round_ids._replace(key=ids, both=ids)
    provisional = np.array([each.provisional_rounds for each in rows.rules], np.int64)
    season = np.array([each.season or 0 for each in rows.rules], np.int64)
    digits = np.frombuffer(to_json(numbers.ravel().tolist())[1:-1] + b",", np.uint8)
    opening = [] if not cause else [f',"correction":{{"cause":{to_json(cause).decode()},"offset":']
    size = _size_bound(len(rows), players, ladders, round_ids, times) + len(digits)
    size += len(rows) * sum(map(len, opening))
    out = np.empty(size, np.uint8)
    ends = _write(
        WORDS, players, ladders, round_ids, times, digits, rows.columns, rows.rounds,
        rows.players.ladder, completed, counts, provisional, season,
        _texts(StringColumn.of_bytes([each.encode() for each in opening])), out,
    )  # fmt: skip
    return out[: ends[-1]].tobytes(), ends


def _size_bound(
    rows: int, players: EscapedIds, ladders: EscapedIds, round_ids: EscapedIds, times: Texts
) -> int:
    """An upper bound of the number of bytes of all events without their floating-point numbers. An
    event has its ladder and its player four times at most, in forms that are no longer than `both`,
    and the id of its record twice in an id of its own and twice as JSON."""
    ladder, round_id, json_id, time = (
        int((ends - starts).max())
        for _, starts, ends in (ladders.both, round_ids.both, round_ids.json, times)
    )
    each = len(WORDS[0]) + 4 * ladder + 2 * (round_id + json_id) + time + 4 * DIGITS
    _, starts, ends = players.both
    return rows * each + 4 * int((ends - starts).sum())
