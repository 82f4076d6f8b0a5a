"""Computes the effect of a correction part on a shard: the replaced records, and their events.

A row is fresh by the same rule as all rows: the correction's offset is after the belief's `last`.
The new record is the one in the part, with the correction's offset as its `last`. Its previous mu
and sigma are those that were last published. So the sum of all published differences is the rating.

If the displayed rating moves less than the part's threshold, the record is marked `untold` and no
event is published. The event of the player's next round or correction then has the last published
values as its previous ones.

Events of corrections are rare compared with events of rounds, so each is made from its struct.
Their ids have four parts, and the ids of round events have three. So no event of a correction has
the same id as an event of a round.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.contract.events import CorrectionCause, joined, to_json
from stream_rater.pipeline.parts.correction_parts import CorrectionPart
from stream_rater.pipeline.parts.seed_parts import SeedPart
from stream_rater.pipeline.ports import Event, StoredShard
from stream_rater.pipeline.updater.changes import Change, Disagreement, encoded
from stream_rater.pipeline.updater.rating_events import BELIEF, Events
from stream_rater.pipeline.updater.shard import ShardBatch
from stream_rater.rating import record
from stream_rater.rating.model import DID_NOT_FINISH, NEVER, Beliefs, Table
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.rating_changes import rating_changed

CORRECTION = "correction"
"""The second part of the event id of a correction. A round's event id has the round's id there."""


def compute_correction(batch: ShardBatch, stored: Mapping[int, StoredShard]) -> dict[int, Change]:
    """Apply a correction part to the stored records of its shard. Returns the shard's change;
    nothing is written. Raises UnknownRecord."""
    part, (shard,) = _part(batch), batch.parts
    present = stored[shard]
    before = record.headers_of(present.records)
    last = np.where(before["version"] == 0, NEVER, before["last"])
    fresh: Flags = part.offset > last
    chosen = np.flatnonzero(fresh)
    # The initial values are not used: each player of the part has a record.
    beliefs = record.decode([part.records[i] for i in chosen.tolist()], 0, 0.0, 1.0)
    _set_headers(part, beliefs, before[chosen])
    notes = np.packbits(fresh).tobytes()
    change = Change(
        present.position.advanced(batch.ends[shard], notes, batch.tails[shard]),
        encoded(batch.players[shard].take(chosen), beliefs),
        present.column.absent,
        rows=len(part),
        fresh=len(chosen),
        events=_events(shard, part, chosen, beliefs.header),
    )
    return {shard: change}


def build_correction_events_again(
    shard: int, call: ShardBatch, stored: StoredShard, committed: int
) -> Events:
    """Build the events of a shard's last call again, if the call applied a correction part (step
    11). If the part is before the offset `committed`, its events are published already, and the
    result is empty. Raises Disagreement and UnknownRecord."""
    part, notes = _part(call), stored.position.fresh
    if len(notes) != (size := (len(part) + 7) // 8):
        raise Disagreement(notes, len(part), size)
    fresh = np.flatnonzero(np.unpackbits(np.frombuffer(notes, np.uint8), count=len(part)))
    header = record.headers_of(stored.records)[fresh]
    return Events() if call.ends[shard] <= committed else _events(shard, part, fresh, header)


def _part(batch: ShardBatch) -> CorrectionPart:
    part = batch.correction
    assert part is not None, "the batch is of a correction"
    return part


def last_published(part: CorrectionPart | SeedPart, before: Table) -> tuple[Table, Table]:
    """(n,) the mu and (n,) the sigma that were last published of players with the belief headers
    `before`."""
    mu = np.where(before["untold"] != 0, before["previous_mu"], before["mu"])
    sigma = np.where(before["untold"] != 0, before["previous_sigma"], before["sigma"])
    new = before["version"] == 0
    return np.where(new, part.rule.initial_mu, mu), np.where(new, part.rule.initial_sigma, sigma)


def _set_headers(part: CorrectionPart, beliefs: Beliefs, before: Table) -> None:
    """Set the fields of the new belief headers that depend on the correction and on the headers
    `before`."""
    header = beliefs.header
    header["last"] = part.offset
    header["previous_mu"], header["previous_sigma"] = last_published(part, before)
    now = part.rule.rating(header["mu"], header["sigma"])
    previous = part.rule.rating(header["previous_mu"], header["previous_sigma"])
    header["untold"] = np.abs(now - previous) < part.threshold


def _events(shard: int, part: CorrectionPart, rows: Ints, header: Table) -> Events:
    """The events of these rows of a part. Rows that stay unannounced have none."""
    cause = CorrectionCause(cause=part.cause, offset=part.offset, round_id=part.round_id)
    players = [part.players[i] for i in rows.tolist()]
    events = correction_events(
        shard, part.ladder, cause, part.completed_at, part.rule, players, header,
        header["untold"] == 0,
    )  # fmt: skip
    return Events.of(shard, events)


def correction_events(
    shard: int, ladder: str, cause: CorrectionCause, completed_at: str, rule: RatingRule,
    players: Sequence[str], header: Table, published: Flags,
) -> list[Event]:  # fmt: skip
    """Encode the events of a correction for players of one shard.

    `header` (n,) has the belief headers after the correction. Their previous mu and sigma are those
    that were last published. `published` (n,) selects the players who get an event. `completed_at`
    is the time of all events.
    """
    numbers = np.column_stack([header[name] for name in BELIEF]).tolist()
    rounds = header["rounds"].tolist()
    events = []
    for i in np.flatnonzero(published).tolist():
        mu, sigma, previous_mu, previous_sigma = numbers[i]
        ratings = rule.rating(mu, sigma), rule.rating(previous_mu, previous_sigma)
        round_event = rating_changed(
            ladder, cause.round_id, players[i], completed_at, DID_NOT_FINISH,
            (mu, sigma, previous_mu, previous_sigma, 0.0, *ratings), rounds[i], cause.offset, rule,
        )  # fmt: skip
        event_id = joined(ladder, CORRECTION, str(cause.offset), players[i])
        changed = msgspec.structs.replace(
            round_event, event_id=event_id, performance=None, correction=cause
        )
        key = joined(ladder, players[i]).encode()
        events.append(Event(shard, key, to_json(changed), event_id.encode(), completed_at))
    return events
