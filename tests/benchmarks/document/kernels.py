"""The tables of `make bench`."""

from collections.abc import Iterator

from tests.benchmarks.document.rows import Row
from tests.benchmarks.document.tables import TAKEN, Column, Table, figure, number, shown

BENCH = "make bench WRITE=1"
SYSTEMS = {"stage1": "Elo-MMR", "stage1-gaussian": "Elo-MMχ"}


def _system(row: Row) -> str:
    return SYSTEMS[row.name.split("/")[0]]


def _players(row: Row) -> str:
    return number(int(row.name.split("/")[1]))


STAGE_1 = Table(
    "stage-1", BENCH, r"stage1(-gaussian)?/\d+",
    [
        Column("system", "the rating system.", _system),
        Column("players", "how many players a round has.", _players),
        Column("ns a player", "time for one player's performance.", shown("value", 1000.0)),
        Column(
            "error",
            "the greatest difference from a brute-force computation, in rating points.",
            shown("ratio.error_points"),
        ),
        TAKEN,
    ],
    order=list(SYSTEMS),
)  # fmt: skip

LOBBIES = Table(
    "lobbies", BENCH, r"lobby/\d+",
    [
        Column("players", "how many players a round has.", _players),
        Column("µs an update", "time to rate one player, both stages.", shown("value")),
        Column(
            "times openskill.py",
            "how many times faster than Plackett–Luce of openskill.py.",
            shown("ratio.openskill"),
        ),
        Column(
            "times trueskill",
            "how many times faster than the trueskill package.",
            shown("ratio.trueskill"),
        ),
        TAKEN,
    ],
)  # fmt: skip

READINGS = {
    "update/codeforces": [
        ("rating one player, both stages", "value", "µs"),
        ("the same, with players looked up by name", "ratio.named", "µs"),
    ],
    "evaluate/codeforces": [
        ("`stream-rater evaluate`, from its start to its end", "value", "s"),
        ("the same, over the time to decompress and decode the file", "ratio.decode", "times"),
    ],
    "record/codeforces": [
        ("mean size of a belief at the end", "value", "bytes"),
        ("99.9th percentile of its error in mu", "ratio.p999_error_points", "points"),
    ],
}
"""Of each benchmark of the file: what is measured, where the figure is, its unit."""


def _readings(row: Row) -> Iterator[Row]:
    for what, path, unit in READINGS[row.name]:
        yield Row(what, row.origin, {"value": figure(row, path), "unit": unit})


CODEFORCES = Table(
    "codeforces", BENCH, r"(update|evaluate|record)/codeforces",
    [
        Column("measured", "what is measured.", lambda row: row.name),
        Column("figure", "the least of several turns.", shown("value")),
        Column("unit", "the figure's unit.", shown("unit")),
        TAKEN,
    ],
    spread=_readings,
)  # fmt: skip

OFFLINE = Table(
    "offline", BENCH, r"offline/.+",
    [
        Column("file", "what is rated.", lambda row: f"`{row.name.split('/')[1]}`"),
        Column("rounds", "how many.", shown("ratio.rounds")),
        Column("results", "players in a round, on average.", shown("ratio.results")),
        Column("rate, µs", "`rate`: time for a round.", shown("ratio.rate")),
        Column("evaluate, µs", "`evaluate`: time for a round.", shown("value")),
        Column("rounds/s", "rounds that `evaluate` takes in a second.",
               shown("ratio.evaluate_rounds_a_second")),
        Column("results/s", "results that `rate` takes in a second.",
               shown("ratio.rate_results_a_second")),
        Column("second", "what a second configuration costs, over the first.",
               shown("ratio.second")),
        TAKEN,
    ],
)  # fmt: skip

MODELS = {
    "elo-mmr": "Elo-MMR",
    "elo-mmr-factor": "Elo-MMR with a variance factor",
    "elo": "Elo",
    "openskill": "openskill.py, Plackett–Luce",
}

WINNERS = Table(
    "winners", f"{BENCH} ARGS=winners", r"winners/[^/]+/[^/]+",
    [
        Column("file", "the rounds.", lambda row: f"`{row.name.split('/')[1]}`"),
        Column("model", "what foretells.", lambda row: MODELS[row.name.split("/")[2]]),
        Column("variance factor", "that which suits the first tenth.", shown("ratio.factor")),
        Column("log loss", "of the winner, in nats: less is better.", shown("value")),
        Column("Brier score", "of the winner: less is better.", shown("ratio.brier")),
        Column(
            "calibration error",
            "the mean distance, over all sides, of a bin's probability from the part that won.",
            shown("ratio.calibration_error"),
        ),
        TAKEN,
    ],
    order=["cwl", "formula-one", "map-rando", "codeforces", *MODELS],
)  # fmt: skip

TABLES = (STAGE_1, LOBBIES, CODEFORCES, OFFLINE, WINNERS)
