"""Several configurations on the same rounds: one row of measures each."""

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import msgspec

from stream_rater.lab.accuracy import averages
from stream_rater.lab.bootstrap import Difference, difference
from stream_rater.lab.evaluation import Outcome, evaluate
from stream_rater.lab.measures import MEASURES
from stream_rater.lab.season import Session
from stream_rater.rating.parameters import RatingConfig

Named = tuple[str, RatingConfig]
"""A configuration and what it is called."""


class Row(msgspec.Struct, kw_only=True):
    """One configuration on one file, as `evaluate --format json` writes it.

    Measures are None where no round was scored. Times are those of this configuration alone.
    """

    file: str
    config: str
    system: str
    rounds: int
    scored_rounds: int
    players: int
    """Of all rounds together: players times rounds."""
    pair_inversion: float | None
    rank_deviation: float | None
    pair_inversion_all: float | None
    rank_deviation_all: float | None
    kendall_tau: float | None
    log_loss: float | None
    brier: float | None
    seconds: float
    """Reading, rating and scoring."""
    rating_seconds: float
    rounds_per_second: float
    players_per_second: float
    differences: dict[str, Difference | None] | None = None
    """To the first configuration on the same file, by measure; None for the first one itself."""


def compare(
    file: str, sessions: Iterable[Session], configs: Sequence[Named], train: float
) -> list[Row]:
    """A row for each configuration, on the rounds of a file; `train` is the part of the rounds that
    only builds experience."""
    began_s, reading_s = perf_counter(), 0.0
    alone = len(configs) == 1
    if not alone:
        sessions = list(sessions)
        reading_s = perf_counter() - began_s
    rows: list[Row] = []
    base: Outcome | None = None
    for name, config in configs:
        outcome = evaluate(sessions, config, threads=alone)
        rows.append(_row(file, name, outcome, train, reading_s))
        if base is not None:
            pair = outcome.scored(train), base.scored(train)
            rows[-1].differences = {each: difference(*pair, each) for each in MEASURES}
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
        players=int(outcome.players.sum()),
        seconds=seconds,
        rating_seconds=outcome.rating_s,
        rounds_per_second=len(outcome.scores) / seconds,
        players_per_second=float(outcome.players.sum()) / seconds,
        **measures,
    )
