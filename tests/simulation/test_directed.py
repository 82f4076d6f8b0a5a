"""Each rule of the protocol by a scenario, which ends well with the rule and in a violation without
it."""

import re
from pathlib import Path

import pytest

from .actors import PRODUCTION
from .mutants import MUTANTS
from .scenarios import SCENARIOS, caught, play

PAGE = Path(__file__).parents[2] / "docs/internals/change-protocol.md"


def test_every_rule_has_its_scenario() -> None:
    """Every rule has a scenario, and every scenario has a rule."""
    assert SCENARIOS.keys() == MUTANTS.keys()


def test_every_mutant_has_its_step() -> None:
    """The page names each mutant at the step whose rule it leaves out, and no other."""
    table = PAGE.read_text().split("## Steps, code and mutants", 1)[1].split("## ", 1)[0]
    rows = [row.split("|")[3] for row in table.splitlines() if row.startswith("|")]
    assert sorted(re.findall("`([^`]+)`", "".join(rows))) == sorted(MUTANTS)


@pytest.mark.parametrize("name", MUTANTS)
def test_protocol_holds(name: str) -> None:
    """The production code passes the scenario."""
    assert play(name, PRODUCTION) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_without_the_rule_it_fails(name: str) -> None:
    """Without the rule, the same steps end in a violation."""
    assert caught(name)
