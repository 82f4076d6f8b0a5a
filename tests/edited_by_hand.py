"""Random logs with every kind of correction, and an editor of such logs that uses no code of ours.

The editor follows docs/reference/events.md. It keeps each correction as a rule, and applies all
rules to each round, seed and reset. Its result is a log without corrections: only rounds, seeds,
resets and the starts of seasons are left, each in its place."""

import calendar
import math
import random
import time
from collections.abc import Sequence
from typing import Any

Line = dict[str, Any]

PLAYERS = "abcdefgh"
SEATS = {"a": "home", "b": "home", "c": "away", "d": "gone"}
"""By player, the seat of the entries whose first player this is."""
LADDER = "l"
BEGIN_S = 1_790_000_000
HOUR_S = 3600

SYSTEMS: list[tuple[Line, Line]] = [
    ({"system": "two-moment", "seats": {"home": 90}},
     {"system": "two-moment", "beta": 400, "newcomer_field": 0.3, "initial_mu": 1400}),
    ({"system": "elo-mmr", "weight_limit": 0.2, "sigma_limit": 80},
     {"system": "elo-mmr", "weight_limit": 0.3, "sigma_limit": 60, "initial_mu": 1000,
      "seats": {"home": 50, "away": -30.5}}),
    ({"system": "elo-mmr", "weight_limit": 0.2, "sigma_limit": 80, "drift_per_day": 5.0,
      "newcomer_weights": [0.5, 0.7], "skip_all_tied": True},
     {"system": "elo-mmr", "weight_limit": 0.1, "sigma_limit": 80}),
    ({"system": "glicko", "beta": 200, "sigma_drift": 10, "newcomer_offset": -100,
      "newcomer_field": 0.5},
     {"system": "glicko", "beta": 250, "sigma_drift": 10}),
    ({"system": "trueskill", "beta": 200, "sigma_drift": 10, "draw_margin": 30},
     {"system": "trueskill", "beta": 250, "sigma_drift": 10, "draw_margin": 30}),
    ({"system": "elo", "learning_rate": 20, "seats": {"away": -40}},
     {"system": "elo", "learning_rate": 40, "initial_mu": 1200}),
]  # fmt: skip
"""Configurations, each with another one that a change may bring."""


# --- random logs ----------------------------------------------------------------------------------


def time_of(number: float) -> str:
    """When the round with this number is completed, if it is not late."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGIN_S + HOUR_S * number))


def standings(rng: random.Random) -> list[Line]:
    """Players and teams, with ties, shares, and some that did not finish; two entries or more."""
    players, found = rng.sample(PLAYERS, rng.randint(2, 7)), list[Line]()
    while players:
        size = rng.choice([1, 1, 1, 2, 3])
        team, players = players[:size], players[size:]
        entry: Line = {"player": team[0]}
        if len(team) > 1 or rng.random() < 0.2:
            entry = {"team": team}
        if len(team) > 1 and rng.random() < 0.5:
            entry["shares"] = [rng.choice([1.0, 0.5, 0.25]) for _ in team]
        entry |= {"dnf": True} if rng.random() < 0.15 else {"rank": rng.randint(1, 4)}
        entry |= {"seat": SEATS[team[0]], "score": len(found)} if team[0] in SEATS else {}
        found.append(entry)
    return found if len(found) > 1 else standings(rng)


def a_log(rng: random.Random, size: int, *, seeds: bool = False) -> list[Line]:
    """Rounds, some late or reported twice, and all kinds of corrections; if asked, also seeds."""
    lines, season = list[Line](), 0
    for number in range(size):
        choice = rng.random()
        if choice < 0.55 or number < 4:
            lines.append(_a_round(rng, number))
        elif choice < 0.58:
            lines.append(rng.choice(lines))  # once more, word for word
        elif choice < 0.62:
            season += rng.choice([0, 1, 1])
            about = {"keep": rng.choice([0.0, 0.5, 1.0]), "sigma": rng.choice([0.0, 200.0, 1e4])}
            lines.append(_a_line("season-started", season=max(season, 1), **about))
        elif choice < 0.68:
            lines.append(_a_line("corrections-applied"))
        elif seeds and choice < 0.78:
            lines.append(_a_seed(rng, number))
        else:
            batched = {"batched": True} if rng.random() < 0.3 else {}
            lines.append({**_a_correction(rng, number, size), **batched})
    return lines


def _a_line(kind: str, **about: object) -> Line:
    return {"event_type": kind, "ladder": LADDER, **about}


def _a_round(rng: random.Random, number: int) -> Line:
    line: Line = {
        "round_id": f"r{number}", "ladder": LADDER, "standings": standings(rng),
        "completed_at": time_of(number - rng.choice([0, 0, 0, 25])),
    }  # fmt: skip
    if rng.random() < 0.4:
        line["weight"] = rng.choice([0.5, 2.0, 1e-6, 900.0])
    if rng.random() < 0.15:
        line["performance_ceiling"] = 1600.0
    return line


def _a_seed(rng: random.Random, number: int) -> Line:
    """A seed of some players, or the reset of one."""
    about: Line = {"round_id": f"r{number}", "at": time_of(number - rng.choice([0, 0, 30]))}
    mu, sigma = (lambda: rng.choice([1200.0, 1333.3, 1999.9])), (lambda: rng.choice([60.1, 150.0]))
    if rng.random() < 0.3:
        if rng.random() < 0.5:
            about["mu"] = mu()
        return _a_line("player-reset", player=rng.choice(PLAYERS), sigma=sigma(), **about)
    players: list[Line] = []
    for name in rng.sample(PLAYERS, rng.randint(1, 5)):
        players.append({"player": name, "mu": mu()})
        players[-1] |= {"sigma": sigma()} if rng.random() < 0.8 else {}
        players[-1] |= {"rounds": rng.choice([3, 70])} if rng.random() < 0.5 else {}
    return _a_line("players-seeded", players=players, **about)


def _a_correction(rng: random.Random, number: int, size: int) -> Line:
    match rng.randrange(7):
        case 0 | 1:
            return _a_line("round-voided", round_id=f"r{rng.randrange(number)}")
        case 2 | 3:
            return _an_amended_round(rng, number, size)
        case 4 | 5:
            line = _a_line("player-removed", player=rng.choice(PLAYERS))
            if rng.random() < 0.75:
                line["from"] = time_of(rng.randint(-5, number + 5))
            if rng.random() < 0.5:
                line["until"] = time_of(rng.randint(0, size + 5))
            if rng.random() < 0.5:
                line["seed"] = rng.choice([True, True, False])
            return line
    return _a_line("player-merged", player=rng.choice(PLAYERS), into=rng.choice(PLAYERS))


def _an_amended_round(rng: random.Random, number: int, size: int) -> Line:
    line = _a_line("round-amended", round_id=f"r{rng.randrange(number)}", standings=standings(rng))
    if rng.random() < 0.5:
        line["completed_at"] = time_of(rng.randint(-50, size + 50))
    if rng.random() < 0.3:
        line["weight"] = rng.choice([0.25, 3.0])
    if rng.random() < 0.3:
        line["performance_ceiling"] = rng.choice([None, 1500.0])
    return line


# --- the editor -----------------------------------------------------------------------------------


def _seconds(text: str) -> int:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def _team(entry: Line) -> list[str]:
    return entry.get("team") or [entry["player"]]


def _names(line: Line) -> list[str]:
    if "standings" not in line:
        return [each["player"] for each in line.get("players", [line])]
    return [name for entry in line["standings"] for name in _team(entry)]


class Editor:
    """Reads a log line by line. `verdicts` has the code of each correction that is refused."""

    def __init__(self, takes_before: float = math.inf) -> None:
        """`takes_before`: the ladder accepts corrections at places before this one."""
        self._takes_before = takes_before
        self.verdicts: dict[int, str] = {}  # By place.
        self._reported: dict[int, Line] = {}  # By place, the rounds as they were reported.
        self._now: dict[int, Line] = {}  # By place, the rounds as amended.
        self._given: dict[int, Line] = {}  # By place, the seeds and resets.
        self._places: dict[str, int] = {}  # By round id, the first place; others are duplicates.
        self._voided: set[int] = set()
        self._merged_or_out: list[tuple[str, str, tuple[int, int], bool]] = []
        """Rules: a player, who has their entries from then on (empty: nobody), the span of time in
        which entries are out, and whether seeds and resets are meant, too."""
        self._season = 0
        self._seasons: dict[int, Line] = {}
        self._waiting: list[tuple[int, Line]] = []

    def feed(self, place: int, line: Line) -> None:
        kind = line.get("event_type", "")
        if kind in ("", "players-seeded", "player-reset"):
            if kind and place >= self._takes_before:
                return  # rejected: not even its id counts as used
            if line["round_id"] not in self._places:
                self._places[line["round_id"]] = place
                if kind:
                    self._given[place] = line
                else:
                    self._now[place] = self._reported[place] = line
        elif code := _malformed(kind, line):
            self.verdicts[place] = code
        elif place >= self._takes_before:
            self.verdicts[place] = "corrections-refused"
        elif line.get("batched"):
            self._waiting.append((place, line))
        else:
            together = [(place, line)]
            if kind == "corrections-applied":
                together, self._waiting = self._waiting, []
            for where, each in together:
                if code := self._correct(where, each):
                    self.verdicts[where] = code

    def _correct(self, place: int, line: Line) -> str:
        """The code of a correction that is refused; empty if it is accepted."""
        match line["event_type"]:
            case "round-voided" | "round-amended":
                return self._correct_round(line)
            case "season-started":
                if line["season"] <= self._season:
                    return "bad-season"
                self._season, self._seasons[place] = line["season"], line
            case "player-removed":
                seeds = line.get("seed", False)
                given = self._is_given(line["player"]) if seeds else set()
                if not self._stands_in(line["player"]) | given:
                    return "unknown-player"
                self._merged_or_out.append((line["player"], "", _span(line), seeds))
            case _:
                own, other = self._stands_in(line["player"]), self._stands_in(line["into"])
                if not own | self._is_given(line["player"]):
                    return "unknown-player"
                if not other | self._is_given(line["into"]):
                    return "unknown-player"
                if own & other:
                    return "bad-merge"
                self._merged_or_out.append((line["player"], line["into"], (0, 0), False))
        return ""

    def _correct_round(self, line: Line) -> str:
        place = self._places.get(line["round_id"])
        if place is None:
            return "unknown-round"
        if line["event_type"] == "round-voided":
            if place in self._voided:
                return "already-voided"
            self._voided.add(place)
            return ""
        if place in self._given:
            return "bad-amend"
        self._voided.discard(place)
        fields = ("standings", "completed_at", "weight", "performance_ceiling")
        given = {name: line[name] for name in fields if name in line}
        self._now[place] = {**self._reported[place], **given}
        return ""

    def _stands_in(self, player: str) -> set[int]:
        """The places of the rounds that count and in which the player now has an entry."""
        return {
            place
            for place, line in self._now.items()
            if place not in self._voided and player in _names(self._edited(line))
        }

    def _is_given(self, player: str) -> set[int]:
        """The places of the seeds and resets that count and now have the player."""
        return {
            place
            for place, line in self._given.items()
            if place not in self._voided and player in self._owners(line).values()
        }

    def _owner(self, name: str, line: Line) -> str:
        """The player who owns the entries of a name in a round or seed; empty if removed."""
        out, is_round = False, "standings" in line
        time_s = _seconds(line["completed_at"] if is_round else line["at"])
        for player, into, (since, until), seeds in self._merged_or_out:
            if name == player and into:
                name = into
            elif name == player and (is_round or seeds):
                out = out or since <= time_s < until
        return "" if out else name

    def _owners(self, line: Line) -> dict[str, str]:
        """By name, the player who owns its entry; empty if removed."""
        names = _names(line)
        owners = {name: self._owner(name, line) for name in names}
        for player in {*owners.values()} - {""}:  # one entry of each stays
            same = sorted(name for name in names if owners[name] == player)
            stays = player if player in same else same[0]
            owners |= {name: "" for name in same if name != stays}
        return owners

    def _given_now(self, line: Line) -> Line | None:
        """A seed or a reset with the players who own it now; None if nobody is left."""
        owners = self._owners(line)
        if "player" in line:
            return {**line, "player": owners[line["player"]]} if owners[line["player"]] else None
        rows = [{**row, "player": owners[row["player"]]} for row in line["players"]]
        left = [row for row in rows if row["player"]]
        return {**line, "players": left} if left else None

    def _edited(self, line: Line) -> Line:
        owners = self._owners(line)
        left = []
        for entry in line["standings"]:
            shares = entry.get("shares") or [1.0] * len(_team(entry))
            both = zip(_team(entry), shares, strict=True)
            members = [(owners[name], share) for name, share in both if owners[name]]
            if members:
                how = {"dnf": True} if entry.get("dnf") else {"rank": entry["rank"]}
                how |= {name: entry[name] for name in ("seat", "score") if name in entry}
                team, parts = zip(*members, strict=True)
                left.append({"team": list(team), "shares": list(parts), **how})
        return {**line, "standings": left}

    def edited(self, size: int) -> list[Line | None]:
        """The log of so many lines without corrections; None where nothing is left."""
        found: list[Line | None] = [self._seasons.get(place) for place in range(size)]
        for place, line in self._now.items():
            now = self._edited(line)
            if place not in self._voided and len(now["standings"]) > 1:
                found[place] = now
        for place, line in self._given.items():
            if place not in self._voided:
                found[place] = self._given_now(line)
        return found


def _malformed(kind: str, line: Line) -> str:
    """The code of a correction that is refused whatever the log holds."""
    if kind == "player-merged" and line["player"] == line["into"]:
        return "bad-merge"
    if kind == "player-removed":
        since, until = _span(line)
        return "bad-time" if since >= until else ""
    return ""


def _span(line: Line) -> tuple[int, int]:
    since = _seconds(line["from"]) if "from" in line else -(10**18)
    return since, _seconds(line["until"]) if "until" in line else 10**18


def edited(
    log: Sequence[Line], takes_before: float = math.inf
) -> tuple[list[Line | None], dict[int, str]]:
    """The log without corrections, and by place the codes of those that are refused. The ladder
    accepts corrections at places before `takes_before`."""
    editor = Editor(takes_before)
    for place, line in enumerate(log):
        editor.feed(place, line)
    return editor.edited(len(log)), editor.verdicts
