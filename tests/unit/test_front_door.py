"""`import stream_rater`: light, typed, and without what only the service needs."""

import ast
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import stream_rater
from local.tools import ROOT
from stream_rater.cli.options import OF_SERVE, PACKAGE_EXTRAS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
LOADED = "print(*({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({sorted(PACKAGE_EXTRAS)}))\n"
"""As where the extras `service` and `serve` are not installed."""


def python(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


def newly_loaded(code: str) -> set[str]:
    """The packages that this code imports beside those of an empty program."""
    empty, done = python(f"import sys; {LOADED}"), python(f"import sys; {code}; {LOADED}")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split()) - set(empty.stdout.split())


def packages(requirements: list[str]) -> set[str]:
    """The names by which these are imported."""
    return {each.partition(">")[0].partition("[")[0].replace("-", "_") for each in requirements}


def test_to_import_it_loads_nothing() -> None:
    """Nor do its names load a kernel: numba is loaded with the first ladder."""
    assert newly_loaded("import stream_rater") == {"stream_rater"}
    every = newly_loaded(f"from stream_rater import {', '.join(stream_rater.__all__)}")
    assert {"stream_rater", "numpy", "msgspec"} <= every
    assert every & {"numba", "llvmlite", "click", "rich", *PACKAGE_EXTRAS} == set()
    rating = "import stream_rater; stream_rater.Ladder().rate(['ann', 'bob'])._repr_html_()"
    rated = newly_loaded(f"{rating}; assert 'stream_rater.evaluation' not in sys.modules")
    assert "numba" in rated and not rated & {"pandas", "polars", "pyarrow", "matplotlib"}


def test_a_historic_system_is_loaded_when_a_ladder_names_it() -> None:
    """Other ladders neither import nor compile any historic system."""
    historic = "stream_rater.rating.kernels.historic"
    code = f"""if True:
        import sys, stream_rater
        glicko = dict(system="glicko", beta=200.0, sigma_drift=35.0)
        for systems in (dict(system="elo-mmr"), dict(system="two-moment")), (glicko,):
            for each in systems:
                stream_rater.Ladder(**each).rate(["ann", ("bob", "cy")])
            print(*sorted(each for each in sys.modules if each.startswith({historic!r})))
    """
    assert python(code).stdout.split("\n") == ["", historic, ""]


def test_names_are_what_type_checkers_see() -> None:
    """Each is imported from where it is defined, and all of them are listed."""
    seen = {
        alias.name: node.module
        for node in ast.walk(ast.parse(Path(stream_rater.__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("stream_rater.")
        for alias in node.names
    }
    assert sorted(seen) == stream_rater.__all__ == sorted(vars(stream_rater)["_HOMES"])
    for name, module in seen.items():
        found: Any = getattr(stream_rater, name)
        assert found is getattr(import_module(str(module)), name) and found.__module__ == module
        assert name in dir(stream_rater)
    with pytest.raises(AttributeError, match="module 'stream_rater' has no attribute 'Leader'"):
        stream_rater.Leader  # type: ignore[attr-defined]  # noqa: B018


def test_the_wheel_needs_what_rates() -> None:
    """It needs no client of Kafka or Redis: `service` has these, and `serve` the HTTP server."""
    assert packages(PROJECT["dependencies"]) == {"click", "msgspec", "numba", "numpy", "rich"}
    for extra in ("service", "serve"):
        brought = {name for name, which in PACKAGE_EXTRAS.items() if which == extra}
        assert packages(EXTRAS[extra]) - {"stream_rater"} == brought


RATE = "from stream_rater import Ladder; print(Ladder().rate(['ann', 'bob']).mu[0] > 1400)"
OFFLINE = [
    ["rate", "deploy/examples/rounds.jsonl"], ["--help"],
    ["evaluate", "deploy/examples/rounds.jsonl", "--config", "deploy/examples/elo-mmr.json"],
    ["correct", "void", "--help"],
]  # fmt: skip
OF_THE_SERVICE = [
    ["run"], ["submit", "deploy/examples/rounds.jsonl"], ["watch"], ["rejected"], ["rebuild"],
    ["verify"], ["inspect"], ["correct", "void", "duel", "r"],
]  # fmt: skip
COMMANDS = """
import sys
from stream_rater.cli.app import main
for words in {commands!r}:
    try:
        main(words)
    except SystemExit as ended:
        print(words, ended.code or 0)
"""


def test_offline_commands_do_without_the_service() -> None:
    """As the ladder does, which does not look for it either."""
    done = python(WITHOUT + RATE + COMMANDS.format(commands=OFFLINE))
    ended = [line for line in done.stdout.splitlines() if line.endswith("] 0")]
    assert (done.returncode, ended) == (0, [f"{words} 0" for words in OFFLINE]), done.stderr
    assert done.stdout.startswith("True\n")


def test_a_command_of_the_service_names_its_extra() -> None:
    """In one line, which has all that it needs."""
    commands = [*OF_THE_SERVICE, *([each] for each in OF_SERVE)]
    done = python(WITHOUT + COMMANDS.format(commands=commands))
    assert done.stdout.splitlines() == [f"{words} 1" for words in commands], done.stderr
    said = done.stderr.splitlines()
    assert len(said) == len(commands)
    for (name, *_), line in zip(commands, said, strict=True):
        extra = "serve" if name in OF_SERVE else "service"
        assert line.startswith("stream-rater: ")
        assert line.endswith(f" is not installed: stream-rater[{extra}] brings it")
