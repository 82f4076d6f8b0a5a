"""`make image-check ARCH=arm64`: whether 64-bit Arm computes the same bits as this machine.

An emulator (qemu) runs Debian's Python for arm64, with the image's locked packages. It compiles and
runs the kernels that `bits` asks for; ARGS=--all for every system. It needs root, and no container
engine. What was compiled is kept in build/arm64.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from containers import base, bits
from containers.image import DOCKERFILE, LOCK, base_of
from local.system import Package, ensure_packages
from local.tools import ROOT, LocalServerError

FOLDER: Final = ROOT / "build" / "arm64"
EMULATOR: Final = "qemu-aarch64-static"
QEMU: Final = Package("qemu-user-static", "qemu", lambda: shutil.which(EMULATOR) is not None)


def main(arguments: list[str]) -> None:
    """Make what is missing, compare, and print each line. Raises if a line differs."""
    version, suite = base.read_name(base_of(DOCKERFILE.read_text(encoding="utf-8")))
    root, packages = FOLDER / suite, FOLDER / f"python{version}"
    ensure_packages([base.DEBOOTSTRAP, QEMU], lambda _: None)
    if not packages.exists():
        shutil.rmtree(FOLDER, ignore_errors=True)
        make_root(root, suite)
        uv = (sys.executable, "-m", "uv", "--quiet", "pip", "install", "--target", str(packages))
        there = ("--python-platform", "aarch64-manylinux_2_28", "--python-version", version)
        checked = ("--require-hashes", "--only-binary", ":all:", "--requirements", str(LOCK))
        subprocess.run([*uv, *there, *checked], check=True)
    words = [bits.__file__, *arguments]
    expected = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, check=True).stdout
    given = {"PYTHONPATH": f"{ROOT}:{packages}", "NUMBA_CACHE_DIR": str(FOLDER / "kernels")}
    python = (EMULATOR, "-L", str(root), str(root / "usr/bin" / f"python{version}"), "-B")
    emulated = subprocess.Popen([*python, *words], env=os.environ | given, stdout=subprocess.PIPE)
    assert emulated.stdout is not None
    for line in expected.splitlines():
        found = emulated.stdout.readline().strip()
        if found != line:
            emulated.kill()
            raise LocalServerError(f"{line.decode()} here, {found.decode() or 'no result'} there")
        print(f"{line.decode()}, the same there", flush=True)


def make_root(root: Path, suite: str) -> None:
    """Unpack Debian for arm64, and configure nothing: only Python and its libraries will run."""
    make = ("debootstrap", "--arch=arm64", "--foreign", "--variant=minbase", "--include=python3")
    subprocess.run([*make, suite, str(root)], stdout=sys.stderr, check=True)
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(root)], check=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (LocalServerError, subprocess.CalledProcessError) as error:
        sys.exit(f"arm64: {error}")
