"""`make image-check ARCH=arm64`: whether 64-bit Arm computes the same bits as this machine.

An emulator (qemu) runs Debian's Python for arm64, with the image's locked packages. What it runs is
compiled by the same version of Python on this machine (`cross`). It needs root, and no container
engine. What was compiled is kept in build/arm64.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import dist

from containers import base
from containers.image import DOCKERFILE, LOCK, base_of
from local.system import Package, ensure_packages
from local.tools import ROOT, LocalServerError

FOLDER: Final = ROOT / "build" / "arm64"
EMULATOR: Final = "qemu-aarch64-static"
QEMU: Final = Package("qemu-user-static", "qemu", lambda: shutil.which(EMULATOR) is not None)
BITS, CROSS = (str(Path(__file__).with_name(name)) for name in ("bits.py", "cross.py"))


def main() -> None:
    """Make what is missing, and print a table while it is compared. Raises if a line differs."""
    version, suite = base.read_name(base_of(DOCKERFILE.read_text(encoding="utf-8")))
    root, packages = FOLDER / suite, FOLDER / f"python{version}"
    ensure_packages([base.DEBOOTSTRAP, QEMU], lambda _: None)
    if not packages.exists():
        shutil.rmtree(FOLDER, ignore_errors=True)
        make_root(root, suite)
        uv = (sys.executable, "-m", "uv", "--quiet", "pip", "install", "--target", str(packages))
        arm = ("--python-platform", "aarch64-manylinux_2_28", "--python-version", version)
        checked = ("--require-hashes", "--only-binary", ":all:", "--requirements", str(LOCK))
        subprocess.run([*uv, *arm, *checked], check=True)
    if (python := dist.interpreter(version)) is None:
        raise LocalServerError(f"no python{version} runs here: put one on PATH")
    here, kernels = (dist.make_environment(python, FOLDER / "here"), "-B"), str(FOLDER / "ran")
    given = {"PYTHONPATH": f"{ROOT}:{packages}", "NUMBA_CACHE_DIR": str(FOLDER / "kernels")}
    own = os.environ | given | {"PYTHONPATH": str(ROOT)}
    expected = subprocess.run([*here, BITS, kernels], env=own, stdout=subprocess.PIPE, check=True)
    subprocess.run([*here, CROSS, kernels], env=own, check=True)
    there = (EMULATOR, "-L", str(root), str(root / "usr/bin" / f"python{version}"), "-B", BITS)
    emulated = subprocess.Popen(there, env=os.environ | given, stdout=subprocess.PIPE)
    assert emulated.stdout is not None
    differ = 0
    for line in expected.stdout.decode().splitlines():
        found = emulated.stdout.readline().decode().strip()
        differ += found != line
        print(f"{line} here, {'the same' if found == line else found} there", flush=True)
    if emulated.wait() or differ:
        raise LocalServerError(f"{differ} of these lines differ")


def make_root(root: Path, suite: str) -> None:
    """Unpack Debian for arm64, and configure nothing: only Python and its libraries will run."""
    make = ("debootstrap", "--arch=arm64", "--foreign", "--variant=minbase", "--include=python3")
    subprocess.run([*make, suite, str(root)], stdout=sys.stderr, check=True)
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(root)], check=True)


if __name__ == "__main__":
    try:
        main()
    except (LocalServerError, subprocess.CalledProcessError) as error:
        sys.exit(f"arm64: {error}")
