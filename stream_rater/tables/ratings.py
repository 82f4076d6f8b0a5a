"""Reads a table of ratings, with a row for each player, and turns it into the seeds of a ladder.
All rows are read and validated before the first seed is given. The players wait in a temporary
file, so memory holds only some numbers for each."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from stream_rater.contract.seeds import MOST_PLAYERS, SeededPlayer
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds import seed_records
from stream_rater.rounds.correction_records import mistake_in
from stream_rater.rounds.validation import Invalid, id_mistake
from stream_rater.tables import layout, names, sources
from stream_rater.tables.csv_rows import CsvRows
from stream_rater.tables.doubts import Doubts, Numbers
from stream_rater.tables.reading import Reading, UnreadableTable, is_parquet, is_table
from stream_rater.tables.rounds import Spool

ROLES: Final[dict[str, tuple[str, ...]]] = {
    "player": (*names.ROLES["player"], "id"),
    "mu": ("mu", "rating elo skill mean mmr"),
    "sigma": ("sigma", "rd ratingdeviation deviation uncertainty"),
    "rounds": (
        "rounds games matches roundsplayed gamesplayed matchesplayed numgames gamecount played",
    ),
}
"""The names of each role's columns, as in `names.ROLES`."""

EXAMPLES: Final = 5  # The number of players that are shown before a seed is sent.
MOST_SAMPLED: Final = 4_096  # Examples are chosen among so many players, and both ends.
SHOWN_COLUMNS: Final = 8
SHORT: Final = 32  # Ids of so many characters are never too long.

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[SeededPlayer]).decode


class RatedPlayer(NamedTuple):
    """A row of a table of ratings, on the scale of the table."""

    line: int
    player: str
    mu: float
    sigma: float | None  # None if the table does not say it.
    rounds: int


def source_of_file(
    path: Path, opened: Callable[[], Iterator[bytes]], reading: Reading
) -> sources.TableRows:
    """The rows of a file: CSV, TSV or Parquet by its name, otherwise JSON lines. `opened()` gives
    the lines of a text. Raises OSError."""
    if is_parquet(path):
        return sources.parquet_rows(path)
    return CsvRows(path, opened, reading) if is_table(path) else sources.JsonRows(path, opened())


def source_of_object(table: Any) -> sources.TableRows:
    """The rows of a data frame, a dict of columns, or a list of dicts. Raises UnreadableTable."""
    if isinstance(table, list | tuple):
        for i, row in enumerate(table):
            if not isinstance(row, Mapping):
                raise UnreadableTable(f"table[{i}]: {type(row).__name__} is no dict")
        columns = dict.fromkeys(str(name) for row in table for name in row)
        return sources.rows_of({name: [row.get(name) for row in table] for name in columns})
    return sources.rows_of(table)


class RatingsTable(layout.Finder):
    """A table of ratings, of which no row is read yet."""

    def __init__(
        self, source: sources.TableRows, reading: Reading, sigma: float | None = None
    ) -> None:
        """Find the roles of the columns. `sigma`: that of players without one, on the scale of the
        table. Raises BadConfiguration with the question that is left."""
        super().__init__(source.name, source.columns, reading)
        self.name, self.unit = source.name, source.unit
        self._source, self._sigma = source, sigma
        every = {each for groups in ROLES.values() for of in groups for each in of.split()}
        source.check_header(lambda column: not every.isdisjoint(names.suffixes(column)))
        self._given: dict[str, int | None] = {}
        """The place of each role that the caller names; None for one without a column."""
        for given, column in reading.columns.items():
            if names.plain(given) not in ROLES:
                self._fail(f"{given!r} is no role of a column: the roles are {', '.join(ROLES)}")
            self._given[names.plain(given)] = self._place(column) if column else None
        self.roles = {role: place for role in ROLES if (place := self._find(role)) is not None}
        """The place of each role's column."""
        missing = [role for role in ("player", "mu") if role not in self.roles]
        if missing:
            self._fail(
                f"no column is known as {' or '.join(missing)} (there are "
                f"{', '.join(source.columns[:SHOWN_COLUMNS])}): name it, as "
                f"{reading.by_columns(dict.fromkeys(missing, 'COLUMN'))}"
            )

    def check_sigma(self, newcomer: float) -> None:
        """Raise BadConfiguration if neither the table nor the caller says how uncertain the ratings
        are. `newcomer`: the sigma of a newcomer on the scale of the table."""
        if "sigma" not in self.roles and self._sigma is None:
            reading = self._reading
            self._fail(
                "no column is known as sigma, how uncertain a rating is: name one, as "
                f"{reading.by_columns({'sigma': 'COLUMN'})}, or give one for all, as "
                f"{'sigma=' if reading.python else '--sigma '}{0.3 * newcomer:.3g}"
            )

    def described(self) -> str:
        """The column of each role, on one line."""
        columns = self._source.columns
        found = ", ".join(f"{role} = {columns[place]}" for role, place in self.roles.items())
        return f"{self.name}: {found}{layout.unused(columns, self.roles.values())}"

    def rows(self, reject: sources.Reject) -> Iterator[RatedPlayer]:
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
                name, deviation = _player_id(cells[player], of_player), filling
                rating = numbers[mu](cells[mu], "bad-seed")
                if sigma >= 0 and (filling is None or not sources.is_missing(cells[sigma])):
                    deviation = numbers[sigma](cells[sigma], "bad-seed")
                played = 1 if rounds < 0 else _whole(cells[rounds], columns[rounds])
                yield RatedPlayer(line, name, rating, deviation, played)
            except Invalid as invalid:
                reject(line, invalid, cells)
        if not doubts.settled():
            self._fail(f"a comma separates decimals: say {self._reading.by('decimal', ',')}")

    def place_of(self, field: str) -> str:
        """The column of a seed's field, as messages show it."""
        place = self.roles.get(field)
        return field if place is None else f"column {self._source.columns[place]}"

    def _find(self, role: str) -> int | None:
        if role in self._given:
            return self._given[role]
        taken = set(self._given.values())
        for group in ROLES[role]:
            known = set(group.split())
            places = [
                place for place, column in enumerate(self._source.columns)
                if place not in taken and not known.isdisjoint(_names(column, group))
            ]  # fmt: skip
            self._ask(role, places)
            if places:
                return places[0]
        return None


def _names(column: str, group: str) -> Iterable[str]:
    """The names by which a column may be known. `id` counts only as a whole name."""
    return [names.plain(column)] if group == "id" else names.suffixes(column)


def _player_id(value: Any, column: str) -> str:
    is_short = type(value) is str and 0 < len(value) <= SHORT and value.isascii()
    if is_short and value == value.strip(" "):
        return str(value)  # nearly all
    player = sources.identifier(value, column)
    if wrong := id_mistake(player):
        raise sources.mistake("bad-id", column, wrong)
    return player


def _whole(value: Any, column: str) -> int:
    rounds = sources.number(value, column, "bad-seed")
    if not isinstance(rounds, int) or rounds < 1:
        raise sources.mistake(
            "bad-seed", column,
            f"{rounds:g} is no number of rounds from 1 on: leave the player out, or the column, as "
            "by --columns rounds=",
        )  # fmt: skip
    return rounds


# --- the seeds of a ladder ------------------------------------------------------------------------


class RatedExample(NamedTuple):
    """A player with the rating on the scale of the table, and on that of the ladder."""

    row: RatedPlayer
    seeded: SeededPlayer


class TableSeeds(sources.Rejecting):
    """The players of a table, on the scale of a ladder."""

    def __init__(
        self, table: RatingsTable, scale: seed_records.Scale, rating: RatingConfig
    ) -> None:
        """Read all rows of the table, whose ratings are on this scale. `rating`: the parameters of
        the ladder. Raises OSError if the table cannot be read."""
        super().__init__()
        self.count = 0
        """The number of valid players."""
        self.cut = 0
        """The number of those whose sigma was cut to the initial one of the ladder."""
        self._table, self._rating = table, rating
        self._spool, self._pending = Spool(), list[SeededPlayer]()
        self._hashes, self._lines = array("q"), array("q")
        self._twice: set[str] = set()
        self._sample = _Sample()
        for example in self._converted(scale):
            self._add(example)
        self._flush()
        self._spool.seal()
        self._find_doubles()
        self.rejections.sort(key=lambda each: each[0])

    def examples(self) -> list[RatedExample]:
        """Up to EXAMPLES players, from the lowest rating to the highest."""
        return self._sample.spread(EXAMPLES)

    def players(self) -> Iterator[SeededPlayer]:
        """Yield the valid players in the order of the table, each once."""
        seen: set[str] = set()
        for i in range(len(self._spool)):
            for seeded in _decode(self._spool[i]):
                if seeded.player not in seen:
                    yield seeded
                if seeded.player in self._twice:
                    seen.add(seeded.player)

    def _converted(self, scale: seed_records.Scale) -> Iterator[RatedExample]:
        """Yield the valid rows with what becomes of them. Sigma is cut to the initial one."""
        rating = self._rating
        shift, factor = scale.to(seed_records.own_scale(rating))
        decimals, most = seed_records.decimals_of(rating), rating.initial_sigma
        for row in self._table.rows(self._reject):
            mu, sigma, is_cut = round(shift + factor * row.mu, decimals), None, False
            if row.sigma is not None and rating.takes_sigma:
                sigma = round(factor * row.sigma, decimals)
                if is_cut := sigma > most:
                    sigma = most
            if wrong := mistake_in(rating, mu, sigma, row.rounds):
                field, _, text = wrong.partition(": ")
                self._reject(row.line, Invalid("bad-seed", self._explained(row, field, text)))
                continue
            self.cut += is_cut
            yield RatedExample(row, SeededPlayer(row.player, mu, sigma, row.rounds))

    def _explained(self, row: RatedPlayer, field: str, text: str) -> str:
        """A mistake with the column, and with the value in the table if that is another one."""
        place, given = self._table.place_of(field), f"{getattr(row, field):g}"
        found, _, rest = text.partition(" ")
        if found == given or field == "rounds":
            return f"{place}: {text}"
        return f"{place}: {given}, which is {found} on the ladder's scale, {rest}"

    def _add(self, example: RatedExample) -> None:
        self.count += 1
        self._hashes.append(hash(example.seeded.player))
        self._lines.append(example.row.line)
        self._sample.add(example)
        self._pending.append(example.seeded)
        if len(self._pending) >= MOST_PLAYERS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._spool.append(_encode(self._pending))
            self._pending = []

    def _find_doubles(self) -> None:
        """Reject the rows of players who stand in an earlier row, too."""
        hashes = np.frombuffer(self._hashes, np.int64)
        ordered = np.sort(hashes)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        rows = np.flatnonzero(np.isin(hashes, repeated)) if len(repeated) else repeated
        first = dict[str, int]()
        for own in np.split(rows, np.flatnonzero(np.diff(rows // MOST_PLAYERS)) + 1):
            players = _decode(self._spool[int(own[0]) // MOST_PLAYERS]) if len(own) else []
            for row in own.tolist():
                player, line = players[row % MOST_PLAYERS].player, self._lines[row]
                if first.setdefault(player, line) != line:
                    self._twice.add(player)
                    self.count -= 1
                    text = f"player {player!r} stands in {self._table.unit} {first[player]}, too"
                    self._reject(line, Invalid("bad-id", text))


class _Sample:
    """Examples of an unknown number of players: the lowest, the highest, and every k-th one."""

    def __init__(self) -> None:
        self._kept: list[RatedExample] = []
        self._step, self._count = 1, 0
        self._ends: list[RatedExample] = []

    def add(self, example: RatedExample) -> None:
        """Add the next player."""
        if self._count % self._step == 0:
            self._kept.append(example)
            if len(self._kept) > MOST_SAMPLED:
                self._kept, self._step = self._kept[::2], 2 * self._step
        self._count += 1
        mu, (low, high) = example.seeded.mu, self._ends or (example, example)
        self._ends = [
            example if mu < low.seeded.mu else low, example if mu > high.seeded.mu else high
        ]  # fmt: skip

    def spread(self, most: int) -> list[RatedExample]:
        """Up to this many of them, spread evenly by rating."""
        every = sorted((*self._kept, *self._ends), key=lambda each: each.row.line, reverse=True)
        first = {each.seeded.player: each for each in every}  # of each player the first row
        ordered = sorted(first.values(), key=lambda each: (each.seeded.mu, each.row.line))
        places = np.linspace(0, len(ordered) - 1, min(most, len(ordered))).round().astype(int)
        return [ordered[place] for place in places.tolist()]
