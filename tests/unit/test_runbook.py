"""Commands on the pages of docs/operations: each is one, with options that there are; what looks
only is run by `tests/integration/test_prometheus.py`."""

import ast
import functools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click
import operator_pod
import yaml

from local.tools import ROOT
from stream_rater.cli import app
from tests import pages
from tests.chaos import hanging
from tests.helm import chart, kubernetes
from tests.helm.chart import GOLDEN, RELEASE
from tests.tools import promtool
from tests.unit.test_alerts import ALERTS
from tests.waits import HANGS_S

RUNBOOK = pages.text("operations/runbook.md")
TEXT = "\n".join(page.read_text() for page in pages.pages("operations"))
COMMENT = re.compile(r"\s+# .*$", re.MULTILINE)
REDIS = {"CONFIG", "SLOWLOG", "INFO", "TIME", "LASTSAVE", "BGSAVE", "DBSIZE", "HKEYS"}
OTHERS = {"curl", "grep", "kafka-topics.sh", "tail", "head", "export", "sleep", "date", "openssl",
          "until", "do", "done", "python"}  # fmt: skip
"""Whose options are the system's."""


def sections() -> dict[str, str]:
    """Of the runbook, by heading."""
    found = re.split(r"^#{2,3} (.*)\n", RUNBOOK, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def blocks(heading: str) -> list[str]:
    """The shell blocks of a section."""
    return pages.blocks(sections()[heading], "sh")


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


def wrong_commands(commands: Iterable[list[str]]) -> Iterator[str]:
    """What is wrong with each of them, and with the queries in them."""
    queries = []
    for words in commands:
        try:
            queries += check_command(words)
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


def check_command(words: list[str]) -> list[str]:
    """Its options exist: by our own parser, by what kubectl and redis-cli have. Returns the
    expressions in it, which promtool is to parse."""
    match words:
        case ["stream-rater", name, *arguments]:
            app.main.commands[name].make_context(name, arguments)
        case ["promtool", "query", "instant", "$PROMETHEUS", expression]:
            return [expression]
        case ["redis-cli", "-u", "$STREAM_RATER_REDIS", *more]:
            assert next(each for each in more if each != "--no-raw") in REDIS
        case ["kubectl", "create", "--filename", "-"] | ["helm", "test", _, "--namespace", _]:
            pass
        case [".venv/bin/python", "-m", "tests.chaos.hanging", *arguments]:
            hanging.parser().parse_args(arguments)
        case ["kubectl", *arguments]:
            assert_of_the_chart(arguments)
        case ["python3", script, name, *arguments]:
            assert (ROOT / script).exists()
            app.main.commands[name].make_context(name, arguments[: arguments.index("<")])
        case ["helm", "install" | "upgrade", *arguments]:
            done = chart.helm("template", *arguments, at=ROOT)
            assert done.returncode == 0, done.stderr
        case ["make", target, *variables]:
            assert all(re.match(r"[A-Z]+=", each) for each in variables)
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        case ["docker", "compose", "--file", file, *arguments]:
            assert_of_compose(yaml.safe_load((ROOT / file).read_text()), arguments)
        case [program, *_]:
            assert program in OTHERS
    return []


def test_every_command_is_one() -> None:
    """By the parsers of whoever reads it. A wrong one, of each kind that is looked into, would be
    found."""
    assert [*wrong_commands(COMMANDS)] == []
    wrong = (
        "stream-rater verify --waits 60", "promtool query instant $PROMETHEUS 'rate(up)'",
        "kubectl scale statefulset rater-stream-raters --replicas 0", "rm file",
        "redis-cli -u $STREAM_RATER_REDIS FLUSHALL",
    )  # fmt: skip
    assert len([*wrong_commands(words for each in wrong for words in split(each))]) == len(wrong)


def test_an_upgrade_has_the_ladders_of_the_install() -> None:
    """Helm forgets the values of before where new ones are given."""
    (installed,) = (words for words in COMMANDS if words[:2] == ["helm", "install"])
    files = {each for each in installed if each.startswith(("ladders=", "--set-file"))}
    assert len(files) == 2
    upgrades = [words for words in COMMANDS if words[:2] == ["helm", "upgrade"]]
    assert upgrades
    for words in upgrades:
        assert files <= set(words), words


def assert_of_compose(compose: Any, arguments: list[str]) -> None:
    """All of it, or one of our commands in one of its services."""
    match arguments:
        case ["up"]:
            pass
        case ["run", "--rm", service, name, *rest]:
            assert compose["services"][service]["image"] == "stream-rater"
            app.main.commands[name].make_context(name, rest)
        case _:
            raise AssertionError(arguments)


@functools.cache
def resources(case: str = "secured") -> list[Any]:
    """What the chart makes with everything on that workers have."""
    return list(yaml.safe_load_all((GOLDEN / f"{case}.yaml").read_text()))


def assert_of_the_chart(arguments: list[str]) -> None:
    """It names what the chart makes for the release that the README installs."""
    made = [each for each in (*resources(), *resources("serving")) if each]
    names = {each["metadata"]["name"] for each in made}
    kinds = {each["kind"].lower() for each in made}
    reported = [
        name for word in arguments if (name := word.removeprefix("pod/")).startswith(RELEASE)
    ]
    assert reported or any(operator_pod.NAME in word or RELEASE in word for word in arguments)
    assert {re.sub(r"-\d+$", "", name) for name in reported} <= names
    for word in arguments:
        assert word not in {"statefulset", "scaledobject"} - kinds


def test_every_script_is_python() -> None:
    """Between the lines."""
    scripts = pages.HEREDOC.findall(TEXT)
    assert len(scripts) == 2
    for script in scripts:
        ast.parse(script)


def test_every_alert_has_a_command() -> None:
    """That looks at what it is about."""
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
