"""Seasons: when one starts, every belief is drawn towards the initial rating.

A season has two numbers, `keep` and `sigma`. It draws a belief so:

    mu <- initial_mu + keep (mu - initial_mu),   sigma <- at least the season's

As an operation on the posterior: all factors, the Gaussian's center and the performances, move by
the same amount, so the mode moves with them. Then the belief is diffused as before a round (by
`belief.diffuse`, or Elo-R's widening), by gamma^2 = (the season's sigma)^2 - sigma^2 if that is
positive. The beliefs of other systems are mu and sigma only, so there is nothing to diffuse.

Nothing is rewritten when a season starts. A belief holds how many seasons had started at its last
round. Those that it lacks are applied one after the other before its next round. A reader applies
them to mu and sigma alone (`seen`). The rules are:

- a draw is a function of the belief alone. Stage 1 knows nothing but headers, so `_drawn` computes
  from numbers that stand there, and both stages have the same bits;
- performances that are codes lie on a grid, so all factors and the mode move by whole steps of it.
  Only a code at the end of the grid stays there;
- what is drawn need not be what a record can hold: the round that follows rounds it;
- newcomers have played no round, and are not drawn;
- the previous mu, sigma and season of a belief are those before the draw, which were published last
  for the player. A reader that takes them as a prior applies the seasons again.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating import factor
from stream_rater.rating.elo_mmr import belief
from stream_rater.rating.factor import power_of_two, single
from stream_rater.rating.kernels import elo_r
from stream_rater.rating.model import Beliefs, Factors, Table
from stream_rater.rating.parameters import SYSTEMS
from stream_rater.rating.stages import RatingRule
from stream_rater.rating.systems.common import DIFFUSES, WIDENS, Common

MOST = 2**16 - 1
"""The most seasons of a ladder that a record can count."""


class Draws(NamedTuple):
    """How some rules draw beliefs, as kernels take it: L rules, with S seasons in all."""

    way: Ints
    """(L,) how a belief's sigma grows, DIFFUSES or WIDENS; KEEPS if it has no factors."""
    rho: Floats
    """(L,) the inverse momentum; may be infinite."""
    kept: Ints
    """(L,) the number of factors that a belief keeps; 0: beliefs are no records."""
    initial_mu: Floats
    """(L,)"""
    starts: Ints
    """(L+1,) the first season of each rule; the last element is S."""
    keep: Floats
    """(S,)"""
    sigma: Floats
    """(S,)"""


class Before(NamedTuple):
    """What D beliefs were before they were drawn."""

    rows: Ints
    """(D,) their rows."""
    mu: Floats
    """(D,)"""
    sigma: Floats
    """(D,)"""
    season: Ints
    """(D,) how many seasons had started at their last round."""

    def take(self, chosen: Flags) -> "Before":
        """Of those chosen only."""
        return Before(self.rows[chosen], self.mu[chosen], self.sigma[chosen], self.season[chosen])


@inlined
def _drawn(
    mu: float, sigma: float, step: float, kept: int, initial_mu: float, keep: float, least: float
) -> tuple[float, float, float]:
    """The new mu and sigma of a belief that a season draws, and by how much its factors move.

    `step` is the grid's if performances are codes, else 0.
    """
    shift = (1.0 - keep) * (initial_mu - mu)
    if step > 0.0:
        shift = np.floor(shift / step + 0.5) * step
    moved = mu + shift
    if step == 0.0 and kept > 0:
        moved = single(moved)
    return moved, max(sigma, least), shift


@inlined
def _step(head: Any, kept: int) -> float:
    """The step of the grid on which a belief has performances; 0 if it has no codes."""
    return power_of_two(head.grid) if kept > 0 and head.count > 0 else 0.0


@kernel
def _draw_headers(header: Table, draws: Draws) -> None:
    """Draw beliefs without their factors, in place, by the first rule."""
    kept, initial_mu, started = draws.kept[0], draws.initial_mu[0], draws.starts[1]
    for i in range(len(header)):
        head = header[i]
        first = head.season + 0  # + 0: signed, or numba counts in floats
        if head.rounds > 0:
            step, mu, sigma = _step(head, kept), head.mu, head.sigma
            for k in range(first, started):
                mu, sigma, _ = _drawn(
                    mu, sigma, step, kept, initial_mu, draws.keep[k], draws.sigma[k]
                )
            head.mu, head.sigma = mu, sigma
        head.season = max(first, started)


@kernel
def _move(head: Any, factors: Factors, shift: float, step: float) -> None:
    """Move all factors of a belief. `factors` are its own: (capacity,) codes or (capacity, 3) rows
    (p, a, r)."""
    head.center += shift
    for k in range(head.count):
        if factors.ndim == 1:
            factors[k] = factor.moved(factors[k], shift / step)
        else:
            factors[k, 0] += shift


@kernel
def _draw_one(head: Any, factors: Factors, rule: int, draws: Draws) -> None:
    """Draw a belief with its factors, in place, by all seasons of a rule that it lacks."""
    kept, way = draws.kept[rule], draws.way[rule]
    step = _step(head, kept)
    for k in range(draws.starts[rule] + head.season, draws.starts[rule + 1]):
        mu, sigma, shift = _drawn(
            head.mu, head.sigma, step, kept, draws.initial_mu[rule], draws.keep[k], draws.sigma[k]
        )
        _move(head, factors, shift, step)
        head.mu = mu
        if sigma > head.sigma and way == DIFFUSES:
            belief.diffuse_one(head, sigma, draws.rho[rule])
        elif sigma > head.sigma and way == WIDENS:
            elo_r.widen(head, factors, sigma, kept > 0)
        head.sigma = sigma


@kernel
def _draw(
    header: Table, factors: Factors, rows: Ints, rule: Ints, draws: Draws
) -> tuple[Ints, Floats, Floats, Ints]:
    """Draw the beliefs in `rows`, and return those that lacked a season as they were before."""
    count, late = 0, np.empty(len(rows), np.int64)
    mu, sigma = np.empty(len(rows)), np.empty(len(rows))
    season = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        head = header[rows[i]]
        started = draws.starts[rule[i] + 1] - draws.starts[rule[i]]
        if head.season + 0 >= started:
            continue
        late[count], season[count] = rows[i], head.season
        mu[count], sigma[count] = head.mu, head.sigma
        count += 1
        if head.rounds > 0:
            _draw_one(head, factors[rows[i]], rule[i], draws)
        head.season = started
    return late[:count], mu[:count], sigma[:count], season[:count]


@lru_cache(maxsize=256)
def _draws_of(rules: tuple[RatingRule, ...]) -> Draws:
    assert all(len(each.seasons) <= MOST for each in rules)
    all_seasons = [season for each in rules for season in each.seasons]
    return Draws(
        way=np.array([SYSTEMS.get(each.system, Common).season_growth for each in rules], np.int64),
        rho=np.array([each.momentum for each in rules], np.float64),
        kept=np.array([each.kept for each in rules], np.int64),
        initial_mu=np.array([each.initial_mu for each in rules], np.float64),
        starts=np.cumsum([0, *(len(each.seasons) for each in rules)], dtype=np.int64),
        keep=np.array([each.keep for each in all_seasons], np.float64),
        sigma=np.array([each.sigma for each in all_seasons], np.float64),
    )


def draw(rules: Sequence[RatingRule], rule: Ints, beliefs: Beliefs, rows: Ints) -> Before | None:
    """Apply to the beliefs in `rows`, each of which stands there once, the seasons that they lack,
    in place, before they are updated; rule[i] is the index of row i's rule.

    Returns what `remember` needs after the update; None if no rule has seasons.
    """
    if not any(each.seasons for each in rules):
        return None
    draws = _draws_of(tuple(rules))
    return Before(*_draw(beliefs.header, beliefs.factors, rows, rule, draws))


def remember(beliefs: Beliefs, before: Before | None) -> None:
    """After the update and its note: make what beliefs were before they were drawn their previous
    mu, sigma and season. Newcomers were not drawn: their previous mu and sigma stay."""
    if before is not None:
        header = beliefs.header
        header["previous_season"][before.rows] = before.season
        drawn = header["rounds"][before.rows] > 1
        header["previous_mu"][before.rows[drawn]] = before.mu[drawn]
        header["previous_sigma"][before.rows[drawn]] = before.sigma[drawn]


def draw_headers(rule: RatingRule, header: Table) -> None:
    """Apply to these beliefs of a ladder, in place, the seasons that they lack, as far as stage 1
    and readers see it: mu and sigma. `header` (n,) needs what a record's header has."""
    if rule.seasons:
        _draw_headers(header, _draws_of((rule,)))


def seen(rule: RatingRule, header: Table) -> tuple[Floats, Floats]:
    """(n,) mu and (n,) sigma of these beliefs of a ladder now, after the seasons that have started
    since their last rounds. `header` (n,) stays as it is."""
    if rule.seasons:
        header = header.copy()
        draw_headers(rule, header)
    return header["mu"], header["sigma"]
