"""The service's state machines on the in-memory adapters, in one thread: nothing is durable."""

from collections.abc import Generator
from typing import Any

from stream_rater.adapters.local_driver import LocalDriver, estimator_worker, updater_worker
from stream_rater.adapters.memory import Log, Store
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Effect, Poll
from stream_rater.pipeline.updater.updater import Updater

SHARDS = 4
CACHE_BYTES = 16 * 2**20  # The memory of the records that the updater need not read again.


class EmbeddedEngine:
    """Runs both state machines alternately on one log and store.

    Their clock is virtual: a poll that finds no record takes its time-out at once, and nothing else
    takes any time. So no caller waits for delayed work, such as the commit of offsets.
    """

    def __init__(
        self, ladders: Ladders = ANY_LADDER, *, estimating: Observer | None = None,
        updating: Observer | None = None, checkpoint_every: int = 0,
    ) -> None:  # fmt: skip
        self.log, self.store = Log(1, SHARDS), Store()
        self._now_s = 0.0
        estimator = Estimator(
            ladders, SHARDS, 1, observer=estimating, checkpoint_every=checkpoint_every
        )
        updater = Updater(SHARDS, observer=updating, cache_bytes=CACHE_BYTES)
        self._machines: list[tuple[LocalDriver, Generator[Effect[Any], Any, Any]]] = [
            (estimator_worker(self.log, self.store), estimator.run()),
            (updater_worker(self.log, self.store), updater.run()),
        ]
        self._effects = [next(machine) for _, machine in self._machines]
        for worker, _ in self._machines:
            worker.group.assign([worker])

    def settle(self) -> None:
        """Run until every round is rated and published."""
        log = self.log
        while log.estimators.committed.get(0, 0) < len(log.rounds[0]) or any(
            log.updaters.committed.get(shard, 0) < len(parts)
            for shard, parts in enumerate(log.parts)
        ):
            for at, (worker, machine) in enumerate(self._machines):
                effect, worker.now_s = self._effects[at], self._now_s
                outcome = worker.perform(effect)
                if isinstance(effect, Poll) and not outcome.records:
                    self._now_s += effect.timeout_s
                self._effects[at] = machine.send(outcome)
