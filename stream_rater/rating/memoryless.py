"""Stage 1 of the memoryless systems: it computes each player's new mu and sigma at once.

The columns of the evidence are the performance, the new mu and the new sigma. A team enters as one
player whose rating is the initial rating plus the members' deviations (section 3.3). What the team
learns is distributed to the members as in a linear Gaussian model, in proportion to their parts of
its variance.
"""

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating.model import Evidence, Places, Wave
from stream_rater.rating.parameters import (
    Bar,
    Climbing,
    Codeforces,
    EloMMX,
    Glicko,
    Memoryless,
    Topcoder,
    TrueSkill,
    TwoMoment,
)
from stream_rater.rating.systems import (
    bar,
    codeforces,
    elo_mmx,
    glicko,
    kerby,
    topcoder,
    trueskill,
    two_moment,
)


def estimate(config: Memoryless, wave: Wave) -> Evidence:
    """Evidence (P, 3) for every player of a wave, round by round."""
    if isinstance(config, EloMMX):
        return elo_mmx.estimate(config, wave)
    if isinstance(config, TwoMoment):
        return two_moment.estimate(config, wave)
    if isinstance(config, Climbing):
        return kerby.estimate(config, wave)
    out = np.empty((len(wave.mu), 3))
    for r in range(len(wave.weight)):
        first, end = wave.round_starts[r], wave.round_starts[r + 1]
        starts = wave.entry_starts[first : end + 1]
        a, b = starts[0], starts[-1]
        mu, sigma, rounds = wave.mu[a:b], wave.sigma[a:b], wave.rounds[a:b]
        place = wave.place[first:end]
        weight, ceiling = float(wave.weight[r]), float(wave.ceiling[r])
        if len(mu) == len(place):
            out[a:b] = _rate(config, place, mu, sigma, rounds, weight, ceiling)
            continue
        share, own = wave.share[a:b], starts[:-1] - a
        team_mu = config.initial_mu + np.add.reduceat(share * (mu - config.initial_mu), own)
        team_sigma = np.sqrt(np.add.reduceat((share * sigma) ** 2, own))
        played = np.maximum.reduceat(rounds, own)
        rated = _rate(config, place, team_mu, team_sigma, played, weight, ceiling)
        of = np.repeat(np.arange(len(place)), np.diff(starts))
        gain = share * (sigma / team_sigma[of]) ** 2
        shrink = (rated[of, 2] / team_sigma[of]) ** 2 - 1.0
        out[a:b, 0] = rated[of, 0]
        out[a:b, 1] = mu + gain * (rated[of, 1] - team_mu[of])
        out[a:b, 2] = sigma * np.sqrt(1.0 + gain * share * shrink)
    return out


def _rate(
    config: Memoryless, place: Places, mu: Floats, sigma: Floats, rounds: Ints, weight: float,
    ceiling: float,
) -> Floats:  # fmt: skip
    """(n, 3) evidence of one round without teams."""
    found: Floats
    match config:
        case Codeforces():
            found = codeforces.rate(place, mu, sigma, weight, config.beta, config.weight)
        case Topcoder():
            found = topcoder.rate(
                place, mu, sigma, rounds, weight, ceiling,
                config.newcomer_weight, config.weight_limit,
            )  # fmt: skip
        case Glicko():
            found = glicko.rate(place, mu, sigma, weight, config.beta, config.sigma_drift)
        case Bar():
            found = bar.rate(
                place, mu, sigma, weight, config.beta, config.sigma_drift, config.kappa
            )
        case TrueSkill():
            found = trueskill.rate(
                place, mu, sigma, weight, config.beta, config.sigma_drift,
                config.draw_margin, config.tolerance,
            )  # fmt: skip
        case _:
            raise AssertionError(f"{config} has no rule for one round")
    return found
