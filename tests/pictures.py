"""`make pictures`: the page of `serve` beside a made-up season, as docs/pictures/page-*.png, and
what notebooks show (`notebook_pictures`). `make pictures ARGS=notebook` makes the latter alone."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page, expect

from demonstration.programs import (
    GAME_BACKEND,
    LADDERS,
    DemoFailed,
    program,
    start_serve,
    start_service,
)
from local.servers import LocalServerError, servers
from local.tools import ROOT
from stream_rater.config.settings import PREFIX
from tests import notebook_pictures
from tests.browser import PHONE, NoBrowser, browser, tab

OUT: Final = ROOT / "docs" / "pictures"
LADDER: Final = "ranked-eu"
ROUNDS: Final = 4500
PER_SECOND: Final = 40
BEFORE_S: Final = 25.0
"""The page has been open for so long, so that its pulse has something to show."""

DESK: Final = {"width": 1100, "height": 1150}
LOOKS: Final[dict[str, dict[str, Any]]] = {
    "light": {"viewport": DESK, "color_scheme": "light"},
    "dark": {"viewport": DESK, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "device_scale_factor": 2},
}


@contextmanager
def a_season() -> Iterator[str]:
    """A worker rates a made-up season, and `serve` follows; its address."""
    with servers() as at, tempfile.TemporaryDirectory(prefix="stream-rater-") as name:
        folder = Path(name)
        environment = {
            **os.environ, **at.environment(), f"{PREFIX}LADDERS": str(LADDERS),
            f"{PREFIX}SERVE_HISTORY": "200",
        }  # fmt: skip
        command = [*GAME_BACKEND, "--rounds", str(ROUNDS), "--per-second", str(PER_SECOND)]
        with (
            start_service(folder, environment),
            start_serve(folder, environment) as serve,
            program("game_backend", command, folder, environment),
        ):
            yield f"http://{serve.address}/"


def take(page: Page, address: str, out: Path) -> None:
    """Open the page, and a player of the top, and take its picture."""
    page.goto(f"{address}#/{LADDER}")
    first = page.locator("#board-rows a").first
    expect(first).to_be_visible()
    page.wait_for_timeout(BEFORE_S * 1000)
    first.click()
    expect(page.locator("#player-chart svg")).to_be_visible()
    page.locator("#board").focus()
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=out, animations="disabled")


def main() -> int:
    """0, or 1 with one line when it cannot be done."""
    OUT.mkdir(exist_ok=True)
    try:
        with browser() as opened:
            for path in notebook_pictures.take_all(opened, OUT):
                print(f"pictures: {path}", file=sys.stderr)
        if "notebook" in sys.argv[1:]:
            return 0
        with a_season() as address, browser() as opened:
            for name, look in LOOKS.items():
                with tab(opened, **look) as found:
                    take(found.page, address, OUT / f"page-{name}.png")
                print(f"pictures: {OUT / f'page-{name}.png'}", file=sys.stderr)
    except (LocalServerError, DemoFailed, NoBrowser, OSError) as error:
        print(f"pictures: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
