"""`serve` on servers that enforce rights: the least ones suffice. `test_access` takes each away."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_rater.config import Settings
from tests.integration.processes import WorkerProcess
from tests.integration.serving import Serve, ask, serves
from tests.integration.test_access import Castle, castle, finished

__all__ = ["castle", "finished"]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts `stream-rater serve`."""
    with serves(tmp_path) as start:
        yield start


def test_the_least_rights_suffice(castle: Castle, finished: Settings, serve: Serve) -> None:
    """It makes the index, and answers every kind of question, by TLS and with its own users."""
    api: WorkerProcess = serve(castle.user(finished, "serve"))
    at = "/v1/ladders/eu"
    assert ask(api, "/v1/ladders").json == {"ladders": ["eu"]}
    asked = [
        ask(api, at), ask(api, f"{at}/players/ann"), ask(api, f"{at}/players/ann/history"),
        ask(api, f"{at}/leaderboard"), ask(api, f"{at}/players:lookup", {"players": ["ann", "x"]}),
        ask(api, f"{at}/balance", {"players": ["ann", "bob", "x", "y"]}),
    ]  # fmt: skip
    assert [each.status for each in asked] == [200] * len(asked), asked
