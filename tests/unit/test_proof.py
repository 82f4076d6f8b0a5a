"""A rebuild proves the parts that wait by its own evidence."""

import re
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.operations import rebuild_store as module
from stream_rater.operations.bulk_replay import BulkReplay
from stream_rater.operations.bulk_waves import BulkWave
from stream_rater.operations.cutoff import Cutoff
from stream_rater.operations.rebuild import unproven_warning
from stream_rater.operations.rebuild_store import Rebuild
from stream_rater.pipeline.parts.schema import Part
from stream_rater.rating.model import Evidence
from tests.builders.machines import part, record
from tests.unit.test_rebuild import LADDERS, ROUNDS, by_kernel, until


def test_waiting_parts_are_proven() -> None:
    """A part is proven if it agrees with the replay. A part from other beliefs is reported, unless
    a right one of the same round comes first. Applied parts are not looked at."""
    right = {offset: evidence_of(offset) for offset in (1, 2)}
    wrong = replace(right[2], evidence=right[2].evidence + 1e-9)
    for parts, g, found in (
        ([right[1], right[2]], 0, set()),
        ([right[1], wrong], 0, {2}),
        ([right[1], right[2], wrong], 0, set()),
        ([wrong, right[2]], 0, {2}),
        ([right[1], wrong], 2, set()),
        ([right[1], by_kernel(KERNEL_VERSION - 1, wrong)], 0, set()),
    ):
        cutoff = Cutoff({0: g}, {0: 101}, 1)
        for offset, each in enumerate(parts):
            cutoff.add([record(offset, each)])
        work = Rebuild(LADDERS, 10, 1, cutoff)
        work.feed(ROUNDS)
        list(work.beliefs())
        assert work.unproven == found


def evidence_of(offset: int) -> Part:
    """The part of one of the rounds, as the replay estimates it."""
    seen: dict[int, Part] = {}

    class Watched(BulkReplay):
        """Keeps what it estimates."""

        def rate(self, wave: BulkWave, config: Any, started: Any = ()) -> Evidence:
            found = super().rate(wave, config, started)
            names = [name for _, name in cutoff.players.at(wave.rows)]
            for at in set(wave.offsets.tolist()):
                own = np.flatnonzero(wave.offsets == at)
                of = part((at, "".join(names[i] for i in own)))
                seen[at] = replace(of, evidence=found[own])
            return found

    cutoff = until()
    with patch.object(module, "BulkReplay", Watched):
        work = Rebuild(LADDERS, 10, 1, cutoff)
        work.feed(ROUNDS)
        list(work.beliefs())
    return seen[offset]


def test_unproven_parts_are_reported_with_a_way_out() -> None:
    """In one line."""
    assert re.fullmatch(
        "parts of 2 rounds, the first at offset 7, wait .* rebuild --replace` once more",
        unproven_warning({9, 7}),
    )
