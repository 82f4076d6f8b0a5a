"""Rounds by HTTP on real servers, from the post to the ratings; a process that is killed while it
takes rounds. In `test_outages`, Kafka goes away."""

import json
import threading
from collections import Counter
from functools import partial
from typing import Any

import msgspec
import pytest

from stream_rater.config.settings import Settings
from tests import real
from tests.builders.serves import ServeHere, ServeThread
from tests.integration.processes import (
    PATIENTLY,
    Answering,
    WorkerProcess,
    stream_rater,
    wait_until,
)
from tests.integration.serving import Answered, Serve, ask
from tests.integration.test_service import Start
from tests.integration.topics import Bytes, Finished, produce, published

__all__ = ["published"]

TOKEN = "w"
DUEL = "/v1/ladders/duel/rounds"


def with_a_door(place: Settings) -> Settings:
    """The settings of a `serve` that takes rounds there."""
    return msgspec.structs.replace(place, serve_write_token=TOKEN, serve_rate=0.0)


@pytest.fixture
def serve(serve: ServeHere) -> ServeHere:
    """Starts `serve` that takes rounds, in threads."""

    def opened(settings: Settings, **named: Any) -> ServeThread:
        return serve(with_a_door(settings), **named)

    return opened


def post(api: Answering, path: str, body: Any) -> Answered:
    return ask(api, path, body, Authorization=f"Bearer {TOKEN}")


def send(api: Answering, path: str, body: Any) -> Answered:
    """Send until it is taken or refused for good, as a client does."""
    found: list[Answered] = []

    def taken() -> bool:
        found.append(post(api, path, body))
        return found[-1].status != 503

    wait_until(taken, "it is taken", every_s=0.2)
    return found[-1]


def a_round(round_id: str, *players: str) -> dict[str, Any]:
    standings = [{"player": each, "rank": i + 1} for i, each in enumerate(players)]
    return {
        "round_id": round_id, "completed_at": "2026-05-01T20:00:00Z",
        "standings": standings or [{"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}],
    }  # fmt: skip


def ended(api: Answering, path: str) -> Any:
    found: list[Any] = []

    def has_ended() -> bool:
        answer = ask(api, f"{path}{'&' if '?' in path else '?'}wait=30")
        assert answer.status == 200, answer
        found.append(answer.json)
        return bool(found[-1]["status"] != "pending")

    wait_until(has_ended, f"{path} is no longer pending")
    return found[-1]


def test_from_the_post_to_the_ratings(
    settings: real.SettingsFactory, worker_process: Start, serve: ServeHere
) -> None:
    """A round is rated with each player's change; what it changed can be read at its offset; one
    without a change and a rejected one have their end states, too. A round is taken back, and the
    ratings at the correction's offset are without it."""
    place = settings(partitions=3, shards=3)
    worker_process(place)
    api = serve(place)
    first = send(api, DUEL, a_round("r1")).json
    found = ended(api, f"{DUEL}/r1")
    assert found["status"] == "rated" and found["changes_complete"]
    changes = {each["player"]: each for each in found["changes"]}
    events = published(place)
    assert set(changes) == {"ann", "bob"} == {each.player for each in events}
    for event in events:
        assert changes[event.player]["mu"] == event.mu
        assert (found["partition"], found["offset"]) == (first["partition"], event.offset)
    fresh_answers(api)
    # Nobody finished: no event says that this round is done.
    standings = [{"player": "ann", "dnf": True}, {"player": "bob", "dnf": True}]
    sent = send(api, DUEL, {**a_round("r3"), "standings": standings}).json
    assert ended(api, f"{DUEL}/r3")["changes"] == []
    by_place = f"{DUEL}/r3?partition={sent['partition']}&offset={sent['offset']}"
    assert ended(api, by_place)["status"] == "rated"
    # A second record of the round, as a process writes it that has not read the first one.
    record = msgspec.json.encode({**a_round("r1"), "ladder": "duel"})
    [again] = produce(place, [Bytes(record, key=b"duel")])
    by_place = f"{DUEL}/r1?partition={again.partition()}&offset={again.offset()}"
    other = serve(place)
    duplicate = ended(other, by_place)
    assert (duplicate["status"], duplicate["code"]) == ("duplicate", "duplicate-round")
    assert Counter(each.round_id for each in published(place))["r1"] == 2
    taken_back(api)
    assert stream_rater("verify", "--wait", PATIENTLY, settings=place).returncode == 0


def taken_back(api: Answering) -> None:
    for number in range(2):
        send(api, DUEL, a_round(f"v{number}", "vic", "wim"))
    correction = {"event_type": "round-voided", "round_id": "v0"}
    taken = send(api, "/v1/ladders/duel/corrections", correction).json
    path = f"/v1/ladders/duel/players/vic?min_offset={taken['offset']}&wait=30"
    assert until_fresh(api, path)["rounds"] == 1


def fresh_answers(api: Answering) -> None:
    """Each answer with `min_offset` includes the round at once, though it has only been sent."""
    for number in range(3):
        names = [f"a{number}", f"b{number}"]
        taken = send(api, DUEL, a_round(f"f{number}", *names)).json
        query = f"min_offset={taken['offset']}&wait=30"
        for each in names:
            player = until_fresh(api, f"/v1/ladders/duel/players/{each}?{query}")
            assert player["offset"] == taken["offset"]
        # All players of the board are provisional after one round: `listed` shows nothing.
        until_fresh(api, f"/v1/ladders/duel/leaderboard?{query}")
        looked_up = until_fresh(
            api, f"/v1/ladders/duel/players:lookup?{query}", {"players": [*names, "never"]}
        )
        assert [each["rounds"] for each in looked_up["players"]] == [1, 1, 0]
    late = ask(api, f"/v1/ladders/duel/players/ann?min_offset={taken['offset'] + 100}&wait=0")
    assert (late.status, late.json["code"]) == (503, "not-yet")
    assert late.headers["retry-after"]


def until_fresh(api: Answering, path: str, body: Any = None) -> Any:
    """The first answer that is not `not-yet`: on a busy machine the wait may end first."""
    found: list[Answered] = []

    def answers() -> bool:
        found.append(ask(api, path, body))
        assert found[-1].status in (200, 503), found[-1]
        return found[-1].status == 200

    wait_until(answers, path)
    return found[-1].json


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_killed_while_it_takes_rounds(
    settings: real.SettingsFactory, worker_process: Start, serve_process: Serve, kills: int
) -> None:
    """Several clients send rounds, and repeat those without an answer to the next process. Nothing
    that was acknowledged is lost, and none is doubled."""
    place = settings(partitions=2)
    worker_process(place)
    api = [serve_process(with_a_door(place))]
    counts = [0] * CLIENTS
    failures: list[str] = []
    stop = threading.Event()
    threads = [
        threading.Thread(target=_report, args=(number, api, counts, failures, stop))
        for number in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for killed in range(kills):
        wait_until(
            partial(have_reported, counts, failures, 30 * (killed + 1)), "the clients report",
            moves=lambda: list(counts),
        )  # fmt: skip
        api[0].kill()
        api[0] = serve_process(with_a_door(place))
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    wait_until(Finished(place), "all is rated")
    wanted = {f"c{number}-{i}" for number in range(CLIENTS) for i in range(counts[number])}
    found = Counter(each.round_id for each in published(place))
    assert wanted <= found.keys()  # none lost; the very last ones may have had no answer
    assert set(found.values()) == {2}  # two players a round, none doubled
    assert stream_rater("verify", "--wait", PATIENTLY, settings=place).returncode == 0


CLIENTS = 4


def have_reported(counts: list[int], failures: list[str], least: int) -> bool:
    """Whether so many rounds are acknowledged, or something is wrong."""
    return sum(counts) >= least or bool(failures)


def _report(
    number: int, api: list[WorkerProcess], counts: list[int], failures: list[str],
    stop: threading.Event,
) -> None:  # fmt: skip
    """Send rounds one after the other, each until it is acknowledged."""
    while not stop.is_set():
        body = a_round(f"c{number}-{counts[number]}", f"p{number}", f"q{counts[number] % 5}")
        try:
            answer = post(api[0], f"/v1/ladders/l{number}/rounds", body)
        except (OSError, json.JSONDecodeError, ValueError):
            continue  # it was killed
        except Exception as error:  # a client's exception of a cut answer
            if "http.client" not in type(error).__module__:
                failures.append(repr(error))
                return
            continue
        if answer.status == 202:
            counts[number] += 1
        elif answer.status != 503:
            failures.append(answer.text)
            return
