"""How a table is to be read: what a caller says about it, and the questions that are left.

A column that could be meant in two ways is a question to the caller. Its text names the candidates
and the argument that decides.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from stream_rater.config.errors import BadConfiguration

SCORES: Final = ("high", "low")
"""Which scores are the better ones."""


class UnreadableTable(OSError):
    """A file or an object is not a table that can be read. The text is one line with the cure."""


class Reading(NamedTuple):
    """What a caller says about a table. Whatever is left out is found by the columns' names."""

    columns: Mapping[str, str] = {}
    """The column of each role. An empty name leaves the role without a column."""
    score: str = ""
    """Which scores are better: `high` or `low`; empty if the caller does not say."""
    ladder: str = ""
    """The ladder of all rounds; empty: that of a column, or else of the table's name."""
    python: bool = False
    """Whether the caller is a Python program, which sees the cures as arguments."""

    @property
    def given(self) -> bool:
        """Whether the caller says anything that only a table needs."""
        return bool(self.columns or self.score or self.ladder)

    def by_columns(self, roles: Mapping[str, str]) -> str:
        """The argument that names the columns of these roles."""
        if self.python:
            pairs = ", ".join(f'"{role}": "{column}"' for role, column in roles.items())
            return f"columns={{{pairs}}}"
        given = ",".join(f"{role}={column}" for role, column in roles.items())
        return f"--columns '{given}'" if re.search(r"[^\w=,:+./-]", given) else f"--columns {given}"

    @property
    def by_score(self) -> str:
        """The arguments that decide which scores are better."""
        return 'score="high" or score="low"' if self.python else "--score high or --score low"

    @property
    def by_ladder(self) -> str:
        """The argument that names the ladder."""
        return "ladder=NAME" if self.python else "--ladder NAME"


AS_FOUND: Final = Reading()
"""The caller says nothing about the table."""


def parse_columns(texts: Iterable[str]) -> dict[str, str]:
    """The columns by role of texts such as `round=match_id,player=who`. A comma in the name of a
    column is no separator unless a role and `=` follow. Raises BadConfiguration."""
    found: dict[str, str] = {}
    for text in texts:
        for part in re.split(r",(?=\s*\w+\s*=)", text):
            role, sign, column = part.partition("=")
            if not sign or not role.strip():
                raise BadConfiguration(
                    f"--columns {text}: give ROLE=COLUMN, as in --columns round=match_id,player=who"
                )
            if role.strip() in found:
                raise BadConfiguration(f"--columns: {role.strip()} is given twice")
            found[role.strip()] = column.strip()
    return found
