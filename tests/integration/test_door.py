"""Rounds by HTTP on real servers: from the post to the ratings, and through a process that is
killed. (In `test_outages`, Kafka goes away.) Seeds and resets among corrections. A game that moves
in: its players get ratings from a table, from another ladder, and with a posted round."""

from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from local.processes import free_port
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged
from stream_rater.contract.seeds import SEEDS
from tests.builders import doors
from tests.builders.serves import ServeHere, ServeThread
from tests.chaos import standalone
from tests.chaos.corrected import matches
from tests.chaos.correcting import LADDERS_FILE, LARGE, SeededSeason
from tests.integration.processes import PATIENTLY, Answering, Start, WorkerProcess, done, refused
from tests.integration.serving import Answered, Serve, ask, first
from tests.integration.topics import Bytes, Finished, newest_events, produce, published
from tests.real import SettingsFactory
from tests.rounds import ranked
from tests.waits import wait_until

TOKEN = "w"
DUEL = "/v1/ladders/duel/rounds"


def with_a_door(place: Settings) -> Settings:
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
    """Send until the request is accepted or refused for good, as a client does."""
    return first(partial(post, api, path, body), "it is taken")


def a_round(round_id: str, *players: str) -> dict[str, Any]:
    standings = ranked(range(1, len(players) + 1), players)
    return doors.a_round(round_id, **({"standings": standings} if players else {}))


def ended(api: Answering, path: str) -> Any:
    asked = partial(ask, api, f"{path}{'&' if '?' in path else '?'}wait=30")
    answer = first(asked, f"{path} is no longer pending", lambda e: e.json["state"] != "pending")
    assert answer.status == 200, answer
    return answer.json


def test_from_the_post_to_the_ratings(
    settings: SettingsFactory, worker_process: Start, serve: ServeHere
) -> None:
    """A round is rated, and each player's change can be read at its offset. A round without change
    and a rejected one have their end states, too. A voided round is not in the ratings at the
    correction's offset."""
    place = settings(partitions=3, shards=3)
    worker_process(place)
    api = serve(place)
    first = send(api, DUEL, a_round("r1")).json
    found = ended(api, f"{DUEL}/r1")
    assert found["state"] == "rated" and found["changes_complete"]
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
    assert ended(api, by_place)["state"] == "rated"
    # A second record of the round, as a process writes it that has not read the first one.
    record = msgspec.json.encode({**a_round("r1"), "ladder": "duel"})
    [again] = produce(place, [Bytes(record, key=b"duel")])
    by_place = f"{DUEL}/r1?partition={again.partition()}&offset={again.offset()}"
    other = serve(place)
    duplicate = ended(other, by_place)
    assert (duplicate["state"], duplicate["code"]) == ("duplicate", "duplicate-round")
    assert Counter(each.round_id for each in published(place))["r1"] == 2
    taken_back(api)
    done(place, "verify", "--wait", PATIENTLY)


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
    answer = first(partial(ask, api, path, body), path)
    assert answer.status == 200, answer
    return answer.json


def test_killed_while_it_takes_rounds(
    settings: SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """Clients send unanswered rounds again to the next process. None is lost, none doubled."""
    place = with_a_door(settings(partitions=2, serve=f"127.0.0.1:{free_port()}"))
    worker_process(place)
    with (
        closing(standalone.Host(place, tmp_path, "serve")) as door,
        standalone.clients(place.serve, TOKEN) as crowd,
    ):
        for _ in range(2):
            door.start()
            crowd.wait_for(30, door)
            door.kill()
        door.start()
        crowd.wait_for(1, door)
    wait_until(Finished(place), "all is rated")
    found = standalone.outcome("killed", place, crowd, 2, 0.0)
    assert (found.lost, found.doubled) == (0, 0)
    done(place, "verify", "--wait", PATIENTLY)


# --- seeds ---


def test_seeds_among_rounds_and_corrections(
    settings: SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """There are two workers, and one of them dies. Each change is published once, with values of
    a replay of the edited log, and beliefs equal that replay to the bit."""
    ladders = tmp_path / "ladders.toml"
    ladders.write_text(LADDERS_FILE)
    at = settings(partitions=1, shards=3, ladders=str(ladders))
    season = SeededSeason(at, matches())
    first, second = worker_process(at), worker_process(at)
    season.seed(3)
    season.play(60)
    season.correct(2)
    wait_until(season.finished, "all is rated")
    for turn in range(3):
        season.seed(4)
        season.play(20)
        season.correct(3)
        season.seed(2)
        if turn == 1:
            first.kill()
            first = worker_process(at)
    wait_until(season.finished, "all is rated")
    found = season.tally()
    assert (found.lost, found.doubled, found.mistakes) == (0, 0, [])
    causes = Counter(each.correction.cause for each in published(at) if each.correction)
    assert causes["players-seeded"] > LARGE
    assert causes["player-reset"] > 0
    assert set(SEEDS) < causes.keys()
    assert sum(each.metric("stream_rater_seeds_total") for each in (first, second)) > 0


TABLE = "player,mu,sigma,games\nann,31.4,1.9,212\nbob,25.9,2.4,98\ncy,18.2,6,4\n"


def newest(at: Settings, ladder: str) -> dict[str, RatingChanged]:
    return {who: each for (of, who), each in newest_events(at).items() if of == ladder}


def test_a_game_moves_in(
    settings: SettingsFactory, worker_process: Start, tmp_path: Path, serve: Serve
) -> None:
    """The table is sent before topics exist, and twice, without effect. Ratings equal a replay."""
    place = settings(partitions=3, shards=3)
    table = tmp_path / "players.csv"
    table.write_text(TABLE)
    words = ("seed", table, "--ladder", "duel", "--scale", "openskill", "--yes")
    assert "1 seed of 3 players sent" in done(place, *words)
    worker_process(place)
    wait_until(Finished(place), "the seed is applied")
    assert {name: each.mu for name, each in newest(place, "duel").items()} == pytest.approx(
        {"ann": 1768.8, "bob": 1537.8, "cy": 1214.4}
    )
    done(place, *words)
    more = ("seed", "--from-ladder", "duel", "--ladder", "blitz", "--sigma", "+150", "--yes")
    assert "1 seed of 3 players sent" in done(place, *more, "--most", 250)
    wait_until(Finished(place), "both ladders are seeded")
    assert {name: each.sigma for name, each in newest(place, "blitz").items()} == pytest.approx(
        {"ann": 229.8, "bob": 250.0, "cy": 250.0}
    )
    assert "all 3 have a rating on 'blitz'" in refused(place, *more, code=1)
    api = serve(place)
    begins_at_the_door(api, place)
    assert "1 round-voided" in done(place, *words, "--undo")
    wait_until(Finished(place), "the import is taken back")
    assert "all equal, bit for bit" in done(place, "verify", "--wait", PATIENTLY)
    assert newest(place, "duel")["cy"].mu == 1500.0
    assert newest(place, "blitz")["cy"].mu == pytest.approx(1214.4)


def begins_at_the_door(api: WorkerProcess, place: Settings) -> None:
    """Two players begin `team` with their ratings of `duel`. An unknown ladder is refused."""
    path = "/v1/ladders/team/rounds"
    send(api, f"{path}?seed_from=duel", a_round("probe", "x1", "x2"))
    for number, players in enumerate((("ann", "new"), ("bob", "ann"), ("bob", "ann"))):
        taken = send(api, f"{path}?seed_from=duel&seed_sigma=20", a_round(f"r{number}", *players))
        assert taken.status == 202, taken
        assert ended(api, f"{path}/r{number}")["state"] == "rated"
    events = [each for each in published(place) if each.ladder == "team"]
    of_seeds: dict[str, Any] = {
        each.player: each for each in events if each.correction and each.rank is None
    }
    assert {name: (each.mu, each.sigma) for name, each in of_seeds.items()} == {
        "ann": pytest.approx((1768.8, 99.8)), "bob": pytest.approx((1537.8, 120.8)),
    }  # fmt: skip
    assert sum(each.rank is None for each in events) == 2
    first = next(each for each in events if each.player == "ann" and each.rank is not None)
    assert (first.previous_mu, first.rounds) == (of_seeds["ann"].mu, 2)
    unknown = post(api, f"{path}?seed_from=nowhere", a_round("r9", "x1", "x2"))
    assert (unknown.status, unknown.json["place"]) == (404, "query.seed_from")
