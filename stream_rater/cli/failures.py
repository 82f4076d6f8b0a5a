"""Failures of servers that an operator can mend, each told in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from stream_rater.adapters.redis_checks import StoreMismatch
from stream_rater.adapters.store_metadata import LayoutMismatch
from stream_rater.adapters.topics import TopicMismatch
from stream_rater.cli.terminal import Failed
from stream_rater.config import BadConfiguration
from stream_rater.pipeline.ports import CannotGoOn, Denied, Trouble
from stream_rater.runtime.other_bits import OtherBits


@contextmanager
def named_failures() -> Iterator[None]:
    """What an operator can mend ends a command as one line."""
    try:
        yield
    except (TopicMismatch, LayoutMismatch, StoreMismatch) as error:
        raise BadConfiguration(str(error)) from None
    except BrokenPipeError:
        raise  # whoever read our output has enough
    except (Trouble, CannotGoOn, Denied, OSError, OtherBits) as error:
        raise Failed(str(error)) from None
