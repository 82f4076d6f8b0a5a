"""`stream-rater demo`: a made-up season through a standalone process, by its HTTP API."""

import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from stream_rater.operations.dry_run import Move
from stream_rater.rating.systems.two_moment import BETTER
from stream_rater.runtime.child import Rater

SHAPES = {"duels": (2, 1), "teams": (2, 3), "lobbies": (8, 1)}
"""By ladder, the number of sides of a round, and of the members of a side."""
NAMES = ("ada", "bo", "cleo", "dov", "eve", "finn", "gia", "hugo", "ines", "jan", "kira", "leo")
PLAYERS = [f"{name}-{number}" for number in range(1, 6) for name in NAMES]
TIERS = (("bronze", None), ("silver", 1350), ("gold", 1500), ("diamond", 1650))
SEED = 1
CHEATER, CHEATED = "leo-2", "lobbies"  # A player of ordinary skill, and the ladder of the cheating.
CHEAT = 1200.0  # The rating points by which the cheater plays above the hidden skill.
LASTS = timedelta(days=60)  # How long the season has lasted when the demo begins.
MOST_POSTED = 500  # The most rounds in a request.
PAUSE_S = 2.0  # The pause between two rounds while somebody may look at the page.
WAIT = "wait=30"  # The seconds for which an answer may wait for the ratings.


def ladders_file() -> str:
    """The text of the ladders file: tiers on each ladder, and the usual parameters."""
    rating = ", ".join(f"{name} = {value}" for name, value in BETTER.items())
    lines = []
    for ladder in SHAPES:
        lines += [f"[ladders.{ladder}]", f'rating = {{ system = "two-moment", {rating} }}']
        for name, begins in TIERS:
            lines += [f"[[ladders.{ladder}.tiers]]", f'name = "{name}"']
            lines += [f"from = {begins}", "hysteresis = 30"] if begins else []
    return "\n".join(lines)


class Season:
    """Players with hidden skills, one of whom cheats, and the rounds of their season."""

    def __init__(self, rater: Rater) -> None:
        self.rater, self._rng, self._numbers = rater, random.Random(SEED), Counter[str]()
        self.skills = {player: self._rng.gauss(1500.0, 300.0) for player in PLAYERS}
        """The true skills, in rating points, which ratings try to find out."""
        self.rounds: list[Any] = []

    def _round(self, at: datetime) -> dict[str, Any]:
        """A round of any ladder: sides in the order of performances around their true skills."""
        ladder = self._rng.choice([*SHAPES])
        (sides, members), cheats = SHAPES[ladder], {CHEATER: CHEAT * (ladder == CHEATED)}
        lobby = self._rng.sample([*self.skills], sides * members)
        teams = [lobby[i : i + members] for i in range(0, len(lobby), members)]
        played = {p: self._rng.gauss(self.skills[p] + cheats.get(p, 0.0), 250.0) for p in lobby}
        teams.sort(key=lambda team: -sum(played[p] for p in team))
        self._numbers[ladder] += 1
        return {
            "round_id": f"{ladder}-{self._numbers[ladder]}", "ladder": ladder,
            "completed_at": at.isoformat(), "standings": [
                {"team": team, "rank": i} if members > 1 else {"player": team[0], "rank": i}
                for i, team in enumerate(teams, start=1)
            ],
        }  # fmt: skip

    def play(self, count: int) -> None:
        """Play so many rounds, the last of them now. Returns once all are rated."""
        now = datetime.now(UTC)
        moments = [now - LASTS * (1.0 - i / count) for i in range(1, count + 1)]
        self.rounds = [self._round(at) for at in moments]
        for i in range(0, count, MOST_POSTED):
            self.rater.ask("/v1/rounds", self.rounds[i : i + MOST_POSTED])
        for last in {each["ladder"]: each["round_id"] for each in self.rounds}.items():
            self.rater.ask("/v1/ladders/{}/rounds/{}?{}".format(*last, WAIT))

    def go_on(self) -> None:
        """Play a round now and then, for ever."""
        while True:
            time.sleep(PAUSE_S)
            self.rater.ask("/v1/rounds", [self._round(datetime.now(UTC))])

    def suspect(self) -> tuple[str, int, int, int]:
        """The player with the most victories on the ladder of the cheating, these, the player's
        rounds, and the most victories of anybody else."""
        standings = [each["standings"] for each in self.rounds if each["ladder"] == CHEATED]
        (player, most), (_, others) = Counter(e[0]["player"] for e in standings).most_common(2)
        rounds = sum(entry["player"] == player for each in standings for entry in each)
        return player, most, rounds, others

    def remove(self, player: str) -> list[Move]:
        """Remove a player from the ladder of the cheating, and from all rounds to come. Returns who
        moved, the removed one first, then the largest differences."""
        before = self._looked_up("")
        removal = {"event_type": "player-removed", "player": player, "reason": "cheated"}
        place = self.rater.ask(f"/v1/ladders/{CHEATED}/corrections", removal)
        after = self._looked_up(f"?min_offset={place['offset']}&{WAIT}")
        del self.skills[player]
        moves = list[Move]()
        for who, old, new in zip(PLAYERS, before, after, strict=True):
            rating = new["rating"] if new["rounds"] else None
            gain = None if rating is None else rating - old["rating"]
            if old != new:  # so there are rounds before
                counts = old["rounds"], new["rounds"]
                moves.append(Move(CHEATED, who, old["rating"], rating, gain, *counts))
        return sorted(moves, key=lambda m: (m.player != player, -abs(m.difference or 0.0)))

    def _looked_up(self, query: str) -> list[Any]:
        at = f"/v1/ladders/{CHEATED}/players:lookup{query}"
        players: list[Any] = self.rater.ask(at, {"players": PLAYERS})["players"]
        return players
