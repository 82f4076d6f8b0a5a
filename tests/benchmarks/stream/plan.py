"""What is measured of a workload, and how the figures are reported."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.benchmarks.measure import Result, Skipped, result
from tests.benchmarks.stream.banning import PLAYERS, Wave, bans
from tests.benchmarks.stream.correcting import Correction, corrections
from tests.benchmarks.stream.crew import Program, a_crew, names_of
from tests.benchmarks.stream.crowd import crowd
from tests.benchmarks.stream.ground import Ground, send
from tests.benchmarks.stream.latency import Phase, phase
from tests.benchmarks.stream.null import LARGE_CUTS
from tests.benchmarks.stream.rebuilding import Rebuilt, rebuilt
from tests.benchmarks.stream.recovery import recovery
from tests.benchmarks.stream.rounds import Round, Workload, limited, up_to
from tests.benchmarks.stream.seeding import Seeding, seeding
from tests.benchmarks.stream.sizes import by_players, by_shards
from tests.benchmarks.stream.soaking import Sample, growth, soak
from tests.benchmarks.stream.throughput import (
    SERVICE,
    Run,
    by_step,
    measured,
    null,
    other,
    quix,
)

USUAL = ("rate", "null", "latency", "recovery", "rebuild", "peer")
MEASURES = (*USUAL, "memory", "sizes", "steps", "corrections", "bans", "seeds")
"""The last six are to be asked for: five take long, and stop watches cost time."""
TURNS = 3
QUICK = 20
"""A quick run has the so manieth part of the updates."""
SHARES = (10, 50, 80)
"""Per cent of the greatest rate at which the latency is measured."""
FEED_S, QUICK_FEED_S = 20.0, 3.0
LARGE = 100_000
"""From so many players on a round is measured alone, with lobbies beside it."""
CROWD_S, QUICK_CROWD_S = 60.0, 9.0
RECOVERY_OF = "lobby5"
REBUILD_OF, REBUILD_UPDATES = ("lobby5", "royale100"), 3_000_000
MEMORY_OF, MEMORY_UPDATES = "lobby5", 10_000_000
SIZES_OF = "lobby5"
CORRECTED, CORRECTED_UPDATES, CORRECTED_S = "lobby5", 5_000_000, 60.0
SEEDED, SEEDED_PLAYERS = "lobby5", 10_000_000
MIB = 2**20
RECOVERY_SHARE, RECOVERY_S = 0.1, 30.0
GUARANTEES = ("at-least-once", "exactly-once")


@dataclass(frozen=True)
class Plan:
    """How much of what."""

    measures: frozenset[str]
    workers: Sequence[str]
    """Sizes of crews, as in `names_of`."""
    quick: bool = False
    turns: int | None = None
    updates: int | None = None
    bans: int | None = None
    """How many players are removed together."""
    release: Path | None = None
    """The folder of another release, whose steps are measured instead."""
    measured: dict[tuple[str, str], Run] = field(default_factory=dict)
    """The service's best run by workload and workers, of what was measured so far."""

    def results(self, ground: Ground, workload: Workload) -> Iterator[Result]:
        """All that is measured of a workload; Skipped where it, or the peer, is not to be had."""
        if self.measures & {"rate", "null", "latency", "recovery", "peer"}:
            alone = workload.beside and workload.size >= LARGE
            yield from (self._a_crowd if alone else self._under_load)(ground, workload)
        if "steps" in self.measures:
            rounds = up_to(self._of(workload.updates), workload.rounds())
            releases = {"": {}} if self.release is None else {"/before": other(self.release)}
            for which, variables in releases.items():
                steps, run = by_step(ground, workload, rounds, variables)
                note = f"{_add_line(run)}; stop watches included"
                name = f"steps/{workload.name}{which}"
                yield result(name, run.processor_us["workers"], "us/update", steps, note)
        if "rebuild" in self.measures and workload.name in REBUILD_OF:
            first = limited(self._of(REBUILD_UPDATES), workload.rounds())
            yield _rebuild(workload, rebuilt(ground, workload, first))
        if "memory" in self.measures and workload.name == MEMORY_OF:
            yield _memory(list(soak(ground, workload, self._of(MEMORY_UPDATES))))
        if "corrections" in self.measures and workload.name == CORRECTED:
            updates = self._of(CORRECTED_UPDATES)
            feed_s = QUICK_FEED_S if self.quick else CORRECTED_S
            for done in corrections(ground, workload, updates, feed_s):
                yield _correction(workload, updates, done)
        if "bans" in self.measures and workload.name == CORRECTED:
            updates = self._of(CORRECTED_UPDATES)
            feed_s = QUICK_FEED_S if self.quick else CORRECTED_S
            players = self.bans or PLAYERS // (QUICK if self.quick else 1)
            for wave in bans(ground, workload, updates, feed_s, players):
                yield _bans(workload, updates, wave)
        if "seeds" in self.measures and workload.name == SEEDED:
            for count in self.workers:
                yield _seeds(seeding(ground, workload, self._of(SEEDED_PLAYERS), count), count)
        if "sizes" in self.measures and workload.name == SIZES_OF:
            yield from _sizes(ground, workload, self._of(workload.updates))

    def _of(self, updates: int) -> int:
        """How many ratings are to change, where so many are usual."""
        return self.updates or updates // (QUICK if self.quick else 1)

    def _a_crowd(self, ground: Ground, workload: Workload) -> Iterator[Result]:
        if "latency" in self.measures:
            yield from self._crowds(ground, workload)

    def _under_load(self, ground: Ground, workload: Workload) -> Iterator[Result]:
        updates = self._of(workload.updates)
        rounds = up_to(updates, workload.rounds())
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
        if workload.name == MEMORY_OF:
            yield result("memory/player", one.memory, "bytes", note=_add_line(one))
        if "latency" in self.measures:
            yield from self._latencies(ground, workload, self.workers[0], one.rate)
        if "recovery" in self.measures and workload.name == RECOVERY_OF:
            yield from self._recoveries(ground, workload, one.rate)
        if missing is not None:
            raise missing

    def _beside(self, workload: Workload, count: str, run: Run) -> Iterator[tuple[str, float]]:
        """How a run compares with that of another workload, and with that of one process."""
        if other := self.measured.get((workload.beside, count)):
            yield f"of_{workload.beside}", run.rate / other.rate
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
        """The service; the null pipeline that cuts as the service just did, and the one that cuts
        large; the peers, with as many rounds as are theirs."""
        ours = measured(ground, workload, rounds, count, SERVICE)
        yield "", ours
        if "null" in self.measures:
            for who, cuts in (("null", ours.cuts), ("null-large", LARGE_CUTS)):
                empty = null(ours.sample, cuts, ground.folder)
                yield who, measured(ground, workload, rounds, count, empty)
        most = workload.peer_updates // (QUICK if self.quick else 1)
        for who, peer in peers.items():
            yield who, measured(ground, workload, up_to(most, rounds), count, peer)

    def _latencies(
        self, ground: Ground, workload: Workload, count: str, most: float
    ) -> Iterator[Result]:
        rounds = workload.rounds()
        feed_s = QUICK_FEED_S if self.quick else FEED_S
        with a_crew(ground, workload, names_of(count), SERVICE) as crew:
            crew.wait_until_joined()
            send(crew.settings, up_to(int(most), rounds))
            crew.wait_until_finished()
            for share in SHARES:
                rate = most * share / 100
                fed = up_to(int(rate * feed_s), rounds)
                if not fed:  # the file is at its end
                    return
                found = phase(crew.settings, fed, rate)
                name = f"latency/{workload.name}/{share}"
                yield _latency(name, found, found.quantile_ms(0.99), "ms, p99")

    def _crowds(self, ground: Ground, workload: Workload) -> Iterator[Result]:
        players = self.updates or workload.size // (QUICK if self.quick else 1)
        feed_s = QUICK_CROWD_S if self.quick else CROWD_S
        for count in self.workers:
            found = crowd(ground, replace(workload, size=players, players=players), count, feed_s)
            phases = {"beside": found.beside, "quiet": found.quiet}
            ratio = {
                f"{name}_p{per_cent}_ms": phase.quantile_ms(per_cent / 100)
                for name, phase in phases.items()
                for per_cent in (50, 99, 100)
            }
            ratio |= {f"{who}_s": used_s for who, used_s in found.processor_s.items()}
            ratio |= {"message_mb": found.message / 1e6, "worker_mb": found.memory / 1e6}
            note = f"{players} players, beside {found.beside.rate:.0f} updates/s of lobbies"
            yield result(f"stream/{workload.name}/{count}", found.seconds, "s", ratio, note)

    def _recoveries(self, ground: Ground, workload: Workload, most: float) -> Iterator[Result]:
        rounds = workload.rounds()
        rate = most * RECOVERY_SHARE
        warm = up_to(int(most), rounds)
        fed = up_to(int(rate * RECOVERY_S), rounds)
        for story, found in recovery(ground, workload, warm, fed, rate):
            yield _latency(
                f"recovery/{workload.name}/{story}", found, found.quantile_ms(1.0), "ms, most"
            )


def _ground_of(ground: Ground, run: Run) -> dict[str, float]:
    """What there was to rate on."""
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
        yield result(f"{name}/{who}".rstrip("/"), run.rate, "updates/s", ratio, _add_line(run))


def _add_line(run: Run) -> str:
    return f"{run.updates} updates of {run.players} players in {run.seconds:.2f} s"


def _latency(name: str, found: Phase, value: float, unit: str) -> Result:
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    ratio = {each: found.quantile_ms(share) for each, share in shares.items()}
    ratio["behind"] = found.lag_ms
    return result(name, value, unit, ratio, f"at {found.rate:.0f} updates/s")


def _rebuild(workload: Workload, done: Rebuilt) -> Result:
    """Lobbies' figure is the one that is called so alone."""
    name = "rebuild" if workload.name == REBUILD_OF[0] else f"rebuild/{workload.name}"
    ratio = {f"{who}_us": used / done.updates * 1e6 for who, used in done.processor_s.items()}
    ratio |= {"a_core": done.a_core, "start_s": done.start_s}
    note = f"{workload.name}: {done.updates} updates of {done.players} players"
    return result(name, done.rate, "updates/s", ratio, f"{note} in {done.seconds:.2f} s")


def _correction(workload: Workload, updates: int, done: Correction) -> Result:
    """The seconds until a correction was applied, and how long others waited until then."""
    waited = done.others
    ratio = {f"p{p}": waited.quantile_ms(p / 100) for p in (50, 99, 100)} if waited else {}
    name = f"correction/{workload.name}/{done.which.replace(' ', '-')}"
    return result(name, done.seconds, "s", ratio, f"of a ladder with {updates} updates")


def _bans(workload: Workload, updates: int, done: Wave) -> Result:
    """The seconds until a removal was applied, the waits of others, the memory of the worker."""
    ratio = {f"p{p}": done.others.quantile_ms(p / 100) for p in (50, 99, 100)}
    ratio |= {"MiB_before": done.before / MIB, "MiB_most": done.most / MIB}
    name = f"bans/{workload.name}/{done.players}"
    return result(name, done.seconds, "s", ratio, f"of a ladder with {updates} updates")


def _seeds(done: Seeding, count: str) -> Result:
    """The seconds until all players had a belief and an event."""
    ratio = {f"{who}_us": used / done.players * 1e6 for who, used in done.processor_s.items()}
    ratio |= {"bytes_a_player": done.store, "MiB_most": done.memory / MIB}
    ratio |= {"sending_s": done.sending_s}
    return result(f"seeds/{count}", done.seconds, "s", ratio, f"{done.players} players")


def _memory(samples: Sequence[Sample]) -> Result:
    """Growth of memory in the second half, and the resident memory by millions of updates."""
    every = max(1, len(samples) // 10)
    ratio = {f"MiB_at_{each.updates}": each.resident / MIB for each in samples[every - 1 :: every]}
    value = growth(samples) * 1e6 / MIB
    return result("memory/worker", value, "MiB a million updates", ratio, "of the second half")


def _sizes(ground: Ground, workload: Workload, updates: int) -> Iterator[Result]:
    for what, runs in (("players", by_players), ("shards", by_shards)):
        for number, run in runs(ground, workload, updates):
            ratio = {f"{each}_us": us for each, us in run.processor_us.items()}
            ratio["updates_a_second"] = run.rate
            yield result(
                f"sizes/{what}/{number}", run.all_us, "us an update", ratio, _add_line(run)
            )
