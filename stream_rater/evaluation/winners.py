"""Measures how well the probabilities to win predict the winner of a round. Sides can be of any
size.

Each side is given a probability to be better than all others (`wins`). The winner of a round is the
side that has the first place alone. Where draws are outcomes (`shared_scores`), a shared first
place is one more outcome. Otherwise a round whose first place is shared is left out.

- log loss of the winner: -ln p, where p is the probability of the outcome that happened;
- Brier score of the winner: half the sum of (p - happened)^2 over all outcomes. With two sides it
  is (1 - p)^2, where p is the probability of the winner.

Both weigh all rounds the same. The calibration compares probabilities with outcomes: among all
sides with a probability of about p, the share that wins should be p.
"""

from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.evaluation.measures import WinBin
from stream_rater.rating.elementary import log
from stream_rater.rating.model import Places
from stream_rater.rating.wins import ANY

LEAST_PROBABILITY = 1e-9
"""A smaller probability of what happened counts as this: `wins` is not more accurate."""
EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""The edges of the bins of probability. In rounds of many sides, most probabilities are near 0."""
Z_95 = 1.959964
"""A normal value is within this many standard deviations of its mean with probability 95 %."""


class WinPredictions(NamedTuple):
    """The predictions for S sides of scored rounds, and the outcomes."""

    round: Ints  # (S,) the round's number in the season.
    win: Floats  # (S,) the predicted probability to win.
    won: Flags  # (S,) whether the side won.

    def of(self, kept: Flags) -> "WinPredictions":
        """A copy with only the sides that are `kept` (S,)."""
        return WinPredictions(self.round[kept], self.win[kept], self.won[kept])


@kernel
def score(round_starts: Ints, place: Places, win: Floats, draws: bool, most: int = ANY) -> Floats:
    """(R, 3) the scores of the rounds of a wave: 1, log loss, Brier score. A round that is not
    scored has zeros: one with fewer than two entries or more than `most`, or one whose first place
    is shared unless `draws` are outcomes. `win` (E,) has the predicted probability of each entry to
    win. The entries of a round come in order of place."""
    out = np.zeros((len(round_starts) - 1, 3))
    for r in range(len(out)):
        a, b = round_starts[r], round_starts[r + 1]
        if b - a < 2 or b - a > most or (place[a] == place[a + 1] and not draws):
            continue
        no_winner = max(1.0 - np.sum(win[a:b]), 0.0) if draws else 0.0
        square = no_winner * no_winner + np.sum(win[a:b] * win[a:b])
        p = no_winner if place[a] == place[a + 1] else win[a]
        out[r, 0] = 1.0
        out[r, 1] = -log(min(max(p, LEAST_PROBABILITY), 1.0))
        out[r, 2] = 0.5 * (square + 1.0 - 2.0 * p)
    return out


def win_predictions(
    round_starts: Ints, place: Places, win: Floats, scored: Flags
) -> WinPredictions:
    """The predictions for the entries of the scored rounds of a wave, and their outcomes. `scored`
    (R,) is whether each round has a score. Round numbers in the result are indices in the wave."""
    sizes = np.diff(round_starts)
    number = np.repeat(np.arange(len(sizes)), sizes)
    won = np.zeros(len(win), bool)
    first = round_starts[:-1][scored]
    won[first] = place[first] != place[first + 1]
    kept = scored[number]
    return WinPredictions(number[kept], win[kept], won[kept])


def calibration(of: WinPredictions) -> list[WinBin]:
    """The bins that have at least one side, in order of probability."""
    chosen = np.digitize(of.win, EDGES[1:-1])
    count = len(EDGES) - 1
    sides = np.bincount(chosen, minlength=count).tolist()
    sums = np.bincount(chosen, of.win, count).tolist()
    wins = np.bincount(chosen, of.won, count).tolist()
    return [
        WinBin(EDGES[i], EDGES[i + 1], n, sums[i] / n, wins[i] / n, *_interval(wins[i] / n, n))
        for i, n in enumerate(sides)
        if n
    ]


def _interval(part: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of the share `part` of n."""
    square = Z_95**2 / n
    centre = (part + 0.5 * square) / (1.0 + square)
    half = (part * (1.0 - part) * square + 0.25 * square**2) ** 0.5 / (1.0 + square)
    return max(centre - half, 0.0), min(centre + half, 1.0)
