"""The measures, what is known of each, and the rows that Python and `evaluate` get. The modules
`accuracy` and `winners` define the measures."""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

FIELDS = (
    "experienced", "pair_inversion", "rank_deviation", "order",
    "entries", "pair_inversion_all", "rank_deviation_all", "order_all",
    "pairs", "kendall_tau",
    "scored", "log_loss", "brier",
    "pairs_scored", "pairs_drawn", "pairs_unfinished",
    "decided", "winner_log_loss", "winner_brier",
)  # fmt: skip
"""The columns of a round's scores. Each weight stands before the measures that it weighs. A weight
is 0 if its measures have no value:

- `experienced` is the number of experienced entries, `entries` that of all entries, and `pairs`
  that of the pairs that are not tied in place;
- `scored` is the number of entries, if a pair was scored;
- `decided` is 1, if the winner was scored.

Three columns count the pairs of entries that could be scored. `pairs_scored` is the number of
pairs that were scored. `pairs_drawn` is the number of pairs that shared a place; they are scored
only where draws are outcomes. `pairs_unfinished` is the number of pairs in which neither entry
finished; they are never scored."""


class MeasureFacts(NamedTuple):
    """The facts that decide how a measure is averaged, compared, tuned and shown."""

    weight: str  # The column that has the measure's weight in each round.
    higher_is_better: bool = False
    in_per_cent: bool = False

    @property
    def is_of_winner(self) -> bool:
        """Whether the measure is about the winner of a round. Otherwise it is about pairs."""
        return self.weight == "decided"


FACTS_OF = {
    "pair_inversion": MeasureFacts("experienced", higher_is_better=True, in_per_cent=True),
    "rank_deviation": MeasureFacts("experienced", in_per_cent=True),
    "order": MeasureFacts("experienced", higher_is_better=True, in_per_cent=True),
    "pair_inversion_all": MeasureFacts("entries", higher_is_better=True, in_per_cent=True),
    "rank_deviation_all": MeasureFacts("entries", in_per_cent=True),
    "order_all": MeasureFacts("entries", higher_is_better=True, in_per_cent=True),
    "kendall_tau": MeasureFacts("pairs"),
    "log_loss": MeasureFacts("scored"),
    "brier": MeasureFacts("scored"),
    "winner_log_loss": MeasureFacts("decided"),
    "winner_brier": MeasureFacts("decided"),
}
"""The measures by name. Each is a column of FIELDS."""

MEASURES = tuple(FACTS_OF)  # The names of the measures.

AIMS = tuple(name for name, each in FACTS_OF.items() if not each.is_of_winner)  # To tune by.

OF_PAIRS = FIELDS.index("decided")
"""The number of columns that `accuracy` computes. `winners` computes the columns after them."""


def better(measure: str) -> int:
    """1 if a higher value of the measure is better, otherwise -1."""
    return 1 if FACTS_OF[measure].higher_is_better else -1


@dataclass(frozen=True, slots=True)
class Difference:
    """A measure's difference between two systems, with its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def noise(self) -> bool:
        """Whether the interval contains 0."""
        return self.low <= 0.0 <= self.high


class WinBin(msgspec.Struct, frozen=True):
    """The sides of scored rounds whose probability to win lies between two edges."""

    low: float
    high: float
    sides: int
    foretold: float
    """The mean of the sides' predicted probabilities to win."""
    won: float  # The share of the sides that won.
    won_low: float
    """The low end of Wilson's 95 % interval of `won`, as if the sides were independent."""
    won_high: float  # The high end of that interval.


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
    """The number of rounds after those that only build experience. `rounds_scored` have a score."""
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
    calibration: list[WinBin]  # The share of sides that won, by their predicted probability to win.
    differences: dict[str, Difference | None] | None = None
    """The differences from the file's first configuration, by measure; None for that one."""

    def __repr__(self) -> str:
        loss = "no log loss" if self.log_loss is None else f"log loss {self.log_loss:.4f}"
        scored = f"{self.rounds_scored:,} of {self.rounds:,} rounds scored"
        return f"<Evaluation of {self.config} on {self.file}: {loss}, {scored}>"
