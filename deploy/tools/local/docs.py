"""`make docs`: build the site of docs/, or show it (`make docs ARGS=serve`).

MkDocs and its theme come from a lock of their own. Mermaid, which draws the diagrams in the
reader's browser, comes from npm, so that the site fetches nothing; without npm, diagrams stay as
their text.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from local import python_env, steps
from local.system import ensure_packages
from local.tools import ROOT, SERVERS, LocalServerError

CONFIGURATION: Final = ROOT / "deploy" / "tools" / "mkdocs.yml"
MERMAID_VERSION: Final = "11.12.2"
MERMAID_SHA256: Final = "d0830a6c05546e9edb8fe20a8f545f3e0dc7c4c3134d584bad9c13a99d7a71e0"
MERMAID: Final = SERVERS / f"mermaid-{MERMAID_VERSION}.min.js"
MEMBER: Final = "package/dist/mermaid.min.js"
COMMANDS: Final = ("build", "serve")
SHOW: Final = "the site is in build/docs; show it: make docs ARGS=serve"


def main(arguments: list[str]) -> int:
    """Install what is missing, then run MkDocs. Returns its exit code."""
    command = arguments[0] if arguments else "build"
    if command not in COMMANDS or len(arguments) > 1:
        steps.say(f"docs: {' or '.join(COMMANDS)}, not {' '.join(arguments)}")
        return 2
    if code := steps.run(ensure):
        return code
    environment = os.environ | {"PYTHONPATH": str(python_env.DOCS), "NO_MKDOCS_2_WARNING": "1"}
    if MERMAID.exists():
        environment["MERMAID"] = str(MERMAID)
    words = [str(python_env.VENV_PYTHON), "-m", "mkdocs", command, "-f", str(CONFIGURATION)]
    code = subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode
    if command == "build" and code == 0:
        print(SHOW, file=sys.stderr)
    return code


def ensure() -> None:
    """Install MkDocs' packages, and Mermaid if npm is there."""
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
