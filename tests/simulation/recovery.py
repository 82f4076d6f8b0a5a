"""The operator's recovery after the store is lost: `rebuild` on the simulated log and store."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from stream_rater.adapters.memory import Log
from stream_rater.config.ladders import Ladders
from stream_rater.contract.events import RatingChanged, rating_changed_from_json
from stream_rater.contract.record import Player, Record, checksum
from stream_rater.operations.corrected_rebuild import (
    CorrectionTraces,
    corrected_ladders,
    editions,
    last_published,
    to_restate,
)
from stream_rater.operations.cutoff import Cutoff
from stream_rater.operations.lost_rounds import Closing, RoundLog, named_offsets
from stream_rater.operations.rebuild_store import (
    Rebuild,
    Rebuilds,
    fill_store,
    past_marks,
    tails_at,
)
from stream_rater.operations.torn_logs import Reached, reached
from stream_rater.pipeline.ladder_history import (
    encode_histories,
    encode_replayed,
    encode_restated_corrections,
)
from stream_rater.pipeline.parts import correction_parts, schema, seed_parts
from stream_rater.pipeline.parts.schema import NotAPart
from stream_rater.pipeline.ports import (
    UNFINISHED,
    Application,
    Event,
    Position,
    SourceCommit,
    SourceTail,
    Tails,
)
from stream_rater.replay.checkpoint import CheckpointHead, heads_in
from stream_rater.replay.ledger import verdicts_of_log

from .actors import NEXT_KERNEL, Machines
from .game import PARTITION_OF
from .world import StoreWithPast

Row = tuple[Player, int]  # a player and the source offset of a round


class GivenUp(Exception):
    """The command was stopped before its end."""


class SimulatedRounds(RoundLog):
    """The simulated log, for `lost_rounds`."""

    def __init__(self, log: Log, step: Callable[[], None]) -> None:
        self.log = log
        self.step = step  # before each change

    def ends(self) -> Sequence[int]:
        return list(map(len, self.log.rounds))

    def append(self, records: Iterable[Record]) -> None:
        self.step()
        for each in records:
            self.log.submit(each.partition, each.value)

    def commit(self, offsets: Mapping[int, int], tails: Tails) -> None:
        self.step()
        self.log.estimators.committed |= offsets
        self.log.estimators.tails |= tails

    def commit_finished(self, offsets: Mapping[int, int]) -> None:
        last = {p: self.log.rounds[p][offset - 1] for p, offset in offsets.items()}
        self.commit(offsets, {p: checksum(each.value) for p, each in last.items()})

    def rejected(self) -> Iterator[tuple[int, int]]:
        return iter(self.log.after_rejected())

    def seasons(self) -> Iterator[tuple[str, int]]:
        return iter(())

    def publish(self, events: Iterable[Event]) -> None:
        self.step()
        for each in events:
            self.log.changed[each.shard].append(each)


def rebuild(
    log: Log, store: StoreWithPast, ladders: Ladders, window: int, machines: Machines,
    steps: float = math.inf,
) -> None:  # fmt: skip
    """Rebuild the store with the command's own functions. Raises GivenUp after `steps` steps."""
    ends, cutoff_of = itertools.count(), machines.cutoff

    def step() -> None:
        if next(ends) >= steps:
            raise GivenUp

    def write(calls: Mapping[int, Application]) -> dict[int, bool]:
        step()
        return {s: store.apply(s, each) for s, each in calls.items()}

    def begin() -> bytes:
        step()
        store.beliefs.clear()
        epoch = b"%d" % next(store.epochs)
        for shard in range(shards):
            store.positions[shard] = Position(UNFINISHED, UNFINISHED, epoch=epoch)
        return epoch

    shards, before = len(log.parts), _reached(log)
    applied = dict(before.applied)
    notes = log.read()
    cutoff = cutoff_of(
        applied, before.sent, shards, NEXT_KERNEL, everything=before.is_torn,
        replayed=notes.replayed, lost=before.lost,
    )  # fmt: skip
    for parts in log.parts:
        cutoff.add(parts[parts.start :])
    cutoff.check()
    all_published = [rating_changed_from_json(e.value) for shard in log.changed for e in shard]
    if any(shard.start for shard in log.parts):
        cutoff.add_published(all_published)
    closing: Closing | None = None
    if before.lost:
        newest, rounds = last_published(all_published), SimulatedRounds(log, step)
        reach = named_offsets(_committed(log), cutoff, newest, notes, _heads(store), rounds)
        closing = machines.closing(before.lost, rounds, ladders, newest, reach)
        cutoff.replay_to(closing.close(begin))
        store.checkpoints.clear()
        store.pieces.clear()
    if before.is_torn:
        step()
        log.write(encode_replayed([cutoff.sent(p) for p in range(len(log.rounds))]))
    work = _replayed(log, ladders, window, cutoff, all_published)

    step()
    marks = {shard: log.append_part(shard, schema.mark(shards)) for shard in range(shards)}
    moved = past_marks(applied, marks)
    step()
    log.updaters.committed |= moved
    applied |= moved
    epoch = begin()
    fill_store(work.beliefs(), applied, marks, tails_at(marks, moved, cutoff), epoch, write)
    if closing is not None:
        beliefs = [list(each.items()) for each in store.beliefs.values()]
        closing.publish(beliefs, work.verdicts, shards, cutoff.sent)
        closing.release()
    log.write(encode_histories("restated", {each: ladders.history(each) for each in work.ladders}))
    if getattr(cutoff, "restates", True):
        again = partial(itertools.chain.from_iterable, log.rounds)
        validate_all = partial(verdicts_of_log, again, ladders, window, len(log.rounds))
        saved = log.read().corrections
        log.write(encode_restated_corrections(to_restate(work.verdicts, saved, validate_all)))
    for number, parts in enumerate(log.parts):
        store.forget_before(number, parts.start)


def _replayed(
    log: Log, ladders: Ladders, window: int, cutoff: Cutoff, all_published: Sequence[RatingChanged]
) -> Rebuilds:
    again = partial(itertools.chain.from_iterable, log.rounds)
    found = editions(again, ladders, window, len(log.rounds), cutoff)
    corrected = corrected_ladders(found[0].verdicts, cutoff)
    knows = getattr(cutoff, "knows_published", True)
    published = last_published(all_published, corrected.__contains__) if knows else {}
    works = [
        Rebuild(
            ladders, window, len(log.rounds), cutoff, each.verdicts,
            CorrectionTraces(published, cutoff, each, ladders),
        )
        for each in found
    ]  # fmt: skip
    for records, one in itertools.product(log.rounds, works):
        one.feed(records)
    return Rebuilds(works, found[0].verdicts)


def _heads(store: StoreWithPast) -> Iterator[tuple[str, CheckpointHead]]:
    for ladder, some in store.checkpoints.items():
        yield from ((ladder, head) for head in heads_in(some))


def _committed(log: Log) -> dict[int, SourceCommit | None]:
    return {
        p: SourceCommit(offset, log.estimators.tails.get(p)) if offset is not None else None
        for p in range(len(log.rounds))
        for offset in [log.estimators.committed.get(p)]
    }


def _reached(log: Log) -> Reached:
    committed, found = _committed(log), {}
    for p, each in committed.items():
        if each is not None and each.offset:
            last = log.rounds[p][each.offset - 1 : each.offset]
            found[p] = SourceTail(len(log.rounds[p]), checksum(last[0].value) if last else None)
    applied = {shard: log.updaters.committed.get(shard) for shard in range(len(log.parts))}
    return reached(applied, list(map(len, log.parts)), committed, found)


def has_lost(log: Log, partition: int) -> bool:
    """Whether a rebuild sees that a partition lost records."""
    return partition in _reached(log).lost


def expire(log: Log, rng: random.Random) -> None:
    """Delete parts as retention does: only parts that were applied and published, of committed
    rounds, without a copy sent a moment ago, as is true of parts that are days old. A mark is not
    deleted while a part behind it waits, or is of a round that is not committed, that was cut for
    fewer shards than the mark names."""
    for number, shard in enumerate(log.parts):
        end = log.updaters.committed.get(number, 0)
        few = (each for each in shard[shard.start :] if _cut_for(each) < len(log.parts))
        if any(each.offset >= end or not _is_done(each, log) for each in few):
            continue
        young = {row for record in shard[end:] for row in rows(record)}
        start = shard.start
        while start < end and all(
            row not in young and row[1] < log.estimators.committed.get(PARTITION_OF[row[0][0]], 0)
            for row in rows(shard[start])
        ):
            start += 1
        shard.start = rng.randint(shard.start, start)


def _is_done(record: Record, log: Log) -> bool:
    committed = log.estimators.committed
    return all(o < committed.get(PARTITION_OF[who[0]], 0) for who, o in rows(record))


def forget_offsets(log: Log, faults: Counter[str], saved: dict[int, int]) -> None:
    """Delete the offsets, as Kafka does if a group had no member for days. An operator has
    saved them."""
    faults["expired"] += bool(log.estimators.committed)
    saved |= log.estimators.committed
    log.estimators.committed.clear()


def restore_offsets(log: Log, saved: Mapping[int, int]) -> None:
    """Commit the saved offsets, as an operator does when estimators or a rebuild ask for them."""
    if any(shard.start for shard in log.parts):
        known = {p: saved.get(p, 0) for p in range(len(log.rounds))}
        log.estimators.committed = known | log.estimators.committed


def _cut_for(record: Record) -> float:
    """The number of shards that a part was cut for; any number if it is no part."""
    try:
        value = record.value or b""
        if correction_parts.is_correction(value):
            return correction_parts.decode(value, NEXT_KERNEL).shards
        if seed_parts.is_seeded(value):
            return seed_parts.decode(value, NEXT_KERNEL).shards
        return schema.decode(value, NEXT_KERNEL).shards
    except NotAPart:
        return math.inf


def rows(record: Record) -> list[Row]:
    """The players and rounds of a part, or the correction or seeds; empty if it is no part."""
    try:
        if seed_parts.is_seeded(record.value or b""):
            seeded = seed_parts.decode(record.value or b"", NEXT_KERNEL)
            return list(zip(seeded.column, seeded.offset.tolist(), strict=True))
        if correction_parts.is_correction(record.value or b""):
            corrected = correction_parts.decode(record.value or b"", NEXT_KERNEL)
            return [((corrected.ladder, each), corrected.offset) for each in corrected.players]
        part = schema.decode(record.value or b"", NEXT_KERNEL)
    except NotAPart:
        return []
    offsets = [part.rounds[i].offset for i in part.round_index.tolist()]
    ladders = [part.rounds[i].ladder for i in part.round_index.tolist()]
    return list(zip(zip(ladders, part.players, strict=True), offsets, strict=True))
