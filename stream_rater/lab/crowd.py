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
from stream_rater.names import Names
from stream_rater.pipeline.ports import Player
from stream_rater.rating import record, systems
from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import Beliefs, Ints, newcomers
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.systems import Law
from stream_rater.standings import Standings


class Census:
    """Who is who: each player of each ladder has a row, in order of appearance."""

    def __init__(self) -> None:
        self._roll = Roll()
        self._marks: dict[str, str] = {}
        self._ladders: list[str] = []

    def __len__(self) -> int:
        return len(self._roll)

    def mark(self, ladder: str) -> str:
        """What stands before the ids of this ladder's players, to tell them from namesakes."""
        mark = self._marks.get(ladder)
        if mark is None:
            mark = self._marks[ladder] = f"{len(self._ladders)}/"
            self._ladders.append(ladder)
        return mark

    def rows(self, marked: list[str]) -> Ints:
        """Row of each player, told as mark and id; new ones are entered."""
        return self._roll.rows(Names(marked))[0] if marked else np.empty(0, np.int64)

    def players(self, rows: Ints) -> list[Player]:
        """Who is in these rows."""
        told = (name.partition("/") for name in self._roll.names(rows))
        return [(self._ladders[int(number)], name) for number, _, name in told]


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
    round_index: Ints
    """(P,)"""

    def partitions(self) -> Ints:
        """(P,) where each one's round was read."""
        return np.array([each.partition for each in self.rounds])[self.round_index]

    def offsets(self) -> Ints:
        """(P,)"""
        return np.array([each.offset for each in self.rounds])[self.round_index]

    def times(self) -> Ints:
        """(P,)"""
        return np.array([each.standings.time for each in self.rounds])[self.round_index]


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
        self._beliefs = newcomers(0, 1, 0.0, 1.0)
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
        sizes = np.array([len(each.standings.players) for each in rounds])
        starts = np.append(0, np.cumsum(sizes))
        kinds: dict[int, int] = {}
        kind = np.array([kinds.setdefault(id(each.rating), len(kinds)) for each in rounds])
        depth = _depths(starts, rows, self._latest)
        order = np.lexsort((kind, depth))
        bounds = np.flatnonzero(np.diff(depth[order]) | np.diff(kind[order])) + 1
        for some in np.split(order, bounds):
            count = sizes[some]
            index = np.repeat(np.arange(len(some)), count)
            firsts = np.cumsum(count) - count
            at = (starts[some] - firsts)[index] + np.arange(len(index))
            yield Turn([rounds[r] for r in some.tolist()], rows[at], index)

    def rate(self, turn: Turn) -> None:
        """Change the beliefs of all players of a turn."""
        rating, law = self._law(turn.rounds[0].rating)
        rows, header = turn.rows, self._beliefs.header
        new = rows[header["rounds"][rows] == 0]
        header[new] = newcomers(1, 0, law.initial_mu, law.initial_sigma).header
        wave = wave_of([each.standings for each in turn.rounds], header, rows)
        evidence = systems.estimate(rating, wave)
        systems.update(self._beliefs, rows, evidence, [law], np.zeros(len(rows), np.int64))
        systems.note_round(self._beliefs, rows, turn.offsets(), turn.times())

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
            wider = np.zeros((len(factors), capacity, 3))
            wider[:, : factors.shape[1]] = factors
            self._beliefs = Beliefs(self._beliefs.header, wider)

    def rated(self, rows: Ints) -> Ints:
        """Those of the rows whose players have played."""
        return rows[self._beliefs.header["rounds"][rows] > 0]

    def records(self, rows: Ints) -> list[bytes]:
        """Each belief as the service stores it."""
        return record.encode(Beliefs(self._beliefs.header[rows], self._beliefs.factors[rows]))
