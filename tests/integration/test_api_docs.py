"""The document of the API: its examples are real answers, and the page at `/docs` shows it."""

import os
from pathlib import Path

import api_examples
import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from stream_rater.config.settings import Settings
from stream_rater.serve.routes import OPERATIONS
from tests.browser import PHONE, NoBrowser, browser, tab
from tests.builders.serves import ServeHere


def test_examples_are_real_answers(tmp_path: Path) -> None:
    """A process answers so. `make reference` writes them again."""
    assert api_examples.examples(tmp_path) == msgspec.json.decode(api_examples.FILE.read_bytes())
    assert api_examples.REQUESTS.keys() == {each.name for each in OPERATIONS if each.answer}


def test_the_page_shows_and_tries_operations(serve: ServeHere, tmp_path: Path) -> None:
    """Nothing is loaded from outside, and a screen reader can use it. A round is sent for good."""
    api = serve(Settings(serve="127.0.0.1:0", serve_rate=0.0), data=tmp_path / "ratings.db")
    try:
        with browser() as chromium, tab(chromium, viewport=PHONE) as opened:
            page = opened.page
            page.goto(f"{api.url}/docs")
            expect(page.locator("section")).to_have_count(len(OPERATIONS))
            sending = page.locator("#send-round")
            sending.get_by_text("Try it").click()
            sending.get_by_role("button", name="Send").click()
            expect(sending.get_by_label("The answer")).to_contain_text('"round_id": "r-7"')
            page.locator("#balance").get_by_text("Body", exact=True).first.click()
            assert Axe().run(page).response["violations"] == []
            assert page.evaluate("document.body.scrollWidth <= innerWidth")
            assert opened.errors == []
            assert all(each.startswith(api.url) for each in opened.asked), opened.asked
    except NoBrowser as reason:
        pytest.skip(str(reason)) if not os.environ.get("CI") else pytest.fail(str(reason))
