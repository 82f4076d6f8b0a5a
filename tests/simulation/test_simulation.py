"""Whatever happens to workers, log and store: the outcome is the sequential replay's."""

import pytest

from .faults import KINDS, Faults
from .seeds import outcome_of, replay_command

SEEDS = 2000
AT_ONCE = 200
"""Small enough to be spread over processes, and enough that every fault happens among them."""


@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(AT_ONCE, SEEDS, AT_ONCE))],
)
def test_seeds(first: int) -> None:
    """Beliefs byte-equal, every event and rejection exactly once and in order, nothing stuck; and
    faults of every kind on the way."""
    failing, faults = {}, Faults()
    for seed in range(first, first + AT_ONCE):
        found, there = outcome_of(seed)
        faults += there
        if found:
            failing[seed] = found
    assert not failing, "\n".join(
        f"{replay_command(seed)}  # {found[0]:.200}" for seed, found in failing.items()
    )
    assert not KINDS.keys() - faults.keys()


def test_same_seed_same_run() -> None:
    """A seed replays to the last byte, or else it would be of no use."""
    assert outcome_of(7, trace=(first := [])) == outcome_of(7, trace=(second := []))
    assert first == second
