"""Evaluates a configuration: rates a season, and scores each round by the ratings before it.

There are three stages: sessions are read, then rated, then scored. A season that is played only
once has a thread for each stage: kernels and decompression take nearly all the time, and they
release the interpreter lock.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.config import Ladder
from stream_rater.lab import accuracy, winners
from stream_rater.lab.measures import FIELDS
from stream_rater.lab.read_ahead import ahead
from stream_rater.lab.season import Session
from stream_rater.lab.winners import Foretold
from stream_rater.predictions.chances import chances_of, draw_margin_of
from stream_rater.predictions.wins import of_rounds, performances_of
from stream_rater.rating.model import Wave
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.pool import Pool

MOST_SIDES = 200
"""Sides of a round whose winner is scored, unless all are asked for: larger ones take up to a third
of the time, and say little."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of an evaluation."""

    config: RatingConfig
    scores: Floats
    """(R, len(FIELDS)) the scores of all rounds in the order of the season, including those that
    only build experience."""
    players: Ints
    """(R,) the number of players of each round."""
    rating_s: float
    """Seconds spent on rating alone."""
    seconds: float
    """Seconds from the first session to the last score."""
    foretold: Foretold
    """Each side's probability to win, of all rounds that have a score for it."""

    def scored(self, train: float) -> Floats:
        """The scores without those of the first floor(train R) rounds."""
        return self.scores[trained(len(self.scores), train) :]

    def calibration(self, train: float) -> list[winners.Bin]:
        """How often sides won, by their probability, without those first rounds."""
        return winners.calibration(self.foretold.from_round(trained(len(self.scores), train)))


def trained(rounds: int, train: float) -> int:
    """The number of first rounds that only build experience."""
    return math.floor(train * rounds + 1e-9)  # 0.1 * 30 is 3 despite rounding


@dataclass(slots=True)
class Contender:
    """The state of one configuration during a season."""

    config: RatingConfig
    variance_factor: float = 1.0
    """Of the predictions; ratings do not depend on it."""
    most_sides: int = MOST_SIDES
    """The winners of larger rounds are not scored; 0: those of no round."""
    rating_s: float = 0.0
    _pools: dict[str, Pool] = field(default_factory=dict)

    def rate(self, sessions: Iterable[Session]) -> Iterator[tuple[Session, Ints, Wave | None]]:
        """Rate each session. Yields the session, the indices of its rounds that were rated, and
        what the ratings were before, newcomers where they begin; None if no round was rated."""
        for session in sessions:
            began_s = perf_counter()
            rated, indices = session.rating(skip_all_tied=self.config.skip_all_tied)
            wave = self._rate(rated) if rated is not None else None
            self.rating_s += perf_counter() - began_s
            yield session, indices, wave

    def _rate(self, session: Session) -> Wave:
        pool = self._pools.get(session.ladder)
        if pool is None:
            pool = self._pools[session.ladder] = Pool(Ladder(rating=self.config))
        pool.make_room(session.players)
        folded = pool.rate_rows(session.rounds, session.rows, session.turns, session.numbers)
        return folded.wave

    def score(self, wave: Wave) -> tuple[Floats, Foretold]:
        """(R, len(FIELDS)) the scores of the rounds of a wave by the ratings before them, and each
        side's probability to win, with the numbers of rounds in the wave."""
        gaussian, sigmas, noise = chances_of(self.config, self.variance_factor)
        pairs = accuracy.score(
            wave.round_starts, wave.place, wave.entry_starts, wave.share, wave.mu, wave.sigma,
            wave.rounds, self.config.initial_mu, noise, sigmas, gaussian,
        )  # fmt: skip
        sides = performances_of(
            self.config, wave.entry_starts, wave.share, wave.mu, wave.sigma, self.variance_factor
        )
        draws, most = draw_margin_of(self.config) > 0.0, self.most_sides
        win = of_rounds(wave.round_starts, sides, most)
        won = winners.score(wave.round_starts, wave.place, win, draws, most)
        foretold = winners.foretold(wave.round_starts, wave.place, win, won[:, 0] > 0.0)
        return np.concatenate([pairs, won], axis=1), foretold


def evaluate(
    sessions: Iterable[Session], config: RatingConfig, *, threads: bool = False,
    variance_factor: float = 1.0, most_sides: int = MOST_SIDES,
) -> Outcome:  # fmt: skip
    """Play a season by one configuration. `threads`: read, rate and score in a thread each. The
    winners of rounds with more than `most_sides` are not scored."""
    began_s = perf_counter()
    contender = Contender(config, variance_factor, most_sides)
    rated = ahead(contender.rate(ahead(sessions))) if threads else contender.rate(sessions)
    scores, nobody = [np.zeros((0, len(FIELDS)))], np.empty(0, np.int64)
    players, numbers = [nobody], [nobody]
    told = [Foretold(nobody, np.empty(0), np.empty(0, bool))]
    for session, indices, wave in rated:
        scores.append(np.zeros((len(session.rounds), len(FIELDS))))
        players.append(session.rounds.sizes)
        numbers.append(session.numbers)
        if wave is not None:
            scores[-1][indices], found = contender.score(wave)
            told.append(found._replace(round=session.numbers[indices[found.round]]))
    number = np.concatenate(numbers)
    order = np.argsort(number, kind="stable")
    foretold = Foretold(*map(np.concatenate, zip(*told, strict=True)))
    return Outcome(
        config, np.concatenate(scores)[order], np.concatenate(players)[order], contender.rating_s,
        perf_counter() - began_s,
        foretold._replace(round=np.searchsorted(number[order], foretold.round)),
    )  # fmt: skip
