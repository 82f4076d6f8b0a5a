"""Which rounds the workers have not finished."""

import time
from collections.abc import Mapping

from stream_rater.adapters.kafka.reader import Reader
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.groups import ESTIMATORS

READ_S = 30.0
"""How long one partition is read."""
LOOK_S = 1.0
"""The longest time that one call waits for a record."""


def unfinished_rounds(
    settings: Settings, admin: Admin, ends: Mapping[int, int]
) -> dict[int, range]:
    """By partition of `round-completed`, the offsets before these ends that the estimators have not
    committed; nothing if no partition has a record among them.

    The ends of a game backend's transactions take offsets, and so do the records that it aborted.
    No worker commits those at the end of a log, and only a reader sees what is a round. So
    partitions with offsets left are read, one by one, until a first record is found. Those without
    one are left out, and those after it are not read. Nothing can be read behind the beginning of
    an open transaction; there, all offsets count, and so they do where reading takes too long.

    Waits for transactions of the workers. Raises LogTrouble or Denied.
    """
    topic = admin.topics.rounds
    left = {p: each for p, each in admin.left(ESTIMATORS, topic, ends).items() if each}
    if not left:
        return {}
    stable = admin.stable_ends(topic, max(left) + 1)
    with Reader(settings, topic, placeholders=True) as reader:
        for p, each in [*left.items()]:
            if stable[p] < each.stop or _may_have_record(reader, p, each):
                break
            del left[p]
    return left


def _may_have_record(reader: Reader, partition: int, offsets: range) -> bool:
    """Whether one of these offsets has a record, or could not be read in READ_S."""
    reader.start_at({partition: offsets.start})
    until_s = time.monotonic() + READ_S
    while time.monotonic() < until_s:
        if records := reader.read(LOOK_S, at_most=1):
            return records[0].offset < offsets.stop
        if reader.ends.get(partition, -1) >= offsets.stop:
            return False
    return True
