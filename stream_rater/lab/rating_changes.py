"""What rounds changed, as the stream would tell it: `rating-changed` without a stream.

The fields are those of the service's events and so are their values, because both come from the
same beliefs. Only the order differs: the service writes the events of a round shard by shard.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from stream_rater.columns.ranges import bounds
from stream_rater.contract.events import RatingChanged, joined
from stream_rater.lab.offline import Rated, RatedBatch
from stream_rater.rating.model import DID_NOT_FINISH, PERFORMANCE
from stream_rater.rating.systems import ratings


def changes_of(batch: RatedBatch) -> Iterator[RatingChanged]:
    """One event for each player of each round; in order of the file, and of place."""
    by_round: dict[int, Sequence[RatingChanged]] = {}
    for rated in batch.rated:
        events = _events(rated)
        starts = bounds(rated.rounds.sizes).tolist()
        for i, number in enumerate(rated.chosen.tolist()):
            by_round[number] = events[starts[i] : starts[i + 1]]
    for number in sorted(by_round):
        yield from by_round[number]


def _events(rated: Rated) -> list[RatingChanged]:
    """Those of the rounds of one ladder, round by round."""
    rule, same, rounds = [rated.rule], np.zeros(len(rated.rows), np.int64), rated.rounds
    wave, evidence, after = rated.folded
    columns = zip(
        np.repeat(np.arange(len(rounds)), rounds.sizes).tolist(),
        rounds.names.texts(),
        np.repeat(rounds.place, rounds.members).tolist(),
        after.mu.tolist(), after.sigma.tolist(), wave.mu.tolist(), wave.sigma.tolist(),
        evidence[:, PERFORMANCE].tolist(),
        ratings(rule, same, after.mu, after.sigma).tolist(),
        ratings(rule, same, wave.mu, wave.sigma).tolist(),
        (wave.rounds + 1).tolist(), strict=True,
    )  # fmt: skip
    return [
        RatingChanged(
            event_id=joined(rounds.heads[i].ladder, rounds.heads[i].round_id, player),
            ladder=rounds.heads[i].ladder,
            player=player,
            round_id=rounds.heads[i].round_id,
            completed_at=rounds.heads[i].completed_at,
            rank=None if place == DID_NOT_FINISH else place,
            mu=mu,
            sigma=sigma,
            previous_mu=previous_mu,
            previous_sigma=previous_sigma,
            performance=performance,
            rating=rating,
            previous_rating=previous_rating,
            rounds=played,
            provisional=played < rated.rule.provisional_rounds,
        )
        for (
            i, player, place, mu, sigma, previous_mu, previous_sigma, performance, rating,
            previous_rating, played,
        ) in columns
    ]  # fmt: skip
