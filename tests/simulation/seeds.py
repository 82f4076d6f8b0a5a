"""A seed's outcome, and how to see it again."""

from .actors import PRODUCTION, Machines
from .faults import Faults
from .simulator import Simulation


def outcome_of(
    seed: int, machines: Machines = PRODUCTION, *, trace: list[str] | None = None
) -> tuple[list[str], Faults]:
    """What is wrong with a seed's outcome, an exception included; and the faults there were."""
    simulation = Simulation(seed, machines, trace=None if trace is None else trace.append)
    try:
        found = simulation.run()
    except Exception as error:
        found = [f"raised {error!r}"]
    return found, simulation.faults


def replay_command(seed: int) -> str:
    """What to type to see it again."""
    return f".venv/bin/python -m tests.simulation {seed}"
