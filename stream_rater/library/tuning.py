"""Searches parameters that predict a ladder's rounds better than its own.

The numbers are those of `stream-rater tune` for the same rounds and present parameters. The module
is loaded when it is first needed, because a ladder that only rates needs none of `evaluation`.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from numbers import Integral
from typing import NamedTuple

import numpy as np

from stream_rater.contract.record import Record
from stream_rater.evaluation.measures import AIMS
from stream_rater.evaluation.proposal import TooFewRounds, TuningProposal, propose
from stream_rater.evaluation.spaces import SPACES
from stream_rater.evaluation.tuned_systems import system_of
from stream_rater.evaluation.tuning import without_defaults
from stream_rater.library.comparing import sessions_in
from stream_rater.library.results import Tuning
from stream_rater.library.tables import objects
from stream_rater.rating.parameters import RatingConfig


class Search(NamedTuple):
    """What is searched for, and how."""

    system: str | None
    """The system to tune; None for the ladder's own."""
    metric: str
    train: float
    trials: int
    executor: Executor | None

    def check(self) -> None:
        """Raise ValueError for a mistake, with its place and the choices."""
        if self.system is not None and self.system not in SPACES:
            raise ValueError(f"system: {self.system!r} is none of {', '.join(sorted(SPACES))}")
        if self.metric not in AIMS:
            raise ValueError(f"metric: {self.metric!r} is none of {', '.join(AIMS)}")
        if not isinstance(self.trials, Integral) or self.trials < 1:
            raise ValueError(f"trials: {self.trials!r} is no whole number from 1 on")


def tuning_of(
    read_log: Callable[[], Iterator[Record]], ladder: str, rating: RatingConfig, search: Search
) -> Tuning:  # fmt: skip
    """The result of the search on the rounds of a ladder, which is rated by `rating`. `read_log`
    yields the records of the log from the first one, each time it is called.

    Raises ValueError, MissingExtra and TrialsFailed.
    """
    search.check()
    system = search.system or system_of(rating)

    sessions = sessions_in(read_log, [rating], ladder)
    try:
        found = propose(
            rating, system, sessions, search.metric, train=search.train, trials=search.trials,
            executor=search.executor,
        )  # fmt: skip
    except TooFewRounds as error:
        raise ValueError(f"train: {error}") from None
    return _shown(found)


def _shown(found: TuningProposal) -> Tuning:
    parameters = {
        name: value for name, value in without_defaults(found.rating).items() if name != "system"
    }
    gaps = [each.difference for each in found.compared]
    return Tuning(
        system=system_of(found.rating), parameters=parameters, verdict=found.verdict,
        tuned_rounds=found.first, compared_rounds=found.rest, at_ends=found.at_ends,
        measure=objects([each.measure for each in found.compared]),
        now=np.array([each.now for each in found.compared]),
        tuned=np.array([each.tuned for each in found.compared]),
        difference=np.array([each.mean for each in gaps]),
        low=np.array([each.low for each in gaps]), high=np.array([each.high for each in gaps]),
    )  # fmt: skip
