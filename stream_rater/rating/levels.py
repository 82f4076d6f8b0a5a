"""Brings the sides of a round to one scale, and moves them by their seats and their experience.

Every system measures a side by the sum of its members' deviations from `initial_mu`, each times the
member's share. So somebody who is absent counts as a player of `initial_mu`, however far from it
the ladder's players are. In a round whose sides have different total shares A_j, sides are compared
by their averages instead. With T = S / sum 1 / A_j over the S sides, the share of each member is
multiplied by T / A_j for the round. Then every side has the total T, and the system rates it as a
round of equal sides:

- sides of any size are even in mean if their players are equal, at any level of the ladder;
- a side's mean depends on the ratings of its members alone. So no number of a player is in the
  place of an opponent, and the proof that losing on purpose never pays (section 5 of the paper)
  holds as for single players. It would not hold if sides were measured from the level of all
  players present, the player included.

T is only a unit. It depends on shares alone, and it makes the difference of the means of two sides
what it would be if both were measured from the level of all players. Where all sides have the same
total, the round stays as it is, to the bit.

The part of `newcomer_offset` in the mu of a newcomer whom the system placed belongs to all
newcomers of a side together. It is not averaged: a side has it once, whatever its size.

A seat adds its points to the performance of its side: performance = skill + points + noise. Only
differences between sides matter, so the mean of the round's points is taken off. A round of sides
with the same points equals one without seats, to the bit.

A player who has played few rounds performs below the rating (`Inexperience`): by a number of points
that falls with the rounds played. So the rating says how well the player will perform with more
experience. These points are taken off the performance of each player, times the share.

No system needs to know of this. The players' shares and mu are changed for the round, and the
system rates it. Then the result is changed back: the performance, and the new mu if the evidence
has one. A side's performance is again on the scale of its own total. So is its ceiling, which
limits the performance in the round, with the points of seats and experience. Where a system has
constants on the scale of the ladder, it compares them with the players' own ratings: the learning
rates and the floor of Kerby's systems, and Topcoder's thresholds. Kerby's anchor has a fixed place
from `initial_mu`, so rounds of ladders that have one keep their shares.
"""

from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import exp
from stream_rater.rating.factor import single
from stream_rater.rating.model import NO_SHIFT, NOT_MOVED, PERFORMANCE, Evidence, Wave
from stream_rater.rating.parameters import Climbing, PlacingNewcomers, RatingConfig, Topcoder

NEW_MU = 1  # The column of the evidence that has the new mu, if the system is memoryless.

EVEN = 1e-9
"""Total shares that differ by less than this part of the larger one are equal: they are sums."""


class Moves(NamedTuple):
    """How the players and sides of a wave are changed for their rounds."""

    share: Floats  # (P,) the share of each player.
    player: Floats  # (P,) the points by which each player's mu is moved.
    side: Floats
    """(E,) the points by which each side's performance is moved: its players', times the share."""
    scale: Floats  # (E,) T / A, by which the shares of the side were multiplied; 1 without a scale.
    experience: Floats
    """(E,) the part of `side` that is experience; (0,) if experience does not count."""


@kernel
def _totals(entry_starts: Ints, share: Floats, first: int, end: int, total: Floats) -> bool:
    """Write the sum of shares of the entries [first, end) into `total`. Returns whether they are
    all equal."""
    low, high = np.inf, 0.0
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
    """Whether some round has sides that are brought to one scale, or some entry a shift."""
    for e in range(len(shift)):
        if shift[e] != 0.0:
            return True
    total = np.empty(len(entry_starts))
    for r in range(0 if anchored else len(round_starts) - 1):
        if not _totals(entry_starts, share, round_starts[r], round_starts[r + 1], total):
            return True
    return False


@kernel
def _moves(
    round_starts: Ints, entry_starts: Ints, share: Floats, rounds: Ints, points: Floats,
    shift: Floats, offset: float, anchored: bool,
) -> tuple[Floats, Floats, Floats, Floats]:  # fmt: skip
    """The first four columns of Moves. `points` (P,) are those of experience, or none (0,)."""
    sides = len(entry_starts) - 1
    scaled, player = share.copy(), np.zeros(len(share))
    side, scale, total = np.zeros(sides), np.ones(sides), np.empty(sides)
    for r in range(len(round_starts) - 1):
        first, end = round_starts[r], round_starts[r + 1]
        even = _totals(entry_starts, share, first, end, total) or anchored
        unit = 0.0
        for e in range(0 if even else end - first):
            unit += 1.0 / total[e]
        unit = 1.0 if even else (end - first) / unit
        seated = len(shift) > 0 and np.min(shift[first:end]) < np.max(shift[first:end])
        mean = np.mean(shift[first:end]) if seated else 0.0
        for e in range(first, end):
            i, j, newcomers = entry_starts[e], entry_starts[e + 1], 0.0
            scale[e] = 1.0 if even else unit / total[e - first]
            seat = (shift[e] - mean if seated else 0.0) / (scale[e] * total[e - first])
            for p in range(i, j):
                scaled[p] *= scale[e]
                newcomers += share[p] if rounds[p] == 0 else 0.0
            for p in range(i, j):
                player[p] = seat
                if rounds[p] == 0 and not even:
                    player[p] += offset / max(newcomers, 1.0) * (1.0 / scale[e] - 1.0)
                if len(points) > 0:
                    player[p] += points[p]
                side[e] += scaled[p] * player[p]
    return scaled, player, side, scale


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


def moves_of(config: RatingConfig, wave: Wave) -> Moves | None:
    """The moves of a wave whose newcomers are placed, or None if there is nothing to change."""
    if not is_moved(config, wave):
        return None
    points = experience = np.empty(0)
    less = config.inexperience_of_newcomers
    if less.points > 0.0:
        points = _of_experience(wave.rounds, less.points, less.rounds)
    scaled, player, side, scale = _moves(
        wave.round_starts, wave.entry_starts, wave.share, wave.rounds, points, wave.shift,
        config.newcomer_offset if isinstance(config, PlacingNewcomers) else 0.0,
        _anchored(config),
    )  # fmt: skip
    if len(points) > 0:
        experience = np.add.reduceat(scaled * points, wave.entry_starts[:-1])
    return Moves(scaled, player, side, scale, experience)


def _scaled(performance: Floats, initial_mu: float, by: Floats) -> Floats:
    """Performances whose distances from `initial_mu` are multiplied; the same bits where by 1."""
    if (by == 1.0).all():
        return performance
    changed: Floats = initial_mu + (performance - initial_mu) * by
    return np.where(by == 1.0, performance, changed)


def moved(config: RatingConfig, wave: Wave, moves: Moves) -> Wave:
    """The wave as a system rates it: with the changed shares, mu and ceilings, and how far mu was
    moved."""
    mu, initial_mu, side = wave.mu + moves.player, config.initial_mu, NOT_MOVED
    if isinstance(config, Topcoder):  # no other system reads it
        lead = moves.share * (mu - initial_mu) - wave.share * (wave.mu - initial_mu)
        side = np.add.reduceat(lead, wave.entry_starts[:-1])
    return wave._replace(
        share=moves.share, mu=mu, ceiling=_scaled(wave.ceiling, initial_mu, moves.scale),
        moved=moves.player, moved_side=side,
    )  # fmt: skip


def moved_back(config: RatingConfig, wave: Wave, moves: Moves, evidence: Evidence) -> Evidence:
    """The evidence (P, 3) of a wave, from that of the `moved` wave, in place. Players who were not
    moved keep their evidence to the bit, and so do players whose mu the round leaves as it is."""
    sizes, initial_mu = np.diff(wave.entry_starts), config.initial_mu
    by = np.repeat(moves.side, sizes) if config.performs_as_side else moves.player
    evidence[:, PERFORMANCE] -= by
    if len(moves.experience) > 0:  # to move experience back raises a performance
        capped = _scaled(wave.ceiling, initial_mu, moves.scale)
        most = np.repeat(capped - (moves.side - moves.experience), sizes)
        evidence[:, PERFORMANCE] = np.minimum(evidence[:, PERFORMANCE], most)
    if config.performs_as_side:
        by = np.repeat(1.0 / moves.scale, sizes)
        evidence[:, PERFORMANCE] = _scaled(evidence[:, PERFORMANCE], initial_mu, by)
    if config.memoryless:
        new = evidence[:, NEW_MU]
        back = wave.mu + (new - (wave.mu + moves.player))
        if config.limits_mu and config.floor is not None:
            back = np.maximum(back, config.floor)
        evidence[:, NEW_MU] = np.where(moves.player != 0.0, back, new)
    return evidence


class Measured(NamedTuple):
    """The players of a wave as their rounds measure them: a side's performance has the mean
    initial_mu + sum share (mu - initial_mu)."""

    mu: Floats  # (P,)
    share: Floats  # (P,)


def measured(config: RatingConfig, wave: Wave) -> Measured:
    """The players of a wave as its rounds measure them, for predictions."""
    moves = moves_of(config, wave)
    if moves is None:
        return Measured(wave.mu, wave.share)
    return Measured(wave.mu + moves.player, moves.share)


def of_one_round(
    config: RatingConfig, starts: Ints, share: Floats, mu: Floats, rounds: Ints,
    shift: Floats | None = None,
) -> Measured:  # fmt: skip
    """The P players of one round as the round measures them.

    `starts` (S+1,) has the first player of each of the S sides, and P. `mu` (P,) are the ratings at
    the beginning of the round, where newcomers are placed. `rounds` (P,) is the number of rounds
    that each player has played. `shift` (S,) has the points of each side's seat; None: no seats.
    """
    if len(mu) == 0:
        return Measured(mu, share)
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


def offset_of(config: RatingConfig, share: Floats, rounds: Ints) -> Floats:
    """(P,) the part of `newcomer_offset` in the mean of each of P players of one side."""
    offset = config.newcomer_offset if isinstance(config, PlacingNewcomers) else 0.0
    new = rounds == 0
    return np.where(new, offset / max(float(share[new].sum()), 1.0), 0.0)


def with_starts(wave: Wave, evidence: Evidence) -> Evidence:
    """(P, 4) the evidence (P, 3) of a wave whose newcomers are placed, with a fourth column: each
    newcomer's mu at the beginning of the round, and NaN for all other players."""
    return np.column_stack((evidence, np.where(wave.rounds == 0, wave.mu, np.nan)))
