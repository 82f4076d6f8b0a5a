"""Gives players a belief without a round: seeds and resets.

A seed is like a round of one player: the belief that it gives has at least one round. Its posterior
is one Gaussian factor with the mu and sigma that were given. A reset is like a season of one
player: all factors move by the same amount, and sigma becomes at least the one that was given.
"""

import math

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating import record, seasons
from stream_rater.rating.model import Beliefs, Table, newcomers
from stream_rater.rating.parameters import SYSTEMS, Common, Season
from stream_rater.rating.stages import RatingRule


def seeded(
    rule: RatingRule, mu: Floats, sigma: Floats, rounds: Ints, time: Ints, offset: Ints
) -> Table:
    """(n,) the headers of beliefs that a seed gives. They have no logistic factor.

    `mu` and `sigma` are numbers that a record can store (float32). `rounds` are the numbers of
    rounds that stand behind them, at least 1. `time` and `offset` are those of the seed. The
    previous values are a newcomer's.
    """
    header = newcomers(len(mu), 0, rule.initial_mu, rule.initial_sigma).header
    header["mu"] = header["center"] = mu
    header["sigma"], header["precision"] = sigma, 1.0 / (sigma * sigma)
    header["rounds"], header["time"], header["last"] = rounds, time, offset
    header["season"] = header["previous_season"] = len(rule.seasons)
    return header


def reset(
    rule: RatingRule, beliefs: Beliefs, rows: Ints, mu: Floats, sigma: Floats, offset: int
) -> None:
    """Reset the beliefs in `rows`, in place. Each belief occurs only once, and has a round.

    `mu` (len(rows),) are the ratings afterwards; NaN keeps a rating. If a belief has
    performances on a grid, its mu moves by whole steps of the grid. `sigma` (len(rows),) are the
    least sigmas afterwards. Seasons that the beliefs lack are applied first. `offset` is stored as
    the beliefs' last one; their rounds and times stay. The beliefs are rounded as a record stores
    them.
    """
    header, same = beliefs.header, np.zeros(len(rows), np.int64)
    before = header[rows].copy()
    seasons.draw([rule], same, beliefs, rows)
    takes_sigma = SYSTEMS.get(rule.system, Common).takes_sigma
    for row, to, least in zip(rows.tolist(), mu.tolist(), sigma.tolist(), strict=True):
        header["season"][row] = 0
        own = Season(0, 1.0 if math.isnan(to) else 0.0, least if takes_sigma else 0.0)
        one = msgspec.structs.replace(
            rule, initial_mu=rule.initial_mu if math.isnan(to) else to, seasons=(own,)
        )
        seasons.draw([one], same[:1], beliefs, np.array([row]))
        if header["count"][row] == 0 and not math.isnan(to):
            header["mu"][row] = header["center"][row] = to
    header["season"][rows] = np.maximum(before["season"], len(rule.seasons))
    for name in ("mu", "sigma", "time", "season"):
        header[f"previous_{name}"][rows] = before[name]
    header["last"][rows], header["untold"][rows] = offset, 0
    if not beliefs.in_full:
        _round(rule, beliefs, rows)


def _round(rule: RatingRule, beliefs: Beliefs, rows: Ints) -> None:
    """Round beliefs as their records store them, in place."""
    own = Beliefs(beliefs.header[rows], beliefs.factors[rows])
    found = record.decode(record.encode(own), 0, rule.initial_mu, rule.initial_sigma)
    kept = min(found.factors.shape[1], beliefs.factors.shape[1])
    beliefs.header[rows] = found.header
    beliefs.factors[rows, :kept] = found.factors[:, :kept]
