"""What goes into the image: links on the way to a file, libraries without symbols."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import image_parts
import msgspec
import pytest
from image_parts import Root, libraries, main, needed_by, read_ldd, strip, trim

LIBRARY = Path(str(msgspec._core.__file__))


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A small system where /lib is /usr/lib, and a certificate is a link to a link."""
    folder = tmp_path / "system"
    (folder / "usr/lib/ssl").mkdir(parents=True)
    (folder / "etc/ssl/certs").mkdir(parents=True)
    (folder / "usr/share/ca").mkdir(parents=True)
    (folder / "lib").symlink_to("usr/lib")
    (folder / "usr/lib/libx.so.1.2").write_text("x")
    (folder / "usr/lib/libx.so.1").symlink_to("libx.so.1.2")
    (folder / "usr/lib/ssl/certs").symlink_to("/etc/ssl/certs")
    (folder / "etc/ssl/certs/hash.0").symlink_to("one.pem")
    (folder / "etc/ssl/certs/one.pem").symlink_to("/usr/share/ca/one.crt")
    (folder / "usr/share/ca/one.crt").write_text("one")
    return folder


def test_a_library_comes_with_its_links(system: Path, tmp_path: Path) -> None:
    """By the name that the linker looks for, through a linked folder."""
    (tmp_path / "root").mkdir()
    root = Root(tmp_path / "root", system)
    root.bring("/lib/libx.so.1")
    assert (tmp_path / "root/lib").readlink() == Path("usr/lib")
    assert (tmp_path / "root/lib/libx.so.1").read_text() == "x"
    assert root.brought == {"/usr/lib/libx.so.1.2"}


def test_a_folder_comes_with_what_its_links_point_to(system: Path, tmp_path: Path) -> None:
    """Also where that is far from it."""
    (tmp_path / "root").mkdir()
    root = Root(tmp_path / "root", system)
    root.bring("/usr/lib/ssl/certs")
    root.bring("/not/there")
    assert (tmp_path / "root/usr/share/ca/one.crt").read_text() == "one"
    assert (tmp_path / "root/etc/ssl/certs/hash.0").readlink() == Path("one.pem")
    assert root.brought == {"/usr/share/ca/one.crt"}


def test_ldd_is_read() -> None:
    """Names with and without an arrow; what is not found is left out."""
    printed = (
        "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibtbb.so.12 => not found\n"
        "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f17)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f18)\n"
    )
    assert read_ldd(printed) == {
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
    }


def test_a_stripped_library_still_loads(tmp_path: Path) -> None:
    """Without its symbols it is smaller, and stripping it again changes nothing."""
    copy = tmp_path / "stripped.so"
    shutil.copy(LIBRARY, copy)
    strip(copy)
    once = copy.read_bytes()
    assert len(once) < LIBRARY.stat().st_size
    ctypes.CDLL(str(copy))
    strip(copy)
    assert copy.read_bytes() == once
    assert needed_by([LIBRARY]) == needed_by([copy])


def test_tests_and_headers_are_trimmed(tmp_path: Path) -> None:
    """Whatever programs use stays."""
    packages = tmp_path / "lib/python3.11/site-packages"
    (packages / "numpy/tests/deep").mkdir(parents=True)
    (packages / "numpy/tests/deep/test_x.py").write_text("x" * 100)
    (packages / "pygments/lexers").mkdir(parents=True)
    (packages / "pygments/lexers/python.py").write_text("x")
    (packages / "pygments/lexers/perl.py").write_text("x")
    (packages / "pygments/lexers/__pycache__").mkdir()
    (packages / "pygments/lexers/__pycache__/perl.cpython-311.pyc").write_text("x")
    (packages / "numpy/x.h").write_text("x" * 10)
    (packages / "numpy/x.py").write_text("x")
    shutil.copy(LIBRARY, packages / "numpy/x.so")
    saved = trim(tmp_path)
    assert sorted(p.name for p in packages.rglob("*") if p.is_file()) == [
        "python.py", "x.py", "x.so",
    ]  # fmt: skip
    smaller = LIBRARY.stat().st_size - (packages / "numpy/x.so").stat().st_size
    assert saved == 112 + smaller
    assert [p.name for p in libraries(tmp_path)] == ["x.so"]


def test_a_command_that_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With what it can do."""
    assert main(["trim"]) == 2
    assert "python image_parts.py" in capsys.readouterr().err


def test_it_needs_nothing_but_python() -> None:
    """In the build stage there is nothing else."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", image_parts.__file__],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
