"""deploy/tools/local/go_tools: which Go serves, and what is said where none does."""

from dataclasses import replace
from pathlib import Path

import pytest

from local import go_tools
from local.go_tools import (
    HELM,
    TOOLS,
    TOXIPROXY,
    ensure_tools,
    find_go,
    go_version,
)
from local.tools import LocalServerError


def a_go(folder: Path, answer: str) -> Path:
    """A program of that name which answers."""
    go = folder / "go"
    go.write_text(f"#!/bin/sh\n{answer}\n")
    go.chmod(0o755)
    return go


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that alone is searched for Go, and where tools are put."""
    monkeypatch.setattr(go_tools, "_candidates", lambda: [*tmp_path.glob("go")])
    monkeypatch.setattr(go_tools, "SERVERS", tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ("echo go1.26.8", (1, 26)),
        ("echo go2.0", (2, 0)),
        ("echo devel", (0, 0)),
        ("exit 1", (0, 0)),
    ],
)
def test_gos_version_is_read(answer: str, version: tuple[int, int], only: Path) -> None:
    """An answer without a version gives (0, 0)."""
    assert go_version(a_go(only, answer)) == version


def test_an_older_go_is_named(only: Path) -> None:
    """And the tools are gone without."""
    go, said = a_go(only, "echo go1.24.4"), list[str]()
    assert find_go() is None
    ensure_tools(said.append)
    assert said == [
        f"no Go 1.26 or newer ({go}: 1.24): no Helm, no Toxiproxy; tests that need them will be "
        "skipped"
    ]


def test_what_is_needed_is_named(only: Path) -> None:
    """`make chaos` ends where Toxiproxy cannot be built, and asks for no other tool."""
    with pytest.raises(LocalServerError, match=r"\(none was found\): no toxiproxy"):
        ensure_tools(lambda _: None, [TOXIPROXY], needed=True)


def test_on_ci_that_is_a_failure(only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be skipped there."""
    monkeypatch.setenv("CI", "1")
    with pytest.raises(LocalServerError, match=r"no Go 1\.26 or newer \(none was found\)"):
        ensure_tools(lambda _: None)


STAND_IN = """
[ "$1" = env ] && { echo go1.27.0; exit; }
echo "$1 $2 $GOTOOLCHAIN" >> "${0%/*}/calls"
tool="${2##*/}"
mkdir -p "$GOBIN" && cp "${0%/*}/built" "$GOBIN/${tool%@*}"
"""


def test_a_tool_is_built_once(only: Path) -> None:
    """At its pinned version, by the Go that is there and no other."""
    a_go(only, STAND_IN)
    (only / "built").write_bytes(b"".join(tool.origin for tool in TOOLS))
    for _ in range(2):
        ensure_tools(lambda _: None)
    assert (only / "calls").read_text().splitlines() == [
        f"install {tool.package} local" for tool in TOOLS
    ]
    assert all(tool.path.exists() for tool in TOOLS)


@pytest.mark.parametrize("change", [{"version": "v4.99.0"}, {"hash": "h1:another="}])
def test_other_sources_are_refused(
    change: dict[str, str], only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was built of them is not used."""
    a_go(only, STAND_IN)
    (only / "built").write_bytes(b"".join(tool.origin for tool in TOOLS))
    other = replace(HELM, **change)
    monkeypatch.setattr(go_tools, "TOOLS", (other,))
    with pytest.raises(LocalServerError, match="built from other sources than expected"):
        ensure_tools(lambda _: None)
    assert not other.path.exists()


def test_a_build_that_fails_says_why(only: Path) -> None:
    """In one line, Go's last."""
    a_go(only, 'case "$1" in env) echo go1.26.0;; *) echo first; echo no network; exit 1;; esac')
    with pytest.raises(LocalServerError, match=r"^Go could not build helm v[\d.]+: no network$"):
        ensure_tools(lambda _: None)
