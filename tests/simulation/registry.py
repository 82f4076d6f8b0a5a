"""The scenarios, by the mutant that each catches."""

from collections.abc import Callable

from .stage import Stage

Scenario = Callable[[Stage], None]

SCENARIOS: dict[str, Scenario] = {}
"""The scenario for each mutant."""


def catches(mutant: str) -> Callable[[Scenario], Scenario]:
    """Register a scenario for a mutant."""

    def register(scenario: Scenario) -> Scenario:
        SCENARIOS[mutant] = scenario
        return scenario

    return register
