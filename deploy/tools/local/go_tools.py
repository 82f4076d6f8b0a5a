"""Helm and helm-docs, which check and document the chart, and Toxiproxy, which spoils connections
for `make chaos`: `go install`, once, of a pinned version.

Go notes in what it builds which sources those were, and their hash: it must be the one given here.
A machine without a Go that is new enough goes without the tools, and what needs them is skipped
there; on CI that is a failure.
"""

import mmap
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local import steps
from local.tools import SERVERS, LocalServerError

GO_MINIMUM: Final = (1, 26)  # Helm 4.3
_BUILD_TIMEOUT_S: Final = 1800.0


@dataclass(frozen=True)
class GoTool:
    """A command of a Go module."""

    name: str
    module: str
    command: str
    version: str
    hash: str

    @property
    def package(self) -> str:
        """The argument of `go install`."""
        return f"{self.module}/{self.command}@{self.version}"

    @property
    def origin(self) -> bytes:
        """The line by which Go records the sources in a program that it builds."""
        return f"\nmod\t{self.module}\t{self.version}\t{self.hash}\n".encode()

    @property
    def program(self) -> str:
        """The program's file name after `go install`."""
        return self.command.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """Where the program is once it is built. Each version has a folder."""
        return SERVERS / f"{self.name}-{self.version}" / self.name


HELM: Final = GoTool(
    "helm",
    module="helm.sh/helm/v4",
    command="cmd/helm",
    version="v4.3.1",
    hash="h1:UndCoLe9UPmNoL7IvWzaUXveL7T5t/ijoorEmgJdI9g=",
)
HELM_DOCS: Final = GoTool(
    "helm-docs",
    module="github.com/norwoodj/helm-docs",
    command="cmd/helm-docs",
    version="v1.14.2",
    hash="h1:Ew3bCq1hZqMnnTopkk66Uy2mGwu/jAclAx+3JAVp1To=",
)
TOXIPROXY: Final = GoTool(
    "toxiproxy",
    module="github.com/Shopify/toxiproxy/v2",
    command="cmd/server",
    version="v2.5.0",
    hash="h1:i4LPT+qrSlKNtQf5QliVjdP08GyAH8+BUIc9gT0eahc=",
)
TOOLS: Final = (HELM, HELM_DOCS, TOXIPROXY)


def main(arguments: Sequence[str]) -> int:
    """Build the named tools that are missing. Returns 1 after one line on standard error if that
    fails."""
    tools = [tool for tool in TOOLS if tool.name in arguments]
    return steps.run(lambda: ensure_tools(steps.say, tools, needed=True))


def ensure_tools(
    say: Callable[[str], None], tools: Sequence[GoTool] = (), *, needed: bool = False
) -> None:
    """Build these tools (all if none is named) unless they are there. Without Go, says that tests
    will be skipped. Raises LocalServerError then if `needed` or on CI, and if a build fails."""
    missing = [tool for tool in tools or TOOLS if not tool.path.exists()]
    if not missing:
        return
    go = find_go()
    if go is None:
        reason = f"no Go {'.'.join(map(str, GO_MINIMUM))} or newer ({describe_found()})"
        if needed:
            raise LocalServerError(f"{reason}: no {', '.join(tool.name for tool in missing)}")
        if os.environ.get("CI"):
            raise LocalServerError(f"{reason}: no Helm, no Toxiproxy")
        say(f"{reason}: no Helm, no Toxiproxy; tests that need them will be skipped")
        return
    for tool in missing:
        say(f"building {tool.name} {tool.version} with Go (Helm takes some minutes, once)")
        build(go, tool)


def find_go() -> Path | None:
    """A `go` that is new enough: the one on PATH, else that of Go's own packages."""
    return next((go for go in _candidates() if go_version(go) >= GO_MINIMUM), None)


def describe_found() -> str:
    """A text on which Go is installed in its place, if any."""
    found = [f"{go}: {'.'.join(map(str, go_version(go)))}" for go in _candidates()]
    return ", ".join(found) or "none was found"


def _candidates() -> Iterator[Path]:
    if on_path := shutil.which("go"):
        yield Path(on_path)
    usual = Path("/usr/local/go/bin/go")
    if usual.exists():
        yield usual


def go_version(go: Path) -> tuple[int, ...]:
    """Major and minor version of a `go`; (0, 0) if unknown."""
    command = [str(go), "env", "GOVERSION"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=_alone(), check=False)
    except OSError:
        return (0, 0)
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def build(go: Path, tool: GoTool) -> None:
    """Build a tool under a temporary name, then rename it."""
    fresh = SERVERS / f"{tool.name}.new"
    command = [str(go), "install", tool.package]
    done = subprocess.run(
        command,
        env={**_alone(), "GOBIN": str(fresh)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise LocalServerError(f"Go could not build {tool.name} {tool.version}: {reason}")
    if not is_of(fresh / tool.program, tool.origin):
        raise LocalServerError(
            f"{tool.name} {tool.version}: built from other sources than expected"
        )
    tool.path.parent.mkdir(exist_ok=True)
    (fresh / tool.program).rename(tool.path)
    fresh.rmdir()


def is_of(binary: Path, origin: bytes) -> bool:
    """Whether a program was built from these sources."""
    with binary.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(origin) >= 0


def _alone() -> dict[str, str]:
    """Our environment, without variables by which Go would fetch another Go or cross-compile."""
    foreign = ("GOOS", "GOARCH", "GOFLAGS")
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    return {**kept, "GOTOOLCHAIN": "local"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
