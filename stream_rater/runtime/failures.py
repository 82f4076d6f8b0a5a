"""Converts failures of servers that an operator can repair into errors of one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from stream_rater.config.errors import ArithmeticMismatch, BadConfiguration, Failed
from stream_rater.contract.errors import (
    Denied,
    LayoutMismatch,
    StoreMismatch,
    TopicMismatch,
    Trouble,
    Unrecoverable,
)


@contextmanager
def named_failures() -> Iterator[None]:
    """Raise BadConfiguration or Failed, which end a command in one line, for these failures."""
    try:
        yield
    except (TopicMismatch, LayoutMismatch, StoreMismatch) as error:
        raise BadConfiguration(str(error)) from None
    except BrokenPipeError:
        raise  # the process that reads our output has ended
    except (Trouble, Unrecoverable, Denied, OSError, ArithmeticMismatch) as error:
        raise Failed(str(error)) from None


@contextmanager
def with_cure(cure: str) -> Iterator[None]:
    """Raise Failed where the work fails, with the cure at the end of the text."""
    try:
        yield
    except (Trouble, Denied, Failed) as error:
        raise Failed(f"{error}: {cure}") from None
