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
from stream_rater.columns.ranges import bounds, spread
from stream_rater.config.ladders import Ladder
from stream_rater.evaluation import accuracy, winners
from stream_rater.evaluation.alike import count_unrated, rounds_before
from stream_rater.evaluation.measures import FIELDS
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.winners import Foretold
from stream_rater.rating.model import Wave
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.prediction.wins import of_rounds, performances_of
from stream_rater.rating.stages import rule_of
from stream_rater.replay.pool import Pool
from stream_rater.replay.read_ahead import ahead

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
    draws: bool = False
    """Whether draws were outcomes; else they were left out."""

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
    draws: bool | None = None
    """Whether draws are outcomes, of which the configuration says how likely they are; else they
    are left out, and the draw margin plays no part. None: wherever the configuration does."""
    shown: bool = False
    """Whether entries are in order of their displayed ratings; else in that of mu."""
    rating_s: float = 0.0
    _pools: dict[str, Pool] = field(default_factory=dict)
    _played: dict[str, Ints] = field(default_factory=dict)
    """By ladder, the rounds of each player so far; only where some of them are not rated."""

    @property
    def margin(self) -> float:
        """By how much performances of a draw may differ; 0 where draws are no outcomes."""
        return 0.0 if self.draws is False else self.config.draw_width

    def rate(self, sessions: Iterable[Session]) -> Iterator[tuple[Session, Ints, Wave | None]]:
        """Rate each session. Yields the session, the indices of its rounds that were rated, and
        what the ratings were before, newcomers where they begin; None if no round was rated."""
        for session in sessions:
            began_s = perf_counter()
            rated, indices = session.rating(skip_all_tied=self.config.skip_all_tied)
            wave = self._rate(rated) if rated is not None else None
            self.rating_s += perf_counter() - began_s
            if self.config.skip_all_tied:
                wave = self._experienced(session, indices, wave)
            yield session, indices, wave

    def _rate(self, session: Session) -> Wave:
        pool = self._pools.get(session.ladder)
        if pool is None:
            pool = self._pools[session.ladder] = Pool(Ladder(rating=self.config))
        pool.make_room(session.players)
        folded = pool.rate_rows(session.rounds, session.rows, session.waves, session.numbers)
        return folded.wave

    def _experienced(self, session: Session, indices: Ints, wave: Wave | None) -> Wave | None:
        """The wave of a session's rounds `indices`, with the rounds that each player had played
        before, be they rated or not: so who is experienced does not depend on the system."""
        before = self._played.get(session.ladder, np.empty(0, np.int64))
        before = np.append(before, np.zeros(session.players - len(before), np.int64))
        self._played[session.ladder], starts = before, bounds(session.rounds.sizes)
        played = rounds_before(session.rows, before)
        taught = session.rounds.informative(np.zeros(len(session.rounds), bool))
        rows = session.rows[np.repeat(taught, session.rounds.sizes)]
        self._played[session.ladder] = before + np.bincount(rows, minlength=len(before))
        if wave is None:
            return None
        return wave._replace(rounds=played[spread(starts[indices], session.rounds.sizes[indices])])

    def score(self, wave: Wave) -> tuple[Floats, Foretold]:
        """(R, len(FIELDS)) the scores of the rounds of a wave by the ratings before them, and each
        side's probability to win, with the numbers of rounds in the wave."""
        gaussian, sigmas, noise = self.config.chances.times(self.variance_factor)
        pairs = accuracy.score(
            wave.round_starts, wave.place, wave.entry_starts, wave.share, wave.mu, wave.sigma,
            wave.rounds, self.config.initial_mu, noise, sigmas, gaussian, self.margin,
            displayed(self.config, wave) if self.shown else np.empty(0),
        )  # fmt: skip
        sides = performances_of(
            self.config, wave.entry_starts, wave.share, wave.mu, wave.sigma, self.variance_factor
        )
        most = self.most_sides
        win = of_rounds(wave.round_starts, sides._replace(margin=self.margin), most)
        won = winners.score(wave.round_starts, wave.place, win, self.margin > 0.0, most)
        foretold = winners.foretold(wave.round_starts, wave.place, win, won[:, 0] > 0.0)
        return np.concatenate([pairs, won], axis=1), foretold


def displayed(config: RatingConfig, wave: Wave) -> Floats:
    """(E,) what is shown of each entry before its round. Of a team the members' distances from what
    is shown of a newcomer add up, each by the member's share, as those of mu do."""
    rule = rule_of(config)
    newcomer = rule.rating(config.initial_mu, config.initial_sigma)
    ahead = wave.share * (rule.rating(wave.mu, wave.sigma) - newcomer)
    found: Floats = newcomer + np.add.reduceat(ahead, wave.entry_starts[:-1])
    return found


def evaluate(
    sessions: Iterable[Session], config: RatingConfig, *, threads: bool = False,
    variance_factor: float = 1.0, most_sides: int = MOST_SIDES, draws: bool | None = None,
    shown: bool = False,
) -> Outcome:  # fmt: skip
    """Play a season by one configuration. `threads`: read, rate and score in a thread each. The
    winners of rounds with more than `most_sides` are not scored. `draws` and `shown` are those of
    a Contender."""
    began_s = perf_counter()
    contender = Contender(config, variance_factor, most_sides, draws, shown)
    rated = ahead(contender.rate(ahead(sessions))) if threads else contender.rate(sessions)
    scores, nobody = [np.zeros((0, len(FIELDS)))], np.empty(0, np.int64)
    players, numbers = [nobody], [nobody]
    told = [Foretold(nobody, np.empty(0), np.empty(0, bool))]
    for session, indices, wave in rated:
        scores.append(np.zeros((len(session.rounds), len(FIELDS))))
        if len(indices) < len(session.rounds):
            count_unrated(session, indices, scores[-1])
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
        contender.margin > 0.0,
    )  # fmt: skip
