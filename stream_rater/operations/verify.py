"""`stream-rater verify`: compares the store with a replay of the log."""

import sys
import time

from stream_rater.adapters.kafka.ladder_events import disagreement, read_ladder_events
from stream_rater.adapters.kafka.reader import read_all
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.settings import Settings
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from stream_rater.operations.compare_store import Verdict, compare
from stream_rater.runtime.failures import named_failures
from stream_rater.runtime.progress import SHOWN_LINES, counted, rejections, track


def verify(settings: Settings, wait_s: float) -> str:
    """Compare the store with a sequential replay of the log. Returns a line with the counts.

    `wait_s`: how long to wait until the workers have caught up. Raises Failed if beliefs differ,
    BadConfiguration if the ladders file or the duplicate window is not that of the workers.
    """
    ladders = ladders_of_settings(settings)
    with named_failures():
        admin, store = Admin(settings), RedisStore(settings)
        rounds, shards = admin.partitions_of(admin.topics.rounds, admin.topics.parts)
        begun_by = store.layout.begun_by(KERNEL_VERSION)  # fails at once where Redis is down
        store.layout.check_window(settings.duplicate_window)
        if why := disagreement(settings, ladders, read_ladder_events(settings, admin)):
            raise BadConfiguration(f"{why}: nothing was compared")
        _wait_until_caught_up(admin, rounds, shards, wait_s)
        verdict = compare(
            lambda: track(read_all(settings, admin.topics.rounds, rounds), "rounds"),
            ladders,
            settings.duplicate_window,
            rounds,
            shards,
            store.read,
        )
        surplus = store.count_beliefs() - verdict.beliefs + len(verdict.missing)
    return _report(verdict, surplus, begun_by)


def _wait_until_caught_up(admin: Admin, rounds: int, shards: int, wait_s: float) -> None:
    deadline_s = time.monotonic() + wait_s
    topics, announced = admin.topics, False
    while True:
        to_estimate = admin.behind(ESTIMATORS, topics.rounds, rounds)
        to_apply = admin.behind(UPDATERS, topics.parts, shards)
        behind = to_estimate + to_apply
        if behind == 0:
            return
        for role, group, left in (
            ("estimator", ESTIMATORS, to_estimate), ("updater", UPDATERS, to_apply),
        ):  # fmt: skip
            if left and not admin.members(group):
                raise Failed(
                    f"{counted(left, 'record')} of an {role}'s work left, and no worker with this "
                    "role runs: start one (`stream-rater run`): nothing was compared"
                )
        if time.monotonic() > deadline_s:
            raise Failed(
                f"the workers are {counted(behind, 'record')} behind: nothing was compared"
            )
        if not announced:
            print(
                f"waiting for the workers, which are {counted(behind, 'record')} behind, "
                f"for {wait_s:g} s at most",
                file=sys.stderr,
            )
            announced = True
        time.sleep(0.2)


def _report(verdict: Verdict, surplus: int, begun_by: int) -> str:
    """A line with the counts. Prints the first players whose beliefs are missing or differ. Raises
    Failed if there are any, or if the store has beliefs that the log does not explain."""
    for name, players in (("missing", verdict.missing), ("different", verdict.differing)):
        for ladder, player in players[:SHOWN_LINES]:
            print(f"{name}: ladder {ladder!r}, player {player!r}", file=sys.stderr)
    done = (
        f"{verdict.rounds} rounds replayed, {rejections(verdict.rejected)}, "
        f"{verdict.beliefs} beliefs compared"
    )
    if not verdict.equal or surplus:
        raise Failed(
            f"{done}: {len(verdict.missing)} missing, {len(verdict.differing)} different, "
            f"{surplus} that the log does not explain{_other_kernels(begun_by)}"
        )
    return f"{done}: all equal, bit for bit"


def _other_kernels(begun_by: int) -> str:
    """A hint if the ratings go back to the kernels of another release; else empty."""
    if begun_by == KERNEL_VERSION:
        return ""
    return (
        f" (ratings go back to kernel version {begun_by}, this release has {KERNEL_VERSION}: "
        "`stream-rater rebuild --replace` computes all of them again)"
    )
