"""A kernel calls large kernels and has copies of small ones, in every process that loads it."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_rater import Ladder
from stream_rater.columns import linking
from stream_rater.rating.elo_mmr import performance, rate_waves
from stream_rater.rating.elo_mmr.sums import HIGH, KNOWN, LOW, round_bounds

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


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a module of kernels that call each other, and a folder for their files."""
    (tmp_path / "some_kernels.py").write_text(MODULE)
    return tmp_path


def run(place: Path, code: str = "") -> tuple[str, list[str]]:
    """What `outer` gives in a new process, and the kernels that were compiled there."""
    variables = {"NUMBA_CACHE_DIR": str(place / "files"), "NUMBA_DEBUG_CACHE": "1"}
    path = os.pathsep.join([str(place), str(Path(linking.__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", f"import some_kernels as s\n{code}\nprint(s.outer(1.5))"],
        env=os.environ | variables | {"PYTHONPATH": path}, cwd=place,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *said, result = done.stdout.splitlines()
    saved = [
        line.split("/")[-1].split(".")[1].partition("-")[0] for line in said if "saved" in line
    ]
    return result, sorted(saved)


def test_what_a_kernel_calls_is_loaded_with_it(place: Path) -> None:
    """In a process that calls the outer kernel only, through a copy of another one, too. It is
    compiled again with what it calls: a called kernel that was compiled by another process has
    another name for the linker."""
    result, compiled = run(place)
    assert compiled == ["large", "middle", "outer", "small"]
    assert run(place) == (result, [])
    for path in place.rglob("*large-*.kernel"):
        path.unlink()
    again, compiled = run(place, "s.other(1.0)")
    assert (again, compiled) == (result, ["large", "middle", "other", "outer"])
    assert run(place) == (result, [])


def test_a_large_kernel_is_in_no_other() -> None:
    """`solve_large` was once compiled in five kernels, each time for seconds."""
    Ladder().rate(["ann", "bob"])
    performance.performances(np.array([1, 2], np.int32), np.ones(2), np.ones(2), 1.0)
    kernels: list[Any] = [performance.performances, rate_waves.rate_waves]
    for kernel in kernels:
        assert kernel.overloads
        for compiled in kernel.overloads.values():
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
    """The names of a function's decorators."""
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
    root = Path(linking.__file__).parents[2]
    trees = {
        ".".join(path.relative_to(root).with_suffix("").parts): ast.parse(path.read_text())
        for path in root.glob("stream_rater/**/*.py")
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
