"""The dashboard as a picture, with its panels in rows, one for each theme, as in Grafana."""

import math
import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, Formatter, FuncFormatter, PercentFormatter
from PIL import Image

from watching.ask import Panel, Series

PANEL_INCHES = (3.1, 2.1)
STAT_SHARE = 0.55  # The height of a row of single numbers, as a share of others.
COLOURS_OF = {"green": "#73bf69", "red": "#f2495c"}
LINES_NAMED = 6
"""A panel with more lines names only the largest of them."""

FORMATS: Mapping[str, Formatter] = {
    "s": EngFormatter("s", sep=""),
    "bytes": EngFormatter("B", places=0, sep=""),
    "percentunit": PercentFormatter(1.0, decimals=None),
    "reqps": FuncFormatter(lambda value, _: f"{_counted(value)}/s"),
    "eps": FuncFormatter(lambda value, _: f"{_counted(value)}/s"),
    "cps": FuncFormatter(lambda value, _: f"{_counted(value)}/s"),
    "cpm": FuncFormatter(lambda value, _: f"{_counted(value)}/min"),
    "short": FuncFormatter(lambda value, _: _counted(value)),
}
"""Formats of axes, by Grafana's names of units."""


def _counted(value: float) -> str:
    """A count as a text: 0.6, 12, 4.4K. A count below one has no prefix such as milli."""
    return f"{value:g}" if abs(value) < 1000 else str(EngFormatter(sep="")(value)).replace("k", "K")


STYLE: Any = {"font.size": 7, "axes.spines.top": False, "axes.spines.right": False}
DPI = 110
COLOURS = 48
HEADROOM = 1.4
"""The factor by which the vertical axis is longer, to make room for the legend."""

Answers = Sequence[tuple[Panel, list[list[Series]]]]
"""Each panel with the series that each of its queries returned."""


def draw(answers: Answers, end_s: float, out: Path) -> None:
    """Write the picture. Its times are in seconds before `end_s`."""
    rows: dict[str, list[tuple[Panel, list[list[Series]]]]] = {}
    for panel, found in answers:
        rows.setdefault(panel.row, []).append((panel, found))
    columns = max(map(len, rows.values()))
    width, height = PANEL_INCHES
    with mpl.rc_context(STYLE):
        heights = [height * (STAT_SHARE if each[0][0].colours else 1) for each in rows.values()]
        figure = Figure((columns * width, sum(heights)), layout="constrained")
        parts = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=heights)
        for part, (row, shown) in zip(parts.flat, rows.items(), strict=True):
            part.suptitle(row, x=0.01, ha="left", fontweight="bold", fontsize=8)
            all_axes = part.subplots(1, columns)
            for axes, (panel, found) in zip(all_axes, shown, strict=False):
                if panel.colours:
                    _draw_number(axes, panel, _last(found[0][0].points))
                else:
                    _draw_panel(axes, panel, found, end_s)
            for axes in all_axes[len(shown) :]:
                axes.set_axis_off()
        _save(figure, out)


def _save(figure: Figure, out: Path) -> None:
    """Save with few colours, which are enough for lines and take a third of the bytes."""
    page = BytesIO()
    figure.savefig(page, dpi=DPI)
    with Image.open(page) as image:
        image.convert("RGB").quantize(COLOURS).save(out, optimize=True)


def _draw_number(axes: Any, panel: Panel, value: float) -> None:
    """The last value alone, on the colour that Grafana gives it."""
    colour = [name for least, name in panel.colours if value >= least][-1]
    axes.set_facecolor(COLOURS_OF[colour])
    axes.set_title(panel.title, fontsize=7)
    axes.yaxis.set_major_formatter(FORMATS[panel.unit])
    text = axes.yaxis.get_major_formatter()(value)
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=18, transform=axes.transAxes)


def _draw_panel(axes: Any, panel: Panel, found: list[list[Series]], end_s: float) -> None:
    lines = [
        (_named(query.legend, each.labels), each.points)
        for query, series in zip(panel.queries, found, strict=True)
        for each in series
    ]
    lines.sort(key=lambda line: -_last(line[1]))
    for i, (name, points) in enumerate(lines):
        times, values = [at - end_s for at, _ in points], [value for _, value in points]
        axes.plot(times, values, linewidth=0.9, label=name if i < LINES_NAMED else None)
    axes.set_title(panel.title, fontsize=7)
    axes.set_ylim(0, HEADROOM * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter(FORMATS[panel.unit])
    axes.xaxis.set_major_formatter(EngFormatter("s", sep=""))
    axes.grid(axis="y", linewidth=0.3)
    axes.legend(fontsize=5, frameon=False, loc="upper left", ncols=2)


def _last(points: Sequence[tuple[float, float]]) -> float:
    return points[-1][1] if points and not math.isnan(points[-1][1]) else 0.0


def _named(legend: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)
