"""The measures, and what is known of each. `accuracy` and `winners` define them."""

from typing import NamedTuple

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

AIMS = tuple(name for name, each in FACTS_OF.items() if not each.is_of_winner)
"""The measures that can be tuned by."""

WEIGHT_OF = {name: each.weight for name, each in FACTS_OF.items()}
"""The column that has the weight of each measure."""

OF_PAIRS = FIELDS.index("decided")
"""The number of columns that `accuracy` computes. `winners` computes the columns after them."""


def better(measure: str) -> int:
    """1 if a higher value of the measure is better, otherwise -1."""
    return 1 if FACTS_OF[measure].higher_is_better else -1
