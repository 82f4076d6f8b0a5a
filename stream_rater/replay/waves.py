"""Arranges the rounds of all ladders in waves, for a rebuild. Rounds with the same parameters are
rated in one call, as in the service, whatever their ladders. A row of a seed or a reset is here
like a round of one player: it depends on that player's belief alone.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

import numpy as np
from msgspec import structs

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_column import NO_FLAGS
from stream_rater.columns.ranges import bounds
from stream_rater.rating.model import NO_FIXED, Table, Wave
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.pool import GIVEN, NO_GIVEN, NO_ROWS, depths, given_by
from stream_rater.rounds.batch import NO_ROUNDS, RoundBatch
from stream_rater.rounds.correction_records import Seed


class DueRounds(RoundBatch, gc=False):
    """R rounds of any ladders without heads and names, and with the rows of their players. A row of
    a seed or a reset is here a round of one player without entries."""

    per_player: ClassVar = (*RoundBatch.per_player, "rows", "fixed", "late")
    optional: ClassVar = {
        **RoundBatch.optional, "fixed": False, "late": False, "given": np.zeros((), GIVEN),
    }  # fmt: skip

    kind: Ints = NO_ROWS
    """(R,) a number for each round. Rounds with the same one are rated by the same rule. Rows of
    seeds, or of resets, with the same one are applied in one call."""
    ladder: Ints = NO_ROWS  # (R,) the number of the ladder.
    offset: Ints = NO_ROWS  # (R,) the offset of each round.
    rows: Ints = NO_ROWS  # (P,) the rows of the players, round by round.
    fixed: Flags = NO_FIXED  # (P,) whether the configuration fixes the player's rating.
    late: Flags = NO_FLAGS  # (P,) whether the round is after the player's cut-off.
    given: Table = NO_GIVEN
    """(R,) what the row of a seed or a reset gives. (0,) if no round is one."""

    @classmethod
    def of(
        cls, rounds: RoundBatch, kind: Ints, ladder: Ints, offset: Ints, rows: Ints,
        fixed: Flags = NO_FIXED, late: Flags = NO_FLAGS, given: Table = NO_GIVEN,
    ) -> Self:  # fmt: skip
        """These rounds with these columns."""
        own = structs.replace(rounds, heads=[], names=NO_ROUNDS.names)
        return structs.replace(
            cls(*structs.astuple(own)), kind=kind, ladder=ladder, offset=offset, rows=rows,
            fixed=fixed, late=late, given=given,
        )  # fmt: skip

    @classmethod
    def of_seed(cls, seed: Seed, kind: int, ladder: int, rows: Ints, late: Flags) -> Self:
        """The rows of a seed or a reset. `rows` are those of its players."""
        zeros, blank = np.zeros(len(seed), np.int64), np.zeros(len(seed))
        rounds = structs.replace(
            NO_ROUNDS, time=zeros + seed.time, weight=blank, ceiling=blank, config_index=zeros,
            unknown=zeros != 0, entries=zeros, sizes=zeros + 1, share=blank,
        )  # fmt: skip
        return cls.of(
            rounds, zeros + kind, zeros + ladder, zeros + seed.offset, rows, late=late,
            given=given_by(seed),
        )  # fmt: skip

    def wave_without_beliefs(self, config: RatingConfig | None = None) -> Wave:
        """The same as for rounds with names."""
        wave = super().wave_without_beliefs(config)
        return wave._replace(fixed=self.fixed) if self.fixed.any() else wave


DueRounds.empty = DueRounds(*structs.astuple(NO_ROUNDS))


class DueWaves(NamedTuple):
    """Rounds of one kind that are rated in one call, in one wave or in several. Rows of seeds or of
    resets are one wave."""

    rounds: DueRounds
    waves: Ints  # (W+1,) wave w has the rounds waves[w] : waves[w + 1]; they are rated in order.


def arranged(due: Sequence[DueRounds], latest: Ints, *, together: bool = False) -> list[DueWaves]:
    """The rounds, and the rows of seeds and resets, of a log in waves. If waves may be `together`,
    and there is no seed and no reset, consecutive waves of one kind are rated in one call.
    `latest`: as for `depths`."""
    rounds = DueRounds.concat(due)
    if not len(rounds):
        return []
    together = together and not len(rounds.given)
    depth = depths(bounds(rounds.sizes), rounds.rows, latest)
    by_kind = together and _are_apart(rounds)
    order = np.lexsort((depth, rounds.kind) if by_kind else (rounds.kind, depth))
    return _cut(rounds.take(order), depth[order], together=together)


def _are_apart(rounds: DueRounds) -> bool:
    """Whether the rounds of each ladder are all of one kind. Then rounds of different kinds share
    no player."""
    if (rounds.kind == rounds.kind[0]).all():
        return True
    pairs = np.unique(rounds.ladder * (rounds.kind.max() + 1) + rounds.kind)
    return len(pairs) == len(np.unique(rounds.ladder))


def _cut(rounds: DueRounds, depth: Ints, *, together: bool) -> list[DueWaves]:
    """Cut rounds, in the order of rating, where the wave, `depth` (R,), or the kind changes."""
    kinds = np.diff(rounds.kind) != 0
    ends = np.append(np.flatnonzero(kinds | (np.diff(depth) != 0)) + 1, len(rounds))
    starts = np.append(0, ends[:-1])
    players, entries = bounds(rounds.sizes), bounds(rounds.entries)
    calls = np.append(np.flatnonzero(kinds) + 1, len(rounds)) if together else ends
    found, first = list[DueWaves](), 0
    for last in calls.tolist():
        own = rounds.cut(
            (first, last), (int(players[first]), int(players[last])),
            (int(entries[first]), int(entries[last])),
        )  # fmt: skip
        inner = starts[np.searchsorted(starts, first) : np.searchsorted(starts, last)]
        found.append(DueWaves(own, np.append(inner, last) - first))
        first = last
    return found
