"""How the public names are typed, checked by `mypy --strict` in `make lint`. Nothing here is run.

An `assert_type` fails if a type changes. A mistake that mypy must find is followed by the comment
that ignores it: if mypy finds it no longer, the comment is unused, which is an error, too.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
from matplotlib.axes import Axes

from stream_rater import (
    Belief,
    Calibration,
    Comparison,
    Evaluation,
    FileResult,
    History,
    InvalidRound,
    Ladder,
    Leaderboard,
    Players,
    Prediction,
    RefusedLine,
    RefusedLines,
    RoundResult,
    SeedResult,
    Tuning,
    compare,
)


def what_a_ladder_gives(ladder: Ladder) -> None:
    """Every call has a type of its own, down to the columns."""
    result = ladder.rate(["ann", ["bob", "cy"]], ranks=[2, 1], shares=[None, [1.0, 0.5]])
    assert_type(result, RoundResult)
    assert_type(result.mu, npt.NDArray[np.float64])
    assert_type(ladder.what_if(["ann", "bob"]), RoundResult)
    assert_type(ladder.rate_file("rounds.jsonl"), FileResult)
    assert_type(ladder.rate_file("rounds.jsonl").refusals, tuple[RefusedLine, ...])
    assert_type(ladder.seed([{"player": "ann", "mu": 25.0}], scale="openskill"), SeedResult)
    assert_type(ladder.reset("ann", 200), Belief)
    assert_type(ladder["ann"], Belief)
    assert_type(ladder.get("ann").last_completed_at, str | None)
    assert_type(ladder.players, Players)
    assert_type(ladder.leaderboard(10), Leaderboard)
    assert_type(ladder.predict(["ann", "bob"]), Prediction)
    assert_type(ladder.predict(["ann", "bob"], seats=["home", None]), Prediction)
    seated = Ladder("two-moment", seats={"home": 60})
    assert_type(seated.rate(["ann", "bob"], seats=["home", "away"], scores=[2, 0.5]), RoundResult)
    assert_type(ladder.evaluate(0.5, by="display"), Evaluation)
    assert_type(compare("rounds.jsonl", ["elo-mmr", "two-moment"]), Comparison)
    assert_type(ladder.tune("glicko", trials=20, executor=ProcessPoolExecutor(2)), Tuning)
    assert_type(ladder.balance(["ann", "bob", "cy", "dee"]), list[tuple[str, ...]])
    assert_type(ladder.record("ann"), bytes)
    assert_type(iter(ladder), Iterator[str])
    assert_type(len(ladder), int)


def what_a_ladder_draws(ladder: Ladder) -> None:
    """Matplotlib's axes, with their types where Matplotlib is installed."""
    assert_type(ladder.plot("ann"), Axes)
    assert_type(ladder.plot(["ann", "bob"], over="time"), Axes)
    assert_type(ladder.plot_board(10, ax=ladder.plot("ann")), Axes)
    assert_type(ladder.plot_calibration(0.2, variance_factor=1.1), Axes)


def what_a_table_gives(ladder: Ladder, file: FileResult) -> None:
    """Frames, with their types where Polars is installed. pandas and pyarrow declare none."""
    assert_type(ladder.history("ann"), History)
    assert_type(ladder.history("ann").completed_at, npt.NDArray[np.datetime64])
    assert_type(ladder.calibration(), Calibration)
    assert_type(file.refused_lines, RefusedLines)
    assert_type(ladder.players.to_polars(), pl.DataFrame)
    assert_type(ladder.players.to_pandas(), pd.DataFrame)
    assert_type(ladder.players.to_arrow(), pa.Table)


def what_a_ladder_is_given() -> None:
    """Parameters have names and types, as in a ladders file."""
    Ladder("glicko", initial_mu=1500.0)
    Ladder(weight_limit=0.2, sigma_limit=80.0, history="full")
    Ladder("two-moment", display={"minus_sigma": 2})


def mistakes(ladder: Ladder, anything: Any) -> None:
    """What an editor should underline."""
    Ladder(wieght_limit=0.2)  # type: ignore[call-arg]
    Ladder("glicko", initial_mu="1500")  # type: ignore[arg-type]
    ladder.rate([1, 2])  # type: ignore[list-item]
    ladder.rate(["ann", "bob"], ranks=["1", "2"])  # type: ignore[list-item]
    ladder.rate(["ann", "bob"], [1, 2], [None, None])  # type: ignore[call-arg]
    ladder.leaderboard("ten")  # type: ignore[arg-type]
    ladder.plot("ann", over="days")  # type: ignore[arg-type]
    ladder.plot_board(ax="axes")  # type: ignore[arg-type]
    ladder.players.to_frame()  # type: ignore[attr-defined]
    ladder["ann"].mu = 1.0  # type: ignore[misc]
    ladder.rate(anything)


def errors() -> None:
    """An error is a ValueError, so those who know no name of ours can catch it."""
    assert_type(InvalidRound("malformed", "x").code, str)
