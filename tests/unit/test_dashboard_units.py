"""The dashboard's units: what people read off it, and how the drawn picture says them."""

import json

import pytest

from local.prometheus_node import DASHBOARD
from watching.ask import panels
from watching.figure import FORMATS


def test_every_unit_can_be_drawn() -> None:
    """The picture knows all that the dashboard uses."""
    assert {panel.unit for panel in panels("1m")} <= FORMATS.keys()


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("cpm", 36.0, "36/min"),
        ("cps", 0.6, "0.6/s"),
        ("eps", 4400.0, "4.4K/s"),
        ("short", 0.25, "0.25"),
        ("short", 2_500_000.0, "2.5M"),
    ],
)
def test_counts_are_no_thousandths(unit: str, value: float, expected: str) -> None:
    """`600m/s` is six in ten seconds, which nobody reads off it."""
    assert FORMATS[unit](value) == expected


def test_rare_rejections_are_reported_by_the_minute() -> None:
    """As the unit says, so the query."""
    (panel,) = (each for each in panels("1m") if each.title == "Rejections by code")
    assert panel.unit == "cpm"
    assert panel.queries[0].expression.startswith("60 * sum by (code) (rate(")


def test_seeds_and_the_door_are_on_the_dashboard() -> None:
    """Each in its row, by the metrics that say what came and what waits."""
    shown = {panel.title: (panel.row, panel.queries) for panel in panels("1m")}
    for title, row, metrics in (
        ("Seeds and resets", "Corrections and seeds", ["seeds", "seed_rows_without_effect"]),
        ("Rounds and corrections by HTTP", "The API", ["serve_rounds"]),
        ("Waiting for Kafka's acknowledgement", "The API", ["serve_unacknowledged"]),
    ):
        where, queries = shown[title]
        assert where == row and len(queries) == len(metrics)
        for query, metric in zip(queries, metrics, strict=True):
            assert f"stream_rater_{metric}" in query.expression


def test_panels_do_not_overlap() -> None:
    """Each has an id and a place of its own."""
    whole = json.loads(DASHBOARD.read_text())["panels"]
    assert len({each["id"] for each in whole}) == len(whole)
    taken = [
        (x, y)
        for at in (each["gridPos"] for each in whole)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(taken)) == len(taken)
