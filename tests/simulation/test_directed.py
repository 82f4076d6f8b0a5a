"""Each rule of the protocol by a scenario: it ends well with the rule and badly without it."""

import pytest

from .actors import Machines
from .mutants import MUTANTS
from .scenarios import SCENARIOS
from .stage import Stage


@pytest.mark.parametrize("name", SCENARIOS)
def test_protocol_holds(name: str) -> None:
    """The machines as they are keep their promise."""
    stage = Stage(Machines())
    SCENARIOS[name](stage)
    assert stage.finish() == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_without_the_rule_it_fails(name: str) -> None:
    """Without the rule, the same steps end in a violation."""
    stage = Stage(MUTANTS[name].machines)
    SCENARIOS[name](stage)
    found = stage.finish()
    assert found and not found[0].startswith("stuck")
