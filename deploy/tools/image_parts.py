"""What of an environment and of the system goes into the image. deploy/Dockerfile runs it while it
builds; it needs nothing but Python.

    python image_parts.py trim PREFIX       take from the environment what no program there uses
    python image_parts.py root PREFIX ROOT  make a root with Python and what it needs of the system

That root has no shell, no package manager and no program but Python. The packages that its files
came from are recorded where scanners look for them when there is no package manager.
"""

import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

TESTS = {"tests", "test"}
FOR_COMPILERS = {".a", ".lib", ".h", ".pyi", ".pxd", ".pyx", ".c", ".cpp"}
NEVER_RUN = ("numpy/distutils", "numpy/f2py", "pygments/lexers")
"""Folders of packages that are left out: compilers' tools, and lexers of many languages."""
LEXERS = {"__init__.py", "_mapping.py", "python.py"}
"""The lexers that stay: tracebacks are coloured as Python."""
OF_NO_USE = {
    "__pycache__", "distutils", "site-packages", "dist-packages", "test", "tests", "ensurepip",
    "idlelib", "lib2to3", "pydoc_data", "tkinter", "turtledemo", "LICENSE.txt",
}  # fmt: skip
UNLINKED = ("_dbm", "_gdbm", "_tkinter", "nis")
"""Parts of the standard library that the root lacks: what builds, tests and draws, two stores, a
directory service, and bytecode, which Python makes again. `test_image` checks that no file of the
service imports any of them, and `test_image_runs` runs each command without them."""

OF_THE_SYSTEM = (
    "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/usr/lib/ssl/certs", "/usr/lib/ssl/cert.pem",
    "/usr/lib/ssl/openssl.cnf", "/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/os-release",
)  # fmt: skip
"""Certificate authorities, settings of TLS and name look-up, and the system's name."""

NOWHERE = "/nonexistent"
USERS = f"root:x:0:0::{NOWHERE}:{NOWHERE}\nrater:x:65532:65532::{NOWHERE}:{NOWHERE}\n"
GROUPS = "root:x:0:\nrater:x:65532:\n"
ELF, LOADED = b"\x7fELF\x02\x01", 1


def trim(prefix: Path) -> int:
    """Remove tests, files for compilers, and symbols of libraries. Returns the bytes saved."""
    before = size(prefix)
    for packages in prefix.glob("lib/python*/site-packages"):
        for folder in sorted(packages.glob("*/**/")):
            if folder.name in TESTS and folder.is_dir():
                shutil.rmtree(folder)
        for folder in (packages / each for each in NEVER_RUN):
            for file in [*folder.rglob("*.py")]:
                if folder.name != "lexers" or file.name not in LEXERS:
                    file.unlink()
                    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
                        compiled.unlink()
        for file in packages.rglob("*"):
            if file.suffix in FOR_COMPILERS and file.is_file():
                file.unlink()
    for library in libraries(prefix):
        strip(library)
    return before - size(prefix)


def libraries(folder: Path) -> Iterator[Path]:
    """The shared libraries and programs below a folder."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.is_symlink() and file.open("rb").read(6) == ELF:
            yield file


def strip(library: Path) -> None:
    """Cut off the symbols for debuggers and the section table, which follow the last segment.

    The dynamic linker reads segments only. A file that ends with a segment keeps its length. This
    saves 24 MB (8 %). The base image has no `strip`, and binutils' own damages libraries that
    auditwheel has patched.
    """
    with library.open("r+b") as file:
        header = bytearray(file.read(64))
        (at,) = struct.unpack_from("<Q", header, 32)
        width, count = struct.unpack_from("<HH", header, 54)
        end = 64
        for number in range(count):
            file.seek(at + number * width)
            _, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", file.read(width))
            end = max(end, offset + length)
        struct.pack_into("<Q", header, 40, 0)  # no section table any more:
        struct.pack_into("<HH", header, 60, 0, 0)
        file.seek(0)
        file.write(header)
        file.truncate(end)


def size(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())


class Root:
    """A root that is filled with files of this system, each at its own place."""

    def __init__(self, folder: Path, system: Path = Path("/")) -> None:
        self.folder = folder
        self.system = system
        self.brought: set[str] = set()
        """The files that were copied, by their names with links resolved."""

    def bring(self, name: str) -> None:
        """Copy a file or folder, with the links on the way to it and what they point to.

        A name that does not exist is skipped, because systems differ.
        """
        place = ""
        for part in Path(name).parts[1:]:
            place = f"{place}/{part}"
            source, copy = Path(f"{self.system}/{place}"), Path(f"{self.folder}/{place}")
            if source.is_symlink():
                target = source.readlink()
                if not copy.is_symlink():
                    copy.symlink_to(target)
                there = os.path.normpath(Path(place).parent / target)
                rest = name[len(place) :]
                return self.bring(there + rest)
            if source.is_dir():
                copy.mkdir(exist_ok=True)
            elif source.is_file() and place not in self.brought:
                shutil.copy2(source, copy)
                self.brought.add(place)
        if Path(f"{self.system}/{place}").is_dir():
            for each in sorted(Path(f"{self.system}/{place}").iterdir()):
                self.bring(f"{place}/{each.name}")
        return None

    def write(self, name: str, text: str) -> None:
        """Write a file of our own into the root."""
        path = Path(f"{self.folder}/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def needed_by(files: Iterable[Path]) -> set[str]:
    """The shared libraries that these files load, by the paths at which the linker finds them."""
    found: set[str] = set()
    for file in files:
        command = ["ldd", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found |= read_ldd(done.stdout)
    return found


def read_ldd(output: str) -> set[str]:
    """The files that ldd names. Libraries that it does not find are left out."""
    return set(re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x", output, re.MULTILINE))


def make_root(prefix: Path, folder: Path) -> None:
    """Fill a folder as the root. The environment itself is not in it."""
    folder.mkdir(parents=True)
    root = Root(folder)
    standard = Path(sysconfig.get_path("stdlib"))
    for each in sorted(standard.iterdir()):
        if each.name not in OF_NO_USE and not each.name.startswith("config-"):
            root.bring(str(each))
    for copied in (each for name in UNLINKED for each in folder.rglob(f"lib-dynload/{name}.*")):
        copied.unlink()
    for copied in [*folder.rglob("__pycache__")]:
        shutil.rmtree(copied)
    python = f"{sys.base_prefix}/bin/python3.{sys.version_info.minor}"
    links = [str(p.readlink()) for p in (prefix / "bin").iterdir() if p.is_symlink()]
    for name in (python, *filter(os.path.isabs, links), *OF_THE_SYSTEM):
        root.bring(name)
    linked = [Path(python), *libraries(folder), *libraries(prefix)]
    for name in sorted(needed_by(linked)):
        if not name.startswith(f"{prefix}/"):
            root.bring(name)
    for name in ("/tmp", "/var/tmp"):
        Path(f"{folder}{name}").mkdir(parents=True, exist_ok=True)
        Path(f"{folder}{name}").chmod(0o1777)
    root.write("/etc/passwd", USERS)
    root.write("/etc/group", GROUPS)
    record_packages(root)
    compiled = Path(f"{folder}/{standard}")
    command = [sys.executable, "-m", "compileall", "-q", "-s", str(folder), "-p", "/"]
    subprocess.run([*command, str(compiled)], check=True)


def record_packages(root: Root) -> None:
    """On Debian, record the packages of the copied files, and copy their copyright files."""
    if shutil.which("dpkg-query") is None:
        return
    names = sorted(root.brought | {name.removeprefix("/usr") for name in root.brought})
    done = subprocess.run(
        ["dpkg-query", "--search", *names], capture_output=True, text=True, check=False
    )
    for package in sorted(set(re.findall(r"^([a-z0-9.+-]+)(?::\w+)?: /", done.stdout, re.M))):
        status = ["dpkg-query", "--status", package]
        output = subprocess.run(status, capture_output=True, text=True, check=True).stdout
        root.write(f"/var/lib/dpkg/status.d/{package}", output)
        root.bring(f"/usr/share/doc/{package}/copyright")


def main(arguments: Sequence[str]) -> int:
    """Run the command. Returns 2 for wrong usage."""
    match list(arguments):
        case ["trim", prefix]:
            print(f"trimmed by {trim(Path(prefix)) / 1e6:.0f} MB")
        case ["root", prefix, folder]:
            make_root(Path(prefix), Path(folder))
            print(f"the root without {prefix}: {size(Path(folder)) / 1e6:.0f} MB")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
