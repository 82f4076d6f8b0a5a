"""Rounds that were polled, as the corrections before each make them."""

from collections.abc import Callable

import numpy as np

from stream_rater.columns import player_map
from stream_rater.pipeline.estimator.estimation import NO_ROUNDS, PendingRounds
from stream_rater.replay.edits import Edits


def edited(
    pending: PendingRounds, edits_of: Callable[[str, int], Edits], shards: int
) -> tuple[PendingRounds, PendingRounds]:
    """Rounds as the corrections before each make them, and those that teach nothing any more.

    `edits_of` has the edits that a ladder's round at an offset is rated by.
    """
    heads, offsets = pending.rounds.heads, pending.offsets.tolist()
    groups: dict[int, list[int]] = {}
    found: dict[int, Edits] = {}
    for i, (head, offset) in enumerate(zip(heads, offsets, strict=True)):
        edits = edits_of(head.ladder, offset)
        if edits.fates:
            groups.setdefault(id(edits), []).append(i)
            found[id(edits)] = edits
    if not groups:
        return pending, NO_ROUNDS
    changed = sorted(i for some in groups.values() for i in some)
    rest = pending.take(np.setdiff1d(np.arange(len(pending)), changed))
    good, bad = [rest], list[PendingRounds]()
    for key, some in groups.items():
        own = pending.take(np.array(some))
        rounds, counts = found[key].apply(own.rounds, own.offsets)
        prints = player_map.fingerprints(
            rounds.names, [head.ladder for head in rounds.heads], rounds.sizes, shards
        )
        own = PendingRounds(
            rounds, own.rule, own.partitions, own.offsets, own.traces, prints, own.tickets
        )
        good.append(own.take(np.flatnonzero(counts)))
        bad.append(own.take(np.flatnonzero(~counts)))
    return PendingRounds.concat(good), PendingRounds.concat(bad)
