"""Compiles kernels in several processes: `python -m stream_rater.cli.compile_kernels`, of `make
python` and `make setup`. It compiles what workers and commands need for the systems that the
documents use, `USUAL`; with `--all`, which images and wheels use, for every system. Each part of
the work begins with other kernels, and processes share what they compile, so that few of them wait
for each other. One more than there are processors does the parts, because one often waits."""

import argparse
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from threading import Thread
from typing import Final

import msgspec
import numpy as np

import stream_rater
from stream_rater.cli.lab import evaluate
from stream_rater.cli.offline import rate
from stream_rater.columns import compiling, kernel_files, strings
from stream_rater.columns.compiling import Watcher, count, watchers
from stream_rater.rating import factor, model, parameters, stages
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.player_index import PlayerTable
from stream_rater.runtime import selfcheck

Part = Callable[[], object]
_Report = tuple[str, int]

USUAL: Final = tuple(
    each for each in selfcheck.SYSTEMS if isinstance(each, parameters.EloMMR | parameters.TwoMoment)
)
"""The default system, and the one that the documents recommend for duels and teams."""
KERNELS = 235  # The number of kernels of these two, as the last line of `make setup` says.
TABLE = b"date,home,away,home_goals,away_goals\n2026-01-01,p0,p1,2,1\n"  # Rounds with scores.


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile the kernels, and check that they compute the bits of this release."""
    parser = argparse.ArgumentParser(prog="python -m stream_rater.cli.compile_kernels")
    parser.add_argument("--all", action="store_true", help="for every rating system")
    asked = parser.parse_args(arguments)
    compiling.on_stderr(total=0 if asked.all else KERNELS)
    selfcheck.write_bytecode()
    systems = selfcheck.SYSTEMS if asked.all else USUAL
    parts = list(parts_for(systems))
    processors = len(os.sched_getaffinity(0))
    if processors > 1:
        side_by_side(parts, processors + 1)
    selfcheck.check()
    for part in parts:  # what a process did not compile because it was killed
        part()
    kernels = count(kernel_files.written() / kernel_files.level())
    print(f"{kernels} kernels are compiled, once for each release", file=sys.stderr)


def parts_for(systems: Sequence[RatingConfig]) -> Iterator[Part]:
    """The parts of the work, those first that take longest."""
    first, *others = systems
    yield partial(stage_1, first)
    yield partial(stage_2, first)
    yield partial(stage_2, msgspec.structs.replace(first, history="full"))
    yield partial(selfcheck.compile_for, first)
    yield from (partial(stage_1, system) for system in others)
    yield from (partial(selfcheck.compile_for, system) for system in others)
    yield selfcheck.compile_for_full_histories
    yield partial(offline, systems)
    yield partial(in_a_notebook, systems)


def stage_1(config: RatingConfig) -> None:
    """Compile stage 1, by a wave of one round that no kernel has decoded."""
    wave = model.Wave(
        round_starts=np.array([0, 2]), weight=np.ones(1), ceiling=np.full(2, np.inf),
        time=np.zeros(1, np.int64), place=np.array([1, 2], np.int32),
        entry_starts=np.array([0, 1, 2]), share=np.ones(2), mu=np.full(2, config.initial_mu),
        sigma=np.full(2, stages.rule_of(config).initial_sigma), rounds=np.zeros(2, np.int64),
        last_time=np.zeros(2, np.int64),
    )  # fmt: skip
    stages.estimate(config, wave)


def stage_2(config: RatingConfig) -> None:
    """Compile stage 2, by an update of no player."""
    rule = stages.rule_of(config)
    beliefs = model.newcomers(
        2, rule.kept + 1 or 8, rule.initial_mu, rule.initial_sigma, coded=rule.kept > 0
    )
    nobody = np.zeros(0, np.int64)
    stages.update(beliefs, nobody, np.zeros((0, 3)), [rule], nobody)


def offline(systems: Sequence[RatingConfig]) -> None:
    """Compile what `rate`, `evaluate` and `rebuild` need, for rounds and for tables."""
    PlayerTable().rows_of(strings.StringColumn.of(["a"]), np.zeros(1, np.int64))
    factor.factors_of(model.newcomers(1, 8, 0.0, 1.0, coded=True))  # for explanations
    quiet = StringIO()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(quiet), redirect_stderr(quiet):
        rounds, config = Path(folder, "rounds.jsonl"), Path(folder, "config.json")
        table = Path(folder, "matches.csv")
        table.write_bytes(TABLE)
        some = (selfcheck._round(0), selfcheck._round(1), selfcheck._usual_round(2))
        rounds.write_bytes(b"\n".join([*some, b""]))
        outputs = [f"--out={rounds}.out", f"--changes={rounds}.changes", "--records"]
        for system in systems:
            config.write_bytes(msgspec.json.encode(system))
            for command, of, options in (
                (rate, rounds, outputs), (rate, table, outputs),
                (evaluate, rounds, [f"--config={config}", "--calibration"]),
            ):  # fmt: skip
                words = [str(of), f"--config={config}", *options]
                command.main(words, standalone_mode=False)


def in_a_notebook(systems: Sequence[RatingConfig]) -> None:
    """Compile what `Ladder` needs."""
    warnings.simplefilter("ignore")  # of systems whose ratings may surprise
    for each in systems:
        given = msgspec.to_builtins(each)
        ladder = stream_rater.Ladder(given.pop("system"), **given)
        for sides in (["a", ("b", "c")], ["a", "b"]):
            ladder.rate(sides)
            ladder.predict(sides)
        ladder.what_if(["a", "d"], [1, 1])
        ladder.balance(["a", "b", "c", "d"])
        ladder.leaderboard(1)
        ladder.record("a")


class _Reports(Watcher):
    """Reports to the process that started this one."""

    def __init__(self, queue: "SimpleQueue[_Report | None]") -> None:
        self._queue = queue

    def compiling(self, kernel: str, number: int) -> None:
        self._queue.put((kernel, number))


def side_by_side(parts: Sequence[Part], processes: int) -> None:
    """Do the parts in processes. A killed one leaves its part undone; other errors are raised."""
    context = multiprocessing.get_context("fork")
    queue: SimpleQueue[_Report | None] = context.SimpleQueue()

    def pass_on() -> None:
        while (report := queue.get()) is not None:
            for each in watchers:
                each.compiling(*report)

    with ProcessPoolExecutor(processes, context, _report_to, (queue,)) as pool:
        done = [pool.submit(part) for part in parts]
        reading = Thread(target=pass_on, daemon=True)
        reading.start()
        try:
            for each in done:
                each.result()
        except BrokenProcessPool:
            print("a process that compiles kernels was killed: compiling in one", file=sys.stderr)
        finally:
            queue.put(None)
            reading.join()


def _report_to(queue: "SimpleQueue[_Report | None]") -> None:
    watchers[:] = [_Reports(queue)]


if __name__ == "__main__":
    main()
