"""`stream-rater move`: moves a data file to Kafka and Redis.

1. Check that nobody has the file, that all of it is rated, and that the topics and Redis are empty.
2. Copy each accepted record to its partition and offset, with an empty record in the place of each
   rejected one; the last event of each player; and the ladder events, byte for byte. So all offsets
   stay as they are. A rejected record would be validated again otherwise, by the time when Kafka
   received it, and might be accepted.
3. Rebuild Redis from these topics, and compare each belief with that in the file.
4. Mark the file as moved, so that no round is rated in two places. Then workers may use Redis.

The file does not change before step 4. Until then it can be used on, or moved again.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import msgspec

from stream_rater.adapters.kafka.copier import ANYWHERE, Copier
from stream_rater.adapters.kafka.envelopes import change_headers
from stream_rater.adapters.kafka.ladder_events import disagreement
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.reading import DataFile, data_file
from stream_rater.adapters.sqlite.season_file import SeasonRows
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.sharding import shards_of
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.errors import Denied, Trouble
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from stream_rater.contract.record import Player, Record
from stream_rater.operations import season_copies
from stream_rater.operations.digests import Digests, difference, digests_of
from stream_rater.operations.erasure_checks import check_kernel
from stream_rater.operations.rebuild import check_idle, check_rounds_complete, rebuild_from_log
from stream_rater.operations.rewriting import AcceptedRecords, LogRewriter
from stream_rater.operations.verify import check_window
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import Verdicts
from stream_rater.runtime import malloc, selfcheck
from stream_rater.runtime.failures import named_failures
from stream_rater.runtime.progress import counted, track, track_batches
from stream_rater.runtime.service import layout_of

AT_ONCE = 5000
"""The number of records that are validated together."""


def move(settings: Settings, path: Path) -> None:
    """Move a data file to the Kafka and the Redis of the settings, whose topics must be new or
    empty. Raises BadConfiguration or Failed."""
    ladders = ladders_of_settings(settings)
    malloc.configure()
    with named_failures():
        selfcheck.check()
        with closing(Database.open_existing(path)) as database, data_file(str(path)) as file:
            work = Move(msgspec.structs.replace(settings, data=""), ladders, file)
            work.check()
            with _with_cure(work.after_failure):
                work.copy()
                beliefs = work.rebuild()
            database.mark_moved(work.place)
            with _with_cure(f"{path} is marked as moved: run `stream-rater rebuild --replace`"):
                work.release()
    print(
        f"{counted(sum(work.ends), 'record')} are in the topics and {counted(beliefs, 'belief')} "
        f"in Redis, all equal to those in {path}, bit for bit. Next: start `stream-rater run`, and "
        "give game backends the new address"
    )


@contextmanager
def _with_cure(cure: str) -> Iterator[None]:
    """Raise Failed where the work fails, with the cure at the end of the text."""
    try:
        yield
    except (Trouble, Denied, Failed) as error:
        raise Failed(f"{error}: {cure}") from None


class Move:
    """The steps of a move."""

    def __init__(self, settings: Settings, ladders: Ladders, file: DataFile) -> None:
        self._ladders, self._file = ladders, file
        self._settings = msgspec.structs.replace(settings, partitions=file.partitions)
        self._admin, self._store = Admin(self._settings), RedisStore(self._settings)
        self._topics = self._admin.topics
        self._partitions: Mapping[str, int] = {}
        """The number of partitions of each topic."""
        self._corrected = frozenset(file.ladder_log().corrections)
        """The ladders with corrections."""
        self.ends = file.ends()
        """The end of each partition of the rounds."""

    @property
    def place(self) -> str:
        """Where the data goes."""
        return f"{self._topics.rounds} on {self._settings.kafka}"

    @property
    def after_failure(self) -> str:
        """The cure for a failure before the file is marked."""
        return (
            f"{self._file.path} is as it was, and can be used on: delete the topics of "
            f"{self._settings.topic_prefix!r}, or name another {PREFIX}TOPIC_PREFIX, empty Redis, "
            "and run it again"
        )

    # --- 1 ---

    def check(self) -> None:
        """Check the file, the topics and Redis. Raises an error if one of them cannot be used."""
        file = self._file
        check_window(self._settings, file)
        check_kernel(file.meta("kernel") or KERNEL_VERSION)
        check_rounds_complete(file.starts())
        at = msgspec.structs.replace(self._settings, data=str(file.path))
        if why := disagreement(at, self._ladders, file.ladder_log()):
            raise BadConfiguration(f"{why}: nothing was moved")
        if behind := sum(file.behind()):
            raise Failed(
                f"{file.path}: {counted(behind, 'record')} not rated yet: let `stream-rater "
                f"standalone {file.path}` rate them, stop it, and run it again"
            )
        self._check_topics()
        self._store.prepare()
        check_idle(self._admin, self._settings)
        if not self._store.layout.is_unused():
            raise BadConfiguration(
                f"the Redis of {PREFIX}REDIS holds ratings: name another one, or empty it"
            )

    def _check_topics(self) -> None:
        """Raise BadConfiguration if a topic has or had records, or the rounds' topic another number
        of partitions than the file."""
        season_copies.check_unused(self._settings, self._admin)
        for name, count in self._admin.partitions().items():
            if any(self._admin.ends(name, count)):
                raise BadConfiguration(
                    f"topic {name} holds records, or once had some: name another "
                    f"{PREFIX}TOPIC_PREFIX, or delete the topics"
                )
            if name == self._topics.rounds and count != self._file.partitions:
                raise BadConfiguration(
                    f"topic {name} has {count} partitions, and {self._file.path} has "
                    f"{self._file.partitions}: delete it: it will be created as it must be"
                )

    # --- 2 ---

    def copy(self) -> None:
        """Fill the topics, and commit the offsets of the workers' groups."""
        admin, topics = self._admin, self._topics
        admin.create_topics()
        self._partitions = admin.check_topics()
        shards = self._partitions[topics.parts]
        for topic, records in (
            (topics.rounds, self._rounds()),
            (topics.changed, self._last_events(self._partitions[topics.changed])),
            (topics.ladder_events, self._ladder_events()),
        ):
            Copier(self._settings, topic).write(records)
        seasons = SeasonRows(self._file.path).all_records()
        season_copies.write_copies(self._settings, admin, seasons)
        admin.commit(ESTIMATORS, topics.rounds, dict(enumerate(self.ends)))
        admin.commit(UPDATERS, topics.parts, dict.fromkeys(range(shards), 0))

    def _rounds(self) -> Iterator[Record]:
        """Yield the accepted records, with empty ones in the places of the others."""
        verdicts = with_verdicts(
            self._validated, self._file.all_rounds, self._ladders, self._settings.duplicate_window,
            self._file.partitions,
        )  # fmt: skip
        accepted, rewriter = self._accepted(verdicts), LogRewriter(None)
        for batch in self._batches("copying rounds"):
            yield from rewriter.feed(batch, accepted.of(batch))

    def _validated(self, verdicts: Verdicts | None) -> Verdicts | None:
        """The verdicts, if they are all that the log needs. Raises MissingVerdicts."""
        accepted = self._accepted(verdicts)
        for batch in self._batches("rounds"):
            accepted.of(batch)
        return verdicts

    def _accepted(self, verdicts: Verdicts | None) -> AcceptedRecords:
        window = self._settings.duplicate_window
        return AcceptedRecords(self._ladders, window, self._file.partitions, verdicts)

    def _batches(self, label: str) -> Iterator[list[Record]]:
        records = track(self._file.all_rounds(), label, sum(self.ends))
        while batch := list(islice(records, AT_ONCE)):
            yield batch

    def _last_events(self, shards: int) -> Iterator[Record]:
        """Yield the last event of each player."""
        for shard in range(self._file.shards):
            last = {event.key: offset for offset, event in self._file.all_events(shard)}
            for offset, event in self._file.all_events(shard):
                if last[event.key] == offset:
                    player = rating_changed_from_json(event.value).player
                    home = int(shards_of([player], shards)[0])
                    yield Record(home, ANYWHERE, event.value, change_headers(event), key=event.key)

    def _ladder_events(self) -> Iterator[Record]:
        for message in self._file.ladder_events():
            yield Record(0, ANYWHERE, message)

    # --- 3 ---

    def rebuild(self) -> int:
        """Rebuild Redis from the topics. Returns the number of beliefs. Raises Failed if a belief
        differs from that in the file. Workers refuse this Redis until `release`."""
        before = self._digests(self._file.beliefs(), "beliefs in the file")
        rebuild_from_log(self._admin, self._settings, self._ladders, self._store, self._partitions)
        after = self._digests(self._store.beliefs(), "beliefs in Redis")
        found = difference(before, after)
        if found.first is not None:
            raise Failed(
                f"{found}: `stream-rater verify --data {self._file.path}` says whether the file "
                "was right"
            )
        check_idle(self._admin, self._settings)
        ends = self._admin.ends(self._topics.rounds, len(self.ends))
        if ends != self.ends:
            raise Failed(f"something else writes to {self._topics.rounds}: stop it")
        return len(after)

    def _digests(self, batches: Iterator[list[tuple[Player, bytes]]], label: str) -> Digests:
        found: Digests = {}
        for batch in track_batches(batches, label):
            found |= digests_of(batch, self._corrected)
        return found

    # --- 4 ---

    def release(self) -> None:
        """End the rebuild: workers may use Redis."""
        layout = layout_of(self._settings, self._admin, self._partitions)
        self._store.layout.end_rebuild(layout, KERNEL_VERSION)
        self._store.close()
