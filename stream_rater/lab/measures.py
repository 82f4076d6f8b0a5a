"""What is measured, by name; `accuracy` says what each is."""

FIELDS = (
    "experienced", "pair_inversion", "rank_deviation",
    "entries", "pair_inversion_all", "rank_deviation_all",
    "pairs", "kendall_tau",
    "foretold", "log_loss", "brier",
)  # fmt: skip
"""What `score` gives for a round: weights, each before those that it weighs. `foretold` are its
entries again, or 0 where no pair was scored."""

WEIGHT_OF = {
    "pair_inversion": "experienced", "rank_deviation": "experienced",
    "pair_inversion_all": "entries", "rank_deviation_all": "entries",
    "kendall_tau": "pairs", "log_loss": "foretold", "brier": "foretold",
}  # fmt: skip
"""Each measure, and the field that weighs it."""

MEASURES = tuple(WEIGHT_OF)

PARTS = ("accuracy", "farming", "sizes")
"""Of the evidence: how well ratings foretell, what farming gains, and small rounds."""


def better(measure: str) -> int:
    """1 where more is better, else -1."""
    return 1 if measure.startswith("pair_inversion") else -1
