"""The names by which the columns of tables are known. docs/how-to/tables.md lists them. Case and
all that is neither a letter nor a digit are ignored: `Home Team` and `home_team` are the same. Of a
name with points, such as `standing.placement`, the last parts count, too."""

import re
from collections.abc import Sequence
from typing import Final

ROLES: Final[dict[str, tuple[str, ...]]] = {
    "ladder": ("ladder league div division mode queue playlist",),
    "round": (
        "roundid matchid gameid playid uuid setid raceid contestid eventid lobbyid fixtureid "
        "heatid",
        "round match game race contest lobby fixture heat id event tournament tournamentid",
    ),
    "time": (
        "completedat endedat finishedat playedat datetime enddatetime timestamp tstamp utcdate "
        "endtime",
        "date gameday matchdate gamedate playedon day tourneydate",
        "startedat createdat starttime",
    ),
    "weight": ("roundweight matchweight gameweight", "weight"),
    "player": (
        "player playerid playername name user userid username competitor athlete driver driverid "
        "handle entrant entrantid entrantname participant person personid personname who",
        "players members",
    ),
    "team": ("team teamid teamname squad",),
    "rank": ("rank place placement position pos finish standing",),
    "score": ("score points pts scorevalue",),
    "dnf": ("dnf didnotfinish",),
    "seat": ("seat side color colour",),
    "share": ("share timeplayed",),
    "result": ("result res outcome ftr", "score"),
    "neutral": ("neutral isneutral neutralground neutralsite neutralvenue siteneutral",),
}
"""The names of each role's columns. A later group counts only where no earlier one is there."""

GENERAL: Final = frozenset(ROLES["round"][1].split())
"""Names of ids that often mean something else, such as the stage of a tournament. They count only
as whole names, and in the wide form only if the first rows show no value twice."""

NOT_LONG: Final = frozenset({"id", "uuid"})  # No ids of rounds in the long form: a row is an entry.
NOT_WIDE: Final = frozenset({"event", "tournament", "tournamentid"})
"""Names that are no round's in the wide form, where they have many matches."""
DATES: Final = frozenset(ROLES["time"][1].split())
OF_DAY: Final = ("time", "kickoff", "kickofftime", "matchtime", "gametime")
"""The names of a time of day beside a date, and without a date the names of a time."""
TOGETHER: Final = ("tourneyid", "matchnum")  # Two columns that are a round's id together.
COLOURS: Final = ("blue", "red")  # By custom neither is first: the order of the columns decides.
PAIRS: Final = (("home", "away"), ("white", "black"), COLOURS, ("winner", "loser"),
                ("player", "opponent"))  # fmt: skip
"""The two sides of a match, the first one first."""
PAIRED: Final = tuple(side for pair in PAIRS for side in pair)
SEATS: Final = frozenset(PAIRED[:6])  # The sides that are seats.
SEASONS: Final = ("season", "year", "edition", "competitionid", "roundtypeid", "meet", "category")
"""The names of columns beside which a round's id may begin again."""

NUMBERED: Final = (
    "player", "team", "p", "side", "competitor", "entrant", "opponent", "model", "participant",
    "players", "members",
)  # fmt: skip
"""The words before or around a side's number or letter: `player1`, `player1_id`, `player_a`."""

OF_SIDE: Final = [
    *(f"{word}{more}" for word in ("", "team", "player") for more in ("", "id", "name")),
    "players", "members",
]  # fmt: skip
"""The words that may follow a side's name in the name of its players' column."""
SCORES: Final = ("score", "goals", "points", "pts")
PLACES: Final = ("place", "placement", "finish")  # Not `rank`, often that before the match.
SHORT_SCORES: Final = {"home": ("fthg", "hg"), "away": ("ftag", "ag")}
"""The short names of goals in tables of football matches."""
MOST_SIDES: Final = 100


def key_of(side: str) -> str:
    """The key of a side, from its role: `1` for `player1`, and `home` for `home`."""
    return side.removeprefix("player") or side


def plain(name: str) -> str:
    """A name without what is ignored."""
    return re.sub(r"[\W_]+", "", name.lower())


def suffixes(name: str) -> list[str]:
    """The whole name, and the last parts of a name with points, the longest first."""
    parts = [plain(part) for part in name.split(".")]
    return ["".join(parts[first:]) for first in range(len(parts))]


def matching(columns: Sequence[str], names: str) -> list[int]:
    """The places of the columns that are known by one of these names."""
    known, found = set(names.split()), []
    for place, column in enumerate(columns):
        name = next((each for each in suffixes(column) if each in _EVERY), "")
        if name in known and (name not in GENERAL or name == plain(column)):
            found.append(place)
    return found


def is_known(column: str) -> bool:
    """Whether a column has the name of any role or side."""
    own, sides = plain(column), (*PAIRED, "1", "2", "a", "b")
    return (
        any(name in _EVERY for name in suffixes(column))
        or own in (*TOGETHER, *OF_DAY) or any(own in names_of_side(side) for side in sides)
    )  # fmt: skip


_EVERY: Final = {each for groups in ROLES.values() for names in groups for each in names.split()}
NUMBERED_SIDES: Final = (tuple(map(str, range(1, MOST_SIDES + 1))), tuple("abcdefgh"))
"""The keys of numbered sides: numbers, or letters."""


def names_of_side(side: str) -> set[str]:
    """The names of the column with the players of a side."""
    if _is_number(side):
        return {
            each for word in NUMBERED for more in ("", "id", "name", "players", "members")
            for each in (f"{word}{side}{more}", f"{word}{more}{side}")
        }  # fmt: skip
    return {f"{side}{more}" for more in OF_SIDE}


def members_of(side: str) -> str:
    """A regular expression of the names of the columns with the members of a side: `red1`,
    `winner2_name`, `w_player1`, `team1_player2`. Its group `kind` is what follows the number."""
    if _is_number(side):
        stem = f"(?:team|side|pair|t){side}(?:player|member|p)"
    else:
        short = f"|{side[0]}(?:player|p)" if side in ("winner", "loser") else ""
        stem = f"(?:{side}(?:player|team|robot|p)?{short})"
    return rf"{stem}\d(?P<kind>id|name|key)?"


def names_with(words: Sequence[str], side: str) -> set[str]:
    """The names of a side's column with one of these words, such as `home_score` or `score1`."""
    stems = [f"{word}{side}" for word in NUMBERED] if _is_number(side) else [side, f"{side}team"]
    both = {name for word in words for stem in stems for name in (f"{stem}{word}", f"{word}{stem}")}
    short = SHORT_SCORES.get(side, ()) if words is SCORES else ()
    return {*both, *short, *(f"{word}{side}" for word in words)}


def _is_number(side: str) -> bool:
    return side.isdigit() or len(side) == 1
