"""`stream-rater demo --embedded`: a season in memory, in one thread; then a cheater is found.

Nothing is durable here: it shows what the service does where no server can be had.
"""

import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from stream_rater.cli.corrections import removed
from stream_rater.cli.dry_run import Move, table_of
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged, rating_changed_from_json
from stream_rater.operations.verify import compare
from stream_rater.runtime.embedded import SHARDS, Engine
from stream_rater.runtime.progress import counted

LADDER = "ranked"
PLAYERS = 60
LOBBY = 8
SEASON_START = datetime(2026, 1, 1, 18, tzinfo=UTC)

SEED = 1
CHEATER = 23
"""An ordinary player by skill, who stands in the first round already."""
CHEAT = 1200.0
"""By so much a cheater plays above the hidden skill."""

SHOWN_MOVES = 6


def name(index: int) -> str:
    """A player's id."""
    return f"player-{index:02}"


def a_round(rng: random.Random, number: int, skills: Sequence[float]) -> bytes:
    """A lobby of players whose performances scatter around their true skills."""
    lobby = rng.sample(range(len(skills)), LOBBY)
    cheats = {CHEATER: CHEAT}
    order = sorted(lobby, key=lambda i: -rng.gauss(skills[i] + cheats.get(i, 0.0), 250.0))
    completed = SEASON_START + timedelta(minutes=12 * number)
    return msgspec.json.encode(
        {
            "round_id": f"round-{number}",
            "ladder": LADDER,
            "completed_at": completed,
            "standings": [{"player": name(i), "rank": r} for r, i in enumerate(order, start=1)],
        }
    )


class Season:
    """A season as it goes, and what a reader of its rating changes knows."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.newest: dict[str, RatingChanged] = {}
        """By player."""
        self.wins = Counter[str]()
        self.updates = 0
        self._rng = random.Random(SEED)
        self.skills = [self._rng.gauss(1500.0, 300.0) for _ in range(PLAYERS)]

    def play(self, number: int) -> None:
        """One more round."""
        value = a_round(self._rng, number, self.skills)
        self.engine.log.submit(0, value, received_s=time.time())
        self.engine.settle()
        self._follow()

    def _follow(self) -> None:
        """Take in the new rating changes."""
        for events in self.engine.log.changed:
            for each in events:
                event = rating_changed_from_json(each.value)
                self.newest[event.player] = event
                self.wins[event.player] += event.rank == 1
                self.updates += 1
            events.clear()

    def remove(self, player: str) -> list[Move]:
        """Take a player out of all rounds, as `stream-rater correct remove` does; who moved, the
        player first."""
        before = dict(self.newest)
        planned = removed(LADDER, player, None, None, "cheated", batched=False)
        self.engine.log.submit(0, planned.value, planned.headers, received_s=time.time())
        self.engine.settle()
        self._follow()
        moves = [
            moved(old, new) for who, old in before.items() if (new := self.newest[who]) is not old
        ]
        return sorted(moves, key=lambda m: (m.player != player, -abs(m.difference or 0.0)))

    def verify(self) -> int:
        """Compare all beliefs with the replay of the log as the correction edits it, as
        `stream-rater verify` does: how many there are. Raises Failed if one differs."""
        log, store = self.engine.log, self.engine.store
        verdict = compare(
            lambda: log.rounds[0], ANY_LADDER, Settings().duplicate_window, 1, SHARDS,
            lambda asked: {shard: store.read(shard, players) for shard, players in asked.items()},
        )  # fmt: skip
        if not verdict.equal:
            wrong = len(verdict.missing) + len(verdict.differing)
            raise Failed(f"{wrong:,} of {verdict.beliefs:,} ratings differ from the replay")
        return verdict.beliefs


def moved(old: RatingChanged, new: RatingChanged) -> Move:
    """From one rating change to another of the same player; without a round there is no rating."""
    after = new.rating if new.rounds else None
    difference = None if after is None else after - old.rating
    return Move(
        new.ladder, new.player, old.rating, after, difference, old.rounds, new.rounds
    )  # fmt: skip


def play(rounds: int, console: Console) -> None:
    """Stream a season; a live leaderboard, the figures, and the cheater."""
    season = Season()
    began_s = time.perf_counter()
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        for number in range(rounds):
            season.play(number)
            live.update(leaderboard(season, number + 1))
    took_s = time.perf_counter() - began_s
    console.print(leaderboard(season, rounds))
    console.print(
        f"{rounds} rounds, {season.updates} rating changes in {took_s:.1f} s: "
        f"{season.updates / took_s:,.0f} a second, one round at a time, in memory.\n",
        soft_wrap=True,
    )
    find_cheater(season, console)
    console.print(
        "\nNothing was durable: `make demo` runs the same state machines on Kafka and Redis.",
        soft_wrap=True,
    )


def find_cheater(season: Season, console: Console) -> None:
    """Remove the one who won too much, and show what that does."""
    cheater, wins = name(CHEATER), season.wins
    played = season.newest[cheater].rounds
    console.print(
        f"A cheater was found: {cheater} won {wins[cheater]} of {counted(played, 'round')}. "
        "Removed by the event of `correct remove`:",
        soft_wrap=True,
    )
    moves = season.remove(cheater)
    console.print(table_of(LADDER, moves[:SHOWN_MOVES]))
    gained = sum((each.difference or 0.0) > 0.0 for each in moves)
    console.print(
        f"{gained} of {len(season.newest) - 1} other players got points back. "
        f"{season.verify()} ratings compared with a replay without {cheater}: all equal, bit for "
        "bit.",
        soft_wrap=True,
    )


def leaderboard(season: Season, rounds: int) -> Table:
    """The best players so far."""
    table = Table(title=f"Leaderboard after {rounds} rounds")
    for heading in ("", "player", "rating", "rounds", "true skill"):
        table.add_column(heading, justify="left" if heading == "player" else "right")
    skill = {name(i): each for i, each in enumerate(season.skills)}
    best = sorted(season.newest.values(), key=lambda event: -event.rating)[:10]
    for place, each in enumerate(best, start=1):
        table.add_row(
            str(place), each.player, f"{each.rating:.0f}", str(each.rounds),
            f"{skill[each.player]:.0f}",
        )  # fmt: skip
    return table
