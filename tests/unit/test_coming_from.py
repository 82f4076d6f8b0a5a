"""The pages for those who come from elsewhere: all commands and blocks print what is shown."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from local.tools import ROOT
from tests import pages
from tests.waits import HANGS_S

SHORTEST = pages.DOCS / "how-to" / "moving-in.md"
PAGES = [SHORTEST, pages.DOCS / "coming-from.md", pages.DOCS / "how-to" / "another-system.md"]
BLOCK = re.compile(
    r"^```(\w*)[^\n]*\n(.*?)^```$(?:\n\n^```\n(.*?)^```$)?", re.DOTALL | re.MULTILINE
)
"""A block, and the one right below it with what it prints."""
NOT_RUN = (
    "make ", "python3 -m venv ", "build/openskill/bin/python -m pip ",
    ".venv/bin/stream-rater seed --from-ladder ", ".venv/bin/stream-rater reset ",
)  # fmt: skip
"""Commands that install, or need servers: `tests/unit/test_readme.py` knows their options."""
OPENSKILL = "build/openskill/bin/python build/export.py"


def runnable(text: str, printed: str) -> str:
    """A block's script without what is not run. The table on the page stands for openskill's."""
    lines = [each for each in text.splitlines() if not each.startswith(NOT_RUN)]
    given = f"cat > build/players.csv <<'END'\n{printed}END"
    return "\n".join(given if each == OPENSKILL else each for each in lines)


@pytest.mark.parametrize(
    "page",
    [pytest.param(each, marks=() if each == SHORTEST else pytest.mark.slow) for each in PAGES],
    ids=pages.shown,
)
def test_the_page_works_as_it_stands(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks run in order, in one shell and one Python, in a folder that looks like the tree."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    command = tmp_path / ".venv" / "bin" / "stream-rater"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stream_rater "$@"\n')
    command.chmod(0o755)
    names: dict[str, Any] = {}
    kept = {name: each for name, each in os.environ.items() if "STREAM_RATER" not in name}
    environment = kept | {"PYTHONPATH": str(ROOT)}
    before = "set -e\n"
    blocks = [each for each in BLOCK.findall(page.read_text()) if each[0] in ("sh", "python")]
    assert blocks
    for language, text, printed in blocks:
        if language == "python":
            exec(compile(text, page.name, "exec"), names)
            continue
        script = runnable(text, printed)
        done = subprocess.run(
            ["bash", "-c", before + script], cwd=tmp_path, env=environment, capture_output=True,
            text=True, timeout=HANGS_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        if printed:
            assert done.stdout == printed, script
        exported = [each for each in script.splitlines() if each.startswith("export ")]
        before += "".join(f"{each}\n" for each in exported)
