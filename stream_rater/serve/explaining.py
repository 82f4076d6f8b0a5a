"""Explains a player's rating by the factors of the belief, in numbers and words.

The derivative of the log-posterior is zero at mu (Algorithm 3 of the paper): the forces of the
Gaussian factor and of all performances cancel there. A force divided by the slope of the derivative
is a pull in points.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.index.entries import IndexedChange
from stream_rater.rating.factor import factors_of, weights_of
from stream_rater.rating.model import Beliefs
from stream_rater.rating.stages import RatingRule
from stream_rater.serve.bodies import ExplainAnswer, FactorAnswer

MOST_NAMED = 3  # The number of performances that the words describe one by one.


def explain_belief(
    player: str, beliefs: Beliefs, rule: RatingRule, history: Sequence[IndexedChange]
) -> ExplainAnswer:
    """Explain the belief about one player who has played. `beliefs` has one row, in the form that
    records store."""
    header: Any = beliefs.header[0]
    count = int(header["count"])
    factors = factors_of(beliefs)[0, :count]
    at, weight, pull = _factor_columns(header, factors)
    order = [0, *(1 + np.argsort(-weight[1:], kind="stable")).tolist()]
    rounds = [[], *_rounds(header, factors[:, 0], history)]
    parts = [
        FactorAnswer(
            at=float(at[i]), weight=float(weight[i]), pull=float(pull[i]), rounds=rounds[i]
        )
        for i in order
    ]
    mu, sigma = float(header["mu"]), float(header["sigma"])
    return ExplainAnswer(
        player=player, mu=mu, sigma=sigma, rating=float(rule.rating(mu, sigma)),
        rounds=int(header["rounds"]), offset=int(header["last"]), gaussian=parts[0],
        performances=parts[1:], in_words=list(_words(mu, sigma, parts[0], parts[1:])),
    )  # fmt: skip


def _factor_columns(header: Any, factors: Floats) -> tuple[Floats, Floats, Floats]:
    """The places, weights and pulls of the Gaussian and of K performances, each (1 + K,).

    A place is a rating, the weights add up to 1, and a pull is in points. `factors` (K, 3) has the
    row (p, a, r) of each performance.
    """
    mu, precision = float(header["mu"]), float(header["precision"])
    p, a, r = factors.T
    strength, tanh = header["scale"] * r, np.tanh((mu - p) * a)
    force = np.concatenate([[precision * (header["center"] - mu)], -strength * tanh])
    slope = precision + float(np.sum(strength * a * (1.0 - tanh * tanh)))
    weight = np.concatenate([[precision], weights_of(header, factors)])
    return np.concatenate([[header["center"]], p]), weight / weight.sum(), force / slope


def _rounds(header: Any, performances: Floats, history: Sequence[IndexedChange]) -> list[list[str]]:
    """For each performance, the ids of the rounds in the history that it comes from.

    A performance that combines several rounds lies between theirs. It has no ids.
    """
    half = np.ldexp(0.5, int(header["grid"]))
    return [
        [
            each.round_id for each in history
            if each.performance is not None and abs(each.performance - p) <= half
        ]
        for p in performances.tolist()
    ]  # fmt: skip


def _words(
    mu: float, sigma: float, gaussian: FactorAnswer, performances: Sequence[FactorAnswer]
) -> Any:
    yield f"The skill is believed to be {mu:.1f}, give or take {sigma:.1f}."
    if not performances:
        yield "The rating system keeps these two numbers alone."
        return
    yield (
        f"What is not kept apart stands at {gaussian.at:.1f}, has {gaussian.weight:.0%} of the "
        f"weight and pulls {_direction(gaussian.pull)}."
    )
    for word, group in (
        ("up", [each for each in performances if each.pull > 0.0]),
        ("down", [each for each in performances if each.pull < 0.0]),
    ):
        total = sum(each.pull for each in group)
        if group:
            yield f"{_counted(len(group))} {word} by {abs(total):.1f} points in all."
    strongest = sorted(performances, key=lambda each: -abs(each.pull))[:MOST_NAMED]
    for each in strongest:
        of = f" (round {each.rounds[0]})" if len(each.rounds) == 1 else ""
        yield f"A performance of {each.at:.1f}{of} pulls {_direction(each.pull)}."


def _counted(count: int) -> str:
    return "1 performance pulls" if count == 1 else f"{count} performances pull"


def _direction(pull: float) -> str:
    return f"{'up' if pull >= 0.0 else 'down'} by {abs(pull):.1f} points"
