"""The engine of a standalone process, with its data file and both state machines."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from stream_rater.adapters.local_driver import estimator_worker, updater_worker
from stream_rater.adapters.sqlite import names
from stream_rater.adapters.sqlite.database import Database, check_window, warnings_of
from stream_rater.adapters.sqlite.events import end_of_changed
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.adapters.sqlite.store import SqliteStore
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.ladders import BETTER_LADDER, Ladders, say_cautions
from stream_rater.config.settings import Settings
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.runtime import log, selfcheck, startup
from stream_rater.runtime.engine import Engine, FileRoundLog, Machine
from stream_rater.runtime.metrics import Metrics
from stream_rater.runtime.observer import ServiceObserver

STARTING = "it is starting: the kernels are prepared"


class FileEngine:
    """Rates the rounds of a data file, in a thread of its own."""

    def __init__(
        self, settings: Settings, ladders: Ladders, path: Path, registry: CollectorRegistry,
        opened: Callable[[Path, Path, str, int], None], on_events: Callable[[], None],
        on_trouble: Callable[[str], None],
    ) -> None:  # fmt: skip
        """Open the file; create it if there is none. `opened` is called before anything is written,
        with the paths of the file and of the index, the file's id and the end of its events. Raises
        Unusable, Denied or BadConfiguration."""
        self._settings = settings
        self._database = database = Database.open(path)
        try:
            self.path = database.path
            index = Path(settings.index) if settings.index else names.index_path(self.path)
            names.drop_old_index(index)
            opened(self.path, index, database.known_id, end_of_changed(database.connection, 0))
            self._log, self._store = SqliteLog(database), SqliteStore(database)
            self._prepare(ladders)
            self._metrics = Metrics(registry)
            self._observers = {
                role: ServiceObserver(self._metrics, role, log.logger(role))
                for role in ("estimator", "updater")
            }
            machines = self._machines(ladders)
        except BaseException:
            database.close()
            raise
        self._engine = Engine(database, self._log, machines, on_events, on_trouble)
        self._engine.trouble = STARTING
        self._started = False
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None  # The error that ended the thread, if any.

    # --- at start ---

    def _prepare(self, ladders: Ladders) -> None:
        """Check the file against the settings and the ladders file. Raises BadConfiguration."""
        database, settings = self._database, self._settings
        check_window(database.path, database.meta("duplicate_window"), settings)
        for warning in warnings_of().values():
            log.logger("standalone").warning(warning)
        say_cautions(ladders, log.logger("standalone").warning)
        with database.turn():
            database.set_meta("duplicate_window", settings.duplicate_window)
            if database.meta("kernel") is None:
                database.set_meta("kernel", KERNEL_VERSION)
            if ladders is BETTER_LADDER:  # so other releases know what was the best then
                database.set_meta("ladders", msgspec.json.encode(ladders))
            committed = self._log.estimators.committed
            startup.check_ladders(ladders, self._log, self.ends, lambda: committed)

    def _machines(self, ladders: Ladders) -> list[Machine]:
        settings, log_, store, observers = self._settings, self._log, self._store, self._observers
        cache_bytes = (settings.cache_mb << 20) // 2
        estimator = Estimator(
            ladders, len(log_.parts), len(log_.rounds), window=settings.duplicate_window,
            wave_players=settings.wave_players, rejects_per_second=settings.rejects_per_second,
            observer=observers["estimator"], threshold=settings.correction_threshold,
            checkpoint_every=settings.checkpoint_every, cache_bytes=cache_bytes,
        )  # fmt: skip
        updater = Updater(len(log_.parts), observer=observers["updater"], cache_bytes=cache_bytes)
        return [
            self._machine("estimator", estimator_worker(log_, store), estimator),
            self._machine("updater", updater_worker(log_, store), updater),
        ]

    def _machine(self, role: str, driver: Any, of_role: Estimator | Updater) -> Machine:
        metrics = self._metrics
        driver.group.assign([driver])
        metrics.partitions.labels(role).set(driver.group.partitions)
        return Machine(
            role, driver, of_role.run(),
            lambda name, stage, s: metrics.seconds.labels(name, stage).observe(s),
            self._observers[role].polled,
        )  # fmt: skip

    # --- for other threads ---

    def start(self, on_end: Callable[[], None]) -> None:
        """Begin to rate. The thread calls `on_end` at its end."""
        self._thread = threading.Thread(
            target=self._run, args=(on_end,), name="engine", daemon=True
        )
        self._thread.start()

    def _run(self, on_end: Callable[[], None]) -> None:
        try:
            selfcheck.check()  # rounds wait until the kernels are there and compute the right bits
            self._engine.trouble, self._started = "", True
            self._engine.run()
        except BaseException as error:
            self.failure = error
        on_end()

    def stop(self) -> None:
        """Let the thread end after the turn in progress."""
        self._engine.stop()

    def join(self) -> None:
        """Wait until the thread has ended."""
        assert self._thread is not None
        self._thread.join()

    def close(self) -> None:
        """Close the file. If a turn is still in progress, leave it open: the process then ends as
        if it were killed."""
        if self._thread is None or not self._thread.is_alive():
            self._database.close()

    @property
    def id(self) -> str:
        """The id of the data file."""
        return str(self._database.meta("id"))

    def ends(self) -> list[int]:
        """The end of each partition of `round-completed`."""
        rounds = self._log.rounds
        return [rounds.end(partition) for partition in range(len(rounds))]

    def round_log(self) -> FileRoundLog:
        """What appends rounds to this file."""
        return FileRoundLog(self._engine, len(self._log.rounds))

    @property
    def lag(self) -> int:
        """The number of records that are not rated yet."""
        committed = self._log.estimators.committed
        return sum(end - committed.get(p, 0) for p, end in enumerate(self.ends()))

    @property
    def last_turn_s(self) -> float | None:
        """When the last turn ended, monotonic seconds; None until the engine may begin turns."""
        return self._engine.last_turn_s if self._started else None

    def unready(self) -> list[str]:
        """The reasons why rounds are not rated."""
        reasons = [self._engine.trouble] if self._engine.trouble else []
        for observer in self._observers.values():
            reasons += [f"shard {s}: {why}" for s, why in observer.refused.items()]
            reasons += observer.refused_ladders.values()
        return reasons
