"""Puts compiled kernels into the wheel that hatchling builds, for the Python that builds it.

`make dist` turns on this hook of hatchling, by $HATCH_BUILD_HOOK_ENABLE_CUSTOM. Without it, the
wheel is pure Python. The kernels are compiled into $NUMBA_CACHE_DIR, or `build/kernels`; those that
are there already are used again. The wheel requires the versions of numba and llvmlite that
compiled them, because others cannot load them.
"""

import os
import subprocess
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

USUAL = "x86-64-v3"
"""The level if $NUMBA_CPU_NAME is not set: any x86-64 with AVX2 and FMA, which no platform tag can
say. Other processors compile the kernels themselves."""
PLATFORM = "manylinux_2_28_x86_64"
COMPILED_BY = ("numba", "llvmlite")

COMPILE = ("-m", "stream_rater.cli.compile_kernels", "--all")
STATE = ("-c", "from stream_rater.columns.kernel_files import STATE; print(STATE)")


class KernelsHook(BuildHookInterface[Any]):
    """Compiles the kernels, and adds them to the files of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile what is not compiled yet. `build_data` says what the wheel has and needs."""
        folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(self.root, "build", "kernels"))
        level = os.environ.get("NUMBA_CPU_NAME") or USUAL
        variables = {"NUMBA_CACHE_DIR": str(folder), "NUMBA_CPU_NAME": level}
        self._run(variables, *COMPILE)
        kernels = Path(self._run(variables, *STATE), level)
        build_data["force_include"][str(folder / kernels)] = f"stream_rater/compiled/{kernels}"
        build_data["dependencies"] += [f"{each}=={version_of(each)}" for each in COMPILED_BY]
        build_data["pure_python"] = False
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["tag"] = f"{python}-{python}-{PLATFORM}"

    def _run(self, variables: dict[str, str], *words: str) -> str:
        """What this Python prints when it runs these words."""
        done = subprocess.run(
            [sys.executable, *words], cwd=self.root, env=os.environ | variables,
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()
