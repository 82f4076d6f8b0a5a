"""Arranges the rounds and seeds of a log in waves, for a replay of all ladders together. Rounds
that share no player and have the same parameters are rated in one call, as in the service, whatever
their ladders. A row of a seed is one player, depends on that player's belief alone, and has a wave
of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.ranges import bounds
from stream_rater.columns.strings import StringColumn
from stream_rater.rating.model import NO_FIXED, Places, Wave
from stream_rater.rating.parameters import RatingConfig, Season
from stream_rater.rating.seats import SeatCodes
from stream_rater.replay.edited_log import LoggedRounds
from stream_rater.replay.pool import depths
from stream_rater.rounds.batch import NO_SCORES, NO_SEATS, RoundBatch, score_of, shift_of
from stream_rater.rounds.correction_records import Seed
from stream_rater.rounds.ragged import Ragged


class BulkRounds(Ragged, gc=False):
    """R rounds with E entries and P players in all, as they are rated: without texts, and with the
    rows of their players."""

    per_entry: ClassVar = ("place", "members", "seat", "score")
    per_player: ClassVar = ("share", "rows", "fixed", "late")
    optional: ClassVar = RoundBatch.optional

    time: Ints  # (R,) as in RoundBatch, as are all columns that are not explained here.
    weight: Floats
    ceiling: Floats
    kind: Ints  # (R,) the number of the pair of configuration and seasons.
    ladder: Ints  # (R,) the number of the ladder.
    partition: Ints  # (R,) the partition of each round.
    offset: Ints  # (R,) the offset of each round.
    entries: Ints
    sizes: Ints
    place: Places
    members: Ints
    share: Floats
    rows: Ints  # (P,) the rows of the players, round by round.
    fixed: Flags  # (P,) whether the configuration fixes the player's rating.
    late: Flags  # (P,) whether the round is after the player's cut-off.
    seat: SeatCodes = NO_SEATS
    score: Floats = NO_SCORES

    @classmethod
    def of(
        cls, logged: LoggedRounds, kind: Ints, ladder: Ints, rows: Ints, fixed: Flags, late: Flags
    ) -> Self:
        """The columns of these rounds."""
        own = logged.rounds
        return cls(
            own.time, own.weight, own.ceiling, kind, ladder, logged.partition, logged.offset,
            own.entries, own.sizes, own.place, own.members, own.share, rows, fixed, late,
            own.seat, own.score,
        )  # fmt: skip

    def wave(self, config: RatingConfig) -> Wave:
        """The rounds as stage 1 takes them, without beliefs. They may share players."""
        n = len(self.share)
        return Wave(
            bounds(self.entries), self.weight, self.ceiling, self.time, self.place,
            bounds(self.members), self.share, np.empty(n), np.empty(n), np.empty(n, np.int64),
            np.empty(n, np.int64), self.fixed if self.fixed.any() else NO_FIXED,
            shift_of(config, self.seat), score_of(config, self.score),
        )  # fmt: skip


_NONE = np.empty(0, np.int64)
BulkRounds.empty = BulkRounds(
    time=_NONE, weight=np.empty(0), ceiling=np.empty(0), kind=_NONE, ladder=_NONE, partition=_NONE,
    offset=_NONE, entries=_NONE, sizes=_NONE, place=np.empty(0, np.int32), members=_NONE,
    share=np.empty(0), rows=_NONE, fixed=np.empty(0, np.bool_), late=np.empty(0, np.bool_),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BulkWave:
    """Rounds of the same parameters that are rated in one call, in one wave or in several. The
    rounds of a wave share no player."""

    rounds: BulkRounds
    waves: Ints  # (W+1,) wave w has the rounds waves[w] : waves[w + 1]; they are rated in order.

    @property
    def rows(self) -> Ints:
        """(P,) the rows of the players, round by round."""
        return self.rounds.rows

    @property
    def late(self) -> Flags:
        """(P,) whether the round is after the player's cut-off."""
        return self.rounds.late

    @property
    def offsets(self) -> Ints:
        """(P,) the offset of each player's round."""
        return np.repeat(self.rounds.offset, self.rounds.sizes)


class DueSeed(NamedTuple):
    """A seed or a reset of n players, after the corrections."""

    seed: Seed
    started: tuple[Season, ...]  # The seasons that had started before it.
    rows: Ints  # (n,) the rows of the players.
    late: Flags  # (n,) whether it is after the player's cut-off.

    @property
    def kind(self) -> tuple[object, ...]:
        """Seeds of the same kind can be applied together."""
        return self.seed.rating, self.started, self.seed.is_reset


def players_of(seed: Seed) -> PlayerColumn:
    """(n,) the players of a seed or a reset."""
    ladders = LadderColumn(StringColumn.of([seed.ladder]))
    return PlayerColumn(ladders, np.zeros(len(seed), np.int64), seed.names)


@dataclass(frozen=True, slots=True)
class SeedWave:
    """n rows of seeds, or of resets, that are applied in one call. They have the same parameters,
    and no two are of one player."""

    first: DueSeed  # One of the seeds, for what they have in common.
    rows: Ints  # (n,) the rows of the players.
    late: Flags  # (n,) whether each row's record is after the player's cut-off.
    offsets: Ints  # (n,) the offset of each row's record.
    time: Ints  # (n,) the time of each row's record, Unix seconds.
    mu: Floats  # (n,) as in Seed, as are the next two columns.
    sigma: Floats
    rounds: Ints


def _seed_waves(due: Sequence[DueSeed]) -> Callable[[Ints], SeedWave]:
    """A function that returns the wave of some rows of these seeds and resets. It is given their
    indices among all rows."""
    seeds = [each.seed for each in due]
    which = np.repeat(np.arange(len(due)), [len(each) for each in seeds])
    heads = np.array([[each.offset, each.time] for each in seeds], np.int64)
    rows, late = (np.concatenate([getattr(each, x) for each in due]) for x in ("rows", "late"))
    numbers = [
        np.concatenate([getattr(each, x) for each in seeds]) for x in ("mu", "sigma", "rounds")
    ]

    def wave(chosen: Ints) -> SeedWave:
        own = which[chosen]
        (offsets, time), (mu, sigma, rounds) = heads[own].T, (each[chosen] for each in numbers)
        first = due[int(own[0])]
        return SeedWave(first, rows[chosen], late[chosen], offsets, time, mu, sigma, rounds)

    return wave


class Arranger:
    """Arranges rounds and rows of seeds in waves."""

    def __init__(self) -> None:
        self._latest = np.zeros(0, np.int64)

    def waves(
        self, due: Sequence[BulkRounds | DueSeed], *, together: bool = False
    ) -> list[BulkWave | SeedWave]:
        """The rounds, and the rows of seeds and resets, of a log in waves. If waves may be
        `together`, consecutive waves of rounds with the same parameters become one BulkWave."""
        rounds = [each for each in due if isinstance(each, BulkRounds)]
        seeds = [each for each in due if isinstance(each, DueSeed)]
        all_rounds = BulkRounds.concat(rounds)
        items = _items_of(due, all_rounds)
        depth = self._depths(items, due)
        by_kind = together and not seeds and _are_apart(all_rounds)
        order = np.lexsort((depth, items.kind) if by_kind else (items.kind, depth))
        if not seeds:
            in_order = all_rounds.take(items.place[order])
            return _cut(in_order, depth[order], together=together)
        found, seed_wave = list[BulkWave | SeedWave](), _seed_waves(seeds)
        changes = np.flatnonzero(np.diff(depth[order]) | np.diff(items.kind[order])) + 1
        for places in np.split(order, changes):
            own = items.place[places]
            if items.kind[places[0]] < 0:
                found.append(seed_wave(own))
            else:
                found.append(BulkWave(all_rounds.take(own), np.array([0, len(own)])))
        return found

    def _depths(self, items: "_Items", due: Sequence[BulkRounds | DueSeed]) -> Ints:
        """(n,) the number of waves before each item."""
        rows = np.concatenate([each.rows for each in due])
        most = int(rows.max(initial=-1)) + 1
        if len(self._latest) < most:
            self._latest = np.zeros(5 * most // 4, np.int64)
        return depths(bounds(items.sizes), rows, self._latest)


def _are_apart(rounds: BulkRounds) -> bool:
    """Whether the rounds of each ladder are all of one kind. Then rounds of different kinds share
    no player."""
    if len(rounds) == 0 or (rounds.kind == rounds.kind[0]).all():
        return True
    pairs = np.unique(rounds.ladder * (rounds.kind.max() + 1) + rounds.kind)
    return len(pairs) == len(np.unique(rounds.ladder))


def _cut(rounds: BulkRounds, depth: Ints, *, together: bool) -> list[BulkWave | SeedWave]:
    """Cut rounds, in the order of rating, where the wave, `depth` (R,), or the kind changes."""
    if not len(rounds):
        return []
    kinds = np.diff(rounds.kind) != 0
    ends = np.append(np.flatnonzero(kinds | (np.diff(depth) != 0)) + 1, len(rounds))
    starts = np.append(0, ends[:-1])
    players, entries = bounds(rounds.sizes), bounds(rounds.entries)
    calls = np.append(np.flatnonzero(kinds) + 1, len(rounds)) if together else ends
    found, first = list[BulkWave | SeedWave](), 0
    for last in calls.tolist():
        own = rounds.cut(
            (first, last), (int(players[first]), int(players[last])),
            (int(entries[first]), int(entries[last])),
        )  # fmt: skip
        inner = starts[np.searchsorted(starts, first) : np.searchsorted(starts, last)]
        found.append(BulkWave(own, np.append(inner, last) - first))
        first = last
    return found


class _Items(NamedTuple):
    """Rounds and rows of seeds in the order of the log. Each is an item."""

    sizes: Ints  # (n,) the number of players.
    kind: Ints  # (n,) a round's kind; a negative number for seeds that apply together.
    place: Ints  # (n,) the index among the rounds, or among the rows of seeds.


def _items_of(due: Sequence[BulkRounds | DueSeed], rounds: BulkRounds) -> _Items:
    """The items of rounds and seeds. `rounds` has all of the rounds."""
    if all(isinstance(each, BulkRounds) for each in due):
        return _Items(rounds.sizes, rounds.kind, np.arange(len(rounds)))
    columns, kinds = list[tuple[Ints, Ints, Ints]](), dict[tuple[object, ...], int]()
    seen = rows = 0
    for each in due:
        if isinstance(each, DueSeed):
            count = len(each.rows)
            kind = np.full(count, -1 - kinds.setdefault(each.kind, len(kinds)))
            columns.append((np.ones(count, np.int64), kind, np.arange(rows, rows + count)))
            rows += count
        else:
            index = np.arange(seen, seen + len(each))
            columns.append((each.sizes, each.kind, index))
            seen += len(each)
    return _Items(*(np.concatenate(each) for each in zip(*columns, strict=True)))
