"""For tests of programs that report rounds or use ratings: a standalone process for pytest.

`pytest_plugins = ["stream_rater.testing"]` in `conftest.py` gives tests the fixture `rater`.
"""

from collections.abc import Iterator

import pytest

from stream_rater.runtime.child import Rater, standalone

__all__ = ["Rater", "rater", "standalone"]


@pytest.fixture(scope="session")
def rater() -> Iterator[Rater]:
    """A standalone process on a free port, which forgets all at the end of the tests."""
    with standalone() as started:
        yield started
