"""Every player of every ladder in one table, rated many rounds at a time: what `rebuild` runs.

It goes through rounds as the service does, in waves: rounds that share no player are rated in one
call, of whatever ladders they are, if by the same parameters. What a round does depends on its
players' beliefs alone, so the bits are those of `replay`, which takes one round after the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from stream_rater.columns import wave_of
from stream_rater.lab.roll import Roll
from stream_rater.names import Bytes, LaidOut, Names, lay_out, put, spread
from stream_rater.pipeline.roster import Ladders, Roster
from stream_rater.rating import record, systems
from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import Beliefs, Ints, newcomers
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.systems import Law
from stream_rater.standings import Standings

MARK = 4
"""Bytes before each name: the number of its ladder, to tell it from namesakes."""


@kernel
def _marked(data: Bytes, starts: Ints, ends: Ints, numbers: Ints) -> tuple[Bytes, Ints]:
    """Names in a row, each behind its number, and where they end."""
    out = np.empty(MARK * len(ends) + (ends - starts).sum(), np.uint8)
    out_ends = np.empty(len(ends), np.int64)
    at = 0
    for i in range(len(ends)):
        for k in range(MARK):
            out[at + k] = (numbers[i] >> (8 * k)) & 255
        at = put(out, at + MARK, data, starts[i], ends[i])
        out_ends[i] = at
    return out, out_ends


class Census:
    """Who is who: each player of each ladder has a row, in order of appearance."""

    def __init__(self) -> None:
        self._roll = Roll()
        self._numbers: dict[str, int] = {}
        """By ladder."""
        self._told = Ladders(lay_out([]))
        """Ladders as they were last asked for."""

    def __len__(self) -> int:
        return len(self._roll)

    def rows(self, players: Roster) -> Ints:
        """(P,) row of each player; new ones are entered."""
        known = self._numbers
        numbers = [known.setdefault(each, len(known)) for each in players.ladders.texts]
        names = players.names
        data, ends = _marked(
            names.data, names.starts, names.ends, np.array(numbers, np.int64)[players.ladder]
        )
        return self._roll.rows(Names(LaidOut(data, np.append(0, ends)[:-1], ends)))[0]

    def players(self, rows: Ints) -> Roster:
        """Who is in these rows."""
        if len(self._told.names.ends) < len(self._numbers):
            self._told = Ladders(lay_out(list(self._numbers)))
        names = self._roll.laid_out(rows)
        marks = names.data[names.starts[:, np.newaxis] + np.arange(MARK)]
        ladder = marks.view("<u4").ravel().astype(np.int64)
        return Roster(self._told, ladder, LaidOut(names.data, names.starts + MARK, names.ends))


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A round that can teach anything, where it was read, and how it is rated."""

    partition: int
    offset: int
    standings: Standings
    rating: RatingConfig


@dataclass(frozen=True, slots=True)
class Turn:
    """Rounds to be rated in one call: they share parameters and no player. P players in all."""

    rounds: Sequence[Heard]
    rows: Ints
    """(P,) round by round."""
    partitions: Ints
    """(P,) where each one's round was read."""
    offsets: Ints
    """(P,)"""
    times: Ints
    """(P,)"""


@kernel
def _depths(starts: Ints, rows: Ints, latest: Ints) -> Ints:
    """How many rounds must be rated before each, the longest way back from player to player.

    Round r has the players rows[starts[r] : starts[r + 1]]; `latest` has room for every row and is
    zero, before and after.
    """
    found = np.zeros(len(starts) - 1, np.int64)
    for r in range(len(found)):
        for i in range(starts[r], starts[r + 1]):
            found[r] = max(found[r], latest[rows[i]])
        for i in range(starts[r], starts[r + 1]):
            latest[rows[i]] = found[r] + 1
    for row in rows:
        latest[row] = 0
    return found


class Crowd:
    """The beliefs of all rows of a census."""

    def __init__(self) -> None:
        self._beliefs = newcomers(0, 1, 0.0, 1.0, coded=True)
        self._latest = np.zeros(0, np.int64)
        self._laws: dict[int, tuple[RatingConfig, Law]] = {}

    def make_room(self, rows: int) -> None:
        """Hold beliefs of so many rows."""
        held = len(self._beliefs)
        if rows <= held:
            return
        rows = max(rows, held + held // 2)
        header, factors = self._beliefs.header, self._beliefs.factors
        header.resize(rows, refcheck=False)  # in place: the system moves pages, not bytes
        factors.resize((rows, *factors.shape[1:]), refcheck=False)
        self._latest = np.zeros(rows, np.int64)

    def turns(self, rounds: Sequence[Heard], rows: Ints) -> Iterator[Turn]:
        """Rounds in the order of the log, whose players are in these rows, turn by turn: each is to
        be rated before the next."""
        sizes = np.array([len(each.standings.share) for each in rounds])
        told = (
            np.array([each.partition for each in rounds]),
            np.array([each.offset for each in rounds]),
            np.array([each.standings.time for each in rounds]),
        )
        starts = np.append(0, np.cumsum(sizes))
        kinds: dict[int, int] = {}
        kind = np.array([kinds.setdefault(id(each.rating), len(kinds)) for each in rounds])
        depth = _depths(starts, rows, self._latest)
        order = np.lexsort((kind, depth))
        bounds = np.flatnonzero(np.diff(depth[order]) | np.diff(kind[order])) + 1
        for some in np.split(order, bounds):
            count = sizes[some]
            players = rows[spread(starts[some], count)]
            of = np.repeat(some, count)
            yield Turn([rounds[r] for r in some.tolist()], players, *(each[of] for each in told))

    def rate(self, turn: Turn) -> None:
        """Change the beliefs of all players of a turn."""
        rating, law = self._law(turn.rounds[0].rating)
        rows, header = turn.rows, self._beliefs.header
        new = rows[header["rounds"][rows] == 0]
        header[new] = newcomers(1, 0, law.initial_mu, law.initial_sigma).header
        wave = wave_of([each.standings for each in turn.rounds], header, rows)
        evidence = systems.estimate(rating, wave)
        systems.update(self._beliefs, rows, evidence, [law], np.zeros(len(rows), np.int64))
        systems.note_round(self._beliefs, rows, turn.offsets, turn.times)

    def _law(self, rating: RatingConfig) -> tuple[RatingConfig, Law]:
        """What holds where this is configured; there is room for the factors it keeps."""
        known = self._laws.get(id(rating))
        if known is None:
            known = self._laws[id(rating)] = rating, systems.law_of(rating)
            assert known[1].kept, "no record holds a full history"
            self._widen(known[1].kept + 1)
        return known

    def _widen(self, capacity: int) -> None:
        factors = self._beliefs.factors
        if capacity > factors.shape[1]:
            wider = np.zeros((len(factors), capacity), np.int64)
            wider[:, : factors.shape[1]] = factors
            self._beliefs = Beliefs(self._beliefs.header, wider)

    def rated(self, rows: Ints) -> Ints:
        """Those of the rows whose players have played."""
        return rows[self._beliefs.header["rounds"][rows] > 0]

    def records(self, rows: Ints) -> LaidOut:
        """Each belief as the service stores it."""
        held = self._beliefs
        data, starts = record.encode_all(Beliefs(held.header[rows], held.factors[rows]))
        return LaidOut(data, starts[:-1], starts[1:])
