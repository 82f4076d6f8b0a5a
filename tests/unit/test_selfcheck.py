"""The release's test vector: every bit of a rating, on every machine. What kernels allocate they
free: pieces that count no references could leak, or free twice."""

import math
import os
import platform
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from itertools import product
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from llvmlite import binding as llvm
from numba.core import runtime as numba_runtime

from local.tools import ROOT
from stream_rater.columns import kernel_files
from stream_rater.config.errors import ArithmeticMismatch
from stream_rater.config.ladders import Ladder, any_ladder
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.pool import Pool
from stream_rater.runtime import selfcheck
from tests.rounds import Reader

SELFCHECK = "stream_rater.runtime.selfcheck"
PACKAGE = Path(selfcheck.__file__).parents[1]
WITHOUT_MIGHT = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-all")
"""So that modes hold for root, too."""


def test_this_machine_computes_the_releases_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `run` checks at its start; whoever changes a bit changes KERNEL_VERSION and EXPECTED.
    The error names both vectors. No system is forgotten."""
    selfcheck.check()
    monkeypatch.setattr(selfcheck, "EXPECTED", "0" * 16)
    with pytest.raises(ArithmeticMismatch, match="expects 0000000000000000"):
        selfcheck.check()
    assert {type(each) for each in selfcheck.SYSTEMS} == set(get_args(RatingConfig))


def test_a_processor_without_fused_multiply_adds_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be right, and too slow for anybody: a line says why."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    for has in (False, True):
        monkeypatch.setattr(llvm, "get_host_cpu_features", lambda has=has: {"fma": has})
        assert (selfcheck.slow_processor() is None) == has
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")  # all of these have it
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: {"neon": True})
    assert selfcheck.slow_processor() is None


def test_a_read_only_image_starts_warm(tmp_path: Path) -> None:
    """Compiled kernels in files that cannot be written serve all the same. None is compiled again,
    and nothing is left behind."""
    selfcheck.check()
    selfcheck.compile_for(selfcheck.SYSTEMS[0])
    selfcheck.compile_for_full_histories()
    shipped, scratch = tmp_path / "shipped", tmp_path / "tmp"
    kernels = shipped / kernel_files.STATE
    shutil.copytree(kernel_files.written(), kernels)
    for folder in (shipped, kernels, *kernels.iterdir()):
        folder.chmod(0o555)
    scratch.mkdir()
    variables = {"NUMBA_CACHE_DIR": str(shipped), "NUMBA_DEBUG_CACHE": "1", "TMPDIR": str(scratch)}
    done = subprocess.run(
        [*(WITHOUT_MIGHT if os.geteuid() == 0 else ()), sys.executable, "-m", SELFCHECK],
        cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"data loaded from '{shipped}" in done.stdout
    assert "saved" not in done.stdout
    assert list(scratch.iterdir()) == []


def test_nothing_is_left_to_compile() -> None:
    """Whatever rounds come, of whichever ladder: their kernels are those of `warm --all`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cold"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": "deploy:deploy/tools"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_bytecode_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All modules have it, even where Python is set to write none. Refusals do not matter."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    selfcheck.write_bytecode()
    sources = PACKAGE.rglob("*.py")
    assert all(Path(cache_from_source(str(each))).is_file() for each in sources)
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "file"))
    selfcheck.write_bytecode()


# --- memory ---------------------------------------------------------------------------------------

RUNTIME: Any = numba_runtime
"""Numba's runtime, whose counters it does not export."""
SIZES = (2, 7, 7, 33, 60, 2000)
"""Each goes another way through stage 1."""


def in_use() -> int:
    """Pieces of memory that are allocated and not freed."""
    stats = RUNTIME.rtsys.get_allocation_stats()
    return int(stats.alloc - stats.free)


def rate(config: RatingConfig) -> None:
    """Some rounds with ties, a team and who did not finish."""
    reader, pool = Reader(any_ladder(config)), Pool(Ladder(rating=config))
    for number, size in enumerate(SIZES):
        pool.rate(reader.read(selfcheck._round(number, max(size, 3)), received_s=math.inf), number)


def test_nothing_leaks() -> None:
    """As many pieces are freed as were allocated, by every system, with full histories and not."""
    RUNTIME._nrt_python.memsys_enable_stats()
    try:
        leaks = []
        for system, history in product(selfcheck.SYSTEMS, (4, "full")):
            config = msgspec.structs.replace(system, history=history)
            rate(config)  # what is kept for good
            before = in_use()
            rate(config)
            leaks.append((in_use() - before, config))
    finally:
        RUNTIME._nrt_python.memsys_disable_stats()
    assert [each for each in leaks if each[0]] == []
