"""Draws reliability diagrams by Matplotlib, from the extra `lab`: into axes that the caller has, or
to a file.

Apart from the grey diagonal, colours are those of Matplotlib's present style, so dark styles suit,
too.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.config.errors import extra
from stream_rater.evaluation.measures import Evaluation, WinBin


class Reliability(NamedTuple):
    """How often sides won, for B bins of sides with a similar probability to win."""

    predicted: Floats  # (B,) the mean probability to win.
    won: Floats  # (B,) the share of the sides that won.
    low: Floats  # (B,) the low end of the 95 % interval of that share.
    high: Floats  # (B,) the high end of the interval.


def reliability_axes(ax: Any, title: str) -> None:
    """Set up axes: a title, labels, and the diagonal, where sides win as often as predicted."""
    ax.plot([0, 1], [0, 1], color="grey", linestyle=":", label="as predicted")
    ax.set(title=title, xlabel="probability to win", ylabel="part that won", aspect="equal",
           xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))  # fmt: skip


def draw_reliability(ax: Any, of: Reliability, label: str) -> None:
    """Draw the share of sides that won, by their probability to win, with 95 % intervals."""
    reach = np.array([of.won - of.low, of.high - of.won]).clip(0.0)
    ax.errorbar(of.predicted, of.won, reach, marker="o", markersize=4, capsize=2, label=label)


LEAST_SIDES = 20
"""The fewest sides of a bin that is drawn. A bin with fewer sides is not informative enough."""


def reliability(rows: Sequence[Evaluation], out: Path) -> None:
    """Write a reliability diagram for each file to one picture: the share of sides that won, by
    their probability to win, with 95 % intervals. Raises MissingExtra and OSError."""
    plots = pyplot()
    files = list(dict.fromkeys(row.file for row in rows))
    figure, axes = plots.subplots(1, len(files), figsize=(5 * len(files), 5), squeeze=False)
    for ax, file in zip(axes[0], files, strict=True):
        reliability_axes(ax, file)
        for row in rows:
            if row.file == file:
                bins = [each for each in row.calibration if each.sides >= LEAST_SIDES]
                draw_reliability(ax, _columns_of(bins), row.config)
        ax.legend()
    save(plots, figure, out)


def _columns_of(bins: Sequence[WinBin]) -> Reliability:
    names = ("foretold", "won", "won_low", "won_high")
    return Reliability(*(np.array([getattr(each, name) for each in bins]) for name in names))


def pyplot() -> Any:
    """Matplotlib's pyplot for use without a display. Raises MissingExtra."""
    with extra("lab"):
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot
    return pyplot


def save(plots: Any, figure: Any, path: Path) -> None:
    """Write a figure to a file, and close it. Raises OSError."""
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plots.close(figure)
