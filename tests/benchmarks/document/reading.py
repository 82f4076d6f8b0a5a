"""The table of `make bench-serve`."""

from tests.benchmarks.document.rows import Row
from tests.benchmarks.document.tables import TAKEN, Cell, Column, Table, figure, number, shown

QUESTIONS = {
    "player": "one player, with rank",
    "lookup": "1,000 players in one call",
    "around": "25 rows of the leaderboard around a player",
}


def _count(path: str) -> Cell:
    return lambda row: number(int(figure(row, path)))


def _times(row: Row) -> str:
    return number(figure(row, "ratio.serve_p99") / figure(row, "ratio.bare_p99"))


SERVE = Table(
    "serve", "make bench-serve WRITE=1", r"serve/[^/]+",
    [
        Column("question", "what is asked.", lambda row: QUESTIONS[row.name.split("/")[1]]),
        Column("per second", "how often.", _count("ratio.per_second")),
        Column("players", "of the ladder.", _count("ratio.players")),
        Column("bytes", "of an answer.", _count("ratio.bytes")),
        Column("p50, ms", "half of the answers took no longer, from when the question was due.",
               shown("ratio.serve_p50")),
        Column("p99, ms", "99 of 100 answers took no longer.", shown("ratio.serve_p99")),
        Column("bare p50, ms", "of the framework and the server alone, which answer the same"
               " questions by a constant of as many bytes.", shown("ratio.bare_p50")),
        Column("bare p99, ms", "the same.", shown("ratio.bare_p99")),
        Column("p99 by bare p99", "how many times as long as the bare framework.", _times),
        TAKEN,
    ],
    order=list(QUESTIONS),
)  # fmt: skip

TABLES = (SERVE,)
