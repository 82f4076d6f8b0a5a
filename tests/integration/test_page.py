"""The page at `/` in a real browser, beside a real `serve` and a real worker."""

import itertools
import os
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from local.servers import Addresses
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.config.settings import Settings
from tests import browser as browsers
from tests import real
from tests.browser import PHONE, NoBrowser, Tab, tab
from tests.builders.lines import Bytes, a_message, a_round
from tests.builders.serves import ServeHere, ServeThread, serves_here
from tests.contract.test_serve_index import an_event
from tests.integration.processes import wait_until
from tests.integration.serving import Serve, ask
from tests.integration.test_service import Start
from tests.integration.topics import Finished, produce

HOSTILE = "<img src=x onerror=alert(1)>/%"
"""An id that is markup, a path and an escape."""
ROWS = 25
LISTED = 60
LOOKS: list[dict[str, Any]] = [
    {"color_scheme": "light"}, {"color_scheme": "dark"}, {"viewport": PHONE},
]  # fmt: skip


class Place(NamedTuple):
    """A place with events of a ladder, and what starts `serve` there."""

    settings: Settings
    start: ServeHere
    offsets: Iterator[int]

    def publish(self, player: str, rating: float, **about: Any) -> None:
        event = an_event(player, next(self.offsets), rating, ladder="eu", **about)
        produce(
            self.settings, [Bytes(msgspec.json.encode(event), partition=0)],
            Topics.of(self.settings).changed,
        )  # fmt: skip


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
        found = Place(at, start, itertools.count())
        for i in range(LISTED):
            found.publish(HOSTILE if i == LISTED - 2 else f"p{i:02}", 1000.0 + 10.0 * i)
        for rating in (1700.0, 1650.0, 1720.0):
            found.publish(f"p{LISTED - 1}", rating)
        yield found


@pytest.fixture(scope="module")
def api(place: Place) -> ServeThread:
    """A `serve` that has read all of it."""
    return place.start(msgspec.structs.replace(place.settings, serve_rate=0.0))


@pytest.fixture
def opened(chromium: Browser, api: ServeThread) -> Iterator[Tab]:
    """The page of the ladder; whatever a test does, nothing goes wrong in it, and it asks nobody
    else."""
    with tab(chromium) as found:
        found.page.goto(api.url)
        expect(rows(found.page)).to_have_count(ROWS)
        yield found
        assert found.errors == []
        assert all(each.startswith(api.url) for each in found.asked), found.asked


def rows(page: Page) -> Any:
    return page.locator("#board-rows tr")


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
    expect(page.locator("#board-caption")).to_have_text(f"{LISTED} players on eu")
    page.locator("#board-first").click()
    expect(rows(page).first.locator("td").first).to_have_text("1")
    expect(page.locator("#board-first")).to_be_disabled()


@pytest.mark.slow
def test_who_is_not_listed_is_counted(opened: Tab, place: Place) -> None:
    """After the very first round nobody is listed: the page says that there is somebody."""
    others = opened.page.locator("#board-others")
    expect(others).to_have_text("")
    place.publish("young", 900.0, rounds=1, provisional=True)
    expect(others).to_have_text("1 more player is not listed. Look one up by name, to see why.")


def test_a_player_by_keyboard(opened: Tab) -> None:
    """Tab to the name, Enter: the heading has the focus, and the facts and changes are there. The
    address is that of the player."""
    page = opened.page
    page.locator("#pause").focus()
    page.keyboard.press("Tab")
    best = f"p{LISTED - 1}"
    expect(page.get_by_role("link", name=best)).to_be_focused()
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
def test_ids_are_text(opened: Tab) -> None:
    """An id that is markup is shown as it is, and its page is found by its address."""
    page = opened.page
    page.get_by_role("link", name=HOSTILE).click()
    expect(page.locator("#player-name")).to_have_text(HOSTILE)
    assert page.url.endswith(f"#/eu/{quote(HOSTILE, safe='()')}")
    assert page.locator("img").count() == 0


@pytest.mark.slow
def test_who_is_not_there(opened: Tab) -> None:
    """The message is that of the API; the rest of the page stays."""
    page = opened.page
    page.get_by_role("textbox", name="Player").fill("nobody")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert")).to_contain_text("'nobody' has no round that counts")
    expect(page.locator("#player")).to_be_hidden()
    expect(rows(page)).to_have_count(ROWS)
    rows(page).first.get_by_role("link").click()
    expect(page.get_by_role("alert")).to_be_hidden()


@pytest.mark.slow
def test_a_player_amid_the_leaderboard(opened: Tab) -> None:
    """The player's row is marked, and in the middle."""
    page = opened.page
    page.get_by_role("textbox", name="Player").fill("p20")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="Show on the leaderboard").click()
    expect(rows(page).nth(ROWS // 2)).to_contain_text("p20")
    expect(page.locator("#board-rows tr.chosen")).to_contain_text("p20")


@pytest.mark.slow
def test_pause(opened: Tab, place: Place, api: ServeThread) -> None:
    """While it is paused, a change is in the API and the page asks for nothing; then what was
    missed is shown."""
    page = opened.page
    expect(page.locator("#status")).to_have_text("live")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#status")).to_have_text("paused")
    page.wait_for_load_state("networkidle")
    asked = about_eu(opened)
    place.publish("paused", 1800.0)
    best = "/v1/ladders/eu/leaderboard?limit=1"
    wait_until(lambda: ask(api, best).json["rows"][0]["player"] == "paused", "it is indexed")
    assert about_eu(opened) == asked
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#status")).to_have_text("live")
    expect(rating_of(page, "paused")).to_have_text("1800")
    place.publish("paused", 500.0)
    expect(rating_of(page, "paused")).to_have_count(0)


def about_eu(opened: Tab) -> list[str]:
    return [each for each in opened.asked if "/ladders/eu" in each]


@pytest.mark.slow
def test_a_lost_connection_comes_back(
    chromium: Browser, place: Place, serve_process: Serve
) -> None:
    """`serve` is killed and started again at the same address: the page says so, and goes on with
    what was missed."""
    first = serve_process(place.settings)
    again = msgspec.structs.replace(place.settings, serve=first.url.removeprefix("http://"))
    with tab(chromium) as opened:
        page = opened.page
        page.goto(first.url)
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
    """The page itself needs none; a wrong one is asked for again, and the right one stays in this
    tab."""
    api = place.start(msgspec.structs.replace(place.settings, serve_token="s3cr3t"))
    with tab(chromium) as opened:
        page = opened.page
        page.goto(api.url)
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
def test_everybody_can_use_it(chromium: Browser, api: ServeThread, look: dict[str, Any]) -> None:
    """axe finds nothing, on the leaderboard and with a player and tables open; and no part is wider
    than the screen."""
    with tab(chromium, **look) as opened:
        page = opened.page
        page.goto(api.url)
        expect(rows(page)).to_have_count(ROWS)
        assert_accessible(page)
        rows(page).first.get_by_role("link").click()
        expect(page.locator("#player-chart svg")).to_be_visible()
        for each in page.locator("summary").all():
            each.click()
        assert_accessible(page)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0


def assert_accessible(page: Page) -> None:
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()


CHANGES = 5


@pytest.mark.slow
def test_a_change_arrives_by_itself(
    settings: real.SettingsFactory, worker_process: Start, chromium: Browser, serve: ServeHere
) -> None:
    """A game reports a round, a real worker rates it, and the page shows the new rating. Nobody
    touches the page, and it is not opened again. `make bench-stream` measures how long a change
    takes."""
    at = settings()
    worker_process(at)
    with tab(chromium) as opened:
        page = opened.page
        produce(at, [a_duel(number, "ann") for number in range(6)])
        wait_until(Finished(at), "all is rated")
        page.goto(serve(at).url)
        expect(rating_of(page, "ann")).not_to_have_text("")
        expect(page.locator("#status")).to_have_text("live")
        page.evaluate("window.opened_once = true")
        for number in range(6, 6 + CHANGES):
            before = rating_of(page, "ann").inner_text()
            produce(at, [a_duel(number, "bob" if number % 2 else "ann")])
            expect(rating_of(page, "ann")).not_to_have_text(before)
        assert page.evaluate("window.opened_once")
        assert opened.errors == []


def a_duel(number: int, winner: str) -> Bytes:
    return a_message(a_round(number, winner, "bob" if winner == "ann" else "ann"))
