"""`stream-rater rebuild`: computes the ratings of a place again from its log. For a data file, they
are computed in a copy, which replaces the file once they are compared with a replay of the log."""

import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from stream_rater import places
from stream_rater.config.errors import BadConfiguration, Failed, named_failures
from stream_rater.config.ladders import TEMPLATE, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged, rating_changed_from_json
from stream_rater.contract.record import Player, checksum
from stream_rater.operations import corrected_rebuild, rebuild_store, verify
from stream_rater.operations.corrected_rebuild import LastPublished, last_published
from stream_rater.operations.cutoff import Cutoff, Misplaced
from stream_rater.operations.lost_rounds import MOST_FILLERS, Closing, named_offsets, reached
from stream_rater.pipeline import ladder_history
from stream_rater.pipeline.parts.schema import UnknownPart, mark
from stream_rater.pipeline.ports import SourceCommit
from stream_rater.places import checks
from stream_rater.places.port import Place
from stream_rater.replay.checkpoint import heads_in
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.replay.edited_log import MissingVerdicts
from stream_rater.replay.ledger import verdicts_of_log
from stream_rater.runtime import selfcheck, startup
from stream_rater.runtime.progress import advancing, counted, track, track_batches

MOST_AHEAD = 4  # The number of batches that are read, or encoded, ahead.


def rebuild(
    settings: Settings, *, replace: bool, cores: int | None = None, fill: int | None = None
) -> None:
    """Replay the log into a place, which must have no ratings unless `replace` is given. `cores`:
    the number of cores; None: all. `fill`: the most records that are appended to a partition that
    lost some; None: MOST_FILLERS. Raises BadConfiguration or Failed."""
    ladders = places.ladders_of(settings)
    began_s = time.monotonic()
    startup.configure()
    with named_failures():
        selfcheck.check()
        check = partial(_check_new, ladders, replace)
        with places.opened(settings, writes=True) as place, place.rebuilding(check) as target:
            work = rebuild_from_log(target, ladders, cores, fill)
            if target is not place:
                _compare(target, place.name, ladders, cores)
    if work.unproven:
        print(f"warning: {unproven_warning(work.unproven)}", file=sys.stderr)
    took_s = time.monotonic() - began_s
    print(
        f"{work.rounds} rounds replayed, {work.written} beliefs written in {took_s:.1f} s "
        f"({work.updates / took_s:,.0f} updates a second)"
    )


def _check_new(ladders: Ladders, replace: bool, place: Place) -> None:
    """Unless `replace`, raise BadConfiguration for ratings, or for another ladders file."""
    if replace:
        return
    if ratings := place.ratings():
        raise BadConfiguration(f"{ratings} holds ratings: give --replace to rebuild them")
    if why := checks.disagreement(place, ladders, place.ladder_log()):
        other = "or give --replace to rate all rounds again by other parameters"
        raise BadConfiguration(f"{why}, {other}")


def _compare(copy: Place, name: str, ladders: Ladders, cores: int | None) -> None:
    """Compare a rebuilt file's ratings with a replay of its log, if all of that is rated."""
    done = copy.progress()
    behind = sum(copy.ends()) - sum(done.rated) + sum(done.part_ends) - sum(done.applied)
    if not behind:
        with copy.at_rest(0.0) as instant:  # what was written lately is read once
            verify.compared_with_replay(instant, ladders, cores=cores)
        return
    print(
        f"{name}: {counted(behind, 'record')} not rated yet, so the ratings were not "
        "compared: run `stream-rater verify` after the next start",
        file=sys.stderr,
    )


def unproven_warning(offsets: Collection[int]) -> str:
    """The warning about pending parts with other evidence. `offsets`: those of their rounds."""
    return (
        f"parts of {counted(len(offsets), 'round')}, the first at offset {min(offsets)}, wait to "
        "be applied, and were computed from other beliefs or by other parameters than these: start "
        "the workers, wait until `stream-rater verify` compares, stop them, and run `stream-rater "
        "rebuild --replace` once more"
    )


def rebuild_from_log(
    place: Place, ladders: Ladders, cores: int | None = None, fill: int | None = None
) -> rebuild_store.Rebuilds:
    """Rebuild the beliefs from the log. Then write ladder events with the parameter histories and
    the corrections of this replay. The beliefs stay marked as unfinished. Raises Failed."""
    try:
        work = _rebuild(place, ladders, Cores.of(cores), fill or MOST_FILLERS)
    except (UnknownPart, Misplaced, rebuild_store.StoreInUse) as error:
        raise Failed(str(error)) from None
    named = (each for each in ladders.ladders if each != TEMPLATE)
    ladder_log = place.ladder_log()
    every = dict.fromkeys((*work.ladders, *named, *ladder_log.recorded))
    history = ladders.by_table(ladders.history)
    place.note(
        ladder_history.encode_histories("restated", {ladder: history(ladder) for ladder in every})
    )
    window = place.settings.duplicate_window
    validate_all = partial(verdicts_of_log, place.all_rounds, ladders, window, place.partitions)
    place.note(
        ladder_history.encode_restated_corrections(
            corrected_rebuild.to_restate(work.verdicts, ladder_log.corrections, validate_all)
        )
    )
    return work


def _rebuild(place: Place, ladders: Ladders, cores: Cores, fill: int) -> rebuild_store.Rebuilds:
    """Read the whole log, mark the shards, and replace the beliefs. Nothing changes before the
    marks are written, unless the rounds lost records (`lost_rounds`). From the marks on, workers
    refuse the beliefs until a rebuild has run to its end. Only after the marks are the old beliefs
    deleted."""
    of_updaters, of_estimators = place.applied(), place.commits()
    parts_start, ends = place.part_bounds()
    known = {p: each.offset for p, each in of_estimators.items() if each and each.offset}
    found = reached(of_updaters, ends, of_estimators, place.tails(known))
    # `applied` is g of each shard (`cutoff`), and later the offset after the mark.
    applied = dict(found.applied)
    check_parts_complete(parts_start, applied)
    place.check_complete()
    check_committed(of_estimators, place.ends(), parts_start)
    if found.warning:
        print(f"warning: {found.warning}", file=sys.stderr)
    recorded = place.ladder_log()
    cutoff = Cutoff(
        applied, found.sent, len(ends), everything=found.is_torn, replayed=recorded.replayed,
        lost=found.lost,
    )  # fmt: skip
    parts = cores.ahead(place.parts(), MOST_AHEAD)
    for batch in track_batches(parts, "parts", sum(ends) - sum(parts_start)):
        cutoff.add(batch)
    cutoff.check()
    if any(parts_start):
        cutoff.add_published(_published(place))
    check_published(of_updaters, cutoff.with_parts)
    closing: Closing | None = None
    if found.lost:
        closing = _closing(place, ladders, found.lost, of_estimators, cutoff, recorded)
        closing.check(fill)
        place.check_idle()
        cutoff.replay_to(closing.close())
        place.drop_checkpoints()  # they may be of lost rounds
    if found.is_torn:
        replayed_to = [cutoff.sent(p) for p in range(place.partitions)]
        place.note(ladder_history.encode_replayed(replayed_to))
    work = replayed(place, ladders, cutoff, cores)
    place.check_idle()
    epoch = rebuild_store.new_epoch()
    marks_sent = [mark(len(ends), epoch, applied[shard]) for shard in range(len(ends))]
    marks = place.write_marks(marks_sent)
    check_quiet(marks, ends)
    moved = rebuild_store.past_marks(applied, marks)
    place.commit_parts(moved)
    applied |= moved
    tails = cutoff.tails | {shard: checksum(marks_sent[shard]) for shard in moved}
    place.begin_rebuild(epoch)
    place.check_idle()
    beliefs = track_batches(cores.ahead(work.beliefs(), MOST_AHEAD), "beliefs")
    rebuild_store.fill_store(beliefs, applied, marks, tails, epoch, place.apply)
    if {shard: offset or 0 for shard, offset in place.applied().items()} != applied:
        why = "workers ran while the store was being rebuilt: stop them, run it again"
        raise rebuild_store.StoreInUse(why)
    if closing is not None:  # last: until then, another rebuild sees what this one saw
        closing.publish(work.verdicts, cutoff.sent)
        closing.release()
    return work


def _closing(
    place: Place, ladders: Ladders, lost: Collection[int],
    committed: Mapping[int, SourceCommit | None], cutoff: Cutoff, notes: ladder_history.LadderLog,
) -> Closing:  # fmt: skip
    """What closes the partitions that lost records. Nothing is changed yet."""
    newest = last_published(_published(place))
    known = {*notes.ladders, *notes.corrections}
    heads = ((of, head) for of in known for head in heads_in(place.heads(of)))
    reach = named_offsets(committed, cutoff, newest, notes, heads, place)
    return Closing(lost, place, ladders, newest, reach)


def _published(place: Place) -> Iterator[RatingChanged]:
    """Yield each published event. An event without a value is left out: its player was erased."""
    for each in track(place.events(), "ratings"):
        if each.value:
            yield rating_changed_from_json(each.value)


def replayed(
    place: Place, ladders: Ladders, cutoff: Cutoff, cores: Cores = ONE_CORE
) -> rebuild_store.Rebuilds:
    """Replay all rounds, as the applied corrections edit them."""
    log, window, partitions = place.log_reader(), place.settings.duplicate_window, place.partitions

    def run(work: rebuild_store.Rebuild, label: str) -> rebuild_store.Rebuild:
        with advancing(label, log.total) as advance:
            work.run(log, advance)
        return work

    with suppress(MissingVerdicts):
        work = rebuild_store.Rebuild(ladders, window, partitions, cutoff, cores=cores)
        return rebuild_store.Rebuilds([run(work, "rounds")])
    rebuilds = list[rebuild_store.Rebuild]()
    published: Mapping[Player, LastPublished] = {}
    found = corrected_rebuild.editions(log.records, ladders, window, partitions, cutoff)
    for each in found:
        corrected = corrected_rebuild.corrected_ladders(each.verdicts, cutoff)
        if corrected and not published:
            published = last_published(_published(place), corrected.__contains__)
        traces = corrected_rebuild.CorrectionTraces(published, cutoff, each, ladders)
        work = rebuild_store.Rebuild(
            ladders, window, partitions, cutoff, each.verdicts, traces, cores
        )
        rebuilds.append(run(work, "corrected rounds"))
    return rebuild_store.Rebuilds(rebuilds, found[0].verdicts)


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
    the mark. `ends`: the end of each shard when it was read."""
    for shard, offset in marks.items():
        if offset != ends[shard]:
            raise rebuild_store.StoreInUse(
                f"something wrote to shard {shard} while it was read, perhaps a worker that was "
                "paused: run it again"
            )


def check_published(published: Mapping[int, int | None], with_parts: Collection[int]) -> None:
    """Raise Failed if a shard with parts has no committed offset (None). The updaters publish all
    events after this offset; without it they would publish some a second time."""
    for shard, offset in published.items():
        if offset is None and shard in with_parts:
            raise Failed(
                f"shard {shard} has no committed offset any more (Kafka's "
                "offsets.retention.minutes), so it is unknown which of its events were published: "
                "for the updaters' group, commit the offset after the last part whose events were "
                "published, or 0 if none were published"
            )


def check_committed(
    finished: Mapping[int, SourceCommit | None], ends: Sequence[int], parts_start: Sequence[int]
) -> None:
    """Raise Failed if parts were deleted, and a partition with rounds has no committed offset
    (None): without parts, only this offset shows which rounds were rated."""
    for partition, commit in finished.items():
        if commit is None and ends[partition] and any(parts_start):
            raise Failed(
                f"partition {partition} of the rounds has no committed offset any more (Kafka's "
                "offsets.retention.minutes), and parts were deleted, so it is unknown which rounds "
                "were rated: for the estimators' group, commit the offset after the last rated "
                "round"
            )
