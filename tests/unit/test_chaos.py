"""What chaos counts: it would notice a rating that is lost, doubled or wrong. Its ledger adds up
over runs, and a run goes on where the last one has ended."""

import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec.structs import replace

import tests.chaos.__main__ as chaos
from stream_rater.contract.events import CorrectionCause, RatingChanged
from tests.chaos import season
from tests.chaos.corrected import corrected_tally, values_of
from tests.chaos.crew import Violation, why_ended
from tests.chaos.ledger import NAME, BadLedger, Ledger, Played, sums
from tests.chaos.rolling import latencies_ms, percentiles, prompt
from tests.chaos.scene import Outcome
from tests.chaos.season import Tally, tally

DUE = {("l", "p"): {"r1": 1, "r2": 2, "r3": 3}, ("l", "q"): {"r3": 1}}
"""Three expected rounds of one player, and one of another."""


def change(
    number: int, player: str = "p", *, of: int = 0, event_id: str = "", mu: float = 0.0
) -> RatingChanged:
    """A player's change after this many rounds, each of which gains a point. Rounds lie in the log
    in the order of their names."""
    round_id = f"r{of or number}"
    return RatingChanged(
        event_id=event_id or f"l:{round_id}:{player}", ladder="l", player=player,
        round_id=round_id, completed_at="", rank=1, mu=mu or 1000.0 + number, sigma=9.0 - number,
        previous_mu=999.0 + number, previous_sigma=10.0 - number, performance=0.0, rating=0.0,
        previous_rating=0.0, rounds=number, provisional=False, offset=of or number,
    )  # fmt: skip


ALL = [change(1), change(2), change(3), change(1, "q", of=3)]
PUBLISHED = {
    "all": (ALL, (0, 0, 0)),
    "nothing": ([], (4, 0, 0)),
    "the last one not": ([*ALL[:2], ALL[3]], (1, 0, 0)),
    "one in between not": ([ALL[0], *ALL[2:]], (1, 0, 1)),  # and a gap in what is believed
    "one twice": ([*ALL, ALL[1]], (0, 1, 0)),
    "out of order": ([ALL[0], ALL[2], ALL[1], ALL[3]], (0, 0, 2)),
    "another's round": ([*ALL[:3], change(1, "q", of=1)], (1, 0, 1)),
    "a round that nobody played": ([*ALL, change(4)], (0, 0, 1)),
    "two rounds exchanged": ([change(1, of=2), change(2, of=1), *ALL[2:]], (0, 0, 3)),
    "another's id": ([*ALL[:3], change(1, "q", of=3, event_id="l:r3:p")], (0, 0, 1)),
    "another rating": ([change(1, mu=1001.5), *ALL[1:]], (0, 0, 1)),
}
"""Published changes, and how many are lost, doubled and wrong."""


def counts(found: Tally) -> tuple[int, int, int]:
    return found.lost, found.doubled, len(found.mistakes)


def test_what_is_lost_doubled_and_wrong() -> None:
    found = {case: counts(tally(DUE, changes)) for case, (changes, _) in PUBLISHED.items()}
    assert found == {case: expected for case, (_, expected) in PUBLISHED.items()}


def corrected(number: int, offset: int, *, mu: float, before: float) -> RatingChanged:
    """The event of a correction of a round of p, published after this many rounds."""
    cause = CorrectionCause(cause="round-voided", offset=offset, round_id="r1")
    return replace(
        change(number), event_id=f"l:correction:{offset}:p", round_id="r1", rank=None,
        performance=None, mu=mu, previous_mu=before, offset=offset, correction=cause,
        previous_sigma=9.0 - number,
    )  # fmt: skip


EDITED = [ALL[0], ALL[1], corrected(2, 5, mu=900.0, before=1002.0),
          replace(change(3), previous_mu=900.0, offset=6)]  # fmt: skip
VOIDED = EDITED[2]
PUBLISHED_CORRECTED = {
    "all": (EDITED, (0, 0, 0)),
    "the correction not": ([*EDITED[:2], EDITED[3]], (1, 0, 1)),  # and a gap in what is believed
    "the correction twice": ([*EDITED, VOIDED], (0, 1, 0)),
    "the correction as a round": ([*EDITED[:2], replace(VOIDED, correction=None), EDITED[3]],
                                  (0, 0, 2)),
    "another correction": ([*EDITED[:3], corrected(2, 7, mu=901.0, before=900.0), EDITED[3]],
                           (0, 0, 1)),
    "a round that does not go on from it": ([*EDITED[:3], replace(EDITED[3], previous_mu=1002.0)],
                                            (0, 0, 2)),
}  # fmt: skip
"""Published changes of p, among them a correction's, and how many are lost, doubled and wrong."""


def test_what_of_corrections_is_lost_doubled_and_wrong() -> None:
    due = {("l", "p"): [values_of(each) for each in EDITED]}
    cases = PUBLISHED_CORRECTED.items()
    found = {case: counts(corrected_tally(due, changes)) for case, (changes, _) in cases}
    assert found == {case: expected for case, (_, expected) in cases}


HANGING_CALL = "stream-rater: updater: in a call that does not return\n"


def test_why_a_worker_ended() -> None:
    """The last line gives the reason. A traceback, a signal and an unknown reason are
    violations."""
    for log in (HANGING_CALL, "Timeout (0:00:09.500000)!\nThread 0x7f (most recent call first):\n"):
        assert why_ended(1, "{}\n" + log) == "a call that does not return"
    for code, log in (
        (1, "Traceback\n" + HANGING_CALL), (-6, HANGING_CALL), (0, HANGING_CALL), (1, ""),
        (1, "{}\nno"),
    ):  # fmt: skip
        with pytest.raises(Violation, match="a worker ended"):
            why_ended(code, log)


def test_a_fault_that_breaks_the_players_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next fault runs all the same. Faults for which there is no time are named."""

    def breaks(name: str, *_: object) -> NoReturn:
        raise subprocess.TimeoutExpired(name, 1.0)

    def takes_long(*_: object) -> NoReturn:
        while True:
            time.sleep(1.0)

    monkeypatch.setattr(chaos, "FAULTS", {"a": breaks, "b": takes_long, "c": breaks})
    failures: list[chaos.Failure] = []
    chaos.play(["a", "b", "c"], quick=True, minutes=0.01, outcomes=[], failures=failures)
    assert [each.fault for each in failures] == ["a", "b", "c"]
    assert failures[0].failure.startswith("TimeoutExpired")
    assert {each.failure for each in failures[1:]} == {"not played to its end within 0.01 minutes"}


def test_how_long_ratings_took() -> None:
    """Latencies in milliseconds of the rounds that were reported within a time, whenever their
    changes came."""
    seen = [(float(at), at + 0.25) for at in range(10)] + [(4.0, 14.0)]
    assert latencies_ms(seen, 4.0, 6.0) == [250.0, 250.0, 10_000.0]
    assert percentiles(latencies_ms(seen, 0.0, 99.0), 50, 100) == [250.0, 10_000.0]
    assert prompt(seen[:1]) and not prompt(seen) and not prompt([])


def outcome(fault: str, injected: int = 3, **counts: int) -> Outcome:
    given = {"lost": 0, "doubled": 0, "wrong": 0, **counts}
    return Outcome(
        fault=fault, injected=injected, rebalances=0, updates=10, ended_themselves={},
        recoveries=1, recovery_s=1.0, judged=10, **given,
    )  # fmt: skip


def row(fault: str, *, seed: int = 0, commit: str = "a", **counts: int) -> Played:
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
        seen.append((name, season.seeded(0)))
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
    season.reseed(0)
