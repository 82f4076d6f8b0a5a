"""The dashboard's units: what people read off it, and how the drawn picture says them."""

import pytest

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
