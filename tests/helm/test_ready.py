"""`helm test` runs files/ready.py in a pod: here the same script asks the service's own server."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stream_rater.runtime.http import ProbeServer, application
from stream_rater.runtime.metrics import Metrics
from tests.helm.chart import the


def script() -> str:
    """The script as the pod runs it."""
    text, *arguments = the("Pod", "separate")["spec"]["containers"][0]["args"]
    assert arguments == ["rater-stream-rater:9108", "4"]
    return str(text)


@contextmanager
def a_worker(owned: dict[str, int], unready: list[str]) -> Iterator[int]:
    """Serve a worker's endpoints, for 4 partitions and 8 shards. Yields the port."""
    metrics = Metrics()
    for role in owned:
        metrics.partitions.labels(role).set({"estimator": 4, "updater": 8}[role])
    for role, count in owned.items():
        metrics.owned.labels(role).set(count)
    server = ProbeServer("127.0.0.1:0", application(metrics.registry, list, lambda: unready))
    try:
        yield server.port
    finally:
        server.close()


def ask(port: int, pods: int = 1, seconds: float = 0.0, api: str = "") -> tuple[int, str]:
    """Run the script. Returns exit code and output."""
    done = subprocess.run(
        [sys.executable, "-c", script(), f"127.0.0.1:{port}", str(pods), str(seconds), api],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_ready_workers_pass() -> None:
    """Ready workers pass if all partitions and shards have owners."""
    with a_worker({"estimator": 4, "updater": 8}, []) as port:
        expected = "every worker is ready, every partition and shard has its owner\n"
        assert ask(port) == (0, expected)


@pytest.mark.parametrize(
    ("owned", "unready", "pods", "expected"),
    [
        ({"estimator": 4, "updater": 8}, ["shard 3: refused"], 1, "is not ready: shard 3: refused"),
        ({"estimator": 4}, [], 1, "no updater knows its shards"),
        ({"estimator": 0, "updater": 8}, [], 1, "0 of 4 partitions have an estimator"),
        ({"estimator": 4, "updater": 7}, [], 1, "7 of 8 shards have an updater"),
        ({"estimator": 4, "updater": 8}, [], 2, "1 of 2 pods have an address"),
    ],
)
def test_what_is_missing_fails(
    owned: dict[str, int], unready: list[str], pods: int, expected: str
) -> None:
    """The script fails, and a line says what is missing."""
    with a_worker(owned, unready) as port:
        code, output = ask(port, pods)
    assert (code, output.count("\n")) == (1, 1)
    assert expected in output


def test_an_api_that_is_not_ready_fails() -> None:
    """It fails, although the workers are ready."""
    whole = {"estimator": 4, "updater": 8}
    with a_worker(whole, []) as port, a_worker({}, ["the index is not complete"]) as api:
        code, output = ask(port, api=f"127.0.0.1:{api}")
        assert ask(port, api=f"127.0.0.1:{port}")[0] == 0
    assert (code, output) == (1, "the API is not ready: the index is not complete\n")
