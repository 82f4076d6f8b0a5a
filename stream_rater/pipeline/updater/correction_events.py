"""The `rating-changed` events of a correction: one for each player whom it is to tell.

They are rare beside those of rounds, so each is made from its struct. Their ids have four parts,
those of rounds three: no correction's event has the id of a round's.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.contract.events import CorrectionCause, joined, to_json
from stream_rater.pipeline.ports import Event
from stream_rater.rating.model import DID_NOT_FINISH, Table
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.rating_changes import changed_of

CORRECTION = "correction"
"""The second part of an event id, where that of a round has the round's id."""

_BELIEF = ("mu", "sigma", "previous_mu", "previous_sigma")


def correction_events(
    shard: int, ladder: str, cause: CorrectionCause, completed_at: str, rule: RatingRule,
    players: Sequence[str], header: Table, tell: Flags,
) -> list[Event]:  # fmt: skip
    """Encode the events of a correction for players of one shard.

    `header` holds the (n,) belief headers after it, with the mu and sigma that each player was last
    told as the previous ones. `tell` (n,) chooses who is told. `completed_at` is the time of all
    events.
    """
    numbers = np.column_stack([header[name] for name in _BELIEF]).tolist()
    rounds = header["rounds"].tolist()
    events = []
    for i in np.flatnonzero(tell).tolist():
        mu, sigma, previous_mu, previous_sigma = numbers[i]
        shown = rule.rating(mu, sigma), rule.rating(previous_mu, previous_sigma)
        of_round = changed_of(
            ladder, cause.round_id, players[i], completed_at, DID_NOT_FINISH,
            (mu, sigma, previous_mu, previous_sigma, 0.0, *shown), rounds[i], cause.offset, rule,
        )  # fmt: skip
        event_id = joined(ladder, CORRECTION, str(cause.offset), players[i])
        changed = msgspec.structs.replace(
            of_round, event_id=event_id, performance=None, correction=cause
        )
        key = joined(ladder, players[i]).encode()
        events.append(Event(shard, key, to_json(changed), event_id.encode(), completed_at))
    return events
