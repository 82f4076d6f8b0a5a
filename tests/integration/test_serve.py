"""`serve` beside a real worker: every number is the kernels', whatever is killed or lost; what a
result would change, and why a rating is what it is; the stream of changes."""

import itertools
import json
import random
import shutil
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from stream_rater import Ladder
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.config.ladders import DEFAULT_RATING
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Unrecoverable
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.index import folder
from stream_rater.library.results import Prediction
from tests import rounds
from tests.builders.indexes import assert_equal_to_newest
from tests.builders.lines import a_correction, a_message, a_round
from tests.builders.serves import ServeHere
from tests.integration import topics
from tests.integration.processes import Answering, WorkerProcess, stopped, wait_until
from tests.integration.serving import Serve, StreamedEvent, ask, followed
from tests.integration.test_service import Start
from tests.integration.topics import Bytes, Finished, produce, published, read_topic
from tests.real import SettingsFactory

EU = "ranked-eu"
AT = "/v1/ladders/ranked-eu"
PLAYERS = ["ann", "böb", "c/d", "e:{1}", "f g", "h%", "i", "j", "k", "l"]


def a_random_round(number: int) -> Bytes:
    names = random.Random(number).sample(PLAYERS if number % 9 == 0 else PLAYERS[:6], 4)
    at = f"2020-05-01T20:{number // 60:02}:{number % 60:02}Z"
    standings = rounds.ranked([1, 2, 2, 3], names)
    return Bytes(rounds.as_json(*standings, round_id=f"r{number}", completed_at=at))


def in_memory(count: int) -> Ladder:
    ladder = Ladder("elo-mmr")
    for number in range(count):
        body = json.loads(a_random_round(number).value or b"")
        sides = [[each["player"]] for each in body["standings"]]
        ranks = [each["rank"] for each in body["standings"]]
        ladder.rate(sides, ranks, completed_at=body["completed_at"], round_id=body["round_id"])
    return ladder


def rated(at: Settings, start: Start, count: int) -> WorkerProcess:
    worker = start(at)
    topics.rated(at, *map(a_random_round, range(count)))
    return worker


def test_every_number_is_the_kernels(
    settings: SettingsFactory, worker_process: Start, serve: ServeHere
) -> None:
    """Every endpoint equals a ladder in Python, bit for bit. Nothing is written but the index."""
    at = settings()
    worker = rated(at, worker_process, 60)
    stopped(worker)
    before, events = others(at), published(at)
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

    assert_pages(api, ladder)
    assert_predictions(api, ladder)
    assert_what_if(api, ladder)
    mine = [each for each in events if each.player == "ann"]
    assert_explained(api, mine)
    changes = ask(api, f"{AT}/players/ann/history").json["changes"]
    own = mine[-20:][::-1]
    assert [(c["round_id"], c["mu"], c["performance"], c["rank"]) for c in changes] == [
        (e.round_id, e.mu, e.performance, e.rank) for e in own
    ]
    first = ask(api, f"{AT}/players/ann/history?limit=4").json
    rest = ask(api, f"{AT}/players/ann/history?before={first['next']}").json
    assert first["changes"] + rest["changes"] == changes and rest["next"] is None
    assert_equal_to_newest(api.settings.index, events, EU)
    assert before and others(at) == before


def assert_pages(api: Answering, ladder: Ladder) -> None:
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


def assert_predictions(api: Answering, ladder: Ladder) -> None:
    """Check predictions with teams, shares and newcomers, and the making of even teams."""
    sides = [["ann", "newcomer"], ["böb"], ["c/d", "e:{1}"]]
    question: dict[str, Any] = {"sides": [{"players": side} for side in sides]}
    question["sides"][0]["shares"] = [1.0, 0.5]
    question["variance_factor"] = 1.5
    predicted = ask(api, f"{AT}/predict", question).json
    wanted = ladder.predict(sides, shares=[[1.0, 0.5], None, None], variance_factor=1.5)
    assert_predicted(predicted, wanted)
    four = ["ann", "böb", "c/d", "newcomer"]
    even = ask(api, f"{AT}/balance", {"players": four, "teams": 3}).json
    teams = ladder.balance(four, 3)
    assert [tuple(each["players"]) for each in even["sides"]] == teams
    assert even["raw"] == ladder.predict(teams).raw.tolist()
    del question["variance_factor"]
    wait_until(lambda: ask(api, f"{AT}/predict", question).json["calibrated"], "it has learned")


RESULTS: list[dict[str, Any]] = [
    {"ranks": [1, 2, 3]},
    {"ranks": [2, None, 1], "weight": 1.5, "performance_ceiling": 1600.0},
    {"ranks": [1, 1, 2], "completed_at": "2021-02-03T04:05:06Z"},
]


def assert_what_if(api: Answering, ladder: Ladder) -> None:
    """Check that `what-if` answers as `Ladder.what_if` does, bit for bit."""
    sides, shares = [["ann", "newcomer"], ["b\u00f6b"], ["c/d", "e:{1}"]], [[1.0, 0.5], None, None]
    given = [
        {"players": p} | ({"shares": s} if s else {}) for p, s in zip(sides, shares, strict=True)
    ]
    for result in RESULTS:
        found = ask(api, f"{AT}/what-if", {"sides": given, **result})
        wanted = ladder.what_if(sides, shares=shares, **result).to_dicts()
        assert found.status == 200, found
        assert found.json["changes"] == [
            {name: each[name] for name in found.json["changes"][0]} for each in wanted
        ]
    nothing = {"sides": given, "ranks": [None, None, None]}
    assert ask(api, f"{AT}/what-if", nothing).json == {"changes": []}


def assert_explained(api: Answering, events: list[Any]) -> None:
    """Check that an explanation fits the belief: pulls cancel, performances are as published."""
    answer = ask(api, f"{AT}/players/ann/explain").json
    newest = max(events, key=lambda each: each.offset)
    assert [answer[name] for name in ("mu", "sigma", "rating", "rounds", "offset")] == [
        getattr(newest, name) for name in ("mu", "sigma", "rating", "rounds", "offset")
    ]
    factors = [answer["gaussian"], *answer["performances"]]
    assert sum(each["weight"] for each in factors) == pytest.approx(1.0)
    assert sum(each["pull"] for each in factors) == pytest.approx(0.0, abs=1e-2)
    assert max(abs(each["pull"]) for each in factors) > 1.0
    by_round = {each.round_id: each.performance for each in events}
    named = [each for each in answer["performances"] if each["rounds"]]
    assert newest.round_id in [one for each in named for one in each["rounds"]]
    for each in named:
        for one in each["rounds"]:
            assert each["at"] == pytest.approx(by_round[one], abs=1 / 16)
    stranger = ask(api, f"{AT}/players/newcomer/explain")
    assert (stranger.status, stranger.json["code"]) == (404, "unknown-player")


def assert_predicted(found: dict[str, Any], wanted: Prediction) -> None:
    assert [each["win"] for each in found["sides"]] == wanted.win.tolist()
    assert [each["expected_rank"] for each in found["sides"]] == wanted.expected_rank.tolist()
    assert (found["draw"], found["quality"]) == (wanted.draw, wanted.quality)
    assert found["pairwise"] == wanted.pairwise.tolist()


def numbers(found: dict[str, Any]) -> tuple[Any, ...]:
    """The values of an answer that a ladder in Python returns, too."""
    names = ("player", "mu", "sigma", "rating", "rounds", "provisional", "completed_at")
    return tuple(found[name] for name in names)


def numbers_of(belief: Any) -> tuple[Any, ...]:
    return (
        belief.player, belief.mu, belief.sigma, belief.rating, belief.rounds, belief.provisional,
        belief.last_completed_at,
    )  # fmt: skip


def test_who_is_gone_is_not_shown(
    settings: SettingsFactory, worker_process: Start, serve: ServeHere
) -> None:
    """A player without rounds, and one whom `erase` deleted, have no answer and no row, and are
    newcomers in a lookup. The others are right. A result with a removed player is refused."""
    at = settings()
    rated(at, worker_process, 40)
    api = serve(at)
    before = ask(api, AT).json
    asked = {"sides": [{"players": ["h%"]}, {"players": ["x", "ann"]}], "ranks": [1, 2]}
    assert ask(api, f"{AT}/what-if", asked).status == 200
    topics.rated(at, a_message(a_correction("player-removed", ladder=EU, player="ann")))
    wait_until(lambda: ask(api, f"{AT}/what-if", asked).status == 422, "it is recorded")
    refused = ask(api, f"{AT}/what-if", asked).json
    assert (refused["code"], refused["place"]) == ("invalid", "body.sides[1].players[1]")
    assert "removed" in refused["detail"]
    assert_forgotten(api, "ann")
    assert ask(api, f"{AT}/players/ann/explain").json["code"] == "unknown-player"
    wait_until(lambda: ask(api, AT).json["players"] == before["players"] - 1, "one less")
    last = ask(api, f"{AT}/players/ann/history").json["changes"][0]
    assert (last["cause"], last["rounds"]) == ("player-removed", 0)
    assert_equal_to_newest(api.settings.index, published(at), EU)
    # As `erase` leaves it in the topic: a record without a value, behind the player's events.
    topic, key = Topics.of(at).changed, "ranked-eu:b\u00f6b".encode()
    (mine,) = {m.partition() for m in read_topic(at, topic) if m.key() == key}
    assert mine is not None
    produce(at, [Bytes(None, key, partition=mine)], topic)
    assert_forgotten(api, "b\u00f6b")
    assert api.metric("stream_rater_serve_skipped_total") == 0


def assert_forgotten(api: Answering, name: str) -> None:
    path = f"{AT}/players/{quote(name)}"
    wait_until(lambda: ask(api, path).status == 404, f"{name} is forgotten")
    assert ask(api, path).json["code"] == "unknown-player"
    assert name not in [row["player"] for row in ask(api, f"{AT}/leaderboard").json["rows"]]
    (found,) = ask(api, f"{AT}/players:lookup", {"players": [name]}).json["players"]
    assert (found["rounds"], found["mu"]) == (0, 1500.0)


# --- what is lost or killed ----------------------------------------------------------------------


def test_killed_again_and_again(
    settings: SettingsFactory, worker_process: Start, serve: ServeHere, serve_process: Serve,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Whenever `serve` is killed while it reads, its successor continues from there."""
    at = settings(index=str(tmp_path / "index"))
    rated(at, worker_process, 300)
    for first in (300, 600):
        api = serve_process(at, ready=False)
        wait_until(lambda: folder.trusted(Path(at.index)) is not None, "it writes")
        api.kill()
        produce(at, [a_random_round(number) for number in range(first, first + 300)])
    successor = serve(at)
    wait_until(Finished(at), "all is rated")
    events = published(at)
    read = partial(successor.metric, "stream_rater_serve_events_total")
    wait_until(lambda: read() >= len(events), "it read")
    successor.close()
    assert_equal_to_newest(at.index, events, EU)


def test_an_index_that_is_lost_is_made_again(
    settings: SettingsFactory, worker_process: Start, serve: ServeHere, tmp_path: Path
) -> None:
    """The new index is the same, and a second process does not use it at the same time."""
    at = settings(index=str(tmp_path / "index"))
    rated(at, worker_process, 80)
    events = published(at)
    for _ in range(2):
        api = serve(at)
        assert_equal_to_newest(at.index, events, EU)
        with pytest.raises(Unrecoverable, match="in use by another process"):
            serve(at)
        api.close()
        shutil.rmtree(at.index)


# --- changes as they come ------------------------------------------------------------------------


def test_changes_are_streamed_and_resumed(
    settings: SettingsFactory, worker_process: Start, serve: ServeHere
) -> None:
    """Streams have the ladder's events, and after an id none is missing or doubled."""
    at = settings()
    rated(at, worker_process, 5)
    api, other = serve(at), serve(at)
    with followed(api, f"{AT}/changes") as events:
        here = next(events)
        assert (here.kind, here.data) == ("", "")
        produce(at, [a_random_round(number) for number in range(5, 30)])
        produce(at, [a_message(a_round(0, ladder="other"))])
        answer = list(itertools.islice(events, 40))
    wait_until(Finished(at), "all is rated")
    new = [event for event in published(at) if event.ladder == EU and event.offset >= 5]
    wait_until(
        lambda: other.metric("stream_rater_serve_events_total") >= len(published(at)), "it read"
    )
    api.close()
    for process in (other, serve(at)):
        with followed(process, f"{AT}/changes", Last_Event_ID=answer[-1].id) as events:
            rest = list(itertools.islice(events, len(new) - 40))
        assert sorted(ids_in([*answer, *rest])) == sorted(event.event_id for event in new)
        assert all(each.kind == "rating-changed" for each in rest)
        with followed(process, f"{AT}/changes", Last_Event_ID=here.id) as events:
            again = list(itertools.islice(events, len(new)))
        assert sorted(ids_in(again)) == sorted(event.event_id for event in new)


def ids_in(events: list[StreamedEvent]) -> list[str]:
    return [rating_changed_from_json(each.data).event_id for each in events]


def others(at: Settings) -> dict[bytes, bytes]:
    """By key, what DUMP of Redis returns."""
    with connect(at) as client:
        return {key: client.dump(key) for key in client.scan_iter("*")}
