"""The formats of tables, by the endings of their files' names. The module imports nothing."""

from pathlib import Path
from typing import Final

TEXTS: Final = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET: Final = (".parquet",)
SUFFIXES: Final = (*TEXTS, *PARQUET)
"""The endings of the names of tables."""


def is_table(path: Path) -> bool:
    """Whether the name of a file is that of a table."""
    return path.name.lower().endswith(SUFFIXES)


def is_parquet(path: Path) -> bool:
    """Whether the name of a file is that of a Parquet file."""
    return path.name.lower().endswith(PARQUET)


def is_tabbed(path: Path) -> bool:
    """Whether the name of a file says that tabs separate its cells."""
    return path.name.lower().endswith((".tsv", ".tsv.gz"))


def stem_of(path: Path) -> str:
    """The name of a table without its endings."""
    name = path.name
    ending = max((each for each in SUFFIXES if name.lower().endswith(each)), key=len, default="")
    return name[: len(name) - len(ending)]
