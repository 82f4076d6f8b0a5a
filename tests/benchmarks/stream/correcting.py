"""What a correction costs: how long until it is applied, and how long others wait until then.

One ladder has millions of updates; others play on at a steady rate. A checkpoint is made before the
last hundredth of its rounds. Then two of them are voided: one of that hundredth, and the first.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import NamedTuple

from stream_rater.adapters.kafka.producers import Submitter
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.columns.sharding import partition_of
from stream_rater.config.settings import Settings
from stream_rater.contract.events import to_json
from stream_rater.contract.groups import ESTIMATORS
from stream_rater.operations.checkpoint import checkpoint
from tests.benchmarks.stream.crew import a_crew, names_of
from tests.benchmarks.stream.ground import Ground, send
from tests.benchmarks.stream.latency import Phase, phase
from tests.benchmarks.stream.rounds import Round, Workload, made, up_to
from tests.benchmarks.stream.throughput import SERVICE

LONG = "the-long-ladder"
OTHERS = "other-ladders"
RATE = 2_000.0
"""Updates a second on the other ladders while a correction is applied."""
LOOK_EVERY_S = 0.02
LONGEST_S = 300.0
STEP = 200_000


class Correction(NamedTuple):
    """A voided round, or a checkpoint."""

    which: str
    seconds: float
    """From when it was sent until its offset was committed; how long the command took."""
    others: Phase | None = None
    """How long the players of other ladders waited for their updates until then."""


def corrections(
    ground: Ground, workload: Workload, updates: int, feed_s: float
) -> Iterator[Correction]:
    """Rate so many updates of one ladder, and void two of its rounds."""
    rounds = (each._replace(ladder=LONG) for each in map(renamed, workload.rounds()))
    others = workload.rounds(seed=3)
    with a_crew(ground, workload, names_of("1"), SERVICE) as crew:
        crew.wait_until_joined()
        long, done, early = list[str](), 0, updates * 99 // 100
        while done < updates:
            some = up_to(min(STEP, (early if done < early else updates) - done), rounds)
            send(crew.settings, some)
            crew.wait_until_finished()
            done += sum(len(each.players) for each in some)
            long += [each.round_id for each in some]
            if done >= early and done - sum(len(each.players) for each in some) < early:
                began_s = time.monotonic()
                with redirect_stdout(sys.stderr):
                    checkpoint(crew.settings, [LONG])
                yield Correction("a checkpoint", time.monotonic() - began_s)
        for which, number in (("a late round", len(long) * 199 // 200), ("the first round", 0)):
            void = _Void(crew.settings, long[number])
            waited = phase(crew.settings, up_to(int(RATE * feed_s), others), RATE, void)
            crew.wait_until_finished()
            yield Correction(which, void.seconds, waited)


class _Void:
    """Voids a round of the long ladder, and waits until that is done."""

    def __init__(self, settings: Settings, round_id: str) -> None:
        self.seconds = 0.0
        self._settings = settings
        self._round_id = round_id

    def __call__(self) -> None:
        began_s = time.monotonic()
        value = to_json({"ladder": LONG, "round_id": self._round_id})
        submitter = Submitter(self._settings, Admin(self._settings).topics.rounds)
        submitter.correct(LONG, "round-voided", value, self._round_id)
        submitter.flush()
        wait_until_corrected(self._settings)
        self.seconds = time.monotonic() - began_s


def wait_until_corrected(settings: Settings, look: Callable[[], object] = lambda: None) -> None:
    """Return once all that is in the long ladder's partition now is committed. Until then, call
    `look` again and again."""
    admin = Admin(settings)
    topic = admin.topics.rounds
    partitions = admin.partitions()[topic]
    home = partition_of(LONG, partitions)
    began_s, end = time.monotonic(), admin.ends(topic, partitions)[home]
    while (admin.committed(ESTIMATORS, topic, partitions)[home] or 0) < end:
        assert time.monotonic() - began_s < LONGEST_S, "the correction is not done"
        look()
        time.sleep(LOOK_EVERY_S)


def renamed(round_: Round) -> Round:
    """The same round on the long ladder."""
    return made(f"l{round_.round_id}", LONG, round_.players)
