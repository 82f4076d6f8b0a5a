"""How well configurations predict rounds: `stream_rater.compare`, `Ladder.evaluate`, `Ladder.tune`.
The numbers are those of the commands. What rates is loaded when it is first needed."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

import numpy as np

from stream_rater.config.files import rating_by_name, with_systems
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import Settings
from stream_rater.evaluation.measures import Evaluation
from stream_rater.library.parameters import rating_of
from stream_rater.library.results import Comparison, Tuning
from stream_rater.library.tables import objects
from stream_rater.tables.reading import TableOptions, reading_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from stream_rater.contract.record import Record
    from stream_rater.evaluation.season import Session
    from stream_rater.library.rater import Rater
    from stream_rater.rating.parameters import RatingConfig
    from stream_rater.replay.edited_log import Verdicts

By = Literal["mu", "display"]
FLOATS = ("log_loss", "brier", "pair_inversion", "kendall_tau")
WINDOW = Settings().duplicate_window


def compare(
    rounds: Any, configs: "Mapping[str, Any] | Sequence[str]", *, train: float = 0.5,
    variance_factor: float = 1.0, by: By = "mu", columns: Mapping[str, str] | None = None,
    score: str = "", **how: Unpack[TableOptions],
) -> Comparison:  # fmt: skip
    """Compare configurations on the same rounds, each predicted by the ratings before it.

    Args:
        rounds: The path of a file, or a table, as `Ladder.rate_file` and `Ladder.rate_table` take
            them. The ladders in it are rated apart.
        configs: By name, what is compared: the parameters with their `"system"`, such as
            `{"system": "glicko", "beta": 200, "sigma_drift": 35}`, a system with its defaults, such
            as `"two-moment"` (a parameter without a default gets the first guess of `tune`), or a
            `Ladder`, of which only the parameters count. Or a list of systems. The others are
            compared with the first one, in the `evaluations`.
        train: The fraction of the rounds, from the first one on, that only build experience.
        variance_factor: Multiplies the variance of a side's performance.
        by: Which number puts players in order: `"mu"`, or `"display"`, the displayed rating.
        columns, score, how: Of a table, as in `Ladder.rate_file`.

    Raises:
        ValueError: An argument is invalid, or no configuration is given.
        BadParameters: A configuration has no such system or parameter.
        OSError: The file or the table cannot be read.
    """
    if not configs or isinstance(configs, str):
        raise ValueError("configs: give a dict of configurations by name, or a list of systems")
    named = configs if isinstance(configs, Mapping) else dict(zip(configs, configs, strict=True))
    ratings = [(name, _rating(name, each)) for name, each in named.items()]
    from stream_rater.evaluation.tuning import without_defaults
    from stream_rater.library.rater import FileRounds, FrameRounds

    reading = reading_of(columns, score, how)
    is_path = isinstance(rounds, str | os.PathLike)
    file = FileRounds(Path(rounds), reading) if is_path else FrameRounds(rounds, reading, "rounds")
    refused, every = list[int](), [each for _, each in ratings]
    sessions = sessions_in(lambda: file.records(0), every, refused=refused)
    rows = evaluations_of(str(file.path), sessions, ratings, train, variance_factor, by)
    rejected = len(refused) + (0 if file.table is None else file.table.rejected)
    return Comparison(
        evaluations=tuple(rows), refused=rejected, parameters=tuple(map(without_defaults, every)),
        **_gaps(rows), config=objects([each.config for each in rows]),
        system=objects([each.system for each in rows]),
        rounds_scored=np.array([each.rounds_scored for each in rows]),
        **{name: np.array([getattr(each, name) for each in rows], np.float64) for name in FLOATS},
    )  # fmt: skip


def _gaps(rows: Sequence[Evaluation]) -> dict[str, Any]:
    """The differences in log loss from the first row, with their intervals, as columns."""
    found = [(each.differences or {}).get("log_loss") for each in rows]
    return {
        name: np.array([np.nan if each is None else getattr(each, end) for each in found])
        for name, end in (("difference", "mean"), ("low", "low"), ("high", "high"))
    }


def _rating(name: str, given: Any) -> "RatingConfig":
    from stream_rater.rating.parameters import BadParameters

    try:
        if isinstance(given, str):
            return rating_by_name(given)
        if isinstance(given, Mapping):
            parameters = dict(given)
            return rating_of(parameters.pop("system", None), parameters)
    except BadParameters as error:
        mistake = with_systems(str(error).removeprefix("Ladder: "))
        raise BadParameters(f"configs[{name!r}]: {mistake}") from None
    found: RatingConfig = getattr(given, "parameters", given)
    return found


def sessions_in(
    read_log: "Callable[[], Iterator[Record]]", ratings: "Iterable[RatingConfig]",
    only: str | None = None, refused: list[int] | None = None,
) -> "list[Session]":  # fmt: skip
    """The rounds of a log, as its corrections edit them, for these configurations. `only`: the
    ladder whose rounds are wanted; None: all. `read_log` yields all records at each call. The
    offsets of invalid records are added to `refused`."""
    from stream_rater.evaluation.season import by_name, sessions_of
    from stream_rater.replay.ledger import with_verdicts

    named, invalid = by_name(ratings), [] if refused is None else refused

    def run(verdicts: "Verdicts | None") -> "list[Session]":
        invalid.clear()
        return list(sessions_of(
            read_log(), WINDOW, lambda offset, _: invalid.append(offset), verdicts=verdicts,
            only=only, named=named,
        ))  # fmt: skip

    return with_verdicts(run, read_log, ANY_LADDER, WINDOW)


def evaluation_of(
    rater: "Rater", train: float, variance_factor: float, by: By, most_sides: int | None = None
) -> Evaluation:
    """The measures of a ladder's rounds by its own parameters. Raises ValueError."""
    sessions = sessions_in(rater.records, [rater.rating], rater.ladder)
    named = [(str(rater.rating.__struct_config__.tag), rater.rating)]
    (measured,) = evaluations_of(
        rater.ladder, sessions, named, train, variance_factor, by, most_sides
    )  # fmt: skip
    return measured


def tuning_of(
    rater: "Rater", system: str | None, metric: str, train: float, trials: int,
    executor: "Executor | None",
) -> Tuning:  # fmt: skip
    """The result of a search on a ladder's rounds (see `Ladder.tune`). Raises ValueError,
    MissingExtra and TrialsFailed."""
    from stream_rater.evaluation.fits import system_of
    from stream_rater.evaluation.measures import AIMS
    from stream_rater.evaluation.proposal import TooFewRounds, propose
    from stream_rater.evaluation.spaces import SPACES
    from stream_rater.evaluation.tuning import without_defaults

    if system is not None and system not in SPACES:
        raise ValueError(f"system: {system!r} is none of {', '.join(sorted(SPACES))}")
    if metric not in AIMS:
        raise ValueError(f"metric: {metric!r} is none of {', '.join(AIMS)}")
    if not isinstance(trials, Integral) or trials < 1:
        raise ValueError(f"trials: {trials!r} is no whole number from 1 on")
    sessions = sessions_in(rater.records, [rater.rating], rater.ladder)
    try:
        found = propose(
            rater.rating, system or system_of(rater.rating), sessions, metric, train=train,
            trials=trials, executor=executor,
        )  # fmt: skip
    except TooFewRounds as error:
        raise ValueError(f"train: {error}") from None
    chosen = without_defaults(found.rating)
    del chosen["system"]
    differences = [each.difference for each in found.compared]
    return Tuning(
        system=system_of(found.rating), parameters=chosen, verdict=found.verdict,
        tuned_rounds=found.first, compared_rounds=found.rest, at_ends=found.at_ends,
        measure=objects([each.measure for each in found.compared]),
        now=np.array([each.now for each in found.compared], np.float64),
        tuned=np.array([each.tuned for each in found.compared], np.float64),
        difference=np.array([each.mean for each in differences], np.float64),
        low=np.array([each.low for each in differences], np.float64),
        high=np.array([each.high for each in differences], np.float64),
    )  # fmt: skip


def evaluations_of(
    name: str, sessions: "Sequence[Session]", ratings: "Sequence[tuple[str, RatingConfig]]",
    train: float, variance_factor: float, by: By, most_sides: int | None = None,
) -> list[Evaluation]:  # fmt: skip
    """The measures of each configuration. Winners are scored in rounds of up to `most_sides` sides;
    None: the usual number. Raises ValueError."""
    from stream_rater.evaluation import comparison
    from stream_rater.evaluation.evaluation import MOST_SIDES
    from stream_rater.library.messages import factor_of, fraction_of

    if by not in get_args(By):
        raise ValueError(f"by: {by!r} is neither 'mu' nor 'display'")
    return comparison.compare(
        name, sessions, ratings, fraction_of(train), variance_factor=factor_of(variance_factor),
        most_sides=most_sides or MOST_SIDES, by_display=by == "display",
    )  # fmt: skip
