"""Kerby's tables on real rounds: the order of the methods, and what each adaptation gains."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_rater.cli import app
from stream_rater.evaluation.research.kerby import METHODS
from tests.tables import kendall_tau, seasons

pytestmark = pytest.mark.slow

CLOSE = 0.002
"""The data lacks the season's boundary, and has as strangers the deleted players that the note
leaves out. In Plackett-Luce the note's program takes each one's chance of being worse than all who
finished as independent, where we take P(max < min), the note's own formula; so farthest are its
figures, by 0.0018. (TrueSkill's mu, 0.0054 off, is of another variant, which treats ties else.)"""


@pytest.fixture(scope="module")
def tau(shared: Path) -> dict[str, float]:
    """Kendall tau of every method in season 1: the lower, the better."""
    first, _ = seasons(shared)
    return {name: kendall_tau(method.config, first) for name, method in METHODS.items()}


def test_the_command_makes_the_same_table(
    shared: Path, tmp_path: Path, tau: dict[str, float]
) -> None:
    """`evidence --only kerby` counts by the laboratory's code what is counted here by hand; single
    precision of what is kept between rounds may turn a pair around."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "map-rando.jsonl.gz").symlink_to(shared / "data" / "map-rando.jsonl.gz")
    words = ["evidence", str(data), "--out", str(tmp_path), "--only", "kerby", "--season", "749"]
    result = CliRunner().invoke(app.main, words)
    assert result.exit_code == 0, result.stderr
    rows = [line.split(" | ") for line in (tmp_path / "report.md").read_text().splitlines()]
    found = {row[0].removeprefix("| "): row[3] for row in rows if len(row) == 5}
    assert {name: float(found[name]) for name in METHODS} == pytest.approx(tau, abs=2e-4)


def test_each_method_is_as_in_the_note(tau: dict[str, float]) -> None:
    """Each method has about the Kendall tau that the note gives."""
    in_note = {name: each.season_1 for name, each in METHODS.items() if each.season_1}
    del in_note["trueskill mu"]
    assert {name: tau[name] for name in in_note} == pytest.approx(in_note, abs=CLOSE)


def test_the_order_of_the_methods(tau: dict[str, float]) -> None:
    """TrueSkill less two sigmas is first, Thurstone the best plain one, averaged pairs are last.

    One difference is not checked: in the note Plackett-Luce (0.2394) is just before the sum of
    pairs (0.2396), and here it is just behind (0.2402, 0.2393).
    """
    assert min(tau, key=lambda name: tau[name]) == "trueskill mu - 2 sigma"
    plain = ("pairwise sum", "pairwise average", "plackett-luce", "thurstone")
    assert min(plain, key=lambda name: tau[name]) == "thurstone"
    assert max(plain, key=lambda name: tau[name]) == "pairwise average"
    anchored = [f"{name}, anchor" for name in plain]
    assert sorted(anchored, key=lambda name: tau[name]) == [
        "plackett-luce, anchor", "thurstone, anchor", "pairwise sum, anchor",
        "pairwise average, anchor",
    ]  # fmt: skip


def test_every_adaptation_gains(tau: dict[str, float]) -> None:
    """The anchor most; less the table of learning rates; the floor, too, but not Thurstone."""
    for name in ("pairwise sum", "pairwise average", "plackett-luce", "thurstone"):
        assert tau[name] - tau[f"{name}, anchor"] > 0.01
    for name in ("plackett-luce", "thurstone"):
        assert tau[f"{name}, anchor"] - tau[f"{name}, anchor, rates"] > 0.001
    floored = "plackett-luce, anchor, rates, floor"
    assert tau["plackett-luce, anchor, rates"] - tau[floored] > 0.001
