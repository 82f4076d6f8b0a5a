"""A game moves in on real servers: a table by `seed`, another ladder by `seed --from-ladder`, and a
round at the door that lets its players begin from another ladder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged
from tests import real
from tests.integration.processes import PATIENTLY, WorkerProcess, stream_rater, wait_until
from tests.integration.serving import Serve
from tests.integration.test_door import a_round, ended, post, published, send, serve
from tests.integration.test_service import Start
from tests.integration.topics import Finished

__all__ = ["serve"]

TABLE = "player,mu,sigma,games\nann,31.4,1.9,212\nbob,25.9,2.4,98\ncy,18.2,6,4\n"


@pytest.fixture
def place(settings: real.SettingsFactory) -> Iterator[Settings]:
    """Topics and a Redis of their own."""
    yield settings(partitions=3, shards=3)


def done(*words: object, at: Settings) -> str:
    """The output of a command that succeeds."""
    found = stream_rater(*map(str, words), settings=at)
    assert found.returncode == 0, found.stderr
    return found.stdout


def verified(at: Settings) -> str:
    return done("verify", "--wait", PATIENTLY, at=at)


def last(at: Settings, ladder: str) -> dict[str, RatingChanged]:
    """The newest event of each player of a ladder."""
    found: dict[str, RatingChanged] = {}
    for each in published(at):
        if each.ladder == ladder and each.offset >= getattr(found.get(each.player), "offset", -1):
            found[each.player] = each
    return found


def test_a_game_moves_in(
    place: Settings, worker_process: Start, tmp_path: Path, serve: Serve
) -> None:
    """The table comes before the topics exist. A second import, and a repeated command, change
    nothing. Ratings equal a replay throughout, also once the import is taken back."""
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
    assert "all equal, bit for bit" in verified(place)
    api = serve(place)
    begins_at_the_door(api, place)
    assert "1 round-voided" in done(*words, "--undo", at=place)
    wait_until(Finished(place), "the import is taken back")
    assert "all equal, bit for bit" in verified(place)
    assert last(place, "duel")["cy"].mu == 1500.0
    assert last(place, "blitz")["cy"].mu == pytest.approx(1214.4)


def begins_at_the_door(api: WorkerProcess, place: Settings) -> None:
    """Ann and bob begin `team` with what they have on `duel`, a newcomer as such; bob is seeded no
    second time. An unknown ladder is refused, and nothing is written."""
    path = "/v1/ladders/team/rounds"

    def known() -> bool:
        found = post(api, f"{path}?seed_from=duel", a_round("probe", "x1", "x2"))
        return found.status != 503

    wait_until(known, "the API knows the ladders", every_s=0.2)
    for number, players in enumerate((("ann", "new"), ("bob", "ann"), ("bob", "ann"))):
        taken = send(api, f"{path}?seed_from=duel&seed_sigma=20", a_round(f"r{number}", *players))
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
    refused = post(api, f"{path}?seed_from=nowhere", a_round("r9"))
    assert (refused.status, refused.json["place"]) == (404, "query.seed_from")
