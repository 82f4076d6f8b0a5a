"""Draws ratings by Matplotlib, from the extra `lab`. Each function draws into the axes that it is
given, or into those of a new figure, and returns them, so that the caller can add to them. Colours
are those of Matplotlib's present style, so dark styles suit, too. All functions raise MissingExtra
without Matplotlib."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stream_rater.config.errors import extra
from stream_rater.contract.events import shown
from stream_rater.evaluation.plots import draw_reliability, reliability_axes
from stream_rater.library.results import Calibration, History, Leaderboard

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Over = Literal["rounds", "time"]
"""Where the points of a player stand: at the number of the player's rounds, or at their time."""
MOST_MARKED = 60  # With more rounds, a player's line has no marks.
MOST_NAMED = 3  # The most players that a title names.
LONGEST_NAME = 24  # The most characters of an id that are drawn. A longer id is cut.
OPACITY = 0.18  # The opacity of an area of uncertainty.
ROW_INCHES, AROUND_INCHES = 0.28, 1.2  # The height of a row of a board, and of all around.


def ratings(
    histories: Sequence[History], initial_sigma: float, over: Over, ax: "Axes | None"
) -> "Axes":
    """Draw the rating of each of these players after each round, and the area mu ± sigma, unless
    sigma never differs from that of newcomers, as with systems that do not change it."""
    ax = ax or _new_axes((7.0, 4.0))
    names = [_label(each.player) for each in histories]
    labels = ["rating"] if len(names) == 1 else names
    band = "mu ± sigma"
    for label, each in zip(labels, histories, strict=True):
        at: Any = each.rounds if over == "rounds" else each.completed_at
        order = np.argsort(at, kind="stable")
        at, mu, sigma = at[order], each.mu[order], each.sigma[order]
        marker = "o" if len(each) <= MOST_MARKED else ""
        (line,) = ax.plot(at, each.rating[order], marker=marker, markersize=3, label=label)
        if (sigma != initial_sigma).any():
            area = ax.fill_between(at, mu - sigma, mu + sigma, linewidth=0, label=band)
            area.set(color=line.get_color(), alpha=OPACITY)
            band = ""  # for all players once in the legend
    if over == "time":
        _with_dates(ax)
    ax.set(
        title=_title(names), ylabel="rating",
        xlabel="own round" if over == "rounds" else "time of the round",
    )  # fmt: skip
    if histories:
        ax.legend()
    return ax


def _title(names: Sequence[str]) -> str:
    few = len(names) <= MOST_NAMED
    return ", ".join(name.strip() for name in names) if few else f"{len(names)} players"


def _with_dates(ax: "Axes") -> None:
    """Label the x-axis with short dates."""
    with extra("lab"):
        import matplotlib.dates

    dates: Any = matplotlib.dates
    locator = dates.AutoDateLocator()
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def board(of: Leaderboard, players: int, initial_sigma: float, ax: "Axes | None") -> "Axes":
    """Draw a leaderboard, the best at the top: each rating, and mu ± sigma as a line, unless it is
    left out as in `ratings`. `players`: how many the ladder has."""
    ax = ax or _new_axes((7.0, AROUND_INCHES + ROW_INCHES * max(len(of), 1)))
    row = np.arange(len(of))
    (rating,) = ax.plot(of.rating, row, "o", label="rating")
    if (of.sigma != initial_sigma).any():
        bars = ax.hlines(row, of.mu - of.sigma, of.mu + of.sigma, label="mu ± sigma")
        bars.set(color=rating.get_color(), alpha=2.0 * OPACITY, linewidth=5.0)
    names = [f"{rank}. {_label(name)}" for rank, name in zip(of.rank, of.player, strict=True)]
    ax.set_yticks(row, names)
    ax.set(
        title=f"the best {len(of):,} of {players:,} players", xlabel="rating points",
        ylim=(max(len(of), 1) - 0.5, -0.5),
    )  # fmt: skip
    if len(of):
        ax.legend()
    return ax


def calibration(of: Calibration, label: str, ax: "Axes | None") -> "Axes":
    """Draw the share of sides that won, by their probability to win, with 95 % intervals."""
    ax = ax or _new_axes((5.0, 5.0))
    reliability_axes(ax, of.title)
    draw_reliability(ax, _label(label), of.predicted, of.won, of.won_low, of.won_high)
    ax.legend(loc="upper left")
    return ax


def _new_axes(inches: tuple[float, float]) -> "Axes":
    """The axes of a new figure with this width and height."""
    with extra("lab"):
        from matplotlib import pyplot
    _, ax = pyplot.subplots(figsize=inches, layout="constrained")
    return ax


def _label(name: str) -> str:
    """An id as Matplotlib should draw it: short, without dollar signs that begin a formula, and
    with a space before an underscore, since a legend leaves out labels that begin with one."""
    text = shown(name)
    text = text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
