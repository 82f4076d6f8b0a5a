"""A worker's memory while millions of ratings change: flat, once all players were seen."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tests.benchmarks.stream.crew import a_crew, names_of
from tests.benchmarks.stream.ground import Ground, resident_bytes, send
from tests.benchmarks.stream.rounds import Workload, up_to
from tests.benchmarks.stream.throughput import SERVICE

STEP = 200_000
"""So many updates are sent at once, and rated before the next."""


class Sample(NamedTuple):
    """What a worker holds after so many updates."""

    updates: int
    resident: int
    """Bytes."""


def soak(ground: Ground, workload: Workload, updates: int) -> Iterator[Sample]:
    """Rate about so many updates by one worker, which rests when a sample is taken."""
    rounds, done = workload.rounds(), 0
    with a_crew(ground, workload, names_of("1"), SERVICE) as crew:
        crew.wait_until_joined()
        while done < updates and (some := up_to(min(STEP, updates - done), rounds)):
            send(crew.settings, some)
            crew.wait_until_finished()
            done += sum(len(each.players) for each in some)
            yield Sample(done, resident_bytes(crew.workers[0].pid))


def growth(samples: Sequence[Sample]) -> float:
    """Bytes an update that memory grew by in the second half, by least squares."""
    late = samples[len(samples) // 2 :]
    updates, resident = np.array(late, np.float64).T
    return float(np.polyfit(updates, resident, 1)[0]) if len(late) > 1 else 0.0
