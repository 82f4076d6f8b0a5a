"""What a system's own mathematics does to ratings in the long run, where that may surprise.

It is told once at the start of `run` and `rate`, and when a `Ladder` is made in Python.
`tests/property/test_fair_rounds.py` shows it: players who win and lose by chance alone.
"""

from stream_rater.rating.parameters import (
    Bar,
    Codeforces,
    Glicko,
    RatingConfig,
    Topcoder,
    TrueSkill,
    TwoMoment,
)

RISE = 0.0255
"""By so many beta the mean performance in a duel of equals by Codeforces is above their rating. Its
performance is where the expected rank is the geometric mean of two ranks, which is below their
arithmetic mean: with logistic(z) = 1/(1 + exp(-C z)), expected rank 3/2 and the ranks 1 and 2, it
is the mean of ln(2/(G - 1/2) - 1)/C over G = sqrt(3/2) and sqrt(3)."""


def cautions(config: RatingConfig) -> list[str]:
    """What to know of a ladder's parameters, a line each."""
    match config:
        case Topcoder():
            return [
                "system topcoder: where results are even, the volatility falls by 6 % with each "
                "duel, and by less in larger rounds; after some hundred rounds ratings no longer "
                "move. Choose another system, at least for small rounds"
            ]
        case Codeforces():
            rise = RISE * config.beta * config.weight / (1.0 + config.weight)
            return [
                f"system codeforces: all ratings rise, by {rise:.2g} points a player in each even "
                "duel with these parameters, and by more in larger rounds. Compare ranks, not "
                "ratings of different years"
            ]
        case Glicko() | Bar() | TrueSkill() | TwoMoment() if not _has_drift(config):
            return [
                "sigma_drift: 0 lets sigma only fall, so ratings come to rest. Give it some points "
                "if skills change"
            ]
    return []


def _has_drift(config: Glicko | Bar | TrueSkill | TwoMoment) -> bool:
    by_time = config.drift_per_day if isinstance(config, TwoMoment) else 0.0
    return config.sigma_drift > 0.0 or by_time > 0.0
