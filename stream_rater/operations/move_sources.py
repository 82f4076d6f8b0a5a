"""What `move` moves: a data file, or the topics and the Redis of another Kafka."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from stream_rater.adapters.kafka.copier import ANYWHERE
from stream_rater.adapters.kafka.envelopes import change_headers
from stream_rater.adapters.kafka.ladder_events import disagreement, read_ladder_events
from stream_rater.adapters.kafka.reader import read_all
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.reading import DataFile
from stream_rater.adapters.sqlite.season_file import SeasonRows
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Player, Record
from stream_rater.contract.season_ended import Message
from stream_rater.operations import erasure_checks, season_copies
from stream_rater.operations.erasure_checks import Generation, check_kernel
from stream_rater.operations.rebuild import check_idle, check_rounds_complete
from stream_rater.operations.verify import check_window
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.runtime.progress import counted
from stream_rater.runtime.service import layout_of


class MoveSource(Protocol):
    """The log and the ratings that are to be moved."""

    name: str
    """What messages call it."""
    ends: Sequence[int]
    """The end of each partition of the rounds."""
    verify_command: str
    """The command that says whether its ratings are right."""

    def check(self, ladders: Ladders) -> None:
        """Check that all of it is rated, by these ladders, and that nobody uses it. Raises
        BadConfiguration or Failed."""

    def ladder_log(self) -> LadderLog:
        """Its combined ladder events."""

    def rounds(self) -> Iterator[Record]:
        """Yield all records of `round-completed`."""

    def events(self) -> Iterator[Record]:
        """Yield all records of `rating-changed`. Those of each partition come in order."""

    def ladder_events(self) -> Iterator[bytes]:
        """Yield the messages of `ladders-noted`."""

    def seasons(self) -> Iterator[tuple[Message, str]]:
        """Yield the records of `season-ended`, with their times."""

    def beliefs(self) -> Iterator[list[tuple[Player, bytes]]]:
        """Yield all beliefs."""

    def check_unchanged(self) -> None:
        """Raise Failed if a record has arrived, or a worker has started, since `check`."""

    def mark_moved(self, place: str) -> None:
        """Let nobody rate by it from now on. `place`: where the data went."""


class FileSource:
    """A data file, which the caller has opened, so that nobody else can use it."""

    def __init__(self, settings: Settings, database: Database, file: DataFile) -> None:
        self._settings, self._database, self._file = settings, database, file
        self.name = str(file.path)
        self.ends: Sequence[int] = file.ends()
        self.verify_command = f"stream-rater verify --data {file.path}"
        self.ladder_log, self.rounds, self.beliefs = file.ladder_log, file.all_rounds, file.beliefs

    def check(self, ladders: Ladders) -> None:
        """Check the file (`MoveSource.check`)."""
        file = self._file
        check_window(self._settings, file)
        check_kernel(file.meta("kernel") or KERNEL_VERSION)
        check_rounds_complete(file.starts())
        at = msgspec.structs.replace(self._settings, data=str(file.path))
        _check_ladders(at, ladders, file.ladder_log())
        if behind := sum(file.behind()):
            raise Failed(
                f"{file.path}: {counted(behind, 'record')} not rated yet: let `stream-rater "
                f"standalone {file.path}` rate them, stop it, and run it again"
            )

    def events(self) -> Iterator[Record]:
        """Yield the events that are kept (`MoveSource.events`)."""
        for shard in range(self._file.shards):
            for offset, event in self._file.all_events(shard):
                yield Record(shard, offset, event.value, change_headers(event), key=event.key)

    def ladder_events(self) -> Iterator[bytes]:
        """Yield the ladder events."""
        yield from self._file.ladder_events()

    def seasons(self) -> Iterator[tuple[Message, str]]:
        """Yield the standings of past seasons."""
        return SeasonRows(Path(self._file.path)).all_records()

    def check_unchanged(self) -> None:
        """Nothing: the caller holds the file."""

    def mark_moved(self, place: str) -> None:
        """Mark the file as moved."""
        self._database.mark_moved(place)


class KafkaSource:
    """The topics of a prefix on a Kafka, and the Redis that belongs to them."""

    def __init__(self, settings: Settings) -> None:
        self._admin, self._settings = Admin(settings), settings
        self._topics = self._admin.topics
        self._partitions = self._admin.check_topics()
        self._store = RedisStore(settings)
        self.name = f"{self._topics.rounds} on {settings.kafka}"
        self.ends: Sequence[int] = self._admin.ends(
            self._topics.rounds, self._partitions[self._topics.rounds]
        )
        self.verify_command = "stream-rater verify with the settings of the old place"

    def check(self, ladders: Ladders) -> None:
        """Check the topics and Redis (`MoveSource.check`)."""
        self._check_idle()
        self._store.prepare()
        layout = layout_of(self._settings, self._admin, self._partitions)
        self._store.layout.check_stored(layout)
        check_kernel(self._store.layout.begun_by(KERNEL_VERSION))
        _check_ladders(self._settings, ladders, self.ladder_log())
        season_copies.check_finished(self._settings, self._admin)
        ends = erasure_checks.check_drained(self._generation, self._partitions)
        self.ends = [ends[partition] for partition in range(len(ends))]

    @property
    def _generation(self) -> Generation:
        return Generation(self._settings, self._admin)

    def _check_idle(self) -> None:
        check_idle(self._admin, self._settings)

    def ladder_log(self) -> LadderLog:
        """The combined ladder events."""
        return read_ladder_events(self._settings, self._admin)

    def rounds(self) -> Iterator[Record]:
        """Yield all records of `round-completed`."""
        return read_all(self._settings, self._topics.rounds, len(self.ends))

    def events(self) -> Iterator[Record]:
        """Yield all records of `rating-changed` (`MoveSource.events`)."""
        topic = self._topics.changed
        return read_all(self._settings, topic, self._partitions[topic])

    def ladder_events(self) -> Iterator[bytes]:
        """Yield the messages of `ladders-noted`."""
        for each in read_all(self._settings, self._topics.ladder_events, 1):
            yield each.value or b""

    def seasons(self) -> Iterator[tuple[Message, str]]:
        """Yield the standings of past seasons."""
        return season_copies.read_copies(self._settings, self._admin)

    def beliefs(self) -> Iterator[list[tuple[Player, bytes]]]:
        """Yield all beliefs in Redis."""
        return self._store.beliefs()

    def check_unchanged(self) -> None:
        """Raise Failed if a worker has started or a record has arrived since `check`."""
        self._check_idle()
        ends = self._admin.ends(self._topics.rounds, len(self.ends))
        if ends != self.ends:
            raise Failed(
                f"records came to {self.name} after the move began: stop the reports of rounds"
            )

    def mark_moved(self, place: str) -> None:
        """Let workers refuse the Redis."""
        self._store.layout.mark_moved(place)
        self._store.close()


def _check_ladders(settings: Settings, ladders: Ladders, ladder_log: LadderLog) -> None:
    if why := disagreement(settings, ladders, ladder_log):
        raise BadConfiguration(f"{why}: nothing was moved")


def as_records(messages: Iterable[bytes]) -> Iterator[Record]:
    """Messages as records of a topic with one partition."""
    for message in messages:
        yield Record(0, ANYWHERE, message)
