"""The example notebooks of docs/notebooks run from the first cell to the last, in a new kernel; and
the notebook's tutorial prints what it shows."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from tests import pages
from tests.builders.cases import cases

NOTEBOOKS = sorted((pages.DOCS / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@cases("path", NOTEBOOKS)
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


@cases("path", NOTEBOOKS)
def test_it_is_stored_without_outputs(path: Path) -> None:
    """So a change of it can be read, and nothing that is shown is out of date. It uses
    `stream_rater` itself and its commands, and nothing below it. The notebook's tutorial links to
    it."""
    for cell in read(path).cells:
        assert cell.cell_type == "markdown" or (cell.outputs, cell.execution_count) == ([], None)
    as_written = json.dumps(json.loads(path.read_text()), indent=1, ensure_ascii=False) + "\n"
    assert path.read_text() == as_written
    code = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
    assert "import stream_rater\n" in code
    assert "stream_rater." in code and "from stream_rater" not in code
    assert {name.partition("(")[0] for name in code.split("stream_rater.")[1:]} <= {"Ladder"}
    assert f"notebooks/{path.name})" in pages.text("notebook.md")


def read(path: Path) -> Any:
    """The notebook, validated by its format."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


# --- the notebook's tutorial, cell by cell --------------------------------------------------------

CELL = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
"""A block of Python, and the one right below it with what it prints."""


def run(cell: str, names: dict[str, Any]) -> None:
    """As a notebook does: what the last line is, is shown."""
    tree = ast.parse(cell)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), names)
        return
    exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    if value is not None:
        print(repr(value))


def cells(of: str) -> list[tuple[str, str]]:
    """(code, what it shows) of each cell."""
    found = CELL.findall(of)
    assert len(found) == len(pages.blocks(of, "python"))
    return found


def test_the_tutorial_shows_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each cell of the page after the other, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = cells((pages.DOCS / "notebook.md").read_text())
    assert len(printed) >= 10
    for code, shown in printed:
        run(code, names)
        assert capsys.readouterr().out == shown, code
