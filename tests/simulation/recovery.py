"""The operator's recovery after the store is lost: `rebuild` on the simulated log and store."""

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

from stream_rater.adapters.memory import Log, Store
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Player, Record
from stream_rater.operations import corrected_rebuild, rebuild_store
from stream_rater.operations import rebuild as command
from stream_rater.pipeline.parts import decoder
from stream_rater.pipeline.parts.schema import NotAPart, RebuildMark
from stream_rater.pipeline.same_history import lost_rounds
from tests.builders.memory_place import MemoryPlace

from .actors import NEXT_KERNEL, Machines
from .game import PARTITION_OF
from .world import StoreWithPast

Row = tuple[Player, int]  # a player and the source offset of a round


class GivenUp(Exception):
    """The command was stopped before its end."""


class RebuiltPlace(MemoryPlace):
    """The simulated log and store, which a rebuild writes to in steps."""

    def __init__(self, log: Log, store: StoreWithPast, window: int, steps: float) -> None:
        super().__init__(log, store, Settings(duplicate_window=window), self._step)
        self._left, self._marked = steps, False

    def _step(self, name: str) -> None:
        """Count a step. Raises GivenUp if none is left. Ladder events after marks are no steps."""
        self._marked |= name == "write_marks"
        if name == "drop_checkpoints" or (name == "note" and self._marked):
            return
        if self._left <= 0:
            raise GivenUp
        self._left -= 1

    def applied(self) -> Mapping[int, int | None]:
        """As committed; 0, as an operator commits, for a shard whose updater died before it did."""
        return {shard: offset or 0 for shard, offset in super().applied().items()}


def rebuild(
    log: Log, store: StoreWithPast, ladders: Ladders, window: int, machines: Machines,
    steps: float = math.inf,
) -> None:  # fmt: skip
    """Rebuild the store as the command does. Raises GivenUp after `steps` steps."""
    cutoff = machines.cutoff
    rules: dict[str, Any] = {"Closing": machines.closing}
    rules["Cutoff"] = partial(cutoff, kernel=NEXT_KERNEL)
    if not getattr(cutoff, "knows_published", True):
        rules["last_published"] = lambda *_: {}
    with ExitStack() as patches:
        patches.enter_context(patch.multiple(command, **rules))
        epochs = map(b"%d".__mod__, store.epochs)
        patches.enter_context(patch.object(rebuild_store, "new_epoch", epochs.__next__))
        if not getattr(cutoff, "restates", True):
            patches.enter_context(patch.object(corrected_rebuild, "to_restate", lambda *_: {}))
        command.rebuild_from_log(RebuiltPlace(log, store, window, steps), ladders, cores=1)
    for number, parts in enumerate(log.parts):
        store.forget_before(number, parts.start)


def has_lost(log: Log, partition: int) -> bool:
    """Whether a rebuild sees that a partition lost records."""
    place = MemoryPlace(log, Store())
    known = {p: each.offset for p, each in place.commits().items() if each and each.offset}
    return partition in lost_rounds(
        {p: each for p, each in place.commits().items() if each and p in known}, place.tails(known)
    )


def expire(log: Log, rng: random.Random) -> None:
    """Delete parts as retention does after days: those that are published, of committed rounds, and
    without a copy that was just sent. All parts of a shard stay while one that updaters ignore is
    not like that: its mark, without which a rebuild would count it, is older than it."""
    for number, shard in enumerate(log.parts):
        end = log.updaters.committed.get(number, 0)
        young = {row for record in shard[end:] for row in rows(record)}
        ignored = list(_ignored(shard[shard.start :], len(log.parts)))
        if any(each.offset >= end or not _is_done(each, log) for each in ignored):
            continue
        if any(row in young for each in ignored for row in rows(each)):
            continue
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
    """Delete committed offsets, as Kafka does after days without members. They are in `saved`."""
    faults["expired"] += bool(log.estimators.committed)
    saved |= log.estimators.committed
    log.estimators.committed.clear()


def restore_offsets(log: Log, saved: Mapping[int, int]) -> None:
    """Commit the saved offsets, as an operator does when estimators or a rebuild ask for them."""
    if any(shard.start for shard in log.parts):
        known = {p: saved.get(p, 0) for p in range(len(log.rounds))}
        log.estimators.committed = known | log.estimators.committed


def _ignored(records: Sequence[Record], shards: int) -> Iterator[Record]:
    """Yield the parts that updaters ignore: those cut for fewer shards, or of an older store."""
    epoch = None
    for each in records:
        try:
            part = decoder.read(each.value or b"", NEXT_KERNEL)
        except RebuildMark as found:
            epoch = found.mark.epoch
        except NotAPart:
            continue
        else:
            if part.shards < shards or (epoch is not None and part.epoch not in (None, epoch)):
                yield each


def rows(record: Record) -> list[Row]:
    """The players and rounds of a part, or the correction or seeds; empty if it is no part."""
    try:
        found = decoder.read(record.value or b"", NEXT_KERNEL).decoded
    except NotAPart:
        return []
    return list(zip(found.players, found.offset.tolist(), strict=True))
