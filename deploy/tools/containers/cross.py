"""Compiles for arm64 the kernels in a file of `bits`, and calls none. LLVM makes the same code on
each processor, and an emulator would take some 20 to 60 times as long."""

import os
import pickle
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from llvmlite import binding

llvm: Any = binding  # Numba asks it for the processor once the first kernel is defined.
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
llvm.get_process_triple = lambda: "aarch64-unknown-linux-gnu"
os.environ["NUMBA_CPU_NAME"] = "generic"
for name, signatures in pickle.loads(Path(sys.argv[1]).read_bytes()).items():
    for types in signatures:
        resolve_name(name).compile(types)
