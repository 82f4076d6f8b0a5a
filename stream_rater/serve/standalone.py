"""A standalone process: the engine on a data file, beside the API that answers from an index of its
events. The index has a process of its own, as that of `serve` does."""

from contextlib import suppress
from functools import partial
from pathlib import Path

from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import StoreTrouble, Unusable
from stream_rater.index import folder
from stream_rater.index.follower import Follower, Watcher
from stream_rater.index.process import IndexProcess
from stream_rater.index.reader import IndexReader
from stream_rater.places import log_to_follow
from stream_rater.places.file import FilePlace
from stream_rater.runtime import startup
from stream_rater.runtime.connections import is_local
from stream_rater.runtime.file_engine import FileEngine
from stream_rater.serve.door.following import DoorParts
from stream_rater.serve.http.metrics import ApiMetrics
from stream_rater.serve.service import MakeParts, Parts


class Standalone:
    """The engine and the index, as the process of the API runs them (`service.IndexKeeper`)."""

    def __init__(
        self, settings: Settings, ladders: Ladders, path: Path, watcher: Watcher,
        registry_of: ApiMetrics,
    ) -> None:  # fmt: skip
        """Open the file; create it if there is none. Raises Unusable, Denied or
        BadConfiguration."""
        self._settings, self._ladders, self._watcher = settings, ladders, watcher
        self.engine = FileEngine(
            settings, ladders, path, registry_of.registry, self._prepare_index, self.hurry,
            watcher.trouble,
        )  # fmt: skip

    def _prepare_index(self, path: Path, where: Path, log_id: str, end: int) -> None:
        """Take the folder of the index. Raises Unusable if it has events of this file that the file
        has lost."""
        settings = self._settings
        follow = partial(
            Follower, where, partial(log_to_follow, settings, path), settings.serve_history,
            ladders=self._ladders,
        )  # fmt: skip
        self._index = IndexProcess(where, follow, self._watcher)
        reached = list[int]()
        with suppress(StoreTrouble):  # it is made again
            reached = folder.positions(where, log_id)
        if sum(reached) > end:
            raise Unusable(
                f"{path.name} has lost rounds that {where} knows: put back {path.name}-wal or a "
                "backup; to go on without them, remove the index"
            )

    @property
    def lag(self) -> int:
        """The number of records that are not rated yet."""
        return self.engine.lag

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
        index_s, engine_s = self._index.last_report_s, self.engine.last_turn_s
        return index_s if engine_s is None else min(engine_s, index_s)

    def listen(self) -> None:
        """Run the engine and the index until `stop`. Raises the exception that ended one of
        them."""
        startup.configure()
        self.engine.start(self._index.stop)
        try:
            self._index.listen()
        finally:
            self.engine.stop()
            self.engine.join()
        if self.engine.failure is not None:
            raise self.engine.failure

    def hurry(self) -> None:
        """Let the index report soon."""
        self._index.hurry()

    def stop(self) -> None:
        """Let the turn in progress end, and then the engine and the index."""
        self.engine.stop()

    def end(self) -> None:
        """Release the index and the file."""
        self._index.end()
        self.engine.close()

    def unready(self) -> list[str]:
        """The reasons why rounds are not rated."""
        return self.engine.unready()

    def door(self) -> DoorParts:
        """What the door has of the file. Without any token, the programs of this machine may write
        if only they can connect. Without a token for writing, nobody may otherwise."""
        settings = self._settings
        connect = partial(FilePlace, settings, self.engine.path)
        token = bool(settings.serve_write_token)
        if not token and (settings.serve_token or not is_local(settings.serve)):
            return DoorParts(None, connect)
        return DoorParts(self.engine.round_log(), connect, token, self.engine.ends())


def parts_of_file(settings: Settings, ladders: Ladders, path: Path) -> MakeParts:
    """A function that makes the parts of a standalone process."""

    def make(watcher: Watcher, metrics: ApiMetrics) -> Parts:
        standalone = Standalone(settings, ladders, path, watcher, metrics)
        door = standalone.door()
        index = IndexReader(settings.serve_history, ladders)
        return Parts(standalone, index, door.connect, door)

    return make
