"""The tables of `make image`, `make compose` and `make kubernetes`: what was seen, in words."""

from collections.abc import Iterator

from tests.benchmarks.document.rows import Row
from tests.benchmarks.document.tables import Column, Table, figure, number


def lines(row: Row) -> Iterator[Row]:
    """One for each check of a run."""
    for each in row.figures["rows"]:
        yield Row(row.name, row.origin, each)


def _seen(row: Row) -> str:
    return str(row.figures["seen"]).replace("|", "/")


def _of(command: str) -> Table:
    return Table(
        command, f"make {command} WRITE=1", f"platform/{command}",
        [
            Column("what", "what was done or looked at, in this order.",
                   lambda row: str(row.figures["what"])),
            Column("seen", "what came of it.", _seen),
            Column("s", "seconds that it took.", lambda row: number(figure(row, "s"))),
        ],
        spread=lines,
    )  # fmt: skip


TABLES = tuple(_of(command) for command in ("image", "compose", "kubernetes"))
