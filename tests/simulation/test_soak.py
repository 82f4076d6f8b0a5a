"""The conditions under which `make soak` succeeds."""

from dataclasses import replace
from typing import Any

from .faults import KINDS
from .soak import INPUTS, MINUTES, PRODUCTION, Summary, Tally, promised, run, tables
from .transitions import TRANSITIONS, name_of

GOOD = Summary(1, 5, 0, 3, 3, 1, INPUTS, 0, dict.fromkeys(KINDS, 1))


def test_success() -> None:
    """Success: everything was run, and only mutants failed. Random seeds need not find every
    mutant. Each flaw is a failure."""
    assert not list(GOOD.complaints(INPUTS))
    flaws: list[dict[str, Any]] = [
        {"violations": 1}, {"seeds": 0}, {"caught": 2}, {"fuzzed": INPUTS - 1}, {"fuzzed_wrong": 1},
    ]  # fmt: skip
    for flaw in flaws:
        assert len(list(replace(GOOD, **flaw).complaints(INPUTS))) == 1, flaw


def test_promised_inputs() -> None:
    """A million inputs are promised, and in a shorter time a proportional share."""
    assert promised(MINUTES) == promised(3.0 * MINUTES) == INPUTS == 10 * promised(MINUTES / 10.0)


def test_chunk_reports_its_faults() -> None:
    """A chunk reports its faults; otherwise the table would be empty."""
    ran = run((PRODUCTION, 7, 2), 2e10)
    assert (ran.name, ran.done, ran.wrong) == (PRODUCTION, 2, [])
    assert ran.faults["rebalance"] > 2


def test_a_soak_says_which_transitions_were_reached() -> None:
    """The table has a line for each transition of the diagrams, with the seeds that took it; those
    that no seed took have 0."""
    tally = Tally(reached=run((PRODUCTION, 7, 2), 2e10).reached)
    *_, reached, _ = tables(tally, GOOD)
    names, counts = ([str(cell) for cell in column.cells] for column in reached.columns)
    assert names == sorted(map(name_of, TRANSITIONS))
    assert max(counts) == "2" and "0" in counts
