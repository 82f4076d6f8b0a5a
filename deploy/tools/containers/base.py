"""The image that deploy/Dockerfile starts from: pulled, and then named by its digest; or where no
registry is to be reached, made here of Debian's packages under the same name.

An image that was made here says so by a label. `podman image rm NAME` makes room for the real one.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Base:
    """An image to build from: its name, its digest in a registry (or none), where it comes from."""

    name: str
    digest: str
    origin: str

    @property
    def reference(self) -> str:
        """What to build from: exactly this image, if a registry has it."""
        return f"{self.name}@{self.digest}" if self.digest else self.name


def ensure(engine: Engine, name: str, say: Callable[[str], None], *packages: str) -> Base:
    """Pull the image as it is today. Where that fails, take the one that is here, or make one."""
    plain, _, pinned = name.partition("@")
    made = made_here(engine, name)
    if made in (None, FROM_A_REGISTRY) and (refused := pulled(engine, name)) is not None:
        say(f"{name} cannot be pulled ({refused})")
        if made is None:
            say("making a base of Debian's packages in its place")
            make(engine, name, *packages)
    if (made := made_here(engine, name)) != FROM_A_REGISTRY:
        return Base(name, "", f"made here of Debian's packages ({made}), in the place of {name}")
    return Base(plain, pinned or digest_of(engine, name), f"{name}, from a registry")


def digest_of(engine: Engine, name: str) -> str:
    """The digest by which the registry of this name has an image that was pulled."""
    repository = re.sub(r":[^/]*$", "", name)
    (image,) = json.loads(engine.run("image", "inspect", name))
    known = [str(each).rpartition("@") for each in image["RepoDigests"]]
    return next(digest for place, _, digest in known if place == repository)


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
            f"{name} cannot be made here: its name has no version of Python and Debian, or a digest"
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
