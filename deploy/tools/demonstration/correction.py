"""A cheater is found: `stream-rater correct remove`, and the points of the others come back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from demonstration.figures import Event
from demonstration.programs import DemoFailed
from examples.game_backend import RANKED
from examples.matchmaking import Rating, Ratings
from stream_rater.operations.dry_run import Move

CHEATER = "leo-1"
"""The player who plays far above the hidden skill on RANKED."""

COMMAND = ("correct", "remove", RANKED, CHEATER, "--reason", "aimbot")
SHOWN_MOVES = 6
QUIET_S = 0.5
"""All events are here if none has arrived for so long after the workers have finished."""


@dataclass
class Case:
    """What a follower of `rating-changed` knows of the cheater, and what the removal did."""

    ratings: Ratings
    wins: int = 0
    rounds: int = 0
    before: Mapping[str, Rating] = field(default_factory=dict)
    """The ladder's ratings before the removal."""

    def take(self, events: Sequence[Event]) -> None:
        """Count the cheater's rounds and wins."""
        for each in events:
            if (each["ladder"], each["player"]) == (RANKED, CHEATER):
                self.rounds += 1
                self.wins += each["rank"] == 1

    def open(self) -> None:
        """Remember the ratings before the removal."""
        self.before = dict(self.ratings.ladders.get(RANKED, {}))

    def close(self) -> list[Move]:
        """Read the events of the removal and return the moves, the cheater first. DemoFailed for
        any other event, for an event that came twice, or if the cheater still has rounds."""
        seen = set[str]()
        for each in self._events():
            cause = each.get("correction", {}).get("cause")
            if cause != "player-removed" or each["event_id"] in seen or each["ladder"] != RANKED:
                raise DemoFailed(f"a rating change too many: {each['event_id']}")
            seen.add(each["event_id"])
        table = self.ratings.table(RANKED)
        if table[CHEATER].rounds:
            raise DemoFailed(f"{CHEATER} was removed and still has rounds")
        moves = [
            _moved(name, old, table[name])
            for name, old in self.before.items()
            if table[name] is not old
        ]
        return sorted(moves, key=lambda m: (m.player != CHEATER, -abs(m.difference or 0.0)))

    def _events(self) -> Iterator[Event]:
        while events := self.ratings.poll(QUIET_S):
            yield from events


def gained(moves: Sequence[Move]) -> int:
    """The number of players who got points back."""
    return sum((each.difference or 0.0) > 0.0 for each in moves)


def _moved(name: str, old: Rating, new: Rating) -> Move:
    """From one rating to another; without a round there is none."""
    after = new.shown if new.rounds else None
    difference = None if after is None else after - old.shown
    return Move(RANKED, name, old.shown, after, difference, old.rounds, new.rounds)
