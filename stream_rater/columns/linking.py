"""Decides how kernels call each other, so that no code is compiled twice.

Numba puts a copy of every function that a kernel calls into the kernel, optimises the copy again,
and compiles it again. So a large kernel at the bottom of such calls is compiled five times. Here:

- A kernel has a copy of a small kernel, since LLVM may inline it. It calls a large kernel, which
  LLVM would not inline (`MOST_COPIED`).
- An inlined function (`Inlined`) is only ever a part of kernels. So it is neither optimised nor
  compiled by itself.

Before a kernel is loaded from a file, the kernels that it calls are loaded (`load_callees`).

All else of the package imports numba from here, without the modules that no kernel uses, because
whoever imports it first decides.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

UNUSED = ("scipy.linalg", "cffi", "yaml")
"""Modules that numba uses where they are installed, but that no kernel uses: BLAS, which brings all
of SciPy; C libraries; and a file of settings. They take as long to import as numba itself."""


def _numba_without(unused: tuple[str, ...]) -> Any:
    """Import those parts of numba that look for these modules, with the modules hidden."""
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in unused if name not in modules]
    modules.update(dict.fromkeys(hidden))  # None: the module cannot be imported
    try:
        import_module("numba.np.arraymath")
        import_module("numba.core.typing.cffi_utils")
    finally:
        for name in hidden:
            del modules[name]
    return modules["numba"]


numba = _numba_without(UNUSED)

_codegen: Any = numba.core.codegen
_compiler: Any = numba.core.compiler
_CPUDispatcher: Any = numba.core.registry.CPUDispatcher

MOST_COPIED = 250
"""A kernel of more LLVM instructions than this is called, not copied. LLVM inlines functions that
cost up to 225 instructions or so."""

NO_WRAPPERS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""The options for a function that neither Python nor C calls."""


class Entry(NamedTuple):
    """A compiled form of a kernel, as other kernels call it."""

    module: str
    name: str
    arguments: tuple[Any, ...]  # The types of the arguments.
    symbol: str  # The linker's name of the machine code.
    size: int  # The number of its LLVM instructions.

    @property
    def is_called(self) -> bool:
        """Whether other kernels call it; otherwise they have copies of it."""
        return self.size > MOST_COPIED


class KernelLibrary(_codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel, with the large kernels that it calls."""

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self.callees: dict[Entry, Any] = {}  # The kernels that it calls, with their code.

    def add_linking_library(self, library: Any) -> None:
        """Call a kernel or have a copy of it. Numba does this for each function that is called."""
        entry = getattr(library, "entry", None)
        if entry is not None and entry.is_called:
            self._reload_init.update(library._reload_init)
            self.callees[entry] = library
            return
        super().add_linking_library(library)
        self.callees.update(getattr(library, "callees", {}))


class InlinedLibrary(KernelLibrary):
    """The code of an inlined function: LLVM code, but no machine code."""

    def _optimize_final_module(self) -> None:
        """Leave it to the kernels that the code becomes a part of."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class KernelCompiler(_compiler.Compiler):  # type: ignore[misc]
    """Numba's compiler, for a kernel."""

    library_class: type[KernelLibrary] = KernelLibrary

    def __init__(
        self, typing: Any, target: Any, library: Any, arguments: Any, returns: Any, flags: Any,
        types_of_locals: Any,
    ) -> None:  # fmt: skip
        if library is None:
            library = self.library_class(target.codegen(), "kernel")
            library.enable_object_caching()
        super().__init__(typing, target, library, arguments, returns, flags, types_of_locals)


class InlinedCompiler(KernelCompiler):
    """Numba's compiler, for an inlined function."""

    library_class = InlinedLibrary

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.flags.no_compile = True


class Inlined(_CPUDispatcher):  # type: ignore[misc]
    """An inlined function. Kernels have its code in them. For a call from Python, as by tests, a
    kernel that only calls it is compiled in this process."""

    def __init__(
        self, function: Callable[..., Any], options: Mapping[str, Any], *, counting: bool
    ) -> None:
        """`counting`: whether the function counts the references to arrays."""
        own = {"nopython": True, "forceinline": True, "_nrt": counting, **NO_WRAPPERS}
        super().__init__(function, targetoptions={**options, **own}, pipeline_class=InlinedCompiler)

        def called(*arguments: Any) -> Any:
            return self(*arguments)

        self._from_python = numba.njit(**options)(called)

    def __call__(self, *arguments: Any) -> Any:
        return self._from_python(*arguments)

    def add_overload(self, compiled: Any) -> None:
        """Make a compiled form known to the kernels that are compiled after it."""
        # Numba needs a built-in function as the entry, another object for each compiled form.
        entry: Any = [].copy
        self.targetctx.insert_user_function(entry, compiled.fndesc, [compiled.library])
        super().add_overload(compiled._replace(entry_point=entry))


def mark(compiled: Any, module: str, name: str) -> None:
    """Note on a kernel's compiled form how other kernels call it."""
    symbol = compiled.fndesc.llvm_func_name
    function = compiled.library._get_module_for_linking().get_function(symbol)
    size = sum(1 for block in function.blocks for _ in block.instructions)
    arguments = tuple(compiled.signature.args)
    compiled.library.entry = Entry(module, name, arguments, symbol, size)


def load_callees(entries: Iterable[Entry]) -> dict[Entry, Any] | None:
    """The code of the kernels that a compiled form calls, by entry, loaded or compiled. None if one
    of them is not the one that the form was compiled with: then the form cannot be used."""
    callees = {}
    for entry in entries:
        kernel = getattr(sys.modules.get(entry.module), entry.name, None)
        if kernel is None:
            return None
        kernel.compile(entry.arguments)
        library = kernel.overloads[entry.arguments].library
        if library.entry != entry:
            return None
        callees[entry] = library
    return callees
