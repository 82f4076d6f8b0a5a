"""Clients of the API: requests that Schemathesis makes up get only answers as described; the
examples send a round by HTTP, in each language whose toolchain is here."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks as openapi

from local.servers import Addresses
from local.tools import ROOT
from stream_rater.serve.openapi import document
from stream_rater.serve.routes import OPERATIONS
from tests import pages, real
from tests.builders.lines import a_message, a_round
from tests.builders.serves import ServeThread, serves_here
from tests.integration.processes import workers
from tests.integration.topics import rated
from tests.waits import HANGS_S, wait_until

TOKEN = "w"


@pytest.fixture(scope="module")
def api(addresses: Addresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeThread]:
    """A `serve` without rate limit, beside a worker: three listed players, one provisional."""
    folder = tmp_path_factory.mktemp("clients")
    with real.a_place(addresses) as at, workers(folder) as start, serves_here() as serve:
        start(at, forked=True)
        names = ["p0", "p1", "p2", "new"]
        played = [a_round(i, *names[: 3 if i else 4], ladder="eu") for i in range(6)]
        rated(at, *map(a_message, played))
        yield serve(msgspec.structs.replace(at, serve_rate=0.0, serve_write_token=TOKEN))


# --- requests that are made up ---

CHECKS = (
    not_a_server_error, openapi.status_code_conformance, openapi.content_type_conformance,
    openapi.response_schema_conformance,
)  # fmt: skip
FEW, MANY = 5, 30  # Examples of each operation.
ASKED = [each.name for each in OPERATIONS if each.answer is not None]
"""All operations but the stream of changes, which does not end: another test follows it."""
PATHS = {"ladder": st.sampled_from(["eu", "eu", "eu", "asia"]),
         "player": st.sampled_from(["p1", "new", "eve", "a/b"]),
         "season": st.sampled_from(["0", "1", "x"]),
         "round_id": st.sampled_from(["r0", "made-up", "a/b"])}  # fmt: skip
SCHEMA = schemathesis.openapi.from_dict(document("0", token=False))


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_answers_are_as_described(api: ServeThread, examples: int) -> None:
    """This holds for requests that the description allows, and for others."""
    wrong: dict[str, Exception] = {}
    for name in ASKED:
        try:
            ask_for(api, name, examples)
        except Exception as error:
            wrong[name] = error
    assert wrong == {}


def ask_for(api: ServeThread, name: str, examples: int) -> None:
    """Ask by so many made-up requests of an operation."""
    operation = SCHEMA.find_operation_by_id(name)
    made: Any = st.one_of(*(operation.as_strategy(mode) for mode in schemathesis.GenerationMode))

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(made, st.fixed_dictionaries(PATHS))
    def answered(case: schemathesis.Case, path: dict[str, str]) -> None:
        case.path_parameters = {name: path[name] for name in case.path_parameters or {}}
        query = case.query or {}
        waits = not query.keys().isdisjoint({"wait", "min_offset"})
        if waits and str(query.get("wait", 1)).isdecimal():
            query["wait"] = 1  # made-up offsets and rounds mostly never come
        headers = {"Authorization": f"Bearer {TOKEN}"}
        response = case.call(base_url=api.url, headers=headers)
        in_vain = response.status_code == 503 and response.json()["code"] == "not-yet"
        checks = [each for each in CHECKS if not (in_vain and each is not_a_server_error)]
        case.validate_response(response, checks=checks)

    answered()


# --- examples ---

EXAMPLES = ROOT / "deploy" / "examples" / "http"


def run(*words: str, url: str = "", folder: Path = ROOT) -> str:
    more = {"RATER_URL": url, "RATER_TOKEN": TOKEN}
    done = subprocess.run(
        words, cwd=folder, env=os.environ | more, capture_output=True, text=True, timeout=HANGS_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def tool(name: str) -> str:
    """The path of a program. Skips the test if there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


def assert_rated(printed: str) -> None:
    """The program waited for the end state, and printed the change of both players."""
    assert "rated" in printed and "ann" in printed and "bob" in printed, printed


ALONE = {"report.py": [sys.executable], "report.mjs": ["node"], "report.go": ["go", "run"],
         "Report.java": ["java"]}  # fmt: skip


@pytest.mark.parametrize(
    "file", ["report.py", *(pytest.param(each, marks=pytest.mark.slow) for each in [*ALONE][1:])]
)
def test_alone(api: ServeThread, file: str) -> None:
    """What runs from its source file, without a package."""
    program, *words = ALONE[file]
    assert_rated(run(tool(program), *words, str(EXAMPLES / file), url=api.url))


@pytest.mark.slow
def test_c_sharp(api: ServeThread, tmp_path: Path) -> None:
    """By HttpClient."""
    dotnet = tool("dotnet")
    run(dotnet, "new", "console", "--name", "report", folder=tmp_path)
    shutil.copy(EXAMPLES / "Report.cs", tmp_path / "report" / "Program.cs")
    assert_rated(run(dotnet, "run", url=api.url, folder=tmp_path / "report"))


@pytest.mark.slow
def test_c_plus_plus(api: ServeThread, tmp_path: Path) -> None:
    """By libcurl."""
    compiler, program = tool("g++"), tmp_path / "report"
    probe = [compiler, "-x", "c++", "-E", "-include", "curl/curl.h", os.devnull]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("the headers of libcurl are not installed here")
    source = str(EXAMPLES / "report.cpp")
    run(compiler, "-std=c++17", source, "-lcurl", "-o", str(program))
    assert_rated(run(str(program), url=api.url))


TESTED = {"python": (sys.executable, "-m", "pytest"), "js": ("node", "--test"),
          "go": ("go", "test", "ratings_test.go")}  # fmt: skip


@pytest.mark.parametrize(
    "language", ["python", *(pytest.param(each, marks=pytest.mark.slow) for each in ("js", "go"))]
)
def test_your_game(language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of a game that the page shows pass, and the process that they start is gone."""
    for name, rest, block in pages.FENCE.findall(pages.text("how-to/test-your-game.md")):
        if name == language and (title := pages.TITLE.search(rest)):
            (tmp_path / title[1]).write_text(block)
    program, *words = TESTED[language]
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "ladders.toml").write_text('[ladders.duel.rating]\nsystem = "two-moment"\n')
    monkeypatch.setenv("STREAM_RATER_LADDERS", str(tmp_path / "ladders.toml"))
    (tmp_path / "test_the_file_counts.py").write_text(
        "import urllib.error, pytest\n"
        "def test_other(rater):\n"
        "    with pytest.raises(urllib.error.HTTPError, match='422'):\n"
        "        rater.ask('/v1/ladders/other/rounds', {'round_id': 'r', 'completed_at': "
        "'2026-05-01T20:00:00Z', 'standings': [{'player': p, 'rank': 1} for p in 'ab']})\n"
    )
    run(tool(program), *words, folder=tmp_path)
    wait_until(lambda: not [*tmp_path.glob("stream-rater-*")], "its file is deleted")
    if language == "js":  # a process that does not start says why
        monkeypatch.setenv("STREAM_RATER_LADDERS", "absent.toml")
        with pytest.raises(AssertionError, match=r"rror: '?stream-rater: absent\.toml"):
            run(tool(program), *words, folder=tmp_path)
