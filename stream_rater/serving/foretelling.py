"""Predictions of rounds of players that the index knows, and of newcomers."""

from collections.abc import Sequence

import numpy as np

from stream_rater.columns.ranges import bounds
from stream_rater.predictions.wins import expected_ranks, performances_of, win_probabilities
from stream_rater.rating.parameters import RatingConfig
from stream_rater.serving.answers import PredictAnswer, SideAnswer, SideQuestion
from stream_rater.serving.problems import Refused


def check_sides(sides: Sequence[SideQuestion], most: int) -> None:
    """Raises Refused for sides that can play no round: a player twice, too many, other shares."""
    seen: dict[str, str] = {}
    for i, side in enumerate(sides):
        place = f"body.sides[{i}]"
        if side.shares is not None and len(side.shares) != len(side.players):
            raise Refused(
                "invalid", f"{len(side.shares)} shares of {len(side.players)} players: give one "
                "for each player, or none", f"{place}.shares",
            )  # fmt: skip
        for k, player in enumerate(side.players):
            where = f"{place}.players[{k}]"
            if player in seen:
                raise Refused(
                    "invalid", f"{player!r} stands at {seen[player]}, too: name each player once",
                    where,
                )  # fmt: skip
            seen[player] = where
    if len(seen) > most:
        raise Refused("invalid", f"{len(seen):,} players: ask about {most:,} at most", "body.sides")


def predicted(
    config: RatingConfig, sides: Sequence[SideQuestion], mu: Sequence[float],
    sigma: Sequence[float],
) -> PredictAnswer:  # fmt: skip
    """What to expect of a round. `mu` and `sigma` are the players', in the order of the sides."""
    share = np.concatenate([side.shares or [1.0] * len(side.players) for side in sides])
    starts = bounds(np.array([len(side.players) for side in sides], np.int64))
    performances = performances_of(config, starts, share, np.array(mu), np.array(sigma))
    wins, ranks = win_probabilities(performances), expected_ranks(*performances)
    return PredictAnswer(
        sides=[
            SideAnswer(players=side.players, win=win, expected_rank=rank)
            for side, win, rank in zip(sides, wins.tolist(), ranks.tolist(), strict=True)
        ]
    )
