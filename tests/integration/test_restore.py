"""The runbook's backup and restore, on a Redis of the test's own."""

from pathlib import Path

from tests.restore import rehearse


def test_a_snapshot_brings_every_belief_back(tmp_path: Path) -> None:
    """Byte for byte, and from the append-only file after the next start, too."""
    assert rehearse(5000, tmp_path)["players"] == 5000
