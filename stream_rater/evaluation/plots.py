"""Draws reliability diagrams by Matplotlib, from the extra `lab`, into axes that the caller has.

Apart from the grey diagonal, colours are those of Matplotlib's present style, so dark styles suit,
too.
"""

from typing import Any, NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats


class Reliability(NamedTuple):
    """How often sides won, for B bins of sides with a similar probability to win."""

    predicted: Floats
    """(B,) the mean probability to win."""
    won: Floats
    """(B,) the share of the sides that won."""
    low: Floats
    """(B,) the low end of the 95 % interval of that share."""
    high: Floats
    """(B,) the high end of the interval."""


def reliability_axes(ax: Any, title: str) -> None:
    """Set up axes for reliability diagrams: a title, labels, and the diagonal, on which the sides
    win as often as predicted."""
    ax.plot([0, 1], [0, 1], color="grey", linestyle=":", label="as predicted")
    ax.set(title=title, xlabel="probability to win", ylabel="part that won", aspect="equal",
           xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))  # fmt: skip


def reliability(ax: Any, of: Reliability, label: str) -> None:
    """Draw the share of sides that won, by their probability to win, with 95 % intervals."""
    reach = np.array([of.won - of.low, of.high - of.won]).clip(0.0)
    ax.errorbar(of.predicted, of.won, reach, marker="o", markersize=4, capsize=2, label=label)
