"""Valid rounds as columns: what is said of each round, of each entry and of each player, in a row.

However many there are, a few calls choose among them, put them together and give them to stage 1.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.player_column import Ladders, Roster
from stream_rater.columns.ranges import bounds, spread
from stream_rater.columns.strings import LaidOut, chained, lay_out, together
from stream_rater.rating import book
from stream_rater.rating.model import DID_NOT_FINISH, Places, Table, Wave
from stream_rater.rounds.validation import Standings


class Told(Protocol):
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


class Rounds(msgspec.Struct, frozen=True, gc=False):
    """R rounds with E entries and P players in all."""

    told: Sequence[Told]
    """(R,)"""
    time: Ints
    """(R,) Unix seconds."""
    weight: Floats
    """(R,)"""
    ceiling: Floats
    """(R,) cap on performances; infinite for none."""
    entries: Ints
    """(R,) how many each has."""
    sizes: Ints
    """(R,) how many players."""
    place: Places
    """(E,) rank as reported, or DID_NOT_FINISH; in order of place, those that did not finish last.
    """
    members: Ints
    """(E,) how many players: more than one in a team."""
    share: Floats
    """(P,) part of the round each player played."""
    names: LaidOut
    """(P,) ids of the players."""

    def __len__(self) -> int:
        return len(self.told)

    @classmethod
    def of(cls, some: Sequence[Standings], *, named: bool = True) -> "Rounds":
        """Rounds that were read one by one; with nobody's names where none looks at them."""
        if not some:
            return NO_ROUNDS
        return cls(
            told=[each.head for each in some] if named else some,
            time=np.array([each.time for each in some], np.int64),
            weight=np.array([each.weight for each in some], np.float64),
            ceiling=np.array([each.ceiling for each in some], np.float64),
            entries=np.array([len(each.place) for each in some], np.int64),
            sizes=np.array([len(each.share) for each in some], np.int64),
            place=np.concatenate([each.place for each in some]),
            members=np.concatenate([each.members for each in some]),
            share=np.concatenate([each.share for each in some]),
            names=together([each.names for each in some]) if named else NO_ROUNDS.names,
        )

    def rows(self, chosen: Ints) -> "Rounds":
        """These of them, in this order."""
        entries = spread(bounds(self.entries)[chosen], self.entries[chosen])
        players = spread(bounds(self.sizes)[chosen], self.sizes[chosen])
        return Rounds(
            told=[self.told[i] for i in chosen.tolist()],
            time=self.time[chosen],
            weight=self.weight[chosen],
            ceiling=self.ceiling[chosen],
            entries=self.entries[chosen],
            sizes=self.sizes[chosen],
            place=self.place[entries],
            members=self.members[entries],
            share=self.share[players],
            names=self.names.picked(players),
        )

    def wave(
        self, header: Table, rows: Ints | None = None,
        players: Sequence[Sequence[str]] | None = None,
    ) -> Wave:  # fmt: skip
        """As stage 1 takes rounds that share no player; `header` has their beliefs, in order.

        Or in these `rows`. `players` are their ids if they are known as texts.
        """
        known = book.look_up(header, np.arange(len(header)) if rows is None else rows)
        mu, sigma, played, last_time = known
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
            players=_Texts(self) if players is None else players,
        )

    def players(self) -> Roster:
        """The players of all rounds, one round after the other."""
        ladders: dict[str, int] = {}
        ladder = [ladders.setdefault(told.ladder, len(ladders)) for told in self.told]
        column = np.repeat(np.array(ladder, np.int64), self.sizes)
        return Roster(Ladders(lay_out(list(ladders))), column, self.names)

    def rates(self, skip_all_tied: Flags) -> Flags:
        """(R,) whether anything can be learnt: somebody finished, and it is not one big tie to
        skip, where such are."""
        ends = bounds(self.entries)
        best, worst = self.place[ends[:-1]], self.place[ends[1:] - 1]
        teach: Flags = (best != DID_NOT_FINISH) & ~(skip_all_tied & (best == worst))
        return teach


class _Players(Sequence[list[str]]):
    """The same of rounds that were read one by one."""

    def __init__(self, rounds: Sequence[Standings]) -> None:
        self._rounds = rounds

    def __len__(self) -> int:
        return len(self._rounds)

    def __getitem__(self, index: Any) -> Any:
        return self._rounds[index].players


class _Texts(Sequence[list[str]]):
    """The players of rounds by id, made of those that are looked at."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._starts = bounds(rounds.sizes)

    def __len__(self) -> int:
        return len(self._rounds)

    def __getitem__(self, index: Any) -> Any:
        start, end = self._starts[index], self._starts[index + 1]  # IndexError ends an iteration
        return self._rounds.names.some(slice(start, end)).texts()


NO_ROUNDS = Rounds(
    told=[], time=(_NONE := np.empty(0, np.int64)), weight=np.empty(0), ceiling=np.empty(0),
    entries=_NONE, sizes=_NONE, place=np.empty(0, np.int32), members=_NONE, share=np.empty(0),
    names=lay_out([]),
)  # fmt: skip


def wave_of(rounds: Sequence[Standings], header: Table, rows: Ints | None = None) -> Wave:
    """The wave of rounds that were read one by one."""
    return Rounds.of(rounds, named=False).wave(header, rows, _Players(rounds))


def joined(some: Sequence[Rounds]) -> Rounds:
    """All of these, one after the other."""
    some = [each for each in some if len(each)] or [NO_ROUNDS]
    if len(some) == 1:
        return some[0]
    return Rounds(
        told=[told for each in some for told in each.told],
        time=np.concatenate([each.time for each in some]),
        weight=np.concatenate([each.weight for each in some]),
        ceiling=np.concatenate([each.ceiling for each in some]),
        entries=np.concatenate([each.entries for each in some]),
        sizes=np.concatenate([each.sizes for each in some]),
        place=np.concatenate([each.place for each in some]),
        members=np.concatenate([each.members for each in some]),
        share=np.concatenate([each.share for each in some]),
        names=chained([each.names for each in some]),
    )
