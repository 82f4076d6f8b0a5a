"""`serve` on servers that enforce rights: the least ones suffice. `test_access` takes each away."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.config.settings import Settings
from tests.integration import rights
from tests.integration.processes import WorkerProcess, wait_until
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


def test_the_least_rights_to_take_rounds(castle: Castle, finished: Settings, serve: Serve) -> None:
    """With all of them a round is taken, and its end state is known; with one less nothing else
    stops, and the answer says what is missing."""
    role, token = "serve with writing", {"Authorization": "Bearer w"}
    body = {
        "round_id": "by-http", "completed_at": "2026-05-01T20:00:00Z",
        "standings": [{"player": "ann", "dnf": True}, {"player": "bob", "dnf": True}],
    }  # fmt: skip

    def opened(less: Any = None) -> WorkerProcess:
        at = castle.user(finished, role, less)
        return serve(msgspec.structs.replace(at, serve_write_token="w"))

    def taken(api: WorkerProcess) -> Answered:
        found: list[Answered] = []

        def is_connected() -> bool:
            found.append(ask(api, "/v1/ladders/eu/rounds", body, **token))
            return "not connected yet" not in found[-1].text

        wait_until(is_connected, "it is connected")
        return found[-1]

    api = opened()
    assert taken(api).status == 202
    for each in rights.least(role, finished).kafka:
        if "rating-changed" in str(each):
            continue  # without it nothing works, as for every `serve`
        api = opened(each)
        answer = taken(api)
        if "round-completed" in str(each):
            assert answer.status == 503, each
            assert "authoriz" in answer.json["detail"].lower(), answer.json
        else:
            assert answer.status == 202, (each, answer)
        assert ask(api, "/v1/ladders/eu").status == 200


def test_the_least_rights_to_wait_for_an_offset(
    castle: Castle, finished: Settings, serve: Serve
) -> None:
    """With one less, the answer says what was denied."""
    role, path = "serve with min_offset", "/v1/ladders/eu/leaderboard?min_offset=0&wait=30"
    wanted = "kafka|topic"
    api = serve(castle.user(finished, role))
    assert ask(api, path).status == 200
    for each in rights.least(role, finished).kafka:
        if "rating-changed" in str(each):
            continue
        api = serve(castle.user(finished, role, each))
        answer = ask(api, path)
        assert (answer.status, answer.json["code"]) == (503, "log-unavailable"), (each, answer)
        assert re.search(wanted, answer.json["detail"]), answer.json
        assert ask(api, "/v1/ladders/eu").status == 200
