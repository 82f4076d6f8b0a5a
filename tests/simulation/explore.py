"""`python -m tests.simulation.explore`: a run whose machines take two transitions in an order that
no run took before is kept, and varied: the same up to that step, random from there, so rare
situations come more often. Every second run is a fresh seed. Exit code 1: a violation; its line has
the command that replays it."""

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from .simulator import Fork, Simulation, replay_command
from .transitions import Taken

FIRST = 2_000_000
WITHIN = 40  # a variation begins at most so many steps before or after the step that was new

Pair = tuple[Taken | None, Taken]  # two transitions, one after the other; None begins a run


class Plan(NamedTuple):
    """A run: a seed, and the steps from which other seeds decide."""

    seed: int
    forks: tuple[Fork, ...] = ()


class Trail(set[Taken]):
    """The transitions of a run, and for each pair the step at which it was first taken."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation: Simulation | None = None
        self.pairs: dict[Pair, int] = {}
        self._last: Taken | None = None

    def add(self, taken: Taken) -> None:
        super().add(taken)
        if self.simulation is not None:
            self.pairs.setdefault((self._last, taken), self.simulation.steps)
        self._last = taken


class Ran(NamedTuple):
    plan: Plan
    violations: list[str]
    pairs: dict[Pair, int]


def run(plan: Plan) -> Ran:
    trail = Trail()
    simulation = Simulation(plan.seed, taken=trail, forks=plan.forks)
    trail.simulation = simulation
    try:
        found = simulation.run()
    except Exception as error:
        found = [f"raised {error!r}"]
    return Ran(plan, found, trail.pairs)


@dataclass
class Corpus:
    rng: random.Random
    pairs: set[Pair] = field(default_factory=set)
    kept: list[tuple[Plan, int]] = field(default_factory=list)
    """The runs that reached something new, each with the step at which they did so last."""
    failing: list[Ran] = field(default_factory=list)
    runs: int = 0

    def add(self, ran: Ran) -> None:
        self.runs += 1
        if ran.violations:
            self.failing.append(ran)
        if new := ran.pairs.keys() - self.pairs:
            self.pairs |= new
            self.kept.append((ran.plan, max(ran.pairs[each] for each in new)))

    def plans(self, first: int) -> Iterator[Plan]:
        """Without end: a fresh seed, and a variation, in turns."""
        for seed in count(first):
            yield Plan(seed)
            if self.kept:
                plan, step = self.rng.choice(self.kept)
                at = max(1, step + self.rng.randint(-WITHIN, WITHIN))
                earlier = tuple(each for each in plan.forks if each.step < at)
                yield Plan(plan.seed, (*earlier, Fork(at, self.rng.randrange(2**32))))


def command(plan: Plan) -> str:
    forks = (f" --fork {each.step}:{each.seed}" for each in plan.forks)
    return replay_command(plan.seed) + "".join(forks)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.explore", description=__doc__)
    parser.add_argument("--first", type=int, default=FIRST, help="the first seed (%(default)s)")
    parser.add_argument("--runs", type=int, default=2000, help="(%(default)s)")
    parser.add_argument("--minutes", type=float, default=10.0, help="(%(default)s)")
    given = parser.parse_args()
    corpus = Corpus(random.Random(given.first))
    at_once, plans = os.cpu_count() or 1, corpus.plans(given.first)
    deadline_s = time.monotonic() + 60.0 * given.minutes
    with ProcessPoolExecutor(at_once) as pool:
        while corpus.runs < given.runs and time.monotonic() < deadline_s:
            some = [next(plans) for _ in range(min(4 * at_once, given.runs - corpus.runs))]
            for ran in pool.map(run, some):
                corpus.add(ran)
    for ran in corpus.failing:
        print(f"{command(ran.plan)}  # {ran.violations[0]:.200}")
    pairs, failing = len(corpus.pairs), len(corpus.failing)
    print(f"{corpus.runs} runs: {pairs} pairs of transitions, {failing} runs failed")
    return 1 if corpus.failing else 0


if __name__ == "__main__":
    sys.exit(main())
