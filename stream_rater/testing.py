"""For tests of programs that report rounds or use ratings: a standalone process for pytest.

`pytest_plugins = ["stream_rater.testing"]` in `conftest.py` gives tests the fixture `rater`.
"""

import os
from collections.abc import Iterator

import pytest

from stream_rater.config.settings import PREFIX
from stream_rater.runtime.child import Rater, standalone

__all__ = ["Rater", "rater", "standalone"]


@pytest.fixture(scope="session")
def rater() -> Iterator[Rater]:
    """A standalone process on a free port, which forgets all at the end of the tests. It has the
    ladders file of the variable STREAM_RATER_LADDERS."""
    with standalone(ladders=os.environ.get(f"{PREFIX}LADDERS", "")) as started:
        yield started
