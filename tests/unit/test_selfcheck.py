"""The release's test vector; kernels that do not leak and load warm; times without all that."""

import math
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
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
from stream_rater.columns.compiling import SharedCache, watchers
from stream_rater.config.errors import ArithmeticMismatch
from stream_rater.config.ladders import any_ladder
from stream_rater.evaluation import comparison
from stream_rater.evaluation.comparison import compare, warm
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.rating.parameters import EloMMR, RatingConfig, Topcoder
from stream_rater.replay.pool import Pool
from stream_rater.runtime import selfcheck
from tests.benchmarks.lab.game import Kind, season
from tests.benchmarks.lab.timing import MOST_RUNS, timed
from tests.rounds import Reader

WITHOUT_MIGHT = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-all")
"""So that modes hold for root, too."""


def test_this_machine_computes_the_releases_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who changes a bit changes KERNEL_VERSION and EXPECTED. Every system is included."""
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
    """Files that cannot be written serve all the same: none is compiled again, none is left."""
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
        [*(WITHOUT_MIGHT if os.geteuid() == 0 else ()), sys.executable, "-m", selfcheck.__name__],
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
    sources = Path(selfcheck.__file__).parents[1].rglob("*.py")
    assert all(Path(cache_from_source(str(each))).is_file() for each in sources)
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "file"))
    selfcheck.write_bytecode()


# --- memory ---------------------------------------------------------------------------------------

RUNTIME: Any = numba_runtime  # Numba's runtime, whose counters it does not export.
SIZES = (2, 7, 7, 33, 60, 2000)  # Each goes another way through stage 1.


def in_use() -> int:
    """Pieces of memory that are allocated and not freed."""
    stats = RUNTIME.rtsys.get_allocation_stats()
    return int(stats.alloc - stats.free)


def rate(config: RatingConfig) -> None:
    """Some rounds with ties, a team and who did not finish."""
    reader, pool = Reader(any_ladder(config)), Pool(config)
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


# --- times ----------------------------------------------------------------------------------------

SEASON = list(season(Kind(players=20, rounds=30, per_round=4), 1))


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What tests load or watch is gone afterwards."""
    monkeypatch.setattr(SharedCache, "ready", set(SharedCache.ready))
    before = list(watchers)
    yield
    assert watchers == before


def test_a_run_that_loads_a_kernel_is_run_again() -> None:
    """So is one that compiles for other types; and what never rests has an end."""
    runs: list[int] = []

    def loading(most: int) -> int:
        runs.append(len(runs))
        if len(runs) <= most:
            SharedCache.ready.add(f"kernel {most} {len(runs)}")
        return runs[-1]

    def compiling() -> int:
        runs.append(len(runs))
        if len(runs) == 1:
            for each in watchers:
                each.compiling("kernel", 1)
        return runs[-1]

    for run, due in ((lambda: loading(0), 0), (lambda: loading(1), 1), (compiling, 1)):
        runs.clear()
        assert timed(run) == due
    runs.clear()
    timed(lambda: loading(99))
    assert len(runs) == MOST_RUNS


def test_evaluate_is_warm_before_its_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each configuration, alone or beside another; and no round is missed or rated twice."""
    calls: list[str] = []
    play = evaluate

    def warming_up(config: Any, *rest: Any, **options: Any) -> None:
        calls.append(f"warm {config.__struct_config__.tag}")
        with monkeypatch.context() as patch:
            patch.setattr(comparison, "evaluate", play)
            warm(config, *rest, **options)

    def playing(rounds: Any, config: Any, **options: Any) -> Any:
        calls.append(f"play {config.__struct_config__.tag}")
        return play(rounds, config, **options)

    monkeypatch.setattr(comparison, "warm", warming_up)
    monkeypatch.setattr(comparison, "evaluate", playing)
    configs: list[tuple[str, RatingConfig]]
    configs = [("a", EloMMR(weight_limit=0.2, sigma_limit=80.0)), ("b", Topcoder())]
    for count in (1, 2):
        calls.clear()
        rows = compare("file", iter(SEASON), configs[:count], 0.0)
        due = ["warm elo-mmr", "play elo-mmr", "warm topcoder", "play topcoder"]
        assert calls == due[: 2 * count]
        assert [row.rounds for row in rows] == [30] * count
