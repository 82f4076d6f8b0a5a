"""`make chaos` in small: that it runs, and that it would see a rating lost or doubled."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, ROOT, given_address
from tests.chaos.rolling import latencies_ms, percentiles, prompt
from tests.chaos.season import tally


def told(*rounds: int) -> list[Any]:
    """Changes of one player, by the number of the round."""
    return [SimpleNamespace(ladder="l", player="p", rounds=n) for n in rounds]


@pytest.mark.parametrize(
    ("rounds", "lost", "doubled"),
    [
        ((1, 2, 3), 0, 0),
        ((1, 2), 1, 0),
        ((1, 3), 1, 0),
        ((1, 2, 2, 3), 0, 1),
        ((1, 3, 2), 1, 1),
        ((1, 2, 3, 4), 0, 1),
        ((), 3, 0),
    ],
)
def test_what_is_lost_and_doubled(rounds: Sequence[int], lost: int, doubled: int) -> None:
    """Of three rounds that are due; out of order is both."""
    assert tally({("l", "p"): 3}, told(*rounds)) == (lost, doubled)


def test_how_long_ratings_took() -> None:
    """Those of rounds that were reported within a time, whenever they came; in milliseconds."""
    seen = [(float(at), at + 0.25) for at in range(10)] + [(4.0, 14.0)]
    assert latencies_ms(seen, 4.0, 6.0) == [250.0, 250.0, 10_000.0]
    assert percentiles(latencies_ms(seen, 0.0, 99.0), 50, 100) == [250.0, 10_000.0]
    assert prompt(seen[:1]) and not prompt(seen) and not prompt([])


@pytest.mark.integration
@pytest.mark.skipif(
    bool(given_address(KAFKA_VARIABLE) or given_address(REDIS_VARIABLE)),
    reason="servers are given, and chaos breaks its own",
)
def test_a_fault_and_its_line() -> None:
    """Redis goes back to an old snapshot at work: that is when events might be told twice. Nothing
    is lost or doubled, and a JSON object tells so."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--quick", "redis-restored"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": "deploy"},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert list(found) == ["fault", "injected", "updates", "lost", "doubled", "recovery_s"]
    assert (found["injected"], found["lost"], found["doubled"]) == (1, 0, 0)
    assert found["updates"] > 1000
