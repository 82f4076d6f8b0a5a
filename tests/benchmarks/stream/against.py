"""Measures whether another release or setting is quicker. A machine's speed changes within minutes,
so all are up at the same time, on servers of their own. They get the same rounds in short turns,
every other turn in reverse order, and the ratios of each turn are the result."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from stream_rater.config.settings import Settings
from tests.benchmarks.measure import Result, Skipped, result
from tests.benchmarks.stream.crew import Crew, Program, a_crew, names_of
from tests.benchmarks.stream.ground import Ground, a_ground
from tests.benchmarks.stream.latency import phase
from tests.benchmarks.stream.rounds import Round, Workload, up_to
from tests.benchmarks.stream.throughput import measured, null

FEED_S, QUICK_FEED_S = 7.0, 2.0
TURNS, QUICK_TURNS = 10, 2
NULL = "null"
LOADS = 5000.0, 20000.0  # Updates a second.
SAMPLE = 1000  # Number of updates from which the size of events is measured.
PACKAGE = "stream_rater"


@dataclass(frozen=True)
class Rival:
    name: str
    program: Program = field(default_factory=Program)
    settings: Mapping[str, Any] = field(default_factory=dict)


def rival_of(reported: str) -> Rival:
    """A folder with a release, ready to run when this returns; NULL; or settings as
    `shards=4,partitions=2`. ValueError for none of them. Each gets all settings: another release's
    defaults do not count."""
    if reported == NULL:
        return Rival(NULL)
    folder = Path(reported).resolve()
    if (folder / PACKAGE).is_dir():
        # Python's own first place to look would be the working directory, which has ours.
        variables = {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
        done = subprocess.run(
            [sys.executable, "-m", f"{PACKAGE}.runtime.selfcheck"],
            env=os.environ | variables, stdout=sys.stderr, check=False,
        )  # fmt: skip
        if done.returncode:
            raise ValueError(f"{reported}: its kernels cannot be compiled")
        return Rival(reported, Program(variables=variables))
    pairs = [each.partition("=") for each in reported.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        raise ValueError(f"{reported}: neither a folder with {PACKAGE} nor NAME=VALUE,NAME=VALUE")
    settings = {name: value for name, _, value in pairs}
    msgspec.convert(settings, Settings, strict=False)
    return Rival(reported, settings=settings)


@dataclass(frozen=True)
class Contest:
    rivals: Sequence[Rival]
    workers: str
    quick: bool = False
    turns: int | None = None

    def results(
        self, folder: Path, given: Mapping[str, Any], workload: Workload
    ) -> Iterator[Result]:
        """The figures for each load, compared with those of the first rival. May raise Skipped."""
        with ExitStack() as alive:
            crews = list[Crew]()
            for number, each in enumerate(self.rivals):
                own = folder / f"{workload.name}-{number}"
                own.mkdir()
                ground = alive.enter_context(a_ground(own, {**given, **each.settings}))
                program = _null(ground, workload) if each.name == NULL else each.program
                running = a_crew(ground, workload, names_of(self.workers), program)
                crews.append(alive.enter_context(running))
            for crew in crews:
                crew.wait_until_joined()
            rounds = workload.rounds()
            feed_s = QUICK_FEED_S if self.quick else FEED_S
            warm = up_to(int(LOADS[0] * feed_s), rounds)
            for crew, each in zip(crews, self.rivals, strict=True):
                if each.name != NULL:  # it has nothing to warm up, and its log ends with a marker
                    crew.rate(warm)
            for load in LOADS:
                found = self._turns(crews, load, int(load * feed_s), rounds)
                for each, figures in zip(self.rivals, found, strict=True):
                    name = f"{workload.name}/{load:.0f}"
                    yield compared(f"against/{name}/{each.name}", figures, found[0])
                    if each.name == NULL:
                        yield beside_null(f"beside-null/{name}", found[0], figures)

    def _turns(
        self, crews: Sequence[Crew], load: float, updates: int, rounds: Iterator[Round]
    ) -> list[list[dict[str, float]]]:
        """For each of the crews its figures, turn by turn."""
        found: list[list[dict[str, float]]] = [[] for _ in crews]
        order = list(zip(crews, found, strict=True))
        for turn in range(self.turns or (QUICK_TURNS if self.quick else TURNS)):
            some = up_to(updates, rounds)
            if not some:
                raise Skipped(f"its rounds end in turn {turn + 1}: less of them, or fewer turns")
            for crew, figures in order:
                figures.append(_a_turn(crew, some, load))
            order.reverse()
        return found


def _null(ground: Ground, workload: Workload) -> Program:
    """The null pipeline, whose events look like those of a short run of the service."""
    run = measured(ground, workload, up_to(SAMPLE, workload.rounds(seed=2)), "1")
    return null(run.sample, None, ground.folder)


def _a_turn(crew: Crew, rounds: Sequence[Round], load: float) -> dict[str, float]:
    there = phase(crew.settings, rounds, load)
    return {"p50_ms": there.quantile_ms(0.5), "p99_ms": there.quantile_ms(0.99)}


def beside_null(
    name: str, ours: Sequence[Mapping[str, float]], null: Sequence[Mapping[str, float]]
) -> Result:
    """Our medians, the null pipeline's, and the medians of each turn's ratio."""
    ratio: dict[str, float] = {}
    for what in ours[0]:
        kind = what.partition("_")[0]
        ratio[what] = median(each[what] for each in ours)
        ratio[f"null_{what}"] = median(each[what] for each in null)
        reported = [mine[what] / its[what] for mine, its in zip(ours, null, strict=True)]
        ratio[f"{kind}_times"] = median(reported)
    return result(name, ratio[f"{kind}_times"], "times", ratio, f"medians of {len(ours)} turns")


def compared(
    name: str, ours: Sequence[Mapping[str, float]], first: Sequence[Mapping[str, float]]
) -> Result:
    """Medians over turns, and the least, median and greatest ratio to the first rival's turn."""
    ratio: dict[str, float] = {}
    for what in ours[0]:
        ratio[what] = median(each[what] for each in ours)
        if ours is not first:
            reported = sorted(mine[what] / its[what] for mine, its in zip(ours, first, strict=True))
            kind = what.partition("_")[0]
            ratio |= {f"{kind}_least": reported[0], f"{kind}_ratio": median(reported)}
            ratio[f"{kind}_most"] = reported[-1]
    return result(name, ratio.pop(what), "ms, p99", ratio, f"medians of {len(ours)} turns")
