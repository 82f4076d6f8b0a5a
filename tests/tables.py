"""Kendall tau of each method on real rounds, as Kerby's note has it, with pairs counted here;
`evidence FOLDER --only kerby --season 749` has the same figures by the laboratory's code."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.config.ladders import any_ladder
from stream_rater.contract.events import RoundCompleted
from stream_rater.rating.model import DID_NOT_FINISH, Places
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.pool import Pool
from stream_rater.rounds.batch import OneRound
from stream_rater.rounds.validation import MIN_ENTRIES
from tests.benchmarks.lab.kerby import METHODS
from tests.rounds import Reader

SEASON_1 = 749  # Rounds; the boundary is not in the data (shared/data/README.md: 748 to 750).


def discordant(place: Places, rating: Floats) -> tuple[float, int]:
    """Numbers of pairs that the lower rated won (equal ratings: 0.5), and of pairs not tied."""
    rank = np.where(place == DID_NOT_FINISH, np.iinfo(np.int32).max, place)
    better = rank[:, None] < rank[None, :]
    gap = rating[:, None] - rating[None, :]
    wrong = np.count_nonzero(better & (gap < 0.0)) + 0.5 * np.count_nonzero(better & (gap == 0.0))
    return wrong, int(np.count_nonzero(better))


def kendall_tau(config: RatingConfig, rounds: Sequence[OneRound]) -> float:
    """Share of discordant pairs by the displayed ratings before each round."""
    pool = Pool(config)
    rating: dict[str, float] = {}
    newcomer = pool.rule.rating(config.initial_mu, config.initial_sigma)
    wrong, pairs = 0.0, 0
    for offset, standings in enumerate(rounds):
        shown = np.array([rating.get(player, newcomer) for player in standings.players])
        bad, compared = discordant(standings.place, shown)
        wrong, pairs = wrong + bad, pairs + compared
        rated = pool.rate(standings, offset)
        if rated is not None:
            _, evidence = rated  # all these systems store mu and sigma alone
            after = pool.rule.rating(evidence[:, 1], evidence[:, 2])
            rating.update(zip(standings.players, after.tolist(), strict=True))
    return wrong / pairs


def seasons(shared: Path) -> tuple[list[OneRound], list[OneRound]]:
    """Map Rando's first season, and the later ones."""
    reader = Reader(any_ladder(METHODS["thurstone"].config))
    found: list[list[OneRound]] = [[], []]
    with gzip.open(shared / "data" / "map-rando.jsonl.gz") as file:
        for number, line in enumerate(file):
            if len(msgspec.json.decode(line, type=RoundCompleted).standings) >= MIN_ENTRIES:
                found[number >= SEASON_1].append(reader.read(line))
    return found[0], found[1]
