"""The tables of B. Kerby's note, which compares methods by Kendall's tau: the share of pairs that
the lower rated entry won. Pairs tied in rank are left out; equal ratings count half. Displayed
ratings are compared (TrueSkill's mu minus two sigmas). Parameters are the note's, which chose them
by its first season, so its figures there are no predictions. Each season starts without ratings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stream_rater.evaluation.accuracy import averages
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.measures import FIELDS
from stream_rater.evaluation.season import Session, before
from stream_rater.rating import parameters
from tests.benchmarks.lab.evidence import DataSet
from tests.benchmarks.lab.figures import number, table

RHO = (0.0, 1.0, 2.0)
PL_RATES = tuple(zip(RHO, (0.6, 0.13, 0.09), strict=True))
GAUSSIAN_RATES = tuple(zip(RHO, (0.65, 0.09, 0.07), strict=True))


@dataclass(frozen=True)
class Method:
    config: parameters.RatingConfig
    season_1: float | None  # Kendall's tau on Map Rando's first season, as the note has it.
    later: float | None = None  # Kendall's tau on the later seasons, as the note reports it.


def _trueskill(
    sigma: float, beta: float, tau: float, display: parameters.MinusSigma | None,
    margin: float = 0.01,
) -> parameters.TrueSkill:  # fmt: skip
    return parameters.TrueSkill(
        beta=beta, sigma_drift=tau, draw_margin=margin, initial_mu=25.0, initial_sigma=sigma,
        display=display or "mu",
    )  # fmt: skip


LCB = parameters.MinusSigma(minus_sigma=2.0)
DEFAULT, MARGIN = (25.0 / 3.0, 25.0 / 6.0, 25.0 / 300.0), 0.74  # the margin of a draw in ten

PAIRS, PL, GAUSS = parameters.PairwiseElo, parameters.PlackettLuce, parameters.Thurstone
METHODS = {
    "pairwise sum": Method(PAIRS(learning_rate=0.07, initial_mu=0), 0.2396),
    "pairwise average": Method(PAIRS(learning_rate=0.75, pairs="average", initial_mu=0), 0.2423),
    "plackett-luce": Method(PL(learning_rate=0.32, initial_mu=0), 0.2394),
    "thurstone": Method(GAUSS(learning_rate=0.26, initial_mu=0), 0.2367),
    "trueskill default mu": Method(_trueskill(*DEFAULT, None, MARGIN), 0.2453, 0.1738),
    "trueskill default mu - 2 sigma": Method(_trueskill(*DEFAULT, LCB, MARGIN), 0.2159),
    "trueskill mu": Method(_trueskill(3.7, 2.3, 0.18, None), 0.2411),
    "trueskill mu - 2 sigma": Method(_trueskill(5.0, 2.5, 0.12, LCB), 0.2148, 0.1732),
    "pairwise sum, anchor": Method(PAIRS(learning_rate=0.07, initial_mu=-1.6, anchor=0), 0.2251),
    "pairwise average, anchor": Method(
        PAIRS(learning_rate=0.63, pairs="average", initial_mu=-2.5, anchor=0), 0.2275
    ),
    "plackett-luce, anchor": Method(PL(learning_rate=0.18, initial_mu=-2.7, anchor=0), 0.2229),
    "thurstone, anchor": Method(GAUSS(learning_rate=0.11, initial_mu=-1.3, anchor=0), 0.2234),
    "plackett-luce, anchor, rates": Method(
        PL(learning_rate=PL_RATES, initial_mu=0.25, anchor=1.35), None
    ),
    "thurstone, anchor, rates": Method(
        GAUSS(learning_rate=GAUSSIAN_RATES, initial_mu=0.3, anchor=0.9), None
    ),
    "plackett-luce, anchor, rates, floor": Method(
        PL(learning_rate=PL_RATES, initial_mu=0.25, anchor=1.35, floor=0), 0.2177, 0.1813
    ),
    "thurstone, anchor, rates, floor": Method(
        GAUSS(learning_rate=GAUSSIAN_RATES, initial_mu=0.3, anchor=0.9, floor=0), 0.2211, 0.1808
    ),
}


@dataclass(frozen=True, slots=True)
class Column:
    """The results of all methods on the same rounds, which each rates without earlier ratings."""

    name: str
    rounds: int
    pairs: int  # The number of pairs that are not tied in rank, the same for every method.
    taus: dict[str, float | None]  # Kendall's tau of each method; None if there is no such pair.


def seasons(data: DataSet, first: int | None) -> list[tuple[str, list[Session]]]:
    """Names and rounds of a file's seasons: the `first` rounds and the later ones; None: all."""
    if first is None:
        return [(data.name, list(data.sessions))]
    later = []
    for session in data.sessions:
        chosen = np.flatnonzero(session.numbers >= first)
        if len(chosen):
            later.append(session.take(chosen))
    return [
        (f"{data.name}, season 1", before(data.sessions, first)), (f"{data.name}, later", later),
    ]  # fmt: skip


def column(name: str, rounds: Sequence[Session], say: Callable[[str], None]) -> Column:
    """Rate and score these rounds by every method. `say` is called with the name of each step."""
    taus, pairs = dict[str, float | None](), 0
    for method, each in METHODS.items():
        say(f"{name}: {method}")
        scores = evaluate(rounds, each.config, most_sides=0, draws=False, by_display=True).scores
        taus[method] = averages(scores)["kendall_tau"]
        pairs = int(scores[:, FIELDS.index("pairs")].sum())
    return Column(name, sum(len(each.rounds) for each in rounds), pairs, taus)


def columns(data: Sequence[DataSet], first: int | None, say: Callable[[str], None]) -> list[Column]:
    """Rate and score every season of every file by every method, as `column` does."""
    return [column(*each, say) for one in data for each in seasons(one, first)]


def tables(found: Sequence[Column]) -> list[str]:
    """The lines of one table with a row for each method. The note's figures come first."""
    rows = [
        [method, number(each.season_1, 4), number(each.later, 4),
         *(number(one.taus[method], 4) for one in found)]
        for method, each in METHODS.items()
    ]  # fmt: skip
    headings = ["method", "note, season 1", "note, later", *(one.name for one in found)]
    return [
        "## Kerby's methods", "",
        "Kendall's tau by the displayed ratings: the share of pairs in which the lower rated was "
        "placed better, equal ratings half. Less is better. The methods have the parameters of the "
        "note, which it chose by season 1 of Map Rando; its figures are of that file. Each season "
        "starts without ratings.", "",
        *(f"- {one.name}: {one.rounds:,} rounds, {one.pairs:,} pairs." for one in found), "",
        *table(headings, rows), "",
    ]  # fmt: skip
