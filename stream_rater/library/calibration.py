"""Compares a ladder's own predictions, each by the ratings before its round, with the outcomes.

The module is loaded when it is first needed: a ladder that only rates needs none of `evaluation`.
"""

from collections.abc import Sequence

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation.winners import Bin
from stream_rater.library.results import Calibration


def calibration_of(bins: Sequence[Bin]) -> Calibration:
    """These bins of sides as columns."""

    def column(name: str) -> Floats:
        return np.array([getattr(each, name) for each in bins], np.float64)

    return Calibration(
        low=column("low"), high=column("high"), sides=column("sides").astype(np.int64),
        predicted=column("foretold"), won=column("won"), won_low=column("won_low"),
        won_high=column("won_high"),
    )  # fmt: skip
