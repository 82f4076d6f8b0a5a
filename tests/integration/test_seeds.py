"""Seeds and resets on real servers, among rounds and corrections; and a game that moves in: a table
by `seed`, another ladder by `seed --from-ladder`, and a round at the door that lets its players
begin from another ladder."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged, rating_changed_from_json
from stream_rater.contract.seeds import SEEDS
from tests import real
from tests.builders.lines import Line, a_round
from tests.chaos.corrected import matches
from tests.chaos.correcting import LADDERS_FILE
from tests.chaos.seeded import LARGE, SeededSeason
from tests.integration.processes import PATIENTLY, WorkerProcess, stream_rater, wait_until
from tests.integration.serving import Serve
from tests.integration.test_door import ended, post, published, send, serve
from tests.integration.topics import Finished, read_topic

__all__ = ["serve"]

Start = Callable[..., WorkerProcess]


def test_seeds_among_rounds_and_corrections(
    settings: real.SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """Two workers share the work, and one of them dies in the midst of it. Each change is published
    once, with the values of a replay of the edited log, and the store has the beliefs of that
    replay, to the bit."""
    ladders = tmp_path / "ladders.toml"
    ladders.write_text(LADDERS_FILE)
    at = settings(partitions=1, shards=3, ladders=str(ladders))
    season = SeededSeason(at, matches())
    first, second = worker_process(at), worker_process(at)
    season.seed(3)
    season.play(60)
    season.correct(2)
    wait_until(season.finished, "all is rated", moves=season.finished.moves)
    for turn in range(3):
        season.seed(4)
        season.play(20)
        season.correct(3)
        season.seed(2)
        if turn == 1:
            first.kill()
            first = worker_process(at)
    wait_until(season.finished, "all is rated", moves=season.finished.moves)
    found = season.tally()
    assert (found.lost, found.doubled, found.mistakes) == (0, 0, [])
    messages = read_topic(at, Topics.of(at).changed)
    events = [rating_changed_from_json(each.value() or b"") for each in messages]
    causes = Counter(each.correction.cause for each in events if each.correction)
    assert causes["players-seeded"] > LARGE
    assert causes["player-reset"] > 0
    assert set(SEEDS) < causes.keys()
    applied = [each.metric("stream_rater_seeds_total") for each in (first, second)]
    assert sum(applied) > 0


TABLE = "player,mu,sigma,games\nann,31.4,1.9,212\nbob,25.9,2.4,98\ncy,18.2,6,4\n"


def done(*words: object, at: Settings) -> str:
    found = stream_rater(*map(str, words), settings=at)
    assert found.returncode == 0, found.stderr
    return found.stdout


def at_the_door(round_id: str, *players: str) -> Line:
    """A round as it is posted: the path has the ladder."""
    line = a_round(1, *players, round_id=round_id)
    return {name: line[name] for name in ("round_id", "completed_at", "standings")}


def last(at: Settings, ladder: str) -> dict[str, RatingChanged]:
    """The newest event of each player of a ladder."""
    found: dict[str, RatingChanged] = {}
    for each in published(at):
        if each.ladder == ladder and each.offset >= getattr(found.get(each.player), "offset", -1):
            found[each.player] = each
    return found


def test_a_game_moves_in(
    settings: real.SettingsFactory, worker_process: Start, tmp_path: Path, serve: Serve
) -> None:
    """The table comes before the topics exist. A second import, and a repeated command, change
    nothing. Ratings equal a replay, also once the import is taken back."""
    place = settings(partitions=3, shards=3)
    table = tmp_path / "players.csv"
    table.write_text(TABLE)
    words = ("seed", table, "--ladder", "duel", "--scale", "openskill", "--yes")
    assert "1 seed of 3 players sent" in done(*words, at=place)
    worker_process(place)
    wait_until(Finished(place), "the seed is applied")
    assert {name: each.mu for name, each in last(place, "duel").items()} == pytest.approx(
        {"ann": 1768.8, "bob": 1537.8, "cy": 1214.4}
    )
    done(*words, at=place)
    more = ("seed", "--from-ladder", "duel", "--ladder", "blitz", "--sigma", "+150", "--yes")
    assert "1 seed of 3 players sent" in done(*more, "--most", 250, at=place)
    wait_until(Finished(place), "both ladders are seeded")
    assert {name: each.sigma for name, each in last(place, "blitz").items()} == pytest.approx(
        {"ann": 229.8, "bob": 250.0, "cy": 250.0}
    )
    again = stream_rater(*more, settings=place)
    assert again.returncode == 1 and "all 3 have a rating on 'blitz'" in again.stderr
    api = serve(place)
    begins_at_the_door(api, place)
    assert "1 round-voided" in done(*words, "--undo", at=place)
    wait_until(Finished(place), "the import is taken back")
    assert "all equal, bit for bit" in done("verify", "--wait", PATIENTLY, at=place)
    assert last(place, "duel")["cy"].mu == 1500.0
    assert last(place, "blitz")["cy"].mu == pytest.approx(1214.4)


def begins_at_the_door(api: WorkerProcess, place: Settings) -> None:
    """Ann and bob begin `team` with what they have on `duel`, a newcomer as such; bob is seeded no
    second time. An unknown ladder is refused, and nothing is written."""
    path = "/v1/ladders/team/rounds"

    def known() -> bool:
        found = post(api, f"{path}?seed_from=duel", at_the_door("probe", "x1", "x2"))
        return found.status != 503

    wait_until(known, "the API knows the ladders", every_s=0.2)
    for number, players in enumerate((("ann", "new"), ("bob", "ann"), ("bob", "ann"))):
        taken = send(
            api, f"{path}?seed_from=duel&seed_sigma=20", at_the_door(f"r{number}", *players)
        )
        assert taken.status == 202, taken
        assert ended(api, f"{path}/r{number}")["status"] == "rated"
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
    refused = post(api, f"{path}?seed_from=nowhere", at_the_door("r9", "x1", "x2"))
    assert (refused.status, refused.json["place"]) == (404, "query.seed_from")
