"""Valid rounds as columns: one value a round, one value an entry, one value a player.

However many rounds there are, a few calls take some of them, join them, and give them to stage 1.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import ClassVar, Protocol

import msgspec
import numpy as np

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.ranges import Ragged, bounds
from stream_rater.columns.strings import StringColumn
from stream_rater.rating.model import DID_NOT_FINISH, NOBODY, Places, Table, Wave, look_up


class RoundHead(Protocol):
    """What goes with a round and is never computed with."""

    @property
    def round_id(self) -> str:
        """Its own in its ladder, within the duplicate window."""

    @property
    def ladder(self) -> str:
        """By id."""

    @property
    def completed_at(self) -> str:
        """As reported."""


class RoundBatch(Ragged, frozen=True, gc=False):
    """R rounds with E entries and P players in all.

    From the decoder on, all rounds are valid, and their entries are in order of place, those that
    did not finish last. Rounds as they were reported (`validation`) have neither property.
    """

    per_entry: ClassVar = ("place", "members")
    per_player: ClassVar = ("share", "names")

    heads: Sequence[RoundHead]
    """(R,)"""
    time: Ints
    """(R,) Unix seconds."""
    weight: Floats
    """(R,)"""
    ceiling: Floats
    """(R,) cap on performances; infinite for none."""
    entries: Ints
    """(R,) number of entries."""
    sizes: Ints
    """(R,) number of players."""
    place: Places
    """(E,) rank as reported, or DID_NOT_FINISH."""
    members: Ints
    """(E,) number of players: more than one in a team."""
    share: Floats
    """(P,) part of the round that each player played."""
    names: StringColumn
    """(P,) ids of the players; empty in the laboratory, which knows players by their rows."""

    def __getitem__(self, i: int) -> "Standings":
        if i >= len(self):
            raise IndexError(i)
        return Standings(self.slice(i, i + 1))

    def __iter__(self) -> Iterator["Standings"]:
        players, entries = bounds(self.sizes).tolist(), bounds(self.entries).tolist()
        for i, spans in enumerate(zip(pairwise(players), pairwise(entries), strict=True)):
            yield Standings(self.cut([(i, i + 1), *spans]))

    def wave(self, header: Table, rows: Ints | None = None, fixed: Collection[str] = ()) -> Wave:
        """The wave of these rounds, as stage 1 takes it. They share no player.

        `header` has their players' beliefs, in order, or in these `rows`. `fixed` are the players
        whose ratings stay as they are.
        """
        known = look_up(header, np.arange(len(header)) if rows is None else rows)
        return self._wave(*known, fixed)

    def unseen_wave(self, fixed: Collection[str] = ()) -> Wave:
        """The wave of these rounds before anybody has looked up their players' beliefs: its columns
        mu, sigma, rounds and last_time are to be written. They may share players."""
        n = len(self.share)
        blank = np.empty(n), np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
        return self._wave(*blank, fixed)

    def _wave(
        self, mu: Floats, sigma: Floats, played: Ints, last_time: Ints, fixed: Collection[str]
    ) -> Wave:
        return Wave(
            round_starts=bounds(self.entries),
            weight=self.weight,
            ceiling=self.ceiling,
            time=self.time,
            place=self.place,
            entry_starts=bounds(self.members),
            share=self.share,
            mu=mu,
            sigma=sigma,
            rounds=played,
            last_time=last_time,
            fixed=self._are_among(fixed) if fixed else NOBODY,
        )

    def _are_among(self, players: Collection[str]) -> Flags:
        chosen = frozenset(players)
        return np.array([name in chosen for name in self.names.texts()], np.bool_)

    def players(self) -> PlayerColumn:
        """(P,) the players of all rounds."""
        ladders: dict[str, int] = {}
        ladder = [ladders.setdefault(head.ladder, len(ladders)) for head in self.heads]
        column = np.repeat(np.array(ladder, np.int64), self.sizes)
        return PlayerColumn(LadderColumn(StringColumn.of(list(ladders))), column, self.names)

    def rates(self, skip_all_tied: Flags) -> Flags:
        """(R,) whether anything can be learnt from each round: somebody finished, and it is not one
        big tie where `skip_all_tied`."""
        ends = bounds(self.entries)
        best, worst = self.place[ends[:-1]], self.place[ends[1:] - 1]
        teach: Flags = (best != DID_NOT_FINISH) & ~(skip_all_tied & (best == worst))
        return teach


class Standings(msgspec.Struct, frozen=True, gc=False):
    """One round: a view of a batch of one."""

    batch: RoundBatch

    @property
    def head(self) -> RoundHead:
        """What goes with it."""
        return self.batch.heads[0]

    @property
    def round_id(self) -> str:
        """Its own in its ladder."""
        return self.head.round_id

    @property
    def ladder(self) -> str:
        """By id."""
        return self.head.ladder

    @property
    def completed_at(self) -> str:
        """As reported."""
        return self.head.completed_at

    @property
    def time(self) -> int:
        """Unix seconds."""
        return int(self.batch.time[0])

    @property
    def weight(self) -> float:
        """As reported."""
        return float(self.batch.weight[0])

    @property
    def ceiling(self) -> float:
        """Cap on performances; infinite for none."""
        return float(self.batch.ceiling[0])

    @property
    def place(self) -> Places:
        """(E,) rank as reported, or DID_NOT_FINISH."""
        return self.batch.place

    @property
    def entry_starts(self) -> Ints:
        """(E+1,) first player of each entry."""
        return bounds(self.batch.members)

    @property
    def share(self) -> Floats:
        """(P,) part of the round that each player played."""
        return self.batch.share

    @property
    def players(self) -> list[str]:
        """(P,) ids, entry by entry."""
        return self.batch.names.texts()

    def rates(self, *, skip_all_tied: bool) -> bool:
        """Whether anything can be learnt from it."""
        return bool(self.batch.rates(np.array([skip_all_tied]))[0])

    def player_places(self) -> Places:
        """(P,) each player's place."""
        return np.repeat(self.batch.place, self.batch.members)


NO_ROUNDS = RoundBatch(
    heads=[], time=(_NONE := np.empty(0, np.int64)), weight=np.empty(0), ceiling=np.empty(0),
    entries=_NONE, sizes=_NONE, place=np.empty(0, np.int32), members=_NONE, share=np.empty(0),
    names=StringColumn.of([]),
)  # fmt: skip
RoundBatch.nothing = NO_ROUNDS


def wave_of(
    rounds: Sequence[Standings], header: Table, rows: Ints | None = None,
    fixed: Collection[str] = (),
) -> Wave:  # fmt: skip
    """The wave of these rounds."""
    return RoundBatch.concat([each.batch for each in rounds]).wave(header, rows, fixed)
