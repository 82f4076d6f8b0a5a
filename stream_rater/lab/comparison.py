"""Compares configurations on the same rounds: one row of measures for each."""

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

import msgspec

from stream_rater.lab.accuracy import averages
from stream_rater.lab.bootstrap import Difference, differences
from stream_rater.lab.evaluation import MOST_SIDES, Outcome, evaluate
from stream_rater.lab.measures import MEASURES
from stream_rater.lab.season import Session
from stream_rater.lab.winners import Bin
from stream_rater.rating.parameters import RatingConfig

Named = tuple[str, RatingConfig]
"""A name and its configuration."""


Watched = Callable[[str, Sequence[Session]], Iterable[Session]]
"""Rounds that a configuration, named so, goes through; gives the same, and may show progress."""


def unwatched(_: str, sessions: Sequence[Session]) -> Iterable[Session]:
    """Nobody looks."""
    return sessions


class Row(msgspec.Struct, kw_only=True):
    """The results of one configuration on one file, as `evaluate --format json` writes them.

    Measures are None if no round was scored. Times are those of this configuration alone.
    """

    file: str
    config: str
    system: str
    rounds: int
    scored_rounds: int
    results: int
    """Of all rounds together: one for each player of each round."""
    players: int
    """`results` under its first name."""
    pair_inversion: float | None
    rank_deviation: float | None
    pair_inversion_all: float | None
    rank_deviation_all: float | None
    kendall_tau: float | None
    log_loss: float | None
    brier: float | None
    winner_log_loss: float | None
    winner_brier: float | None
    seconds: float
    """Seconds for reading, rating and scoring."""
    rating_seconds: float
    rounds_per_second: float
    players_per_second: float
    calibration: list[Bin]
    """How often sides won, by their probability to win."""
    differences: dict[str, Difference | None] | None = None
    """The differences from the first configuration on the same file, by measure; None for the first
    one."""


def compare(
    file: str, sessions: Iterable[Session], configs: Sequence[Named], train: float,
    watched: Watched = unwatched, variance_factor: float = 1.0, most_sides: int = MOST_SIDES,
) -> list[Row]:  # fmt: skip
    """Evaluate each configuration on the rounds of a file. The first `train` of the rounds are
    rated and not scored. `watched` sees each configuration's way through them."""
    began_s, reading_s = perf_counter(), 0.0
    alone = len(configs) == 1
    listed: Sequence[Session] | None = None if alone else list(sessions)
    if not alone:
        reading_s = perf_counter() - began_s
    rows: list[Row] = []
    base: Outcome | None = None
    for name, config in configs:
        played = sessions if listed is None else watched(name, listed)
        outcome = evaluate(
            played, config, threads=True, variance_factor=variance_factor, most_sides=most_sides
        )
        rows.append(_row(file, name, outcome, train, reading_s))
        if base is not None:
            pair = outcome.scored(train), base.scored(train)
            rows[-1].differences = differences(*pair, MEASURES)
        base = base or outcome
    return rows


def _row(file: str, name: str, outcome: Outcome, train: float, reading_s: float) -> Row:
    scored = outcome.scored(train)
    seconds = outcome.seconds + reading_s
    measures: dict[str, Any] = averages(scored)
    return Row(
        file=file,
        config=name,
        system=str(outcome.config.__struct_config__.tag),
        rounds=len(outcome.scores),
        scored_rounds=len(scored),
        results=int(outcome.players.sum()),
        players=int(outcome.players.sum()),
        seconds=seconds,
        rating_seconds=outcome.rating_s,
        rounds_per_second=len(outcome.scores) / seconds,
        players_per_second=float(outcome.players.sum()) / seconds,
        calibration=outcome.calibration(train),
        **measures,
    )
