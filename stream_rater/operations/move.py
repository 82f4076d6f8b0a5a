"""`stream-rater move`: moves a data file, or the topics of another Kafka, to Kafka and Redis.

1. Check that nobody uses the old place, that all of it is rated, and that the topics and Redis of
   the new place are empty.
2. Mark Redis as half of a move, which all refuse. Copy each accepted record to its partition and
   offset, with an empty record in the place of each rejected one; the newest event of each player;
   and the ladder events, byte for byte. So all offsets stay as they are. A rejected record would be
   validated again otherwise, by the time when Kafka received it, and might be accepted.
3. Rebuild Redis from these topics, and compare beliefs and newest events with the old place.
4. Mark the old place as moved, so that no round is rated in two places. Then workers may use Redis.

The old place does not change before step 4. Until then it can be used on, or moved again.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path

import msgspec

from stream_rater.adapters.kafka.copier import ANYWHERE, Copier
from stream_rater.adapters.kafka.reader import read_all
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.reading import data_file
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.sharding import shards_of
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.events import rating_changed_from_json, shown
from stream_rater.contract.groups import UPDATERS
from stream_rater.contract.record import Player, Record
from stream_rater.operations import season_copies
from stream_rater.operations.corrected_rebuild import LastPublished, last_published
from stream_rater.operations.digests import difference, digests_of
from stream_rater.operations.lost_rounds import RoundLog
from stream_rater.operations.move_sources import FileSource, KafkaSource, MoveSource, as_records
from stream_rater.operations.rebuild import check_idle, rebuild_from_log
from stream_rater.operations.rewriting import AcceptedRecords, LogRewriter
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import Verdicts
from stream_rater.runtime import malloc, selfcheck
from stream_rater.runtime.failures import named_failures, with_cure
from stream_rater.runtime.progress import counted, track, track_batches
from stream_rater.runtime.service import layout_of

AT_ONCE = 5000
"""The number of records that are validated together."""


def move(settings: Settings, path: Path) -> None:
    """Move a data file to the Kafka and the Redis of the settings, whose topics must be new or
    empty. Raises BadConfiguration or Failed."""
    ladders = ladders_of_settings(settings)
    with (
        named_failures(),
        closing(Database.open_existing(path)) as database,
        data_file(str(path)) as file,
    ):
        _move(settings, ladders, FileSource(settings, database, file))


def move_from_kafka(settings: Settings, old: Settings) -> None:
    """Move the topics and the ratings of the settings `old` to those of `settings`, as `move`
    does."""
    if (old.kafka, old.topic_prefix) == (settings.kafka, settings.topic_prefix):
        raise BadConfiguration(
            f"--from: it names the topics of {settings.topic_prefix!r} on {settings.kafka}, as the "
            f"present settings do: name another {PREFIX}KAFKA or {PREFIX}TOPIC_PREFIX for the new "
            "place"
        )
    if old.redis == settings.redis:
        raise BadConfiguration(
            f"--from: it names the Redis of {PREFIX}REDIS: name another one for the new place, or "
            "another database of it"
        )
    if old.duplicate_window != settings.duplicate_window:
        raise BadConfiguration(
            f"--from: duplicate_window is {old.duplicate_window}, and {settings.duplicate_window} "
            "in the new place: which rounds are accepted depends on it: give both the same"
        )
    ladders = ladders_of_settings(settings)
    with named_failures():
        _move(settings, ladders, KafkaSource(old))


def _move(settings: Settings, ladders: Ladders, source: MoveSource) -> None:
    malloc.configure()
    selfcheck.check()
    work = Move(msgspec.structs.replace(settings, data=""), ladders, source)
    work.check()
    with with_cure(work.after_failure):
        work.copy()
        beliefs = work.rebuild()
    source.mark_moved(work.place)
    with with_cure(f"{source.name} is marked as moved: run `stream-rater rebuild --replace`"):
        work.release()
    print(
        f"{counted(sum(source.ends), 'record')} are in the topics and {counted(beliefs, 'belief')} "
        f"in Redis. These and each player's newest event are all equal to those in {source.name}, "
        "bit for bit. Next: start `stream-rater run`, and give game backends the new address"
    )


def _newest(events: Iterable[Record]) -> Mapping[Player, LastPublished]:
    """What the newest event of each player says: the one with the greatest `offset`, in whatever
    partition it is. `events`: records of `rating-changed`, in any order."""
    return last_published(rating_changed_from_json(each.value) for each in events if each.value)


class Move:
    """The steps of a move."""

    def __init__(self, settings: Settings, ladders: Ladders, source: MoveSource) -> None:
        self._ladders, self._source = ladders, source
        self._settings = msgspec.structs.replace(settings, partitions=len(source.ends))
        self._admin, self._store = Admin(self._settings), RedisStore(self._settings)
        self._topics = self._admin.topics
        self._partitions: Mapping[str, int] = {}
        """The number of partitions of each topic."""
        self._corrected: frozenset[str] = frozenset()
        """The ladders with corrections."""
        self._newest: Mapping[Player, LastPublished] = {}
        """What each player's newest event in the old place says."""

    @property
    def place(self) -> str:
        """Where the data goes."""
        return f"{self._topics.rounds} on {self._settings.kafka}"

    @property
    def after_failure(self) -> str:
        """The cure for a failure before the old place is marked."""
        return (
            f"{self._source.name} is as it was, and can be used on: delete the topics of "
            f"{self._settings.topic_prefix!r}, or name another {PREFIX}TOPIC_PREFIX, empty Redis, "
            "and run it again"
        )

    # --- 1 ---

    def check(self) -> None:
        """Check both places. Raises an error if one of them cannot be used."""
        self._source.check(self._ladders)
        self._corrected = frozenset(self._source.ladder_log().corrections)
        self._check_topics()
        self._store.prepare()
        check_idle(self._admin, self._settings)
        if not self._store.layout.is_unused():
            raise BadConfiguration(
                f"the Redis of {PREFIX}REDIS holds ratings: name another one, or empty it"
            )

    def _check_topics(self) -> None:
        """Raise BadConfiguration if a topic has or had records, or the rounds' topic another number
        of partitions than the old place."""
        season_copies.check_unused(self._settings, self._admin)
        for name, count in self._admin.partitions().items():
            if any(self._admin.ends(name, count)):
                raise BadConfiguration(
                    f"topic {name} holds records, or once had some: name another "
                    f"{PREFIX}TOPIC_PREFIX, or delete the topics"
                )
            if name == self._topics.rounds and count != len(self._source.ends):
                raise BadConfiguration(
                    f"topic {name} has {count} partitions, and {self._source.name} has "
                    f"{len(self._source.ends)}: delete it: it will be created as it must be"
                )

    # --- 2 ---

    def copy(self) -> None:
        """Fill the topics, and commit the offsets of the workers' groups."""
        admin, topics, source = self._admin, self._topics, self._source
        self._store.layout.mark_unfinished(source.name)
        admin.create_topics()
        self._partitions = admin.check_topics()
        shards = self._partitions[topics.parts]
        for topic, records in (
            (topics.rounds, self._rounds()),
            (topics.changed, self._newest_events(self._partitions[topics.changed])),
            (topics.ladder_events, as_records(source.ladder_events())),
        ):
            Copier(self._settings, topic).write(records)
        season_copies.write_copies(self._settings, admin, source.seasons())
        RoundLog(self._settings, admin).commit_finished(dict(enumerate(source.ends)))
        admin.commit(UPDATERS, topics.parts, dict.fromkeys(range(shards), 0))

    def _rounds(self) -> Iterator[Record]:
        """Yield the accepted records, with empty ones in the places of the others, and where the
        log has none."""
        verdicts = with_verdicts(
            self._validated, self._source.rounds, self._ladders, self._settings.duplicate_window,
            len(self._source.ends),
        )  # fmt: skip
        accepted, rewriter = self._accepted(verdicts), LogRewriter(None)
        for batch in self._batches("copying rounds"):
            yield from rewriter.feed(batch, accepted.of(batch))
        yield from rewriter.fill_to(dict(enumerate(self._source.ends)))

    def _newest_events(self, shards: int) -> Iterator[Record]:
        """Yield the newest event of each player, for a topic with so many partitions."""
        self._newest = _newest(self._source.events())
        for each in self._source.events():
            event = rating_changed_from_json(each.value) if each.value else None
            newest = event and self._newest.get((event.ladder, event.player))
            if event and newest and event.offset == newest.offset:
                home = int(shards_of([event.player], shards)[0])
                yield msgspec.structs.replace(each, partition=home, offset=ANYWHERE)

    def _validated(self, verdicts: Verdicts | None) -> Verdicts | None:
        """The verdicts, if they are all that the log needs. Raises MissingVerdicts."""
        accepted = self._accepted(verdicts)
        for batch in self._batches("rounds"):
            accepted.of(batch)
        return verdicts

    def _accepted(self, verdicts: Verdicts | None) -> AcceptedRecords:
        window = self._settings.duplicate_window
        return AcceptedRecords(self._ladders, window, len(self._source.ends), verdicts)

    def _batches(self, label: str) -> Iterator[list[Record]]:
        records = track(self._source.rounds(), label, sum(self._source.ends))
        while batch := list(islice(records, AT_ONCE)):
            yield batch

    # --- 3 ---

    def rebuild(self) -> int:
        """Rebuild Redis from the topics. Returns the number of beliefs. Raises Failed if a belief
        or a newest event differs from that in the old place. Workers refuse this Redis until
        `release`."""
        beliefs = track_batches(self._source.beliefs(), f"beliefs in {self._source.name}")
        before = digests_of(beliefs, self._corrected)
        rebuild_from_log(self._admin, self._settings, self._ladders, self._store, self._partitions)
        beliefs = track_batches(self._store.beliefs(), "beliefs in Redis")
        after = digests_of(beliefs, self._corrected)
        found = difference(before, after)
        if found.first is not None:
            raise Failed(
                f"{found}: `{self._source.verify_command}` says whether {self._source.name} was "
                "right"
            )
        topic = self._topics.changed
        published = _newest(read_all(self._settings, topic, self._partitions[topic]))
        for (ladder, player), _ in sorted(self._newest.items() ^ published.items()):
            raise Failed(
                f"{topic}: the newest event of ladder {shown(ladder)!r}, player {shown(player)!r} "
                f"is not that in {self._source.name}: does something else write to it?"
            )
        check_idle(self._admin, self._settings)
        ends = self._admin.ends(self._topics.rounds, len(self._source.ends))
        if ends != self._source.ends:
            raise Failed(f"something else writes to {self._topics.rounds}: stop it")
        self._source.check_unchanged()
        self._store.layout.mark_unfinished()
        return len(after)

    # --- 4 ---

    def release(self) -> None:
        """End the rebuild: workers may use Redis."""
        layout = layout_of(self._settings, self._admin, self._partitions)
        self._store.layout.end_rebuild(layout, KERNEL_VERSION)
        self._store.close()
