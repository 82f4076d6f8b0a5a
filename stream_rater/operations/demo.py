"""`stream-rater demo --embedded`: plays a season with a cheater in memory, without a server."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from stream_rater.config.errors import Failed
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged, rating_changed_from_json
from stream_rater.operations import compare_store, corrections
from stream_rater.operations.dry_run import Move, move
from stream_rater.replay.log_reading import LogReader
from stream_rater.runtime.engine import SHARDS, EmbeddedEngine

LADDER = "ranked"
PLAYERS = 60
LOBBY = 8
SEASON_START = datetime(2026, 1, 1, 18, tzinfo=UTC)
SEED = 1
CHEATER = 23  # The index of a player of ordinary skill who plays from the first round on.
CHEAT = 1200.0  # The rating points by which the cheater plays above the hidden skill.


class DemoSeason:
    """A season, and the state of a subscriber to its rating changes."""

    def __init__(self) -> None:
        self.engine = EmbeddedEngine()
        self.newest: dict[str, RatingChanged] = {}  # The latest rating change by player.
        self.wins = Counter[str]()
        self.updates = 0
        self._rng = random.Random(SEED)
        self.skills = [self._rng.gauss(1500.0, 300.0) for _ in range(PLAYERS)]

    def play(self, number: int) -> None:
        """Play and rate a round."""
        value = round_message(self._rng, number, self.skills)
        self.engine.log.submit(0, value, received_s=time.time())
        self.engine.settle()
        self._follow()

    def _follow(self) -> None:
        """Read the new rating changes."""
        for events in self.engine.log.changed:
            for message in events:
                event = rating_changed_from_json(message.value)
                self.newest[event.player] = event
                self.wins[event.player] += event.rank == 1
                self.updates += 1
            events.clear()

    def remove(self, player: str) -> list[Move]:
        """Remove a player, as `correct remove` does. Returns who moved, the removed one first."""
        before = dict(self.newest)
        planned = corrections.removed(LADDER, player, None, None, "cheated", batched=False)
        self.engine.log.submit(0, planned.value, planned.headers, received_s=time.time())
        self.engine.settle()
        self._follow()
        changed = [
            (old, new) for who, old in before.items() if (new := self.newest[who]) is not old
        ]
        moves = [move(old, new if new.rounds else None) for old, new in changed]
        return sorted(moves, key=lambda m: (m.player != player, -abs(m.difference or 0.0)))

    def verify(self) -> int:
        """Compare all beliefs with a replay, as `verify` does. Returns the number of beliefs."""
        log, store = self.engine.log, self.engine.store
        verdict = compare_store.compare(
            LogReader.of(lambda: log.rounds[0]), ANY_LADDER, Settings().duplicate_window, 1, SHARDS,
            lambda asked: {shard: store.read(shard, players) for shard, players in asked.items()},
        )  # fmt: skip
        if not verdict.equal:
            wrong = len(verdict.missing) + len(verdict.differing)
            raise Failed(f"{wrong:,} of {verdict.beliefs:,} ratings differ from the replay")
        return verdict.beliefs


def player_id(index: int) -> str:
    """A player's id."""
    return f"player-{index:02}"


def round_message(rng: random.Random, number: int, skills: Sequence[float]) -> bytes:
    """The JSON of a round: some players, in the order of performances that vary around their true
    skills (`skills`, in rating points)."""
    lobby = rng.sample(range(len(skills)), LOBBY)
    cheats = {CHEATER: CHEAT}
    order = sorted(lobby, key=lambda i: -rng.gauss(skills[i] + cheats.get(i, 0.0), 250.0))
    standings = [{"player": player_id(i), "rank": rank} for rank, i in enumerate(order, start=1)]
    completed = SEASON_START + timedelta(minutes=12 * number)
    round_ = {"round_id": f"round-{number}", "ladder": LADDER, "completed_at": completed}
    return msgspec.json.encode({**round_, "standings": standings})
