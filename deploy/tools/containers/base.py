"""The image that deploy/Dockerfile starts from: pulled, or where no registry is to be reached, made
here of Debian's packages under the same name.

An image that was made here says so by a label. `podman image rm NAME` makes room for the real one.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from containers.engine import Engine
from local.system import Package, ensure_packages
from local.tools import LocalServerError

DEBOOTSTRAP: Final = Package(
    "debootstrap", "debootstrap", lambda: shutil.which("debootstrap") is not None
)
LABEL, FROM_A_REGISTRY = "stream-rater.made-locally", ""
"""The label of images that were made here (its value: their sources), and what others have."""
PULL_TIMEOUT_S: Final = 300.0
MIRROR: Final = "DEBIAN_MIRROR"
"""The environment variable that names the mirror for debootstrap."""
NOT_NEEDED: Final = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale",
                     "usr/share/man", "usr/share/info")  # fmt: skip


def ensure(engine: Engine, name: str, say: Callable[[str], None], *packages: str) -> str:
    """Pull or make the image if it is missing. Returns a sentence on where it comes from."""
    if not engine.has(name):
        refused = pulled(engine, name)
        if refused is None:
            return f"{name}, pulled"
        say(f"{name} cannot be pulled ({refused}): making a base of Debian's packages in its place")
        make(engine, name, *packages)
    label = made_here(engine, name)
    if label == FROM_A_REGISTRY:
        return f"{name}, from a registry"
    return f"made here of Debian's packages ({label}), in the place of {name}"


def made_here(engine: Engine, name: str) -> str | None:
    """How an image was made if it was made here, else FROM_A_REGISTRY; None if there is none."""
    wanted = "{{index .Config.Labels " + f'"{LABEL}"' + "}}"
    done = engine.tried("image", "inspect", "--format", wanted, name)
    return None if done.returncode else done.stdout.strip().replace("<no value>", "")


def pulled(engine: Engine, name: str) -> str | None:
    """Pull an image. Returns None, or why that failed."""
    try:
        done = engine.tried("pull", name, timeout_s=PULL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"no answer within {PULL_TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1].rpartition(": ")[2] if lines else f"exit code {done.returncode}"


def read_name(name: str) -> tuple[str, str]:
    """The versions of Python and Debian in the name of an official image."""
    found = re.search(r"/python:(\d+\.\d+)(?:\.\d+)?-slim-(\w+)$", name)
    if found is None:
        raise LocalServerError(
            f"{name} cannot be made here: its name has no version of Python and Debian"
        )
    return found[1], found[2]


def make(engine: Engine, name: str, *more: str) -> None:
    """Make the image: Debian with its own Python, without documentation."""
    version, suite = read_name(name)
    ensure_packages([DEBOOTSTRAP], lambda _: None)
    packages = ",".join(["python3", "python3-venv", "ca-certificates", *more])
    with tempfile.TemporaryDirectory(prefix="stream-rater-base-") as folder:
        root = Path(folder, "root")
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", suite, str(root)]
        if mirror := os.environ.get(MIRROR):
            command.append(mirror)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [line for line in done.stdout.splitlines() if line.startswith("E: ")]
            raise LocalServerError(f"debootstrap: {(lines or ['no reason given'])[-1]}")
        if not (root / "usr/bin" / f"python{version}").exists():
            raise LocalServerError(f"Debian {suite} has no Python {version}")
        (root / "usr/bin/python").symlink_to("python3")
        clean(root)
        archive = Path(folder, "root.tar")
        subprocess.run(["tar", "--create", f"--file={archive}", f"--directory={root}", "."],
                       check=True)  # fmt: skip
        engine.run("import", f"--change=LABEL {LABEL}=debootstrap-{suite}", str(archive), name)


def clean(root: Path) -> None:
    """Remove copies of packages, and all documents except for licences."""
    for place in NOT_NEEDED:
        for file in sorted((root / place).rglob("*")):
            if file.name != "copyright" and (file.is_symlink() or file.is_file()):
                file.unlink()
