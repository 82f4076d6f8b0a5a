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

The ids of events of corrections have four parts, and those of other events have three. So no event
of a correction has the same id as an event of a round.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_column import RecordColumn
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.events import CorrectionCause
from stream_rater.contract.seeds import RESET, SEEDS
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.pipeline.parts.decoder import PartView, Rows
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import StoredShard
from stream_rater.pipeline.updater import changes
from stream_rater.pipeline.updater.changes import Change, Disagreement
from stream_rater.pipeline.updater.rating_events import Events, encode_events
from stream_rater.pipeline.updater.shard import ShardBatch
from stream_rater.rating import record, seasons
from stream_rater.rating.model import NEVER, Beliefs, Table
from stream_rater.rating.stages import RatingRule


def compute_given(batch: ShardBatch, stored: Mapping[int, StoredShard]) -> dict[int, Change]:
    """Apply a correction part or a seed part to the stored records of its shard. Returns the
    shard's change; nothing is written. Raises UnknownRecord."""
    part, rows, (shard,) = _part(batch), batch.rows, batch.parts
    present = stored[shard]
    before = record.headers_of(present.records)
    takes, later = _takes(part.cause, before), _is_later(rows, before)
    fresh = takes & later
    chosen = np.flatnonzero(fresh)
    own, records, before = rows.take(chosen), present.column.take(chosen), before[chosen]
    if part.cause in SEEDS:
        beliefs, shown = _seeded(part.cause, own, records), _shown(part.cause, own, before)
    else:
        beliefs, shown = _corrected(own, before, part.threshold), changes.NO_SHOWN
    notes = np.packbits(fresh).tobytes() + shown.tobytes()
    change = Change(
        present.position.advanced(batch.ends[shard], notes, batch.tails[shard]),
        changes.encoded(own.players, beliefs),
        records.absent,
        rows=len(rows),
        fresh=len(chosen),
        without_effect=int(np.count_nonzero(later & ~takes)),
        events=_events(shard, part.cause, own, changes.as_published(beliefs.header, shown)),
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
    if part.cause not in SEEDS and len(shown):
        raise Disagreement(notes, len(part), (len(part) + 7) // 8)
    header = changes.as_published(record.headers_of(stored.records)[fresh], shown)
    if call.ends[shard] <= committed:
        return Events()
    return _events(shard, part.cause, call.rows.take(fresh), header)


def _part(batch: ShardBatch) -> PartView:
    assert batch.given is not None, "the batch is of such a part"
    return batch.given


def _is_later(rows: Rows, before: Table) -> Flags:
    """(n,) whether each row is after the last one that changed its player's belief."""
    later: Flags = rows.offset > np.where(before["version"] == 0, NEVER, before["last"])
    return later


def _takes(cause: str, before: Table) -> Flags:
    """(n,) whether each player takes a row: a seed without a round, a reset with one, and a
    correction in any case."""
    if cause not in SEEDS:
        return np.ones(len(before), np.bool_)
    takes: Flags = (before["rounds"] > 0) == (cause == RESET)
    return takes


def _rule(rows: Rows) -> RatingRule:
    """The rule of these rows, which are of one part. Rows that were decoded with them may have
    others."""
    return rows.rules[int(rows.rule_index[0]) if len(rows) else 0]


def last_published(rule: RatingRule, before: Table) -> tuple[Table, Table]:
    """(n,) mu and (n,) sigma as last published of players whose belief headers are `before`."""
    mu = np.where(before["untold"] != 0, before["previous_mu"], before["mu"])
    sigma = np.where(before["untold"] != 0, before["previous_sigma"], before["sigma"])
    new = before["version"] == 0
    return np.where(new, rule.initial_mu, mu), np.where(new, rule.initial_sigma, sigma)


def _corrected(rows: Rows, before: Table, threshold: float) -> Beliefs:
    """The beliefs that these rows of corrections give to players whose belief headers were
    `before`."""
    # The initial values are not used: each player of the part has a record.
    beliefs = record.decode(rows.beliefs.strings(), 0, 0.0, 1.0)
    rule, header = _rule(rows), beliefs.header
    header["last"] = rows.offset
    header["previous_mu"], header["previous_sigma"] = last_published(rule, before)
    now = rule.rating(header["mu"], header["sigma"])
    previous = rule.rating(header["previous_mu"], header["previous_sigma"])
    header["untold"] = np.abs(now - previous) < threshold
    return beliefs


def _seeded(cause: str, rows: Rows, records: RecordColumn) -> Beliefs:
    """The beliefs after these rows of seeds or resets. `records` are those before them."""
    rule, (mu, sigma, rounds, _) = _rule(rows), rows.evidence.T
    if cause != RESET:
        header = seasons.seeded(rule, mu, sigma, rounds.astype(np.int64), rows.time, rows.offset)
        return Beliefs(header, np.zeros((len(rows), 1), np.int64))
    beliefs = record.decode(records, rule.kept + 1, rule.initial_mu, rule.initial_sigma)
    seasons.reset(rule, beliefs, np.arange(len(rows)), mu, sigma, rows.offset)
    return beliefs


def _shown(cause: str, rows: Rows, before: Table) -> Table:
    """The SHOWN of each fresh row whose belief will not have the last published values as its
    previous ones. `before` (n,) has the headers of the beliefs before these rows."""
    which: Ints = np.flatnonzero(before["untold" if cause == RESET else "version"] != 0)
    shown = np.empty(len(which), changes.SHOWN)
    shown["row"] = which
    shown["mu"], shown["sigma"] = last_published(_rule(rows), before[which])
    return shown


def _events(shard: int, cause: str, rows: Rows, header: Table) -> Events:
    """The events of these rows of a part, whose `header` is as events publish it. Rows of
    corrections that stay unannounced have none."""
    if cause not in SEEDS and header["untold"].any():
        published = np.flatnonzero(header["untold"] == 0)
        rows, header = rows.take(published), header[published]
    return encode_events(rows, header, {shard: slice(0, len(rows))}, cause)[shard]


def correction_events(
    shard: int, ladder: str, cause: CorrectionCause, completed_at: str, rule: RatingRule,
    players: Sequence[str], header: Table,
) -> Events:  # fmt: skip
    """Encode the events of a correction for n players of one shard. `header` (n,) has the belief
    headers after the correction. Their previous mu and sigma are those that were last published.
    `completed_at` is the time of all events."""
    about = cause.round_id, ladder, completed_at
    names = StringColumn.of(players)
    part = Part.of_correction(rule, cause.offset, about, names, 0, cause.cause)
    rows = decoder.read(schema.encode(part)).decoded
    return encode_events(rows, header, {shard: slice(0, len(rows))}, cause.cause)[shard]
