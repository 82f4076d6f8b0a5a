"""Finds which column of a table has which role, by the columns' names and what the caller says.
There are two forms: long, a row an entry, and wide, a row a match. A role that several columns may
have is a question to the caller, never a guess."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Final, NamedTuple, NoReturn

from stream_rater.config.errors import BadConfiguration
from stream_rater.tables import doubts, names, times
from stream_rater.tables.names import PAIRS, PLACES, ROLES, SCORES, SEATS, TOGETHER, plain
from stream_rater.tables.reading import Reading

SHOWN_UNUSED: Final = 6  # The most columns without a role that a description names.

Places = tuple[int, ...]

LONG_ROLES: Final = ("player", "team", "rank", "score", "dnf", "seat", "share")
COMMON_ROLES: Final = ("ladder", "round", "time", "weight", "status")
WIDE_ROLES: Final = ("result", "neutral")
NUMBERED_ROLES: Final = tuple(f"player{key}" for keys in names.NUMBERED_SIDES for key in keys)
JOINED: Final = ("ladder", "round", "time", "player", "team", "seat", "status")
"""The roles that several columns may have together, beside sides, whose columns are members."""


class SideColumns(NamedTuple):
    """A side of a row in the wide form: the places of its columns, -1 where there is none."""

    role: str
    players: Places  # The column of its player or team, or those of its members.
    score: int = -1
    rank: int = -1

    @property
    def seat(self) -> str | None:
        return self.role if self.role in SEATS else None


@dataclass
class Layout:
    """The columns of a table by their roles."""

    name: str
    columns: Sequence[str]
    roles: dict[str, Places] = field(default_factory=dict)
    """The places of the columns of each role. A role of several columns joins them."""
    sides: list[SideColumns] = field(default_factory=list)
    """The sides of a row; empty in the long form."""
    unit: str = "line"  # What the numbers of rows count: `line` or `row`.
    time_format: str = ""
    general: set[str] = field(default_factory=set)
    """The roles whose columns were found by names that may mean something else."""
    skip: list[tuple[int, str]] = field(default_factory=list)
    """The rows that are left out: the place of a column and its text in lower case."""
    share_of: float = 1.0  # By what the shares of members are divided.
    has_members: bool = False  # Whether the columns of `player` are the members of a team.

    @property
    def is_wide(self) -> bool:
        """Whether a row is a match."""
        return bool(self.sides)

    def column(self, role: str) -> str:
        """The name of a role's column, as messages show it."""
        return "+".join(self.columns[place] for place in self.roles[role])

    def described(self) -> str:
        """What was found, on one line."""
        sides = {each.role for each in self.sides} | ({"player"} if self.has_members else set())
        found = [
            f"{role} = {self.column(role)}"
            + (f" ({len(places)} players)" if role in sides and len(places) > 1 else "")
            for role, places in self.roles.items() if role != "status"
        ]  # fmt: skip
        used = {i for role, places in self.roles.items() if role != "status" for i in places}
        form = "a row a match" if self.is_wide else "a row an entry"
        timeless = "" if "time" in self.roles else "; no times"
        return f"{self.name}: {form}: {', '.join(found)}{timeless}{unused(self.columns, used)}"


def layout_of(name: str, columns: Sequence[str], reading: Reading) -> Layout:
    """The roles of the columns. Raises BadConfiguration with a question, or what is missing."""
    found = _Finder(name, columns, reading)
    found.take_given()
    found.find_sides()
    for role in (*COMMON_ROLES[:-1], *(WIDE_ROLES if found.layout.sides else LONG_ROLES), "status"):
        found.find(role)
    found.check()
    return found.layout


class Finder:
    """Finds columns of a table by their names."""

    def __init__(self, name: str, columns: Sequence[str], reading: Reading) -> None:
        self._name, self._columns, self._reading = name, columns, reading
        self._plain = [plain(each) for each in columns]

    def _place(self, column: str) -> int:
        exact = [i for i, each in enumerate(self._columns) if each == column]
        found = exact or [i for i, each in enumerate(self._plain) if each == plain(column)]
        if not found:
            near = difflib.get_close_matches(column, self._columns, 1, 0.5)
            hint = f"; the nearest name is {near[0]!r}" if near else ""
            self._fail(f"no column {column!r}{hint}")
        if len(found) > 1:
            self._twice(found)
        return found[0]

    def _ask(self, role: str, places: Sequence[int]) -> None:
        """Fail if several columns may have a role."""
        listed = [self._columns[place] for place in places]
        if len(listed) < 2:
            return
        if len(set(listed)) < len(listed):
            self._twice(places)
        cure = self._reading.by_columns({role: listed[0]})
        self._fail(f"{role} may be {' or '.join(listed)}: say which, as {cure}")

    def _twice(self, places: Sequence[int]) -> NoReturn:
        first, second = places[:2]
        self._fail(
            f"two columns have the name {self._columns[first]!r}, columns {first + 1} and "
            f"{second + 1}: give each a name of its own"
        )

    def _fail(self, text: str) -> NoReturn:
        raise BadConfiguration(f"{self._name}: {text}")


def unused(columns: Sequence[str], used: Iterable[int]) -> str:
    """The columns that are not used, as the end of a description."""
    names = [each for place, each in enumerate(columns) if place not in set(used) and each]
    more = len(names) - SHOWN_UNUSED
    listed = ", ".join(names[:SHOWN_UNUSED]) + (f" and {more} more" if more > 0 else "")
    return f"; not used: {listed}" if names else ""


class _Finder(Finder):
    """Finds the roles of one table."""

    def __init__(self, name: str, columns: Sequence[str], reading: Reading) -> None:
        super().__init__(name, columns, reading)
        self.layout = Layout(name, columns)
        self._given: dict[str, Places] = {}
        self._without: set[str] = set()
        """The roles that the caller leaves without a column."""

    def take_given(self) -> None:
        """Take the columns that the caller names."""
        known = {plain(each): each for each in _all_roles()}
        for given, column in self._reading.columns.items():
            role = known.get(plain(given))
            if role is None:
                roles = ", ".join((*COMMON_ROLES, *LONG_ROLES))
                self._fail(
                    f"{given!r} is no role of a column: the roles are {roles}, and for a row a "
                    "match player1, player2, …, home, away, winner, loser, score1, home_score, …, "
                    "result"
                )
            if not column:
                self._without.add(role)
            else:
                self._given[role] = self._places(role, column)
        self.layout.skip = [(self._place(name), text.lower()) for name, text in self._reading.skip]
        if self._reading.neutral:
            self._given["neutral"] = self._places("neutral", self._reading.neutral)
        teams = [self._places("player1", each) for each in self._reading.team]
        if len(teams) == 1:
            role = "player" if len(teams[0]) > 1 else "team"
            self._given[role], self.layout.has_members = teams[0], len(teams[0]) > 1
        else:
            self._given.update({f"player{i}": each for i, each in enumerate(teams, 1)})

    def _places(self, role: str, column: str) -> Places:
        if column not in self._columns and role == "time":
            column, colon, form = column.rpartition(":")
            if colon and form not in times.FORMATS:
                self._fail(f"{form!r} is no form of a time: give {', '.join(times.FORMATS)}")
            column, self.layout.time_format = (column, form) if colon else (form, "")
        if role == "share" and column not in self._columns and ":" in column:
            column, _, most = column.rpartition(":")
            if not most.isdecimal() or not int(most):
                self._fail(f"{most!r} is no number by which shares are divided")
            self.layout.share_of = float(most)
        parts = [column] if column in self._columns else map(str.strip, column.split("+"))
        places = tuple(map(self._place, parts))
        if len(places) > 1 and role not in (*JOINED, *names.PAIRED, *NUMBERED_ROLES):
            self._fail(f"{role} has one column, and {column} are {len(places)}")
        return places

    def find_sides(self) -> None:
        """Find the sides of the wide form, if the columns have them."""
        keys = _side_roles(self._given)
        if keys:
            if len(keys) < 2:
                self._fail(f"one side only, {keys[0]}: name the column of the other one, too")
            chosen = keys
        elif "player" in self._given or "team" in self._given:
            return
        else:
            every = (*PAIRS, *names.NUMBERED_SIDES)
            systems = [sides for keys in every if (sides := self._present(keys))]
            if not systems:
                return
            if len(systems) > 1:
                listed = " or ".join(" and ".join(each) for each in systems)
                cure = self._reading.by_columns(
                    {side: self._named(self._candidates(side)[0]) for side in systems[0]}
                )
                self._fail(f"the sides of a match may be {listed}: say which, as {cure}")
            chosen = systems[0]
        self._ask_players(chosen)
        if set(chosen) == set(names.COLOURS):
            firsts = {side: self._given.get(side) or self._candidates(side)[0] for side in chosen}
            chosen = sorted(chosen, key=lambda side: firsts[side])
        for side in chosen:
            self._add_side(side)

    def _candidates(self, side: str) -> list[Places]:
        """The columns that may name a side's players: one that names all, or those of members."""
        known = names.names_of_side(names.key_of(side))
        if side in ("player", "opponent"):
            known = {f"{side}{more}" for more in ("", "id", "name")}
        if whole := [(place,) for place, each in enumerate(self._plain) if each in known]:
            return [*whole]
        members = re.compile(names.members_of(names.key_of(side)))
        kinds: dict[str, Places] = {}
        for place, column in enumerate(self._plain):
            if member := members.fullmatch(column):
                kind = member["kind"] or ""
                kinds[kind] = (*kinds.get(kind, ()), place)
        return [places for places in kinds.values() if len(places) > 1]

    def _named(self, places: Places) -> str:
        return "+".join(self._columns[place] for place in places)

    def _present(self, keys: Sequence[str]) -> list[str]:
        """The sides of a system that have columns; none if there are fewer than two."""
        sides = [
            f"player{key}" if len(key) == 1 or key.isdigit() else key
            for key in takewhile(self._candidates, keys)
        ]
        return sides if len(sides) > 1 else []

    def _ask_players(self, sides: Sequence[str]) -> None:
        choices = {side: self._candidates(side) for side in sides if side not in self._given}
        open_ = next((side for side, columns in choices.items() if len(columns) > 1), None)
        if open_ is None:
            return
        options = [
            {
                side: self._named(columns[min(i, len(columns) - 1)])
                for side, columns in choices.items()
            }
            for i in range(len(choices[open_]))
        ]
        listed = " or ".join(map(self._named, choices[open_]))
        cures = " or ".join(map(self._reading.by_columns, options))
        self._fail(f"{open_} may be {listed}: say which, as {cures}")

    def _add_side(self, side: str) -> None:
        layout = self.layout
        players = self._given.get(side) or self._candidates(side)[0]
        layout.roles[side] = players
        others = []
        for word, words in (("score", SCORES), ("rank", PLACES)):
            role = _role_of(side, word)
            places = self._given.get(role, ())
            if not places and role not in self._without:
                places = self._named_one(*names.names_with(words, names.key_of(side)))
                self._ask(role, places)
            if places:
                layout.roles[role] = places[:1]
            others.append(places[0] if places else -1)
        layout.sides.append(SideColumns(side, players, *others))

    def find(self, role: str) -> None:
        places = self._given.get(role, ())
        if places and role == "result" and len(self.layout.sides) > 2:
            self._fail("a result is of two sides: name the places, as rank1, rank2, …")
        if not places and role not in self._without:
            places = self._found(role)
        if places:
            self.layout.roles[role] = places

    def _found(self, role: str) -> Places:
        taken = {*chain(*self.layout.roles.values(), *self._given.values())}
        together = [i for name in TOGETHER for i in self._named_one(name)]
        if role == "round" and len(together) == len(TOGETHER):
            return tuple(together)
        if role == "status":
            return tuple(i for i in self._named_one(*doubts.STATUSES) if i not in taken)
        sides = self.layout.sides
        if role == "result":
            if sides[0].role == "winner" or len(sides) > 2:
                return ()
            winner = self._named_one(*names.names_of_side("winner"))
            self._ask(role, winner)
            if winner:  # it names the winner of a match whose sides have other columns
                return winner
        for number, group in enumerate(ROLES[role]):
            if role == "round":
                never = names.NOT_WIDE if sides else names.NOT_LONG
                group = " ".join(set(group.split()) - never)
            if role == "result" and number and all(side.score >= 0 for side in sides):
                return ()
            places = [i for i in names.matching(self._columns, group) if i not in taken]
            self._ask(role, places)
            if places:
                if number and role in ("round", "weight"):
                    self.layout.general.add(role)
                begins_again = number or self._plain[places[0]] == "eventid"
                if begins_again and role == "round" and not sides:
                    self._ask_season(places[0])
                return self._with_time_of_day(places[0]) if role == "time" else (places[0],)
        return self._named_one("time")[:1] if role == "time" else ()

    def _ask_season(self, place: int) -> None:
        if seasons := [each for each in self._columns if plain(each) in names.SEASONS]:
            alone, every = self._columns[place], "+".join((*seasons, self._columns[place]))
            cures = " or ".join(self._reading.by_columns({"round": it}) for it in (every, alone))
            self._fail(f"does {alone} begin again in each {' and '.join(seasons)}? Say {cures}")

    def _named_one(self, *known: str) -> Places:
        return tuple(i for i, each in enumerate(self._plain) if each in known)

    def _with_time_of_day(self, date: int) -> Places:
        of_day = self._named_one(*names.OF_DAY)
        if self._plain[date] not in names.DATES or not of_day:
            return (date,)
        self._ask("time", of_day)
        both = f"{self._columns[date]}+{self._columns[of_day[0]]}"
        if not self.layout.sides:  # it may be how long somebody took
            alone = self._columns[date]
            cures = " or ".join(self._reading.by_columns({"time": it}) for it in (alone, both))
            self._fail(f"the time of a round may be {alone}, or {both}: say which, as {cures}")
        return date, of_day[0]

    def check(self) -> None:
        """Fail if the columns do not say who played, and who won."""
        layout, reading = self.layout, self._reading
        for role in self._given:
            if role not in layout.roles:
                form = "a match" if layout.sides else "an entry"
                self._fail(f"{role} is no role where a row is {form}")
        if layout.sides:
            named = layout.sides[0].role == "winner" or "result" in layout.roles
            sides = layout.sides
            scored = all(each.score >= 0 for each in sides)
            ranked = all(each.rank >= 0 for each in sides)
            if not scored and not ranked and not (named and len(sides) == 2):
                result = f"name one, as {reading.by_columns({'result': 'COLUMN'})}, or "
                wanted = [_role_of(side.role, "score") for side in sides[:3]]
                self._fail(
                    f"no column says who won: {result if len(sides) == 2 else 'name '}the scores, "
                    f"as {reading.by_columns(dict.fromkeys(wanted, 'COLUMN'))}"
                )
            return
        if "player" not in layout.roles and "team" in layout.roles:
            layout.roles["player"] = layout.roles.pop("team")
        missing = [each for each in ("round", "player") if each not in layout.roles]
        if missing:
            cure = reading.by_columns(dict.fromkeys(missing, "COLUMN"))
            both = "" if len(missing) == 1 else (
                ", or of a match with all its players in one row as "
                + reading.by_columns({"player1": "COLUMN", "player2": "COLUMN"})
            )  # fmt: skip
            self._fail(
                f"no column is known as {' or '.join(missing)} (there are "
                f"{', '.join(self._columns[:8])}): name it, as {cure}{both}"
            )
        if "rank" not in layout.roles and "score" not in layout.roles:
            self._fail(
                "no column says who won: name one, as "
                f"{reading.by_columns({'rank': 'COLUMN'})} or "
                f"{reading.by_columns({'score': 'COLUMN'})}"
            )
        if "rank" not in layout.roles and not reading.score:
            self._fail(
                f"which {layout.column('score')} is better, a high or a low one? Say "
                f"{reading.by_score}"
            )


def _all_roles() -> Iterable[str]:
    yield from (*COMMON_ROLES, *LONG_ROLES, *WIDE_ROLES)
    for side in (*names.PAIRED, *NUMBERED_ROLES):
        if side != "player":
            yield from (side, _role_of(side, "score"), _role_of(side, "rank"))


def _side_roles(given: Mapping[str, Places]) -> list[str]:
    """The sides that the caller names, in order."""
    paired = [side for side in names.PAIRED if side in given]
    numbered = [side for side in NUMBERED_ROLES if side in given]
    return paired if len(paired) > 1 or (paired and paired != ["player"]) else numbered


def _role_of(side: str, word: str) -> str:
    key = names.key_of(side)
    return f"{word}{key}" if side != key else f"{side}_{word}"
