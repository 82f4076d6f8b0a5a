"""Which rounds the workers have not finished."""

from collections.abc import Mapping

from stream_rater.adapters.kafka.reader import Rereader
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.groups import ESTIMATORS


def unfinished_rounds(
    settings: Settings, admin: Admin, ends: Mapping[int, int]
) -> dict[int, range]:
    """By partition of `round-completed`, the offsets before these ends that the estimators have not
    committed; nothing if no partition has a record among them.

    The ends of a game backend's transactions take offsets, and so do the records that it aborted.
    No worker commits those at the end of a log, and only a reader can tell them from rounds. So
    partitions with offsets left are read, one by one, until a first record is found. Those without
    one are left out, and those after it are not read. Nothing can be read behind the beginning of
    an open transaction; there, all offsets count.

    Waits for transactions of the workers. Raises LogTrouble or Denied.
    """
    topic = admin.topics.rounds
    left = {p: each for p, each in admin.left(ESTIMATORS, topic, ends).items() if each}
    if not left:
        return {}
    stable = admin.stable_ends(topic, max(left) + 1)
    reader = Rereader(settings, topic)
    try:
        for p, each in [*left.items()]:
            if stable[p] < each.stop or reader.read(p, each.start, each.stop):
                break
            del left[p]
    finally:
        reader.close()
    return left
