"""What is measured of a workload, and how the figures are reported."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.benchmarks.measure import Result, Skipped, result
from tests.benchmarks.stream import operating
from tests.benchmarks.stream.crew import Program, a_crew, names_of
from tests.benchmarks.stream.ground import Ground
from tests.benchmarks.stream.latency import crowd, phase
from tests.benchmarks.stream.null import LARGE_CUTS
from tests.benchmarks.stream.rounds import Round, Workload, up_to
from tests.benchmarks.stream.throughput import SERVICE, Run, by_step, measured, null, quix

UNDER_LOAD = ("rate", "null", "latency", "recovery", "peer")
USUAL = (*UNDER_LOAD, "rebuild")
MEASURES = (*USUAL, "memory", "sizes", "steps", "corrections", "bans", "seeds")
"""The last six are to be asked for: five take long, and stop watches cost time."""
TURNS = 3
QUICK = 20  # The divisor of the number of updates for a quick run.
SHARES = (5, 10, 25, 50, 75, 90)  # Per cent of the greatest rate at which the latency is measured.
FEED_S, QUICK_FEED_S = 20.0, 3.0
CROWD_S, QUICK_CROWD_S = 60.0, 9.0
LOBBIES = "lobby5"  # The workload with which most is measured.
REBUILD_OF, REBUILD_UPDATES = (LOBBIES, "royale100"), 3_000_000
MEMORY_UPDATES = 10_000_000
CORRECTED_UPDATES, CORRECTED_S = 5_000_000, 60.0
SEEDED_PLAYERS = 10_000_000
RECOVERY_SHARE, RECOVERY_S = 0.1, 30.0
GUARANTEES = ("at-least-once", "exactly-once")


@dataclass(frozen=True)
class Plan:
    measures: frozenset[str]
    workers: Sequence[str]  # Sizes of crews, as in `names_of`.
    quick: bool = False
    turns: int | None = None
    release: Path | None = None  # The folder of another release, whose steps are measured instead.
    measured: dict[tuple[str, str], Run] = field(default_factory=dict)
    """The service's best run by workload and workers, of what was measured so far."""

    def results(self, ground: Ground, workload: Workload) -> Iterator[Result]:
        """All that is measured of a workload; Skipped where it, or the peer, is not to be had."""
        if workload.beside and "latency" in self.measures:
            yield from self._crowds(ground, workload)
        elif not workload.beside and self.measures & {*UNDER_LOAD}:
            yield from self._under_load(ground, workload)
        if "steps" in self.measures:
            rounds = up_to(self._of(workload.updates), workload.rounds())
            yield by_step(ground, workload, rounds, self.release)
        if "rebuild" in self.measures and workload.name in REBUILD_OF:
            # Lobbies' figure is the one that is called so alone.
            name = "rebuild" if workload.name == LOBBIES else f"rebuild/{workload.name}"
            yield operating.rebuild(ground, workload, self._of(REBUILD_UPDATES), name)
        if workload.name == LOBBIES:
            yield from self._on_request(ground, workload)

    def _on_request(self, ground: Ground, workload: Workload) -> Iterator[Result]:
        """What is to be asked for, and is measured of lobbies alone."""
        if "memory" in self.measures:
            yield operating.soak(ground, workload, self._of(MEMORY_UPDATES))
        corrected = self._of(CORRECTED_UPDATES), QUICK_FEED_S if self.quick else CORRECTED_S
        if "corrections" in self.measures:
            yield from operating.corrections(ground, workload, *corrected)
        if "bans" in self.measures:
            yield from operating.bans(ground, workload, *corrected, self._of(operating.BANNED))
        if "seeds" in self.measures:
            for count in self.workers:
                yield operating.seeding(ground, workload, self._of(SEEDED_PLAYERS), count)
        if "sizes" in self.measures:
            yield from operating.sizes(ground, workload, self._of(workload.updates))

    def _of(self, usual: int) -> int:
        return usual // (QUICK if self.quick else 1)

    def _under_load(self, ground: Ground, workload: Workload) -> Iterator[Result]:
        rounds = up_to(self._of(workload.updates), workload.rounds())
        best: dict[str, Run] = {}
        peers, missing = dict[str, Program](), None
        if "peer" in self.measures and workload.peer_updates:
            try:
                peers = {f"quix-{each}": quix(each, ground.folder) for each in GUARANTEES}
            except Skipped as reason:  # our own figures are reported all the same
                missing = reason
        for count in self.workers:
            alone = peers if count == "1" else {}
            runs = self._in_turns(ground, workload, rounds, count, alone)
            best[count] = runs[""]
            self.measured[workload.name, count] = runs[""]
            beside = dict(self._beside(workload, count, runs[""]))
            ratio = _ground_of(ground, runs[""]) | beside
            yield from _rates(f"stream/{workload.name}/{count}", runs, ratio)
        one = best[self.workers[0]]
        if workload.name == LOBBIES:
            yield result("memory/player", one.memory, "bytes", note=one.note)
        if "latency" in self.measures:
            yield from self._latencies(ground, workload, self.workers[0], one.rate)
        if "recovery" in self.measures and workload.name == LOBBIES:
            yield from self._recoveries(ground, workload, one.rate)
        if missing is not None:
            raise missing

    def _beside(self, workload: Workload, count: str, run: Run) -> Iterator[tuple[str, float]]:
        """How a run compares with that of one process."""
        if one := self.measured.get((workload.name, "1")):
            yield "of_one", run.rate / one.rate
            yield "cost_of_one", run.all_us / one.all_us

    def _in_turns(
        self, ground: Ground, workload: Workload, rounds: Sequence[Round], count: str,
        peers: Mapping[str, Program],
    ) -> dict[str, Run]:  # fmt: skip
        """The best run of each."""
        runs: dict[str, list[Run]] = {}
        for _ in range(self.turns or (1 if self.quick else TURNS)):
            for who, run in self._a_turn(ground, workload, rounds, count, peers):
                runs.setdefault(who, []).append(run)
        return {who: max(each, key=lambda run: run.rate) for who, each in runs.items()}

    def _a_turn(
        self, ground: Ground, workload: Workload, rounds: Sequence[Round], count: str,
        peers: Mapping[str, Program],
    ) -> Iterator[tuple[str, Run]]:  # fmt: skip
        """Ours; null pipelines that cut as ours did, or large; peers, with their rounds."""
        ours = measured(ground, workload, rounds, count, SERVICE)
        yield "", ours
        if "null" in self.measures:
            for who, cuts in (("null", ours.cuts), ("null-large", LARGE_CUTS)):
                empty = null(ours.sample, cuts, ground.folder)
                yield who, measured(ground, workload, rounds, count, empty)
        for who, peer in peers.items():
            fewer = up_to(self._of(workload.peer_updates), rounds)
            yield who, measured(ground, workload, fewer, count, peer)

    def _latencies(
        self, ground: Ground, workload: Workload, count: str, most: float
    ) -> Iterator[Result]:
        rounds = workload.rounds()
        feed_s = QUICK_FEED_S if self.quick else FEED_S
        with a_crew(ground, workload, names_of(count), SERVICE) as crew:
            crew.wait_until_joined()
            crew.rate(up_to(int(most), rounds))
            for share in SHARES:
                rate = most * share / 100
                fed = up_to(int(rate * feed_s), rounds)
                if not fed:  # the file is at its end
                    return
                found = phase(crew.settings, fed, rate)
                name = f"latency/{workload.name}/{share}"
                yield found.row(name, found.quantile_ms(0.99), "ms, p99")

    def _crowds(self, ground: Ground, workload: Workload) -> Iterator[Result]:
        players = self._of(workload.size)
        feed_s = QUICK_CROWD_S if self.quick else CROWD_S
        for count in self.workers:
            yield crowd(ground, replace(workload, size=players, players=players), count, feed_s)

    def _recoveries(self, ground: Ground, workload: Workload, most: float) -> Iterator[Result]:
        rounds, rate = workload.rounds(), most * RECOVERY_SHARE
        warm, fed = up_to(int(most), rounds), up_to(int(rate * RECOVERY_S), rounds)
        yield from operating.recovery(ground, workload, warm, fed, rate)


def _ground_of(ground: Ground, run: Run) -> dict[str, float]:
    brokers, masters = ground.servers
    cores = len(os.sched_getaffinity(0))
    return {"cores": cores, "brokers": brokers, "masters": masters, "shards": run.shards}


def _rates(name: str, runs: dict[str, Run], beside: Mapping[str, float]) -> Iterator[Result]:
    """The rows of a turn: the service's has `beside`, and how it compares with the others."""
    ours = runs[""]
    for who, run in runs.items():
        ratio = {**{f"{each}_us": us for each, us in run.processor_us.items()}, **run.messages}
        if run is ours:
            ratio["rounds_a_second"] = run.rounds / run.seconds
            ratio["bytes_a_player"] = run.memory
            ratio["redis_busy"] = run.redis_busy
            ratio |= beside
            for other in filter(None, runs):
                ratio[other.replace("-", "_")] = ours.rate / runs[other].rate
                ratio[f"{other.replace('-', '_')}_by_processor"] = runs[other].all_us / ours.all_us
        yield result(f"{name}/{who}".rstrip("/"), run.rate, "updates/s", ratio, run.note)
