"""What a benchmark gives, how time is taken, and where real rounds are."""

import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
DIGITS = 4  # Significant digits of a figure.


class Skipped(Exception):
    """Why a benchmark cannot be run here, in one line."""


@dataclass(frozen=True)
class Effort:
    quick: bool = False  # Measure only enough to show that it runs.
    repeat: int | None = None

    def turns(self, usual: int) -> int:
        """How often to take turns where `usual` is enough on a machine that does little else."""
        return self.repeat or (1 if self.quick else usual)


class Result(msgspec.Struct, frozen=True):
    """A figure, and others to compare it with."""

    name: str
    value: float
    unit: str
    ratio: dict[str, float]
    note: str


def result(
    name: str, value: float, unit: str, ratio: Mapping[str, float] | None = None, note: str = ""
) -> Result:
    """A result with its figures rounded to DIGITS significant digits."""
    rounded = {key: _rounded(each) for key, each in (ratio or {}).items()}
    return Result(name, _rounded(value), unit, rounded, note)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def shared(name: str) -> Path:
    """A file of real rounds; Skipped where it is not to be had."""
    folder = Path(os.environ.get("STREAM_RATER_SHARED") or ROOT.parent / "shared")
    path = folder / "data" / f"{name}.jsonl.gz"
    if not path.is_file():
        raise Skipped(f"no data/{path.name} in the shared folder: set STREAM_RATER_SHARED")
    return path


def best_s(turns: int, **runs: Callable[[], object]) -> dict[str, float]:
    """The least time of each run, in seconds: they take turns, so that a busy spell hits all."""
    return {name: min(times) for name, times in times_s(turns, **runs).items()}


def times_s(turns: int, **runs: Callable[[], object]) -> dict[str, list[float]]:
    """All times of each run, in seconds, in turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(turns):
        for name, run in runs.items():
            times[name].append(_time_s(run))
    return times


def _time_s(run: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    finally:
        gc.enable()
