"""How well a configuration foretells rounds: each is scored by the ratings before it.

Three stages, each taking what the one before it gives: sessions are read, then rated, and what the
rating saw is scored. A season that is played once has a thread for each: nearly all of their time
goes to kernels and to decompression, which let other threads run.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.config import Ladder
from stream_rater.lab import accuracy
from stream_rater.lab.chances import chances_of
from stream_rater.lab.measures import FIELDS
from stream_rater.lab.read_ahead import ahead
from stream_rater.lab.replay import Pool
from stream_rater.lab.season import Session
from stream_rater.rating.model import Wave
from stream_rater.rating.parameters import RatingConfig


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an evaluation found."""

    config: RatingConfig
    scores: Floats
    """(R, len(FIELDS)) of every round, those that only build experience included."""
    players: Floats
    """(R,) how many played."""
    rating_s: float
    """Time spent on rating alone."""
    seconds: float
    """From the first session asked for to the last score."""

    def scored(self, train: float) -> Floats:
        """The scores without the first floor(train R) rounds."""
        return self.scores[trained(len(self.scores), train) :]


def trained(rounds: int, train: float) -> int:
    """How many of so many rounds only build experience."""
    return math.floor(train * rounds + 1e-9)  # 0.1 of 30 is 3, whatever floats say


@dataclass(slots=True)
class Contender:
    """One configuration on its way through a season."""

    config: RatingConfig
    rating_s: float = 0.0
    _pools: dict[str, Pool] = field(default_factory=dict)

    def rate(self, sessions: Iterable[Session]) -> Iterator[tuple[Session, list[int], Wave | None]]:
        """Rate each session; gives the indices of its rounds that were, and what was known then."""
        for session in sessions:
            began_s = perf_counter()
            rated, those = session.rating(skip_all_tied=self.config.skip_all_tied)
            wave = self._rate(rated) if rated is not None else None
            self.rating_s += perf_counter() - began_s
            yield session, those, wave

    def _rate(self, session: Session) -> Wave:
        pool = self._pools.get(session.ladder)
        if pool is None:
            pool = self._pools[session.ladder] = Pool(Ladder(rating=self.config))
        pool.make_room(session.players)
        return pool.rate_rows(session.rounds, session.rows, 0)[0]

    def score(self, wave: Wave) -> Floats:
        """(R, len(FIELDS)) how the ratings before foretold the rounds of a wave."""
        gaussian, sigmas, noise = chances_of(self.config)
        found: Floats = accuracy.score(
            wave.round_starts, wave.place, wave.entry_starts, wave.share, wave.mu, wave.sigma,
            wave.rounds, self.config.initial_mu, noise, sigmas, gaussian,
        )  # fmt: skip
        return found


def evaluate(
    sessions: Iterable[Session], config: RatingConfig, *, threads: bool = False
) -> Outcome:
    """Play a season by one configuration; `threads`: one each to receive, rate and score."""
    began_s = perf_counter()
    contender = Contender(config)
    rated = ahead(contender.rate(ahead(sessions))) if threads else contender.rate(sessions)
    scores, players = [np.zeros((0, len(FIELDS)))], [0.0]
    for session, those, wave in rated:
        scores.append(np.zeros((len(session.rounds), len(FIELDS))))
        players.extend(session.rounds.sizes.tolist())
        if wave is not None:
            scores[-1][those] = contender.score(wave)
    return Outcome(
        config, np.concatenate(scores), np.array(players[1:], np.float64), contender.rating_s,
        perf_counter() - began_s,
    )  # fmt: skip
