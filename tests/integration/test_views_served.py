"""A listing and tiers in a real `serve`: in its answers, in the stream of changes, and on the page
in a real browser."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import pytest
from playwright.sync_api import Browser, expect

from local.servers import Addresses
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.config.settings import Settings
from tests import real
from tests.browser import tab
from tests.builders.lines import Bytes
from tests.builders.serves import ServeThread, serves_here
from tests.contract.test_serve_index import an_event
from tests.integration.processes import wait_until
from tests.integration.serving import ask, followed
from tests.integration.test_page import LOOKS, assert_accessible, chromium, rating_of, rows
from tests.integration.topics import produce

__all__ = ["chromium"]

LADDERS = """
[ladders.eu]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }
listing = { min_rounds = 3, max_sigma = 120, idle_days = 30 }
tiers = [
    { name = "Bronze" }, { name = "Silver", from = 1200, hysteresis = 50 },
    { name = "Gold", from = 1500 },
]

[ladders.sprint]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }
listing = { idle_days = 0.00005 }
"""
EU = "/v1/ladders/eu"
DAY_S = 86_400


class League(NamedTuple):
    settings: Settings
    api: ServeThread
    offsets: Iterator[int]

    def publish(
        self, player: str, rating: float, days_ago: float = 0.0, ladder: str = "eu", **more: Any
    ) -> None:
        at = datetime.fromtimestamp(int(time.time() - DAY_S * days_ago), UTC).isoformat()
        event = an_event(player, next(self.offsets), rating, ladder=ladder, completed_at=at, **more)
        value = Bytes(msgspec.json.encode(event), partition=0)
        produce(self.settings, [value], Topics.of(self.settings).changed)


@pytest.fixture(scope="module")
def league(addresses: Addresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[League]:
    """Two listed players, and three whom a rule each keeps off the list."""
    ladders = tmp_path_factory.mktemp("views") / "ladders.toml"
    ladders.write_text(LADDERS)
    with real.a_place(addresses) as place, serves_here() as start:
        at = msgspec.structs.replace(place, ladders=str(ladders), serve_rate=0.0)
        Admin(at).create_topics()
        offsets = iter(range(1_000_000))
        found = League(at, start(at), offsets)
        found.publish("ann", 1300.0)
        found.publish("ann", 1600.0)
        found.publish("bob", 1250.0)
        found.publish("bob", 1100.0)
        found.publish("idle", 1550.0, days_ago=40.0)
        found.publish("new", 1550.0, rounds=2, provisional=True)
        found.publish("unsure", 1550.0, sigma=130.0)
        wait_until(lambda: ask(found.api, f"{EU}/players/unsure").status == 200, "all is read")
        yield found


def test_answers(league: League) -> None:
    """Ranks, totals and tiers are of the listed players; the others have a reason."""
    board = ask(league.api, f"{EU}/leaderboard").json
    found = {row["player"]: (row["rank"], row["tier"], row["previous_tier"])
             for row in board["rows"]}  # fmt: skip
    assert found == {"ann": (1, "Gold", "Silver"), "bob": (2, "Bronze", "Silver")}
    answer = ask(league.api, EU).json
    assert (answer["players"], answer["listed"]) == (5, 2)
    assert answer["listing"] == {
        "min_rounds": 3, "max_sigma": 120.0, "idle_days": 30.0, "display": "rating",
    }  # fmt: skip
    assert [each["name"] for each in answer["tiers"]] == ["Bronze", "Silver", "Gold"]
    assert answer["tiers"][1]["from"] == 1200.0
    rules = {"idle": ("idle_days", 30.0), "new": ("min_rounds", 3), "unsure": ("max_sigma", 120.0)}
    for name, (rule, bound) in rules.items():
        one = ask(league.api, f"{EU}/players/{name}").json
        assert (one["rank"], one["percentile"], one["tier"], one["listed"]) == (None, None, None, 2)
        assert (one["unlisted"]["rule"], one["unlisted"]["bound"]) == (rule, bound)
        refused = ask(league.api, f"{EU}/leaderboard?around={name}")
        assert refused.json["code"] == "not-listed" and rule in refused.json["detail"]
    looked_up = ask(league.api, f"{EU}/players:lookup", {"players": ["ann", "idle", "eve"]}).json
    assert [each["tier"] for each in looked_up["players"]] == ["Gold", None, None]


def test_events_have_tiers(league: League) -> None:
    """Those who follow see a promotion in its event, and a demotion only past the hysteresis."""
    with followed(league.api, f"{EU}/changes") as events:
        assert next(events).kind == ""
        for rating in (1150.0, 1210.0, 1160.0, 1149.0):
            league.publish("dee", rating)
        seen = [json.loads(next(events).data) for _ in range(4)]
    tiers = [(each["previous_tier"], each["tier"]) for each in seen]
    assert tiers == [
        (None, "Bronze"), ("Bronze", "Silver"), ("Silver", "Silver"), ("Silver", "Bronze"),
    ]  # fmt: skip
    assert [each["rating"] for each in seen] == [1150.0, 1210.0, 1160.0, 1149.0]
    league.publish("dee", 0.0, rounds=0)


def test_a_player_leaves_without_an_event(league: League) -> None:
    """The list of `sprint` lets a player go who has been idle for four seconds."""
    league.publish("ann", 1500.0, ladder="sprint")
    sprint = "/v1/ladders/sprint"
    wait_until(lambda: ask(league.api, f"{sprint}/players/ann").status == 200, "it is read")
    wait_until(lambda: ask(league.api, sprint).json["listed"] == 0, "the player has left")
    found = ask(league.api, f"{sprint}/players/ann").json
    assert found["rank"] is None and found["unlisted"]["rule"] == "idle_days"
    assert "tier" not in found


@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS, ids=["light", "dark", "phone"])
def test_the_page(chromium: Browser, league: League, look: dict[str, Any]) -> None:
    """Tiers on the leaderboard with promotions, the tier of a player, and why somebody is not
    listed. axe finds nothing, and no part is wider than the screen."""
    with tab(chromium, **look) as opened:
        page = opened.page
        page.goto(league.api.url)
        expect(rating_of(page, "ann")).to_have_text("1600")
        expect(page.locator("#board-tier")).to_be_visible()
        ann = page.locator("#board-rows tr", has_text="ann").locator("td").nth(3)
        expect(ann).to_contain_text("Gold")
        expect(ann.get_by_role("img", name="promoted from Silver")).to_be_visible()
        bob = page.locator("#board-rows tr", has_text="bob").locator("td").nth(3)
        expect(bob.get_by_role("img", name="demoted from Silver")).to_be_visible()
        assert_accessible(page)
        rows(page).first.get_by_role("link").click()
        expect(page.locator("#player-facts")).to_contain_text("Gold")
        page.get_by_role("textbox", name="Player").fill("idle")
        page.get_by_role("button", name="Show").click()
        facts = page.locator("#player-facts")
        expect(facts).to_contain_text("not listed: 40 days without a round")
        expect(facts).not_to_contain_text("Tier")
        expect(page.locator("#player-around")).to_be_hidden()
        page.get_by_role("textbox", name="Player").fill("new")
        page.get_by_role("button", name="Show").click()
        expect(facts).to_contain_text("not listed: 2 of 3 rounds")
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert opened.errors == []


@pytest.mark.slow
def test_the_page_of_a_ladder_without_tiers(chromium: Browser, league: League) -> None:
    """There is no empty column."""
    with tab(chromium) as opened:
        page = opened.page
        page.route("**/leaderboard*", lambda route: route.fulfill(
            json={"rows": [{"rank": 1, "player": "ann", "rating": 1.0}], "listed": 1, "next": None}
        ))  # fmt: skip
        page.goto(league.api.url)
        expect(rating_of(page, "ann")).to_have_text("1")
        expect(page.locator("#board-tier")).to_be_hidden()
