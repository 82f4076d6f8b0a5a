"""`stream-rater rebuild`: the store anew from the log."""

import time

from stream_rater import warm
from stream_rater.adapters.reader import read_all
from stream_rater.adapters.redis import RedisStore
from stream_rater.adapters.topics import Admin
from stream_rater.commands import named_failures
from stream_rater.config import BadConfiguration, Settings, service_ladders
from stream_rater.lab.rebuild import InUse, Misplaced, Reach, Rebuild, fill
from stream_rater.pipeline.parts import UnknownPart
from stream_rater.pipeline.ports import LogTrouble
from stream_rater.rating.compiled import KERNEL_VERSION
from stream_rater.service import ESTIMATORS, UPDATERS, layout_of
from stream_rater.terminal import Failed, track

SLACK_S = 5.0
"""How much longer than a transaction's time-out its end is waited for."""


def rebuild(settings: Settings, *, replace: bool) -> None:
    """Replay the log into an empty store, or with `replace` into any."""
    ladders = service_ladders(settings)
    began_s = time.monotonic()
    with named_failures():
        warm.check()
        admin = Admin(settings)
        partitions = admin.check_topics()
        store = RedisStore(settings)
        store.prepare()
        _check_idle(admin, settings)
        layout = layout_of(settings, admin, partitions)
        store.layout.check_rebuildable(layout)
        if not (replace or store.layout.is_empty()):
            raise BadConfiguration("the store holds ratings: give --replace to rebuild it anew")
        rounds, parts = admin.topics.rounds, admin.topics.parts
        shards = partitions[parts]
        applied = _committed(admin, settings, UPDATERS, parts, shards)
        scattered = _committed(admin, settings, ESTIMATORS, rounds, partitions[rounds])
        _check_kept(admin.starts(parts, shards), applied)
        reach = Reach(applied, scattered, shards)
        try:
            for part in track(read_all(settings, parts, shards), "parts"):
                reach.note(part)
            work = Rebuild(ladders, settings.duplicate_window, reach, partitions[rounds])
            for record in track(read_all(settings, rounds, partitions[rounds]), "rounds"):
                work.feed(record)
            beliefs = list(work.beliefs())
            store.layout.begin_rebuild(shards)
            _check_idle(admin, settings)
            fill(track(beliefs, "beliefs", len(beliefs)), applied, shards, store.apply)
            if _committed(admin, settings, UPDATERS, parts, shards) != applied:
                raise InUse(
                    "workers ran while the store was being rebuilt: stop them, run it again"
                )
        except (UnknownPart, Misplaced, InUse) as error:
            raise Failed(str(error)) from None
        store.agree({ladder: ladders.history(ladder) for ladder in work.ladders})
        store.layout.end_rebuild(layout, KERNEL_VERSION)
        store.close()
    took_s = time.monotonic() - began_s
    print(
        f"{work.rounds} rounds replayed, {len(beliefs)} beliefs written in {took_s:.1f} s "
        f"({work.updates / took_s:,.0f} updates a second)"
    )


def _check_idle(admin: Admin, settings: Settings) -> None:
    for group in (ESTIMATORS, UPDATERS):
        members = admin.members(group)
        if members:
            raise Failed(
                f"{members} workers are in the group {settings.topic_prefix}{group}: stop them "
                f"first (one that was killed leaves after {settings.session_timeout_ms} ms)"
            )


def _committed(
    admin: Admin, settings: Settings, group: str, topic: str, partitions: int
) -> dict[int, int]:
    """Stable offsets: a transaction that a dead worker left open is waited for."""
    deadline_s = time.monotonic() + settings.transaction_timeout_ms / 1000.0 + SLACK_S
    while True:
        try:
            found = admin.committed(group, topic, partitions)
        except LogTrouble:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.5)
        else:
            return {partition: offset or 0 for partition, offset in found.items()}


def _check_kept(starts: list[int], applied: dict[int, int]) -> None:
    """Parts that were never published must still be there."""
    for shard, start in enumerate(starts):
        if start > applied[shard]:
            raise Failed(
                f"shard {shard} starts at {start}, after the committed offset {applied[shard]}: "
                f"commit {start} for it to go on without the events in between"
            )
