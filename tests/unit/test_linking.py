"""A kernel calls large kernels and has copies of small ones, in every process that loads it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stream_rater.columns import linking
from stream_rater.rating.elo_mmr import performance, rate_waves
from stream_rater.rating.elo_mmr.sums import KNOWN, round_bounds

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
    """In a process that calls the outer kernel only, through a copy of another one, too."""
    result, compiled = run(place)
    assert compiled == ["large", "middle", "outer", "small"]
    assert run(place) == (result, [])


def test_a_kernel_is_compiled_again_with_what_it_calls(place: Path) -> None:
    """A called kernel that was compiled by another process has another name for the linker."""
    result, _ = run(place)
    for path in place.rglob("*large-*.kernel"):
        path.unlink()
    again, compiled = run(place, "s.other(1.0)")
    assert (again, compiled) == (result, ["large", "middle", "other", "outer"])
    assert run(place) == (result, [])


def test_a_large_kernel_is_in_no_other() -> None:
    """`solve_large` was once compiled in five kernels, each time for seconds."""
    for kernel in (performance.solve_rounds, rate_waves.rate_waves):
        for compiled in kernel.overloads.values():  # type: ignore[attr-defined]
            called = {entry.name for entry in compiled.library.callees}
            defined = " ".join(f.name for f in compiled.library.get_defined_functions())
            assert called and not any(f"{name}B" in defined for name in called)


def test_an_inlined_function_is_not_called_from_python() -> None:
    """It has no machine code. The first call compiles it, the second finds it compiled."""
    arguments = (np.zeros(3), np.ones(3), 0, 3, 1.0, np.empty(KNOWN))
    for _ in range(2):
        with pytest.raises((TypeError, KeyError)):
            round_bounds(*arguments)
    with pytest.raises(KeyError, match=linking.NOT_FROM_PYTHON):
        round_bounds(*arguments)
