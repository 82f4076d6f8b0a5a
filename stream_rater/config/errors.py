"""The errors that end a command in one line, and contexts that raise them in place of others."""

from collections.abc import Iterator
from contextlib import contextmanager

from stream_rater.contract import errors


class BadConfiguration(ValueError):
    """A configuration is invalid. The text is one line with the file and the place in it."""


class Failed(Exception):
    """The work failed. The text is one line with the reason."""


class NotYetKnown(Failed):
    """The work could not say whether all is right. The text is one line with the reason."""


class TrialsFailed(Exception):
    """The executor of a search cannot run its trials. The text is one line, with the cure."""


class ArithmeticMismatch(Exception):
    """This machine computes ratings that differ from those of the release's test vector."""


class MissingExtra(Exception):
    """An optional package is not installed. The text is one line that says how to install it."""


@contextmanager
def named_failures() -> Iterator[None]:
    """Raise BadConfiguration or Failed for failures of servers that an operator can repair."""
    try:
        yield
    except (errors.TopicMismatch, errors.LayoutMismatch, errors.StoreMismatch) as error:
        raise BadConfiguration(str(error)) from None
    except BrokenPipeError:
        raise  # the process that reads our output has ended
    except (
        errors.Trouble, errors.Unrecoverable, errors.Denied, OSError, ArithmeticMismatch
    ) as error:  # fmt: skip
        raise Failed(str(error)) from None


@contextmanager
def with_cure(cure: str) -> Iterator[None]:
    """Raise Failed where the work fails, with the cure at the end of the text."""
    try:
        yield
    except (errors.Trouble, errors.Denied, Failed) as error:
        raise Failed(f"{error}: {cure}") from None


def missing(package: str, name: str) -> str:
    """The text that says that a package of the extra `name` is not installed, and how to install
    it."""
    return f"{package} is not installed: stream-rater[{name}] brings it"


@contextmanager
def extra(name: str) -> Iterator[None]:
    """A context for imports of packages of the extra `name`. Raises MissingExtra if one fails."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(missing(error.name or "a package", name)) from None


@contextmanager
def own_package() -> Iterator[None]:
    """A context for imports of packages that no extra installs: only programs that use such a
    package already ask for its objects. Raises MissingExtra if an import fails."""
    try:
        yield
    except ImportError as error:
        name = error.name
        raise MissingExtra(f"{name} is not installed: `pip install {name}` brings it") from None
