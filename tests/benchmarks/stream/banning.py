"""What a ban wave costs: time until it is applied, waits of others, memory of the worker.

One ladder has millions of updates; others play on at a steady rate. First one of its players is
removed, then many more in one `corrections-applied`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.adapters.kafka.producers import Submitter
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.events import to_json
from tests.benchmarks.stream.correcting import LONG, RATE, STEP, renamed, wait_until_corrected
from tests.benchmarks.stream.crew import a_crew, names_of
from tests.benchmarks.stream.ground import Ground, resident_bytes, send
from tests.benchmarks.stream.latency import Phase, phase
from tests.benchmarks.stream.rounds import Workload, player_name, up_to
from tests.benchmarks.stream.throughput import SERVICE

PLAYERS = 20_000
"""Who are removed together."""


class Wave(NamedTuple):
    """A removal of so many players."""

    players: int
    seconds: float
    """From when the first record was sent until the last one's offset was committed."""
    before: int
    most: int
    """Resident bytes of the worker before, and at most until then."""
    others: Phase
    """How long the players of other ladders waited for their updates until then."""


def bans(
    ground: Ground, workload: Workload, updates: int, feed_s: float, players: int
) -> Iterator[Wave]:
    """Rate so many updates of one ladder, and remove one player, then so many."""
    rounds, others = map(renamed, workload.rounds()), workload.rounds(seed=3)
    chosen = np.random.default_rng(7).choice(workload.players, players + 1, replace=False)
    with a_crew(ground, workload, names_of("1"), SERVICE) as crew:
        crew.wait_until_joined()
        done = 0
        while done < updates:
            some = up_to(min(STEP, updates - done), rounds)
            send(crew.settings, some)
            crew.wait_until_finished()
            done += sum(len(each.players) for each in some)
        worker = crew.workers[0].pid
        for some_players in (chosen[:1], chosen[1:]):
            sent = [player_name(each) for each in some_players.tolist()]
            removal = _Removal(crew.settings, sent, lambda: resident_bytes(worker))
            fed = up_to(int(RATE * feed_s), others)
            waited = phase(crew.settings, fed, RATE, removal)
            crew.wait_until_finished()
            yield Wave(
                len(sent),
                removal.seconds,
                removal.memory_bytes[0],
                max(removal.memory_bytes),
                waited,
            )


class _Removal:
    """Removes players of the long ladder, and waits until that is done."""

    def __init__(
        self, settings: Settings, players: Sequence[str], memory_bytes: Callable[[], int]
    ) -> None:
        self.seconds = 0.0
        self.memory_bytes = list[int]()
        self._settings = settings
        self._players = players
        self._memory_bytes = memory_bytes

    def __call__(self) -> None:
        began_s = time.monotonic()
        self.memory_bytes.append(self._memory_bytes())
        submitter = Submitter(self._settings, Admin(self._settings).topics.rounds)
        together = len(self._players) > 1
        for player in self._players:
            value = to_json({"ladder": LONG, "player": player, "batched": together})
            submitter.correct(LONG, "player-removed", value, player)
        if together:
            submitter.correct(LONG, "corrections-applied", to_json({"ladder": LONG}), "")
        submitter.flush()
        wait_until_corrected(self._settings, lambda: self.memory_bytes.append(self._memory_bytes()))
        self.seconds = time.monotonic() - began_s
