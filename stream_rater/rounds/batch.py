"""Valid rounds as columns: one value a round, one value an entry, one value a player.

However many rounds there are, a few calls take some of them, join them, and give them to stage 1.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

import msgspec
import numpy as np

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.ranges import bounds, spread
from stream_rater.columns.strings import StringColumn
from stream_rater.rating import book
from stream_rater.rating.model import DID_NOT_FINISH, Places, Table, Wave


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


class RoundBatch(msgspec.Struct, frozen=True, gc=False):
    """R rounds with E entries and P players in all."""

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
    """(E,) rank as reported, or DID_NOT_FINISH; in order of place, those that did not finish last.
    """
    members: Ints
    """(E,) number of players: more than one in a team."""
    share: Floats
    """(P,) part of the round that each player played."""
    names: StringColumn
    """(P,) ids of the players; empty in the laboratory, which knows players by their rows."""

    def __len__(self) -> int:
        return len(self.heads)

    def __getitem__(self, i: int) -> "Standings":
        if i >= len(self):
            raise IndexError(i)
        return Standings(self.slice(i, i + 1))

    def __iter__(self) -> Iterator["Standings"]:
        entries, players = bounds(self.entries).tolist(), bounds(self.sizes).tolist()
        spans = zip(pairwise(entries), pairwise(players), strict=True)
        for i, (own_entries, own_players) in enumerate(spans):
            yield Standings(self._view(i, i + 1, own_entries, own_players))

    def slice(self, first: int, last: int) -> "RoundBatch":
        """The rounds from `first` to before `last`: a view."""
        entries, players = bounds(self.entries[:last]), bounds(self.sizes[:last])
        return self._view(
            first, last, (entries[first], entries[last]), (players[first], players[last])
        )

    def _view(
        self, first: int, last: int, entries: tuple[int, int], players: tuple[int, int]
    ) -> "RoundBatch":
        """The rounds from `first` to before `last`, which have these entries and players."""
        start, end = players
        return RoundBatch(
            heads=self.heads[first:last],
            time=self.time[first:last],
            weight=self.weight[first:last],
            ceiling=self.ceiling[first:last],
            entries=self.entries[first:last],
            sizes=self.sizes[first:last],
            place=self.place[entries[0] : entries[1]],
            members=self.members[entries[0] : entries[1]],
            share=self.share[start:end],
            names=self.names.slice(start, end) if len(self.names) else self.names,
        )

    def take(self, rounds: Ints) -> "RoundBatch":
        """These rounds, in this order, copied."""
        entries = spread(bounds(self.entries)[rounds], self.entries[rounds])
        players = spread(bounds(self.sizes)[rounds], self.sizes[rounds])
        return RoundBatch(
            heads=[self.heads[i] for i in rounds.tolist()],
            time=self.time[rounds],
            weight=self.weight[rounds],
            ceiling=self.ceiling[rounds],
            entries=self.entries[rounds],
            sizes=self.sizes[rounds],
            place=self.place[entries],
            members=self.members[entries],
            share=self.share[players],
            names=self.names.take(players, compact=True) if len(self.names) else self.names,
        )

    @classmethod
    def concat(cls, batches: Sequence["RoundBatch"]) -> "RoundBatch":
        """The rounds of all these batches in turn."""
        some = [each for each in batches if len(each)] or [NO_ROUNDS]
        if len(some) == 1:
            return some[0]
        return cls(
            heads=[head for each in some for head in each.heads],
            time=np.concatenate([each.time for each in some]),
            weight=np.concatenate([each.weight for each in some]),
            ceiling=np.concatenate([each.ceiling for each in some]),
            entries=np.concatenate([each.entries for each in some]),
            sizes=np.concatenate([each.sizes for each in some]),
            place=np.concatenate([each.place for each in some]),
            members=np.concatenate([each.members for each in some]),
            share=np.concatenate([each.share for each in some]),
            names=StringColumn.concat([each.names for each in some]),
        )

    def wave(
        self, header: Table, rows: Ints | None = None,
        players: Sequence[Sequence[str]] | None = None,
    ) -> Wave:  # fmt: skip
        """The wave of these rounds, as stage 1 takes it. They share no player.

        `header` has their players' beliefs, in order, or in these `rows`. `players` are their ids,
        if they are known as Python strings.
        """
        known = book.look_up(header, np.arange(len(header)) if rows is None else rows)
        return self._wave(players, *known)

    def unseen_wave(self) -> Wave:
        """The wave of these rounds before anybody has looked up their players' beliefs: its columns
        mu, sigma, rounds and last_time are to be written. They may share players."""
        n = len(self.share)
        blank = np.empty(n), np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
        return self._wave(None, *blank)

    def _wave(
        self, players: Sequence[Sequence[str]] | None, mu: Floats, sigma: Floats, played: Ints,
        last_time: Ints,
    ) -> Wave:  # fmt: skip
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
            players=_NamesByRound(self.names, bounds(self.sizes)) if players is None else players,
        )

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


class _NamesByRound(Sequence[list[str]]):
    """The players of each round as Python strings, made when they are asked for."""

    def __init__(self, names: StringColumn, starts: Ints) -> None:
        self._names = names
        self._starts = starts

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return _NamesByRound(self._names, self._starts[index.start : index.stop + 1])
        start, end = self._starts[index], self._starts[index + 1]  # IndexError ends an iteration
        return self._names.slice(start, end).texts()


NO_ROUNDS = RoundBatch(
    heads=[], time=(_NONE := np.empty(0, np.int64)), weight=np.empty(0), ceiling=np.empty(0),
    entries=_NONE, sizes=_NONE, place=np.empty(0, np.int32), members=_NONE, share=np.empty(0),
    names=StringColumn.of([]),
)  # fmt: skip


def wave_of(rounds: Sequence[Standings], header: Table, rows: Ints | None = None) -> Wave:
    """The wave of these rounds."""
    return RoundBatch.concat([each.batch for each in rounds]).wave(header, rows)
