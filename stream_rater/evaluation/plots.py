"""Draws reliability diagrams by Matplotlib, from the extra `lab`, into axes of the caller or into a
file.

Apart from the grey diagonal, colours are those of Matplotlib's present style, so dark styles suit,
too."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.config.errors import extra
from stream_rater.evaluation.measures import Evaluation


def reliability_axes(ax: Any, title: str) -> None:
    """Set up axes: a title, labels, and the diagonal, on which sides win as often as predicted."""
    ax.plot([0, 1], [0, 1], color="grey", linestyle=":", label="as predicted")
    ax.set(title=title, xlabel="probability to win", ylabel="part that won", aspect="equal",
           xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))  # fmt: skip


def draw_reliability(
    ax: Any, label: str, predicted: Floats, won: Floats, low: Floats, high: Floats
) -> None:
    """Draw the share of sides that won, by their probability to win, with 95 % intervals. The
    arguments are (B,) for B bins of sides: the mean probability, the share, and the ends of its
    interval."""
    reach = np.array([won - low, high - won]).clip(0.0)
    ax.errorbar(predicted, won, reach, marker="o", markersize=4, capsize=2, label=label)


LEAST_SIDES = 20
"""The fewest sides of a bin that is drawn. A bin with fewer sides is not informative enough."""


def reliability(rows: Sequence[Evaluation], out: Path) -> None:
    """Write one picture, with a diagram for each file. Raises MissingExtra and OSError."""
    plots = pyplot()
    files = list(dict.fromkeys(row.file for row in rows))
    figure, axes = plots.subplots(1, len(files), figsize=(5 * len(files), 5), squeeze=False)
    for ax, file in zip(axes[0], files, strict=True):
        reliability_axes(ax, file)
        for row in rows:
            if row.file == file:
                bins = [each for each in row.calibration if each.sides >= LEAST_SIDES]
                names = ("foretold", "won", "won_low", "won_high")
                columns = (np.array([getattr(each, name) for each in bins]) for name in names)
                draw_reliability(ax, row.config, *columns)
        ax.legend()
    save(plots, figure, out)


def pyplot() -> Any:
    """The module matplotlib.pyplot, set to need no display. Raises MissingExtra."""
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
