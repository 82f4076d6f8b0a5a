"""The names of the measures. `accuracy` and `winners` define them."""

FIELDS = (
    "experienced", "pair_inversion", "rank_deviation",
    "entries", "pair_inversion_all", "rank_deviation_all",
    "pairs", "kendall_tau",
    "foretold", "log_loss", "brier",
    "pairs_foretold", "pairs_drawn", "pairs_unfinished",
    "decided", "winner_log_loss", "winner_brier",
)  # fmt: skip
"""The columns of a round's scores: weights, each before the measures that it weighs. `foretold` is
the number of entries, or 0 if no pair was scored; `decided` is 1, or 0 if no winner was scored.

Three columns count pairs of entries, of those that could be scored: `pairs_foretold` were;
`pairs_drawn` shared a place, and were scored only where draws are outcomes; of `pairs_unfinished`
neither finished, and they never are."""

WEIGHT_OF = {
    "pair_inversion": "experienced", "rank_deviation": "experienced",
    "pair_inversion_all": "entries", "rank_deviation_all": "entries",
    "kendall_tau": "pairs", "log_loss": "foretold", "brier": "foretold",
    "winner_log_loss": "decided", "winner_brier": "decided",
}  # fmt: skip
"""The column that weighs each measure."""

MEASURES = tuple(WEIGHT_OF)

OF_HUNDRED = tuple(name for name in MEASURES if name.startswith(("pair_inversion", "rank")))
"""The measures in %."""

OF_PAIRS = FIELDS.index("decided")
"""So many columns are those of `accuracy`, the others those of `winners`."""

USUAL_PARTS = ("accuracy", "farming", "sizes", "games")
"""The parts of the evidence: accuracy, volatility farming, and small rounds, as the paper has them;
and which system to choose for which game, beside other packages."""

PARTS = (*USUAL_PARTS, "kerby")
"""The last one, the tables of Kerby's note, is made when it is asked for."""


def better(measure: str) -> int:
    """1 if more is better, else -1."""
    return 1 if measure.startswith("pair_inversion") else -1
