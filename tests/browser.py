"""Debian's Chromium without a display, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.waits import STILL_S

PROGRAM = "chromium"
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1200, "height": 900}
WAIT_MS = int(1000 * STILL_S)  # The browser sees no progress: it waits as `waits` does without.


class NoBrowser(Exception):
    """There is no Chromium here."""


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser, which is closed at the end. Raises NoBrowser if there is none."""
    path = shutil.which(PROGRAM)
    if path is None:
        raise NoBrowser("no Chromium: `make setup` installs it where there is apt-get")
    # Chromium's own sandbox does not run as root.
    alone = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=alone)
        try:
            yield opened
        finally:
            opened.close()


class Tab:
    """A tab, and everything that went wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked: list[str] = []  # The address of every request.
        self.errors: list[str] = []
        """Exceptions of scripts, and errors that the console shows, such as what is forbidden."""
        page.on("request", lambda each: self.asked.append(each.url))
        page.on("pageerror", lambda each: self.errors.append(str(each)))
        page.on("console", self._console)

    def _console(self, message: Any) -> None:
        # The console also shows answers other than 200, which are no errors of the page.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)


expect.set_options(timeout=WAIT_MS)


@contextmanager
def tab(of: Browser, **options: Any) -> Iterator[Tab]:
    """A tab in a new context, without cookies or storage. `options`: those of `new_context`."""
    with of.new_context(**{"viewport": DESK, **options}) as context:
        context.set_default_timeout(WAIT_MS)
        yield Tab(context.new_page())
