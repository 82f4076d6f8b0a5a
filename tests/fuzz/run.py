"""Runs recipes by seed in several processes, and bounds time and memory."""

import faulthandler
import os
import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
from typing import Any

from hypothesis import given
from rich.console import Console

from tests.fuzz.recipes import MUTATIONS, inputs_of, least_s, messages, timed_outcome
from tests.rounds import event
from tests.waits import HANGS_S

INPUTS = 1_000_000
RECIPES_AT_ONCE = 50
RECIPE_BYTES = 2000  # Random bytes for a recipe: enough to draw any message.

LONGEST_S = 0.25  # CPU for one input of some kilobytes; usually it takes microseconds.
MOST_GROWTH = 128 * 2**20  # Bytes by which a process may grow after its first inputs.

Outcome = Callable[[bytes, str], tuple[str, float]]


@dataclass
class Tally:
    codes: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    most_bytes: int = 0  # How much the process has grown at most since its first recipe.
    wrong: list[str] = field(default_factory=list)

    @property
    def inputs(self) -> int:
        return self.codes.total() + len(self.wrong)

    def add(self, other: "Tally") -> None:
        self.codes += other.codes
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        self.most_bytes = max(self.most_bytes, other.most_bytes)
        self.wrong += other.wrong


def check(tally: Tally, data: bytes, content_type: str, outcome: Outcome) -> None:
    """One input: a verdict in time, or something wrong."""
    try:
        code, took_s = outcome(data, content_type)
    except BaseException as error:
        raised = f"{type(error).__name__}: {str(error)[:200]}"
        tally.wrong.append(f"{raised} for {content_type} {repr(data)[:2000]}")
        return
    took_s = least_s(took_s, LONGEST_S, lambda: outcome(data, content_type))
    tally.codes[code] += 1
    tally.slowest_s = max(tally.slowest_s, took_s)
    if took_s > LONGEST_S:
        tally.wrong.append(f"{took_s:.3f} s for {content_type} {repr(data)[:2000]}")


def warm() -> None:
    """Compile what the decoder needs, before time is taken; forked processes have it, too."""
    for data, content_type in inputs_of(event(), 0):
        timed_outcome(data, content_type)


def run(first: int, recipes: int, deadline_s: float, outcome: Outcome = timed_outcome) -> Tally:
    """Run recipes of these seeds as long as there is time."""
    tally = Tally()

    @given(messages)
    def recipe(message: Any) -> None:
        for data, content_type in inputs_of(message, seed):
            check(tally, data, content_type, outcome)

    draw: Any = recipe.hypothesis.fuzz_one_input  # type: ignore[attr-defined]
    faulthandler.dump_traceback_later(HANGS_S, exit=True)  # prints where it hangs
    for seed in range(first, first + recipes):
        if time.time() > deadline_s:
            break
        draw(random.Random(seed).randbytes(RECIPE_BYTES))
        tally.most_bytes = max(tally.most_bytes, _growth())
    faulthandler.cancel_dump_traceback_later()
    if tally.most_bytes > MOST_GROWTH:
        tally.wrong.append(f"the process grew by {tally.most_bytes} bytes, seeds from {first}")
    return tally


@cache
def _began_bytes() -> int:
    """The most memory of this process when it was first asked."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _growth() -> int:
    """How much more memory this process has had at most than after its first recipe."""
    began = _began_bytes()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - began


def _chunks(first: int, inputs: int) -> Iterable[int]:
    """First seeds; more than are needed, since not every recipe makes a message."""
    per_chunk = RECIPES_AT_ONCE * 2 * (MUTATIONS + 2)
    return range(first, first + 2 * RECIPES_AT_ONCE * -(-inputs // per_chunk), RECIPES_AT_ONCE)


def fuzz(first: int, inputs: int, seconds: float, console: Console) -> dict[str, Any]:
    """Try at least this number of inputs, unless the time ends before; print what was wrong."""
    tally, deadline_s = Tally(), time.time() + seconds
    warm()
    try:
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            seeds = _chunks(first, inputs)
            for part in pool.map(run, seeds, repeat(RECIPES_AT_ONCE), repeat(deadline_s)):
                tally.add(part)
                if tally.inputs >= inputs:
                    break
            pool.shutdown(cancel_futures=True)
    except BrokenProcessPool:
        tally.wrong.append(f"a process crashed or hung, seeds from {first}: see above")
    for each in tally.wrong[:20]:
        console.print(each, markup=False, highlight=False)
    return {
        "inputs": tally.inputs, "valid": tally.codes[""],
        "codes": len(tally.codes) - ("" in tally.codes),
        "slowest_ms": round(1000.0 * tally.slowest_s, 1),
        "grown_mib": round(tally.most_bytes / 2**20, 1), "wrong": len(tally.wrong),
    }  # fmt: skip
