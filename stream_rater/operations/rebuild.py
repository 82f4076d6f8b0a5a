"""`stream-rater rebuild`: rebuilds the store from the log."""

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from stream_rater.adapters.kafka.ladder_events import LadderEvents, disagreement, read_ladder_events
from stream_rater.adapters.kafka.producers import PartsProducer
from stream_rater.adapters.kafka.reader import KafkaRounds, read_all, read_batches, source_tails
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import TEMPLATE, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged, rating_changed_from_json
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from stream_rater.contract.record import Player, Record
from stream_rater.operations import corrected_rebuild, rebuild_store
from stream_rater.operations.cutoff import Cutoff, Misplaced
from stream_rater.operations.lost_rounds import MOST_FILLERS, Closing, RoundLog, named_offsets
from stream_rater.operations.torn_logs import reached
from stream_rater.pipeline import ladder_history
from stream_rater.pipeline.parts.schema import UnknownPart, mark
from stream_rater.pipeline.ports import SourceCommit
from stream_rater.replay.checkpoint import heads_in
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.replay.corrected import verdicts_of_log
from stream_rater.replay.edited_log import MissingVerdicts
from stream_rater.replay.log_reading import LogReader
from stream_rater.runtime import malloc, selfcheck
from stream_rater.runtime.failures import named_failures
from stream_rater.runtime.progress import advancing, counted, track_batches
from stream_rater.runtime.service import layout_of

MOST_AHEAD = 4
"""The number of batches that are read, or encoded, ahead."""


def rebuild(
    settings: Settings, *, replace: bool, cores: int | None = None, fill: int | None = None
) -> None:
    """Replay the log into the store, which must be empty unless `replace` is given. `cores`: how
    many to use; None: all. `fill`: the most records that are appended to a partition that lost
    some; None: MOST_FILLERS. Raises BadConfiguration or Failed."""
    ladders = ladders_of_settings(settings)
    began_s = time.monotonic()
    malloc.configure()
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
            raise BadConfiguration("the store holds ratings: give --replace to rebuild it")
        if not replace and (
            why := disagreement(settings, ladders, read_ladder_events(settings, admin))
        ):
            raise BadConfiguration(
                f"{why}, or give --replace to rate all rounds again by other parameters"
            )
        work = rebuild_from_log(admin, settings, ladders, store, partitions, cores, fill)
        store.layout.end_rebuild(layout, KERNEL_VERSION)
        store.close()
    report(work, began_s)


def report(work: rebuild_store.Rebuilds, began_s: float) -> None:
    """Print what a rebuild did. `began_s`: when it began, monotonic seconds."""
    if work.unproven:
        print(f"warning: {unproven_warning(work.unproven)}", file=sys.stderr)
    took_s = time.monotonic() - began_s
    print(
        f"{work.rounds} rounds replayed, {work.written} beliefs written in {took_s:.1f} s "
        f"({work.updates / took_s:,.0f} updates a second)"
    )


def unproven_warning(offsets: Collection[int]) -> str:
    """The warning about pending parts whose evidence differs from the replay's, with the cure.
    `offsets`: the offsets of their rounds, at least one."""
    return (
        f"parts of {counted(len(offsets), 'round')}, the first at offset {min(offsets)}, wait to "
        "be applied, and were computed from other beliefs or by other parameters than these: start "
        "the workers, wait until `stream-rater verify` compares, stop them, and run `stream-rater "
        "rebuild --replace` once more"
    )


def rebuild_from_log(
    admin: Admin, settings: Settings, ladders: Ladders, store: RedisStore,
    partitions: Mapping[str, int], cores: int | None = None, fill: int | None = None,
) -> rebuild_store.Rebuilds:  # fmt: skip
    """Rebuild the store from the log. Then write ladder events with the parameter histories and the
    corrections of this replay. The store stays marked as unfinished. `cores`, `fill`: as in
    `rebuild`. Raises Failed."""
    try:
        work = _rebuild(admin, settings, ladders, store, partitions, Cores.of(cores), fill)
    except (UnknownPart, Misplaced, rebuild_store.StoreInUse) as error:
        raise Failed(str(error)) from None
    log, rounds = LadderEvents(settings, admin), admin.topics.rounds
    read_log = partial(read_all, settings, rounds, partitions[rounds])
    restate(log, work, ladders, read_log, settings.duplicate_window, partitions[rounds])
    log.close()
    return work


def restate(
    log: ladder_history.LadderEventLog, work: rebuild_store.Rebuilds, ladders: Ladders,
    read_log: Callable[[], Iterable[Record]],
    window: int, partitions: int,
) -> None:  # fmt: skip
    """Write ladder events with the parameter histories and the corrections of a replay."""
    named = (each for each in ladders.ladders if each != TEMPLATE)
    ladder_log = log.read()
    every = dict.fromkeys((*work.ladders, *named, *ladder_log.recorded))
    history = ladders.by_table(ladders.history)
    log.write(
        ladder_history.encode_histories("restated", {ladder: history(ladder) for ladder in every})
    )
    validate_all = partial(verdicts_of_log, read_log, ladders, window, partitions)
    log.write(
        ladder_history.encode_restated_corrections(
            corrected_rebuild.to_restate(work.verdicts, ladder_log.corrections, validate_all)
        )
    )


def _rebuild(
    admin: Admin, settings: Settings, ladders: Ladders, store: RedisStore,
    partitions: Mapping[str, int], cores: Cores, fill: int | None,
) -> rebuild_store.Rebuilds:  # fmt: skip
    """Read all topics, mark the shards, and replace the contents of the store.

    Nothing changes before the marks are written, unless the rounds lost records (`lost_rounds`).
    From then on workers refuse the store, until a rebuild has run to its end. Only after the marks
    are the store's contents deleted.
    """
    rounds, parts = admin.topics.rounds, admin.topics.parts
    shards = partitions[parts]
    of_updaters = admin.committed(UPDATERS, parts, shards)
    of_estimators = admin.source_commits(ESTIMATORS, rounds, partitions[rounds])
    parts_start, ends = admin.starts(parts, shards), admin.ends(parts, shards)
    known = {p: each.offset for p, each in of_estimators.items() if each and each.offset}
    found = reached(of_updaters, ends, of_estimators, source_tails(settings, admin, known))
    # `applied` is g of each shard (`cutoff`), and later the offset after the mark.
    applied = dict(found.applied)
    check_parts_complete(parts_start, applied)
    check_rounds_complete(admin.starts(rounds, partitions[rounds]))
    check_committed(of_estimators, admin.ends(rounds, partitions[rounds]), parts_start)
    if found.warning:
        print(f"warning: {found.warning}", file=sys.stderr)
    notes = LadderEvents(settings, admin)
    recorded = notes.read()
    cutoff = Cutoff(
        applied, found.sent, shards, everything=found.is_torn, replayed=recorded.replayed,
        lost=found.lost,
    )  # fmt: skip
    for batch in read_topic(admin, settings, parts, shards, "parts", cores):
        cutoff.add(batch)
    cutoff.check()
    if any(parts_start):
        cutoff.add_published(_published(admin, settings))
    check_published(of_updaters, cutoff.with_parts)
    begin = partial(store.layout.begin_rebuild, shards)
    closing: Closing | None = None
    if found.lost:
        closing = _closing(
            admin, settings, ladders, store, found.lost, of_estimators, cutoff, recorded
        )
        closing.check(fill or MOST_FILLERS)
        check_idle(admin, settings)
        cutoff.replay_to(closing.close(begin))
        store.checkpoints.drop_all()  # they may be of lost rounds
    if found.is_torn:
        replayed_to = [cutoff.sent(p) for p in range(partitions[rounds])]
        notes.write(ladder_history.encode_replayed(replayed_to))
    notes.close()
    work = _replayed(admin, settings, ladders, partitions[rounds], cutoff, cores)
    check_idle(admin, settings)
    marks = _write_marks(settings, parts, shards)
    check_quiet(marks, ends)
    moved = rebuild_store.past_marks(applied, marks)
    admin.commit(UPDATERS, parts, moved)
    applied |= moved
    tails = rebuild_store.tails_at(applied, moved, cutoff)
    epoch = begin()
    check_idle(admin, settings)
    beliefs = track_batches(cores.ahead(work.beliefs(), MOST_AHEAD), "beliefs")
    rebuild_store.fill_store(beliefs, applied, marks, tails, epoch, store.apply)
    if _committed(admin, UPDATERS, parts, shards) != applied:
        why = "workers ran while the store was being rebuilt: stop them, run it again"
        raise rebuild_store.StoreInUse(why)
    if closing is not None:  # last: until then, another rebuild sees what this one saw
        closing.publish(store.beliefs(), work.verdicts, shards, cutoff.sent)
        closing.release()
    return work


def _closing(
    admin: Admin, settings: Settings, ladders: Ladders, store: RedisStore, lost: Collection[int],
    committed: Mapping[int, SourceCommit | None], cutoff: Cutoff, notes: ladder_history.LadderLog,
) -> Closing:  # fmt: skip
    """What closes the partitions that lost records. Nothing is changed yet."""
    log = RoundLog(settings, admin)
    newest = log.newest(lambda _: True)
    known = {*notes.ladders, *notes.corrections}
    heads = ((of, head) for of in known for head in heads_in(store.checkpoints.heads(of)))
    reach = named_offsets(committed, cutoff, newest, notes, heads, log)
    return Closing(lost, log, ladders, newest, reach)


def _replayed(
    admin: Admin, settings: Settings, ladders: Ladders, partitions: int, cutoff: Cutoff,
    cores: Cores,
) -> rebuild_store.Rebuilds:  # fmt: skip
    """Replay all rounds on Kafka."""
    rounds = admin.topics.rounds
    ends = dict(enumerate(admin.ends(rounds, partitions)))
    return replayed(
        LogReader(KafkaRounds(settings, rounds), ends), RoundLog(settings, admin).newest,
        ladders, settings.duplicate_window, partitions, cutoff, cores,
    )  # fmt: skip


def replayed(
    log: LogReader, newest: Callable[[Callable[[str], bool]], Mapping[Player,
    corrected_rebuild.LastPublished]],
    ladders: Ladders, window: int, partitions: int, cutoff: Cutoff, cores: Cores = ONE_CORE,
) -> rebuild_store.Rebuilds:  # fmt: skip
    """Replay all rounds, as the applied corrections edit them. `newest`: returns what was last
    published of each player of the wanted ladders."""

    def run(work: rebuild_store.Rebuild, label: str) -> rebuild_store.Rebuild:
        with advancing(label, log.total) as advance:
            work.run(log, advance)
        return work

    with suppress(MissingVerdicts):
        work = rebuild_store.Rebuild(ladders, window, partitions, cutoff, cores=cores)
        return rebuild_store.Rebuilds([run(work, "rounds")])
    rebuilds = list[rebuild_store.Rebuild]()
    published: Mapping[Player, corrected_rebuild.LastPublished] = {}
    found = corrected_rebuild.editions(log.records, ladders, window, partitions, cutoff)
    for each in found:
        if (
            corrected := corrected_rebuild.corrected_ladders(each.verdicts, cutoff)
        ) and not published:
            published = newest(corrected.__contains__)
        traces = corrected_rebuild.CorrectionTraces(published, cutoff, each, ladders)
        work = rebuild_store.Rebuild(
            ladders, window, partitions, cutoff, each.verdicts, traces, cores
        )
        rebuilds.append(run(work, "corrected rounds"))
    return rebuild_store.Rebuilds(rebuilds, found[0].verdicts)


def _published(admin: Admin, settings: Settings) -> Iterator[RatingChanged]:
    """Yield each published event."""
    topic = admin.topics.changed
    (count,) = admin.partitions_of(topic)
    for batch in read_topic(admin, settings, topic, count, "ratings"):
        yield from (rating_changed_from_json(each.value) for each in batch if each.value)


def _write_marks(settings: Settings, topic: str, shards: int) -> dict[int, int]:
    """Write a mark of the rebuild to each shard's log. Returns the offset of the mark by shard.

    From now on, workers refuse the store as it was, and any copy of it.
    """
    marks = PartsProducer(settings, topic).scatter(
        [(shard, mark(shards)) for shard in range(shards)]
    )
    return dict(enumerate(marks))


def read_topic(
    admin: Admin, settings: Settings, topic: str, partitions: int, label: str,
    cores: Cores = ONE_CORE,
) -> Iterator[list[Record]]:  # fmt: skip
    """Yield all records of a topic in batches, with a progress bar."""
    total = sum(admin.ends(topic, partitions)) - sum(admin.starts(topic, partitions))
    batches = cores.ahead(read_batches(settings, topic, partitions), MOST_AHEAD)
    return track_batches(batches, label, total)


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


def check_parts_complete(starts: Sequence[int], applied: Mapping[int, int]) -> None:
    """Raise Failed if parts were deleted before their events were published. `starts`: the first
    offset of each shard. `applied`: by shard, the updaters' committed offset."""
    if at := {s: start for s, start in enumerate(starts) if start > applied[s]}:
        each = (f"shard {s} starts at {at[s]}, after the committed offset {applied[s]}" for s in at)
        raise Failed(
            f"{', '.join(each)}: commit {', '.join(map(str, at.values()))} for the updaters' group "
            "to continue without the events in between"
        )


def check_quiet(marks: Mapping[int, int], ends: Sequence[int]) -> None:
    """Raise StoreInUse if a record was written to a shard between the last record that was read and
    the mark. `ends`: the end offset of each shard when it was read."""
    for shard, offset in marks.items():
        if offset != ends[shard]:
            raise rebuild_store.StoreInUse(
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


def check_rounds_complete(starts: Sequence[int]) -> None:
    """Raise Failed if rounds were deleted: a replay of the remaining rounds would give other
    ratings. `starts`: the first offset of each partition."""
    for partition, start in enumerate(starts):
        if start > 0:
            raise Failed(
                f"partition {partition} of the rounds starts at {start}: the rounds before it were "
                "deleted, and ratings cannot be computed without them: restore a snapshot of "
                "Redis, or begin with another topic_prefix and submit the rounds there"
            )


def check_committed(
    finished: Mapping[int, SourceCommit | None], ends: Sequence[int], parts_start: Sequence[int]
) -> None:
    """Raise Failed if parts were deleted, and a partition with rounds has no committed offset. Then
    only the estimators' offsets show which rounds were rated.

    `finished`: what is committed for each partition, or None. `ends`: the end offset of each
    partition. `parts_start`: the first offset of each shard.
    """
    for partition, commit in finished.items():
        if commit is None and ends[partition] and any(parts_start):
            raise Failed(
                f"partition {partition} of the rounds has no committed offset any more (Kafka's "
                "offsets.retention.minutes), and parts were deleted, so it is unknown which rounds "
                "were rated: for the estimators' group, commit the offset after the last rated "
                "round"
            )
