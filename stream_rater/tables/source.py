"""The source of the rows of a table, whatever its format is."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stream_rater.rounds.validation import Invalid

Reject = Callable[[int, Invalid, Sequence[Any]], None]
"""A function that takes the line of a damaged row, the reason, and what could be read of its
cells."""


class TableSource:
    """The columns and the rows of a table."""

    columns: list[str]
    """The names of its columns, in order."""

    def __init__(self, name: str, stem: str, unit: str) -> None:
        self.name = name
        """Its name in messages."""
        self.stem = stem
        """Its name without endings, from which ids are made."""
        self.unit = unit
        """The unit that the numbers of its rows count: `line` or `row`."""

    def rows(self, places: Sequence[int], reject: Reject) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the number of each row, from 1, and its cells. `places`: the columns that are
        needed; the cells of other columns may be None. Damaged rows go to `reject`. A
        later call reads the table again. Raises OSError if the table cannot be read."""
        raise NotImplementedError
