"""The ledger of chaos adds up over runs, and a run goes on where the last one has ended."""

from collections import Counter
from pathlib import Path

import pytest

import tests.chaos.__main__ as chaos
from tests.chaos import chance
from tests.chaos.ledger import NAME, BadLedger, Ledger, Played, sums
from tests.chaos.scene import Outcome


def outcome(fault: str, injected: int = 3, **counts: int) -> Outcome:
    """The outcome of a row."""
    given = {"lost": 0, "doubled": 0, "wrong": 0, **counts}
    return Outcome(
        fault=fault, injected=injected, rebalances=0, updates=10, ended_themselves={},
        recoveries=1, recovery_s=1.0, judged=10, **given,
    )  # fmt: skip


def row(fault: str, *, seed: int = 0, commit: str = "a", **counts: int) -> Played:
    """A row of a ledger."""
    return Played.of(outcome(fault, **counts), at="", commit=commit, seed=seed, quick=False)


def test_sums_of_several_runs(tmp_path: Path) -> None:
    """Rows of all runs are added up, failed ones too; a line that a kill has cut off is dropped."""
    Ledger(tmp_path).add(row("x", lost=1))
    ledger = Ledger(tmp_path)
    ledger.add(row("x", seed=1, commit="b"))
    ledger.add(Played(at="", commit="b", fault="y", seed=0, failure="it broke"))
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"at":"')
    again = Ledger(tmp_path)
    assert again.rows == ledger.rows and again.injected == 6
    assert [each.is_clean for each in again.rows] == [False, True, False]
    again.add(row("z"))
    x, y, z, whole = sums(Ledger(tmp_path).rows)
    assert (x.ledger, x.played, x.injected, x.lost, x.commits) == ("x", 2, 6, 1, 2)
    assert (y.failed, y.injected, z.judged) == (1, 0, 10)
    assert (whole.ledger, whole.played, whole.injected, whole.failed) == ("all", 4, 9, 1)


def test_a_line_that_is_none(tmp_path: Path) -> None:
    """It is named with its place."""
    (tmp_path / NAME).write_text("[]\n")
    with pytest.raises(BadLedger, match=r"chaos\.jsonl:1: .*delete this line"):
        Ledger(tmp_path)


def test_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults take turns, each time with another seed, until there are enough; the second run needs
    only what is missing. What fails is in the ledger."""
    seen: list[tuple[str, int]] = []

    def played(name: str, *_: object) -> Outcome:
        seen.append((name, chance.seeded(0)))
        if len(seen) == 3:
            raise RuntimeError("it broke")
        return outcome(name)

    monkeypatch.setattr(chaos, "FAULTS", {"x": played, "y": played})
    chaos.accumulate(Ledger(tmp_path), ["x", "y"], 6, 10.0, quick=False)
    assert [name for name, _ in seen] == ["x", "y"]
    chaos.accumulate(Ledger(tmp_path), ["x", "y"], 11, 10.0, quick=False)
    assert [name for name, _ in seen] == ["x", "y", "x", "y", "x"]
    assert len(set(seen)) == 5
    rows = Ledger(tmp_path).rows
    assert Counter(each.fault for each in rows) == {"x": 3, "y": 2}
    assert [each.failure for each in rows if each.failure] == ["RuntimeError: it broke"]
    chaos.accumulate(Ledger(tmp_path), ["x", "y"], 12, 0.0, quick=False)  # no time is left
    assert len(Ledger(tmp_path).rows) == 5
    chance.reseed(0)
