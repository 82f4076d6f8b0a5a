"""The notebook's tutorial and its like in the README, cell by cell: they print what they show."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tests import pages

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


@pytest.mark.parametrize("page", [pages.DOCS / "notebook.md"], ids=pages.shown)
def test_the_tutorial_shows_what_it_prints(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each cell after the other, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = cells(page.read_text())
    assert len(printed) >= 10
    for code, shown in printed:
        run(code, names)
        assert capsys.readouterr().out == shown, code
