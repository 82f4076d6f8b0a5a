"""`stream-rater erase`: writes the log again under a pseudonym, as a new generation of the topics.

1. Check that the erasure can be undone and its result compared (`erasure_checks`), and search the
   log for the player.
2. Copy the accepted records, the published ratings and the ladder events to the topics of the new
   prefix.
3. Rebuild the store from these topics, and compare each belief with the one before.
4. Write tombstones for the player, so that subscribers of the old topics see the erasure. Delete
   the old topics if the operator has asked for it.

The old topics do not change before step 4. If the command is interrupted before that,
`rebuild --replace` under the old prefix restores the old store.
"""

import secrets
from collections.abc import Iterator, Mapping
from functools import partial

import msgspec
from msgspec import structs

from stream_rater.adapters.kafka.copier import ANYWHERE, Copier, delete_topics
from stream_rater.adapters.kafka.reader import read_all, read_batches
from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.index_keys import drop_index
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.sharding import shards_of
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.events import rating_changed_from_json, shown
from stream_rater.contract.groups import UPDATERS
from stream_rater.contract.record import Record
from stream_rater.operations import erasure_checks, season_copies
from stream_rater.operations.digests import Digests, difference, digests_of
from stream_rater.operations.erasure_checks import Generation
from stream_rater.operations.lost_rounds import RoundLog
from stream_rater.operations.rebuild import rebuild_from_log
from stream_rater.operations.rewriting import AcceptedRecords, LogRewriter, Mentions, Pseudonym
from stream_rater.rating.record import UnknownRecord
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import Verdicts
from stream_rater.rounds.validation import id_mistake
from stream_rater.runtime import malloc, selfcheck
from stream_rater.runtime.failures import named_failures, with_cure
from stream_rater.runtime.progress import counted, track_batches
from stream_rater.runtime.service import layout_of

RANDOM_BYTES = 8
"""The number of random bytes in a pseudonym that the operator has not chosen."""

OUT_OF_REACH = (
    "out of reach, and to be done by hand: snapshots, backups and the append-only file of Redis; "
    "backups of Kafka; what subscribers have stored; logs. A game backend that reports the old id "
    "again makes a new player"
)


def erase(
    settings: Settings, player: str, prefix: str, name: str | None, *, delete_old: bool,
    dry_run: bool,
) -> None:  # fmt: skip
    """Replace a player's id by a pseudonym, in topics of another prefix.

    `prefix`: that of the new topics. `name`: the pseudonym; None chooses a random one. With
    `dry_run`, only report the records that name the player. Raises BadConfiguration or Failed.
    """
    pseudonym = pseudonym_of(player, name)
    if prefix == settings.topic_prefix:
        raise BadConfiguration(
            f"--to: {prefix!r} is the prefix of the present topics: name another one"
        )
    ladders = ladders_of_settings(settings)
    malloc.configure()
    with named_failures():
        selfcheck.check()
        work = Erasure(settings, prefix, ladders, pseudonym)
        work.check_topics()
        if not dry_run:
            work.check_idle()
        mentions = work.search()
        _announce(mentions, pseudonym, prefix)
        if dry_run:
            print("--dry-run: nothing was copied")
            return
        with with_cure(work.after_copying):
            work.copy(mentions)
        with with_cure(work.after_rebuilding):
            beliefs = work.rebuild()
        print(f"{counted(beliefs, 'belief')}, all equal to those before, bit for bit")
        with with_cure(work.after_all):
            work.conclude(delete_old=delete_old)
    print(OUT_OF_REACH)


def pseudonym_of(player: str, name: str | None) -> Pseudonym:
    """The pseudonym of a player: `name`, or a random one if it is None. Raises BadConfiguration."""
    if name is None:
        name = f"erased-{secrets.token_hex(RANDOM_BYTES)}"
    for what, each in (("PLAYER", player), ("--pseudonym", name)):
        try:
            mistake = id_mistake(each)
            each.encode()
        except UnicodeEncodeError:
            mistake = "not UTF-8"
        if mistake:
            raise BadConfiguration(f"{what}: bad-id: {mistake}: give the id of a player")
    if name == player:
        raise BadConfiguration(f"--pseudonym: {name!r} is the player's id: name another one")
    return Pseudonym(player, name)


def _offset_of(event: Record) -> int:
    return rating_changed_from_json(event.value).offset if event.value else -1


def _announce(mentions: Mentions, pseudonym: Pseudonym, prefix: str) -> None:
    """Print the numbers of records that name the player on standard output. Warn on standard error
    of places where the id stays."""
    print(
        f"player {shown(pseudonym.player)!r} is to be {shown(pseudonym.name)!r}: "
        f"{mentions} name the player"
    )
    print(
        f"of {counted(mentions.accepted + mentions.rejected, 'record')}, {mentions.rejected:,} "
        f"were rejected: they stay empty in the topics of {prefix!r}"
    )
    mentions.warn()


class Erasure:
    """The steps of an erasure."""

    def __init__(
        self, settings: Settings, prefix: str, ladders: Ladders, pseudonym: Pseudonym
    ) -> None:
        self._pseudonym = pseudonym
        self._ladders = ladders
        self._old = Generation(settings, Admin(settings))
        self._partitions = self._old.admin.check_topics()
        self._rounds, self._shards = (
            self._partitions[name] for name in (self._old.topics.rounds, self._old.topics.parts)
        )
        new_settings = msgspec.structs.replace(
            settings, topic_prefix=prefix, partitions=self._rounds, shards=self._shards
        )
        self._new = Generation(new_settings, Admin(new_settings))
        self._store = RedisStore(settings)
        self._ends: Mapping[int, int] = {}
        """By partition of the rounds, its end offset."""
        self._corrected: frozenset[str] = frozenset()
        """The ladders with corrections."""
        self._keys: dict[tuple[int, bytes | None], None] = {}
        """The partition and the key of each event of the player, each pair once."""

    # --- what to do after a failure ---

    @property
    def after_copying(self) -> str:
        """The cure for a failure while records are copied."""
        return (
            "the old topics and Redis are as they were: delete the topics of "
            f"{self._new.prefix!r}, or name another prefix, and run it again"
        )

    @property
    def after_rebuilding(self) -> str:
        """The cure for a failure while the store is rebuilt."""
        return (
            "the old topics are as they were: run `stream-rater rebuild --replace` with "
            f"{PREFIX}TOPIC_PREFIX={self._old.prefix!r} to have the ratings back"
        )

    @property
    def after_all(self) -> str:
        """The cure for a failure once only the old topics are left to do."""
        return f"all else is done, and the old topics hold the id: {self._next_step}"

    @property
    def _next_step(self) -> str:
        names = "|".join(self._old_names).replace(".", r"\.")
        return (
            f"give game backends, workers and subscribers {PREFIX}TOPIC_PREFIX="
            f"{self._new.prefix!r}, then run `kafka-topics.sh --bootstrap-server "
            f"{self._old.settings.kafka} --delete --topic '{names}'`"
        )

    @property
    def _old_names(self) -> list[str]:
        """The names of the old topics. The topic of past seasons need not exist."""
        seasons = topic_of(self._old.settings)
        exists = self._old.admin.partitions_if_any(seasons) is not None
        return [*self._old.topics.names, *([seasons] if exists else ())]

    # --- 1 ---

    def check_topics(self) -> None:
        """Check the new topics and the ladders file. Workers may run during this check. Raises
        BadConfiguration."""
        erasure_checks.check_free(self._new, self._old, self._partitions)
        season_copies.check_unused(self._new.settings, self._new.admin)
        self._corrected = erasure_checks.check_ladders(self._old, self._ladders)

    def check_idle(self) -> None:
        """Check that no worker runs, and that the store and the log have no unfinished work. Raises
        an error if one of these is not so."""
        store, old = self._store, self._old
        erasure_checks.check_idle(old, self._new)
        store.prepare()
        store.check_layout(layout_of(old.settings, old.admin, self._partitions))
        erasure_checks.check_kernel(store.layout.begun_by(KERNEL_VERSION))
        erasure_checks.check_deferred(old)
        season_copies.check_finished(old.settings, old.admin)
        self._ends = erasure_checks.check_drained(old, self._partitions)

    def search(self) -> Mentions:
        """Count the records in the log that name the player. Raises Failed if there are none, and
        BadConfiguration if the pseudonym is in use."""
        read_log = partial(read_all, self._old.settings, self._old.topics.rounds, self._rounds)
        window = self._old.settings.duplicate_window
        found = with_verdicts(self._count_mentions, read_log, self._ladders, window, self._rounds)
        erasure_checks.check_mentions(found, self._pseudonym)
        return found

    def _count_mentions(self, verdicts: Verdicts | None) -> Mentions:
        mentions, accepted = Mentions(verdicts), self._accepted(verdicts)
        for batch in self._read_topic(self._old.topics.rounds, self._rounds, "rounds"):
            mentions.read(batch, accepted.of(batch), self._pseudonym)
        return mentions

    def _accepted(self, verdicts: Verdicts | None) -> AcceptedRecords:
        window = self._old.settings.duplicate_window
        return AcceptedRecords(self._ladders, window, self._rounds, verdicts)

    def _read_topic(self, topic: str, partitions: int, label: str) -> Iterator[list[Record]]:
        """Yield all records of an old topic in batches, with a progress bar."""
        settings, admin = self._old.settings, self._old.admin
        total = sum(admin.ends(topic, partitions)) - sum(admin.starts(topic, partitions))
        return track_batches(read_batches(settings, topic, partitions), label, total)

    # --- 2 ---

    def copy(self, mentions: Mentions) -> None:
        """Fill the new topics, and commit the offsets of the workers' groups on them."""
        new = self._new
        new.admin.create_topics()
        erasure_checks.check_sizes(new, self._old)
        new.admin.check_topics()
        for topic, records in (
            (new.topics.rounds, self._rewritten(mentions)),
            (new.topics.changed, self._renamed_events()),
            (new.topics.ladder_events, self._renamed_ladder_events()),
        ):
            Copier(new.settings, topic).write(records)
        player, name = self._pseudonym.player, self._pseudonym.name
        seasons = season_copies.read_renamed(self._old.settings, self._old.admin, player, name)
        season_copies.write_copies(new.settings, new.admin, seasons)
        RoundLog(new.settings, new.admin).commit_finished(self._ends)
        new.admin.commit(UPDATERS, new.topics.parts, dict.fromkeys(range(self._shards), 0))
        self._check_quiet()

    def _rewritten(self, mentions: Mentions) -> Iterator[Record]:
        accepted, rewriter = self._accepted(mentions.verdicts), LogRewriter(self._pseudonym)
        for batch in self._read_topic(self._old.topics.rounds, self._rounds, "copying rounds"):
            yield from rewriter.feed(batch, accepted.of(batch))
        yield from rewriter.fill_to(self._ends)

    def _renamed_events(self) -> Iterator[Record]:
        """Yield the events under the new name, in which the player's newest ones come last: they
        come from several partitions into one, where compaction keeps the last of each ladder."""
        newest: dict[bytes | None, Record] = {}
        home = int(shards_of([self._pseudonym.name], self._shards)[0])
        for batch in self._read_topic(self._old.topics.changed, self._shards, "copying ratings"):
            for record in batch:
                copied = structs.replace(record, offset=ANYWHERE)
                if self._pseudonym.is_key(key := record.key):
                    self._keys[record.partition, key] = None
                    copied = structs.replace(self._pseudonym.event(copied), partition=home)
                    both = filter(None, (newest.get(key), copied))
                    *older, newest[key] = sorted(both, key=_offset_of)
                    yield from older
                else:
                    yield copied
        yield from newest.values()

    def _renamed_ladder_events(self) -> Iterator[Record]:
        for record in read_all(self._old.settings, self._old.topics.ladder_events, 1):
            for message in self._pseudonym.ladder_events(record.value or b""):
                yield Record(0, ANYWHERE, message)

    def _check_quiet(self) -> None:
        """Raise Failed if a worker has started or a record has arrived since `check_idle`."""
        erasure_checks.check_idle(self._old, self._new)
        erasure_checks.check_quiet(self._old, self._ends)

    # --- 3 ---

    def rebuild(self) -> int:
        """Rebuild the store from the new topics. Returns the number of beliefs. Raises Failed if
        a belief differs from the one before."""
        new, store = self._new, self._store
        before = self._digests("beliefs before")
        store.checkpoints.drop_all()  # they have the id, and seem to be of the new log
        drop_index(self._old.settings)  # it has the id, too, and is of the old topics
        rebuild_from_log(new.admin, new.settings, self._ladders, store, self._new_partitions)
        after = self._digests("beliefs after")
        erasure_checks.check_equal(difference(self._under_new_name(before), after), len(after))
        self._check_quiet()
        layout = layout_of(new.settings, new.admin, self._new_partitions)
        store.layout.end_rebuild(layout, KERNEL_VERSION)
        return len(after)

    @property
    def _new_partitions(self) -> dict[str, int]:
        names = zip(self._new.topics.names, self._old.topics.names, strict=True)
        return {new: self._partitions[old] for new, old in names}

    def _digests(self, label: str) -> Digests:
        try:
            return digests_of(track_batches(self._store.beliefs(), label), self._corrected)
        except UnknownRecord as error:
            raise Failed(str(error)) from None

    def _under_new_name(self, before: Digests) -> Digests:
        player, name = self._pseudonym.player, self._pseudonym.name
        return {(of, name if who == player else who): each for (of, who), each in before.items()}

    # --- 4 ---

    def conclude(self, *, delete_old: bool) -> None:
        """Write a tombstone for each of the player's keys to the old `rating-changed`. Then delete
        the old topics, or print how to delete them."""
        old = self._old
        tombstones = (Record(partition, ANYWHERE, None, key=key) for partition, key in self._keys)
        count = Copier(old.settings, old.topics.changed).write(tombstones)
        print(f"{old.topics.changed}: {counted(count, 'tombstone')} written for the player")
        if delete_old:
            names = self._old_names
            delete_topics(old.settings, names)
            print(f"deleted: {', '.join(names)}")
            print(
                "next: give game backends, workers and subscribers "
                f"{PREFIX}TOPIC_PREFIX={self._new.prefix!r}"
            )
        else:
            print(f"the old topics still hold the id. Next: {self._next_step}")
