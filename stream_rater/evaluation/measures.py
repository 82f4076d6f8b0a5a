"""The names of the measures. `accuracy` and `winners` define them."""

FIELDS = (
    "experienced", "pair_inversion", "rank_deviation",
    "entries", "pair_inversion_all", "rank_deviation_all",
    "pairs", "kendall_tau",
    "foretold", "log_loss", "brier",
    "pairs_foretold", "pairs_drawn", "pairs_unfinished",
    "decided", "winner_log_loss", "winner_brier",
)  # fmt: skip
"""The columns of a round's scores. Each weight stands before the measures that it weighs.
`foretold` is the number of entries, or 0 if no pair was scored. `decided` is 1, or 0 if no winner
was scored.

Three columns count the pairs of entries that could be scored. `pairs_foretold` is the number of
pairs that were scored. `pairs_drawn` is the number of pairs that shared a place; they are scored
only where draws are outcomes. `pairs_unfinished` is the number of pairs in which neither entry
finished; they are never scored."""

WEIGHT_OF = {
    "pair_inversion": "experienced", "rank_deviation": "experienced",
    "pair_inversion_all": "entries", "rank_deviation_all": "entries",
    "kendall_tau": "pairs", "log_loss": "foretold", "brier": "foretold",
    "winner_log_loss": "decided", "winner_brier": "decided",
}  # fmt: skip
"""The column that has the weight of each measure."""

MEASURES = tuple(WEIGHT_OF)

OF_HUNDRED = tuple(name for name in MEASURES if name.startswith(("pair_inversion", "rank")))
"""The measures that are in %."""

OF_PAIRS = FIELDS.index("decided")
"""The number of columns that `accuracy` computes. `winners` computes the columns after them."""

USUAL_PARTS = ("accuracy", "farming", "sizes", "games")
"""The parts of the evidence that are made by default. The first three repeat the paper's: accuracy,
volatility farming and small rounds. `games` compares our systems and those of other packages, to
show which system to choose for which game."""

PARTS = (*USUAL_PARTS, "kerby")
"""All parts. The last one, the tables of Kerby's note, is made only if it is asked for."""


def better(measure: str) -> int:
    """1 if a higher value of the measure is better, otherwise -1."""
    return 1 if measure.startswith("pair_inversion") else -1
