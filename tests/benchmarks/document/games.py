"""The tables of `make bench-games`."""

from collections.abc import Iterator
from typing import Any

from stream_rater.evaluation.bootstrap import Difference
from stream_rater.evaluation.fits import LOG_LOSS, ORDER, ORDER_OF_ALL
from stream_rater.evaluation.peers import SPACES
from stream_rater.evaluation.research import games
from stream_rater.evaluation.research.games import COMPARED, verdict
from tests.benchmarks.document.rows import Row
from tests.benchmarks.document.tables import (
    MISSING,
    TAKEN,
    Cell,
    Column,
    Table,
    figure,
    noted,
    shown,
)

COMMAND, NAMES = "make bench-games WRITE=1", r"games/.+"
MEASURE = {LOG_LOSS: "log loss", ORDER: "order", ORDER_OF_ALL: "order of all"}
FILES = ("cwl", "formula-one", "map-rando", "codeforces")


def _game(row: Row) -> str:
    file, *cut = row.name.split("/")[1:]
    return f"`{file}`" + "".join(f", {each.replace('-', ' ')}" for each in cut)


def _ours(row: Row) -> str:
    return str(row.figures["note"]).removeprefix("ours: ").split(";")[0]


def _verdicts(row: Row) -> Iterator[Row]:
    ratio = row.figures["ratio"]
    for peer in SPACES:
        for wanted, aim in COMPARED:
            for measure in (wanted, ORDER_OF_ALL) if wanted == ORDER else (wanted,):
                edges = [ratio.get(f"{peer} {aim} {measure} {e}") for e in ("mean", "low", "high")]
                if None not in edges:
                    gap = Difference(*edges)
                    told = {"peer": peer, "measure": MEASURE[measure], "aim": MEASURE[aim],
                            "gap": f"{gap.mean:+.3g} [{gap.low:+.3g}, {gap.high:+.3g}]",
                            "ours": _ours(row), "verdict": verdict(measure, gap)}  # fmt: skip
                    yield Row(row.name, row.origin, told)
                    break


def _systems(row: Row) -> Iterator[Row]:
    ratio: dict[str, Any] = row.figures["ratio"]
    for system in dict.fromkeys(key.split()[0] for key in ratio if key.endswith(" us_update")):
        own = {key.split()[1]: value for key, value in ratio.items()
               if key.split()[0] == system and len(key.split()) == 2}  # fmt: skip
        name = f"**{system}**" if system == _ours(row) else system
        yield Row(row.name, row.origin, {"system": name, "note": row.figures["note"], **own})


def _fixed(key: str, digits: int) -> Cell:
    """A figure with so many digits behind the point: neighbours differ in the last ones."""

    def cell(row: Row) -> str:
        value = figure(row, key)
        return MISSING if value is None else f"{value:.{digits}f}"

    return cell


def _counts(row: Row) -> str:
    told = [int(row.figures.get(each.replace(" ", "_"), 0)) for each in games.VERDICTS]
    better, same, worse = told
    return f"+{better} ={same} -{worse}" if sum(told) else MISSING


def _failed(row: Row) -> str:
    by_loss, by_order = (int(row.figures.get(key, 0)) for key in ("failed", "failed_order"))
    return f"{by_loss:,}, {by_order:,}" if by_loss or by_order else MISSING


VERDICTS = Table(
    "games", COMMAND, NAMES,
    [
        Column("game", "the file, and the players of a round where it is cut.", _game),
        Column("ours", "the system of ours that was chosen.", shown("ours")),
        Column("peer", "the other package's system.", shown("peer")),
        Column("measure", "log loss in nats, or pairs in the right order in percent; less log loss"
               " is better, more order is.", shown("measure")),
        Column("tuned for", "what both are tuned for, on the first tenth.", shown("aim")),
        Column("difference", "ours less the peer's on the other rounds, with its interval of"
               " confidence, by a paired bootstrap over rounds.", shown("gap")),
        Column("ours is", "what the interval says.", shown("verdict")),
    ],
    order=FILES, spread=_verdicts,
)  # fmt: skip

SYSTEMS = Table(
    "games-systems", COMMAND, NAMES,
    [
        Column("game", "the file, and the players of a round where it is cut.", _game),
        Column("system", "ours, and other packages' after them; the chosen one is in bold.",
               shown("system")),
        Column("log loss", "of a pair, in nats, tuned for it: less is better.",
               _fixed(LOG_LOSS, 4)),
        Column("Brier score", "of a pair: less is better.", _fixed("brier", 4)),
        Column("calibration error", "the mean distance of the favourite's probability from the part"
               " that won, over bins of equal count.", _fixed("calibration_error", 4)),
        Column("order", "pairs in the right order, in percent, of sides that have played before:"
               " more is better.", _fixed(ORDER, 2)),
        Column("order, tuned", "the same, tuned for it.", _fixed("tuned_order", 2)),
        Column("against peers", "in how many comparisons it is better (+), no different (=) and"
               " worse (-) than a peer, the three of them in all three measures.", _counts),
        Column("failed", "rounds on which the package raised an error, tuned for log loss and for"
               " order: they changed none of its ratings.", _failed),
        Column("first tenth", "log loss on the rounds it was tuned on.", _fixed("first", 4)),
        Column("µs an update", "time to rate one player in one round, beside other work.",
               shown("us_update")),
        Column("default", "log loss with the first guess.", _fixed("default", 4)),
        Column("no prior", "log loss tuned without the prior, with the factor of the first tenth.",
               _fixed("no_prior", 4)),
        Column("factor", "log loss tuned with the prior, with the factor of the first tenth.",
               _fixed("with_factor", 4)),
        Column("last factor", "the variance factor of the last ninth, by all rounds before.",
               _fixed("last_factor", 2)),
        Column("trials", "configurations that were tried for each aim.",
               noted(r"(\d+) configurations")),
        Column("rounds read", "of the file, before it is cut; all, where it says nothing.",
               noted(r"first (\d+) rounds")),
        TAKEN,
    ],
    order=FILES, spread=_systems,
)  # fmt: skip

TABLES = (VERDICTS, SYSTEMS)
