"""Tables go between the markers of a page; what else a page says stays as it is."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.benchmarks.document.rows import Row
from tests.benchmarks.document.summary import summary
from tests.benchmarks.document.tables import Table

SECTION = re.compile(r"(<!-- section: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
FIGURES = re.compile(r"(<!-- figures: begin -->\n).*?(<!-- figures: end -->)", re.DOTALL)


def with_tables(page: str, tables: Sequence[Table], rows: Sequence[Row]) -> str:
    """The page of benchmarks with the tables that these rows make.

    ValueError where the page has a marker without a table, or a table has no marker.
    """
    by_section = {each.section: each for each in tables}
    marked = [name for _, name, _ in SECTION.findall(page)]
    if sorted(marked) != sorted(by_section):
        unlike = ", ".join(sorted(set(marked) ^ by_section.keys())) or "one is there twice"
        raise ValueError(f"the page's markers are not those of the tables: {unlike}")
    return SECTION.sub(
        lambda found: f"{found[1]}\n{by_section[found[2]].markdown(rows)}\n{found[3]}", page
    )


def with_summary(page: str, rows: Sequence[Row]) -> str:
    """A page with the most telling figures between its markers; as it is if it has none."""
    return FIGURES.sub(lambda found: f"{found[1]}\n{summary(rows)}\n{found[2]}", page)


def untabled(tables: Iterable[Table], rows: Iterable[Row]) -> list[str]:
    """Names of the rows that no table shows."""
    patterns = [each.names for each in tables]
    return [row.name for row in rows if not any(re.fullmatch(each, row.name) for each in patterns)]


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all, and only if its text changes."""
    if path.exists() and path.read_text() == text:
        return
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
