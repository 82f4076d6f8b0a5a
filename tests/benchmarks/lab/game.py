"""Games: seasons of rounds, unchanged or cut into other rounds, and the end of the first part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stream_rater.evaluation.evaluation import trained
from stream_rater.evaluation.season import Session, before, split
from tests.benchmarks.lab.dealt import deal_teams

TRAIN = 0.1
SEED = 1


@dataclass(frozen=True, slots=True)
class Game:
    """A season, and the end of its first part."""

    name: str
    sessions: Sequence[Session]
    boundary: int
    """The number of the first round that is scored. Systems are tuned on the rounds before it."""

    @property
    def first(self) -> list[Session]:
        """The rounds to tune on."""
        return before(self.sessions, self.boundary)

    def sizes(self) -> list[int]:
        """The number of sides of each round."""
        return [int(each) for session in self.sessions for each in session.rounds.entries]


def games_of(
    name: str, sessions: Sequence[Session], cut: Sequence[int] = (), teams: int | None = None
) -> Iterator[Game]:
    """The season unchanged, cut into rounds of each size in `cut`, and dealt into two teams of
    `teams`. A season with teams is neither; nor is one without a round large enough for two such
    rounds. Parts of a round stay on one side of the boundary."""
    boundary = trained(sum(len(each.rounds) for each in sessions), TRAIN)
    yield Game(name, sessions, boundary)
    if any(len(each.rounds.place) != len(each.rounds.share) for each in sessions):
        return
    largest = max((int(each.rounds.entries.max()) for each in sessions), default=0)
    for size in cut:
        if 2 * size <= largest:
            rng = np.random.default_rng(SEED)
            yield Game(f"{name}, {size}", [split(each, size, rng) for each in sessions], boundary)
    if teams is not None and 4 * teams <= largest:
        rng = np.random.default_rng(SEED)
        dealt = [deal_teams(each, teams, rng) for each in sessions]
        yield Game(f"{name}, {teams} against {teams}", dealt, boundary)
