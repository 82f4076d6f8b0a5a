"""Imports numba without the modules that no kernel uses. All else of the package imports it from
here, because whoever imports it first decides."""

import sys
from importlib import import_module
from typing import Any

UNUSED = ("scipy.linalg", "cffi", "yaml")
"""Modules that numba uses where they are installed, but that no kernel uses: BLAS, which brings all
of SciPy; C libraries; and a file of settings. They take as long to import as numba itself."""


def _numba_without(unused: tuple[str, ...]) -> Any:
    """Import those parts of numba that look for these modules, with the modules hidden. Returns
    numba."""
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
