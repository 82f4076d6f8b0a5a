"""Backup and restore as in docs/operations/backup.md, on a Redis of its own, with workers."""

from pathlib import Path
from typing import Any

from stream_rater.config.settings import Settings
from tests.integration.processes import PATIENTLY, stream_rater
from tests.real import SettingsFactory
from tests.restore import Rehearsal

PLAYERS, ROUNDS = 200, 12


def test_a_snapshot_and_the_log_bring_every_belief_back(
    settings: SettingsFactory, tmp_path: Path, record_property: Any
) -> None:
    """Every belief comes back byte for byte, although half of the rounds are rated after the
    snapshot. Nothing is published twice, and `verify` finds all equal. (A million players: `python
    -m tests.restore`, half a minute.)"""

    def verified(at: Settings) -> None:
        done = stream_rater("verify", "--wait", PATIENTLY, settings=at)
        assert done.returncode == 0, done.stderr
        assert f"{PLAYERS} beliefs compared: all equal" in done.stdout, done.stdout

    done = Rehearsal(settings(), tmp_path, PLAYERS, made=False, each=ROUNDS).run(verified)
    for name, value in done.items():
        record_property(name, value)
    print(done)
