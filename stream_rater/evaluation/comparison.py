"""Compares configurations on the same rounds and outcomes (`shared_scores`): a row for each.

A kernel is compiled, or loaded from the cache, when it is first called with arguments of some
types. So each configuration rates a few rounds of each kind before its time is measured (`warm`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice
from time import perf_counter
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.evaluation.accuracy import averages
from stream_rater.evaluation.bootstrap import differences
from stream_rater.evaluation.evaluation import MOST_SIDES, SeasonScores, evaluate
from stream_rater.evaluation.measures import FIELDS, MEASURES, Evaluation
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.shared_scores import alike, counted
from stream_rater.rating.parameters import RatingConfig

Named = tuple[str, RatingConfig]  # The name of a configuration, and the configuration.


Progress = Callable[[str, Sequence[Session]], Iterable[Session]]
"""Takes the name of a configuration and the sessions that it rates. Returns the same sessions, and
may show progress while they are read."""


def without_progress(_: str, sessions: Sequence[Session]) -> Iterable[Session]:
    """Return the sessions and show no progress."""
    return sessions


def compare(
    file: str, sessions: Iterable[Session], configs: Sequence[Named], train: float,
    progress: Progress = without_progress, variance_factor: float = 1.0,
    most_sides: int = MOST_SIDES, *, by_display: bool = False,
) -> list[Evaluation]:  # fmt: skip
    """Evaluate each configuration on the rounds of a file, and return a row for each.

    The first `train`, a fraction of the rounds, are rated but not scored. `progress` wraps the
    sessions that each configuration rates. `variance_factor` and `most_sides` are those of a
    Contender. If `by_display`, entries are ordered by their displayed ratings, otherwise by mu.
    """
    began_s, reading_s = perf_counter(), 0.0
    alone = len(configs) == 1
    listed: Sequence[Session] | None = None if alone else list(sessions)
    if not alone:
        reading_s = perf_counter() - began_s
    outcomes: list[SeasonScores] = []
    if alone:
        peeked, sessions = _peeked(sessions)
        reading_s = perf_counter() - began_s
    for name, config in configs:
        warm(
            config, peeked if listed is None else listed, most_sides=most_sides,
            by_display=by_display,
        )  # fmt: skip
        played = sessions if listed is None else progress(name, listed)
        outcomes.append(evaluate(
            played, config, threads=True, variance_factor=variance_factor, most_sides=most_sides,
            by_display=by_display,
        ))  # fmt: skip
    outcomes = outcomes_alike(outcomes)
    rows = [
        _row(file, name, outcome, train, reading_s)
        for (name, _), outcome in zip(configs, outcomes, strict=True)
    ]
    for row, outcome in zip(rows[1:], outcomes[1:], strict=True):
        pair = outcome.scored(train), outcomes[0].scored(train)
        row.differences = differences(*pair, MEASURES)
    return rows


def samples(sessions: Sequence[Session]) -> list[Session]:
    """A few rounds of each kind: the first two, the smallest, the largest, and the one whose teams
    have the most members. There is a session for each kind."""
    if not sessions:
        return []
    found = [sessions[0].take(np.arange(min(2, len(sessions[0].rounds))))]
    for measure in (_smallest, _largest, _of_teams):
        session, at = max(
            ((each, int(np.argmax(measure(each)))) for each in sessions),
            key=lambda pair: measure(pair[0])[pair[1]],
        )
        found.append(session.take(np.array([at])))
    return found


def _smallest(session: Session) -> Ints:
    return -session.rounds.entries


def _largest(session: Session) -> Ints:
    return session.rounds.entries


def _of_teams(session: Session) -> Ints:
    return session.rounds.sizes - session.rounds.entries


def warm(
    config: RatingConfig,
    sessions: Sequence[Session],
    *,
    most_sides: int,
    by_display: bool = False,
) -> None:
    """Evaluate a few of these rounds twice, which compiles or loads all kernels."""
    some = samples(sessions)
    evaluate([*some, *some], config, most_sides=most_sides, by_display=by_display)


def _peeked(sessions: Iterable[Session]) -> tuple[list[Session], Iterable[Session]]:
    """A list of the first session, and an iterable of all sessions."""
    rest = iter(sessions)
    first = list(islice(rest, 1))
    return first, chain(first, rest)


def outcomes_alike(outcomes: Sequence[SeasonScores]) -> list[SeasonScores]:
    """The outcomes of one season by several configurations, restricted to the scores that all of
    them have (`shared_scores`)."""
    assert len({each.draws for each in outcomes}) == 1, "the same outcomes"
    found = []
    for outcome, scores in zip(outcomes, alike([each.scores for each in outcomes]), strict=True):
        decided = scores[:, FIELDS.index("decided")] > 0.0
        win_predictions = outcome.win_predictions.of(decided[outcome.win_predictions.round])
        found.append(replace(outcome, scores=scores, win_predictions=win_predictions))
    return found


def _row(file: str, name: str, outcome: SeasonScores, train: float, reading_s: float) -> Evaluation:
    scored = outcome.scored(train)
    of = counted(scored, draws=outcome.draws)
    seconds = outcome.seconds + reading_s
    measures: dict[str, Any] = averages(scored)
    return Evaluation(
        file=file,
        config=name,
        system=str(outcome.config.__struct_config__.tag),
        rounds=len(outcome.scores),
        scored_rounds=len(scored),
        rounds_scored=of.rounds,
        pairs_scored=of.pairs,
        draws_scored=of.drawn,
        draws_left_out=of.drawn_left_out,
        unfinished_left_out=of.unfinished_left_out,
        winners_scored=of.winners,
        results=int(outcome.players.sum()),
        players=int(outcome.players.sum()),
        seconds=seconds,
        rating_seconds=outcome.rating_s,
        rounds_per_second=len(outcome.scores) / seconds,
        players_per_second=float(outcome.players.sum()) / seconds,
        calibration=outcome.calibration(train),
        **measures,
    )
