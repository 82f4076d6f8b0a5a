"""Games as rows of the documents' tables (`tests.benchmarks.document`)."""

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from stream_rater.evaluation.fits import DEFAULT, LOG_LOSS
from tests.benchmarks.lab import games
from tests.benchmarks.lab.forward import CALIBRATED, ORDER, ORDER_OF_ALL, Fitted
from tests.benchmarks.lab.games import CANDIDATES
from tests.benchmarks.measure import Result, result

EDGES = ("mean", "low", "high")


class Report(msgspec.Struct):
    """A file games.json."""

    notes: list[str]
    games: list[games.Result]


def name_of(game: str) -> str:
    """The row of a game: `codeforces, 5 against 5` is games/codeforces/5-against-5."""
    return "games/" + re.sub(r", ", "/", game).replace(" ", "-")


def rows(report: Report) -> Iterator[Result]:
    """One row a game: the log loss of ours, figures such as `elo-mmr log_loss`, and comparisons.
    `trueskill-package log_loss log_loss low` is of ours and a peer, both tuned for the first
    measure, in the second. Of each of CANDIDATES, `elo-mmr raw-tuned order worse` is how often it
    is so in this case, and `elo-mmr raw-tuned order plain-elo mean` by how much."""
    for game in report.games:
        ours = next((each for each in game.systems if each.system == game.ours), None)
        value = ours.of(LOG_LOSS).log_loss if ours is not None else None
        if value is None:  # nothing is scored
            continue
        figures = {"rounds": float(game.rounds), "sides": game.sides}
        if game.draws_scored:
            figures["draws"] = float(game.draws_scored)
        for each in game.systems:
            figures |= {f"{each.system} {key}": value for key, value in _figures(each)}
        said = [(v, v.verdict.replace(" ", "_")) for v in game.verdicts]
        counts = Counter(f"{v.ours} {word}" for v, word in said if v.case == games.TUNED)
        counts.update(f"{_case(v)} {word}" for v, word in said if v.ours in CANDIDATES)
        figures |= {key: float(count) for key, count in counts.items()}
        for v in game.verdicts:
            if (v.ours, v.case, v.measure) == (game.ours, games.TUNED, LOG_LOSS):
                for edge in EDGES:
                    figures[f"{v.peer} {LOG_LOSS} {LOG_LOSS} {edge}"] = getattr(v.difference, edge)
            if v.ours in CANDIDATES and v.verdict == "worse":
                figures[f"{_case(v)} {v.peer} mean"] = v.difference.mean
        figures |= {f"{each.system} not_finished": each.seconds for each in game.not_finished}
        note = f"ours: {game.ours}; {' '.join(report.notes)}"
        yield result(name_of(game.game), value, "nats", figures, note)


def _case(v: games.Verdict) -> str:
    return f"{v.ours} {v.case} {ORDER if v.measure == ORDER_OF_ALL else v.measure}"


def _figures(fitted: Fitted) -> Iterator[tuple[str, float]]:
    """The figures of one system, tuned and followed, and what each step gained."""
    raw, calibrated, tuned = map(fitted.of, (DEFAULT, CALIBRATED, LOG_LOSS))
    for key, value in (
        ("first", tuned.first_log_loss), (LOG_LOSS, tuned.log_loss), ("brier", tuned.brier),
        ("calibration_error", tuned.calibration_error), ("us_update", tuned.us_update),
        ("raw_error", raw.calibration_error), ("calibrated_error", calibrated.calibration_error),
        ("chance_error", calibrated.chance_error),
        (ORDER, tuned.order), (ORDER_OF_ALL, tuned.order_all),
        ("failed", float(tuned.failed_rounds) or None), ("last_factor", tuned.last.factor),
        ("draw_width", tuned.last.draw_width or None), ("upset", tuned.last.upset or None),
        *fitted.gain.items(), ("changes", float(fitted.changes)),
    ):  # fmt: skip
        if value is not None:
            yield key, value
