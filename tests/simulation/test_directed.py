"""Each rule has a scenario, which ends well with the rule, and in a violation without it."""

import re
from pathlib import Path

import pytest

from .actors import PRODUCTION
from .mutants import MUTANTS, caught, play

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/internals/change-protocol.md"


def test_every_mutant_has_a_scenario() -> None:
    """Each class that leaves a rule out is in the `@catches` of a scenario."""
    texts = [each.read_text() for each in HERE.glob("*.py")]
    caught_by = re.compile(r"^@catches\((.*?)^def ", re.MULTILINE | re.DOTALL)
    named = " ".join(each for text in texts for each in caught_by.findall(text))
    mutants = {
        mutant
        for text in texts if caught_by.search(text)
        for mutant in re.findall(r"^class ([A-Z]\w+)\(", text, re.MULTILINE)
    }  # fmt: skip
    assert len(mutants) > 50
    assert mutants - set(re.findall(r"\w+", named)) == set()


def test_every_mutant_has_its_step() -> None:
    """The page names each mutant at the step whose rule it leaves out, and no other."""
    table = PAGE.read_text().split("## Steps, code and mutants", 1)[1].split("## ", 1)[0]
    rows = [row.split("|")[3] for row in table.splitlines() if row.startswith("|")]
    assert sorted(re.findall("`([^`]+)`", "".join(rows))) == sorted(MUTANTS)


@pytest.mark.parametrize("name", MUTANTS)
def test_scenario_needs_the_rule(name: str) -> None:
    """Production code passes the scenario; without the rule, the same steps end in a violation."""
    assert play(MUTANTS[name].scenario, PRODUCTION) == []
    assert caught(MUTANTS[name])
