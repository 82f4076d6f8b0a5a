"""`python -m tests.benchmarks.games`: all systems and peers on real games, by `evidence --only
games`. A JSON object for each game on standard output.

Without arguments the shared files are played (PLANS), each within bounds that let the whole end in
about an hour on two cores. `--file PATH...` plays any other files in the same way, within the
bounds of OTHER. With reports (games.json) their games are printed instead. Standard error has the
progress, and at the end the tables that compare ours by default with tuned peers.

The tables say whether a game's file had a part in choosing our systems and their constants
(`lab.games.CHOOSING`).

Exit code 0: all was played; 1: a file was skipped, the reason is on standard error.
"""

import gzip
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.evaluation.spaces import SPACES
from tests.benchmarks.command import a_parser, end, parsed, show
from tests.benchmarks.lab.figures import SECTIONS, tables
from tests.benchmarks.lab.games import CANDIDATES, Result
from tests.benchmarks.lab.report import evidence_report
from tests.benchmarks.lab.rows import Report, rows
from tests.benchmarks.measure import Result as Row
from tests.benchmarks.measure import Skipped, shared


@dataclass(frozen=True)
class Plan:
    """Files to play alike, and within which bounds."""

    files: Sequence[str | Path]  # Names of shared files, or paths of others.
    trials: int = 100
    rounds: int | None = None
    cut: Sequence[int] = ()
    teams: int | None = None
    systems: Sequence[str] = CANDIDATES  # Those of ours that are compared with the peers.
    whole: bool = True  # Whether files that are cut are played unchanged, too.
    skip: int = 0  # The number of lines that are skipped at the start of the file.
    seconds: int = 1200  # The time that a peer or a system may take on a game.


ALL = tuple(SPACES)
PLANS = (
    Plan(("cwl", "map-rando"), systems=ALL), Plan(("map-rando",), cut=(2, 5), whole=False),
    Plan(("codeforces",), rounds=40),
    Plan(("codeforces",), rounds=80, cut=(2, 5, 10, 20, 50), teams=5, whole=False),
    Plan(("formula-one",), systems=ALL), Plan(("formula-one",), cut=(2, 5, 10), whole=False),
    Plan(("clubs",), rounds=12_000, skip=43_863, systems=ALL),
    Plan(("frc",), rounds=12_000, systems=ALL),
    Plan(("football",), rounds=12_000, skip=16_991), Plan(("votes",)),
)  # fmt: skip
"""Of `clubs`, it is the second half, because seats and scores were built with the first half. Of
`football`, it is the first rounds from 1990 on."""
OTHER = Plan((), rounds=12_000)
QUICK = (Plan(("map-rando",), 3, 60),)
SHOWN = {each: SECTIONS[each] for each in ("goal", "goal-games", "goal-worse")}
"""The tables of all games that standard error gets at the end."""


def play(plan: Plan) -> Report:
    """Play a plan's files, without the rounds that are not valid, which standard error names.
    Raises Skipped where a file is not to be had, or has no rounds."""
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "data"), Path(folder, "out")
        data.mkdir()
        laid_out(plan, data)
        try:
            evidence_report(
                data, out, ["games"], plan.systems, rounds=plan.rounds, trials=plan.trials,
                quick=False, where=2, cut=plan.cut, teams=plan.teams,
                seconds_per_peer=plan.seconds, whole=plan.whole,
            )  # fmt: skip
        except (Failed, BadConfiguration) as error:
            if not (out / "games.json").exists():
                raise Skipped(str(error)) from None
            print(f"games: {error}", file=sys.stderr)
        return read(out / "games.json")


def laid_out(plan: Plan, folder: Path) -> list[Path]:
    """A plan's files in this folder, without the lines that are skipped. Raises Skipped."""
    paths = [each if isinstance(each, Path) else shared(each) for each in plan.files]
    for path in paths:
        if plan.skip:
            with gzip.open(path) as source, gzip.open(folder / path.name, "wb", 1) as target:
                target.writelines(islice(source, plan.skip, None))
        else:
            (folder / path.name).symlink_to(path.resolve())
    return [folder / path.name for path in paths]


def read(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def _plans(files: Sequence[Path], *, quick: bool) -> Sequence[Plan]:
    if not files:
        return QUICK if quick else PLANS
    return [replace(QUICK[0] if quick else OTHER, files=(each,)) for each in files]


def main(arguments: Sequence[str] | None = None) -> int:
    began_s = time.monotonic()
    parser = a_parser("tests.benchmarks.games", __doc__)
    parser.add_argument("reports", nargs="*", type=Path, metavar="REPORT", help="a games.json")
    parser.add_argument("--file", nargs="+", type=Path, default=[], metavar="PATH",
                        help="files of rounds to play in place of the shared ones")  # fmt: skip
    asked = parsed(parser, arguments, "--file")
    works = [partial(read, each) for each in asked.reports] or [
        partial(play, each) for each in _plans(asked.file, quick=asked.quick)
    ]
    played = list[Result]()

    def of(work: Callable[[], Report]) -> Iterator[Row]:
        report = work()
        played.extend(report.games)
        if not (found := list(rows(report))):
            raise Skipped("nothing is scored")
        yield from found

    shown = show((("games", of(each)) for each in works), tabled=False)
    said = "\n".join(tables(played, [], SHOWN))
    print(f"{said}\n{time.monotonic() - began_s:,.0f} s", file=sys.stderr)
    return end("bench-games", asked, shown)


if __name__ == "__main__":
    sys.exit(main())
