"""Computes the effect of a correction part or a seed part on a shard: the new records, and events.

A row of a correction is fresh by the same rule as all rows: the correction's offset is after the
belief's `last`. The new record is the one in the part, with the correction's offset as its `last`.
If the displayed rating moves less than the part's threshold, the record is marked `untold` and no
event is published. The event of the player's next round or correction then has the last published
values as its previous ones.

A row of a seed part is fresh if, besides, the player has no round (a seed) or has one (a reset). So
a player who has no belief, or one that corrections have emptied, takes the first seed. The belief
of a row that is not fresh stays as it is, its `last` too: the row says nothing about it.

All these events begin with the values that were last published, or with the ladder's initial ones.
So the sum of all published differences is the rating. If a belief itself does not have these values
as its previous ones, the call notes them (`changes.SHOWN`), so that step 11 can build the event
again.

Events of corrections are rare compared with events of rounds, so each is made from its struct.
Their ids have four parts, and the ids of round events have three. So no event of a correction has
the same id as an event of a round.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_column import RecordColumn
from stream_rater.contract.events import CorrectionCause, joined, to_json
from stream_rater.pipeline.parts.belief_parts import BeliefPart, CorrectionPart, SeedPart
from stream_rater.pipeline.ports import Event, StoredShard
from stream_rater.pipeline.updater import changes
from stream_rater.pipeline.updater.changes import Change, Disagreement
from stream_rater.pipeline.updater.rating_events import BELIEF, Events, encode_events
from stream_rater.pipeline.updater.shard import ShardBatch
from stream_rater.rating import record, seasons
from stream_rater.rating.model import DID_NOT_FINISH, NEVER, Beliefs, Table
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.rating_changes import rating_changed

CORRECTION = "correction"
"""The second part of the event id of a correction. A round's event id has the round's id there."""


def compute_given(batch: ShardBatch, stored: Mapping[int, StoredShard]) -> dict[int, Change]:
    """Apply a correction part or a seed part to the stored records of its shard. Returns the
    shard's change; nothing is written. Raises UnknownRecord."""
    part, (shard,) = _part(batch), batch.parts
    present = stored[shard]
    before = record.headers_of(present.records)
    idle = 0
    if isinstance(part, CorrectionPart):
        fresh: Flags = part.offset > _last(before)
    else:
        takes, later = _takes(part, before), _is_later(part, before)
        fresh, idle = takes & later, int(np.count_nonzero(later & ~takes))
    chosen = np.flatnonzero(fresh)
    own, records, before = part, present.column, before[chosen]
    if isinstance(own, CorrectionPart):
        beliefs, shown = _corrected(own, chosen, before), changes.NO_SHOWN
    else:
        own, records = own.take(chosen), records.take(chosen)
        beliefs, shown = _seeded(own, records), _shown(own, before)
    notes = np.packbits(fresh).tobytes() + shown.tobytes()
    change = Change(
        present.position.advanced(batch.ends[shard], notes, batch.tails[shard]),
        changes.encoded(batch.players[shard].take(chosen), beliefs),
        records.absent,
        rows=len(part),
        fresh=len(chosen),
        without_effect=idle,
        events=_events(shard, own, chosen, changes.as_published(beliefs.header, shown)),
    )
    return {shard: change}


def build_given_events_again(
    shard: int, call: ShardBatch, stored: StoredShard, committed: int
) -> Events:
    """Build the events of a shard's last call again, if it applied a correction part or a seed part
    (step 11). If the part is before the offset `committed`, its events are published already, and
    none are returned. Raises Disagreement and UnknownRecord."""
    part, notes = _part(call), stored.position.fresh
    fresh, _, shown = changes.decode_notes(notes, np.arange(len(part)))
    if isinstance(part, CorrectionPart) and len(shown):
        raise Disagreement(notes, len(part), (len(part) + 7) // 8)
    header = changes.as_published(record.headers_of(stored.records)[fresh], shown)
    return Events() if call.ends[shard] <= committed else _events(shard, part, fresh, header)


def _part(batch: ShardBatch) -> BeliefPart:
    assert batch.given is not None, "the batch is of such a part"
    return batch.given


def _last(before: Table) -> Ints:
    """(n,) the offset of the last row that changed each belief."""
    return np.where(before["version"] == 0, NEVER, before["last"])


def _is_later(part: SeedPart, before: Table) -> Flags:
    """(n,) whether each row is after the last one that changed its player's belief."""
    later: Flags = part.offset > _last(before)
    return later


def _takes(part: SeedPart, before: Table) -> Flags:
    """(n,) whether each player takes a row: a seed without a round, a reset with one."""
    takes: Flags = (before["rounds"] > 0) == part.is_reset
    return takes


def last_published(part: BeliefPart, before: Table) -> tuple[Table, Table]:
    """(n,) mu and (n,) sigma as last published of players whose belief headers are `before`."""
    mu = np.where(before["untold"] != 0, before["previous_mu"], before["mu"])
    sigma = np.where(before["untold"] != 0, before["previous_sigma"], before["sigma"])
    new = before["version"] == 0
    return np.where(new, part.rule.initial_mu, mu), np.where(new, part.rule.initial_sigma, sigma)


def _corrected(part: CorrectionPart, rows: Ints, before: Table) -> Beliefs:
    """The beliefs that these rows of a part give to players whose belief headers were `before`."""
    # The initial values are not used: each player of the part has a record.
    beliefs = record.decode([part.records[i] for i in rows.tolist()], 0, 0.0, 1.0)
    header = beliefs.header
    header["last"] = part.offset
    header["previous_mu"], header["previous_sigma"] = last_published(part, before)
    now = part.rule.rating(header["mu"], header["sigma"])
    previous = part.rule.rating(header["previous_mu"], header["previous_sigma"])
    header["untold"] = np.abs(now - previous) < part.threshold
    return beliefs


def _seeded(part: SeedPart, records: RecordColumn) -> Beliefs:
    """The beliefs after the seeds or resets of a part. `records` are those before it."""
    rule = part.rule
    if not part.is_reset:
        given = part.mu, part.sigma, part.rounds
        header = seasons.seeded(rule, *given, part.time, part.offset)
        return Beliefs(header, np.zeros((len(part), 1), np.int64))
    beliefs = record.decode(records, rule.kept + 1, rule.initial_mu, rule.initial_sigma)
    for number, each in enumerate(part.records):
        rows = np.flatnonzero(part.record == number)
        seasons.reset(rule, beliefs, rows, part.mu[rows], part.sigma[rows], each.offset)
    return beliefs


def _shown(part: SeedPart, before: Table) -> Table:
    """The SHOWN of each fresh row whose belief will not have the last published values as its
    previous ones. `before` (n,) has the headers of the beliefs before these rows."""
    rows: Ints = np.flatnonzero(before["untold" if part.is_reset else "version"] != 0)
    shown = np.empty(len(rows), changes.SHOWN)
    shown["row"], (shown["mu"], shown["sigma"]) = rows, last_published(part, before[rows])
    return shown


def _events(shard: int, part: BeliefPart, rows: Ints, header: Table) -> Events:
    """The events of these rows of a part, whose `header` is as events publish it. Rows of
    corrections that stay unannounced have none."""
    if isinstance(part, SeedPart):
        cuts = {shard: slice(0, len(rows))}
        own = part if len(part) == len(rows) else part.take(rows)
        return encode_events(own.as_rows, header, cuts, part.kind)[shard]
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
    """Encode the events of a correction for players of one shard. `header` (n,) has the belief
    headers after the correction. Their previous mu and sigma are those that were last published.
    `published` (n,) selects the players who get an event. `completed_at` is the time of all
    events."""
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
