"""The names of the measures. `accuracy` defines them."""

FIELDS = (
    "experienced", "pair_inversion", "rank_deviation",
    "entries", "pair_inversion_all", "rank_deviation_all",
    "pairs", "kendall_tau",
    "foretold", "log_loss", "brier",
)  # fmt: skip
"""The columns that `score` returns for a round: weights, each before the measures that it weighs.
`foretold` is the number of entries, or 0 if no pair was scored."""

WEIGHT_OF = {
    "pair_inversion": "experienced", "rank_deviation": "experienced",
    "pair_inversion_all": "entries", "rank_deviation_all": "entries",
    "kendall_tau": "pairs", "log_loss": "foretold", "brier": "foretold",
}  # fmt: skip
"""The column that weighs each measure."""

MEASURES = tuple(WEIGHT_OF)

PARTS = ("accuracy", "farming", "sizes")
"""The parts of the repeated experiments: accuracy, volatility farming, and small rounds."""


def better(measure: str) -> int:
    """1 if more is better, else -1."""
    return 1 if measure.startswith("pair_inversion") else -1
