"""Computes what a batch of parts does to a shard: fresh rows, new records and events.

The functions are pure: they map parts and held records to new records. The same rows and the same
beliefs give the same bytes, whoever computes them and however often.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.columns.strings import StringColumn
from stream_rater.pipeline.parts.rows import rows_of
from stream_rater.pipeline.ports import NO_BELIEFS, Application, Event, Held
from stream_rater.pipeline.updater import repeats, stage_2, unannounced
from stream_rater.pipeline.updater.rating_events import encode_events
from stream_rater.pipeline.updater.shard import Batch
from stream_rater.pipeline.updater.shard_group import ShardGroup
from stream_rater.rating import record
from stream_rater.rating.model import Beliefs, Table


class Disagreement(ValueError):
    """The log and the store do not belong together."""


@dataclass(frozen=True, slots=True)
class Change:
    """The result of computing one shard's batch."""

    shard: int
    rows: int
    fresh: int
    application: Application
    events: Collection[Event] = field(repr=False)


def computed(group: ShardGroup, held: Mapping[int, Held]) -> list[Change]:
    """Compute the parts of a shard group on the records that its shards hold (steps 12 and 13).
    Raises UnknownRecord."""
    rows = group.rows
    records = list(chain.from_iterable(held[s].records for s in group.batches))
    beliefs = stage_2.decoded(rows.rules, rows.rule[group.distinct.first], records)
    if group.distinct.repeat:
        return _with_repeats(group, held, beliefs)
    fresh: Flags = rows.offset > beliefs.header["last"]
    if not fresh.all():
        chosen = np.flatnonzero(fresh)
        rows = rows.take(chosen)
        beliefs = Beliefs(beliefs.header[chosen], beliefs.factors[chosen])
    told = unannounced.last_told(beliefs.header)
    stage_2.update(beliefs, np.arange(len(rows)), rows)
    written = encoded(rows.players, beliefs)
    events = encode_events(rows, unannounced.as_told(beliefs.header, told))
    return [
        _change(
            shard, group, held, flags, events.of(shard, mine), written[mine],
            unannounced.within(told, mine).tobytes(),
        )
        for shard, flags, mine in _fresh_rows(group, fresh)
    ]  # fmt: skip


def _with_repeats(group: ShardGroup, held: Mapping[int, Held], beliefs: Beliefs) -> list[Change]:
    """The same where a player has several rows. `beliefs` are those of the distinct players."""
    rows, which = group.rows, group.distinct.which
    fresh, turn = repeats.turns(which, rows.offset, beliefs.header["last"].copy())
    chosen = np.flatnonzero(fresh)
    rows, which, turn = rows.take(chosen), which[chosen], turn[chosen]
    told = unannounced.of_first_rows(unannounced.last_told(beliefs.header), which, turn)
    header = stage_2.update_in_turns(beliefs, which, turn, rows)
    changed = np.unique(which)
    players = group.rows.players.take(group.distinct.first[changed])
    written = encoded(players, Beliefs(beliefs.header[changed], beliefs.factors[changed]))
    events = encode_events(rows, unannounced.as_told(header, told))
    done, last = [], 0
    for shard, flags, mine in _fresh_rows(group, fresh):
        # The players of a shard have the numbers after those of the shard before.
        first, last = last, last + len(np.unique(which[mine]))
        noted = repeats.note(header[mine], which[mine]) + unannounced.within(told, mine).tobytes()
        own = written[first:last]
        done.append(_change(shard, group, held, flags, events.of(shard, mine), own, noted))
    return done


def _fresh_rows(group: ShardGroup, fresh: Flags) -> Iterator[tuple[int, Flags, slice]]:
    """Each shard, the flags of its rows, and where its fresh ones are among all fresh rows."""
    end = 0
    for shard, cut in group.cuts.items():
        start, end = end, end + int(np.count_nonzero(fresh[cut]))
        yield shard, fresh[cut], slice(start, end)


def _change(
    shard: int, group: ShardGroup, held: Mapping[int, Held], fresh: Flags,
    events: Collection[Event], beliefs: BeliefColumn, noted: bytes,
) -> Change:  # fmt: skip
    told = np.packbits(fresh).tobytes() + noted
    batch = group.batches[shard]
    position = held[shard].position.moved(batch.end, told, batch.tail)
    absent = held[shard].records.count(None)  # whoever is absent has a fresh row
    application = Application(position, beliefs, absent)
    return Change(shard, len(fresh), len(events), application, events)


def encoded(players: PlayerColumn, beliefs: Beliefs) -> BeliefColumn:
    """The players' records."""
    data, starts = record.encode_all(beliefs)
    return BeliefColumn(players, StringColumn(data, starts[:-1], starts[1:]))


def recalled(shard: int, call: Batch, held: Held, published: int) -> Change:
    """Rebuild the events of a shard's last call from its fresh rows and the beliefs that it left
    (step 11).

    `held` has the records of the call's players, each once. The events of its first `published`
    parts are already out.
    Raises Disagreement if the parts do not fit the stored flags, and UnknownRecord.
    """
    parts, rows = call.parts, rows_of(call.parts)
    told, size = held.position.fresh, (len(rows) + 7) // 8
    bits, noted = np.frombuffer(told[:size], np.uint8), told[size:]
    fresh: Flags = np.unpackbits(bits, count=len(rows)).astype(bool)
    chosen = np.flatnonzero(fresh)
    which = repeats.in_one_shard(rows).which[chosen]
    noted, rest_of_note = noted[: (more := repeats.size_of_note(which))], noted[more:]
    size += more
    last_told = unannounced.noted(rest_of_note, len(chosen)) if len(told) >= size else None
    if last_told is None:
        raise Disagreement(
            f"the store tells its last call by {len(told)} bytes, and the log has {len(rows)} rows "
            f"of that call, which need {size}"
        )
    header = repeats.recall(headers_of(held.records), which, noted)
    header = unannounced.as_told(header, last_told)
    rest = np.flatnonzero(chosen >= sum(len(part) for part in parts[:published]))
    events = encode_events(rows.take(chosen[rest]), header[rest]).of(shard, slice(0, len(rest)))
    return Change(shard, len(rows), len(chosen), Application(held.position, NO_BELIEFS), events)


def headers_of(records: Sequence[bytes | None]) -> Table:
    """(n,) the headers of records; zeros where there is none. Raises UnknownRecord."""
    nothing = bytes(record.HEADER_SIZE)
    return record.read_headers(b"".join(r[: record.HEADER_SIZE] if r else nothing for r in records))
