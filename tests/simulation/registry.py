"""Scenarios by the mutant that each catches."""

from collections.abc import Callable

from .stage import Stage

Scenario = Callable[[Stage], None]

SCENARIOS: dict[str, Scenario] = {}
"""By the mutant that it catches."""


def catches(mutant: str) -> Callable[[Scenario], Scenario]:
    """Register a scenario."""

    def register(scenario: Scenario) -> Scenario:
        SCENARIOS[mutant] = scenario
        return scenario

    return register
