"""The README and the pages beside it show what is there: commands, events, files and links."""

import argparse
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import click
import dist
import msgspec
import pytest

from examples import game_backend, matchmaking
from local.tools import ROOT
from stream_rater.cli import app
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.events import RatingChanged, rating_changed_from_json
from stream_rater.serve.routes import OPERATIONS, read_query
from tests import pages
from tests.helm import chart
from tests.pages import DOCS, README, blocks, commands
from tests.rounds import Reader

NOT_SETTINGS = {"STREAM_RATER_SHARED", "STREAM_RATER_TEST_KAFKA", "STREAM_RATER_TEST_STORE"}
MOST_LINES = 220
"""Of the README: the rest is in docs/."""

PLAIN = [README, *(page for page in pages.pages() if page.parent.name != "operations")]
"""Those of operations are looked at by `test_runbook`."""
ALL = [README, *pages.pages()]
EVENTS = DOCS / "reference" / "events.md"


OTHERS = [
    ["eval", "$(make up)"],
    ["python3", "-m", "venv", ".venv"],
    [".venv/bin/python", "-m", "pip", "install", "."],
    ["python3", "-m", "venv", "build/openskill"],
    ["build/openskill/bin/python", "-m", "pip", "install", "openskill"],
    ["build/openskill/bin/python", "build/export.py"],
]
"""Commands as they stand, with nothing to look into."""


def parser_of(example: Any) -> Callable[[list[str]], argparse.Namespace]:
    parse: Callable[[list[str]], argparse.Namespace] = example.parse
    return parse


PARSERS = {
    "deploy/examples/game_backend.py": parser_of(game_backend),
    "deploy/examples/matchmaking.py": parser_of(matchmaking),
}


def check_question(address: str, body: list[str]) -> None:
    """The API answers it: the path, the query and the body are those of an operation."""
    at = urlsplit(address)
    assert at.netloc == Settings().serve
    method = "POST" if body else "GET"
    for each in OPERATIONS:
        if each.method == method and re.fullmatch(re.sub(r"{\w+}", "[^/:]+", each.path), at.path):
            read_query(each, parse_qsl(at.query))
            if each.writes and body[0] == "-H":  # a standalone process needs no token
                assert body[1].startswith("Authorization: Bearer ")
                body = body[2:]
            if each.body is not None:
                assert body[0] == "-d"
                msgspec.json.decode(body[1], type=each.body)
            return
    raise AssertionError(f"no operation: {method} {at.path}")


def check_command(words: list[str]) -> None:
    """Its options exist, and so do its files."""
    if words[-1] == "&":
        words = words[:-1]
    match words[: words.index(">")] if ">" in words else words:
        case whole if whole in OTHERS:
            pass
        case ["helm", "install", "--repo", *_] | ["helm", "test", _, "--namespace", _]:
            pass  # somebody else's chart; ours
        case ["make", target, *variables]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert all(re.match(r"[A-Z]+=", each) for each in variables)
        case ["export" | "unset", *settings]:
            assert all(known_setting(each.partition("=")[0]) for each in settings)
        case [".venv/bin/stream-rater", name, *arguments]:
            made = "deploy/examples/rounds.jsonl"  # stands for a file that the page writes
            there = [made if word.startswith("build/") else word for word in arguments]
            command = app.main.commands[name]
            if isinstance(command, click.Group):
                command = command.commands[there.pop(0)]
            command.make_context(name, there)
        case [".venv/bin/python", "-m", "pip", "install", "--find-links", folder, "stream-rater"]:
            assert ROOT / folder == dist.DIST
        case [".venv/bin/python", "-m", module, *_]:
            assert importlib.util.find_spec(module) is not None
        case [".venv/bin/python", script, *arguments]:
            PARSERS[script](arguments)
        case ["helm", "install" | "upgrade", *arguments]:
            done = chart.helm("template", *arguments, at=ROOT)
            assert done.returncode == 0, done.stderr
        case ["curl", "-s" | "-sN", address, *body]:
            check_question(address, body)
        case ["mkdir" | "cat" | "sed" | "pkill" | "dask" | "kubectl", *_]:
            pass
        case _:
            raise AssertionError("not known to this test")


def faults_of(some: Sequence[Path], check: Callable[[Path, str], Iterable[str]]) -> list[str]:
    """What a check finds wrong with these pages."""
    return [
        f"{pages.shown(page)}: {each}" for page in some for each in check(page, page.read_text())
    ]


def wrong_commands(_: Path, text: str) -> Iterator[str]:
    for words in commands(text):
        try:
            check_command(words)
        except (AssertionError, click.UsageError, msgspec.DecodeError, SystemExit) as error:
            yield f"{' '.join(words)}: {error!r}"


def test_every_command_in_a_shell_block_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As somebody types it in the project's folder. One with a wrong option, of each kind that is
    looked into, would be found."""
    monkeypatch.chdir(ROOT)
    assert faults_of(PLAIN, wrong_commands) == []
    wrong = (
        "make nothing", "export STREAM_RATER_SHARD=4", ".venv/bin/stream-rater watch -x",
        ".venv/bin/python -m tests.judges", "curl -s http://127.0.0.1:9109/nothing", "rm file",
    )  # fmt: skip
    block = "\n".join(["```sh", *wrong, "```", ""])
    assert len(list(wrong_commands(README, block))) == len(wrong)


def test_the_readme_is_short() -> None:
    """And keeps the place where the benchmarks write their figures."""
    text = README.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert text.index("<!-- figures: begin -->") < text.index("<!-- figures: end -->")


def known_setting(variable: str) -> bool:
    name = variable.removeprefix(PREFIX).lower()
    return variable in NOT_SETTINGS or name in Settings.__struct_fields__


def test_the_events_shown_are_events() -> None:
    """A valid round, and rating changes with every field, whose rating follows from mu, sigma: one
    after a round, and in the reference one after a correction."""
    ladders = msgspec.toml.decode(blocks(README.read_text(), "toml")[0], type=Ladders)
    always = {each.name for each in msgspec.structs.fields(RatingChanged) if each.required}
    for page, added in ((README, [set[str]()]), (EVENTS, [set[str](), {"correction"}])):
        shown = blocks(page.read_text(), "json")
        finished, *changes = [each for each in shown if '"completed_at"' in each]
        standings = Reader(ladders).read(finished.encode())
        assert standings.players == ["ann", "bob", "cy", "dee", "eve"]
        for changed, more in zip(changes, added, strict=True):
            event = rating_changed_from_json(changed)
            assert set(msgspec.json.decode(changed)) == always | more
            assert event.rating == pytest.approx(event.mu - 2.0 * (event.sigma - 80.0))
            assert event.previous_rating == pytest.approx(
                event.previous_mu - 2.0 * (event.previous_sigma - 80.0)
            )


def wrong_names(page: Path, text: str) -> Iterator[str]:
    """Variables that are no settings, and links and files that lead nowhere."""
    yield from (
        each for each in re.findall(r"STREAM_RATER_[A-Z_]*[A-Z]", text) if not known_setting(each)
    )
    for link in re.findall(r"\]\((?!http)([^)]+)\)", text):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in pages.anchors(target.read_text())):
            yield link
    files = re.findall(r"`((?:stream_rater|deploy|helm|tests|docs)/[\w/.-]+)`", text)
    yield from (each for each in files if not (ROOT / each).exists())


def test_whatever_a_page_names_is_there() -> None:
    """No misspelt STREAM_RATER_ in the text. Every link into the tree leads to a file, and to a
    heading of it; every file that is named is there."""
    assert faults_of(ALL, wrong_names) == []
    reported = re.findall(
        r"^ +- .*: ([\w/-]+\.md)$", (ROOT / "deploy" / "tools" / "mkdocs.yml").read_text(), re.M
    )
    assert sorted(reported) == [str(page.relative_to(DOCS)) for page in pages.pages()], "the site"


def wrong_blocks(page: Path, text: str) -> Iterator[str]:
    """Ladders files that are none, those in here-documents, too; Python that does not compile."""
    shown = [each for each in pages.HEREDOC.findall(text) if "[ladders" in each]
    for block in [*blocks(text, "toml"), *shown]:
        try:
            assert msgspec.toml.decode(block, type=Ladders).ladders
        except (AssertionError, msgspec.DecodeError) as error:
            yield f"{error!r}: {block}"
    for block in blocks(text, "python"):
        try:
            compile(block, page.name, "exec")
        except SyntaxError as error:
            yield repr(error)


def test_what_is_shown_can_be_read() -> None:
    """Every ladders file is one, and Python is Python."""
    assert faults_of(ALL, wrong_blocks) == []


def test_the_python_of_the_reference_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And prints what it says; both ways to rate a ladder print the same numbers."""
    monkeypatch.chdir(ROOT)
    printed = []
    for example in blocks(pages.text("reference/python.md"), "python"):
        exec(compile(example, "python.md", "exec"), {})
        printed.append(sorted(capsys.readouterr().out.splitlines()))
    one, other = printed
    assert one == other and one[0].startswith("ann ")


def test_the_python_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, in the project's folder."""
    monkeypatch.chdir(ROOT)
    (example,), names = blocks(README.read_text(), "python"), dict[str, Any]()
    exec(compile(example, "README.md", "exec"), names)
    assert {"ann", "bob", "cy", "dee"} <= set(names["ladder"]) and names["ladder"].name == "duel"
