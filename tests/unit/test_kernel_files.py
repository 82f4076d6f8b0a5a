"""Compiled kernels are found wherever they are, and nothing else is; what kernels call or copy."""

import ast
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
import pytest
from numba import types

from stream_rater import Ladder
from stream_rater.columns import compiling, kernel_files, kernels
from stream_rater.columns.kernel_files import KernelFiles
from stream_rater.rating.elo_mmr import belief, performance
from stream_rater.rating.elo_mmr.sums import HIGH, KNOWN, LOW, round_bounds
from stream_rater.rounds import depth
from stream_rater.rounds.depth import json_depth

kernel: Any = depth._json_depth
CODE = "from stream_rater.rounds.depth import json_depth as f; print(f(b'[]', 0))"
PACKAGE = Path(kernel_files.__file__).parents[1]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A copy of the package's sources at another place, of another time, without kernels."""
    shutil.copytree(PACKAGE, tmp_path / "stream_rater", ignore=lambda *_: ["__pycache__"])
    for path in (tmp_path / "stream_rater").rglob("*.py"):
        os.utime(path, (1, 1))
    return tmp_path


def python(code: str, cache: Path, *path: Path, **variables: str) -> tuple[str, list[str]]:
    """What a new process prints last, and what numba says of its cache before."""
    given = {"NUMBA_CACHE_DIR": str(cache), "NUMBA_DEBUG_CACHE": "1"}
    given["PYTHONPATH"] = os.pathsep.join(map(str, path))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=path[0], env=os.environ | given | variables,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    *said, result = done.stdout.splitlines()
    return result, said


def run(place: Path, cache: Path, **variables: str) -> str:
    """What numba says of its cache when one kernel runs by the package that lies at a place."""
    result, said = python(CODE, cache, place, **variables)
    assert result == "1"
    return "\n".join(said)


def saved(said: str) -> int:
    return said.count("data saved to")


def test_shipped_kernels_are_taken_at_any_place_and_time(elsewhere: Path) -> None:
    """Nothing is compiled or written. A damaged kernel is not loaded, but written again."""
    run(PACKAGE.parent, elsewhere / "built")
    shutil.copytree(elsewhere / "built", elsewhere / "stream_rater" / "compiled")
    (lock,) = elsewhere.rglob(f"stream_rater/**/{compiling.LOCK_FILE}")
    lock.unlink()
    said = run(elsewhere, elsewhere / "none")
    assert f"data loaded from '{elsewhere}/stream_rater/compiled/" in said
    assert saved(said) == 0
    assert not (elsewhere / "none").exists()
    assert not list(elsewhere.rglob(f"stream_rater/**/{compiling.LOCK_FILE}"))
    (shipped,) = elsewhere.glob("stream_rater/compiled/*/*/*.kernel")
    shipped.write_bytes(shipped.read_bytes()[:-1])
    assert saved(run(elsewhere, elsewhere / "cache")) == 1
    assert saved(run(elsewhere, elsewhere / "cache")) == 0


def test_damage_is_seen(tmp_path: Path) -> None:
    """Any byte that is lost or other, and what was written under another name."""
    path, key = tmp_path / "folder" / "file", b"k" * 16
    assert kernel_files._read(path, key) is None
    assert kernel_files._write(path, key, b"content")
    assert kernel_files._read(path, key) == b"content"
    assert kernel_files._read(path, b"l" * 16) is None
    whole = path.read_bytes()
    for i in range(len(whole)):
        for damaged in (whole[:i], whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :]):
            path.write_bytes(damaged)
            assert kernel_files._read(path, key) is None
    assert [each.name for each in path.parent.iterdir()] == ["file"]


@pytest.mark.slow
def test_shipped_kernels_decide_the_level(elsewhere: Path) -> None:
    """If this machine has it; otherwise, and by $NUMBA_CPU_NAME, kernels are compiled."""
    usual = run(elsewhere, elsewhere / "usual")
    assert f"/{kernel_files.level()}/" in usual or os.environ.get("NUMBA_CPU_NAME")
    narrow = {"NUMBA_CPU_NAME": "x86-64"}
    run(PACKAGE.parent, elsewhere / "built", **narrow)
    shutil.copytree(elsewhere / "built", elsewhere / "stream_rater" / "compiled")
    given = {"NUMBA_CPU_NAME": ""}
    assert saved(run(elsewhere, elsewhere / "none", **given)) == 0
    assert saved(run(elsewhere, elsewhere / "none", NUMBA_CPU_NAME="x86-64-v2")) == 1
    (level,) = elsewhere.glob("stream_rater/compiled/*/x86-64")
    level.rename(level.with_name("x86-64-v9"))  # no machine has it
    assert "/x86-64-v9/" not in (said := run(elsewhere, elsewhere / "other", **given))
    assert saved(said) == 1


def test_elsewhere_one_level_is_for_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while deploy/Dockerfile is built, which names one of x86-64."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(kernel_files._config, "CPU_NAME", "x86-64-v3")
    assert kernels._instruction_level() == "generic"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folders of this test alone."""
    monkeypatch.setattr(kernel_files, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setattr(kernel_files._config, "CACHE_DIR", str(tmp_path / "beside"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    monkeypatch.setattr(kernel_files, "_temporary", [])
    for each in (kernel_files.folders, kernel_files.written):
        each.cache_clear()
    yield tmp_path
    for each in (kernel_files.folders, kernel_files.written):
        each.cache_clear()


def test_what_is_compiled_goes_where_it_can_be_written(places: Path) -> None:
    """Beside the sources, to the user's folder, or to a temporary one; never among the shipped."""
    assert kernel_files.written() == places / "beside" / kernel_files.STATE
    shutil.rmtree(places / "beside")
    (places / "beside").touch()
    kernel_files.written.cache_clear()
    assert kernel_files.written() == places / "users" / "stream-rater" / kernel_files.STATE
    shutil.rmtree(places / "users")
    (places / "users").touch()
    kernel_files.written.cache_clear()
    assert kernel_files.written().name.startswith("stream-rater-kernels-")
    assert not (places / "shipped").exists()


def test_a_full_disk_stops_no_kernel(places: Path) -> None:
    """What cannot be written is used all the same."""
    json_depth(b"[]", 0)
    folder = Path(KernelFiles(kernel.py_func).cache_path)
    shutil.rmtree(folder, ignore_errors=True)
    compiled: Any = kernels.kernel(kernel.py_func)  # now, since a form that was read has no bytes
    compiled.compile(*kernel.overloads)
    (form,) = compiled.overloads.values()
    shutil.rmtree(folder)
    folder.touch()  # no folder, so that nothing can be written into it
    KernelFiles(kernel.py_func).save_overload(form.signature, form)
    assert folder.read_bytes() == b""


def test_a_folder_is_of_one_state(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    """Another version of Python, numba or llvmlite has another; so have other sources."""
    assert kernel_files._state() == kernel_files.STATE
    for module, name in ((numba, "__version__"), (llvmlite, "__version__")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, "0.0")
            assert kernel_files._state() != kernel_files.STATE
    with monkeypatch.context() as patch:
        patch.setattr(sys.implementation, "cache_tag", "cpython-999")
        assert kernel_files._state() != kernel_files.STATE
    monkeypatch.setattr(kernel_files, "_PACKAGE", elsewhere / "stream_rater")
    assert kernel_files._state() == kernel_files.STATE
    (elsewhere / "stream_rater" / "columns" / "new.py").write_text("pass")
    assert kernel_files._state() != kernel_files.STATE


class Codegen:
    def __init__(self, *magic: str) -> None:
        self._magic = magic

    def magic_tuple(self) -> tuple[str, ...]:
        return self._magic


def plus(number: int) -> Callable[[int], int]:
    """A function that has a number in it."""

    def add(x: int) -> int:
        return x + number

    return add


def test_a_name_is_of_one_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other types, instructions, constants and sources have others."""

    def key(function: Any = kernel.py_func, kind: Any = types.int64, level: str = "v3") -> bytes:
        return KernelFiles(function)._key((kind,), Codegen("triple", level))

    functions = (plus(1), plus(2), kernels.kernel)
    keys = [key(), key(kind=types.int32), key(level="v4"), *(key(each) for each in functions)]
    assert len(set(keys)) == len(keys)
    assert key(plus(1)) == key(plus(1))
    monkeypatch.setattr(kernel_files, "_source_digest", lambda _: "other")
    assert key() not in keys


STEPS = "\n".join(f"    x = x * {1 + step / 1000} + math.sqrt(x + {step})" for step in range(100))
MODULE = f"""
import math
from stream_rater.columns.kernels import kernel

@kernel
def large(x):
{STEPS}
    return x

@kernel
def small(x):
    return x + 1.0

@kernel
def middle(x):
    return small(x) * large(x)

@kernel
def outer(x):
    return middle(x) - large(x + 1.0)

@kernel
def other(x):
    return x - 1.0
"""


def outer(place: Path, code: str = "") -> tuple[str, list[str]]:
    """What `outer` gives in a new process, and the kernels that were compiled there."""
    code = f"import some_kernels as s\n{code}\nprint(s.outer(1.5))"
    result, said = python(code, place / "files", place, PACKAGE.parent)
    files = [Path(line).name for line in said if "saved" in line]
    return result, sorted(name.split(".")[1].partition("-")[0] for name in files)


def test_what_a_kernel_calls_is_loaded_with_it(tmp_path: Path) -> None:
    """Through a copy, too. A kernel of another process has another name for the linker."""
    (tmp_path / "some_kernels.py").write_text(MODULE)
    result, compiled = outer(tmp_path)
    assert compiled == ["large", "middle", "outer", "small"]
    assert outer(tmp_path) == (result, [])
    for path in tmp_path.rglob("*large-*.kernel"):
        path.unlink()
    again, compiled = outer(tmp_path, "s.other(1.0)")
    assert (again, compiled) == (result, ["large", "middle", "other", "outer"])
    assert outer(tmp_path) == (result, [])


def test_a_large_kernel_is_in_no_other() -> None:
    """`solve_large` was once compiled in five kernels, each time for seconds."""
    Ladder("elo-mmr").rate(["ann", "bob"])
    performance.performances(np.array([1, 2], np.int32), np.ones(2), np.ones(2), 1.0)
    both: list[Any] = [performance.performances, belief.rate_waves]
    for each in both:
        assert each.overloads
        for compiled in each.overloads.values():
            called = {entry.name for entry in compiled.library.callees}
            defined = " ".join(f.name for f in compiled.library.get_defined_functions())
            assert called and not any(f"{name}B" in defined for name in called)


def test_an_inlined_function_has_no_machine_code() -> None:
    """Nothing but kernels needs it. A call from Python, as by tests, goes through a kernel."""
    mu, u, bounds = np.array([1400.0, 1600.0]), np.full(2, 0.01), np.zeros(KNOWN)
    round_bounds(mu, u, 0, 2, 1.0, bounds)
    assert bounds[LOW] < 1400.0 and bounds[HIGH] > 1600.0
    (compiled,) = round_bounds.overloads.values()  # type: ignore[attr-defined]
    assert not compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)


INLINING = {"inlined", "giving"}


def decorators(function: ast.FunctionDef) -> set[str]:
    return {each.id for each in function.decorator_list if isinstance(each, ast.Name)}


def calls_from_python(tree: ast.Module, inlined: set[tuple[str, str]], module: str) -> set[str]:
    """The inlined functions that a module's Python code names."""
    known = {name: name for other, name in inlined if other == module}
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                modules[each.asname or each.name] = f"{node.module}.{each.name}"
                if (node.module, each.name) in inlined:
                    known[each.asname or each.name] = each.name

    def named(node: ast.AST) -> set[str]:
        if isinstance(node, ast.FunctionDef) and decorators(node) & {"kernel", *INLINING}:
            return set()
        found = set()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in known:
            found = {known[node.id]}
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = {node.attr} if (modules.get(node.value.id), node.attr) in inlined else set()
        found = found.union(*map(named, ast.iter_child_nodes(node)))
        if isinstance(node, ast.FunctionDef):  # a parameter may have the name of a function
            arguments = node.args
            found -= {each.arg for each in [*arguments.args, *arguments.kwonlyargs]}
        return found

    return named(tree)


def test_only_kernels_call_inlined_functions() -> None:
    """From Python, a kernel for the call would be compiled in each process."""
    trees = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): ast.parse(
            path.read_text()
        )
        for path in PACKAGE.rglob("*.py")
    }
    inlined = {
        (module, node.name)
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and decorators(node) & INLINING
    }
    assert len(inlined) > 100
    found = {module: calls_from_python(tree, inlined, module) for module, tree in trees.items()}
    assert {module: names for module, names in found.items() if names} == {}
