"""Computes the effect of a seed part on a shard: the new records, and their events.

A row is fresh if the offset of its seed or reset is after the belief's `last`, and if the player
has no round (a seed) or has one (a reset). So a player who has no belief, or one that corrections
have emptied, takes the first seed. The belief of a row that is not fresh stays as it is, and its
`last`, too: the row says nothing about it.

An event begins with the values that were last published, as the event of a correction does, or
with the ladder's initial ones. It is always published. If the belief itself does not have these
values as its previous ones, the call notes them (`changes.SHOWN`), so that step 11 can build the
event again.
"""

from collections.abc import Mapping

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_column import RecordColumn
from stream_rater.pipeline.parts.seed_parts import SeedPart
from stream_rater.pipeline.ports import StoredShard
from stream_rater.pipeline.updater import changes
from stream_rater.pipeline.updater.corrected_changes import last_published
from stream_rater.pipeline.updater.rating_events import Events, encode_events
from stream_rater.pipeline.updater.shard import ShardBatch
from stream_rater.rating import record, seasons
from stream_rater.rating.model import NEVER, Beliefs, Table


def compute_seeds(
    batch: ShardBatch, stored: Mapping[int, StoredShard]
) -> dict[int, changes.Change]:
    """Apply a seed part to the stored records of its shard. Returns the shard's change; nothing is
    written. Raises UnknownRecord."""
    part, (shard,) = _part(batch), batch.parts
    present = stored[shard]
    before = record.headers_of(present.records)
    takes, later = _takes(part, before), _is_later(part, before)
    fresh = takes & later
    chosen = np.flatnonzero(fresh)
    own, records = part.take(chosen), present.column.take(chosen)
    beliefs = _reset(own, records) if part.is_reset else _seeded(own)
    shown = _shown(own, before[chosen])
    notes = np.packbits(fresh).tobytes() + shown.tobytes()
    change = changes.Change(
        present.position.advanced(batch.ends[shard], notes, batch.tails[shard]),
        changes.encoded(batch.players[shard].take(chosen), beliefs),
        records.absent,
        rows=len(part),
        fresh=len(chosen),
        without_effect=int(np.count_nonzero(later & ~takes)),
        events=_events(shard, own, changes.as_published(beliefs.header, shown)),
    )
    return {shard: change}


def build_seed_events_again(
    shard: int, call: ShardBatch, stored: StoredShard, committed: int
) -> Events:
    """Build the events of a shard's last call again, if the call applied a seed part (step 11). If
    the part is before the offset `committed`, its events are published already, and the result is
    empty. Raises Disagreement and UnknownRecord."""
    part, notes = _part(call), stored.position.fresh
    fresh, _, shown = changes.decode_notes(notes, np.arange(len(part)))
    header = changes.as_published(record.headers_of(stored.records)[fresh], shown)
    if call.ends[shard] <= committed:
        return Events()
    return _events(shard, part.take(fresh), header)


def _part(batch: ShardBatch) -> SeedPart:
    part = batch.seeds
    assert part is not None, "the batch is of a seed part"
    return part


def _is_later(part: SeedPart, before: Table) -> Flags:
    """(n,) whether each row is after the last one that changed its player's belief. `before` (n,)
    has the headers of the beliefs."""
    later: Flags = part.offset > np.where(before["version"] == 0, NEVER, before["last"])
    return later


def _takes(part: SeedPart, before: Table) -> Flags:
    """(n,) whether each player takes a row: a seed without a round, a reset with one."""
    takes: Flags = (before["rounds"] > 0) == part.is_reset
    return takes


def _seeded(part: SeedPart) -> Beliefs:
    """The beliefs that seeds give."""
    given = part.mu, part.sigma, part.rounds
    header = seasons.seeded(part.rule, *given, part.time, part.offset)
    return Beliefs(header, np.zeros((len(part), 1), np.int64))


def _reset(part: SeedPart, records: RecordColumn) -> Beliefs:
    """The beliefs with these records after their resets."""
    rule = part.rule
    beliefs = record.decode(records, rule.kept + 1, rule.initial_mu, rule.initial_sigma)
    for number, each in enumerate(part.records):
        rows = np.flatnonzero(part.record == number)
        seasons.reset(rule, beliefs, rows, part.mu[rows], part.sigma[rows], each.offset)
    return beliefs


def _events(shard: int, part: SeedPart, header: Table) -> Events:
    """The events of all rows of a part. `header` (n,) has the belief headers after them, as events
    publish them."""
    return encode_events(part.as_rows, header, {shard: slice(0, len(part))}, part.kind)[shard]


def _shown(part: SeedPart, before: Table) -> Table:
    """The SHOWN of each fresh row whose belief will not have the last published values as its
    previous ones. `before` (n,) has the headers of the beliefs before these rows."""
    if part.is_reset:
        rows: Ints = np.flatnonzero(before["untold"] != 0)
    else:
        rows = np.flatnonzero(before["version"] != 0)
    shown = np.empty(len(rows), changes.SHOWN)
    mu, sigma = last_published(part, before[rows])
    shown["row"], shown["mu"], shown["sigma"] = rows, mu, sigma
    return shown
