"""Stamps: small files that say what a finished step was done from, so that it is done once."""

import hashlib
from dataclasses import dataclass
from pathlib import Path


def digest(*parts: str | Path) -> str:
    """A hash of texts and of files' contents. That a file is missing changes the hash, too."""
    whole = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            content = part.encode()
        else:
            content = part.read_bytes() if part.is_file() else b"\0absent"
        whole.update(f"{len(content)}:".encode() + content)
    return whole.hexdigest()


@dataclass(frozen=True)
class Stamp:
    """A file with the digest of what a step was last finished with."""

    path: Path

    def is_current(self, wanted: str) -> bool:
        """Whether the step is done, and nothing that it depends on has changed since."""
        try:
            return self.path.read_text(encoding="ascii").strip() == wanted
        except (OSError, UnicodeDecodeError):
            return False

    def write(self, done: str) -> None:
        """Record that the step is done."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(done + "\n", encoding="ascii")
