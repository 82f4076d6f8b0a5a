"""How a table is to be read: what a caller says about it, and the questions that are left. A column
that could be meant in two ways is a question to the caller. Its text names the candidates and the
argument that decides."""

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

from stream_rater.config.errors import BadConfiguration

SUFFIXES: Final = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")  # Ends of tables' names.
SCORES: Final = ("high", "low")  # Which scores are the better ones.
MEANINGS: Final = ("win", "loss", "draw", "dnf", "skip", "score")
"""What a text may mean in place of a result, a rank or a score. `dnf`: did not finish; `skip`: the
row is left out; `score`: it is a score as any other."""
WHOLE: Final = "whole"  # Says that a text is one player, whatever it has.
MARGIN: Final = "margin"  # Says that a result is the margin by which the first side won.


class UnreadableTable(OSError):
    """A file or an object is not a table that can be read. The text is one line with the cure."""


class TableOptions(TypedDict, total=False):
    """What a Python program may say about a table, as the options of the commands do."""

    dates: str
    """The order of day, month and year: `"dmy"`, `"mdy"`, `"ymd"`; or the unit: `"s"`, `"ms"`."""
    decimal: str  # The sign before decimals, `"."` or `","`.
    encoding: str  # That of a CSV file, such as `"cp1252"`.
    result: Mapping[str, str]
    """What texts of results, ranks, scores mean: `"win"`, `"loss"`, `"draw"`, `"dnf"`, `"skip"`."""
    team: Sequence[str]
    """The columns of the members of each side, such as `["red1+red2", "blue1+blue2"]`."""
    members: str
    """What separates the members of a team in a cell, such as `","`; `"whole"`: a cell has one."""
    skip: Mapping[str, str | Sequence[str]]
    """The rows to leave out, by column: its text there, or several."""
    neutral: str  # The column that says that nobody is at home.


class Reading(NamedTuple):
    """What a caller says about a table. Whatever is left out is found by the columns' names and
    cells, or asked."""

    columns: Mapping[str, str] = {}
    """The column of each role. An empty name leaves the role without a column."""
    score: str = ""  # Which scores are better: `high` or `low`; empty if the caller does not say.
    ladder: str = ""
    """The ladder of all rounds; empty: that of a column, or else of the table's name."""
    python: bool = False
    """Whether the caller is a Python program, which sees the cures as arguments."""
    # the others as in TableOptions; `result` by the text in lower case, `skip` as pairs
    decimal: str = ""
    encoding: str = ""
    dates: str = ""
    result: Mapping[str, str] = {}
    team: Sequence[str] = ()
    skip: Sequence[tuple[str, str]] = ()
    neutral: str = ""
    members: str = ""

    def checked(self) -> "Reading":
        """This reading. Raises BadConfiguration if an option has a value that it cannot have."""
        if self.decimal not in ("", ".", ","):
            raise BadConfiguration(f"decimal: {self.decimal!r}: give a point or a comma")
        if self.score not in ("", *SCORES):
            raise BadConfiguration(f"score: {self.score!r}: give one of {', '.join(SCORES)}")
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError as error:
            raise BadConfiguration(f"encoding: {error}") from None
        for text, meaning in self.result.items():
            if meaning not in MEANINGS and text != MARGIN:
                listed = ", ".join(MEANINGS)
                raise BadConfiguration(f"result: {text}={meaning}: a meaning is one of {listed}")
        texts = {text.strip().lower(): meaning for text, meaning in self.result.items()}
        return self._replace(result=texts)

    @property
    def given(self) -> bool:
        """Whether the caller says anything that only a table needs."""
        return any(self._replace(python=False))

    def by(self, option: str, value: str | Mapping[str, str | Sequence[str]]) -> str:
        """The argument that gives an option this value, or these values by name."""
        if self.python:
            return f"{option}={value!r}".replace("'", '"')
        if not isinstance(value, str):
            value = ",".join(f"{name}={text}" for name, text in pairs_of(value))
        quote = '"' if "'" in value else "'"
        return f"--{option} {value if re.fullmatch(_PLAIN, value) else quote + value + quote}"

    def by_columns(self, roles: Mapping[str, str]) -> str:
        return self.by("columns", roles)

    @property
    def by_score(self) -> str:
        """The arguments that decide which scores are better."""
        return " or ".join(self.by("score", each) for each in SCORES)


AS_FOUND: Final = Reading()  # The caller says nothing about the table.
_PLAIN: Final = r"[\w=,:+./-]+"


def reading_of(columns: Mapping[str, str] | None, score: str, how: TableOptions) -> Reading:
    """What a Python program says. Raises BadConfiguration, which is a ValueError."""
    given: dict[str, Any] = {**how, "skip": pairs_of(how.get("skip", {}))}
    return Reading(dict(columns or {}), score, python=True, **given).checked()


def parse_columns(texts: Iterable[str]) -> dict[str, str]:
    """The columns by role of texts such as `round=match_id,player=who`. A comma in the name of a
    column is no separator unless a role and `=` follow. Raises BadConfiguration."""
    found: dict[str, str] = {}
    for role, column in _pairs("columns", texts, "ROLE=COLUMN, as in --columns round=match_id"):
        if not role:
            raise BadConfiguration("--columns: no role before =: give ROLE=COLUMN")
        if role in found:
            raise BadConfiguration(f"--columns: {role} is given twice")
        found[role] = column
    return found


def parse_result(texts: Iterable[str]) -> dict[str, str]:
    """The meanings of texts such as `resigned=loss,agreed=draw`. Raises BadConfiguration."""
    texts = [f"{each}={each}" if each.strip() == MARGIN else each for each in texts]
    form = f"TEXT=MEANING, as in --result resigned=loss, or {MARGIN}"
    return dict(_pairs("result", texts, form))


def parse_skip(texts: Iterable[str]) -> list[tuple[str, str]]:
    """The columns and texts of `status=walkover`. Raises BadConfiguration."""
    return _pairs("skip", texts, "COLUMN=TEXT, as in --skip status=walkover")


def pairs_of(skip: Mapping[str, str | Sequence[str]]) -> list[tuple[str, str]]:
    """The columns and texts of a mapping."""
    return [
        (column, text) for column, texts in skip.items()
        for text in ([texts] if isinstance(texts, str) else texts)
    ]  # fmt: skip


def _pairs(option: str, texts: Iterable[str], form: str) -> list[tuple[str, str]]:
    """Pairs NAME=VALUE, separated by commas. A comma separates only if a name and `=` follow."""
    parts = [part for text in texts for part in re.split(r",(?=[^,=]*=)", text)]
    for part in parts:
        if "=" not in part:
            raise BadConfiguration(f"--{option} {part}: give {form}")
    split = [part.rpartition("=") if option == "result" else part.partition("=") for part in parts]
    return [(name.strip(), value.strip()) for name, _, value in split]


def is_table(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES)


def is_parquet(path: Path) -> bool:
    return path.name.lower().endswith(".parquet")


def stem_of(path: Path) -> str:
    """The name of a table without its endings."""
    name = path.name
    ending = next((each for each in SUFFIXES if name.lower().endswith(each)), "")
    return name[: len(name) - len(ending)]
