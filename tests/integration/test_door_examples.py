"""The examples that report a round by HTTP, in each language whose toolchain is here."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from local.servers import Addresses
from local.tools import ROOT
from tests import real
from tests.builders.serves import ServeThread, serves_here
from tests.integration.processes import workers
from tests.waits import HANGS_S

EXAMPLES = ROOT / "deploy" / "examples" / "http"
TOKEN = "example"


@pytest.fixture(scope="module")
def api(addresses: Addresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeThread]:
    """One that takes rounds, beside a worker."""
    folder = tmp_path_factory.mktemp("examples")
    with real.a_place(addresses) as at, workers(folder) as start, serves_here() as serve:
        start(at, forked=True)
        yield serve(msgspec.structs.replace(at, serve_write_token=TOKEN))


def run(*words: str, url: str = "", folder: Path = ROOT) -> str:
    more = {"RATER_URL": url, "RATER_TOKEN": TOKEN}
    done = subprocess.run(
        words, cwd=folder, env=os.environ | more, capture_output=True, text=True, timeout=HANGS_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
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


def test_python(api: ServeThread) -> None:
    """By urllib."""
    assert_rated(run(sys.executable, str(EXAMPLES / "report.py"), url=api.url))


@pytest.mark.slow
def test_node(api: ServeThread) -> None:
    """By fetch, which Node 18 has."""
    node = tool("node")
    if int(run(node, "--version").lstrip("v").partition(".")[0]) < 18:
        pytest.skip("Node is older than 18")
    assert_rated(run(node, str(EXAMPLES / "report.mjs"), url=api.url))


@pytest.mark.slow
def test_go(api: ServeThread) -> None:
    """By net/http; `rand.Text` is of Go 1.24."""
    go = tool("go")
    major, minor = run(go, "env", "GOVERSION").strip().removeprefix("go").split(".")[:2]
    if (int(major), int(minor)) < (1, 24):
        pytest.skip("Go is older than 1.24")
    assert_rated(run(go, "run", str(EXAMPLES / "report.go"), url=api.url))


@pytest.mark.slow
def test_java(api: ServeThread) -> None:
    """By java.net.http, from the source file."""
    assert_rated(run(tool("java"), str(EXAMPLES / "Report.java"), url=api.url))


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
