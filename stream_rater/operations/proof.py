"""Proves the parts that wait while a store is rebuilt: the replay computes the same evidence.

Workers will apply these parts as they are. If they were computed from beliefs of another history,
or by other parameters, the ratings behind them are not those of the replay.
"""

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.pipeline.parts.decoder import Rows
from stream_rater.pipeline.parts.schema import EVIDENCE_COLUMNS
from stream_rater.rating.model import Evidence


class Proof:
    """The evidence in parts that wait, and for which rounds the replay has found another one."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], bytes] = {}
        """By the player's row and the round's offset, that of the first part."""
        self._least = 2**62
        self.unproven: set[int] = set()
        """The offsets of rounds of which a part has other evidence than the replay."""

    def note(self, parts: Rows, which: Ints, rows: Ints, offsets: Ints) -> None:
        """Note the rows `which` of parts: the players' rows, and their rounds' offsets. Evidence
        of other kernels cannot be compared."""
        if not len(which) or any(each.kernel != KERNEL_VERSION for each in parts.rules):
            return
        evidence = np.ascontiguousarray(parts.evidence[which])
        for row, offset, each in zip(rows.tolist(), offsets.tolist(), evidence, strict=True):
            self._waiting.setdefault((row, offset), each.tobytes())
        self._least = min(self._least, int(offsets.min()))

    def compare(self, rows: Ints, offsets: Ints, evidence: Evidence) -> None:
        """Compare what a replay has computed for the players in these rows."""
        if int(offsets.max(initial=-1)) < self._least:
            return
        found = np.full((len(rows), EVIDENCE_COLUMNS), np.nan)
        found[:, : evidence.shape[1]] = evidence
        for row, offset, each in zip(rows.tolist(), offsets.tolist(), found, strict=True):
            waiting = self._waiting.get((row, offset))
            if waiting is not None and waiting != each.tobytes():
                self.unproven.add(offset)
