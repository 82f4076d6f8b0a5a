"""Failures of servers that an operator can mend, each told in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from stream_rater.adapters.kafka.topics import TopicMismatch
from stream_rater.adapters.redis.checks import StoreMismatch
from stream_rater.adapters.redis.metadata import LayoutMismatch
from stream_rater.config.errors import BadConfiguration, Failed, OtherBits
from stream_rater.contract.errors import CannotGoOn, Denied, Trouble


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
