"""The example notebooks of docs/notebooks run from the first cell to the last, in a new kernel."""

import json
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from tests import pages

NOTEBOOKS = sorted((pages.DOCS / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, in the environment of the tests, without a network. No cell prints a
    warning."""
    for name in ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = read(path)
    client = nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )  # fmt: skip
    client.execute()
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", [])]
    printed = "".join(each.text for each in outputs if each.get("name") == "stderr")
    assert "Warning" not in printed and "Error" not in printed
    pictures = [each for each in outputs if "image/png" in each.get("data", {})]
    tables = [each for each in outputs if "<table" in each.get("data", {}).get("text/html", "")]
    assert len(pictures) >= 2 and len(tables) >= 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_without_outputs(path: Path) -> None:
    """So a change of it can be read, and nothing that is shown is out of date."""
    for cell in read(path).cells:
        assert cell.cell_type == "markdown" or (cell.outputs, cell.execution_count) == ([], None)
    as_written = json.dumps(json.loads(path.read_text()), indent=1, ensure_ascii=False) + "\n"
    assert path.read_text() == as_written


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_uses_what_is_public(path: Path) -> None:
    """`stream_rater` itself and its commands, and nothing below it."""
    code = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
    assert "import stream_rater\n" in code
    assert "stream_rater." in code and "from stream_rater" not in code
    names = {name.partition("(")[0] for name in code.split("stream_rater.")[1:]}
    assert names <= {"Ladder"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_site_has_it(path: Path) -> None:
    """The notebook's tutorial links to it."""
    assert f"notebooks/{path.name})" in pages.text("notebook.md")


def read(path: Path) -> Any:
    """The notebook, validated by its format."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook
