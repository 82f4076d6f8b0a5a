"""The measures of a configuration, as `evaluate` writes them and as Python gets them."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:  # importing the package's names loads no kernels
    from stream_rater.evaluation.bootstrap import Difference
    from stream_rater.evaluation.winners import WinBin


class Evaluation(msgspec.Struct, kw_only=True):
    """How well a configuration predicted rounds, each by the ratings before it, as `evaluate
    --format json` writes it.

    Measures are None if no round was scored; those of pair inversion, rank deviation and order are
    in %. Times are those of this configuration alone.
    """

    file: str
    config: str
    system: str
    rounds: int
    scored_rounds: int
    """The rounds without the first ones, which only build experience. `rounds_scored` are those of
    them that have a score."""
    rounds_scored: int
    """The scored rounds that have a log loss: the same for all configurations on a file."""
    pairs_scored: int  # Pairs of entries that have a log loss.
    draws_scored: int
    """The draws among these pairs. Where there are any, log loss and Brier score are computed over
    three outcomes."""
    draws_left_out: int  # Pairs that drew and have no log loss.
    unfinished_left_out: int  # Pairs in which neither entry finished.
    winners_scored: int  # Rounds whose winner is scored.
    results: int  # The number of results of all rounds: one for each player of each round.
    players: int  # The former name of `results`.
    pair_inversion: float | None
    rank_deviation: float | None
    pair_inversion_all: float | None
    rank_deviation_all: float | None
    order: float | None
    order_all: float | None
    kendall_tau: float | None
    log_loss: float | None
    """That of a coin is 0.6931. Where draws are outcomes, that of three equal chances is 1.0986."""
    brier: float | None
    winner_log_loss: float | None
    winner_brier: float | None
    seconds: float  # Seconds for reading, rating and scoring.
    rating_seconds: float
    rounds_per_second: float
    players_per_second: float
    calibration: "list[WinBin]"
    """The share of sides that won, by their predicted probability to win."""
    differences: "dict[str, Difference | None] | None" = None
    """The differences from the first configuration on the same file, by measure. None for the first
    configuration."""
