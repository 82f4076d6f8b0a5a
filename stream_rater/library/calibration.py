"""Compares a ladder's own predictions, each by the ratings before its round, with the outcomes.

The numbers are those of `stream-rater evaluate --calibration` for the same rounds. The module is
loaded when it is first needed, because a ladder that only rates needs none of `evaluation`.
"""

from collections.abc import Callable, Iterator

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.config.ladders import any_ladder
from stream_rater.contract.record import Record
from stream_rater.evaluation import winners
from stream_rater.evaluation.evaluation import predicted_wins
from stream_rater.evaluation.season import by_name, sessions_of
from stream_rater.evaluation.winners import WinPredictions
from stream_rater.library.results import Calibration
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import Verdicts


def calibration_of(
    read_log: Callable[[], Iterator[Record]], window: int, ladder: str, rating: RatingConfig,
    train: float, variance_factor: float,
) -> Calibration:  # fmt: skip
    """The calibration of the predictions for the rounds of a ladder. `read_log` yields the records
    of the log from the first one, each time it is called. The first `train`, a fraction of the
    rounds, are left out."""

    def run(verdicts: Verdicts | None) -> WinPredictions:
        sessions = sessions_of(
            read_log(), window, lambda _, __: None, verdicts=verdicts, only=ladder,
            named=by_name([rating]),
        )  # fmt: skip
        return predicted_wins(sessions, rating, train, variance_factor)

    bins = winners.calibration(with_verdicts(run, read_log, any_ladder(rating), window))

    def column(name: str) -> Floats:
        return np.array([getattr(each, name) for each in bins], np.float64)

    return Calibration(
        low=column("low"), high=column("high"), sides=column("sides").astype(np.int64),
        predicted=column("foretold"), won=column("won"), won_low=column("won_low"),
        won_high=column("won_high"),
    )  # fmt: skip
