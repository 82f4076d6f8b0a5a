"""`make chaos` in small. (What it counts: `unit/test_chaos.py`.)"""

import json
import os
import subprocess
import sys

import pytest

from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, ROOT, given_address
from stream_rater.adapters.redis.store import RedisStore
from tests import real
from tests.chaos.tally import differing
from tests.unit.test_chaos import ALL
from tests.waits import HANGS_S


def test_what_was_published_last_is_what_the_store_has(settings: real.SettingsFactory) -> None:
    """A player whose belief in the store differs, or is missing, is named."""
    at = settings()
    store = RedisStore(at)
    store.prepare()
    store.close()
    assert [*differing({("l", "q"): ALL[3]}, at)] == ["l:r3:q: the store has None of ('l', 'q')"]


@pytest.mark.slow  # a snapshot under workers: `test_rebuild.py`
@pytest.mark.skipif(
    bool(given_address(KAFKA_VARIABLE) or given_address(REDIS_VARIABLE)),
    reason="servers are given, and chaos breaks its own",
)
def test_a_fault_and_its_line() -> None:
    """Redis returns to an old snapshot during work, which is when events might be published twice.
    Nothing is lost or doubled, and a JSON object says so."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--quick", "redis-restored"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": "deploy:deploy/tools"},
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert [found[name] for name in ("injected", "lost", "doubled", "wrong")] == [1, 0, 0, 0]
    assert (found["recoveries"], found["ended_themselves"]) == (1, {})
    assert found["updates"] > 1000
