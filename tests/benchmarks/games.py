"""`python -m tests.benchmarks.games`: all systems and peers on real games, by `evidence --only
games`. A JSON object for each game on standard output.

Without arguments the shared files are played (PLANS), each within bounds that let the whole end in
about an hour on two cores. `--file PATH...` plays any other files in the same way, within the
bounds of OTHER. With reports (games.json) their games are printed instead.

The tables say whether a game's file had a part in choosing our systems and their constants
(`lab.games.CHOOSING`).

Exit code 0: all was played; 1: a file was skipped, the reason is on standard error.
"""

import gzip
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import msgspec

from stream_rater.evaluation.fits import LOG_LOSS
from stream_rater.evaluation.spaces import SPACES
from tests.benchmarks.command import a_parser, end, parsed, show
from tests.benchmarks.lab.forward import ORDER, ORDER_OF_ALL, Fitted
from tests.benchmarks.lab.games import REFERENCE
from tests.benchmarks.lab.games import Result as Game
from tests.benchmarks.lab.report import evidence_report
from tests.benchmarks.measure import Result, result, shared


@dataclass(frozen=True)
class Plan:
    """Files to play alike, and within which bounds."""

    files: Sequence[str | Path]  # Names of shared files, or paths of others.
    trials: int = 100
    rounds: int | None = None
    cut: Sequence[int] = ()
    teams: int | None = None
    systems: Sequence[str] = (REFERENCE,)  # Those of ours that are compared with the peers.
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
)  # fmt: skip
"""The second half of `clubs` reports, because seats and scores were built with the first half."""
OTHER = Plan((), rounds=12_000)
QUICK = (Plan(("map-rando",), 3, 60),)


class Report(msgspec.Struct):
    """A file games.json."""

    notes: list[str]
    games: list[Game]


def name_of(game: str) -> str:
    """The row of a game: `codeforces, 5 against 5` is games/codeforces/5-against-5."""
    return "games/" + re.sub(r", ", "/", game).replace(" ", "-")


def rows(report: Report) -> Iterator[Result]:
    """One row a game: the log loss of ours, figures such as `elo-mmr log_loss`, and comparisons
    such as `trueskill-package log_loss order low`: the peer, what both are tuned for, the
    measure."""
    for game in report.games:
        systems = {each.system: each for each in game.systems}
        if game.ours is None:
            continue
        figures = {"rounds": float(game.rounds), "sides": game.sides}
        if game.draws_scored:
            figures["draws"] = float(game.draws_scored)
        for each in game.systems:
            figures |= {f"{each.system} {key}": value for key, value in _figures(each)}
        for (system, verdict), count in Counter((v.ours, v.verdict) for v in game.verdicts).items():
            figures[f"{system} {verdict.replace(' ', '_')}"] = float(count)
        for v in game.of_chosen():
            for edge in ("mean", "low", "high"):
                key = f"{v.peer} {LOG_LOSS} {v.measure} {edge}"
                figures[key] = getattr(v.difference, edge)
        figures |= {f"{each.system} not_finished": each.seconds for each in game.not_finished}
        value = systems[game.ours].of(LOG_LOSS).log_loss
        assert value is not None
        note = f"ours: {game.ours}; {' '.join(report.notes)}"
        yield result(name_of(game.game), value, "nats", figures, note)


def _figures(fitted: Fitted) -> Iterator[tuple[str, float]]:
    """The figures of one system, tuned and followed, and what each step gained."""
    tuned, gain = fitted.of(LOG_LOSS), fitted.gain
    for key, value in (
        ("first", tuned.first_log_loss), (LOG_LOSS, tuned.log_loss), ("brier", tuned.brier),
        ("calibration_error", tuned.calibration_error), ("us_update", tuned.us_update),
        (ORDER, tuned.order), (ORDER_OF_ALL, tuned.order_all),
        ("failed", float(tuned.failed_rounds) or None), ("last_factor", tuned.last.factor),
        ("draw_width", tuned.last.draw_width or None), ("upset", tuned.last.upset or None),
        ("default", gain.default), ("calibrated", gain.calibrated), ("tuned", gain.tuned),
        ("validated", gain.validated), ("changes", float(fitted.changes)),
    ):  # fmt: skip
        if value is not None:
            yield key, value


def rows_of(plan: Plan) -> Iterator[Result]:
    yield from rows(play(plan))


def play(plan: Plan) -> Report:
    """Play a plan's files. Raises Skipped where one is not to be had."""
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "data"), Path(folder, "out")
        data.mkdir()
        laid_out(plan, data)
        evidence_report(
            data, out, ["games"], plan.systems, rounds=plan.rounds, trials=plan.trials,
            quick=False, where=2, cut=plan.cut, teams=plan.teams,
            seconds_per_peer=plan.seconds, whole=plan.whole,
        )  # fmt: skip
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
    bounds = replace(QUICK[0], systems=(REFERENCE,)) if quick else OTHER
    return [replace(bounds, files=(each,)) for each in files]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = a_parser("tests.benchmarks.games", __doc__)
    parser.add_argument("reports", nargs="*", type=Path, metavar="REPORT", help="a games.json")
    parser.add_argument("--file", nargs="+", type=Path, default=[], metavar="PATH",
                        help="files of rounds to play in place of the shared ones")  # fmt: skip
    asked = parsed(parser, arguments, "--file")
    reported = [rows(read(path)) for path in asked.reports]
    parts = reported or map(rows_of, _plans(asked.file, quick=asked.quick))
    return end("bench-games", asked, show((("games", each) for each in parts), tabled=False))


if __name__ == "__main__":
    sys.exit(main())
