"""Words that docs/glossary.md replaced do not come back, in sentences or as parts of names."""

import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXTS = (".py", ".md", ".yaml", ".yml", ".tpl", ".toml", ".js", ".html", ".lua", ".txt")
NOT_READ = ("deploy/tools/licences/*", "tests/test_glossary.py")

REPLACED = {  # Old words, and what is said instead.
    "told tell tells telling": "published, reported or shown", "untold": "unannounced",
    "held": "stored, or in the belief cache", "awaits awaited awaiting": "pending",
    "scatter scatters scattered scattering": "send, sent",
    "noted": "ladder event; for records of any kind: recorded", "unjudged": "without verdicts",
    "foretell foretells foretold foretelling": "predict, predicted",
    "foresight foreseen": "preview of a correction", "sureness": "variance factor",
    "teach teaches teaching": "informative", "recalled recalls recalling": "rebuild events",
    "census": "players", "survey surveyed": "round bounds", "aside": "deferred", "anew": "again",
    "meanwhile": "during what, or after what",
}  # fmt: skip

STAYS = re.compile(
    r"""
    ladders[-_]noted | LADDERS_NOTED | ["'`]noted["'`] | NotedCorrections | noted_corrections
    | Scatter\b | \bscatter\b(?=["(`]) | \.scatter\b | "scattered" | scattered\ \(estimated
    | \buntold\b(?=["\]=)`]) | \.untold\b | bit\ 0\ is\ untold
    | ["\.]foretold\b | ^\ {4}foretold:\ float$
    """,
    re.VERBOSE,
)
"""Where old words stay: names in messages, stages in metrics, and fields that are stored."""

OLD = {word: say for words, say in REPLACED.items() for word in words.split()}
SENTENCES = re.compile(r"\b(worked in|put aside|be it)\b", re.IGNORECASE)
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def texts() -> Iterator[tuple[str, str]]:
    """Path and content of each file of the repository that people read."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if name.endswith(TEXTS) and path.is_file() and not any(fnmatch(name, x) for x in NOT_READ):
            yield name, path.read_text()


def old_words(text: str) -> Iterator[tuple[int, str]]:
    """Line and word of each old word in a text."""
    for number, line in enumerate(text.splitlines(), 1):
        for sentence in SENTENCES.findall(line):
            yield number, sentence
        for part in PART.findall(STAYS.sub("", line)):
            if (word := part.lower()) in OLD:
                yield number, word


def test_no_old_word_is_used() -> None:
    """No old word is in package, tests, documents or charts, in either spelling of a name."""
    for text in ("_held_parts = 1", "class HeldParts:", "It was told so."):
        assert len(list(old_words(text))) == 1
    found = [
        f"{name}:{number}: {word}: rather {OLD.get(word, 'a plain sentence')}"
        for name, content in texts()
        for number, word in old_words(content)
    ]
    assert not found, "\n".join(found)
