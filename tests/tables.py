"""The tables of Kerby's note on real rounds, round by round: Kendall tau, method by method.

`stream-rater evidence FOLDER --only kerby --season 749` makes them by the laboratory's code. This
module counts pairs by itself, and can leave out the players who were deleted since.
`python -m tests.tables` prints both beside the note's figures (set STREAM_RATER_SHARED).
"""

import gzip
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.config.ladders import Ladder, any_ladder
from stream_rater.contract.events import RoundCompleted
from stream_rater.evaluation.research.kerby import METHODS
from stream_rater.rating.model import DID_NOT_FINISH, Places
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.pool import Pool
from stream_rater.rounds.batch import OneRound
from stream_rater.rounds.validation import MIN_ENTRIES
from tests.rounds import Reader

SEASON_1 = 749
"""Rounds; the boundary is not in the data (shared/data/README.md: 748 to 750)."""


def discordant(place: Places, rating: Floats) -> tuple[float, int]:
    """(pairs that the lower rated won, equal ratings half; pairs not tied in rank)."""
    last = np.iinfo(np.int32).max
    rank = np.where(place == DID_NOT_FINISH, last, place)
    better = rank[:, None] < rank[None, :]
    gap = rating[:, None] - rating[None, :]
    wrong = np.count_nonzero(better & (gap < 0.0)) + 0.5 * np.count_nonzero(better & (gap == 0.0))
    return wrong, int(np.count_nonzero(better))


def kendall_tau(config: RatingConfig, rounds: Sequence[OneRound]) -> float:
    """Share of discordant pairs by the displayed ratings before each round."""
    pool = Pool(Ladder(rating=config))
    rating: dict[str, float] = {}
    newcomer = pool.rule.rating(config.initial_mu, config.initial_sigma)
    wrong, pairs = 0.0, 0
    for offset, standings in enumerate(rounds):
        shown = np.array([rating.get(player, newcomer) for player in standings.players])
        bad, compared = discordant(standings.place, shown)
        wrong, pairs = wrong + bad, pairs + compared
        rated = pool.rate(standings, offset)
        if rated is not None:
            _, evidence = rated  # all these systems are memoryless: it is mu and sigma
            after = pool.rule.rating(evidence[:, 1], evidence[:, 2])
            rating.update(zip(standings.players, after.tolist(), strict=True))
    return wrong / pairs


def without_deleted(event: RoundCompleted) -> RoundCompleted:
    """A round as the note's author had it: deleted players were gone."""
    standings = [each for each in event.standings if not (each.player or "").startswith("deleted-")]
    return msgspec.structs.replace(event, standings=standings)


def seasons(shared: Path, *, deleted: bool = True) -> tuple[list[OneRound], list[OneRound]]:
    """Map Rando's first season, and the later ones; perhaps without players since deleted."""
    reader = Reader(any_ladder(METHODS["thurstone"].config))
    found: list[list[OneRound]] = [[], []]
    with gzip.open(shared / "data" / "map-rando.jsonl.gz") as file:
        for number, line in enumerate(file):
            event = msgspec.json.decode(line, type=RoundCompleted)
            kept = event if deleted else without_deleted(event)
            if len(kept.standings) >= MIN_ENTRIES:
                found[number >= SEASON_1].append(reader.read(msgspec.json.encode(kept)))
    return found[0], found[1]


def main() -> None:
    """Print the tables."""
    shared = Path(os.environ["STREAM_RATER_SHARED"])
    parts = [*seasons(shared), *seasons(shared, deleted=False)]
    print("season 1, note, later, note; and without deleted players: season 1, later")
    for name, method in METHODS.items():
        first, later, bare, bare_later = (kendall_tau(method.config, part) for part in parts)
        print(
            f"{name:36} {first:.4f} {method.season_1} {later:.4f} {method.later}"
            f"   {bare:.4f} {bare_later:.4f}"
        )


if __name__ == "__main__":
    main()
