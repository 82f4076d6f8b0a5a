"""`make pictures`: what notebooks show, as docs/pictures/notebook-*.png and plot-*.png.

The first example notebook is run. Its plots are written as they are. Its ladder and a prediction
are shown as HTML on pages with JupyterLab's colours and its rules for tables, by Chromium.
"""

import base64
import contextlib
import tempfile
from pathlib import Path
from typing import Any, Final

import nbclient
import nbformat
from playwright.sync_api import Browser

from local.tools import ROOT
from tests.browser import tab

NOTEBOOK: Final = ROOT / "docs" / "notebooks" / "matches-to-forecast.ipynb"

PLOTS: Final = ("board", "players", "calibration")
"""The names of the notebook's plots, in their order."""

SHOWN: Final = (0, 1, 3)
"""Of what the notebook shows of `stream_rater` as HTML: the ladder, a belief and a prediction."""

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


def executed(folder: Path) -> Any:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=None, resources=place).execute()
    return notebook


def data_of(notebook: Any, kind: str) -> list[str]:
    """What its cells show in this MIME type, in order."""
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", [])]
    return [each.data[kind] for each in outputs if kind in each.get("data", {})]


def take_all(browser: Browser, out: Path) -> list[Path]:
    """Make the pictures in the folder `out`; their paths."""
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as name:
        notebook = executed(Path(name))
    paths = []
    for name, picture in zip(PLOTS, data_of(notebook, "image/png"), strict=True):
        paths.append(out / f"plot-{name}.png")
        paths[-1].write_bytes(base64.b64decode(picture))
    ours = [each for each in data_of(notebook, "text/html") if "<caption" in each]
    outputs = "".join(f'<div class="output">{ours[i]}</div>' for i in SHOWN)
    for name, colours in COLOURS.items():
        look = {"viewport": {"width": 652, "height": 300}, "device_scale_factor": 1.5}
        with contextlib.ExitStack() as stack:
            page = stack.enter_context(tab(browser, **look)).page
            page.set_content(f"<style>{RULES % colours}</style>{outputs}")
            paths.append(out / f"notebook-{name}.png")
            page.screenshot(path=paths[-1], full_page=True, animations="disabled")
    return paths
