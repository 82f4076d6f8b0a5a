"""What the accepted corrections of a ladder make of its rounds: the one rule of the edited log.

A round stays at its place in the order. Corrections decide who counts in it, and as whom:

- a voided round teaches nothing;
- an amended round has other standings;
- a removed player's entries are taken out of the rounds completed in some span of time;
- a merged player's entries count as those of another player. Where several entries of a round
  would then be one player's, the one reported under that player's name stays, else the one whose
  reported name is the least.

A round that is left with fewer than two entries teaches nothing. Corrections never change which
rounds were accepted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.ranges import bounds
from stream_rater.columns.strings import StringColumn
from stream_rater.rating.parameters import Season
from stream_rater.replay.fates import NO_FATES, FatesAt
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.validation import MIN_ENTRIES


class StartedSeason(NamedTuple):
    """A season that has started."""

    offset: int
    """Of its record: it holds for the rounds after it."""
    season: Season


@dataclass(frozen=True)
class Edits:
    """The accepted corrections of one ladder."""

    fates: FatesAt = field(default_factory=lambda: NO_FATES)
    """By reported name, where corrections have touched it."""
    voided: frozenset[int] = frozenset()
    """Offsets of rounds."""
    amended: Mapping[int, RoundBatch] = field(default_factory=dict)
    """By offset, the round as it is now."""
    seasons: tuple[StartedSeason, ...] = ()

    def names_of(self, player: str) -> list[str]:
        """The reported names whose entries are this player's now. It looks at all fates."""
        names = [name for name, fate in self.fates.items() if fate.now == player]
        return names if player in self.fates else [*names, player]

    @cached_property
    def started(self) -> tuple[Season, ...]:
        """The seasons, in order."""
        return tuple(each.season for each in self.seasons)

    # --- what they make of rounds ---

    @property
    def change_rounds(self) -> bool:
        """Whether any round is not as it was reported."""
        return bool(self.fates or self.voided or self.amended)

    def apply(self, rounds: RoundBatch, offsets: Ints) -> tuple[RoundBatch, Flags]:
        """The edited rounds, and (R,) whether each still has two entries.

        `rounds` are R rounds of the ladder, read at these offsets. A round without two entries
        stays as it was, and is not to be rated.
        """
        counts = np.ones(len(rounds), np.bool_)
        touched = self.touched(rounds, offsets)
        if not len(touched):
            return rounds, counts
        pieces, first = list[RoundBatch](), 0
        for i in touched.tolist():
            pieces.append(rounds.slice(first, i))
            own = rounds.slice(i, i + 1)
            edited = self.edited(own, int(offsets[i]))
            counts[i] = edited is not None
            pieces.append(own if edited is None else edited)
            first = i + 1
        return RoundBatch.concat([*pieces, rounds.slice(first, len(rounds))]), counts

    def touched(self, rounds: RoundBatch, offsets: Ints) -> Ints:
        """Which of R rounds, read at these offsets, may be changed: their indices."""
        found = np.isin(offsets, self._offsets)
        if self.fates:
            known = self.fates.may_have(rounds.names.hashes)
            starts = bounds(rounds.sizes)[:-1]
            found |= np.logical_or.reduceat(known, starts) if len(rounds) else False
        return np.flatnonzero(found)

    @cached_property
    def _offsets(self) -> Ints:
        return np.array([*self.voided, *self.amended], np.int64)

    def edited(self, round_: RoundBatch, offset: int) -> RoundBatch | None:
        """One round as it is now; None if it teaches nothing any more."""
        if offset in self.voided:
            return None
        round_ = self.amended.get(offset, round_)
        names = round_.names.texts()
        now = self.who(names, int(round_.time[0]))
        if now == names:
            return round_
        edited = _with_players(round_, now)
        return edited if len(edited.place) >= MIN_ENTRIES else None

    def differing(self, other: "Edits", rounds: RoundBatch, offsets: Ints) -> int:
        """How many of R rounds, read at these offsets, are not what other edits make of them."""
        found = 0
        for i in np.union1d(self.touched(rounds, offsets), other.touched(rounds, offsets)).tolist():
            own, offset = rounds.slice(i, i + 1), int(offsets[i])
            found += _content(self.edited(own, offset)) != _content(other.edited(own, offset))
        return found

    def who(self, names: Sequence[str], time: int) -> list[str | None]:
        """Whose the entries of a round of this time are, by reported name; None for who is taken
        out."""
        return who(self.fates, names, time)


def who(fates: FatesAt, names: Sequence[str], time: int) -> list[str | None]:
    """The same, by these fates."""
    now: list[str | None] = []
    for name in names:
        fate = fates.of(name)
        now.append(None if fate.is_out(time) else fate.now)
    stays: dict[str, str] = {}
    for name, player in zip(names, now, strict=True):
        if player is not None:
            stays[player] = min(stays.get(player, name), name, key=lambda n: (n != player, n))
    both = zip(names, now, strict=True)
    return [own if own is None or stays[own] == name else None for name, own in both]


def _with_players(round_: RoundBatch, players: Sequence[str | None]) -> RoundBatch:
    """One round with these players in place of its own; None for who is taken out."""
    stays = np.array([each is not None for each in players], np.bool_)
    members = np.array([np.count_nonzero(stays[span]) for span in _spans(round_)], np.int64)
    entries = np.flatnonzero(members)
    names = StringColumn.of([each for each in players if each is not None])
    return msgspec.structs.replace(
        round_, entries=np.array([len(entries)]), sizes=np.array([len(names)]),
        place=round_.place[entries], members=members[entries], share=round_.share[stays],
        names=names,
    )  # fmt: skip


def _content(round_: RoundBatch | None) -> tuple[object, ...]:
    """What a round says, but for its id; to be compared."""
    if round_ is None:
        return ()
    columns = round_.time, round_.weight, round_.ceiling, round_.place, round_.members, round_.share
    return (*(each.tobytes() for each in columns), *round_.names.texts())


def _spans(round_: RoundBatch) -> Iterator[slice]:
    """The players of each entry."""
    return (slice(first, end) for first, end in pairwise(bounds(round_.members).tolist()))


NO_EDITS = Edits()
