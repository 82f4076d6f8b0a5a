"""Commands, events, files and links of the pages. (`test_prometheus.py` runs the runbook.)"""

import ast
import functools
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import click
import dist
import msgspec
import operator_pod
import pytest
import yaml

from examples import game_backend, matchmaking
from local.tools import ROOT
from stream_rater.cli import app
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.events import RatingChanged, rating_changed_from_json
from stream_rater.serve.routes import OPERATIONS, read_query
from tests import pages
from tests.chaos import hanging
from tests.helm import chart, kubernetes
from tests.helm.chart import GOLDEN, RELEASE
from tests.pages import DOCS, README, commands
from tests.rounds import Reader
from tests.tools import promtool
from tests.unit.test_alerts import ALERTS
from tests.waits import HANGS_S

NOT_SETTINGS = {"STREAM_RATER_SHARED", "STREAM_RATER_TEST_KAFKA", "STREAM_RATER_TEST_STORE"}
MOST_README = 620  # Words beside the figures: the rest is in docs/.
MOST_WORDS = 80_000  # Of the README and all pages of docs/ together.

PLAIN = [README, *(page for page in pages.pages() if page.parent.name != "operations")]
"""Those of operations are looked at below."""
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


PARSERS: dict[str, Callable[[list[str]], object]] = {
    "deploy/examples/game_backend.py": game_backend.parse,
    "deploy/examples/matchmaking.py": matchmaking.parse,
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
        case ["export", path] if path.startswith("PATH="):
            pass
        case ["export" | "unset", *settings]:
            assert all(known_setting(each.partition("=")[0]) for each in settings)
        case [".venv/bin/stream-rater", name, *arguments]:
            made = "deploy/examples/rounds.jsonl"  # stands for a file that the page writes
            there = [made if word.startswith("build/") else word for word in arguments]
            command = app.main.commands[name]
            if isinstance(command, click.Group):
                command = command.commands[there.pop(0)]
            command.make_context(name, there)
        case ["python3", "-m", "venv", _]:
            pass
        case [_, "-m", "pip", "install", "--find-links", folder, package]:
            assert ROOT / folder == dist.DIST and package.startswith("stream-rater")
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
    return [
        f"{pages.shown(page)}: {each}" for page in some for each in check(page, page.read_text())
    ]


def wrong_commands(_: Path, text: str) -> Iterator[str]:
    for words in commands(text):
        try:
            check_command(words)
        except (AssertionError, click.UsageError, msgspec.DecodeError, SystemExit) as error:
            yield f"{' '.join(words)}: {error!r}"


def known_setting(variable: str) -> bool:
    name = variable.removeprefix(PREFIX).lower()
    return variable in NOT_SETTINGS or name in Settings.__struct_fields__


def test_every_command_in_a_shell_block_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is parsed as somebody types it."""
    monkeypatch.chdir(ROOT)
    assert faults_of(PLAIN, wrong_commands) == []


def test_the_readme_is_short() -> None:
    """All pages are. The README keeps the place where benchmarks write their figures."""
    assert sum(len(page.read_text().split()) for page in ALL) <= MOST_WORDS
    above, _, rest = README.read_text().partition("<!-- figures: begin -->")
    _, _, below = rest.partition("<!-- figures: end -->")
    assert below and len((above + below).split()) <= MOST_README


def test_the_events_shown_are_events() -> None:
    """The round is valid. Rating changes have every field, and their rating follows from others."""
    always = {each.name for each in msgspec.structs.fields(RatingChanged) if each.required}
    shown = pages.blocks(EVENTS.read_text(), "json")
    finished, *changes = [each for each in shown if '"completed_at"' in each]
    assert Reader(ANY_LADDER).read(finished.encode()).players == ["ann", "bob", "cy", "dee", "eve"]
    for changed, more in zip(changes, (set[str](), {"correction"}), strict=True):
        event = rating_changed_from_json(changed)
        assert set(msgspec.json.decode(changed)) == always | more
        assert event.rating == pytest.approx(event.mu - 2.0 * (event.sigma - 80.0))
        before = event.previous_mu - 2.0 * (event.previous_sigma - 80.0)
        assert event.previous_rating == pytest.approx(before)


def wrong_names(page: Path, text: str) -> Iterator[str]:
    """Variables that are no settings, and links and files that lead nowhere."""
    variables = re.findall(r"STREAM_RATER_[A-Z_]*[A-Z]", text)
    yield from (each for each in variables if not known_setting(each))
    for link in re.findall(r"\]\((?!http)([^)]+)\)", text):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in pages.anchors(target.read_text())):
            yield link
    files = re.findall(r"`((?:stream_rater|deploy|helm|tests|docs)/[\w/.-]+)`", text)
    yield from (each for each in files if not (ROOT / each).exists())


def test_whatever_a_page_names_is_there() -> None:
    """Settings, links, headings and files exist. Ladders files and Python in it are valid."""
    assert [*faults_of(ALL, wrong_names), *faults_of(ALL, wrong_blocks)] == []
    site = (ROOT / "deploy" / "tools" / "zensical.toml").read_text()
    reported = re.findall(r'" = "([\w/-]+\.md)" },$', site, re.M)
    beside = "contributing.md"
    named = [beside, *(str(page.relative_to(DOCS)) for page in pages.pages())]
    assert sorted(reported) == sorted(named), "the site"


def wrong_blocks(page: Path, text: str) -> Iterator[str]:
    """Ladders files that are none, those in here-documents, too; Python that does not compile."""
    shown = [each for each in pages.HEREDOC.findall(text) if "[ladders" in each]
    for block in [*pages.blocks(text, "toml"), *shown]:
        try:
            assert msgspec.toml.decode(block, type=Ladders).ladders
        except (AssertionError, msgspec.DecodeError) as error:
            yield f"{error!r}: {block}"
    for block in pages.blocks(text, "python"):
        try:
            compile(block, page.name, "exec")
        except SyntaxError as error:
            yield repr(error)


def test_the_python_that_is_shown_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it stands. In the reference, both ways to rate a ladder print the same numbers."""
    monkeypatch.chdir(ROOT)
    names = dict[str, Any]()
    for example in pages.blocks(README.read_text(), "python"):
        exec(compile(example, "README.md", "exec"), names)
    assert {"ann", "bob", "cy", "dee"} <= set(names["ladder"]) and names["ladder"].name == "duel"
    capsys.readouterr()
    printed = []
    for example in pages.blocks(pages.text("reference/python.md"), "python"):
        exec(compile(example, "python.md", "exec"), {})
        printed.append(sorted(capsys.readouterr().out.splitlines()))
    one, other = printed
    assert one == other and one[0].startswith("ann ")


# --- pages of operations --------------------------------------------------------------------------

RUNBOOK = pages.text("operations/runbook.md")
TEXT = "\n".join(page.read_text() for page in pages.pages("operations"))
COMMENT = re.compile(r"\s+# .*$", re.MULTILINE)
REDIS = {"CONFIG", "SLOWLOG", "INFO", "TIME", "LASTSAVE", "BGSAVE", "DBSIZE", "HKEYS"}
SYSTEMS = {"curl", "grep", "kafka-topics.sh", "tail", "head", "export", "sleep", "date", "openssl",
          "until", "do", "done", "python"}  # fmt: skip
"""Whose options are the system's."""


def blocks(heading: str) -> list[str]:
    """The shell blocks of a section of the runbook."""
    found = re.split(r"^#{2,3} (.*)\n", RUNBOOK, flags=re.MULTILINE)
    return pages.blocks(found[found.index(heading) + 1], "sh")


def split(block: str) -> Iterator[list[str]]:
    """Each command of a block, as words: pipes, lists and loops taken apart."""
    bare = COMMENT.sub("", pages.HEREDOC.sub("", block))
    reported = shlex.shlex(bare, posix=True, punctuation_chars="|;&<>\n")
    reported.whitespace, reported.whitespace_split, reported.commenters = " \t", True, ""
    words: list[str] = []
    for word in reported:
        if set(word) <= set("|;&\n"):
            yield from [words] if words else []
            words = []
        else:
            words.append(word)
    yield from [words] if words else []


COMMANDS = [words for block in pages.blocks(TEXT, "sh") for words in split(block)]


def wrong_in_operations(commands: Iterable[list[str]]) -> Iterator[str]:
    """What is wrong with each of them, and with the queries in them."""
    queries = []
    for words in commands:
        try:
            queries += check_in_operations(words)
        except (AssertionError, click.UsageError, SystemExit) as error:
            yield f"{' '.join(words)}: {error!r}"
    rules = [{"alert": f"A{i}", "expr": each} for i, each in enumerate(queries)]
    done = subprocess.run(
        [promtool(), "check", "rules", "/dev/stdin"],
        input=json.dumps({"groups": [{"name": "g", "rules": rules}]}),
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    if done.returncode:
        yield done.stdout + done.stderr


def check_in_operations(words: list[str]) -> list[str]:
    """Its options exist. Returns the expressions in it, which promtool is to parse."""
    match words:
        case ["stream-rater", name, *arguments]:
            app.main.commands[name].make_context(name, arguments)
        case ["promtool", "query", "instant", "$PROMETHEUS", expression]:
            return [expression]
        case ["redis-cli", "-u", "$STREAM_RATER_REDIS", *more]:
            assert next(each for each in more if each != "--no-raw") in REDIS
        case ["kubectl", "create", "--filename", "-"]:
            pass
        case ["make" | "helm", *_]:
            check_command(words)
        case [".venv/bin/python", "-m", "tests.chaos.hanging", *arguments]:
            hanging.parser().parse_args(arguments)
        case ["kubectl", *arguments]:
            assert_of_the_chart(arguments)
        case ["python3", script, name, *arguments]:
            assert (ROOT / script).exists()
            app.main.commands[name].make_context(name, arguments[: arguments.index("<")])
        case ["docker", "compose", "--file", _, "up"]:
            pass
        case ["docker", "compose", "--file", file, "run", "--rm", service, name, *arguments]:
            services = yaml.safe_load((ROOT / file).read_text())["services"]
            assert services[service]["image"] == "stream-rater"
            app.main.commands[name].make_context(name, arguments)
        case [program, *_]:
            assert program in SYSTEMS
    return []


def test_every_command_is_one() -> None:
    """It is parsed as an operator types it. promtool parses the queries."""
    assert [*wrong_in_operations(COMMANDS)] == []


def test_an_upgrade_has_the_ladders_of_the_install() -> None:
    """Helm forgets the values of before where new ones are given."""
    (installed,) = (words for words in COMMANDS if words[:2] == ["helm", "install"])
    files = {each for each in installed if each.startswith(("ladders=", "--set-file"))}
    assert len(files) == 2
    upgrades = [words for words in COMMANDS if words[:2] == ["helm", "upgrade"]]
    assert upgrades
    for words in upgrades:
        assert files <= set(words), words


@functools.cache
def resources(case: str = "secured") -> list[Any]:
    return list(yaml.safe_load_all((GOLDEN / f"{case}.yaml").read_text()))


def assert_of_the_chart(arguments: list[str]) -> None:
    """It names what the chart makes for the release that the README installs."""
    made = [each for each in (*resources(), *resources("serving")) if each]
    names = {each["metadata"]["name"] for each in made}
    kinds = {each["kind"].lower() for each in made}
    reported = [word.removeprefix("pod/") for word in arguments]
    reported = [name for name in reported if name.startswith(RELEASE)]
    assert reported or any(operator_pod.NAME in word or RELEASE in word for word in arguments)
    assert {re.sub(r"-\d+$", "", name) for name in reported} <= names
    assert not {*arguments} & ({"statefulset", "scaledobject"} - kinds)


def test_every_script_is_python_and_every_alert_has_a_command() -> None:
    scripts = pages.HEREDOC.findall(TEXT)
    assert len(scripts) == 2
    for script in scripts:
        ast.parse(script)
    assert [alert for alert in ALERTS if not blocks(alert)] == []


def test_an_operators_pod_is_a_workers_without_its_name() -> None:
    """Valid, with the same settings, files and rights, by `operator_pod.py` as one types it."""
    stateful = [each for each in resources() if each["kind"] == "StatefulSet"]
    assert len(stateful) == 2
    (policy,) = (each for each in resources() if each["kind"] == "NetworkPolicy")
    (newest,) = kubernetes.newest(1)
    for workers in stateful:
        done = subprocess.run(
            [sys.executable, operator_pod.__file__, "rebuild", "--replace"],
            input=json.dumps(workers), capture_output=True, text=True, timeout=HANGS_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        pod = json.loads(done.stdout)
        assert kubernetes.mistake(pod, newest) is None
        theirs = workers["spec"]["template"]
        (container,), (worker,) = pod["spec"]["containers"], theirs["spec"]["containers"]
        settings = ["--settings", "/etc/stream-rater/config/settings.toml"]
        assert container["args"] == ["rebuild", "--replace", *settings]
        for same in ("image", "volumeMounts", "securityContext", "command"):
            assert container[same] == worker[same]
        assert pod["spec"]["volumes"] == theirs["spec"]["volumes"]
        assert operator_pod.IDENTITY not in {each["name"] for each in container["env"]}
        labels, selector = pod["metadata"]["labels"], workers["spec"]["selector"]["matchLabels"]
        assert not selector.items() <= labels.items(), "it would be counted as a worker"
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
