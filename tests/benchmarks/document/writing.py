"""Puts rows into the documents, between the markers of the pages: what a benchmark calls to write
its figures. The page with all tables is built from `page.md`."""

import argparse
import fcntl
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import ascii_uppercase

import msgspec

from stream_rater.evaluation.bootstrap import VERDICTS
from tests.benchmarks.document.rows import (
    ROOT,
    Row,
    dumped,
    figure,
    load,
    made,
    number,
    origin_now,
    replaced,
)
from tests.benchmarks.document.tables import TABLES, Table
from tests.benchmarks.lab.games import ANOTHER, BARE, CHOSE, role_of

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


def _loops(rows: Rows) -> tuple[str, Row]:
    found = [(shape, rows[f"loop/two-moment/{shape}"]) for shape in ("1v1", "5v5")]
    said = (
        "{}: {} and {} µs, openskill.py {} and {}".format(
            shape, number(row.figures["value"]),
            *(number(row.figures["ratio"][e])
              for e in ("predict", "openskill_rate", "openskill_predict")),
        )
        for shape, row in found
    )  # fmt: skip
    return "; ".join(said), found[0][1]


def _games(rows: Rows) -> tuple[str, Row]:
    games = [row for name, row in rows.items() if name.startswith("games/")]
    played = [row for row in games if not row.name.endswith(BARE.replace(" ", "-"))]
    oldest = min(played, key=lambda row: row.origin.date)
    (ours,) = {str(row.figures["note"]).removeprefix("ours: ").split(";")[0] for row in played}
    said = [f"`{ours}`"]
    for role, whose in (
        (ANOTHER, "that had no part in choosing it"),
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
    return f"{injected} faults, {updates} rating changes: {events}", oldest


SUMMARY: dict[str, Callable[[Rows], tuple[str, Row]]] = {
    "throughput of one worker, rounds of 5": _throughput,
    "latency from a round to its rating changes, rounds of 5": _latency,
    "performances in a round of 100, all opponents counted": _stage_1,
    "rating rounds of 5 in memory, many at once": _peers,
    "rating and predicting a round in a loop of Python": _loops,
    "predicting results, in log loss and order, against other systems": _games,
    "crashes, broken connections and lost data on real servers": _faults,
}


def summary(rows: Sequence[Row]) -> str:
    """One line for each measured figure, with the letter of its machine; then the machines."""
    by_name = {row.name: row for row in rows}
    lines = ["| measured | figure | taken | machine |", "|---|---|---|---|"]
    letters = dict[str, str]()
    for what, cell in SUMMARY.items():
        try:
            value, row = cell(by_name)
        except (KeyError, ValueError):  # there is no such row yet
            continue
        letter = letters.setdefault(row.origin.machine, ascii_uppercase[len(letters)])
        lines.append(f"| {what} | {value} | {row.origin.date[:10]} | {letter} |")
    where = "; ".join(f"{letter}: {machine}" for machine, letter in letters.items())
    return "\n".join(lines) + f"\n\nMachine {where}.\n"


# --- the README's table ---------------------------------------------------------------------------

ROWS = Path("docs/benchmarks.jsonl")
PAGE = Path("docs/benchmarks.md")  # The page for people.
TEMPLATE = Path("tests/benchmarks/document/page.md")
FULL = Path("build/benchmarks-full.md")  # All tables: in the site of `make docs`, not in git.
OTHERS = tuple(
    Path("docs", each) for each in ("operations/capacity.md", "papers.md", "internals/record.md")
)  # Other pages with short tables.
README = Path("README.md")

SECTION = re.compile(r"(<!-- section: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
BRIEF = re.compile(r"(<!-- brief: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
FIGURES = re.compile(r"(<!-- figures: begin -->\n).*?(<!-- figures: end -->)", re.DOTALL)


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--write`, the same for all benchmarks: `make ... WRITE=1`."""
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {ROWS}, too")


def check(parser: argparse.ArgumentParser, *, write: bool, unlike: dict[str, object]) -> None:
    """Wrong usage if `--write` comes with an option whose figures are not written."""
    for option, given in unlike.items():
        if write and given:
            parser.error(f"--write and {option}: such figures are not written")


def write_run(target: str, printed: Iterable[object], arguments: Sequence[str]) -> None:
    """Put what a run of this target printed into the documents of this folder."""
    objects = [msgspec.to_builtins(each) for each in printed]
    write(made(objects, origin_now(target, arguments)))


def write(newer: Sequence[Row]) -> None:
    """Replace these rows, and write all tables again; ValueError for wrong markers of a page."""
    root = ROOT
    with _alone(root):
        rows = replaced(load(root / ROWS), newer)
        replace_text(root / ROWS, dumped(rows))
        for path, text in documents(root, rows):
            replace_text(path, text)
    for name in untabled(TABLES, newer):
        print(f"{name}: kept in {ROWS}, but no table shows it", file=sys.stderr)
    print(f"{len(newer)} rows written, see {PAGE} and {FULL}", file=sys.stderr)


def documents(root: Path, rows: Sequence[Row]) -> Iterator[tuple[Path, str]]:
    """Each document that has figures, and its text with the figures of these rows."""
    readme = root / README
    yield root / FULL, with_tables((root / TEMPLATE).read_text(), TABLES, rows)
    for page in (root / each for each in (PAGE, *OTHERS)):
        yield page, with_briefs(page.read_text(), TABLES, rows)
    text = readme.read_text()
    yield readme, FIGURES.sub(lambda found: f"{found[1]}\n{summary(rows)}\n{found[2]}", text)


def with_tables(page: str, tables: Sequence[Table], rows: Sequence[Row]) -> str:
    """The page with these rows' tables; ValueError if its markers are not those of the tables."""
    by_section = {each.section: each for each in tables}
    marked = [name for _, name, _ in SECTION.findall(page)]
    if sorted(marked) != sorted(by_section):
        unlike = ", ".join(sorted(set(marked) ^ by_section.keys())) or "one is there twice"
        raise ValueError(f"the page's markers are not those of the tables: {unlike}")
    return SECTION.sub(
        lambda found: f"{found[1]}\n{by_section[found[2]].markdown(rows)}\n{found[3]}", page
    )


def with_briefs(page: str, tables: Sequence[Table], rows: Sequence[Row]) -> str:
    """The page for people with the short tables that these rows make."""
    by_section = {each.section: each for each in tables}
    return BRIEF.sub(
        lambda found: f"{found[1]}\n{by_section[found[2]].brief_markdown(rows)}\n{found[3]}", page
    )


def untabled(tables: Iterable[Table], rows: Iterable[Row]) -> list[str]:
    """Names of the rows that no table shows."""
    patterns = [each.names for each in tables]
    return [row.name for row in rows if not any(re.fullmatch(each, row.name) for each in patterns)]


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all, and only if its text changes."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Hold a lock within the block: two benchmarks may end at the same time."""
    folder = os.open((root / ROWS).parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
