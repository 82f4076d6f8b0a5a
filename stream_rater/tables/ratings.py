"""Reads a table of ratings: a row a player, with the rating that the player has in some system."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from stream_rater.rounds.validation import Invalid, id_mistake
from stream_rater.tables import names
from stream_rater.tables.cells import identifier, is_missing, mistake, number
from stream_rater.tables.csv_rows import CsvRows, check_header
from stream_rater.tables.doubts import Doubts, Numbers
from stream_rater.tables.formats import is_parquet, is_tabbed, is_table, stem_of
from stream_rater.tables.frames import parquet_rows, rows_of
from stream_rater.tables.json_rows import JsonRows
from stream_rater.tables.layout import Finder, unused
from stream_rater.tables.names import plain, suffixes
from stream_rater.tables.reading import Reading, UnreadableTable
from stream_rater.tables.source import Reject, TableSource

ROLES: Final[dict[str, tuple[str, ...]]] = {
    "player": (*names.ROLES["player"], "id"),
    "mu": ("mu", "rating elo skill mean mmr"),
    "sigma": ("sigma", "rd ratingdeviation deviation uncertainty"),
    "rounds": (
        "rounds games matches roundsplayed gamesplayed matchesplayed numgames gamecount played",
    ),
}
"""The names of each role's columns. Names of a later group count only if none of an earlier one is
there."""

SHOWN_COLUMNS: Final = 8
SHORT: Final = 32
"""Ids of so many characters are never too long."""


class RatedPlayer(NamedTuple):
    """A row of a table of ratings, on the scale of the table."""

    line: int
    player: str
    mu: float
    sigma: float | None
    """None if the table does not say it."""
    rounds: int


def source_of_file(path: Path, lines: Iterator[bytes], reading: Reading) -> TableSource:
    """The rows of a file: CSV, TSV or Parquet by its name, otherwise JSON lines. `lines`: the lines
    of a text. Raises OSError."""
    if is_parquet(path):
        return parquet_rows(path, stem_of(path))
    if is_table(path):
        return CsvRows(str(path), stem_of(path), lambda: lines, reading, tabs=is_tabbed(path))
    return JsonRows(str(path), path.stem, lines)


def source_of_object(table: Any) -> TableSource:
    """The rows of a data frame, a dict of columns, or a list of dicts. Raises UnreadableTable."""
    if isinstance(table, list | tuple):
        for i, row in enumerate(table):
            if not isinstance(row, Mapping):
                raise UnreadableTable(f"table[{i}]: {type(row).__name__} is no dict")
        columns = dict.fromkeys(str(name) for row in table for name in row)
        return rows_of({name: [row.get(name) for row in table] for name in columns})
    return rows_of(table)


class RatingsTable(Finder):
    """A table of ratings, of which no row is read yet."""

    def __init__(self, source: TableSource, reading: Reading, sigma: float | None = None) -> None:
        """Find the roles of the columns. `sigma`: that of players without one, on the scale of the
        table. Raises BadConfiguration with the question that is left."""
        super().__init__(source.name, source.columns, reading)
        self.name, self.unit = source.name, source.unit
        self._source, self._sigma = source, sigma
        if isinstance(source, CsvRows):
            known = bool(reading.columns) or any(map(_is_known, source.columns))
            check_header(source.name, source.columns, reading, known=known)
        self._given = self._places_given()
        self.roles = {role: place for role in ROLES if (place := self._find(role)) is not None}
        """The place of each role's column."""
        missing = [role for role in ("player", "mu") if role not in self.roles]
        if missing:
            self._fail(
                f"no column is known as {' or '.join(missing)} (there are "
                f"{', '.join(source.columns[:SHOWN_COLUMNS])}): name it, as "
                f"{reading.by_columns(dict.fromkeys(missing, 'COLUMN'))}"
            )

    @property
    def has_sigma(self) -> bool:
        """Whether the table, or the caller, says how uncertain the ratings are."""
        return "sigma" in self.roles or self._sigma is not None

    def described(self) -> str:
        """The column of each role, on one line."""
        columns = self._source.columns
        found = ", ".join(f"{role} = {columns[place]}" for role, place in self.roles.items())
        return f"{self.name}: {found}{unused(columns, self.roles.values())}"

    def rows(self, reject: Reject) -> Iterator[RatedPlayer]:
        """Yield the valid rows. The others go to `reject`, with the column and the cure. Raises
        OSError if the table cannot be read."""
        columns, roles, filling = self._source.columns, self.roles, self._sigma
        player, mu = roles["player"], roles["mu"]
        sigma, rounds = roles.get("sigma", -1), roles.get("rounds", -1)
        of_player, doubts = columns[player], Doubts(self.name, self.unit, self._reading)
        numbers = {place: Numbers(columns[place], doubts).of for place in roles.values()}
        for line, cells in self._source.rows(sorted(set(roles.values())), reject):
            doubts.line = line
            try:
                name = cells[player]
                if (
                    type(name) is not str or not name.isascii() or not name
                    or len(name) > SHORT or name[0] == " " or name[-1] == " "
                ):  # fmt: skip
                    name = _checked_id(name, of_player)
                yield RatedPlayer(
                    line, name, numbers[mu](cells[mu], "bad-seed"),
                    filling if sigma < 0 or (filling is not None and is_missing(cells[sigma]))
                    else numbers[sigma](cells[sigma], "bad-seed"),
                    1 if rounds < 0 else _whole(cells[rounds], columns[rounds]),
                )  # fmt: skip
            except Invalid as invalid:
                reject(line, invalid, cells)
        if not doubts.settled():
            self._fail(f"a comma separates decimals: say {self._reading.by('decimal', ',')}")

    def place_of(self, field: str) -> str:
        """The column of a seed's field, as messages show it."""
        place = self.roles.get(field)
        return field if place is None else f"column {self._source.columns[place]}"

    # --- the columns ---

    def _places_given(self) -> dict[str, int | None]:
        """The place of each role that the caller names; None for one without a column."""
        found = dict[str, int | None]()
        for given, column in self._reading.columns.items():
            role = plain(given)
            if role not in ROLES:
                self._fail(f"{given!r} is no role of a column: the roles are {', '.join(ROLES)}")
            found[role] = self._place(column) if column else None
        return found

    def _find(self, role: str) -> int | None:
        if role in self._given:
            return self._given[role]
        taken = set(self._given.values())
        for group in ROLES[role]:
            known = set(group.split())
            places = [
                place for place, column in enumerate(self._source.columns)
                if place not in taken and any(each in known for each in _names(column, group))
            ]  # fmt: skip
            self._ask(role, places)
            if places:
                return places[0]
        return None


def _names(column: str, group: str) -> Iterator[str]:
    """The names by which a column may be known. `id` counts only as a whole name."""
    return iter((plain(column),)) if group == "id" else suffixes(column)


def _is_known(column: str) -> bool:
    every = {each for groups in ROLES.values() for group in groups for each in group.split()}
    return any(each in every for each in suffixes(column))


def _checked_id(value: Any, column: str) -> str:
    """A cell as an id. Raises Invalid."""
    found = identifier(value, column)
    if wrong := id_mistake(found):
        raise mistake("bad-id", column, wrong)
    return found


def _whole(value: Any, column: str) -> int:
    """A number of rounds. Raises Invalid."""
    found = number(value, column, "bad-seed")
    if not isinstance(found, int) or found < 1:
        raise mistake(
            "bad-seed", column,
            f"{found:g} is no number of rounds from 1 on: leave the player out, or the column, as "
            "by --columns rounds=",
        )  # fmt: skip
    return found
