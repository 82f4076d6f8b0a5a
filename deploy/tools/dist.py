"""`make dist`: the source package, the pure wheel, and a wheel with its kernels for each Python.

The wheels with kernels are for x86-64 processors with AVX2 and FMA. Elsewhere they compile kernels,
as the pure wheel does. A Python of each version is looked for on the path. uv makes an environment
for it from the locks of the image, each package checked by its hash.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from local.tools import ROOT

VERSIONS = ("3.11", "3.12", "3.13")
BUILD = ROOT / "build"
DIST = BUILD / "dist"
LOCKS = (ROOT / "deploy" / "image.lock", ROOT / "deploy" / "build.lock")
NEEDED = {"avx2", "fma"}
"""The flags of processors that can run the compiled kernels."""


def main() -> int:
    """Build all packages into build/dist. Returns 1 if no wheel with kernels was built."""
    for folder in (DIST, BUILD / "kernels"):
        shutil.rmtree(folder, ignore_errors=True)
    build(sys.executable, DIST)
    if not NEEDED.issubset(Path("/proc/cpuinfo").read_text(encoding="ascii").split()):
        say("no wheel with kernels: this processor has no AVX2 and FMA")
        return 1
    found = [(version, interpreter(version)) for version in VERSIONS]
    for version, python in found:
        if python is None:
            say(f"no wheel with kernels for Python {version}: no python{version} runs here")
        else:
            say(f"compiling the kernels for Python {version}")
            environment = make_environment(python, BUILD / f"python{version}")
            build_with_kernels(environment, DIST)
            shutil.rmtree(BUILD / f"python{version}")
    return 0 if any(python for _, python in found) else 1


def say(text: str) -> None:
    """Print a line on standard error."""
    print(f"dist: {text}", file=sys.stderr, flush=True)


def build(python: str, folder: Path) -> None:
    """Build the source package and the pure wheel."""
    _run(python, "-m", "hatchling", "build", "--directory", str(folder))


def build_with_kernels(python: str, folder: Path, **variables: str) -> None:
    """Build the wheel with the kernels that this Python compiles (see `wheel_kernels`)."""
    hook = {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true"}
    words = ("hatchling", "build", "--target", "wheel", "--directory", str(folder))
    _run(python, "-m", *words, **hook, **variables)


def interpreter(version: str) -> str | None:
    """The path of a Python of this version on PATH, or None. A version manager's shim counts only
    if it runs."""
    words = [f"python{version}", "-c", "import sys; print(sys.executable)"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def make_environment(python: str, folder: Path) -> str:
    """Make an environment with what the service needs and what builds it. Returns its Python."""
    own = str(folder / "bin" / "python")
    uv = (sys.executable, "-m", "uv", "--quiet")
    _run(*uv, "venv", "--clear", "--no-project", "--python", python, str(folder))
    locks = [word for lock in LOCKS for word in ("--requirements", str(lock))]
    checked = ("--require-hashes", "--only-binary", ":all:")
    _run(*uv, "pip", "install", "--python", own, *checked, *locks)
    return own


def _run(*words: str, **variables: str) -> None:
    subprocess.run(words, cwd=ROOT, env=os.environ | variables, stdout=sys.stderr, check=True)


if __name__ == "__main__":
    sys.exit(main())
