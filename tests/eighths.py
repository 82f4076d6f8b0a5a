"""Which of the slow tests a run of CI plays: those of one eighth of the test files.

`make eighth N=3` plays eighth 3 (0 to 7). `N=commit`, the default, plays the one whose turn it is
at this commit: eight commits in a row play all. A file's path decides to which eighth it belongs.
Files that the commit changes are always played. An eighth that failed is played again, besides the
one whose turn it is, until it passes."""

import subprocess
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAILED = ROOT / "build" / "tests" / "failed-eighth"  # The eighths that failed last in this tree.

PARTS = 8


def eighth_of(file: str) -> int:
    """The eighth of a test file, by its path below the project's root."""
    return zlib.crc32(file.encode()) % PARTS


def eighth_of_commit(root: Path = ROOT) -> int:
    """The eighth of this commit, by the number of commits up to it. A shallow clone does not know
    that number and takes the hash; without git, the texts of the tests decide."""
    head = _git(root, "rev-parse", "HEAD")
    if not head:
        texts = [path.read_bytes() for path in sorted((root / "tests").rglob("*.py"))]
        return zlib.crc32(b"".join(texts)) % PARTS
    if _git(root, "rev-parse", "--is-shallow-repository") == "true":
        return int(head, 16) % PARTS
    return int(_git(root, "rev-list", "--count", "HEAD")) % PARTS


def changed_files(root: Path = ROOT) -> set[str]:
    """The files that this commit changes; none if its parent is not known here."""
    parents = _git(root, "rev-list", "--parents", "-n", "1", "HEAD").split()[1:]
    return set(_git(root, "diff", "--name-only", parents[0], "HEAD").split()) if parents else set()


def chosen(asked: str, failed: Path = FAILED, root: Path = ROOT) -> set[int]:
    """The eighths to play: those asked for ("3", "3,5" or "commit"), and those that failed last."""
    if asked == "commit":
        return {eighth_of_commit(root)} | failed_before(failed)
    numbers = {int(each) for each in asked.split(",")}
    if wrong := sorted(each for each in numbers if not 0 <= each < PARTS):
        raise ValueError(f"no such eighth: {wrong[0]} (0 to {PARTS - 1})")
    return numbers | failed_before(failed)


def failed_before(failed: Path = FAILED) -> set[int]:
    return {int(each) for each in failed.read_text().split()} if failed.exists() else set()


def remember(played: Iterable[int], passed: bool, failed: Path = FAILED) -> None:
    still = failed_before(failed) - set(played) if passed else failed_before(failed) | set(played)
    failed.parent.mkdir(parents=True, exist_ok=True)
    failed.write_text("".join(f"{each}\n" for each in sorted(still)))


def _git(root: Path, *words: str) -> str:
    """What git prints; an empty text if git fails or is not installed."""
    with suppress(OSError):
        command = ["git", "-C", str(root), *words]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return found.stdout.strip() if found.returncode == 0 else ""
    return ""
