"""`python -m tests.benchmarks.games`: all systems and peers on real games, by `evidence --only
games`. A JSON object for each game on standard output.

Without arguments the shared files are played. The rounds of `codeforces` have thousands of players:
only its first rounds are played, as they are and cut. With reports (games.json) their games are
printed instead.

Exit code 0: all was played; 1: a file was skipped, the reason is on standard error.
"""

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stream_rater.evaluation.executors import Processes
from stream_rater.evaluation.fits import AIMS, LOG_LOSS, ORDER, ORDER_OF_ALL, Fitted
from stream_rater.evaluation.research.games import Result as Game
from stream_rater.evaluation.spaces import SPACES
from stream_rater.operations.evidence import evidence_report
from tests.benchmarks.document import writing
from tests.benchmarks.measure import Result, Skipped, result
from tests.benchmarks.offline import shared


@dataclass(frozen=True)
class Plan:
    """Files to play alike, and within which bounds."""

    files: Sequence[str]
    trials: int
    rounds: int | None = None
    cut: Sequence[int] = ()
    teams: int | None = None


PLANS = (
    Plan(("cwl", "formula-one", "map-rando"), 100),
    Plan(("codeforces",), 30, 80, (2, 5, 10, 20, 50), 5),
)
QUICK = (Plan(("map-rando",), 3, 60),)


class Report(msgspec.Struct):
    """A file games.json."""

    notes: list[str]
    games: list[Game]


def name_of(game: str) -> str:
    """The row of a game: `codeforces, 5 against 5` is games/codeforces/5-against-5."""
    return "games/" + re.sub(r", ", "/", game).replace(" ", "-")


def rows(report: Report) -> Iterator[Result]:
    """One row a game. Its value is the log loss of ours; figures of systems have names such as
    `elo-mmr log_loss`, and comparisons of ours such as `trueskill-package log_loss pair_inversion
    low`: the peer, what both are tuned for, the measure."""
    for game in report.games:
        systems = {each.system: each for each in game.systems}
        if game.ours is None:
            continue
        figures = {"rounds": float(game.rounds), "sides": game.sides}
        for each in game.systems:
            figures |= {f"{each.system} {key}": value for key, value in _figures(each)}
        for (system, verdict), count in Counter((v.ours, v.verdict) for v in game.verdicts).items():
            figures[f"{system} {verdict.replace(' ', '_')}"] = float(count)
        for v in game.of_chosen():
            for edge in ("mean", "low", "high"):
                key = f"{v.peer} {v.tuned_for} {v.measure} {edge}"
                figures[key] = getattr(v.difference, edge)
        value = systems[game.ours].of(LOG_LOSS).log_loss
        assert value is not None
        note = f"ours: {game.ours}; {' '.join(report.notes)}"
        yield result(name_of(game.game), value, "nats", figures, note)


def _figures(fitted: Fitted) -> Iterator[tuple[str, float]]:
    """Of one system: those tuned for log loss, and the order where it is tuned for order."""
    by_loss, by_order = (fitted.of(aim) for aim in AIMS)
    default = fitted.gain.default
    for key, value in (
        ("first", by_loss.first_log_loss), ("default", default), (LOG_LOSS, by_loss.log_loss),
        ("brier", by_loss.brier),
        ("calibration_error", by_loss.calibration_error), ("us_update", by_loss.us_update),
        (ORDER, by_loss.pair_inversion), (ORDER_OF_ALL, by_loss.pair_inversion_all),
        ("tuned_order", by_order.pair_inversion),
        ("failed", float(by_loss.failed_rounds) or None),
        ("failed_order", float(by_order.failed_rounds) or None),
        ("no_prior", fitted.gain.without_prior),
        ("with_factor", fitted.gain.with_factor), ("last_factor", by_loss.last_factor),
    ):  # fmt: skip
        if value is not None:
            yield key, value


def play(plan: Plan) -> Report:
    """Play a plan's files. Raises Skipped where one is not to be had."""
    paths = [shared(name) for name in plan.files]
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "data"), Path(folder, "out")
        data.mkdir()
        for path in paths:
            (data / path.name).symlink_to(path)
        evidence_report(
            data, out, ["games"], tuple(SPACES), rounds=plan.rounds, trials=plan.trials,
            quick=False, where=Processes(2), cut=plan.cut, teams=plan.teams,
        )  # fmt: skip
        return read(out / "games.json")


def read(path: Path) -> Report:
    """A report that was written."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rows of all games."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.games", description=__doc__)
    parser.add_argument("reports", nargs="*", type=Path, metavar="REPORT", help="a games.json")
    parser.add_argument("--quick", action="store_true", help="a little: does it run?")
    writing.add_option(parser)
    asked = parser.parse_args(arguments)
    writing.check(parser, write=asked.write, unlike={"--quick": asked.quick})
    done, skipped = list[Result](), False
    for each in asked.reports or (QUICK if asked.quick else PLANS):
        try:
            report = play(each) if isinstance(each, Plan) else read(each)
        except Skipped as reason:
            print(f"games: skipped: {reason}", file=sys.stderr)
            skipped = True
            continue
        for row in rows(report):
            print(msgspec.json.encode(row).decode(), flush=True)
            done.append(row)
    if asked.write:
        writing.write_run("bench-games", done, sys.argv[1:] if arguments is None else arguments)
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
