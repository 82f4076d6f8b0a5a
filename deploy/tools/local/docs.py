"""`make docs`: build the site of docs/, or show it (`make docs ARGS=serve`).

Zensical comes from a lock of its own. It builds build/pages, a copy of docs/ in which the Python
reference has the whole docstrings, and `make tables` has put the page with all benchmarks. Mermaid,
which draws the diagrams in the reader's browser, comes from npm, so that the site fetches nothing;
without npm, diagrams stay as their text.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import python_api

from local import python_env, steps
from local.system import ensure_packages
from local.tools import ROOT, SERVERS, LocalServerError

CONFIGURATION: Final = ROOT / "deploy" / "tools" / "zensical.toml"
DOCS: Final = ROOT / "docs"
BUILD: Final = ROOT / "build"
PAGES: Final = BUILD / "pages"
FULL: Final = "benchmarks-full.md"
SCRIPT: Final = "assets/mermaid.min.js"
BESIDE: Final = (
    (ROOT / "CONTRIBUTING.md", "contributing.md"),
    (CONFIGURATION.with_suffix(".css"), "assets/zensical.css"),
)
MERMAID_VERSION: Final = "11.12.2"
MERMAID_SHA256: Final = "d0830a6c05546e9edb8fe20a8f545f3e0dc7c4c3134d584bad9c13a99d7a71e0"
MERMAID: Final = SERVERS / f"mermaid-{MERMAID_VERSION}.min.js"
MEMBER: Final = "package/dist/mermaid.min.js"
DIAGRAM: Final = (
    '{ name = "mermaid", class = "mermaid", format = "pymdownx.superfences.fence_code_format" }'
)
OPTIONS: Final = {"build": ("--clean", "--strict"), "serve": ()}
COMMANDS: Final = tuple(OPTIONS)
LOOK_AGAIN_S: Final = 0.5
SHOW: Final = "the site is in build/docs; show it: make docs ARGS=serve"


def main(arguments: list[str]) -> int:
    """Install what is missing, then run Zensical. Returns its exit code."""
    command = arguments[0] if arguments else "build"
    if command not in COMMANDS or len(arguments) > 1:
        steps.say(f"docs: {' or '.join(COMMANDS)}, not {' '.join(arguments)}")
        return 2
    if code := steps.run(ensure):
        return code
    shutil.rmtree(PAGES, ignore_errors=True)
    copy_pages()
    (BUILD / CONFIGURATION.name).write_text(configuration(), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(python_env.DOCS)}
    words = [str(python_env.VENV_PYTHON), "-m", "zensical", command, *OPTIONS[command]]
    with (
        suppress(KeyboardInterrupt),
        subprocess.Popen(words, cwd=BUILD, env=environment) as running,
    ):
        while command == "serve" and running.poll() is None:
            time.sleep(LOOK_AGAIN_S)
            copy_pages()
    if command == "build" and running.returncode == 0:
        print(SHOW, file=sys.stderr)
    return running.returncode or 0


def copy_pages() -> None:
    """Copy what is new in docs/, and what stands there only in the site."""
    script = [(MERMAID, SCRIPT)] if MERMAID.exists() else []
    full = [(BUILD / FULL, FULL)] if (BUILD / FULL).exists() else []
    every = [(path, str(path.relative_to(DOCS))) for path in DOCS.rglob("*") if path.is_file()]
    for path, name in (*every, *script, *full, *BESIDE):
        copy = PAGES / name
        if not copy.exists() or copy.stat().st_mtime < path.stat().st_mtime:
            copy.parent.mkdir(parents=True, exist_ok=True)
            if name == "reference/python.md":
                whole = python_api.written(path.read_text(encoding="utf-8"), whole=True)
                copy.write_text(whole, encoding="utf-8")
            elif path.suffix == ".md" and DOCS not in path.parents:
                text = path.read_text(encoding="utf-8")
                copy.write_text(text.replace("](docs/", "]("), encoding="utf-8")
            else:
                shutil.copyfile(path, copy)


def configuration() -> str:
    """The configuration, with diagrams and all benchmarks if they are there."""
    text = CONFIGURATION.read_text(encoding="utf-8")
    if (BUILD / FULL).exists():
        after = '"benchmarks.md" },\n'
        text = text.replace(after, f'{after}  {{ "All benchmarks" = "{FULL}" }},\n')
    if MERMAID.exists():
        text = text.replace("site_dir =", f'extra_javascript = ["{SCRIPT}"]\nsite_dir =')
        text = text.replace("superfences = {}", f"superfences.custom_fences = [{DIAGRAM}]")
    return text


def ensure() -> None:
    """Install Zensical's packages, and Mermaid if npm is there."""
    ensure_packages(python_env.needed_packages(), steps.say)
    python_env.ensure_venv(steps.say)
    python_env.ensure_docs(steps.say)
    ensure_mermaid(steps.say)


def ensure_mermaid(say: Callable[[str], None]) -> None:
    """Fetch Mermaid's script, checked by its hash."""
    if MERMAID.exists():
        return
    if shutil.which("npm") is None:
        say("no npm: the diagrams of the site stay as their text")
        return
    say(f"fetching Mermaid {MERMAID_VERSION}")
    with tempfile.TemporaryDirectory() as folder:
        words = ["npm", "pack", "--silent", "--ignore-scripts", f"mermaid@{MERMAID_VERSION}"]
        subprocess.run(words, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        (archive,) = Path(folder).glob("*.tgz")
        keep(script_in(archive), MERMAID)


def script_in(archive: Path) -> bytes:
    """The script in an archive of npm."""
    with tarfile.open(archive) as files:
        member = files.extractfile(MEMBER)
        assert member is not None
        return member.read()


def keep(script: bytes, path: Path) -> None:
    """Write the script atomically, if its hash is the pinned one."""
    found = hashlib.sha256(script).hexdigest()
    if found != MERMAID_SHA256:
        raise LocalServerError(f"mermaid {MERMAID_VERSION} has another SHA-256: {found}")
    part = path.with_suffix(".part")
    part.write_bytes(script)
    part.rename(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
