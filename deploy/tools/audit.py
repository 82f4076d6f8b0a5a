"""`make audit`: what is installed, against the lock and against itself, without any network.

Checks that
- every requirement of the lock has a hash, and pip's own check finds nothing missing or at odds;
- what is installed is what is locked, by name and version: nothing else, and nothing less;
- every installed file still has the hash that its package's RECORD gives. (That the
  package was the locked one, pip checked by the lock's hashes when it was installed.)

Writes a bill of materials with licences (CycloneDX) into `build/audit/`. Only a database knows
which versions are vulnerable: `--online` asks one, by pip-audit.
"""

import argparse
import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from local.tools import ROOT

LOCK: Final = ROOT / "requirements.lock"
OUT: Final = ROOT / "build" / "audit"
PROJECT: Final = "stream-rater"
TOOLS: Final = frozenset({"pip", "setuptools", "uv"})
"""Packages that venv or `make lock` installs. They need not be in the lock."""


@dataclass(frozen=True)
class Locked:
    """One requirement of the lock that holds on this machine."""

    name: str
    version: str
    hashes: frozenset[str]


@dataclass
class Audit:
    """The result: how much was checked, and one line for each finding."""

    packages: int = 0
    files: int = 0
    findings: list[str] = field(default_factory=list)


def read_lock(text: str) -> dict[str, Locked]:
    """The lock's requirements, by name."""
    found: dict[str, Locked] = {}
    for entry in re.split(r"\n(?=\S)", text):
        plain = re.sub(r"(?m)^\s*#.*$", "", entry).replace("\\\n", " ").strip()
        if not plain:
            continue
        wanted, *hashes = re.split(r"\s+--hash=", plain)
        requirement = Requirement(wanted)
        if requirement.marker is None or requirement.marker.evaluate():
            (pin,) = requirement.specifier
            name = canonicalize_name(requirement.name)
            found[name] = Locked(name, pin.version, frozenset(each.strip() for each in hashes))
    return found


def installed() -> dict[str, Distribution]:
    """Every distribution of this environment, by name."""
    return {canonicalize_name(each.metadata["Name"]): each for each in distributions()}


def compare(locked: dict[str, Locked], there: dict[str, Distribution]) -> Iterator[str]:
    """Yield each difference between the environment and the lock."""
    for name, want in sorted(locked.items()):
        if not want.hashes:
            yield f"{name}: the lock has no hash for it"
        if name not in there:
            yield f"{name}: locked at {want.version}, not installed"
        elif there[name].version != want.version:
            yield f"{name}: locked at {want.version}, installed is {there[name].version}"
    for name in sorted(there.keys() - locked.keys() - TOOLS - {PROJECT}):
        yield f"{name}: installed, not in the lock"


def changed_files(package: Distribution) -> Iterator[str]:
    """Files of a package that are gone, or whose hash is not that of RECORD."""
    for path in package.files or ():
        if path.hash is None:
            continue
        try:
            data = Path(str(path.locate())).read_bytes()
        except OSError:
            yield f"{package.name}: {path} is gone"
            continue
        digest = hashlib.new(path.hash.mode, data).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != path.hash.value:
            yield f"{package.name}: {path} was changed after it was installed"


def audit(lock: Path) -> Audit:
    """Run all checks. Returns the findings."""
    there = installed()
    done = Audit(packages=len(there))
    done.findings += compare(read_lock(lock.read_text(encoding="utf-8")), there)
    for package in there.values():
        done.files += sum(path.hash is not None for path in package.files or ())
        done.findings += changed_files(package)
    checked = run("-m", "pip", "check", "--disable-pip-version-check")
    if checked.returncode != 0:
        done.findings += [f"pip check: {line}" for line in checked.stdout.splitlines()]
    return done


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run this Python with these arguments."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def write_bill(path: Path) -> int:
    """Write the bill of materials in CycloneDX. Returns the number of its components."""
    written = run(
        "-m", "cyclonedx_py", "environment", "--gather-license-texts", "--output-reproducible",
        "--pyproject", "pyproject.toml", "--output-format", "JSON", "--output-file", str(path),
        sys.executable,
    )  # fmt: skip
    if written.returncode != 0:
        raise SystemExit(f"audit: cyclonedx-py failed: {written.stderr.strip()[-500:]}")
    return len(json.loads(path.read_text(encoding="utf-8"))["components"])


def known_vulnerabilities() -> list[str]:
    """Lines for what pip-audit finds. It needs a network."""
    tool = shutil.which("pip-audit")
    if tool is None:
        return ["pip-audit is not on PATH: `pipx install pip-audit`, or leave ONLINE out"]
    command = [tool, "--requirement", str(LOCK), "--require-hashes", "--disable-pip"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else (done.stdout or done.stderr).strip().splitlines()


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="audit", description="What is installed, checked.")
    parser.add_argument("--lock", type=Path, default=LOCK)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--online", action="store_true", help="ask pip-audit, too")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    done = audit(given.lock)
    components = write_bill(given.out / "sbom.cdx.json")
    if given.online:
        done.findings += known_vulnerabilities()
    for finding in done.findings:
        print(f"audit: {finding}", file=sys.stderr)
    print(
        f"{done.packages} packages and {done.files} files checked, {len(done.findings)} findings; "
        f"bill of materials ({components} components, with licences) in {given.out}"
    )
    return 1 if done.findings else 0


if __name__ == "__main__":
    sys.exit(main())
