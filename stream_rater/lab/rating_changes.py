"""What a round changed, as the stream would tell it: `rating-changed` without a stream.

The fields are those of the service's events and so are their values, because both come from the
same beliefs. Only the order differs: the service writes the events of a round shard by shard.
"""

from collections.abc import Iterator

import numpy as np

from stream_rater.contract.events import RatingChanged, joined
from stream_rater.lab.offline import Rated
from stream_rater.rating.model import DID_NOT_FINISH, PERFORMANCE
from stream_rater.rating.systems import ratings


def changes_of(rated: Rated) -> Iterator[RatingChanged]:
    """One event for each player of a round, in order of place; to be asked before the next round
    is rated."""
    if rated.changed is None:
        return
    standings, pool = rated.standings, rated.pool
    rows, evidence = rated.changed
    header = pool.headers(rows)
    rule, same = [pool.rule], np.zeros(len(rows), np.int64)
    now = ratings(rule, same, header["mu"], header["sigma"]).tolist()
    before = ratings(rule, same, header["previous_mu"], header["previous_sigma"]).tolist()
    places = standings.player_places().tolist()
    for i, player in enumerate(standings.players):
        held = header[i]
        yield RatingChanged(
            event_id=joined(standings.ladder, standings.round_id, player),
            ladder=standings.ladder,
            player=player,
            round_id=standings.round_id,
            completed_at=standings.completed_at,
            rank=None if places[i] == DID_NOT_FINISH else places[i],
            mu=float(held["mu"]),
            sigma=float(held["sigma"]),
            previous_mu=float(held["previous_mu"]),
            previous_sigma=float(held["previous_sigma"]),
            performance=float(evidence[i, PERFORMANCE]),
            rating=now[i],
            previous_rating=before[i],
            rounds=int(held["rounds"]),
            provisional=int(held["rounds"]) < pool.rule.provisional_rounds,
        )
