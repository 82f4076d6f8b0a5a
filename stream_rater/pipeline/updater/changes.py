"""Computes the effect of a batch of parts on its shards: fresh rows, new records and events.

The functions are pure: they map parts and stored records to new records. The same rows and the same
beliefs always give the same bytes, on every worker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.columns.strings import StringColumn
from stream_rater.pipeline.parts.decoder import Rows
from stream_rater.pipeline.ports import Application, StoredShard
from stream_rater.pipeline.updater import call_notes, stage_2
from stream_rater.pipeline.updater.rating_events import Events, encode_events
from stream_rater.pipeline.updater.shard import ShardBatch
from stream_rater.rating import record
from stream_rater.rating.model import Beliefs, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Application):
    """The effect of a batch on one shard: the data for the store, and the events."""

    rows: int
    """The number of rows of the shard's parts."""
    fresh: int
    """The number of those rows that changed a belief."""
    events: Events = field(compare=False, repr=False)


def computed(batch: ShardBatch, stored: Mapping[int, StoredShard]) -> dict[int, Change]:
    """Apply the parts of a batch to the stored records of its shards (steps 12 and 13). Returns the
    change of each shard. Nothing is written. Raises UnknownRecord."""
    rows, (first, _) = batch.rows, batch.distinct
    records = list(chain.from_iterable(stored[shard].records for shard in batch.parts))
    beliefs = stage_2.decoded(rows.rules, rows.rule_index[first], records)
    if len(first) < len(rows):
        return _with_repeats(batch, stored, beliefs)
    fresh: Flags = rows.offset > beliefs.header["last"]
    if not fresh.all():
        chosen = np.flatnonzero(fresh)
        rows = rows.take(chosen)
        beliefs = Beliefs(beliefs.header[chosen], beliefs.factors[chosen])
    shown = call_notes.last_shown(beliefs.header)
    stage_2.update(
        beliefs, np.arange(len(rows)), rows.rules, rows.rule_index, rows.evidence, rows.offset,
        rows.time,
    )  # fmt: skip
    written = encoded(rows.players, beliefs)
    return _changes(batch, stored, fresh, rows, beliefs.header, shown, written)


def _with_repeats(
    batch: ShardBatch, stored: Mapping[int, StoredShard], beliefs: Beliefs
) -> dict[int, Change]:
    """The same as `computed`, for batches in which a player has several rows. `beliefs` has the
    beliefs of the distinct players."""
    rows, (first, which) = batch.rows, batch.distinct
    fresh, nth = fresh_rows(which, rows.offset, beliefs.header["last"].copy())
    chosen = np.flatnonzero(fresh)
    rows, which, nth = rows.take(chosen), which[chosen], nth[chosen]
    shown = call_notes.at_first_rows(call_notes.last_shown(beliefs.header), which, nth)
    header = np.empty(len(which), beliefs.header.dtype)
    for number in range(int(nth.max(initial=-1)) + 1):
        some = np.flatnonzero(nth == number)
        own, who = rows.take(some), which[some]
        stage_2.update(beliefs, who, own.rules, own.rule_index, own.evidence, own.offset, own.time)
        header[some] = beliefs.header[who]
    changed = np.unique(which)
    players = batch.rows.players.take(first[changed])
    written = encoded(players, Beliefs(beliefs.header[changed], beliefs.factors[changed]))
    return _changes(batch, stored, fresh, rows, header, shown, written, which)


@kernel
def fresh_rows(which: Ints, offset: Ints, last: Ints) -> tuple[Flags, Ints]:
    """(n,) whether each row is fresh, and (n,) the number of its player's fresh rows before it.

    `last` (D,) is the offset of each player's last round. A row is fresh if its offset is greater;
    `last` is then set to the row's offset, in place.
    """
    fresh, nth = np.zeros(len(which), np.bool_), np.zeros(len(which), np.int64)
    seen = np.zeros(len(last), np.int64)
    for i in range(len(which)):
        player = which[i]
        if offset[i] > last[player]:
            fresh[i], nth[i], last[player] = True, seen[player], offset[i]
            seen[player] += 1
    return fresh, nth


def _changes(
    batch: ShardBatch, stored: Mapping[int, StoredShard], fresh: Flags, rows: Rows, header: Table,
    shown: Table, written: BeliefColumn, which: Ints | None = None,
) -> dict[int, Change]:  # fmt: skip
    """The change of each shard. `rows` are the fresh rows of the batch, and `header` has the belief
    headers after them. `shown` has the values that were last published before them. `written` has
    the new records, one for each player. `which` is the index of each row's player; None if no
    player has two rows."""
    cuts = batch.fresh_cuts(fresh)
    events = encode_events(rows, call_notes.as_published(header, shown), cuts)
    found, last = {}, 0
    for shard, cut in cuts.items():
        # The indices of a shard's players follow those of the previous shard's players.
        players = None if which is None else which[cut]
        count = cut.stop - cut.start if players is None else len(np.unique(players))
        first, last = last, last + count
        flags, before = fresh[batch.cuts[shard]], stored[shard]
        notes = call_notes.encode(flags, shown, cut, header, players)
        found[shard] = Change(
            before.position.moved(batch.ends[shard], notes, batch.tails[shard]),
            written[first:last],
            before.records.count(None),  # a player without a record has a fresh row
            rows=len(flags),
            fresh=cut.stop - cut.start,
            events=events[shard],
        )
    return found


def encoded(players: PlayerColumn, beliefs: Beliefs) -> BeliefColumn:
    """Encode the players' records."""
    data, starts = record.encode_all(beliefs)
    return BeliefColumn(players, StringColumn(data, starts[:-1], starts[1:]))


def rebuild_events(shard: int, call: ShardBatch, stored: StoredShard, committed: int) -> Events:
    """Build the events of a shard's last call again, from its fresh rows and the beliefs that it
    stored (step 11). Events of parts before the offset `committed` are left out.

    `stored` has one record for each of the call's players. Raises Disagreement if the parts do not
    fit the notes, and UnknownRecord.
    """
    which = call.distinct[1]
    fresh, earlier, shown = call_notes.decode(stored.position.fresh, which)
    header = call_notes.headers_after(headers_of(stored.records), which[fresh], earlier)
    header = call_notes.as_published(header, shown)
    rest = np.flatnonzero(fresh >= call.rows_before(shard, committed))
    rows = call.rows.take(fresh[rest])
    return encode_events(rows, header[rest], {shard: slice(0, len(rest))})[shard]


def headers_of(records: Sequence[bytes | None]) -> Table:
    """(n,) the headers of records. A missing record gives a header of zeros. Raises
    UnknownRecord."""
    nothing = bytes(record.HEADER_SIZE)
    return record.read_headers(b"".join(r[: record.HEADER_SIZE] if r else nothing for r in records))
