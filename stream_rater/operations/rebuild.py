"""`stream-rater rebuild`: rebuilds the store from the log."""

import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from stream_rater.adapters.kafka.ladder_events import LadderEvents, disagreement, noted_ladders
from stream_rater.adapters.kafka.producers import Parts
from stream_rater.adapters.kafka.reader import read_all, read_batches
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import service_ladders
from stream_rater.config.ladders import TEMPLATE, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from stream_rater.contract.record import Player, Record
from stream_rater.operations.corrected_rebuild import (
    LastPublished,
    Marks,
    editions,
    last_published,
    to_restate,
)
from stream_rater.operations.cutoff import Cutoff, Misplaced
from stream_rater.operations.rebuild_store import InUse, Rebuild, Rebuilds, fill, passed, tails_at
from stream_rater.pipeline.ladder_history import notes, restated_corrections
from stream_rater.pipeline.parts.schema import UnknownPart, mark
from stream_rater.replay.corrected import judged
from stream_rater.replay.edited_log import Unjudged
from stream_rater.runtime import malloc, selfcheck
from stream_rater.runtime.failures import named_failures
from stream_rater.runtime.progress import counted, track_batches
from stream_rater.runtime.service import layout_of


def rebuild(settings: Settings, *, replace: bool) -> None:
    """Replay the log into the store, which must be empty unless `replace` is given. Raises
    BadConfiguration or Failed."""
    ladders = service_ladders(settings)
    began_s = time.monotonic()
    malloc.keep()
    with named_failures():
        selfcheck.check()
        admin = Admin(settings)
        admin.create_topics()
        partitions = admin.check_topics()
        layout = layout_of(settings, admin, partitions)
        store = RedisStore(settings)
        store.prepare()
        check_idle(admin, settings)
        store.layout.check_rebuildable(layout)
        if not (replace or store.layout.is_empty()):
            raise BadConfiguration("the store holds ratings: give --replace to rebuild it anew")
        if not replace and (why := disagreement(settings, ladders, noted_ladders(settings, admin))):
            raise BadConfiguration(
                f"{why}, or give --replace to rate all rounds again by other parameters"
            )
        work = write_anew(admin, settings, ladders, store, partitions)
        store.layout.end_rebuild(layout, KERNEL_VERSION)
        store.close()
    if work.unproven:
        print(f"warning: {unproven(work.unproven)}", file=sys.stderr)
    took_s = time.monotonic() - began_s
    print(
        f"{work.rounds} rounds replayed, {work.written} beliefs written in {took_s:.1f} s "
        f"({work.updates / took_s:,.0f} updates a second)"
    )


def unproven(offsets: Collection[int]) -> str:
    """The warning about pending parts whose evidence differs from the replay's, with the cure.
    `offsets`: the offsets of their rounds, at least one."""
    return (
        f"parts of {counted(len(offsets), 'round')}, the first at offset {min(offsets)}, wait to "
        "be applied, and were computed from other beliefs or by other parameters than these: start "
        "the workers, wait until `stream-rater verify` compares, stop them, and run `stream-rater "
        "rebuild --replace` once more"
    )


def write_anew(
    admin: Admin, settings: Settings, ladders: Ladders, store: RedisStore,
    partitions: Mapping[str, int],
) -> Rebuilds:  # fmt: skip
    """Rebuild the store from the log. Then write ladder events with the parameter histories and the
    corrections of this replay. The store stays marked as unfinished. Raises Failed."""
    try:
        work = _rebuild(admin, settings, ladders, store, partitions)
    except (UnknownPart, Misplaced, InUse) as error:
        raise Failed(str(error)) from None
    log = LadderEvents(settings, admin)
    named = (each for each in ladders.ladders if each != TEMPLATE)
    noted = log.read()
    every = dict.fromkeys((*work.ladders, *named, *noted.ladders))
    log.write(notes("restated", {ladder: ladders.history(ladder) for ladder in every}))
    rounds = admin.topics.rounds
    again = partial(read_all, settings, rounds, partitions[rounds])
    judge_all = partial(judged, again, ladders, settings.duplicate_window, partitions[rounds])
    log.write(restated_corrections(to_restate(work.verdicts, noted.corrections, judge_all)))
    log.close()
    return work


def _rebuild(
    admin: Admin, settings: Settings, ladders: Ladders, store: RedisStore,
    partitions: Mapping[str, int],
) -> Rebuilds:  # fmt: skip
    """Read all topics, mark the shards, and replace the contents of the store.

    Nothing changes before the marks are written. From then on workers refuse the store, until a
    rebuild has run to its end. Only after the marks are the store's contents deleted.
    """
    rounds, parts = admin.topics.rounds, admin.topics.parts
    shards = partitions[parts]
    of_updaters = admin.committed(UPDATERS, parts, shards)
    # `applied` is g of each shard (`cutoff`), and later the offset after the mark.
    applied = {shard: offset or 0 for shard, offset in of_updaters.items()}
    of_estimators = admin.committed(ESTIMATORS, rounds, partitions[rounds])
    parts_start = admin.starts(parts, shards)
    check_kept(parts_start, applied)
    check_rounds_kept(admin.starts(rounds, partitions[rounds]))
    check_remembered(of_estimators, admin.ends(rounds, partitions[rounds]), parts_start)
    scattered = {partition: offset or 0 for partition, offset in of_estimators.items()}
    reach, ends = Cutoff(applied, scattered, shards), admin.ends(parts, shards)
    for some in _all(admin, settings, parts, shards, "parts"):
        reach.note(some)
    reach.check()
    if any(parts_start):
        reach.note_published(_published(admin, settings))
    check_published(of_updaters, reach.with_parts)
    work = _replayed(admin, settings, ladders, partitions[rounds], reach)
    check_idle(admin, settings)
    marks = _mark(settings, parts, shards)
    check_quiet(marks, ends)
    moved = passed(applied, marks)
    admin.commit(UPDATERS, parts, moved)
    applied |= moved
    tails = tails_at(applied, moved, reach)
    epoch = store.layout.begin_rebuild(shards)
    check_idle(admin, settings)
    fill(track_batches(work.beliefs(), "beliefs"), applied, marks, tails, epoch, store.apply)
    if _committed(admin, UPDATERS, parts, shards) != applied:
        raise InUse("workers ran while the store was being rebuilt: stop them, run it again")
    return work


def _replayed(
    admin: Admin, settings: Settings, ladders: Ladders, partitions: int, reach: Cutoff
) -> Rebuilds:
    """Replay all rounds, as the applied corrections edit them."""
    rounds, window = admin.topics.rounds, settings.duplicate_window

    def fed(work: Rebuild, label: str) -> Rebuild:
        for some in _all(admin, settings, rounds, partitions, label):
            work.feed(some)
        return work

    try:
        return Rebuilds([fed(Rebuild(ladders, window, partitions, reach), "rounds")])
    except Unjudged:
        again = partial(read_all, settings, rounds, partitions)
    works = list[Rebuild]()
    told: Mapping[Player, LastPublished] = {}
    found = editions(again, ladders, window, partitions, reach)
    for each in found:
        told = told or _told(admin, settings, each.verdicts.edits)
        marks = Marks(told, reach, each, ladders)
        work = Rebuild(ladders, window, partitions, reach, each.verdicts, marks)
        works.append(fed(work, "corrected rounds"))
    return Rebuilds(works, found[0].verdicts)


def _told(
    admin: Admin, settings: Settings, ladders: Collection[str]
) -> Mapping[Player, LastPublished]:
    """The last published mu and sigma of the players of ladders with corrections. Records without a
    value are skipped: their players were erased."""
    if not ladders:
        return {}
    topic = admin.topics.changed
    (count,) = admin.partitions_of(topic)
    values = (each.value for each in read_all(settings, topic, count))
    return last_published(map(rating_changed_from_json, filter(None, values)), ladders)


def _published(admin: Admin, settings: Settings) -> Iterator[tuple[Player, int]]:
    """Yield the player and the source offset of each published event."""
    topic = admin.topics.changed
    (count,) = admin.partitions_of(topic)
    for some in _all(admin, settings, topic, count, "ratings"):
        for each in some:
            if each.value:
                told = _published_from_json(each.value)
                yield (told.ladder, told.player), told.offset


class Published(msgspec.Struct):
    """The fields of an event that a rebuild needs."""

    ladder: str
    player: str
    offset: int


_published_from_json = msgspec.json.Decoder(Published).decode


def _mark(settings: Settings, topic: str, shards: int) -> dict[int, int]:
    """Write a mark of the rebuild to each shard's log. Returns the offset of the mark by shard.

    From now on, workers refuse the store as it was, and any copy of it.
    """
    marks = Parts(settings, topic).scatter([(shard, mark(shards)) for shard in range(shards)])
    return dict(enumerate(marks))


def _all(
    admin: Admin, settings: Settings, topic: str, partitions: int, label: str
) -> Iterator[list[Record]]:
    """Yield all records of a topic in batches, with a progress bar."""
    total = sum(admin.ends(topic, partitions)) - sum(admin.starts(topic, partitions))
    return track_batches(read_batches(settings, topic, partitions), label, total)


def check_idle(admin: Admin, settings: Settings) -> None:
    """Raise Failed if a worker is in the group of the estimators or of the updaters."""
    for group in (ESTIMATORS, UPDATERS):
        members = admin.members(group)
        if members:
            raise Failed(
                f"{members} workers are in the group {settings.topic_prefix}{group}: stop them "
                f"first (one that was killed leaves after {settings.session_timeout_ms} ms)"
            )


def _committed(admin: Admin, group: str, topic: str, partitions: int) -> dict[int, int]:
    """The committed offset of a group by partition; 0 where nothing was committed."""
    found = admin.committed(group, topic, partitions)
    return {partition: offset or 0 for partition, offset in found.items()}


def check_kept(starts: Sequence[int], applied: Mapping[int, int]) -> None:
    """Raise Failed if parts were deleted before their events were published. `starts`: the first
    offset of each shard. `applied`: by shard, the updaters' committed offset."""
    for shard, start in enumerate(starts):
        if start > applied[shard]:
            raise Failed(
                f"shard {shard} starts at {start}, after the committed offset {applied[shard]}: "
                f"commit {start} for the updaters' group to continue without the events in between"
            )


def check_quiet(marks: Mapping[int, int], ends: Sequence[int]) -> None:
    """Raise InUse if a record was written to a shard between the last record that was read and the
    mark. `ends`: the end offset of each shard when it was read."""
    for shard, offset in marks.items():
        if offset != ends[shard]:
            raise InUse(
                f"something wrote to shard {shard} while it was read, perhaps a worker that was "
                "paused: run it again"
            )


def check_published(published: Mapping[int, int | None], with_parts: Collection[int]) -> None:
    """Raise Failed if a shard with parts has no committed offset. The updaters publish all events
    after this offset, so without it some events may be published a second time.

    `published`: the committed offset of each shard, or None.
    """
    for shard, offset in published.items():
        if offset is None and shard in with_parts:
            raise Failed(
                f"shard {shard} has no committed offset any more (Kafka's "
                "offsets.retention.minutes), so it is unknown which of its events were published: "
                "for the updaters' group, commit the offset after the last part whose events were "
                "published, or 0 if none were published"
            )


def check_rounds_kept(starts: Sequence[int]) -> None:
    """Raise Failed if rounds were deleted: a replay of the remaining rounds would give other
    ratings. `starts`: the first offset of each partition."""
    for partition, start in enumerate(starts):
        if start > 0:
            raise Failed(
                f"partition {partition} of the rounds starts at {start}: the rounds before it were "
                "deleted, and ratings cannot be computed without them: restore a snapshot of "
                "Redis, or begin with another topic_prefix and submit the rounds there"
            )


def check_remembered(
    finished: Mapping[int, int | None], ends: Sequence[int], parts_start: Sequence[int]
) -> None:
    """Raise Failed if parts were deleted, and a partition with rounds has no committed offset. Then
    only the estimators' offsets show which rounds were rated.

    `finished`: the committed offset of each partition, or None. `ends`: the end offset of each
    partition. `parts_start`: the first offset of each shard.
    """
    for partition, offset in finished.items():
        if offset is None and ends[partition] and any(parts_start):
            raise Failed(
                f"partition {partition} of the rounds has no committed offset any more (Kafka's "
                "offsets.retention.minutes), and parts were deleted, so it is unknown which rounds "
                "were rated: for the estimators' group, commit the offset after the last rated "
                "round"
            )
