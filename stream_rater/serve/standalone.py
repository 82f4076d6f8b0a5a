"""A standalone process: the engine on a data file, beside the API that answers from an index of its
events. The index has a process of its own, as that of `serve` does."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from stream_rater.adapters.sqlite.database import Database, warnings_of
from stream_rater.adapters.sqlite.driver import estimator_worker, updater_worker
from stream_rater.adapters.sqlite.events import end_of_changed
from stream_rater.adapters.sqlite.followed import FileLog
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.adapters.sqlite.names import Unusable, drop_old_index, index_path, real
from stream_rater.adapters.sqlite.store import SqliteStore
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import ANY_LADDER, BETTER_FOR_DUELS, Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.errors import LogTrouble, StoreTrouble
from stream_rater.index import folder
from stream_rater.index.follower import Follower, Watcher
from stream_rater.index.process import IndexProcess
from stream_rater.index.reader import IndexReader
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.pipeline.ports import StoredShard
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.runtime import log, malloc, selfcheck
from stream_rater.runtime.cautions import say_cautions
from stream_rater.runtime.connections import is_local
from stream_rater.runtime.engine import Engine, Full, Machine
from stream_rater.runtime.ladder_checks import check_ladders
from stream_rater.runtime.metrics import Metrics, ServiceObserver
from stream_rater.serve.door.doorway import DoorParts
from stream_rater.serve.door.on_file import FileProgress, FileRejections, FileRoundLog
from stream_rater.serve.http.metrics import ApiMetrics
from stream_rater.serve.service import MakeParts, Parts

STARTING = "it is starting: the kernels are prepared"
ANSWER_S = 5.0
"""How long a question may wait for the engine."""

T = TypeVar("T")


class Standalone:
    """The engine and the index, as the process of the API runs them (`service.Following`)."""

    def __init__(
        self, settings: Settings, ladders: Ladders, path: Path, watcher: Watcher,
        registry_of: ApiMetrics,
    ) -> None:  # fmt: skip
        """Open the file; create it if there is none. Raises Unusable, Denied or
        BadConfiguration."""
        self._settings, self._watcher = settings, watcher
        self._database = Database.open(path)
        try:
            self.log = SqliteLog(self._database)
            where = Path(settings.index) if settings.index else index_path(path)
            drop_old_index(where)
            make = partial(
                Follower, where, partial(FileLog, path), settings.serve_history, ladders=ladders
            )
            self._index = IndexProcess(where, make, watcher)
            self._check_index(where)  # before anything is written
            self._prepare(ladders)
            self._metrics, self.store = Metrics(registry_of.registry), SqliteStore(self._database)
            self._machines = [
                self._machine("estimator", ladders), self._machine("updater", ladders),
            ]  # fmt: skip
        except BaseException:
            self._database.close()
            raise
        self.engine = Engine(
            self._database, self.log, self._machines, self._index.hurry, watcher.trouble
        )
        self.engine.trouble = STARTING
        self._started = False
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    # --- at start ---

    def _check_index(self, where: Path) -> None:
        """Raise Unusable if the index has events of this file that the file has lost."""
        path, reached = self._database.path, list[int]()
        with suppress(StoreTrouble):  # it is made again
            reached = folder.positions(where, self._database.known_id)
        if sum(reached) > end_of_changed(self._database.connection, 0):
            raise Unusable(
                f"{path.name} has lost rounds that {where} knows: put back {path.name}-wal or a "
                "backup; to go on without them, remove the index"
            )

    def _prepare(self, ladders: Ladders) -> None:
        """Check the file against the settings and the ladders file. Raises BadConfiguration."""
        database, window = self._database, self._settings.duplicate_window
        stored = database.meta("duplicate_window")
        if stored is not None and stored != window:
            raise BadConfiguration(
                f"{database.path}: it was begun with duplicate_window = {stored}, here it is "
                f"{window}: set STREAM_RATER_DUPLICATE_WINDOW={stored}"
            )
        for warning in warnings_of().values():
            log.logger("standalone").warning(warning)
        say_cautions(ladders, log.logger("standalone").warning)
        with database.turn():
            database.set_meta("duplicate_window", window)
            if database.meta("kernel") is None:
                database.set_meta("kernel", KERNEL_VERSION)
            rounds = self.log.rounds
            ends = [rounds.end(partition) for partition in range(len(rounds))]
            check_ladders(ladders, self.log, lambda: ends, lambda: self.log.estimators.committed)

    def _machine(self, role: str, ladders: Ladders) -> Machine:
        settings, metrics, store = self._settings, self._metrics, self.store
        cache_bytes = (settings.cache_mb << 20) // 2
        observer = ServiceObserver(metrics, role, log.logger(role))
        if role == "estimator":
            if ladders is ANY_LADDER:
                observer.advice = f"{BETTER_FOR_DUELS}a ladders file, {PREFIX}LADDERS"
            driver = estimator_worker(self.log, store)
            step: Any = Estimator(
                ladders, len(self.log.parts), len(self.log.rounds),
                window=settings.duplicate_window, wave_players=settings.wave_players,
                rejects_per_second=settings.rejects_per_second, observer=observer,
                threshold=settings.correction_threshold,
                checkpoint_every=settings.checkpoint_every, cache_bytes=cache_bytes,
            ).run()  # fmt: skip
        else:
            driver = updater_worker(self.log, store)
            step = Updater(len(self.log.parts), observer=observer, cache_bytes=cache_bytes).run()
        driver.group.assign([driver])
        metrics.partitions.labels(role).set(driver.group.partitions)
        machine = Machine(
            role, driver, step, observer,
            lambda name, stage, s: metrics.seconds.labels(name, stage).observe(s),
        )  # fmt: skip
        machine.on_polled = observer.polled
        return machine

    # --- what the process of the API asks for ---

    @property
    def lag(self) -> int:
        """The number of records that are not rated yet."""
        rounds, committed = self.log.rounds, self.log.estimators.committed
        return sum(rounds.end(p) - committed.get(p, 0) for p in range(len(rounds)))

    @property
    def caught_up(self) -> bool:
        """Whether the index has every event that existed when reading began."""
        return self._index.caught_up

    @property
    def oldest_reader_s(self) -> float:
        """For how long the oldest reader of the index is known to read, in seconds."""
        return self._index.oldest_reader_s

    @property
    def last_report_s(self) -> float:
        """When both the engine and the index last showed that they work, monotonic seconds."""
        index_s = self._index.last_report_s
        return min(self.engine.last_turn_s, index_s) if self._started else index_s

    def listen(self) -> None:
        """Run the engine and the index until `stop`. Raises the exception that ended one of
        them."""
        malloc.configure()
        thread = threading.Thread(target=self._run_engine, name="engine", daemon=True)
        thread.start()
        self._thread = thread
        try:
            self._index.listen()
        finally:
            self.engine.stop()
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _run_engine(self) -> None:
        try:
            selfcheck.check()  # rounds wait until the kernels are there and compute the right bits
            self.engine.trouble, self._started = "", True
            self.engine.run()
        except BaseException as error:
            self._failure = error
        self._index.stop()

    def door(self) -> DoorParts:
        """What the door has of the file. Without any token, the programs of this machine may write
        if only they can connect. Without a token for writing, nobody may otherwise."""
        settings, stop = self._settings, threading.Event()
        progress = FileProgress(self.ask, self.log)
        token = bool(settings.serve_write_token)
        if not token and (settings.serve_token or not is_local(settings.serve)):
            return DoorParts(None, progress, None, stop)
        rounds = FileRoundLog(self.engine, len(self.log.rounds))
        rejections = FileRejections(self._database.path, stop).run
        ends = [self.log.rounds.end(p) for p in range(len(self.log.rounds))]
        return DoorParts(rounds, progress, rejections, stop, token, ends)

    def hurry(self) -> None:
        """Let the index report soon."""
        self._index.hurry()

    def ask(self, question: Callable[[], T]) -> T:
        """Answer a question in the engine's thread. Raises LogTrouble if that does not answer in
        time."""
        busy = LogTrouble("the engine is busy: try again")
        try:
            answer = self.engine.ask(question)
        except Full:
            raise busy from None
        try:
            return answer.result(ANSWER_S)
        except TimeoutError:
            answer.cancel()
            raise busy from None

    def stop(self) -> None:
        """Let the turn in progress end, and then the engine and the index."""
        self.engine.stop()

    def end(self) -> None:
        """Close the file, unless a long turn has not ended: then the process ends as if it were
        killed, and nothing of the turn happens."""
        self._index.end()
        if self._thread is None or not self._thread.is_alive():
            self._database.close()

    def unready(self) -> list[str]:
        """The reasons why rounds are not rated."""
        reasons = [self.engine.trouble] if self.engine.trouble else []
        for machine in self._machines:
            observer = machine.observer
            assert isinstance(observer, ServiceObserver)
            reasons += [f"shard {s}: {why}" for s, why in observer.refused.items()]
            reasons += observer.refused_ladders.values()
        return reasons


class FileBeliefs:
    """The log and the beliefs in the file, read in the engine's thread between two turns."""

    def __init__(self, standalone: Standalone) -> None:
        self._standalone = standalone
        self.shards, self.partitions = len(standalone.log.parts), len(standalone.log.rounds)

    def prepare(self) -> None:
        """Nothing: the process has checked the file."""

    def ladder_log(self) -> LadderLog:
        """The ladder events that exist now."""
        return self._standalone.ask(self._standalone.log.read)

    def ends(self) -> Sequence[int]:
        """The end offset of each partition of `round-completed`."""
        rounds = self._standalone.log.rounds
        return self._standalone.ask(lambda: [rounds.end(p) for p in range(self.partitions)])

    def read(self, players: Mapping[int, PlayerColumn]) -> Mapping[int, StoredShard]:
        """The position and the records of each shard."""
        store = self._standalone.store
        return self._standalone.ask(
            lambda: {shard: store.read(shard, wanted) for shard, wanted in players.items()}
        )


def parts_of_file(settings: Settings, ladders: Ladders, path: Path) -> MakeParts:
    """A function that makes the parts of a standalone process."""

    def make(watcher: Watcher, metrics: ApiMetrics) -> Parts:
        standalone = Standalone(settings, ladders, real(path), watcher, metrics)
        index = IndexReader(settings.serve_history, ladders)
        return Parts(standalone, index, lambda: FileBeliefs(standalone), standalone.door())

    return make
