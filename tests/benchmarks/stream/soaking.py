"""A worker's memory while millions of ratings change: flat, once all players were seen."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tests.benchmarks.measure import Result, result
from tests.benchmarks.stream.crew import a_crew, names_of
from tests.benchmarks.stream.ground import MIB, Ground, resident_bytes
from tests.benchmarks.stream.rounds import Workload, updates_of
from tests.benchmarks.stream.throughput import SERVICE


class Sample(NamedTuple):
    """What a worker holds after so many updates."""

    updates: int
    resident: int
    """Bytes."""


def soak(ground: Ground, workload: Workload, updates: int) -> Result:
    """Rate about so many updates by one worker, which rests when a sample is taken."""
    samples, done = list[Sample](), 0
    with a_crew(ground, workload, names_of("1"), SERVICE) as crew:
        crew.wait_until_joined()
        for some in crew.in_steps(updates, workload.rounds()):
            done += updates_of(some)
            samples.append(Sample(done, resident_bytes(crew.workers[0].pid)))
    every = max(1, len(samples) // 10)
    ratio = {f"MiB_at_{each.updates}": each.resident / MIB for each in samples[every - 1 :: every]}
    value = growth(samples) * 1e6 / MIB
    return result("memory/worker", value, "MiB a million updates", ratio, "of the second half")


def growth(samples: Sequence[Sample]) -> float:
    """Bytes an update that memory grew by in the second half, by least squares."""
    late = samples[len(samples) // 2 :]
    updates, resident = np.array(late, np.float64).T
    return float(np.polyfit(updates, resident, 1)[0]) if len(late) > 1 else 0.0
