"""Each rule of the protocol by a scenario, which ends well with the rule and in a violation without
it."""

import pytest

from .actors import PRODUCTION
from .mutants import MUTANTS
from .scenarios import SCENARIOS, caught, play


def test_every_rule_has_its_scenario() -> None:
    """Every rule has a scenario, and every scenario has a rule."""
    assert SCENARIOS.keys() == MUTANTS.keys()


@pytest.mark.parametrize("name", MUTANTS)
def test_protocol_holds(name: str) -> None:
    """The production code passes the scenario."""
    assert play(name, PRODUCTION) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_without_the_rule_it_fails(name: str) -> None:
    """Without the rule, the same steps end in a violation."""
    assert caught(name)
