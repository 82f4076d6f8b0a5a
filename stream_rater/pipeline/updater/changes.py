"""Computes the effect of a batch of parts on its shards: fresh rows, new records and events.

The functions are pure: they map parts and stored records to new records. The same rows and the same
beliefs always give the same bytes, on every worker.

A call also writes notes to `position.fresh`, so that step 11 can build its events again. The notes
have three parts:

1. One bit for each row, in order, high bit first. It says whether the row was fresh.
2. An EARLIER for each fresh row that is not its player's last one: the mu and sigma before the row.
   A player may have several rounds in a batch. They are applied in order, and the belief is written
   once. So the belief itself stores only the mu and sigma before the last of them.
3. A SHOWN for each fresh row whose belief was unannounced: the mu and sigma that were last
   published. A correction that hardly moves a rating changes the belief and publishes no event. The
   belief is marked (`untold` in its record), and its previous mu and sigma are those that were last
   published. The event of the player's next round has these as its previous mu and sigma, although
   the round itself began with the corrected ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn, RecordColumn
from stream_rater.columns.strings import StringColumn
from stream_rater.pipeline.parts.decoder import Rows
from stream_rater.pipeline.ports import Application, StoredShard
from stream_rater.pipeline.updater.rating_events import Events, encode_events
from stream_rater.pipeline.updater.shard import ShardBatch
from stream_rater.rating import record, seasons, stages
from stream_rater.rating.model import Beliefs, Evidence, Table, newcomers
from stream_rater.rating.stages import RatingRule

EARLIER = np.dtype([("mu", "<f4"), ("sigma", "<f4")])
"""The belief before an earlier row. The values are exact: beliefs store them as float32."""

SHOWN = np.dtype([("row", "<u4"), ("mu", "<f4"), ("sigma", "<f4")])
"""The mu and sigma that were last published before a row. `row` is its index among the fresh rows.
The values are exact, too."""

NO_SHOWN = np.empty(0, SHOWN)


class Disagreement(ValueError):
    """The log and the store do not belong together."""

    def __init__(self, notes: bytes, rows: int, need: int) -> None:
        super().__init__(
            f"Redis and the log disagree: position.fresh has {len(notes)} bytes, {rows} rows need "
            f"{need}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Application):
    """The effect of a batch on one shard: the data for the store, and the events."""

    rows: int  # The number of rows of the shard's parts.
    fresh: int  # The number of those rows that changed a belief.
    without_effect: int = 0
    """The number of rows of seeds and resets that change nothing: the player already has a round,
    or has none to reset."""
    events: Events = field(compare=False, repr=False)


def compute_changes(batch: ShardBatch, stored: Mapping[int, StoredShard]) -> dict[int, Change]:
    """Apply the parts of a batch to the stored records of its shards (steps 12 and 13). `stored`
    has the records of `batch.players`, in that order. Returns the change of each shard. Raises
    UnknownRecord."""
    rows, (first, _) = batch.rows, batch.distinct
    records = RecordColumn.joined([stored[shard].column for shard in batch.parts])
    beliefs = decoded(rows.rules, rows.rule_index[first], records)
    if len(first) < len(rows):
        return _with_repeats(batch, stored, beliefs)
    # No player has two rows here, so belief i is that of row i.
    fresh: Flags = rows.offset > beliefs.header["last"]
    if not fresh.all():
        chosen = np.flatnonzero(fresh)
        rows = rows.take(chosen)
        beliefs = Beliefs(beliefs.header[chosen], beliefs.factors[chosen])
    shown = last_shown(beliefs.header)
    update(
        beliefs, np.arange(len(rows)), rows.rules, rows.rule_index, rows.evidence, rows.offset,
        rows.time,
    )  # fmt: skip
    written = encoded(rows.players, beliefs)
    return _changes(batch, stored, fresh, rows, beliefs.header, shown, written)


def _with_repeats(
    batch: ShardBatch, stored: Mapping[int, StoredShard], beliefs: Beliefs
) -> dict[int, Change]:
    """The same as `compute_changes`, for batches in which a player has several rows. `beliefs` has
    the beliefs of the distinct players."""
    rows, (first, which) = batch.rows, batch.distinct
    fresh, nth = fresh_rows(which, rows.offset, beliefs.header["last"].copy())
    chosen = np.flatnonzero(fresh)
    rows, which, nth = rows.take(chosen), which[chosen], nth[chosen]
    shown = at_first_rows(last_shown(beliefs.header), which, nth)
    header = np.empty(len(which), beliefs.header.dtype)
    for number in range(int(nth.max(initial=-1)) + 1):
        selected = np.flatnonzero(nth == number)
        own, belief_rows = rows.take(selected), which[selected]
        update(beliefs, belief_rows, own.rules, own.rule_index, own.evidence, own.offset, own.time)
        header[selected] = beliefs.header[belief_rows]
    changed = np.unique(which)
    players = batch.rows.players.take(first[changed])
    written = encoded(players, Beliefs(beliefs.header[changed], beliefs.factors[changed]))
    return _changes(batch, stored, fresh, rows, header, shown, written, which)


@kernel
def fresh_rows(which: Ints, offset: Ints, last: Ints) -> tuple[Flags, Ints]:
    """(n,) whether each row is fresh, and (n,) the number of its player's fresh rows before it.
    `last` (D,) is the offset of each player's last round. A row is fresh if its offset is greater;
    `last` is then set to the row's offset, in place."""
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
    # The range of each shard's fresh rows among all fresh rows.
    ends = accumulate(int(np.count_nonzero(fresh[cut])) for cut in batch.cuts.values())
    cuts = {
        shard: slice(first, last)
        for shard, (first, last) in zip(batch.cuts, pairwise([0, *ends]), strict=True)
    }
    events = encode_events(rows, as_published(header, shown), cuts)
    found, last = {}, 0
    for shard, cut in cuts.items():
        # The indices of a shard's players follow those of the previous shard's players.
        players = None if which is None else which[cut]
        count = cut.stop - cut.start if players is None else len(np.unique(players))
        first, last = last, last + count
        flags, before = fresh[batch.cuts[shard]], stored[shard]
        notes = encode_notes(flags, shown, cut, header, players)
        found[shard] = Change(
            before.position.advanced(batch.ends[shard], notes, batch.tails[shard]),
            written[first:last],
            # All absent beliefs are written: the first row of a player without a belief is fresh.
            before.column.absent,
            rows=len(flags),
            fresh=cut.stop - cut.start,
            events=events[shard],
        )
    return found


def encoded(players: PlayerColumn, beliefs: Beliefs) -> BeliefColumn:
    """Encode the players' records."""
    data, starts = record.encode_all(beliefs)
    return BeliefColumn(players, StringColumn(data, starts[:-1], starts[1:]))


def build_events_again(shard: int, call: ShardBatch, stored: StoredShard, committed: int) -> Events:
    """Build the events of a shard's last call again, from its fresh rows and the beliefs that it
    stored (step 11). Events of parts before the offset `committed` are left out. `stored` has one
    record for each of the call's players. Raises Disagreement if the parts do not fit the notes,
    and UnknownRecord."""
    which = call.distinct[1]
    fresh, earlier, shown = decode_notes(stored.position.fresh, which)
    header = headers_after(record.headers_of(stored.records), which[fresh], earlier)
    header = as_published(header, shown)
    rest = np.flatnonzero(fresh >= call.rows_before(shard, committed))
    rows = call.rows.take(fresh[rest])
    return encode_events(rows, header[rest], {shard: slice(0, len(rest))})[shard]


# --- stage 2 on stored records -------------------------------------------------------------------


def decoded(
    rules: Sequence[RatingRule], rule_index: Ints, records: Sequence[bytes | None]
) -> Beliefs:
    """Decode the records of D players. `rule_index` (D,) is the rule of each. A player without a
    record starts with the initial belief of the rule. So does a player whose belief has no rounds
    because a correction removed them. Raises UnknownRecord."""
    assert len(rule_index) == len(records)
    capacity = max((each.kept for each in rules), default=0) + 1
    beliefs = record.decode(records, capacity, 0.0, 1.0)
    set_initial(beliefs, rules, rule_index)
    return beliefs


def set_initial(beliefs: Beliefs, rules: Sequence[RatingRule], rule_index: Ints) -> None:
    """Set the initial belief of its rule where a belief has no rounds, in place. `rule_index` (D,)
    is the rule of each of the D beliefs."""
    new = np.flatnonzero(beliefs.header["rounds"] == 0)
    if len(new):
        before = beliefs.header[new]
        initial = [newcomers(1, 0, each.initial_mu, each.initial_sigma) for each in rules]
        by_rule = np.concatenate([each.header for each in initial])
        beliefs.header[new] = by_rule[rule_index[new]]
        _keep_published(beliefs.header, new, before)


def _keep_published(header: Table, new: Ints, before: Table) -> None:
    """Copy two things from the old beliefs `before` to the initial ones in the rows `new`: their
    `last`, and the mu and sigma that were last published. These beliefs have no rounds."""
    header["last"][new] = before["last"]
    corrected = np.flatnonzero(before["version"] != 0)
    rows, old = new[corrected], before[corrected]
    unannounced = old["untold"] != 0
    header["previous_mu"][rows] = np.where(unannounced, old["previous_mu"], old["mu"])
    header["previous_sigma"][rows] = np.where(unannounced, old["previous_sigma"], old["sigma"])
    header["untold"][rows] = 1


def update(
    beliefs: Beliefs, which: Ints, rules: Sequence[RatingRule], rule_index: Ints,
    evidence: Evidence, offset: Ints, time: Ints,
) -> None:  # fmt: skip
    """Apply n fresh rows to the beliefs `which` (n,), in place. No two rows are of one player.
    `rule_index` (n,) is the index of each row's rule, and `evidence` (n, 3) or (n, 4) is the
    evidence of stage 1. `offset` (n,) and `time` (n,), in Unix seconds, are those of each row's
    round."""
    rules = list(rules)
    before = seasons.draw(rules, rule_index, beliefs, which)
    stages.update(beliefs, which, evidence, rules, rule_index)
    stages.record_round(beliefs, which, offset, time)
    seasons.remember(beliefs, before)


# --- the notes of a call -------------------------------------------------------------------------


def encode_notes(
    fresh: Flags, shown: Table, cut: slice, header: Table, which: Ints | None
) -> bytes:
    """Encode the notes of a shard's call on n rows. `fresh` (n,) says which of them are fresh.

    `cut` is the range of this shard's fresh rows among the fresh rows of all shards. `header` has
    the headers after the fresh rows of all shards, and `shown` the values that were last published
    before them. `which` (k,) is the index of the player of each fresh row of the shard; None if no
    player has two rows.
    """
    bits = np.packbits(fresh).tobytes()
    if len(shown):
        shown = shown[(shown["row"] >= cut.start) & (shown["row"] < cut.stop)]
        shown["row"] -= cut.start
    if which is None:
        return bits + shown.tobytes()
    rows = header[cut][_is_earlier(which)]
    notes = np.empty(len(rows), EARLIER)
    notes["mu"], notes["sigma"] = rows["previous_mu"], rows["previous_sigma"]
    return bits + notes.tobytes() + shown.tobytes()


def decode_notes(notes: bytes, which: Ints) -> tuple[Ints, Table, Table]:
    """Decode a call's notes: the (k,) indices of its fresh rows, an EARLIER for each earlier row,
    and the SHOWN values. `which` (n,) is the index of each row's player. Raises Disagreement if
    these cannot be the notes of n rows."""
    size = (len(which) + 7) // 8
    bits = np.frombuffer(notes[:size], np.uint8)
    fresh = np.flatnonzero(np.unpackbits(bits, count=len(which)))
    end = size + EARLIER.itemsize * int(np.count_nonzero(_is_earlier(which[fresh])))
    if len(notes) < end or (len(notes) - end) % SHOWN.itemsize:
        raise Disagreement(notes, len(which), end)
    shown = np.frombuffer(notes[end:], SHOWN)
    if len(shown) and int(shown["row"].max()) >= len(fresh):
        raise Disagreement(notes, len(which), end)
    return fresh, np.frombuffer(notes[size:end], EARLIER), shown


@kernel
def _is_earlier(which: Ints) -> Flags:
    """(n,) whether a later row has the same player."""
    found = np.zeros(len(which), np.bool_)
    seen = np.zeros(which.max() + 1 if len(which) else 0, np.bool_)
    for i in range(len(which) - 1, -1, -1):
        found[i] = seen[which[i]]
        seen[which[i]] = True
    return found


def headers_after(header: Table, which: Ints, notes: Table) -> Table:
    """(n,) the headers after each fresh row. `header` (D,) has the players' headers after all rows,
    and `notes` the EARLIER of each earlier row. Only these fields have their values after the row:
    mu, sigma, previous mu and sigma, and the number of rounds."""
    after = header[which]
    _restore_earlier(after, which, notes)
    return after


@kernel
def _restore_earlier(after: Table, which: Ints, notes: Table) -> None:
    following = np.full(which.max() + 1 if len(which) else 0, -1)
    k = len(notes) - 1
    for i in range(len(which) - 1, -1, -1):
        own, later = after[i], following[which[i]]
        if later >= 0:
            own.mu, own.sigma = after[later].previous_mu, after[later].previous_sigma
            own.rounds = after[later].rounds - 1
            own.previous_mu, own.previous_sigma = notes[k].mu, notes[k].sigma
            k -= 1
        following[which[i]] = i


# --- what was last published ----------------------------------------------------------------------


def last_shown(header: Table) -> Table:
    """The SHOWN values of the players with unannounced beliefs. `header` (n,) has the headers
    before an update; `row` is the index among them."""
    unannounced = header["untold"]
    if not unannounced.any():
        return NO_SHOWN
    rows = np.flatnonzero(unannounced)
    shown = np.empty(len(rows), SHOWN)
    shown["row"] = rows
    shown["mu"], shown["sigma"] = header["previous_mu"][rows], header["previous_sigma"][rows]
    return shown


def at_first_rows(shown: Table, which: Ints, nth: Ints) -> Table:
    """Replace the belief's index in SHOWN values by the index of the belief's first row. Row i
    belongs to the belief which[i], and nth[i] rows of that belief come before it."""
    if not len(shown):
        return shown
    first = np.flatnonzero((nth == 0) & np.isin(which, shown["row"]))
    found: Table = shown[np.searchsorted(shown["row"], which[first])]
    found["row"] = first
    return found


def as_published(header: Table, shown: Table) -> Table:
    """(n,) the headers as events publish them: SHOWN values replace the previous mu and sigma."""
    if not len(shown):
        return header
    published = header.copy()
    published["previous_mu"][shown["row"]] = shown["mu"]
    published["previous_sigma"][shown["row"]] = shown["sigma"]
    return published
