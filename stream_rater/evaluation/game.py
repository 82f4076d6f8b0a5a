"""Games: seasons of rounds, as files have them or cut anew, and where their first part ends."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stream_rater.evaluation.evaluation import trained
from stream_rater.evaluation.season import Session, before, deal_teams, split

TRAIN = 0.1
SEED = 1


@dataclass(frozen=True, slots=True)
class Game:
    """A season, and where its first part ends."""

    name: str
    sessions: Sequence[Session]
    boundary: int
    """Rounds of this number and later ones are scored; those before are tuned on."""

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
    """A season as it is; and cut into rounds of each of these sizes, and into rounds of two teams
    of this size, where it has no teams and where rounds are large enough for one to make two.

    The parts of a round are on the same side of the boundary.
    """
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
