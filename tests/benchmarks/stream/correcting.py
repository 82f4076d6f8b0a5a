"""What corrections cost: until they are applied, for others meanwhile, in memory. One ladder has
millions of updates, others play on. `corrections`: a checkpoint before the last hundredth, then one
of its rounds is voided, and the first. `bans`: a player is removed, then many together."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout

import numpy as np

from stream_rater.adapters.kafka.producers import KafkaSubmitter
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.columns.sharding import partition_of
from stream_rater.contract.events import ESTIMATORS, to_json
from stream_rater.operations.ladder_replay import checkpoint
from tests.benchmarks.measure import Result, result
from tests.benchmarks.stream.crew import Crew, a_crew, names_of
from tests.benchmarks.stream.ground import MIB, Ground, resident_bytes
from tests.benchmarks.stream.latency import phase
from tests.benchmarks.stream.rounds import Round, Workload, made, player_name, up_to
from tests.benchmarks.stream.throughput import SERVICE

LONG = "the-long-ladder"
RATE = 2_000.0  # Updates a second on the other ladders while a correction is applied.
LOOK_EVERY_S = 0.02
LONGEST_S = 300.0
BANNED = 20_000  # Who are removed together.


class _Correcting:
    """Sends corrections of the long ladder, and waits until they are applied."""

    def __init__(self, crew: Crew, records: Sequence[tuple[str, dict[str, object], str]]) -> None:
        """`records`: type, what is said beside the ladder, and the key."""
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
        """Its figures, while these rounds are played on other ladders."""
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
    """The same round on the long ladder."""
    return made(f"l{round_.round_id}", LONG, round_.players)
