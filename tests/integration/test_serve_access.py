"""`serve` on servers that enforce rights: the least ones suffice. `test_access` takes each away."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_rater.config.settings import Settings
from tests.integration import rights
from tests.integration.processes import WorkerProcess
from tests.integration.serving import Answered, Serve, ask, serves
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
    # What needs more rights says so, and harms nothing.
    for each in of_beliefs(api):
        assert (each.status, each.json["code"]) == (503, "no-beliefs")
    assert ask(api, at).status == 200


def of_beliefs(api: WorkerProcess) -> list[Answered]:
    """The answers to both questions that need whole beliefs."""
    result = {"sides": [{"players": ["ann"]}, {"players": ["bob"]}], "ranks": [1, 2]}
    return [
        ask(api, "/v1/ladders/eu/what-if", result), ask(api, "/v1/ladders/eu/players/ann/explain")
    ]  # fmt: skip


def test_the_least_rights_to_read_beliefs(castle: Castle, finished: Settings, serve: Serve) -> None:
    """With all of them both questions are answered; with one less they say what was denied, while
    the others are answered."""
    role = "serve with beliefs"
    asked = of_beliefs(serve(castle.user(finished, role)))
    assert [each.status for each in asked] == [200, 200], asked
    more = [each for each in rights.REDIS[role] if each not in rights.REDIS["serve"]]
    topics = [
        each for each in rights.least(role, finished).kafka
        if "ladders-noted" in str(each) or "round-completed" in str(each)
    ]  # fmt: skip
    assert len(more) == 3 and len(topics) == 2
    less: Any
    for less in (*more, *topics):
        api = serve(castle.user(finished, role, less))
        for each in of_beliefs(api):
            assert (each.status, each.json["code"]) == (503, "no-beliefs"), less
            server = "redis" if less in more else "ladders-noted|round-completed|kafka"
            assert re.search(server, each.json["detail"]), each.json
        assert ask(api, "/v1/ladders/eu").status == 200
