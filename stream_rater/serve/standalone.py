"""A standalone process: the engine on a data file, beside the API and the index's process."""

from contextlib import suppress
from functools import partial
from pathlib import Path

from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import StoreTrouble, Unusable
from stream_rater.index import folder
from stream_rater.index.log import Watcher
from stream_rater.index.process import IndexProcess
from stream_rater.index.reader import IndexReader
from stream_rater.places.file import FilePlace
from stream_rater.runtime import startup
from stream_rater.runtime.connections import is_local
from stream_rater.runtime.file_engine import FileEngine
from stream_rater.serve.door.following import DoorParts
from stream_rater.serve.http.metrics import ApiMetrics
from stream_rater.serve.service import MakeParts, Parts, follower_of


class Standalone(IndexProcess):
    """The process of the index, and the engine, which runs in this process."""

    def __init__(
        self, settings: Settings, ladders: Ladders, path: Path, watcher: Watcher,
        registry_of: ApiMetrics,
    ) -> None:  # fmt: skip
        """Open the file; create it if there is none. Raises Unusable, Denied or
        BadConfiguration."""
        self._settings, self._ladders, self._reports_to = settings, ladders, watcher
        self.engine = FileEngine(
            settings, ladders, path, registry_of.registry, self._prepare_index, self.hurry,
            watcher.trouble,
        )  # fmt: skip

    def _prepare_index(self, path: Path, where: Path, log_id: str, end: int) -> None:
        """Take the index's folder. Raises Unusable if the index has events that the file lost."""
        follow = follower_of(self._settings, self._ladders, where, path)
        super().__init__(where, follow, self._reports_to)
        reached = list[int]()
        with suppress(StoreTrouble):  # the index is made again
            reached = folder.positions(where, log_id)
        if sum(reached) > end:
            raise Unusable(
                f"{path.name} has lost rounds that {where} knows: put back {path.name}-wal or a "
                "backup; to go on without them, remove the index"
            )

    def behind(self) -> int:
        """The number of records that are not rated yet."""
        return self.engine.lag

    def reported_s(self) -> float:
        """When both the engine and the index last showed that they work, monotonic seconds."""
        engine_s = self.engine.last_turn_s
        return self.last_report_s if engine_s is None else min(engine_s, self.last_report_s)

    def listen(self) -> None:
        """Run the engine and the index until `stop`. Raises the error of either if it fails."""
        startup.configure()
        self.engine.start(super().stop)
        try:
            super().listen()
        finally:
            self.engine.stop()
            self.engine.join()
        if self.engine.failure is not None:
            raise self.engine.failure

    def stop(self) -> None:
        """Let the turn in progress end, and then the engine and the index."""
        self.engine.stop()

    def end(self) -> None:
        """Close the index's process and the file."""
        super().end()
        self.engine.close()

    def unready(self) -> list[str]:
        """The reasons why rounds are not rated."""
        return self.engine.unready()

    def door(self) -> DoorParts:
        """What the door needs of the file. Without a token for writing, nobody may write. But if
        there is no token at all, and only programs of this machine can connect, they may."""
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
        door, index = standalone.door(), IndexReader(settings.serve_history, ladders)
        return Parts(standalone, index, door.connect, door)

    return make
