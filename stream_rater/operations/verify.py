"""`stream-rater verify`: compares the store with a replay of the log."""

import sys
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from stream_rater.adapters.kafka.ladder_events import disagreement, read_ladder_events
from stream_rater.adapters.kafka.reader import KafkaRounds
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.adapters.sqlite.names import holder_of
from stream_rater.adapters.sqlite.reading import DataFile, data_file, frozen
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from stream_rater.operations.compare_store import Verdict, compare
from stream_rater.operations.rebuild import check_rounds_complete
from stream_rater.operations.sample import Sample
from stream_rater.operations.unfinished import UnfinishedRounds, check_not_torn
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.replay.cores import Cores
from stream_rater.replay.log_reading import LogReader
from stream_rater.runtime.failures import named_failures
from stream_rater.runtime.progress import SHOWN_LINES, counted, rejections

LOOK_S = 0.2
"""The longest time between two looks at how far the process of a data file is."""


class Options(NamedTuple):
    """How much is compared, and on how many cores."""

    sample: float | None = None
    """The share of the ladders that are replayed and compared; None: all of them."""
    cores: int | None = None
    """The number of cores; None: all."""


ALL = Options()


def verify(settings: Settings, wait_s: float, options: Options = ALL) -> str:
    """Compare the store with a sequential replay of the log. Returns a line with the counts.

    `wait_s`: how long to wait until the workers have caught up. Raises Failed if beliefs differ,
    BadConfiguration if the ladders file or the duplicate window is not that of the workers.
    """
    ladders = ladders_of_settings(settings)
    if settings.data:
        with named_failures(), data_file(settings.data) as file:
            return verify_file(settings, ladders, file, wait_s, options)
    with named_failures():
        admin, store = Admin(settings), RedisStore(settings)
        topic = admin.topics.rounds
        rounds, shards = admin.partitions_of(topic, admin.topics.parts)
        begun_by = store.layout.begun_by(KERNEL_VERSION)  # fails at once where Redis is down
        store.layout.check_window(settings.duplicate_window)
        known = read_ladder_events(settings, admin)
        if why := disagreement(settings, ladders, known):
            raise BadConfiguration(f"{why}: nothing was compared")
        check_not_torn(settings, admin, rounds)
        check_rounds_complete(admin.starts(topic, rounds))
        _wait_until_caught_up(settings, admin, rounds, shards, wait_s)
        ends = dict(enumerate(admin.ends(topic, rounds)))
        sample = _sample_of(options, known)
        verdict = compare(
            LogReader(KafkaRounds(settings, topic), _of_sample(ends, sample)), ladders,
            settings.duplicate_window, rounds, shards, store.read,
            cores=Cores.of(options.cores), only=sample and sample.ladders,
        )  # fmt: skip
        return _counted(verdict, store.count_beliefs, sample, sum(ends.values()), begun_by)


def _sample_of(options: Options, known: LadderLog) -> Sample | None:
    return None if options.sample is None else Sample.of(options.sample, known.ladders)


def _of_sample(ends: Mapping[int, int], sample: Sample | None) -> Mapping[int, int]:
    """The ends of the partitions that have ladders of the sample."""
    if sample is None:
        return ends
    own = {partition_of(ladder, len(ends)) for ladder in sample.ladders}
    return {partition: end for partition, end in ends.items() if partition in own}


def _counted(
    verdict: Verdict, count: Callable[[Collection[str] | None], int], sample: Sample | None,
    records: int, begun_by: int,
) -> str:  # fmt: skip
    """A line with the counts, as `_report`. `count` counts the beliefs of these ladders, or all.
    `records`: the number of records in the whole log."""
    own = count(sample and sample.ladders)
    surplus = own - verdict.beliefs + len(verdict.missing)
    done = _report(verdict, surplus, begun_by)
    return done if sample is None else f"{done}. {sample.described(own, count(None), records)}"


def verify_file(
    settings: Settings, ladders: Ladders, file: DataFile, wait_s: float, options: Options = ALL
) -> str:
    """`verify` for a data file. Log and store are read as they were at one instant."""
    check_window(settings, file)
    deadline_s, announced = time.monotonic() + wait_s, False
    while True:
        if not (behind := sum(file.behind())):
            with frozen(file) as instant:
                if not (behind := sum(instant.behind())):
                    return compared_with_replay(settings, ladders, instant, options)
        if not announced and (holder := holder_of(file.path)):
            print(f"waiting for {holder}, which is {counted(behind, 'record')} behind, for "
                  f"{wait_s:g} s at most", file=sys.stderr)  # fmt: skip
            announced = True
        if not announced or time.monotonic() > deadline_s:
            raise Failed(
                f"{file.path}: {counted(behind, 'record')} not rated yet: let `stream-rater "
                f"standalone {file.path}` rate them: nothing was compared"
            )
        file.await_change(LOOK_S)


def check_window(settings: Settings, file: DataFile) -> None:
    """Raise BadConfiguration if a data file was begun with another duplicate window."""
    stored = file.meta("duplicate_window")
    if stored not in (None, settings.duplicate_window):
        raise BadConfiguration(
            f"{file.path}: it was begun with duplicate_window = {stored}, here it is "
            f"{settings.duplicate_window}: set {PREFIX}DUPLICATE_WINDOW={stored}"
        )


def check_ladders_file(settings: Settings, ladders: Ladders, file: DataFile) -> None:
    """Raise BadConfiguration if the ladders file is not that of a data file."""
    if why := disagreement(settings, ladders, file.ladder_log()):
        raise BadConfiguration(f"{why}: nothing was compared")


def compared_with_replay(
    settings: Settings, ladders: Ladders, file: DataFile, options: Options = ALL
) -> str:
    """Compare the beliefs in a data file, all of which is rated, with a replay. Returns a line with
    the counts. Raises BadConfiguration, or Failed if beliefs differ."""
    check_ladders_file(settings, ladders, file)
    log, sample = file.log_reader(), _sample_of(options, file.ladder_log())
    verdict = compare(
        log._replace(ends=_of_sample(log.ends, sample)), ladders, settings.duplicate_window,
        file.partitions, file.shards, file.read, cores=Cores.of(options.cores),
        only=sample and sample.ladders,
    )  # fmt: skip
    begun_by = file.meta("kernel") or KERNEL_VERSION
    return _counted(verdict, file.count_beliefs, sample, log.total, begun_by)


def _wait_until_caught_up(
    settings: Settings, admin: Admin, rounds: int, shards: int, wait_s: float
) -> None:
    deadline_s = time.monotonic() + wait_s
    topics, announced = admin.topics, False
    unfinished = UnfinishedRounds(settings, admin)
    while True:
        ends = dict(enumerate(admin.ends(topics.rounds, rounds)))
        to_estimate = sum(map(len, unfinished.look(ends).values()))
        # Read after the rounds: the parts of a finished round are before these ends.
        part_ends = dict(enumerate(admin.ends(topics.parts, shards)))
        to_apply = sum(map(len, admin.left(UPDATERS, topics.parts, part_ends).values()))
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
    seeds = f"{counted(verdict.seeds, 'seed')} applied, " if verdict.seeds else ""
    done = (
        f"{verdict.rounds} rounds replayed, {seeds}{rejections(verdict.rejected)}, "
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
