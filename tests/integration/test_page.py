"""The page at `/` in a real browser, with a real `serve` and worker; and a listing and tiers on the
page, in answers, and in the stream of changes."""

import itertools
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from local.servers import Addresses
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from tests import browser as browsers
from tests import real
from tests.browser import PHONE, NoBrowser, Tab, tab
from tests.builders.indexes import an_event
from tests.builders.lines import LADDER, Bytes, a_message, a_round
from tests.builders.serves import ServeHere, ServeThread, serves_here
from tests.integration.processes import wait_until
from tests.integration.serving import Serve, ask, followed, publish
from tests.integration.test_service import Start
from tests.integration.topics import produce, rated
from tests.real import SettingsFactory

HOSTILE = "<img src=x onerror=alert(1)>/%"  # An id that is markup, a path and an escape.
ROWS = 25
DAY_S = 86_400
LISTED = 60
LOOKS: list[dict[str, Any]] = [
    {"color_scheme": "light"}, {"color_scheme": "dark"}, {"viewport": PHONE},
]  # fmt: skip


@dataclass
class Place:
    """A place with events of players, and what starts `serve` there."""

    settings: Settings
    start: ServeHere
    offsets: Iterator[int] = field(default_factory=itertools.count)

    def publish(
        self, player: str, rating: float, days_ago: float = 0.0, ladder: str = "eu", **about: Any
    ) -> None:
        time_s = int(time.time() - DAY_S * days_ago)
        about["completed_at"] = datetime.fromtimestamp(time_s, UTC).isoformat()
        publish(self.settings, an_event(player, next(self.offsets), rating, ladder=ladder, **about))

    @cached_property
    def api(self) -> ServeThread:
        """A `serve` that has read all that was published before it was first asked for."""
        return self.start(msgspec.structs.replace(self.settings, serve_rate=0.0))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser; skips where there is none, and fails on CI."""
    try:
        with browsers.browser() as opened:
            yield opened
    except NoBrowser as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def place(addresses: Addresses) -> Iterator[Place]:
    """Listed players, the best of them with a few changes."""
    with real.a_place(addresses) as at, serves_here() as start:
        Admin(at).create_topics()
        found = Place(at, start)
        for i in range(LISTED):
            found.publish(HOSTILE if i == LISTED - 2 else f"p{i:02}", 1000.0 + 10.0 * i)
        for rating in (1700.0, 1650.0, 1720.0):
            found.publish(f"p{LISTED - 1}", rating)
        yield found


@pytest.fixture
def opened(chromium: Browser, place: Place) -> Iterator[Tab]:
    """The ladder's page. At the end, it must have had no error and have asked no other host."""
    with tab(chromium) as found:
        found.page.goto(f"{place.api.url}/#/eu")
        expect(rows(found.page)).to_have_count(ROWS)
        yield found
        assert found.errors == []
        assert all(each.startswith(place.api.url) for each in found.asked), found.asked


def rows(page: Page) -> Any:
    return page.locator("#board-rows tr")


def search(page: Page) -> Any:
    return page.get_by_role("combobox", name="Player")


def look_up(page: Page, player: str) -> None:
    search(page).fill(player)
    page.get_by_role("button", name="Show").click()


def rating_of(page: Page, player: str) -> Any:
    return page.locator("#board-rows tr", has_text=player).locator("td").nth(2)


def test_the_leaderboard_has_pages(opened: Tab) -> None:
    """All players in order, with their ranks; back to the first page."""
    page, seen = opened.page, list[str]()
    while True:
        seen += rows(page).locator("td:nth-child(2)").all_inner_texts()
        following = page.locator("#board-next")
        if following.is_disabled():
            break
        first = rows(page).first.inner_text()
        following.click()
        expect(rows(page).first).not_to_have_text(first.replace("\t", ""))
    named = [HOSTILE if i == LISTED - 2 else f"p{i:02}" for i in range(LISTED)]
    assert seen == named[::-1]
    expect(page.locator("#board-caption")).to_have_text(f"{LISTED} listed players on eu")
    expect(page.locator("#board-tier")).to_be_hidden()  # the ladder has no tiers
    page.locator("#board-first").click()
    expect(rows(page).first.locator("td").first).to_have_text("1")
    expect(page.locator("#board-first")).to_be_disabled()


def test_a_ladder_that_lists_nobody(opened: Tab, place: Place) -> None:
    """A ladder that is not there is named, beside those that are. After its first rounds, it and
    the start show their players, and how one comes to be listed."""
    page, absent = opened.page, opened.page.locator("#absent")
    page.goto(f"{place.api.url}/#/chess")
    expect(absent).to_contain_text("There is no ladder 'chess'")
    expect(absent.get_by_role("link")).to_have_text(["eu"])
    expect(page.locator("#board")).to_be_hidden()
    for player, rating in (("ann", 1600.0), ("bob", 1700.0)):
        place.publish(player, rating, ladder="chess", rounds=1, provisional=True)
    why = "A player is listed after 5 rounds; bob has 1."
    expect(page.locator("#board-caption")).to_have_text(re.compile(f"Nobody .* {why} These"))
    expect(absent).to_be_hidden()
    expect(page.locator("#board-rows .unlisted .who")).to_have_text(["bob", "ann"])
    assert_accessible(page)
    page.locator(".home").click()
    cards = page.locator("#start-ladders article")
    expect(cards.locator("h3")).to_have_text(["eu", "chess"])  # first the one with more players
    expect(cards.first).to_contain_text(f"{LISTED} of {LISTED} players listed")
    expect(cards.first.locator(".spark")).to_have_count(1)
    expect(cards.nth(1)).to_contain_text(why)
    page.get_by_role("link", name="API", exact=True).click()
    expect(page.get_by_role("heading", name="The API of this service")).to_be_visible()


@pytest.mark.slow
def test_who_is_not_listed_is_counted(opened: Tab, place: Place) -> None:
    """After the very first round nobody is listed: the page says that there is somebody."""
    others = opened.page.locator("#board-others")
    expect(others).to_have_text("")
    place.publish("young", 900.0, rounds=1, provisional=True)
    expect(others).to_have_text("1 more player is not listed. Look one up by name, to see why.")


def test_a_player_by_keyboard(opened: Tab) -> None:
    """After Tab and Enter, the heading has the focus. Facts, changes and address are there."""
    page = opened.page
    page.locator("#pause").focus()
    page.keyboard.press("Tab")
    best = f"p{LISTED - 1}"
    expect(rows(page).first.get_by_role("link", name=best)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#player-name")).to_be_focused()
    expect(page.locator("#player-name")).to_have_text(best)
    facts = page.locator("#player-facts")
    expect(facts).to_contain_text("1720")
    expect(facts).to_contain_text(f"1 of {LISTED}")
    expect(page.locator("#player-chart svg")).to_have_attribute(
        "aria-label", f"Rating of {best}: 1590 at first, now 1720, over 4 changes"
    )
    page.get_by_text("The changes in a table").click()
    expect(page.locator("#player-changes tbody tr")).to_have_count(4)
    assert page.url.endswith(f"#/eu/{best}")
    page.reload()
    expect(page.locator("#player-name")).to_have_text(best)
    page.get_by_role("link", name="Close").click()
    expect(page.locator("#player")).to_be_hidden()


@pytest.mark.slow
def test_players_are_looked_up(opened: Tab) -> None:
    """An id that is markup is shown as text, and has an address. For an unknown player, the page
    says so and stays. A player's row amid the leaderboard is marked."""
    page = opened.page
    rows(page).get_by_role("link", name=HOSTILE).click()
    expect(page.locator("#player-name")).to_have_text(HOSTILE)
    assert page.url.endswith(f"#/eu/{quote(HOSTILE, safe='()')}")
    assert page.locator("main img:not(#card)").count() == 0
    page.get_by_text("A card for your site").click()
    expect(page.locator("#card")).to_have_js_property("naturalWidth", 320)
    assert quote(HOSTILE, safe="()") in page.locator("#card-code").inner_text()
    page.get_by_role("link", name="Close").click()
    look_up(page, "nobody")
    expect(page.get_by_role("alert")).to_contain_text("Nobody of this name has played")
    expect(page.locator("#player")).to_be_hidden()
    expect(rows(page)).to_have_count(ROWS)
    rows(page).first.get_by_role("link").click()
    expect(page.get_by_role("alert")).to_be_hidden()
    look_up(page, "p20")
    page.get_by_role("link", name="Show on the leaderboard").click()
    expect(rows(page).nth(ROWS // 2)).to_contain_text("p20")
    expect(page.locator("#board-rows tr.chosen")).to_contain_text("p20")


@pytest.mark.slow
def test_pause(opened: Tab, place: Place) -> None:
    """While it is paused, the page asks for nothing. Then it shows what it has missed."""
    page = opened.page
    expect(page.locator("#status")).to_have_text("live")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#status")).to_have_text("paused")
    page.wait_for_load_state("networkidle")
    asked = about_eu(opened)
    place.publish("paused", 1800.0)
    best = "/v1/ladders/eu/leaderboard?limit=1"
    wait_until(lambda: ask(place.api, best).json["rows"][0]["player"] == "paused", "it is indexed")
    assert about_eu(opened) == asked
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#status")).to_have_text("live")
    expect(rating_of(page, "paused")).to_have_text("1800")
    place.publish("paused", 500.0)
    expect(rating_of(page, "paused")).to_have_count(0)


def about_eu(opened: Tab) -> list[str]:
    return [each for each in opened.asked if "/ladders/eu" in each]


@pytest.mark.slow
def test_a_connection_comes_back(chromium: Browser, place: Place, serve_process: Serve) -> None:
    """`serve` is killed and comes back at its address: the page says so, and catches up."""
    first = serve_process(place.settings)
    again = msgspec.structs.replace(place.settings, serve=first.url.removeprefix("http://"))
    with tab(chromium) as opened:
        page = opened.page
        page.goto(f"{first.url}/#/eu")
        expect(page.locator("#status")).to_have_text("live")
        first.kill()
        expect(page.locator("#status")).to_have_text("reconnecting")
        place.publish("lost", 1900.0)
        serve_process(again)
        expect(page.locator("#status")).to_have_text("live")
        expect(rating_of(page, "lost")).to_have_text("1900")
        place.publish("lost", 500.0)
        expect(rating_of(page, "lost")).to_have_count(0)
        assert opened.errors == []


@pytest.mark.slow
def test_a_token_is_asked_for(chromium: Browser, place: Place) -> None:
    """The page itself needs no token. It asks again after a wrong one, and keeps the right one."""
    api = place.start(msgspec.structs.replace(place.settings, serve_token="s3cr3t"))
    with tab(chromium) as opened:
        page = opened.page
        page.goto(f"{api.url}/#/eu")
        for token in ("wrong", "s3cr3t"):
            expect(page.locator("#token")).to_be_visible()
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Use it").click()
        expect(rows(page)).to_have_count(ROWS)
        expect(page.locator("#token")).to_be_hidden()
        expect(page.locator("#status")).to_have_text("live")
        page.reload()
        expect(rows(page)).to_have_count(ROWS)
        assert "s3cr3t" not in page.url and opened.errors == []


@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS, ids=["light", "dark", "phone"])
def test_everybody_can_use_it(chromium: Browser, place: Place, look: dict[str, Any]) -> None:
    """axe finds no fault in any view, also with tables and suggestions open. Nothing is wider than
    the screen."""
    best, hostile = f"p{LISTED - 1}", quote(HOSTILE, safe="")
    views = {
        "": "#start-ladders a", "#/eu": "#news-latest a", f"#/eu/{best}": "#player-chart svg",
        f"#/eu/{best}/{hostile}": "#versus-chart svg", "status": "#pulse-chart svg",
    }  # fmt: skip
    with tab(chromium, **look) as opened:
        page = opened.page
        for view, shown in views.items():
            page.goto(f"{place.api.url}/{view}")
            expect(page.locator(shown).first).to_be_visible()
            for each in page.locator("summary:visible").all():
                each.click()
            if search(page).is_visible():
                search(page).fill("p")
                expect(page.locator("#search-list li")).to_have_count(8)
            assert_accessible(page)
        assert opened.errors == []


def assert_accessible(page: Page) -> None:
    """Assert that axe finds nothing, and that no part is wider than the screen."""
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


CHANGES = 5


@pytest.mark.slow
def test_a_change_arrives_by_itself(
    settings: SettingsFactory, worker_process: Start, chromium: Browser, serve: ServeHere
) -> None:
    """A game sends a round, a worker rates it, and the page shows it without being touched."""
    at = settings()
    worker_process(at)
    with tab(chromium) as opened:
        page = opened.page
        rated(at, *(a_duel(number, "ann") for number in range(6)))
        api = serve(at)
        page.goto(f"{api.url}/#/{LADDER}")
        expect(rating_of(page, "ann")).not_to_have_text("")
        expect(page.locator("#status")).to_have_text("live")
        page.evaluate("window.opened_once = true")
        rows(page).first.get_by_role("link").focus()
        for number in range(6, 6 + CHANGES):
            before = rating_of(page, "ann").inner_text()
            produce(at, [a_duel(number, "bob" if number % 2 else "ann")])
            expect(rating_of(page, "ann")).not_to_have_text(before)
        assert page.evaluate("window.opened_once")
        expect(page.locator("#board-rows a:focus")).to_have_text("ann")  # though rows are replaced
        show_what_happened(page, api.url)
        assert opened.errors == []


def show_what_happened(page: Page, url: str) -> None:
    """Ann has won 9 of 11 duels, and the last one: each view says so."""
    page.goto(f"{url}/#/{LADDER}/ann")
    matches = page.locator("#player-matches tbody tr")
    expect(matches).to_have_count(11)
    expect(matches.first).to_contain_text("won")
    expect(matches.first).to_contain_text("against bob")
    lately = page.locator("#player-lately li")
    expect(lately.first).to_have_text("9 of the last 11 rounds raised the rating, 2 lowered it.")
    expect(lately.nth(1)).to_contain_text(": won, against bob.")
    expect(page.locator("#player-words li").first).to_contain_text("The skill is believed to be")
    compare = page.get_by_role("combobox", name="Compare with")
    compare.fill("B")
    expect(page.get_by_role("option", name="bob")).to_be_visible()
    compare.press("ArrowDown")
    compare.press("Enter")
    expect(page.locator("#versus-name")).to_be_focused()
    expect(page.locator("#versus-chance")).to_contain_text("ann beats bob with a chance of")
    expect(page.locator("#versus-met")).to_have_text(
        "Of 11 rounds of both, ann was ahead in 9, bob in 2."
    )
    page.goto(f"{url}/#/")
    expect(page.locator("#start-ladders")).to_contain_text("2 of 2 players listed, last round")
    expect(page.locator("#start-latest li").first).to_contain_text("ann beat bob")
    expect(page.locator("#start-climbers li")).to_contain_text(["ann"])
    expect(page.locator("#start-upsets li").first).to_contain_text("bob beat ann rated")


def a_duel(number: int, winner: str) -> Bytes:
    return a_message(a_round(number, winner, "bob" if winner == "ann" else "ann"))


# --- a listing and tiers ---

LADDERS = """
[ladders.eu]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }
listing = { min_rounds = 3, max_sigma = 120, idle_days = 30 }
tiers = [
    { name = "Bronze" }, { name = "Silver", from = 1200, hysteresis = 50 },
    { name = "Gold", from = 1500, hysteresis = { rounds = 5 } },
]

[ladders.sprint]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }
listing = { idle_days = 0.00005, unlisted = ["bot-*"] }
"""
EU = "/v1/ladders/eu"


@pytest.fixture(scope="module")
def league(addresses: Addresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Two listed players, and three who are not listed, each because of another rule."""
    ladders = tmp_path_factory.mktemp("views") / "ladders.toml"
    ladders.write_text(LADDERS)
    with real.a_place(addresses) as at, serves_here() as start:
        Admin(at).create_topics()
        found = Place(msgspec.structs.replace(at, ladders=str(ladders)), start)
        for player, rating in (("ann", 1300), ("ann", 1600), ("bob", 1250), ("bob", 1100)):
            found.publish(player, float(rating))
        found.publish("idle", 1550.0, days_ago=40.0)
        found.publish("new", 1550.0, rounds=2, provisional=True)
        found.publish("unsure", 1550.0, sigma=130.0)
        yield found


def test_answers_have_tiers(league: Place) -> None:
    """Ranks, totals and tiers are of the listed players; the others have a reason."""
    board = ask(league.api, f"{EU}/leaderboard").json
    found = {row["player"]: (row["rank"], row["tier"], row["previous_tier"])
             for row in board["rows"]}  # fmt: skip
    assert found == {"ann": (1, "Gold", "Silver"), "bob": (2, "Bronze", "Silver")}
    answer = ask(league.api, EU).json
    assert (answer["players"], answer["listed"]) == (5, 2)
    assert answer["listing"] == {
        "min_rounds": 3, "max_sigma": 120.0, "idle_days": 30.0, "display": "rating",
        "unlisted": [],
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


def test_events_have_tiers(league: Place) -> None:
    """An event in the stream shows a promotion. A demotion comes only past the hysteresis."""
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


def test_a_player_leaves_without_an_event(league: Place) -> None:
    """The listing of `sprint` drops a player who has been idle for four seconds."""
    league.publish("ann", 1500.0, ladder="sprint")
    sprint = "/v1/ladders/sprint"
    wait_until(lambda: ask(league.api, f"{sprint}/players/ann").status == 200, "it is read")
    wait_until(lambda: ask(league.api, sprint).json["listed"] == 0, "the player has left")
    found = ask(league.api, f"{sprint}/players/ann").json
    assert found["rank"] is None and found["unlisted"]["rule"] == "idle_days"
    assert "tier" not in found


@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS, ids=["light", "dark", "phone"])
def test_the_page_has_tiers(chromium: Browser, league: Place, look: dict[str, Any]) -> None:
    """It shows tiers and promotions of the leaderboard and a player, and why one is not listed."""
    with tab(chromium, **look) as opened:
        page = opened.page
        page.goto(f"{league.api.url}/#/eu")
        expect(rating_of(page, "ann")).to_have_text("1600")
        expect(page.locator("#board-tier")).to_be_visible()
        ann = page.locator("#board-rows tr", has_text="ann").locator("td").nth(3)
        expect(ann).to_contain_text("Gold")
        expect(ann.get_by_role("img", name="promoted from Silver")).to_be_visible()
        bob = page.locator("#board-rows tr", has_text="bob").locator("td").nth(3)
        expect(bob.get_by_role("img", name="demoted from Silver")).to_be_visible()
        tiers = page.locator("#spread-tiers li")
        expect(tiers.first).to_contain_text("from 1500, kept for 5 rounds after the promotion")
        expect(tiers.nth(1)).to_contain_text("from 1200, kept down to 1150")
        for rating in (1210.0, 1199.7):
            league.publish("dee", rating)
        expect(rating_of(page, "dee")).to_have_text("1199")  # 1200 would be Silver's first rating
        assert_accessible(page)
        facts = page.locator("#player-facts")
        look_up(page, "dee")
        expect(facts).to_contain_text("Silver, kept down to 1150")
        league.publish("dee", 0.0, rounds=0)
        look_up(page, "ann")
        expect(facts).to_contain_text("Gold")
        look_up(page, "idle")
        expect(facts).to_contain_text("not listed: 40 days without a round")
        expect(facts).not_to_contain_text("Tier")
        expect(page.locator("#player-around")).to_be_hidden()
        look_up(page, "new")
        expect(facts).to_contain_text("not listed: 2 of 3 rounds")
        assert_accessible(page)
        for player in ("ann", "bot-1"):
            league.publish(player, 1500.0, days_ago=1.0, ladder="sprint")
        page.goto(f"{league.api.url}/#/sprint")
        expect(page.locator("#board-caption")).to_contain_text("without a round, as ann did.")
        expect(page.locator("#board-rows .who")).to_have_text(["ann"])  # bots are never listed
        assert opened.errors == []
