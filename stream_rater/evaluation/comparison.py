"""Compares configurations on the same rounds and outcomes (`shared_scores`). Each gets a row of
measures.

A kernel is compiled, or loaded from the cache, when it is first called with arguments of some
types. So each configuration rates a few rounds of each kind before its time is measured
(`warm`)."""

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
from stream_rater.rounds.batch import RoundBatch

Named = tuple[str, RatingConfig]  # The name of a configuration, and the configuration.

Progress = Callable[[str, Sequence[Session]], Iterable[Session]]
"""Takes a configuration's name and its sessions. Returns the sessions, and may show progress."""


def compare(
    file: str, sessions: Iterable[Session], configs: Sequence[Named], train: float,
    progress: Progress = lambda _, sessions: sessions, variance_factor: float = 1.0,
    most_sides: int = MOST_SIDES, *, by_display: bool = False,
) -> list[Evaluation]:  # fmt: skip
    """Evaluate each configuration on the rounds of a file, and return a row for each. The first
    `train`, a fraction of the rounds, are rated but not scored. `progress` wraps the sessions that
    each configuration rates. `variance_factor` and `most_sides` are those of a Contender. If
    `by_display`, entries are ordered by their displayed ratings, otherwise by mu."""
    began_s, alone, rest = perf_counter(), len(configs) == 1, iter(sessions)
    read = list(islice(rest, 1 if alone else None))  # one configuration rates while it is read
    reading_s = perf_counter() - began_s
    outcomes: list[SeasonScores] = []
    for name, config in configs:
        warm(config, read, most_sides=most_sides, by_display=by_display)
        outcomes.append(evaluate(
            chain(read, rest) if alone else progress(name, read), config, threads=True,
            variance_factor=variance_factor, most_sides=most_sides, by_display=by_display,
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
    kinds: tuple[Callable[[RoundBatch], Ints], ...] = (
        lambda rounds: -rounds.entries,
        lambda rounds: rounds.entries,
        lambda rounds: rounds.sizes - rounds.entries,
    )
    for measure in kinds:
        session, at = max(
            ((each, int(np.argmax(measure(each.rounds)))) for each in sessions),
            key=lambda pair: measure(pair[0].rounds)[pair[1]],
        )
        found.append(session.take(np.array([at])))
    return found


def warm(
    config: RatingConfig, sessions: Sequence[Session], *, most_sides: int, by_display: bool = False
) -> None:
    """Evaluate a few of these rounds twice, so that all kernels are compiled or loaded."""
    some = samples(sessions)
    evaluate([*some, *some], config, most_sides=most_sides, by_display=by_display)


def outcomes_alike(outcomes: Sequence[SeasonScores]) -> list[SeasonScores]:
    """The outcomes of one season by several configurations, with only the scores that all of them
    have (`shared_scores`)."""
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
    seconds, players = outcome.seconds + reading_s, int(outcome.players.sum())
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
        results=players,
        players=players,
        seconds=seconds,
        rating_seconds=outcome.rating_s,
        rounds_per_second=len(outcome.scores) / seconds,
        players_per_second=players / seconds,
        calibration=outcome.calibration(train),
        **measures,
    )
