"""What MkDocs runs around a build of the site: Mermaid's own file instead of one from a network,
and the page with all benchmarks, if `make tables` has built it.

`local.docs` names the file in MERMAID. Without it, diagrams stay as their text: the theme would
fetch Mermaid from elsewhere in each reader's browser.
"""

import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "MERMAID"
SCRIPT: Final = "assets/mermaid.min.js"
BENCHMARKS: Final = Path(__file__).resolve().parents[2] / "build" / "benchmarks-full.md"


def on_config(config: Any) -> Any:
    """Turn blocks of the language `mermaid` into diagrams, if the script is there."""
    if VARIABLE in os.environ:
        fence = import_module("pymdownx.superfences").fence_code_format
        diagram = {"name": "mermaid", "class": "mermaid", "format": fence}
        config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [diagram]}
        config.extra_javascript.append(SCRIPT)
    if BENCHMARKS.exists():
        after = config.nav.index({"Benchmarks": "benchmarks.md"}) + 1
        config.nav.insert(after, {"All benchmarks": BENCHMARKS.name})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Put the page with all benchmarks beside the others."""
    if BENCHMARKS.exists():
        file = import_module("mkdocs.structure.files").File
        files.append(file.generated(config, BENCHMARKS.name, abs_src_path=str(BENCHMARKS)))
    return files


def on_post_build(config: Any) -> None:
    """Put the script into the site."""
    if VARIABLE in os.environ:
        at = Path(config.site_dir, SCRIPT)
        at.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(os.environ[VARIABLE], at)
