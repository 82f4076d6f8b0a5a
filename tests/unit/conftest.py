"""A machine at its first poll. A module about another kind of machine has its own `hand`."""

import pytest

from tests.builders.machines import ByHand, Recorder, updating


@pytest.fixture
def observer() -> Recorder:
    return Recorder()


@pytest.fixture
def hand(observer: Recorder) -> ByHand:
    """The only shard's updater at its first poll."""
    return updating(observer, 1)
