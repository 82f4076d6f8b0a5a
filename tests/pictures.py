"""`make pictures` writes docs/pictures/: the page of `serve` (page-*.png), and what the notebooks
show in JupyterLab's style (notebook-*.png, plot-*.png). `ARGS=notebook` leaves out the page."""

import base64
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from demonstration import programs
from local.servers import LocalServerError, servers
from local.tools import ROOT
from stream_rater.config.settings import PREFIX
from tests import notebooks
from tests.browser import PHONE, NoBrowser, browser, tab

OUT: Final = ROOT / "docs" / "pictures"
LADDER: Final = "ranked-eu"
ROUNDS: Final = 4500
PER_SECOND: Final = 40
BEFORE_S: Final = 15.0  # A season runs for so long first.

DESK: Final = {"width": 1100, "height": 1050}
LOOKS: Final[dict[str, dict[str, Any]]] = {
    "light": {"viewport": DESK, "color_scheme": "light"},
    "dark": {"viewport": DESK, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "device_scale_factor": 2},
}

NOTEBOOK: Final = ROOT / "docs" / "notebooks" / "matches-to-forecast.ipynb"
PLOTS: Final = ("board", "players", "calibration")  # The notebook's plots, in their order.
SHOWN: Final = (0, 1, 3)  # What the notebook shows as HTML: a ladder, a belief, a prediction.
COLOURS: Final = {
    "light": {"ground": "#fff", "text": "rgba(0, 0, 0, 0.87)", "even": "#f5f5f5",
              "line": "#bdbdbd"},
    "dark": {"ground": "#111", "text": "rgba(255, 255, 255, 0.87)", "even": "#212121",
             "line": "#616161"},
}  # fmt: skip

RULES: Final = """
body { background: %(ground)s; color: %(text)s; margin: 16px; width: 620px;
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
div.output { margin-bottom: 22px; }
table { border-collapse: collapse; border-spacing: 0; border: none; color: %(text)s;
  font-size: 12px; table-layout: fixed; margin: 0 auto 1em; }
td, th, tr { vertical-align: middle; padding: 0.5em; line-height: normal; white-space: normal;
  max-width: none; border: none; }
thead { border-bottom: 1px solid %(line)s; vertical-align: bottom; }
th { font-weight: bold; }
td, th { text-align: right; }
tbody tr:nth-child(even) { background: %(even)s; }
"""
"""JupyterLab's rules for the tables of outputs."""


@contextmanager
def a_season() -> Iterator[str]:
    """The address of `serve`, which follows a worker that rates a made-up season."""
    with servers() as at, tempfile.TemporaryDirectory(prefix="stream-rater-") as name:
        folder = Path(name)
        environment = {
            **os.environ, **at.environment(), f"{PREFIX}LADDERS": str(programs.LADDERS),
            f"{PREFIX}SERVE_HISTORY": "200",
        }  # fmt: skip
        command = [*programs.GAME_BACKEND, "--rounds", str(ROUNDS), "--per-second", str(PER_SECOND)]
        with (
            programs.start_service(folder, environment),
            programs.start_serve(folder, environment) as serve,
            programs.program("game_backend", command, folder, environment),
        ):
            yield f"http://{serve.address}/"


def take(page: Page, address: str, out: Path, *, player: bool = True) -> None:
    """Open the page of a ladder, or one of its best players, and take a picture of it."""
    page.goto(f"{address}#/{LADDER}")
    first = page.locator("#board-rows a").first
    expect(first).to_be_visible()
    page.wait_for_timeout(BEFORE_S * 1000)
    if player:
        first.click()
        expect(page.locator("#player-words li").first).to_be_visible()
    page.locator("#board").focus()
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=out, animations="disabled")
    with Image.open(out) as picture:  # 128 colours take a third of the bytes
        picture.quantize(128).save(out, optimize=True)


def notebook_data() -> list[dict[str, str]]:
    """Run the notebooks. Returns what the cells of the first one show, by MIME type, in order."""
    for path in notebooks.NOTEBOOKS:
        notebooks.write(path)
    return [each.get("data", {}) for each in notebooks.outputs_of(notebooks.read(NOTEBOOK))]


def take_notebook(opened: Browser) -> Iterator[Path]:
    """Take the pictures of the notebook. Yields their paths."""
    data = notebook_data()
    pictures = [each["image/png"] for each in data if "image/png" in each]
    for name, picture in zip(PLOTS, pictures, strict=True):
        path = OUT / f"plot-{name}.png"
        path.write_bytes(base64.b64decode(picture))
        yield path
    ours = [each["text/html"] for each in data if "<caption" in each.get("text/html", "")]
    outputs = "".join(f'<div class="output">{ours[i]}</div>' for i in SHOWN)
    for name, colours in COLOURS.items():
        path = OUT / f"notebook-{name}.png"
        look = {"viewport": {"width": 652, "height": 300}, "device_scale_factor": 1.5}
        with tab(opened, **look) as found:
            found.page.set_content(f"<style>{RULES % colours}</style>{outputs}")
            found.page.screenshot(path=path, full_page=True, animations="disabled")
        yield path


def main() -> int:
    """Take the pictures. Returns 0, or 1 after one line that says why it cannot be done."""
    OUT.mkdir(exist_ok=True)
    try:
        with browser() as opened:
            for path in take_notebook(opened):
                print(f"pictures: {path}", file=sys.stderr)
        if "notebook" in sys.argv[1:]:
            return 0
        with a_season() as address, browser() as opened:
            for name, look in LOOKS.items():
                path = OUT / f"page-{name}.png"
                with tab(opened, **look) as found:
                    take(found.page, address, path, player=name != "light")
                print(f"pictures: {path}", file=sys.stderr)
    except (LocalServerError, programs.DemoFailed, NoBrowser, OSError) as error:
        print(f"pictures: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
