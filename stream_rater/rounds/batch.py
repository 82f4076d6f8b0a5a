"""Stores rounds as columns, which have a value for each round, each entry or each player.

A few calls select rounds, join them and make the wave that stage 1 rates. The number of calls does
not depend on the number of rounds.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_rater.columns import strings
from stream_rater.columns.arrays import Flags, Floats, Hashes, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.ranges import bounds
from stream_rater.columns.strings import StringColumn
from stream_rater.contract import events
from stream_rater.contract.events import Round
from stream_rater.rating import model
from stream_rater.rating.model import DID_NOT_FINISH, Places, Table, Wave
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.seats import NO_SEAT, SeatCodes, shifts_of
from stream_rater.rounds.ragged import Ragged, functions_of

MAX_TIME_LENGTH = 64  # The most characters of a time, which is copied to every event of the round.
MOST_INSERTED = 32  # The most entries that are sorted by insertion.
NO_SEATS: SeatCodes = np.empty(0, np.uint64)
NO_SCORES = np.empty(0)  # The columns of rounds in which no entry has a seat, or a score.
BAD_SEAT, BAD_SCORE = 2**64 - 1, math.inf
"""What the columns of a reported round have where the message has a seat or a score that is not
valid. Its bytes are no ASCII, so this number is that of no seat. `validation` rejects the round if
its ladder uses the field; if not, `forget_invalid` makes the value absent."""


class RoundBatch(Ragged, gc=False):
    """R rounds with E entries and P players in all.

    After the decoder, all rounds are valid, and their entries are in order of place; entries that
    did not finish come last. Rounds as they were reported (`validation`) have neither property.
    """

    per_entry: ClassVar = ("place", "members", "seat", "score")
    per_player: ClassVar[tuple[str, ...]] = ("share", "names")
    optional: ClassVar = {"seat": NO_SEAT, "score": math.nan}

    heads: Sequence[Round]
    """(R,) the id, the ladder and the reported time of each round. Kernels do not read them."""
    time: Ints  # (R,) the time of completion, Unix seconds.
    weight: Floats  # (R,) the relative weight of the round's evidence.
    ceiling: Floats  # (R,) the cap on performances; infinite for none.
    config_index: Ints
    """(R,) the index of the rating configuration among the decoder's `ratings`, or 0."""
    unknown: Flags
    """(R,) whether the round has unknown fields, or an entry with both a rank and `dnf`."""
    entries: Ints  # (R,) the number of entries.
    sizes: Ints  # (R,) the number of players.
    place: Places  # (E,) the place of each entry: the rank as reported, or DID_NOT_FINISH.
    members: Ints  # (E,) the number of players of each entry; a team has several.
    share: Floats  # (P,) the part of the round that each player played.
    names: StringColumn  # (P,) the ids of the players; empty in `evaluation`, which uses rows.
    seat: SeatCodes = NO_SEATS
    """(E,) the number of each entry's seat (`seats`), or NO_SEAT. (0,) if no entry has one."""
    score: Floats = NO_SCORES  # (E,) the score of each entry, or NaN. (0,) if no entry has one.

    def __getitem__(self, i: int) -> "OneRound":
        if i >= len(self):
            raise IndexError(i)
        return OneRound(self.slice(i, i + 1))

    def __iter__(self) -> Iterator["OneRound"]:
        players, entries = bounds(self.sizes).tolist(), bounds(self.entries).tolist()
        cut = functions_of(RoundBatch).cut
        for i, (own, its) in enumerate(zip(pairwise(players), pairwise(entries), strict=True)):
            yield OneRound(cut(self, i, i + 1, *own, *its))

    def wave(
        self, header: Table, rows: Ints | None = None, config: RatingConfig | None = None
    ) -> Wave:
        """The wave of these rounds, as stage 1 takes it. They share no player.

        `header` has the beliefs of the rounds' players, in order or, if `rows` is given, in these
        rows. `config` says whose ratings are fixed, what seats count, and whether scores do; None:
        nobody's, and none.
        """
        known = model.look_up(header, np.arange(len(header)) if rows is None else rows)
        return self._wave(*known, config)

    def wave_without_beliefs(self, config: RatingConfig | None = None) -> Wave:
        """The wave of these rounds without their players' beliefs: the caller must write its
        columns mu, sigma, rounds and last_time. The rounds may share players. `config` is that of
        `wave`."""
        n = len(self.share)
        blank = np.empty(n), np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
        return self._wave(*blank, config)

    def _wave(
        self, mu: Floats, sigma: Floats, played: Ints, last_time: Ints, config: RatingConfig | None
    ) -> Wave:
        fixed = config.fixed_players if config is not None else ()
        return Wave(
            round_starts=bounds(self.entries), weight=self.weight,
            ceiling=np.repeat(self.ceiling, self.entries), time=self.time, place=self.place,
            entry_starts=bounds(self.members), share=self.share,
            mu=mu, sigma=sigma, rounds=played, last_time=last_time,
            fixed=is_among(self.names, fixed) if fixed else model.NO_FIXED,
            shift=shift_of(config, self.seat), score=score_of(config, self.score),
        )  # fmt: skip

    def players(self) -> PlayerColumn:
        """(P,) the players of all rounds."""
        ladders: dict[str, int] = {}
        ladder = [ladders.setdefault(head.ladder, len(ladders)) for head in self.heads]
        column = np.repeat(np.array(ladder, np.int64), self.sizes)
        return PlayerColumn(LadderColumn(StringColumn.of(list(ladders))), column, self.names)

    def informative(self, skip_all_tied: Flags) -> Flags:
        """(R,) whether each round changes ratings. Some entry must have finished; and where
        `skip_all_tied` is set, the places must not all be equal."""
        ends = bounds(self.entries)
        best, worst = self.place[ends[:-1]], self.place[ends[1:] - 1]
        found: Flags = (best != DID_NOT_FINISH) & ~(skip_all_tied & (best == worst))
        return found


def uses_scores(config: RatingConfig) -> bool:
    """Whether the scores of entries count by this configuration."""
    return getattr(config, "score", None) is not None


def shift_of(config: RatingConfig | None, seat: SeatCodes) -> Floats:
    """The `shift` of a wave whose entries have these seats."""
    if config is None or not len(seat) or not config.seats:
        return model.NO_SHIFT
    return shifts_of(config.seats, seat)


def score_of(config: RatingConfig | None, score: Floats) -> Floats:
    """The `score` of a wave whose entries have these scores."""
    return score if config is not None and uses_scores(config) else model.NO_SCORE


C = TypeVar("C", bound=NDArray[Any])


def of_entries(column: C, entries: Ints) -> C:
    """The values of these entries in a column that is (0,) if no entry has a value."""
    return cast(C, column[entries]) if len(column) else column


def is_among(names: StringColumn, players: Collection[str]) -> Flags:
    """(P,) whether each name is that of one of these players."""
    chosen = frozenset(players)
    return np.array([name in chosen for name in names.texts()], np.bool_)


class OneRound(msgspec.Struct, frozen=True, gc=False):
    """One round: a view of a batch that has one round."""

    batch: RoundBatch

    @property
    def round_id(self) -> str:
        return self.batch.heads[0].round_id

    @property
    def ladder(self) -> str:
        return self.batch.heads[0].ladder

    @property
    def completed_at(self) -> str:
        """The time of completion, as reported."""
        return self.batch.heads[0].completed_at

    @property
    def time(self) -> int:
        """The time of completion, Unix seconds."""
        return int(self.batch.time[0])

    @property
    def weight(self) -> float:
        return float(self.batch.weight[0])

    @property
    def ceiling(self) -> float:
        """The cap on performances; infinite for none."""
        return float(self.batch.ceiling[0])

    @property
    def place(self) -> Places:
        """(E,) the place of each entry: the rank as reported, or DID_NOT_FINISH."""
        return self.batch.place

    @property
    def players(self) -> list[str]:
        """(P,) the ids of the players, entry by entry."""
        return self.batch.names.texts()

    def is_informative(self, *, skip_all_tied: bool) -> bool:
        """Whether the round changes ratings."""
        return bool(self.batch.informative(np.array([skip_all_tied]))[0])


NO_ROUNDS = RoundBatch(
    heads=[], time=(_NONE := np.empty(0, np.int64)), weight=np.empty(0), ceiling=np.empty(0),
    config_index=_NONE, unknown=np.empty(0, np.bool_), entries=_NONE, sizes=_NONE,
    place=np.empty(0, np.int32), members=_NONE, share=np.empty(0),
    names=StringColumn.of([]),
)  # fmt: skip
RoundBatch.empty = NO_ROUNDS


# --- rounds as they were reported ----------------------------------------------------------------


def reported_batch(
    heads: Sequence[Round], unknown: Flags, entries: Ints, sizes: Ints, place: Places,
    members: Ints, share: Floats, names: StringColumn, seat: SeatCodes, score: Floats,
) -> RoundBatch:  # fmt: skip
    """A batch of rounds as they were reported. Their time, weight and ceiling are blank until
    `fill_from_heads` writes them, and so is their rule until the decoder writes it."""
    n = len(heads)
    blank = np.empty(n, np.int64), np.empty(n), np.empty(n), np.zeros(n, np.int64)
    return RoundBatch(
        heads, *blank, unknown, entries, sizes, place, members, share, names, seat, score
    )


def forget_invalid(rounds: RoundBatch) -> None:
    """Make the seats and the scores absent that are not valid."""
    if len(rounds.seat):
        rounds.seat[rounds.seat == BAD_SEAT] = NO_SEAT
    if len(rounds.score):
        rounds.score[rounds.score == BAD_SCORE] = math.nan


def fill_from_heads(rounds: RoundBatch) -> None:
    """Write the time, weight and ceiling of each round from its head."""
    rounds.time[:] = times_of(rounds.heads)
    rounds.weight[:] = [head.weight for head in rounds.heads]
    ceilings = [head.performance_ceiling for head in rounds.heads]
    rounds.ceiling[:] = [math.inf if ceiling is None else ceiling for ceiling in ceilings]


def times_of(heads: Sequence[Round]) -> Ints:
    """(R,) the time of completion, Unix seconds; UNUSUAL where the text is not a valid time."""
    times = strings.seconds(StringColumn.of([head.completed_at for head in heads]))
    for i in np.flatnonzero(times == strings.UNUSUAL).tolist():
        if not time_mistake(heads[i].completed_at):
            times[i] = events.parse_time(heads[i].completed_at)
    return times


def time_mistake(completed_at: str) -> str:
    """The reason why a text is not a valid time; empty if it is one."""
    if len(completed_at) > MAX_TIME_LENGTH:
        return f"over {MAX_TIME_LENGTH} characters"
    try:
        events.parse_time(completed_at)
    except (ValueError, OverflowError) as error:
        return str(error)
    return ""


# --- entries in order of place -------------------------------------------------------------------


@inlined
def _key(place: int) -> np.uint32:
    """The key that places are sorted by. Entries that did not finish have the greatest."""
    return np.uint32(place - 1)


@kernel
def by_place(place: Places) -> Ints:
    """(E,) the entries of one round in order of place; entries that tie keep their order."""
    keys = np.empty(len(place), np.uint32)
    for e in range(len(place)):
        keys[e] = _key(place[e])
    return np.argsort(keys, kind="mergesort")


@inlined
def _are_in_order(place: Places, first: int, last: int) -> bool:
    """Whether the entries from `first` to before `last` are in order of place."""
    e = first + 1
    while e < last and _key(place[e - 1]) <= _key(place[e]):
        e += 1
    return e >= last


@inlined
def _insert(
    first: int, last: int, p: int, place: Places, share: Floats, starts: Ints, ends: Ints,
    hashes: Hashes,
) -> None:  # fmt: skip
    """Sort the entries [first, last), each of which has one player; `p` is that of the first."""
    for e in range(first + 1, last):
        to, i = e, p + e - first
        here, own, start, end, h = place[e], share[i], starts[i], ends[i], hashes[i]
        while to > first and _key(here) < _key(place[to - 1]):
            k = p + to - first
            place[to], share[k] = place[to - 1], share[k - 1]
            starts[k], ends[k], hashes[k] = starts[k - 1], ends[k - 1], hashes[k - 1]
            to -= 1
        k = p + to - first
        place[to], share[k], starts[k], ends[k], hashes[k] = here, own, start, end, h


@kernel
def _players_of(entries: Ints, members: Ints, players: int) -> Ints:
    """The players of these entries of a round, entry by entry. `players`: their number in all."""
    starts = np.cumsum(members) - members
    found = np.empty(players, np.int64)
    p = 0
    for e in entries:
        for k in range(members[e]):
            found[p] = starts[e] + k
            p += 1
    return found


def sort_entries(rounds: RoundBatch) -> None:
    """Put the entries of each round, and their players with them, in order of place."""
    names = rounds.names
    if len(rounds.seat) or len(rounds.score):
        order = _order_of(rounds.entries, rounds.place)
        rounds.seat = of_entries(rounds.seat, order)
        rounds.score = of_entries(rounds.score, order)
    _sort_entries(
        rounds.entries, rounds.sizes, rounds.place, rounds.members, rounds.share, names.starts,
        names.ends, names.hashes,
    )  # fmt: skip


@kernel
def _order_of(entries: Ints, place: Places) -> Ints:
    """(E,) the entries of all rounds in the order in which `_sort_entries` puts them. `entries` has
    the number of entries of each round."""
    order = np.arange(len(place))
    first = 0
    for size in entries:
        if not _are_in_order(place, first, first + size):
            order[first : first + size] = first + by_place(place[first : first + size])
        first += size
    return order


@kernel
def _sort_entries(
    entries: Ints, sizes: Ints, place: Places, members: Ints, share: Floats,
    starts: Ints, ends: Ints, hashes: Hashes,
) -> None:  # fmt: skip
    """Put the entries of each round, and their players with them, in order of place.

    `entries` and `sizes` are the number of entries and of players of each round. The other columns,
    by entry and by player, are changed in place.
    """
    e = p = 0
    for r in range(len(entries)):
        last_e, last_p = e + entries[r], p + sizes[r]
        if _are_in_order(place, e, last_e):
            pass
        elif entries[r] == sizes[r] <= MOST_INSERTED:
            _insert(e, last_e, p, place, share, starts, ends, hashes)
        else:
            order = by_place(place[e:last_e])
            players = _players_of(order, members[e:last_e], sizes[r])
            place[e:last_e], members[e:last_e] = place[e + order], members[e + order]
            share[p:last_p] = share[p + players]
            starts[p:last_p], ends[p:last_p] = starts[p + players], ends[p + players]
            hashes[p:last_p] = hashes[p + players]
        e, p = last_e, last_p
