"""The executor of the trials of `tune` and `evidence`, with errors of one line."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from stream_rater.config.errors import Failed, TrialsFailed
from stream_rater.config.extras import MissingExtra
from stream_rater.evaluation.executors import Where, opened


@contextmanager
def trials_on(where: Where) -> Iterator[Executor | None]:
    """The executor, open in this block; None for this process alone. Raises Failed if a package is
    missing, or if the trials cannot be run there."""
    try:
        with opened(where) as executor:
            yield executor
    except (MissingExtra, TrialsFailed) as error:
        raise Failed(str(error)) from None
