"""Measures the sides of a round from the level of those present, and moves them by their seats.

Every system measures a side by the sum of its members' deviations from `initial_mu`, each times the
member's share. So somebody who is absent counts as a player of `initial_mu`, however far from it
the ladder's players are. In a round whose sides have different total shares, deviations are
measured from the level of those present instead,

    L = sum share_p (mu_p - o_p) / sum share_p

over the round's players. o_p is the part of `newcomer_offset` in the mu of a newcomer whom the
system placed: it belongs to all newcomers of a side together. So sides of any
size are even in mean if their players are equal, at any level and with any number of newcomers.
Where all sides have the same total share T, L would move all of them by the same T times, and the
round stays as it is, to the bit.

A seat adds its points to the performance of its side: performance = skill + points + noise. Only
differences between sides matter, so the mean of the round's points is taken off. A round of sides
with the same points equals one without seats, to the bit.

A player who has played few rounds performs below the rating (`Inexperience`): by a number of points
that falls with the rounds played. So the rating says how well the player will perform with more
experience. These points are taken off the performance of each player, times the share.

No system needs to know of this. The players' mu are moved for the round, so that each side's sum
has the deviations and the points, and the system rates the round. Then the result is moved back:
the performance, and the new mu if the evidence has one. A player's performance is moved back as the
player was, and a side's as its sum was. Ceilings move with the level: they limit the performance in
the round, with the points of seats and experience. Where a system has constants on the scale of the
ladder, it compares them with the players' own ratings: the learning rates and the floor of Kerby's
systems, and Topcoder's thresholds. Kerby's anchor is a side of one player, and is measured from the
level as others are. So an anchored round has sides of different total shares unless all of them are
1. The anchor does not count in L.
"""

from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import exp
from stream_rater.rating.factor import single
from stream_rater.rating.model import NO_SHIFT, PERFORMANCE, Evidence, Wave
from stream_rater.rating.parameters import Climbing, PlacingNewcomers, RatingConfig

NEW_MU = 1  # The column of the evidence that has the new mu, if the system is memoryless.

EVEN = 1e-9
"""Total shares that differ by less than this part of the larger one are equal: they are sums."""


class Moves(NamedTuple):
    """The number of points by which the ratings of a wave are moved."""

    player: Floats  # (P,) the move of each player's mu.
    side: Floats
    """(E,) the move of each side's performance: the sum of its players', each times the share."""
    ceiling: Floats  # (R,) the move of each round's ceiling.
    experience: Floats
    """(E,) the part of `side` that is experience; (0,) if experience does not count."""


@kernel
def _totals(
    entry_starts: Ints, share: Floats, first: int, end: int, anchored: bool, total: Floats
) -> bool:
    """Write the sum of shares of the entries [first, end) into `total`. Returns whether they are
    all equal, and 1 if there is an anchor."""
    low, high = (1.0, 1.0) if anchored else (np.inf, 0.0)
    for e in range(first, end):
        together = 0.0
        for p in range(entry_starts[e], entry_starts[e + 1]):
            together += share[p]
        total[e - first] = together
        low, high = min(low, together), max(high, together)
    return bool(high - low <= EVEN * high)


@kernel
def _is_moved(
    round_starts: Ints, entry_starts: Ints, share: Floats, shift: Floats, anchored: bool
) -> bool:
    """Whether some round has sides of different total shares, or some entry a shift."""
    for e in range(len(shift)):
        if shift[e] != 0.0:
            return True
    total = np.empty(len(entry_starts))
    for r in range(len(round_starts) - 1):
        first, end = round_starts[r], round_starts[r + 1]
        if not _totals(entry_starts, share, first, end, anchored, total):
            return True
    return False


@kernel
def _level(
    entry_starts: Ints, share: Floats, mu: Floats, rounds: Ints, points: Floats, first: int,
    end: int, initial_mu: float, offset: float,
) -> float:  # fmt: skip
    """The level of the players of the entries [first, end), minus `initial_mu`."""
    above = played = 0.0
    for e in range(first, end):
        newcomers = 0.0
        for p in range(entry_starts[e], entry_starts[e + 1]):
            newcomers += share[p] if rounds[p] == 0 else 0.0
        for p in range(entry_starts[e], entry_starts[e + 1]):
            lead = mu[p] - initial_mu + (points[p] if len(points) > 0 else 0.0)
            if rounds[p] == 0:
                lead -= offset / max(newcomers, 1.0)
            above, played = above + share[p] * lead, played + share[p]
    return float(above / played)


@kernel
def _moves(
    round_starts: Ints, entry_starts: Ints, share: Floats, mu: Floats, rounds: Ints,
    points: Floats, shift: Floats, initial_mu: float, offset: float, anchored: bool,
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """The moves of the players, sides and ceilings of some rounds. `points` (P,) are those of
    experience, or none (0,)."""
    player, side = np.zeros(len(mu)), np.zeros(len(entry_starts) - 1)
    ceiling = np.zeros(len(round_starts) - 1)
    total = np.empty(len(side))
    for r in range(len(ceiling)):
        first, end = round_starts[r], round_starts[r + 1]
        if not _totals(entry_starts, share, first, end, anchored, total):
            ceiling[r] = -_level(
                entry_starts, share, mu, rounds, points, first, end, initial_mu, offset
            )
        seated = len(shift) > 0 and np.min(shift[first:end]) < np.max(shift[first:end])
        mean = np.mean(shift[first:end]) if seated else 0.0
        for e in range(first, end):
            seat = shift[e] - mean if seated else 0.0
            for p in range(entry_starts[e], entry_starts[e + 1]):
                player[p] = ceiling[r] + seat / total[e - first]
                if len(points) > 0:
                    player[p] += points[p]
                side[e] += share[p] * player[p]
    return player, side, ceiling


@kernel
def _of_experience(played: Ints, points: float, rounds: float) -> Floats:
    """(P,) the points that experience adds to each player's performance: none are above 0."""
    found = np.empty(len(played))
    for p in range(len(played)):
        found[p] = -points * exp(-played[p] / rounds)
    return found


def is_moved(config: RatingConfig, wave: Wave) -> bool:
    """Whether any round of a wave has ratings to move."""
    return config.inexperience_of_newcomers.points > 0.0 or bool(
        _is_moved(wave.round_starts, wave.entry_starts, wave.share, wave.shift, _anchored(config))
    )


def _anchored(config: RatingConfig) -> bool:
    """Whether a player of constant rating takes part in each round."""
    return isinstance(config, Climbing) and config.anchor is not None


def moves_of(
    config: RatingConfig, wave: Wave, values: Floats | None = None, initial: float | None = None
) -> Moves | None:
    """The moves of a wave whose newcomers are placed, or None if there is nothing to move. `values`
    (P,) and `initial` replace the players' mu and `initial_mu`, if they are given. For these the
    displayed ratings are measured as mu is."""
    if not is_moved(config, wave):
        return None
    points = experience = np.empty(0)
    less = config.inexperience_of_newcomers
    if less.points > 0.0:
        points = _of_experience(wave.rounds, less.points, less.rounds)
        experience = np.add.reduceat(wave.share * points, wave.entry_starts[:-1])
    player, side, ceiling = _moves(
        wave.round_starts, wave.entry_starts, wave.share, wave.mu if values is None else values,
        wave.rounds, points, wave.shift, config.initial_mu if initial is None else initial,
        config.newcomer_offset if isinstance(config, PlacingNewcomers) else 0.0,
        _anchored(config),
    )  # fmt: skip
    return Moves(player, side, ceiling, experience)


def moved(wave: Wave, moves: Moves) -> Wave:
    """The wave as a system rates it: with the moved mu and ceilings, and how far they were
    moved."""
    return wave._replace(
        mu=wave.mu + moves.player, ceiling=wave.ceiling + moves.ceiling, moved=moves.player,
        moved_side=moves.side,
    )  # fmt: skip


def moved_back(config: RatingConfig, wave: Wave, moves: Moves, evidence: Evidence) -> Evidence:
    """The evidence (P, 3) of a wave, from that of the `moved` wave, in place. Players who were not
    moved keep their evidence to the bit, and so do players whose mu the round leaves as it is."""
    by = moves.player
    if config.performs_as_side:
        by = np.repeat(moves.side, np.diff(wave.entry_starts))
    evidence[:, PERFORMANCE] -= by
    if len(moves.experience) > 0:  # to move experience back raises a performance
        capped = np.repeat(wave.ceiling + moves.ceiling, np.diff(wave.round_starts))
        most = np.repeat(capped - (moves.side - moves.experience), np.diff(wave.entry_starts))
        evidence[:, PERFORMANCE] = np.minimum(evidence[:, PERFORMANCE], most)
    if config.memoryless:
        new = evidence[:, NEW_MU]
        back = wave.mu + (new - (wave.mu + moves.player))
        if config.limits_mu and config.floor is not None:
            back = np.maximum(back, config.floor)
        evidence[:, NEW_MU] = np.where(moves.player != 0.0, back, new)
    return evidence


def measured(config: RatingConfig, wave: Wave) -> Floats:
    """(P,) the mu of each player of a wave as its round measures them, for predictions: a side's
    performance has the mean initial_mu + sum share (mu - initial_mu)."""
    moves = moves_of(config, wave)
    return wave.mu if moves is None else wave.mu + moves.player


def of_one_round(
    config: RatingConfig, starts: Ints, share: Floats, mu: Floats, rounds: Ints,
    shift: Floats | None = None,
) -> Floats:  # fmt: skip
    """(P,) the mu of the P players of one round as the round measures them.

    `starts` (S+1,) has the first player of each of the S sides, and P. `mu` (P,) are the ratings at
    the beginning of the round, where newcomers are placed. `rounds` (P,) is the number of rounds
    that each player has played. `shift` (S,) has the points of each side's seat; None: no seats.
    """
    if len(mu) == 0:
        return mu
    none, never = np.empty(0), np.zeros(len(mu), np.int64)
    return measured(
        config,
        Wave(
            np.array([0, len(starts) - 1]), none, none, never[:0], never[:0].astype(np.int32),
            starts, share, mu, none, rounds, never,
            shift=NO_SHIFT if shift is None else shift,
        ),
    )  # fmt: skip


# --- where newcomers begin ------------------------------------------------------------------------
#
# Their first rating is the level of the field that they play in. A round is evidence about its
# newcomers even before it is played: they were matched with these players, or they chose to take
# part in this contest. So a newcomer's mean is
#
#     initial_mu + newcomer_offset / max(1, A) + newcomer_field * sum x_i (mu_i - initial_mu)
#                                                                 / (1 + sum x_i)
#
# where the sums are over the round's players who have played before, and x_i = max(0, 1 - sigma_i^2
# / initial_sigma^2) measures how much is known about player i. The 1 stands for one player at the
# initial rating, so that a field of a few players counts less. A is the sum of the shares of the
# newcomers on the newcomer's own side.
#
# A side's mean is the sum of its members' deviations, each times the member's share. So the
# newcomers of a side add `newcomer_offset` once, whatever their number: a side of n newcomers and a
# side of m newcomers are equal. If A is below 1, because a newcomer hardly played, the side adds
# only that share of the offset. A newcomer whose share is nearly 0 changes nothing for the others.
#
# Only stage 1 places newcomers. Until the first round, a belief still has `initial_mu`, and stage 2
# stores the result of stage 1. So only systems whose evidence is the new mu and sigma can place
# newcomers. The evidence also contains each newcomer's mu at the beginning of the round, which
# becomes the mu before the first round.


@kernel
def _place(
    round_starts: Ints, entry_starts: Ints, share: Floats, mu: Floats, sigma: Floats, rounds: Ints,
    initial_mu: float, initial_sigma: float, offset: float, field: float, kept: int,
) -> None:  # fmt: skip
    """Write the mean of each newcomer in some rounds into `mu` (P,). Unless `kept` is 0, the means
    are rounded to float32, because events show them as records store them."""
    for r in range(len(round_starts) - 1):
        first, end = round_starts[r], round_starts[r + 1]
        total, known = 0.0, 1.0
        for p in range(entry_starts[first], entry_starts[end]):
            if rounds[p] > 0:
                part = sigma[p] / initial_sigma
                x = max(1.0 - part * part, 0.0)
                total, known = total + x * (mu[p] - initial_mu), known + x
        for e in range(first, end):
            i, j = entry_starts[e], entry_starts[e + 1]
            newcomers = 0.0
            for p in range(i, j):
                if rounds[p] == 0:
                    newcomers += share[p]
            level = initial_mu + offset / max(newcomers, 1.0) + field * total / known
            for p in range(i, j):
                if rounds[p] == 0:
                    mu[p] = single(level) if kept > 0 else level


def place_newcomers(config: PlacingNewcomers, wave: Wave) -> None:
    """Write the mean of each newcomer of a wave into the wave's `mu`, in place."""
    _place(
        wave.round_starts, wave.entry_starts, wave.share, wave.mu, wave.sigma, wave.rounds,
        config.initial_mu, config.initial_sigma, config.newcomer_offset, config.newcomer_field,
        config.kept,
    )  # fmt: skip


def of_newcomers(
    config: RatingConfig, starts: Ints, share: Floats, mu: Floats, sigma: Floats, rounds: Ints
) -> Floats:
    """(P,) the means of the P players at the beginning of one round. The arguments are those of
    `of_one_round`; `mu` and `sigma` (P,) are from before newcomers are placed."""
    if not (isinstance(config, PlacingNewcomers) and config.places_newcomers):
        return mu
    found = np.array(mu, np.float64)
    _place(
        np.array([0, len(starts) - 1]), starts, share, found, sigma, rounds, config.initial_mu,
        config.initial_sigma, config.newcomer_offset, config.newcomer_field, config.kept,
    )  # fmt: skip
    return found


def with_starts(wave: Wave, evidence: Evidence) -> Evidence:
    """(P, 4) the evidence (P, 3) of a wave whose newcomers are placed, with a fourth column: each
    newcomer's mu at the beginning of the round, and NaN for all other players."""
    return np.column_stack((evidence, np.where(wave.rounds == 0, wave.mu, np.nan)))
