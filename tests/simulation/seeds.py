"""The outcome of a seed, and the command that replays it."""

from .actors import PRODUCTION, Machines
from .faults import Faults
from .simulator import Simulation


def outcome_of(
    seed: int, machines: Machines = PRODUCTION, *, trace: list[str] | None = None
) -> tuple[list[str], Faults]:
    """The violations of a seed, or its exception; and the faults that happened."""
    simulation = Simulation(seed, machines, trace=None if trace is None else trace.append)
    try:
        found = simulation.run()
    except Exception as error:
        found = [f"raised {error!r}"]
    return found, simulation.faults


def replay_command(seed: int) -> str:
    """The command that replays a seed."""
    return f".venv/bin/python -m tests.simulation {seed}"
