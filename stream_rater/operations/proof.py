"""Checks the parts that are pending while a store is rebuilt: the replay must compute the same
evidence.

Workers will apply these parts as they are. If a part was computed from beliefs of another history,
or by other parameters, the ratings after it are not those of the replay.
"""

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.pipeline.parts.decoder import Rows
from stream_rater.pipeline.parts.schema import EVIDENCE_COLUMNS
from stream_rater.rating.model import Evidence


class Proof:
    """The evidence in pending parts, and the rounds for which the replay has other evidence."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], bytes] = {}
        """By the player's row and the round's offset, the evidence in the first pending part."""
        self._least = 2**62
        self.unproven: set[int] = set()
        """The offsets of rounds with a pending part that has other evidence than the replay."""

    def add(self, parts: Rows, which: Ints, rows: Ints, offsets: Ints) -> None:
        """Note the evidence in the rows `which` of parts. `rows`: the players' rows. `offsets`: the
        offsets of their rounds. Does nothing if a part is of another kernel version, because its
        evidence cannot be compared."""
        if not len(which) or any(each.kernel != KERNEL_VERSION for each in parts.rules):
            return
        evidence = np.ascontiguousarray(parts.evidence[which])
        for row, offset, each in zip(rows.tolist(), offsets.tolist(), evidence, strict=True):
            self._waiting.setdefault((row, offset), each.tobytes())
        self._least = min(self._least, int(offsets.min()))

    def compare(self, rows: Ints, offsets: Ints, evidence: Evidence) -> None:
        """Compare the evidence that a replay has computed for the players in these rows, in rounds
        at these offsets, with that in pending parts."""
        if int(offsets.max(initial=-1)) < self._least:
            return
        found = np.full((len(rows), EVIDENCE_COLUMNS), np.nan)
        found[:, : evidence.shape[1]] = evidence
        for row, offset, each in zip(rows.tolist(), offsets.tolist(), found, strict=True):
            waiting = self._waiting.get((row, offset))
            if waiting is not None and waiting != each.tobytes():
                self.unproven.add(offset)
