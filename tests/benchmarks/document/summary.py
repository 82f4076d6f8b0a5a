"""The table of the README: the six most informative figures."""

import re
from collections.abc import Callable, Sequence
from string import ascii_uppercase

from stream_rater.evaluation.bootstrap import VERDICTS
from tests.benchmarks.document.rows import Row, figure, number
from tests.benchmarks.lab.games import CHOSE, REPORTED, role_of

Rows = dict[str, Row]


def _throughput(rows: Rows) -> tuple[str, Row]:
    row = rows["stream/lobby5/1"]
    costs = [number(figure(row, f"ratio.{who}_us")) for who in ("workers", "redis", "broker")]
    rate = number(figure(row, "value"))
    used = "; each takes {} µs of processor in the worker, {} in Redis, {} in Kafka".format(*costs)
    return f"{rate} rating changes a second{used}", row


def _latency(rows: Rows) -> tuple[str, Row]:
    row = rows["latency/lobby5/10"]
    p50, p99 = (number(figure(row, f"ratio.{each}")) for each in ("p50", "p99"))
    found = re.search(r"at (\d+) updates/s", figure(row, "note") or "")
    load = f", at {number(int(found[1]))} rating changes a second" if found else ""
    return f"p50 {p50} ms, p99 {p99} ms{load}", row


def _stage_1(rows: Rows) -> tuple[str, Row]:
    row = rows["stage1/100"]
    return f"{number(1000.0 * row.figures['value'])} ns a player", row


def _peers(rows: Rows) -> tuple[str, Row]:
    row = rows["lobby/5"]
    ratio = row.figures["ratio"]
    openskill, trueskill = number(ratio["openskill"]), number(ratio["trueskill"])
    return f"{openskill} times as fast as openskill.py, {trueskill} as trueskill", row


def _games(rows: Rows) -> tuple[str, Row]:
    played = [row for name, row in rows.items() if name.startswith("games/")]
    oldest = min(played, key=lambda row: row.origin.date)
    (ours,) = {str(row.figures["note"]).removeprefix("ours: ").split(";")[0] for row in played}
    said = [f"`{ours}`"]
    for role, whose in (
        (REPORTED, "that had little part in choosing it"),
        (CHOSE, "that chose it"),
    ):
        own = [row for row in played if role_of(row.word(1)) == role]
        better, same, worse = (
            sum(int(row.figures["ratio"].get(f"{ours} {v.replace(' ', '_')}", 0)) for row in own)
            for v in VERDICTS
        )
        if own:
            said.append(
                f"on {len(own)} games of files {whose}, better in {better} comparisons, no "
                f"difference in {same}, worse in {worse}"
            )
    return "; ".join(said), oldest


def _faults(rows: Rows) -> tuple[str, Row]:
    played = [row for name, row in rows.items() if name.startswith("chaos/")]
    oldest = min(played, key=lambda row: row.origin.date)
    injected, updates, lost, doubled, wrong = (
        number(sum(row.figures[each] for row in played))
        for each in ("injected", "updates", "lost", "doubled", "wrong")
    )
    events = f"{lost} lost, {doubled} doubled, {wrong} wrong"
    text = f"{injected} faults, {updates} rating changes: {events}"
    return text, oldest


FIGURES: dict[str, Callable[[Rows], tuple[str, Row]]] = {
    "throughput of one worker, rounds of 5": _throughput,
    "latency from a round to its rating changes, rounds of 5": _latency,
    "performances in a round of 100, all opponents counted": _stage_1,
    "rating rounds of 5 in memory": _peers,
    "predicting results, in log loss and order, against other systems": _games,
    "crashes, broken connections and lost data on real servers": _faults,
}


def summary(rows: Sequence[Row]) -> str:
    """One line for each measured figure, with the letter of its machine; then the machines."""
    by_name = {row.name: row for row in rows}
    lines = ["| measured | figure | taken | machine |", "|---|---|---|---|"]
    letters = dict[str, str]()
    for what, cell in FIGURES.items():
        try:
            value, row = cell(by_name)
        except (KeyError, ValueError):  # there is no such row yet
            continue
        letter = letters.setdefault(row.origin.machine, ascii_uppercase[len(letters)])
        lines.append(f"| {what} | {value} | {row.origin.date[:10]} | {letter} |")
    where = "; ".join(f"{letter}: {machine}" for machine, letter in letters.items())
    return "\n".join(lines) + f"\n\nMachine {where}.\n"
