"""`winners/cwl/elo-mmr`…: how well winners of whole rounds are predicted before each is rated, and
whether the probabilities hold. Systems: Elo-MMR, also with the variance factor that suits the first
tenth, Elo with each player's mean over all pairs, and openskill.py's `predict_win`."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from stream_rater.evaluation import winners
from stream_rater.evaluation.accuracy import averages
from stream_rater.evaluation.evaluation import evaluate, trained
from stream_rater.evaluation.measures import WinBin
from stream_rater.evaluation.season import before
from stream_rater.evaluation.sides import calibration_of, own_run
from stream_rater.operations.evaluate import SeasonFile
from stream_rater.rating.model import DID_NOT_FINISH, LAST
from stream_rater.rating.parameters import EloMMR, PairwiseElo, RatingConfig
from stream_rater.rating.wins import ANY
from tests.benchmarks.lab.game import singly
from tests.benchmarks.lab.peers import peer_module
from tests.benchmarks.measure import Effort, Result, Skipped, result
from tests.benchmarks.offline import FILES, shared

TRAIN, FITTED = 0.1, "elo-mmr-factor"
ELO_MMR = EloMMR(weight_limit=0.2, sigma_limit=80.0)
ELO = PairwiseElo(learning_rate=32.0, scale=174.0, pairs="average", dnf="tied-last")


def _ours(model: str, config: RatingConfig, name: str, _: Effort) -> Result:
    season = SeasonFile(shared(name))
    sessions = season.play(list)
    first = before(sessions, trained(season.file.mistakes.valid_lines, TRAIN))
    factor = calibration_of(own_run(first, config)).factor if model == FITTED else 1.0
    outcome = evaluate(sessions, config, variance_factor=factor, most_sides=ANY)
    means = averages(outcome.scored(TRAIN))
    log_loss, brier = means["winner_log_loss"], means["winner_brier"]
    assert log_loss is not None and brier is not None
    return _result(name, model, log_loss, brier, outcome.calibration(TRAIN), factor)


def _openskill(name: str, _: Effort) -> Result:
    try:
        model: Any = peer_module("openskill.models").PlackettLuce()
    except ImportError:
        raise Skipped("openskill is not installed: `make bench` does it") from None
    rounds = list(_rounds(name))
    ratings: dict[tuple[str, int], Any] = {}
    starts, place, win = [0], list[int](), list[float]()
    for sides in rounds:
        teams = [[ratings.setdefault(p, model.rating()) for p in team] for team, _ in sides]
        ranks = [rank for _, rank in sides]
        win += model.predict_win(teams)
        place += ranks
        starts.append(len(place))
        if sides[0][1] == LAST:  # nobody finished: ours learn nothing of it, either
            continue
        for side, rated in zip(sides, model.rate(teams, ranks=ranks), strict=True):
            ratings.update(zip(side[0], rated, strict=True))
    at, places, chances = np.array(starts), np.array(place, np.int32), np.array(win)
    scores = winners.score(at, places, chances, False)
    predictions = winners.win_predictions(at, places, chances, scores[:, 0] > 0.0)
    first = trained(len(rounds), TRAIN)
    log_loss, brier = scores[first:][scores[first:, 0] > 0.0, 1:].mean(axis=0).tolist()
    bins = winners.calibration(predictions.of(predictions.round >= first))
    return _result(name, "openskill", log_loss, brier, bins, 1.0)


def _rounds(name: str) -> Iterator[list[tuple[list[tuple[str, int]], int]]]:
    """The sides of each round that ours are scored on, best first; unfinished ones tie last."""
    for session in singly(SeasonFile(shared(name)).play(list)):
        place, rows = session.rounds.place, session.rows.tolist()
        ranks = np.where(place == DID_NOT_FINISH, LAST, place).tolist()
        ends = np.cumsum(session.rounds.members).tolist()
        yield [
            ([(session.ladder, row) for row in rows[end - size : end]], rank)
            for end, size, rank in zip(ends, session.rounds.members.tolist(), ranks, strict=True)
        ]


def _result(
    name: str, model: str, log_loss: float, brier: float, bins: Sequence[WinBin], factor: float
) -> Result:
    """The error is the mean distance of a bin's probability from the part that won, by sides."""
    sides = sum(each.sides for each in bins)
    error = sum(each.sides * abs(each.foretold - each.won) for each in bins) / sides
    ratio = {"brier": brier, "calibration_error": error, "factor": factor}
    note = f"rounds after the first {TRAIN:.0%}"
    return result(f"winners/{name}/{model}", log_loss, "nats", ratio, note)


MODELS: dict[str, Callable[[str, Effort], Result]] = {
    "elo-mmr": partial(_ours, "elo-mmr", ELO_MMR), FITTED: partial(_ours, FITTED, ELO_MMR),
    "elo": partial(_ours, "elo", ELO), "openskill": _openskill,
}  # fmt: skip
BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    f"winners/{name}/{model}": partial(measure, name)
    for name in FILES
    for model, measure in MODELS.items()
    if (name, model) != ("codeforces", "openskill")  # it takes the square of a round's sides
}
