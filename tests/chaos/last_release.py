"""stream-rater as LAST has it, with kernels of its own: `python -m tests.chaos.last_release run`.
`tree` takes it from git into build/releases, and compiles its kernels, once."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAST = "e018f9aa"  # Stands for a release until there is a tag. Its kernels' version is today's.


def tree() -> Path:
    """The folder of the release, which is made if it is not there or not complete."""
    found = ROOT / "build" / "releases" / LAST
    complete = found / "kernels.compiled"
    if not complete.exists():
        found.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(
            ["git", "archive", LAST, "stream_rater"], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", found], input=archive.stdout, check=True)
        compiling = sys.executable, "-m", "stream_rater.cli.compile_kernels"
        subprocess.run(compiling, cwd=found, env=os.environ | {"PYTHONPATH": "."}, check=True)
        complete.touch()
    return found


if __name__ == "__main__":
    os.chdir(tree())
    sys.path[:0] = [str(Path.cwd())]  # before this tree, also for processes that it starts

    from stream_rater.cli import app

    app.main()
