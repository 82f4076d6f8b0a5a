"""`python -m tests.notebooks` runs the example notebooks and writes them, without times."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import nbclient
import nbformat

from local.tools import ROOT

NOTEBOOKS: Final = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def read(path: Path) -> Any:
    """A notebook, which must be a valid one."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def executed(path: Path, folder: Path) -> Any:
    """The notebook, run in this folder, with all outputs."""
    notebook = read(path)
    nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    return notebook


def outputs_of(notebook: Any) -> list[Any]:
    """What its cells show, in order, without what goes to standard error."""
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", [])]
    return [each for each in outputs if each.get("name") != "stderr"]


def texts_of(notebook: Any) -> list[str]:
    """What its cells show as text. Pictures are left out: they differ from machine to machine."""
    return [
        "".join(each.get("text") or each["data"]["text/plain"])
        for each in outputs_of(notebook) if "image/png" not in each.get("data", {})
    ]  # fmt: skip


def write(path: Path) -> None:
    """Run a notebook, and write it with what it shows."""
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as folder:
        found = executed(path, Path(folder))
    written = json.loads(path.read_text(encoding="utf-8"))
    for cell, ran in zip(written["cells"], found.cells, strict=True):
        if cell["cell_type"] == "code":
            kept = [each for each in ran.outputs if each.get("name") != "stderr"]
            cell |= {"execution_count": ran.execution_count, "outputs": kept}
    # One value a line, so that a diff can be read.
    path.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for each in NOTEBOOKS:
        write(each)
        print(f"notebooks: {each.name}", file=sys.stderr)
