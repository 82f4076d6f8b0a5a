"""`stream-rater serve` beside a real worker: every number is the kernels', whatever is killed or
lost; changes as they come."""

import itertools
import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import redis

from stream_rater import Ladder
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.index_keys import INDEX, ROOT, partition_member
from stream_rater.config.ladders import DEFAULT_RATING
from stream_rater.config.settings import Settings
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.library.results import Prediction
from tests import real, rounds
from tests.contract.test_serve_index import assert_equal_to_newest, contents
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.serving import Serve, StreamedEvent, ask, followed, serves
from tests.integration.test_service import Start
from tests.integration.topics import Bytes, Finished, produce, read_topic

EU = "ranked-eu"
AT = "/v1/ladders/ranked-eu"
PLAYERS = ["ann", "böb", "c/d", "e:{1}", "f g", "h%", "i", "j", "k", "l"]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts `stream-rater serve`."""
    with serves(tmp_path) as start:
        yield start


def a_round(number: int) -> Bytes:
    """A round of four of the players; the last ones play rarely."""
    names = random.Random(number).sample(PLAYERS if number % 9 == 0 else PLAYERS[:6], 4)
    value = rounds.as_json(
        *rounds.ranked([1, 2, 2, 3], names), round_id=f"r{number}",
        completed_at=f"2020-05-01T20:{number // 60:02}:{number % 60:02}Z",
    )  # fmt: skip
    return Bytes(value)


def in_memory(count: int) -> Ladder:
    """The same rounds in Python."""
    ladder = Ladder()
    for number in range(count):
        body = json.loads(a_round(number).value or b"")
        sides = [[each["player"]] for each in body["standings"]]
        ranks = [each["rank"] for each in body["standings"]]
        ladder.rate(sides, ranks, completed_at=body["completed_at"], round_id=body["round_id"])
    return ladder


def published(at: Settings) -> list[Any]:
    """All events that can be read."""
    messages = read_topic(at, Topics.of(at).changed)
    return [rating_changed_from_json(message.value() or b"") for message in messages]


def rated(at: Settings, start: Start, count: int, first: int = 0) -> WorkerProcess:
    """A worker that has rated these rounds."""
    worker = start(at)
    produce(at, [a_round(number) for number in range(first, first + count)])
    wait_until(Finished(at), "all is rated")
    return worker


def remove_ann(at: Settings) -> None:
    """Ask the workers to remove this player."""
    removal = json.dumps({"ladder": EU, "player": "ann"}).encode()
    produce(at, [Bytes(removal, headers=[("event-type", b"player-removed")])])


def test_every_number_is_the_kernels(
    settings: real.SettingsFactory, worker_process: Start, serve: Serve
) -> None:
    """Each endpoint beside the ladder in Python, bit for bit."""
    at = settings()
    rated(at, worker_process, 60)
    ladder, api = in_memory(60), serve(at)
    assert ask(api, "/v1/ladders").json == {"ladders": [EU]}
    answer = ask(api, AT).json
    everyone = {name: ladder[name] for name in ladder}
    listed = sorted(b.rating for b in everyone.values() if not b.provisional)
    assert (answer["players"], answer["listed"]) == (len(everyone), len(listed))
    assert answer["rating"] == json.loads(msgspec.json.encode(DEFAULT_RATING))
    assert sum(each["players"] for each in answer["distribution"]) == len(listed)
    for each in answer["distribution"]:
        within = [r for r in listed if each["at_least"] <= r < each["below"]]
        assert each["players"] == len(within)

    for name, belief in everyone.items():
        found = ask(api, f"{AT}/players/{quote(name, safe='')}").json
        assert numbers(found) == numbers_of(belief)
        better = sum(rating > belief.rating for rating in listed)
        assert found["rank"] == (None if belief.provisional else better + 1)
        if not belief.provisional:
            assert found["percentile"] == 100.0 * (len(listed) - better - 1) / len(listed)

    asked = [*everyone, "newcomer"]
    found = ask(api, f"{AT}/players:lookup", {"players": asked}).json["players"]
    assert [numbers(each) for each in found] == [numbers_of(ladder.get(name)) for name in asked]

    board = [
        (row["player"], row["rating"]) for row in ladder.leaderboard().to_dicts()
        if not row["provisional"]
    ]  # fmt: skip
    whole = ask(api, f"{AT}/leaderboard?limit=1000").json
    assert [(row["player"], row["rating"]) for row in whole["rows"]] == board
    pages, cursor = list[Any](), ""
    while cursor is not None:
        page = ask(api, f"{AT}/leaderboard?limit=2" + (f"&cursor={cursor}" if cursor else "")).json
        pages, cursor = pages + page["rows"], page["next"]
    assert pages == whole["rows"]
    middle = whole["rows"][2]
    near = ask(api, f"{AT}/leaderboard?limit=3&around={quote(middle['player'], safe='')}").json
    assert near["rows"] == whole["rows"][1:4]

    sides = [["ann", "newcomer"], ["böb"], ["c/d", "e:{1}"]]
    question = {"sides": [{"players": side} for side in sides]}
    question["sides"][0]["shares"] = [1.0, 0.5]
    question["variance_factor"] = 1.5
    predicted = ask(api, f"{AT}/predict", question).json
    wanted = ladder.predict(sides, shares=[[1.0, 0.5], None, None], variance_factor=1.5)
    assert_predicted(predicted, wanted)
    four = ["ann", "böb", "c/d", "newcomer"]
    even = ask(api, f"{AT}/balance", {"players": four, "teams": 3}).json
    teams = ladder.balance(four, 3)
    assert [tuple(each["players"]) for each in even["sides"]] == teams
    assert_predicted(even, ladder.predict(teams))

    changes = ask(api, f"{AT}/players/ann/history").json["changes"]
    own = [e for e in published(at) if e.player == "ann"][-20:][::-1]
    assert [(c["round_id"], c["mu"], c["performance"], c["rank"]) for c in changes] == [
        (e.round_id, e.mu, e.performance, e.rank) for e in own
    ]
    first = ask(api, f"{AT}/players/ann/history?limit=4").json
    rest = ask(api, f"{AT}/players/ann/history?before={first['next']}").json
    assert first["changes"] + rest["changes"] == changes and rest["next"] is None
    assert_equal_to_newest(at, published(at), EU)


def assert_predicted(found: dict[str, Any], wanted: Prediction) -> None:
    """The same numbers, bit for bit."""
    assert [each["win"] for each in found["sides"]] == wanted.win.tolist()
    assert [each["expected_rank"] for each in found["sides"]] == wanted.expected_rank.tolist()
    assert (found["draw"], found["quality"]) == (wanted.draw, wanted.quality)
    assert found["pairwise"] == wanted.pairwise.tolist()


def numbers(found: dict[str, Any]) -> tuple[Any, ...]:
    """The values that a ladder in Python returns, too."""
    names = ("player", "mu", "sigma", "rating", "rounds", "provisional", "completed_at")
    return tuple(found[name] for name in names)


def numbers_of(belief: Any) -> tuple[Any, ...]:
    """The same of that ladder."""
    return (
        belief.player, belief.mu, belief.sigma, belief.rating, belief.rounds, belief.provisional,
        belief.last_completed_at,
    )  # fmt: skip


def test_a_player_without_rounds_leaves_the_lists(
    settings: real.SettingsFactory, worker_process: Start, serve: Serve
) -> None:
    """Removed for ever: no player, no row; a newcomer in a lookup. The others are put right."""
    at = settings()
    rated(at, worker_process, 40)
    api = serve(at)
    before = ask(api, AT).json
    remove_ann(at)
    wait_until(Finished(at), "it is applied")
    wait_until(lambda: ask(api, f"{AT}/players/ann").status == 404, "it is in the index")
    assert ask(api, f"{AT}/players/ann").json["code"] == "unknown-player"
    rows = ask(api, f"{AT}/leaderboard").json["rows"]
    assert "ann" not in [row["player"] for row in rows]
    wait_until(lambda: ask(api, AT).json["players"] == before["players"] - 1, "one less")
    (found,) = ask(api, f"{AT}/players:lookup", {"players": ["ann"]}).json["players"]
    assert (found["rounds"], found["mu"]) == (0, 1500.0)
    last = ask(api, f"{AT}/players/ann/history").json["changes"][0]
    assert (last["cause"], last["rounds"]) == ("player-removed", 0)
    assert_equal_to_newest(at, published(at), EU)


# --- what is lost or killed ----------------------------------------------------------------------


def _has_read(api: WorkerProcess, events: int) -> bool:
    return api.metric("stream_rater_serve_events_total") >= events


def test_killed_again_and_again(
    settings: real.SettingsFactory, worker_process: Start, serve: Serve
) -> None:
    """Whenever `serve` is killed while it reads, its successor goes on; two at once do no harm."""
    at = settings()
    rated(at, worker_process, 300)
    for first in (300, 600, 900):
        before, api = contents(at), serve(at, ready=False)
        wait_until(partial(changed, at, before), "it writes")
        api.kill()
        produce(at, [a_round(number) for number in range(first, first + 300)])
    both = [serve(at), serve(at)]
    wait_until(Finished(at), "all is rated")
    events = published(at)
    for api in both:
        wait_until(partial(_has_read, api, len(events)), "it read")
    assert_equal_to_newest(at, events, EU)


def changed(at: Settings, before: dict[bytes, Any]) -> bool:
    """Whether the index is another than it was."""
    return contents(at) != before


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_an_index_that_is_lost_is_made_again(
    settings: real.SettingsFactory, worker_process: Start, serve: Serve, running: bool
) -> None:
    """The new index is the same, byte for byte, whether `serve` was running or not."""
    at = settings()
    rated(at, worker_process, 80)
    api = serve(at)
    events = published(at)
    assert_equal_to_newest(at, events, EU)
    if not running:
        api.kill()
    client = redis.Redis.from_url(at.redis)
    client.delete(*contents(at))
    client.close()
    api = api if running else serve(at)
    wait_until(lambda: ask(api, f"{AT}/players/ann").status == 200, "it is there again")
    wait_until(lambda: api.get("/readyz")[0] == 200, "all of it")
    assert_equal_to_newest(at, events, EU)


def test_an_index_of_another_topic(
    settings: real.SettingsFactory, worker_process: Start, serve: Serve
) -> None:
    """An index of another topic is refused in one line, with the cure."""
    at = settings()
    rated(at, worker_process, 10)
    client = redis.Redis.from_url(at.redis)
    client.zadd(ROOT, {partition_member(p): 10**9 for p in range(4)})
    client.close()
    api = serve(at, ready=False)
    assert api.wait() == 1
    last = api.log().splitlines()[-1]
    assert last.startswith("stream-rater: ") and "delete the keys" in last


def test_an_erased_player_is_forgotten(
    settings: real.SettingsFactory, worker_process: Start, serve: Serve
) -> None:
    """As `erase` leaves it in the topic: a record without a value, behind the player's events."""
    at = settings()
    rated(at, worker_process, 20)
    api = serve(at)
    assert ask(api, f"{AT}/players/ann").status == 200
    topic = Topics.of(at).changed
    (mine,) = {m.partition() for m in read_topic(at, topic) if m.key() == b"ranked-eu:ann"}
    assert mine is not None
    produce(at, [Bytes(None, b"ranked-eu:ann", partition=mine)], topic)
    wait_until(lambda: ask(api, f"{AT}/players/ann").status == 404, "ann is forgotten")
    (found,) = ask(api, f"{AT}/players:lookup", {"players": ["ann"]}).json["players"]
    assert found["rounds"] == 0
    assert all(row["player"] != "ann" for row in ask(api, f"{AT}/leaderboard").json["rows"])
    assert api.metric("stream_rater_serve_skipped_total") == 0


# --- changes as they come ------------------------------------------------------------------------


def test_changes_are_streamed_and_resumed(
    settings: real.SettingsFactory, worker_process: Start, serve: Serve
) -> None:
    """As published, of this ladder alone; behind an id nothing is missing and nothing doubled, by
    another process, too, and by one that was killed."""
    at = settings()
    rated(at, worker_process, 5)
    api, other = serve(at), serve(at)
    with followed(api, f"{AT}/changes") as events:
        here = next(events)
        assert (here.kind, here.data) == ("", "")
        produce(at, [a_round(number) for number in range(5, 30)])
        elsewhere = rounds.as_json(
            ladder="other", round_id="o", completed_at="2020-05-01T21:00:00Z"
        )
        produce(at, [Bytes(elsewhere, b"other")])
        answer = list(itertools.islice(events, 40))
    wait_until(Finished(at), "all is rated")
    new = [event for event in published(at) if event.ladder == EU and event.offset >= 5]
    wait_until(
        lambda: other.metric("stream_rater_serve_events_total") >= len(published(at)), "it read"
    )
    api.kill()
    for process in (other, serve(at)):
        with followed(process, f"{AT}/changes", Last_Event_ID=answer[-1].id) as events:
            rest = list(itertools.islice(events, len(new) - 40))
        assert sorted(ids_in([*answer, *rest])) == sorted(event.event_id for event in new)
        assert all(each.kind == "rating-changed" for each in rest)
        with followed(process, f"{AT}/changes", Last_Event_ID=here.id) as events:
            again = list(itertools.islice(events, len(new)))
        assert sorted(ids_in(again)) == sorted(event.event_id for event in new)


def ids_in(events: list[StreamedEvent]) -> list[str]:
    """The ids of what was published."""
    return [rating_changed_from_json(each.data).event_id for each in events]


def test_sigterm_ends_streams(
    settings: real.SettingsFactory, worker_process: Start, serve: Serve
) -> None:
    """A client that follows does not hold the process: it ends with 0, and the stream with it."""
    at = settings()
    rated(at, worker_process, 5)
    api = serve(at)
    with followed(api, f"{AT}/changes") as events:
        next(events)
        api.terminate()
        assert list(events) == []
    assert api.wait() == 0
    assert api.events()[-1]["event"] == "stopped"


def test_a_served_place_is_untouched(
    settings: real.SettingsFactory, worker_process: Start, serve: Serve
) -> None:
    """`serve` writes only keys of its own; what workers wrote is as it was."""
    at = settings()
    worker = rated(at, worker_process, 20)
    worker.terminate()
    assert worker.wait() == 0
    before = others(at)
    serve(at)
    assert before and contents(at) and others(at) == before


def others(at: Settings) -> dict[bytes, bytes]:
    """All keys but the index's, as Redis would dump them."""
    client: Any = redis.Redis.from_url(at.redis)
    found = {key: client.dump(key) for key in client.scan_iter("*") if INDEX.encode() not in key}
    client.close()
    return found
