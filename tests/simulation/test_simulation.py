"""Whatever happens to workers, log and store: the outcome is the sequential replay's."""

import pytest

from .simulator import replay_command, violations_of

SEEDS = 2000
AT_ONCE = 100
"""Small enough to be spread over processes."""


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_seeds(first: int) -> None:
    """Beliefs byte-equal, every event and rejection exactly once and in order, nothing stuck."""
    failing = {
        seed: found for seed in range(first, first + AT_ONCE) if (found := violations_of(seed))
    }
    assert not failing, "\n".join(
        f"{replay_command(seed)}  # {found[0]:.200}" for seed, found in failing.items()
    )


def test_same_seed_same_run() -> None:
    """A seed replays to the last byte, or else it would be of no use."""
    assert violations_of(7, trace=(first := [])) == violations_of(7, trace=(second := []))
    assert first == second
