"""The outcome of a seed, and the command that replays it."""

import re
from typing import NamedTuple

from .actors import PRODUCTION, Machines
from .faults import Faults
from .simulator import Simulation
from .transitions import Taken


class Outcome(NamedTuple):
    violations: list[str]  # the violations; or the exception, if the seed raised one
    faults: Faults  # the faults that happened
    taken: set[Taken]  # the transitions between states that the machines took


def outcome_of(
    seed: int, machines: Machines = PRODUCTION, *, trace: list[str] | None = None
) -> Outcome:
    simulation = Simulation(seed, machines, trace=None if trace is None else trace.append)
    try:
        found = simulation.run()
    except Exception as error:
        found = [f"raised {error!r}"]
    return Outcome(found, simulation.faults, simulation.taken)


def replay_command(seed: int) -> str:
    return f".venv/bin/python -m tests.simulation {seed}"


def without_addresses(line: str) -> str:
    """A line of the trace. Encoded corrections are shown by their addresses."""
    return re.sub(r"object at 0x[0-9a-f]+", "object", line)
