"""The same facts on the in-memory adapters and on the real ones."""

from collections.abc import Iterator

import pytest

from tests import real
from tests.contract.rigs import KafkaRig, MemoryRig, Rig

MEMORY = "memory"
REAL = pytest.param("real", marks=pytest.mark.integration)


@pytest.fixture(params=[MEMORY, REAL])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A log with its groups, nobody in them."""
    if request.param == MEMORY:
        yield MemoryRig()
        return
    settings: real.SettingsFactory = request.getfixturevalue("settings")
    kafka_rig = KafkaRig(settings(session_timeout_ms=2000))
    yield kafka_rig
    kafka_rig.close()
