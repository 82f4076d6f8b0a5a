"""A machine at its first poll; a module with another kind of machine has a `hand` of its own."""

import pytest

from tests.builders.machines import ByHand, Recorder, updating


@pytest.fixture
def observer() -> Recorder:
    return Recorder()


@pytest.fixture
def hand(observer: Recorder) -> ByHand:
    """The only shard's updater at its first poll."""
    return updating(observer, 1)
