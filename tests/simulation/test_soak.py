"""The conditions under which `make soak` succeeds."""

from dataclasses import replace
from typing import Any

import pytest

from .faults import KINDS
from .soak import INPUTS, MINUTES, PRODUCTION, Summary, promised, run

GOOD = Summary(1, 5, 0, 3, 3, 1, INPUTS, 0, dict.fromkeys(KINDS, 1))


def test_success() -> None:
    """Success: everything was run, and only mutants failed. Random seeds need not find every
    mutant."""
    assert not list(GOOD.complaints(INPUTS))


@pytest.mark.parametrize(
    "flaw",
    [{"violations": 1}, {"seeds": 0}, {"caught": 2}, {"fuzzed": INPUTS - 1}, {"fuzzed_wrong": 1}],
)
def test_no_success(flaw: dict[str, Any]) -> None:
    """Each of these flaws is a failure."""
    assert len(list(replace(GOOD, **flaw).complaints(INPUTS))) == 1


def test_promised_inputs() -> None:
    """A million inputs are promised, and in a shorter time a proportional share."""
    assert promised(MINUTES) == promised(3.0 * MINUTES) == INPUTS == 10 * promised(MINUTES / 10.0)


def test_chunk_reports_its_faults() -> None:
    """A chunk reports its faults; otherwise the table would be empty."""
    name, seeds, wrong, faults = run((PRODUCTION, 7, 2), 2e10)
    assert (name, seeds, wrong) == (PRODUCTION, 2, [])
    assert faults["rebalance"] > 2
