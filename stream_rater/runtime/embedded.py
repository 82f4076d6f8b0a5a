"""`stream-rater demo --embedded`: the same state machines on the in-memory adapters, in one thread.

Nothing is durable here: it shows what the service does where no server can be had.
"""

import random
import time
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from stream_rater.adapters.memory import MemoryDriver, estimator_worker, updater_worker
from stream_rater.adapters.memory_servers import Log, Store
from stream_rater.config import ANY_LADDER, Ladders
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.pipeline.estimator import Estimator
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Effect, Poll
from stream_rater.pipeline.updater import Updater

LADDER = "ranked"
PLAYERS = 60
LOBBY = 8
SHARDS = 4
SEASON_START = datetime(2026, 1, 1, 18, tzinfo=UTC)


class Engine:
    """Both state machines on one log and store, taking turns.

    Their clock is virtual: a poll that finds no record takes its time-out at once, and nothing else
    takes any time. So nobody waits for what is due after a while, as the commit of offsets is.
    """

    def __init__(
        self,
        ladders: Ladders = ANY_LADDER,
        *,
        estimating: Observer | None = None,
        updating: Observer | None = None,
    ) -> None:
        self.log = Log(1, SHARDS)
        self.store = Store()
        self._now_s = 0.0
        estimator = Estimator(ladders, SHARDS, 1, observer=estimating)
        self._machines = [
            _start(estimator_worker(self.log, self.store), estimator.run()),
            _start(updater_worker(self.log, self.store), Updater(SHARDS, observer=updating).run()),
        ]
        for group, (worker, _, _) in zip(
            (self.log.estimators, self.log.updaters), self._machines, strict=True
        ):
            group.assign([worker])

    def settle(self) -> None:
        """Run until every round is rated and published."""
        while not self._idle():
            self._machines = [self._turn(*machine) for machine in self._machines]

    def _idle(self) -> bool:
        log = self.log
        return log.estimators.committed.get(0, 0) == len(log.rounds[0]) and all(
            log.updaters.committed.get(shard, 0) == len(parts)
            for shard, parts in enumerate(log.parts)
        )

    def _turn(
        self, worker: MemoryDriver, machine: "Machine", effect: Effect[Any]
    ) -> "tuple[MemoryDriver, Machine, Effect[Any]]":
        worker.now_s = self._now_s
        outcome = worker.perform(effect)
        if isinstance(effect, Poll) and not outcome.records:
            self._now_s += effect.timeout_s
        return worker, machine, machine.send(outcome)


Machine = Generator[Effect[Any], Any, Any]


def _start(worker: MemoryDriver, machine: Machine) -> tuple[MemoryDriver, Machine, Effect[Any]]:
    return worker, machine, next(machine)


def a_round(rng: random.Random, number: int, skills: Sequence[float]) -> bytes:
    """A lobby of players whose performances scatter around their true skills."""
    lobby = rng.sample(range(len(skills)), LOBBY)
    order = sorted(lobby, key=lambda i: -rng.gauss(skills[i], 250.0))
    completed = SEASON_START + timedelta(minutes=12 * number)
    return msgspec.json.encode(
        {
            "round_id": f"round-{number}",
            "ladder": LADDER,
            "completed_at": completed,
            "standings": [{"player": name(i), "rank": r} for r, i in enumerate(order, start=1)],
        }
    )


def name(index: int) -> str:
    """A player's id."""
    return f"player-{index:02}"


def play(rounds: int, console: Console, seed: int = 1) -> None:
    """Stream a season; a live leaderboard, then the figures."""
    rng = random.Random(seed)
    skills = [rng.gauss(1500.0, 300.0) for _ in range(PLAYERS)]
    engine = Engine()
    ratings: dict[str, tuple[float, int]] = {}
    began_s = time.perf_counter()
    updates = 0
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        for number in range(rounds):
            engine.log.submit(0, a_round(rng, number, skills), received_s=time.time())
            engine.settle()
            updates += _follow(engine.log, ratings)
            live.update(_leaderboard(ratings, skills, number + 1))
    took_s = time.perf_counter() - began_s
    console.print(_leaderboard(ratings, skills, rounds))
    console.print(
        f"{rounds} rounds, {updates} rating changes in {took_s:.1f} s: "
        f"{updates / took_s:,.0f} a second, one round at a time, in memory.\n"
        "Nothing was durable: `make demo` runs the same state machines on Kafka and Redis.",
        soft_wrap=True,
    )


def _follow(log: Log, ratings: dict[str, tuple[float, int]]) -> int:
    """Take the new events into a table of (rating, rounds) by player."""
    new = 0
    for events in log.changed:
        for each in events:
            event = rating_changed_from_json(each.value)
            ratings[event.player] = (event.rating, event.rounds)
            new += 1
        events.clear()
    return new


def _leaderboard(
    ratings: dict[str, tuple[float, int]], skills: Sequence[float], rounds: int
) -> Table:
    table = Table(title=f"Leaderboard after {rounds} rounds")
    for heading in ("", "player", "rating", "rounds", "true skill"):
        table.add_column(heading, justify="left" if heading == "player" else "right")
    skill = {name(i): each for i, each in enumerate(skills)}
    best = sorted(ratings.items(), key=lambda item: -item[1][0])[:10]
    for place, (player, (rating, played)) in enumerate(best, start=1):
        table.add_row(str(place), player, f"{rating:.0f}", str(played), f"{skill[player]:.0f}")
    return table
