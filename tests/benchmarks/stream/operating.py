"""What the service costs in its life: workers die, Redis is lost, players move in; and memory."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np

from local.tools import ROOT
from stream_rater.adapters.kafka.producers import KafkaSubmitter
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.player_column import BeliefColumn
from stream_rater.columns.sharding import partition_of, shards_of
from stream_rater.config.ladders import ANY_LADDER, DEFAULT_RATING
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import ESTIMATORS, to_json
from stream_rater.contract.record import Player
from stream_rater.contract.seeds import MOST_PLAYERS, SEEDED
from stream_rater.operations.ladder_replay import checkpoint
from stream_rater.pipeline.ports import Application, Position
from stream_rater.rating import record
from stream_rater.rating.model import NEVER
from stream_rater.replay.pool import Pool
from tests.benchmarks.measure import Result, result
from tests.benchmarks.stream.crew import Crew, a_crew, names_of
from tests.benchmarks.stream.ground import MIB, Ground, a_producer, resident_bytes
from tests.benchmarks.stream.latency import phase
from tests.benchmarks.stream.rounds import (
    Round,
    Workload,
    ladder_name,
    made,
    player_name,
    up_to,
    updates_of,
)
from tests.benchmarks.stream.throughput import SERVICE, Run, measured, used
from tests.integration.processes import THIS_RELEASE, environment_of, most_memory
from tests.rounds import Reader

SESSION_MS = 6000  # The default of the service.


def kill(crew: Crew) -> None:
    """Kill a worker, and start it again under its name at once."""
    victim = crew.workers[0]
    victim.kill()
    crew.replace(victim, "worker-0")


def roll(crew: Crew) -> None:
    """Stop and replace the workers one after the other. The others take over."""
    for worker in list(crew.workers):
        worker.terminate()
        worker.wait()
        crew.replace(worker, "")


STORIES: dict[str, tuple[Sequence[str], Callable[[Crew], None]]] = {
    "kill": (("worker-0", "worker-1"), kill),
    "roll": (("", ""), roll),
}
"""By story, the workers' names (static members have one), and what happens to them."""


def recovery(
    ground: Ground, workload: Workload, warm: Sequence[Round], rounds: Sequence[Round], rate: float
) -> Iterator[Result]:
    """Each story, by the same rounds."""
    for story, (names, befalls) in STORIES.items():
        with a_crew(ground, workload, names, SERVICE, session_timeout_ms=SESSION_MS) as crew:
            for worker in crew.workers:
                worker.wait_ready()
            crew.rate(warm)
            found = phase(crew.settings, rounds, rate, partial(befalls, crew))
        yield found.row(f"recovery/{workload.name}/{story}", found.quantile_ms(1.0), "ms, most")


# --- rebuild --------------------------------------------------------------------------------------

WRONG_USAGE = 2

NAMELESS = ("",)  # One worker without a name: its groups do not wait for it.


def rebuild(ground: Ground, workload: Workload, updates: int, name: str) -> Result:
    """Rate, empty Redis, and rebuild. Fails if a byte differs. `a_core` is without the start."""
    with a_crew(ground, workload, NAMELESS, SERVICE) as crew:
        crew.workers[0].wait_ready()
        updates = sum(map(updates_of, crew.in_steps(updates, workload.rounds())))
        crew.dismiss()
    before = ground.beliefs()
    _, start = _command(ground, crew.settings, WRONG_USAGE)  # nothing is lost yet: it refuses
    ground.lose()
    seconds, used_s = _command(ground, crew.settings)
    assert ground.beliefs() == before, f"{workload.name}: the rebuilt store is another"
    ratio = {f"{who}_us": used / updates * 1e6 for who, used in used_s.items()}
    start_s = start["rebuild"]
    ratio |= {"a_core": updates / (used_s["rebuild"] - start_s), "start_s": start_s}
    note = f"{workload.name}: {updates} updates of {sum(map(len, before.values()))} players"
    return result(name, updates / seconds, "updates/s", ratio, f"{note} in {seconds:.2f} s")


def _command(
    ground: Ground, settings: Settings, exit_code: int = 0
) -> tuple[float, dict[str, float]]:
    """Run `rebuild`, with this exit code. Returns seconds, and CPU seconds by process."""
    servers_s, began_s = ground.servers_s(), time.monotonic()
    command = subprocess.Popen(
        [sys.executable, "-m", THIS_RELEASE, "rebuild"],
        cwd=ROOT, env=environment_of(settings), stdout=sys.stderr,
    )  # fmt: skip
    _, status, usage = os.wait4(command.pid, 0)
    took_s = time.monotonic() - began_s
    command.returncode = os.waitstatus_to_exitcode(status)
    assert command.returncode == exit_code, "rebuild failed: see above"
    after_s = ground.servers_s()
    used_s = {who: after_s[who] - servers_s[who] for who in after_s}
    return took_s, {"rebuild": usage.ru_utime + usage.ru_stime, **used_s}


# --- seeds ----------------------------------------------------------------------------------------

LADDER = "the-ladder-that-moves-in"
SEEDS_AT_ONCE = 50


def seeding(ground: Ground, workload: Workload, players: int, count: str) -> Result:
    """Seconds until so many seeded players have beliefs and events. Fails if any is wrong."""
    alone = replace(workload, players=players, ladders=1)
    with a_crew(ground, alone, names_of(count), SERVICE) as crew:
        crew.wait_until_joined()
        empty, before, began_s = ground.memory(), used(ground, crew), time.monotonic()
        topic, values = Topics.of(crew.settings).rounds, records(players)
        while some := list(islice(values, SEEDS_AT_ONCE)):
            with a_producer(crew.settings.kafka, linger_ms=20) as producer:
                for value in some:
                    producer.produce(topic, value, LADDER.encode(), headers={EVENT_TYPE: SEEDED})
        sending_s = time.monotonic() - began_s
        crew.wait_until_finished()
        seconds, after = time.monotonic() - began_s, used(ground, crew)
        events = sum(worker.metric("stream_rater_events_total") for worker in crew.workers)
        assert events == players, f"{events:.0f} events of {players} players"
        ratio = {f"{who}_us": (after[who] - before[who]) / players * 1e6 for who in after}
        memory = max(most_memory(worker.pid) for worker in crew.workers)
        ratio |= {"bytes_a_player": (ground.memory() - empty) // players, "MiB_most": memory / MIB}
    ratio["sending_s"] = sending_s
    return result(f"seeds/{count}", seconds, "s", ratio, f"{players} players")


def records(players: int) -> Iterator[bytes]:
    random = np.random.default_rng(1)
    for first in range(0, players, MOST_PLAYERS):
        numbers = range(first, min(players, first + MOST_PLAYERS))
        mu = random.normal(1500.0, 250.0, len(numbers)).round(2).tolist()
        sigma = random.uniform(60.0, 200.0, len(numbers)).round(2).tolist()
        rounds = random.integers(1, 500, len(numbers)).tolist()
        rows = [
            {"player": f"player-{number}", "mu": m, "sigma": s, "rounds": r}
            for number, m, s, r in zip(numbers, mu, sigma, rounds, strict=True)
        ]
        event = {"ladder": LADDER, "round_id": f"seed-{first}", "at": "2026-01-01T00:00:00Z"}
        yield to_json({**event, "players": rows})


# --- memory ---------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """The memory of a worker after so many updates."""

    updates: int
    resident: int  # Bytes.


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


# --- sizes ----------------------------------------------------------------------------------------

PLAYERS = (10_000, 100_000, 1_000_000, 10_000_000)
SHARDS = (4, 16, 64)
PATTERNS, ROUNDS_EACH = 1000, 10
AT_ONCE = 20_000


def sizes(ground: Ground, workload: Workload, updates: int) -> Iterator[Result]:
    """The cost of updates by numbers of players and shards. A first run warms up the broker."""
    _run(ground, workload, updates)
    for players in PLAYERS:
        run = _run(ground, replace(workload, players=players), updates)
        yield _row(f"sizes/players/{players}", run)
    for shards in SHARDS:
        yield _row(f"sizes/shards/{shards}", _run(ground, workload, updates, shards=shards))


def _row(name: str, run: Run) -> Result:
    ratio = {f"{each}_us": us for each, us in run.processor_us.items()}
    return result(name, run.all_us, "us an update", ratio, run.note)


def _run(ground: Ground, workload: Workload, updates: int, **settings: Any) -> Run:
    def filled(at: Settings) -> None:
        _fill(at, workload)

    rounds = up_to(updates, workload.rounds())
    return measured(ground, workload, rounds, "1", before=filled, **settings)


def _fill(settings: Settings, workload: Workload) -> None:
    """Beliefs of all players of a workload, at the start of the log."""
    store, patterns = RedisStore(settings), cycle(_patterns(workload))
    for first in range(0, workload.players, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, workload.players))
        calls: dict[int, list[tuple[Player, bytes]]] = {}
        shards = shards_of([player_name(each) for each in numbers], settings.shards).tolist()
        for number, shard, pattern in zip(numbers, shards, patterns, strict=False):
            player = ladder_name(number // workload.in_ladder), player_name(number)
            calls.setdefault(shard, []).append((player, pattern))
        done = store.apply(
            {s: Application(Position(), BeliefColumn.of(some)) for s, some in calls.items()}
        )
        assert all(done.values()), "a round was rated before all beliefs were replaced"
    store.close()


def _patterns(workload: Workload) -> list[bytes]:
    """Belief records of players who have played, but whose rounds are in no log."""
    few = replace(workload, players=PATTERNS, ladders=1)
    rounds = islice(few.rounds(), PATTERNS * ROUNDS_EACH // workload.size)
    reader, pool = Reader(ANY_LADDER), Pool(DEFAULT_RATING)
    for offset, each in enumerate(rounds):
        pool.rate(reader.read(each.value), offset)
    rule = pool.rule
    records = pool.records(np.arange(len(pool)))
    beliefs = record.decode(records, rule.kept + 1, rule.initial_mu, rule.initial_sigma)
    beliefs.header["last"] = NEVER
    return record.encode(beliefs)


# --- corrections ----------------------------------------------------------------------------------

LONG = "the-long-ladder"
RATE = 2_000.0  # Updates a second on the other ladders while a correction is applied.
LOOK_EVERY_S = 0.02
LONGEST_S = 300.0
BANNED = 20_000  # So many players are removed together.


class _Correcting:
    """Sends corrections of the long ladder, and waits until they are applied."""

    def __init__(self, crew: Crew, records: Sequence[tuple[str, dict[str, object], str]]) -> None:
        """`records`: (type, fields besides the ladder, key) of each correction."""
        self.seconds, self.memory = 0.0, list[int]()
        self._crew, self._records = crew, records

    def __call__(self) -> None:
        began_s, settings = time.monotonic(), self._crew.settings
        admin = Admin(settings)
        topic = admin.topics.rounds
        submitter = KafkaSubmitter(settings, topic)
        self._look()
        for kind, value, key in self._records:
            submitter.correct(LONG, kind, to_json({"ladder": LONG, **value}), key)
        submitter.flush()
        partitions = admin.partitions()[topic]
        home = partition_of(LONG, partitions)
        end = admin.ends(topic, partitions)[home]
        while (admin.committed(ESTIMATORS, topic, partitions)[home] or 0) < end:
            assert time.monotonic() - began_s < LONGEST_S, "the correction is not done"
            self._look()
            time.sleep(LOOK_EVERY_S)
        self.seconds = time.monotonic() - began_s

    def _look(self) -> None:
        self.memory.append(resident_bytes(self._crew.workers[0].pid))

    def row(self, name: str, others: Sequence[Round], updates: int) -> Result:
        """The figures of a correction, while these rounds are played on other ladders."""
        waited = phase(self._crew.settings, others, RATE, self)
        self._crew.wait_until_finished()
        ratio = {f"p{p}": waited.quantile_ms(p / 100) for p in (50, 99, 100)}
        ratio |= {"MiB_before": self.memory[0] / MIB, "MiB_most": max(self.memory) / MIB}
        return result(name, self.seconds, "s", ratio, f"of a ladder with {updates} updates")


def corrections(
    ground: Ground, workload: Workload, updates: int, feed_s: float
) -> Iterator[Result]:
    """Rate so many updates of one ladder, and void two of its rounds."""
    rounds, others = map(renamed, workload.rounds()), workload.rounds(seed=3)
    name, late = f"correction/{workload.name}", updates // 100
    with a_crew(ground, workload, names_of("1"), SERVICE) as crew:
        crew.wait_until_joined()
        long = [each.round_id for some in crew.in_steps(updates - late, rounds) for each in some]
        began_s = time.monotonic()
        with redirect_stdout(sys.stderr):
            checkpoint(crew.settings, [LONG])
        note = f"of a ladder with {updates} updates"
        yield result(f"{name}/a-checkpoint", time.monotonic() - began_s, "s", note=note)
        long += [each.round_id for some in crew.in_steps(late, rounds) for each in some]
        for which, number in (("a-late-round", len(long) * 199 // 200), ("the-first-round", 0)):
            voided = _Correcting(crew, [("round-voided", {"round_id": long[number]}, long[number])])
            yield voided.row(f"{name}/{which}", up_to(int(RATE * feed_s), others), updates)


def bans(
    ground: Ground, workload: Workload, updates: int, feed_s: float, players: int
) -> Iterator[Result]:
    """Rate so many updates of one ladder, and remove one player, then so many."""
    rounds, others = map(renamed, workload.rounds()), workload.rounds(seed=3)
    chosen = np.random.default_rng(7).choice(workload.players, players + 1, replace=False)
    names = list(map(player_name, chosen.tolist()))
    with a_crew(ground, workload, names_of("1"), SERVICE) as crew:
        crew.wait_until_joined()
        for _ in crew.in_steps(updates, rounds):
            pass
        for banned in (names[:1], names[1:]):
            batched = len(banned) > 1
            records: list[tuple[str, dict[str, object], str]] = [
                ("player-removed", {"player": each, "batched": batched}, each) for each in banned
            ]
            removal = _Correcting(crew, records + [("corrections-applied", {}, "")] * batched)
            name = f"bans/{workload.name}/{len(banned)}"
            yield removal.row(name, up_to(int(RATE * feed_s), others), updates)


def renamed(round_: Round) -> Round:
    """A copy of a round, on the long ladder."""
    return made(f"l{round_.round_id}", LONG, round_.players)
