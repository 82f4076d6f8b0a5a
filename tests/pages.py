"""The project's documents: the README and the pages of docs/, their blocks, commands and tables."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from local.tools import ROOT

DOCS = ROOT / "docs"
README = ROOT / "README.md"

HEREDOC = re.compile(r"<<'END'[^\n]*\n(.*?)^END$", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="(.*?)"')


def text(page: str) -> str:
    """A page of docs/, by its path there."""
    return (DOCS / page).read_text()


def pages(folder: str = "") -> list[Path]:
    """The pages of docs/, or of one of its folders."""
    return sorted((DOCS / folder).rglob("*.md"))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(of: str, language: str) -> list[str]:
    return [block for name, _, block in FENCE.findall(of) if name == language]


def titled(of: str) -> list[tuple[str, str]]:
    """(title, block) of the shell blocks that have a title."""
    found = [(TITLE.search(rest), block) for name, rest, block in FENCE.findall(of) if name == "sh"]
    return [(title[1], block) for title, block in found if title]


def commands(of: str) -> Iterator[list[str]]:
    """Every command in a text's shell blocks, as words; here-documents are left out."""
    for block in blocks(of, "sh"):
        for line in HEREDOC.sub("", block).splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words


def anchors(of: str) -> set[str]:
    """The anchors of a page's headings, as code hosts and the site make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", of), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def section(of: str, heading: str) -> str:
    return of.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def table(of: str, first: str) -> str:
    """The table whose first column has this heading."""
    return of.split(f"| {first} |", 1)[1].split("\n\n", 1)[0]


def names(of: str, first: str) -> list[str]:
    """What stands in backticks in the first column of that table."""
    cells = re.findall(r"^\| (`.*?) \|", table(of, first), re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
