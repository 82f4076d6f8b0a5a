"""Evaluates a configuration: rates a season, and scores each round by the ratings before it.

There are three stages: sessions are read, then rated, then scored. If a season is evaluated only
once, each stage has a thread. Kernels and decompression take nearly all the time, and they release
the interpreter lock.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.evaluation import accuracy, measures, winners
from stream_rater.evaluation.calibrating import ONLY_WIDTH, Calibration, Learner
from stream_rater.evaluation.measures import FIELDS
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.shared_scores import count_unrated, draws_in, rounds_before
from stream_rater.evaluation.winners import WinPredictions
from stream_rater.rating import levels
from stream_rater.rating.model import Wave
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.stages import rule_of
from stream_rater.rating.wins import Performances, of_rounds, performances_of, widened
from stream_rater.replay.files import prefetched
from stream_rater.replay.pool import Pool
from stream_rater.rounds.ragged import rows_of

NONE = np.empty(0)
MOST_SIDES = 200
"""The winner of a round with more sides is not scored by default. Scoring the winners of larger
rounds takes up to a third of the time, and shows little."""


@dataclass(frozen=True, slots=True)
class SeasonScores:
    """The results of an evaluation."""

    config: RatingConfig
    scores: Floats
    """(R, len(FIELDS)) the scores of all rounds in the order of the season, also of those that only
    build experience."""
    players: Ints  # (R,) the number of players of each round.
    rating_s: float  # Seconds spent on rating alone.
    seconds: float  # Seconds from the first session to the last score.
    win_predictions: WinPredictions
    """The predicted probability to win of each side, for all rounds whose winner is scored."""
    draws: bool = False  # Whether draws were outcomes. If not, they were left out.

    def scored(self, train: float) -> Floats:
        """The scores without those of the first floor(train R) rounds."""
        return self.scores[trained(len(self.scores), train) :]

    def calibration(self, train: float) -> list[measures.WinBin]:
        """The share of sides that won, by their probability to win, without those first rounds."""
        of = self.win_predictions
        return winners.calibration(of.of(of.round >= trained(len(self.scores), train)))


def trained(rounds: int, train: float) -> int:
    """The number of first rounds that only build experience."""
    return math.floor(train * rounds + 1e-9)  # 0.1 * 30 is 3 despite rounding


@dataclass(slots=True)
class Contender:
    """The state of one configuration during a season."""

    config: RatingConfig
    variance_factor: float = 1.0
    """The variance factor of the predictions. Ratings do not depend on it."""
    most_sides: int = MOST_SIDES
    """The most sides of a round whose winner is scored. With 0, no winner is scored."""
    draws: bool = True
    """Whether draws are outcomes, from the first session on that has one. If the configuration has
    no draw margin, each round is then scored with the width that suits the rounds before it
    (`calibrating`). With False draws are left out, and the draw margin is ignored."""
    by_display: bool = False
    """Whether entries are ordered by their displayed ratings. If not, they are ordered by mu."""
    rating_s: float = 0.0  # Seconds spent on rating so far.
    scores_draws: bool = False  # Whether the next rounds are scored over three outcomes.
    _learner: Learner | None = None
    """Learns the width of draws, if draws are outcomes and the configuration has no margin."""
    _pools: dict[str, Pool] = field(default_factory=dict)
    _played: dict[str, Ints] = field(default_factory=dict)
    """By ladder, the number of rounds of each player so far. It is only kept if the configuration
    skips rounds in which all entries tie."""

    def rate(self, sessions: Iterable[Session]) -> Iterator[tuple[Session, Ints, Wave | None]]:
        """Rate each session. Yields the session, the indices of its rounds that were rated, and the
        wave with the beliefs before these rounds, or None if no round was rated. A newcomer has the
        belief with which newcomers begin."""
        for session in sessions:
            began_s = perf_counter()
            for seed in session.seeds:
                seed.apply(self._pool(session))
            rated, indices = session.rating(skip_all_tied=self.config.skip_all_tied)
            wave = self._rate(rated) if rated is not None else None
            self.rating_s += perf_counter() - began_s
            if self.config.skip_all_tied:
                wave = self._experienced(session, indices, wave)
            yield session, indices, wave

    def _pool(self, session: Session) -> Pool:
        pool = self._pools.get(session.ladder)
        if pool is None:
            pool = self._pools[session.ladder] = Pool(self.config)
        pool.make_room(session.players)
        return pool

    def _rate(self, session: Session) -> Wave:
        pool = self._pool(session)
        return pool.rate_rows(session.rounds, session.rows, session.waves, session.numbers).wave

    def _experienced(self, session: Session, indices: Ints, wave: Wave | None) -> Wave | None:
        """The wave of a session's rounds `indices`, with the number of informative rounds that each
        player had played before, rated or not. So whether a player is experienced does not depend
        on the system."""
        before = self._played.get(session.ladder, np.empty(0, np.int64))
        before = np.append(before, np.zeros(session.players - len(before), np.int64))
        for seed, seeded in session.seeds:
            fresh = before[seeded] == 0
            before[seeded[fresh]] = seed.rounds[fresh]
        played = rounds_before(session.rows, before)
        informative = session.rounds.informative(np.zeros(len(session.rounds), bool))
        rows = session.rows[np.repeat(informative, session.rounds.sizes)]
        self._played[session.ladder] = before + np.bincount(rows, minlength=len(before))
        if wave is None:
            return None
        return wave._replace(rounds=played[rows_of(session.rounds.sizes, indices)])

    def watch(self, session: Session) -> None:
        """Record whether a session that is scored next has draws. The rounds that the system rates
        do not matter."""
        self.scores_draws = self.scores_draws or (self.draws and draws_in(session.rounds))

    def score(self, wave: Wave, number: Ints) -> tuple[Floats, WinPredictions]:
        """(R, len(FIELDS)) the scores of the rounds of a wave by the ratings before them, and the
        predicted probability to win of each side. Its round numbers are indices in the wave.
        `number` (R,) has the numbers of the rounds in the season."""
        config, rounds = self.config, len(number)
        measured, share = levels.measured(config, wave)
        sides = performances_of(
            config, wave.entry_starts, share, measured, wave.sigma, self.variance_factor
        )
        margins = self._margins(wave, number, sides)
        sigmas, noise = config.chances.times(config.variance_factor * self.variance_factor)
        pairs = accuracy.score(
            wave.round_starts, wave.place, wave.entry_starts, share, measured,
            widened(config, wave.entry_starts, wave.sigma), wave.rounds, config.initial_mu, noise,
            sigmas, self.scores_draws, margins, np.full(rounds, config.upset),
            displayed(config, wave) if self.by_display else NONE,
        )  # fmt: skip
        starts, place = wave.round_starts, wave.place
        win = of_rounds(starts, sides, self.most_sides, margins)
        won = winners.score(starts, place, win, self.scores_draws, self.most_sides)
        predictions = winners.win_predictions(starts, place, win, won[:, 0] > 0.0)
        return np.concatenate([pairs, won], axis=1), predictions

    def _margins(self, wave: Wave, number: Ints, sides: Performances) -> Floats:
        """(R,) the most by which two performances differ in a draw; 0 if draws are no outcomes."""
        if not self.scores_draws:
            return np.zeros(len(number))
        if sides.margin > 0.0:
            return np.full(len(number), sides.margin)
        if self._learner is None:
            start = Calibration(upset=self.config.upset)
            self._learner = Learner(draws=True, start=start, learned=ONLY_WIDTH)
        variance: Floats = sides.sigma**2
        found = self._learner.follow(number, wave.round_starts, wave.place, sides.mu, variance)
        return found[:, Calibration._fields.index("draw_width")]


def displayed(config: RatingConfig, wave: Wave) -> Floats:
    """(E,) the displayed rating of each entry before its round. For a team, each member's distance
    from the displayed rating of a newcomer is multiplied by the member's share, and these distances
    add up. The mu of a team is computed in the same way, with the round's scale and seats
    (`levels`)."""
    rule = rule_of(config)
    newcomer = rule.rating(config.initial_mu, config.initial_sigma)
    shown = rule.rating(wave.mu, wave.sigma)
    moved, share = levels.measured(config, wave._replace(mu=shown))
    lead = share * (moved - newcomer)
    found: Floats = newcomer + np.add.reduceat(lead, wave.entry_starts[:-1])
    return found


def evaluate(
    sessions: Iterable[Session], config: RatingConfig, *, threads: bool = False,
    variance_factor: float = 1.0, most_sides: int = MOST_SIDES, draws: bool = True,
    by_display: bool = False,
) -> SeasonScores:  # fmt: skip
    """Rate and score a season with one configuration. With `threads`, reading, rating and scoring
    have a thread each. The winners of rounds with more than `most_sides` sides are not scored.
    `variance_factor`, `draws` and `by_display` are those of a Contender."""
    began_s = perf_counter()
    contender = Contender(config, variance_factor, most_sides, draws, by_display)
    rated = contender.rate(prefetched(sessions) if threads else sessions)
    scores, empty = [np.zeros((0, len(FIELDS)))], np.empty(0, np.int64)
    players, numbers = [empty], [empty]
    predictions = [WinPredictions(empty, np.empty(0), np.empty(0, bool))]
    for session, indices, wave in prefetched(rated) if threads else rated:
        scores.append(np.zeros((len(session.rounds), len(FIELDS))))
        if len(indices) < len(session.rounds):
            count_unrated(session, indices, scores[-1])
        players.append(session.rounds.sizes)
        numbers.append(session.numbers)
        contender.watch(session)
        if wave is not None:
            scores[-1][indices], found = contender.score(wave, session.numbers[indices])
            predictions.append(found._replace(round=session.numbers[indices[found.round]]))
    number = np.concatenate(numbers)
    order = np.argsort(number, kind="stable")
    win_predictions = WinPredictions(*map(np.concatenate, zip(*predictions, strict=True)))
    return SeasonScores(
        config, np.concatenate(scores)[order], np.concatenate(players)[order], contender.rating_s,
        perf_counter() - began_s,
        win_predictions._replace(round=np.searchsorted(number[order], win_predictions.round)),
        contender.scores_draws,
    )  # fmt: skip
