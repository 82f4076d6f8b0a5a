"""The scores of a peer on real rounds, by a scorer that shares no code with ours.

This module reads the files itself, rates them by openskill itself, and scores openskill's own
predictions in plain Python. `stream_rater` is used on the other side of the comparison alone.
"""

import gzip
import json
import math
import os
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from stream_rater.evaluation import peers
from stream_rater.evaluation.accuracy import average
from stream_rater.evaluation.contestants import PeerSystem
from stream_rater.evaluation.sides import Run, scores_of
from stream_rater.operations.evidence import load
from stream_rater.operations.input_file import RoundsFile
from tests.builders.cases import cases

PEER = "openskill-thurstone-mosteller"
ROUNDS = {"clubs": 3000, "frc": 2000}
"""A file of duels with draws, and one of teams."""
BETA, TAU = 9.0, 0.25
KNOWN = 5
"""A side is experienced if each of its members has played so many rounds before."""

pytestmark = pytest.mark.skipif(
    PEER in peers.missing(), reason="openskill is not installed: `make bench` does it"
)


def file_of(name: str) -> Path:
    beside = Path(__file__).parents[2].parent / "shared"
    path = Path(os.environ.get("STREAM_RATER_SHARED") or beside) / "data" / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"there is no {path}: set STREAM_RATER_SHARED")
    return path


class Scored(NamedTuple):
    log_loss: float
    order: float
    rounds: int


def by_hand(path: Path, count: int) -> Scored:
    """Of rounds of two sides that did not draw: the mean of -ln P(winner) by openskill's own
    `predict_win`, and the share, in %, of the experienced ones in which the side with the higher
    sum of mu won. Equal sums are right by half."""
    model: Any = peers.peer_module("openskill.models").ThurstoneMostellerFull(
        mu=0.0, sigma=25.0 / 3.0, beta=BETA, tau=TAU
    )
    ratings: dict[str, Any] = {}
    played: dict[str, int] = defaultdict(int)
    losses, right = [], []
    with gzip.open(path, "rt") as lines:
        for _, line in zip(range(count), lines, strict=False):
            standings = json.loads(line)["standings"]
            assert len(standings) == 2
            names = [each.get("team") or [each["player"]] for each in standings]
            ranks = [each["rank"] for each in standings]
            teams = [[ratings.setdefault(x, model.rating(mu=0.0, sigma=25.0 / 3.0)) for x in team]
                     for team in names]  # fmt: skip
            if ranks[0] != ranks[1]:
                winner = 0 if ranks[0] < ranks[1] else 1
                losses.append(-math.log(model.predict_win(teams)[winner]))
                if min(played[x] for team in names for x in team) >= KNOWN:
                    gap = sum(r.mu for r in teams[winner]) - sum(r.mu for r in teams[1 - winner])
                    right.append(1.0 if gap > 0.0 else 0.0 if gap < 0.0 else 0.5)
            for team, rated in zip(names, model.rate(teams, ranks=ranks), strict=True):
                for name, rating in zip(team, rated, strict=True):
                    ratings[name] = rating
                    played[name] += 1
    return Scored(math.fsum(losses) / len(losses), 100.0 * sum(right) / len(right), len(losses))


def ours(path: Path, count: int) -> Run:
    """The peer as `evidence` plays it."""
    data, _ = load(path, RoundsFile(path), count)
    return PeerSystem(PEER).play(data.sessions, peers.PeerConfig(PEER, beta=BETA, tau=TAU))


@cases("name", sorted(ROUNDS))
def test_an_independent_scorer_agrees(name: str) -> None:
    """In log loss and in order, to 1e-4, on thousands of real rounds."""
    path = file_of(name)
    scores = scores_of(ours(path, ROUNDS[name]))
    due = by_hand(path, ROUNDS[name])
    assert due.rounds > 1500
    assert average(scores, "log_loss") == pytest.approx(due.log_loss, abs=1e-4)
    assert average(scores, "order") == pytest.approx(due.order, abs=1e-4)


def test_the_independent_scorer_sees_differences() -> None:
    """Other parameters, and other rounds, have other scores."""
    path = file_of("clubs")
    found = ours(path, ROUNDS["clubs"])
    sides = structs.replace(found.sides, variance=1.2 * found.sides.variance)
    less_sure = found._replace(sides=sides)
    due, fewer = by_hand(path, ROUNDS["clubs"]), by_hand(path, ROUNDS["clubs"] - 300)
    loss = average(scores_of(less_sure), "log_loss")
    assert loss is not None and abs(loss - due.log_loss) > 1e-3
    assert abs(fewer.log_loss - due.log_loss) > 1e-4 and abs(fewer.order - due.order) > 1e-4
