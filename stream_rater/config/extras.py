"""The optional packages. The extras of `stream-rater[EXTRA]` install most of them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class MissingExtra(Exception):
    """An optional package is not installed. The text is one line that says how to install it."""


def missing(package: str, name: str) -> str:
    """The text that says that a package of the extra `name` is not installed, and how to install
    it."""
    return f"{package} is not installed: stream-rater[{name}] brings it"


@contextmanager
def extra(name: str) -> Iterator[None]:
    """A context for imports of packages that the extra `name` installs. Raises MissingExtra if an
    import fails."""
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
        raise MissingExtra(
            f"{error.name} is not installed: `pip install {error.name}` brings it"
        ) from None


def lab_extra() -> AbstractContextManager[None]:
    """`extra("lab")`: SciPy and Matplotlib."""
    return extra("lab")
