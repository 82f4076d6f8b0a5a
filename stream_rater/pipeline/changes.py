"""Computes what a batch of parts does to a shard: fresh rows, new records and events.

The functions are pure: they map parts and held records to new records. The same rows and the same
beliefs give the same bytes, whoever computes them and however often.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.columns.player_column import BeliefColumn
from stream_rater.columns.strings import StringColumn
from stream_rater.parts.decoder import PartView
from stream_rater.parts.rows import Rows, rows_of
from stream_rater.pipeline.ports import NO_BELIEFS, Application, Event, Held, Position
from stream_rater.pipeline.rating_events import encode_events
from stream_rater.pipeline.shard_group import ShardGroup
from stream_rater.rating import record, systems
from stream_rater.rating.model import Beliefs, Table, newcomers


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
    before = _decoded(rows, list(chain.from_iterable(held[s].records for s in group.batches)))
    fresh = rows.offset > before.header["last"]
    if not fresh.all():
        chosen = np.flatnonzero(fresh)
        rows = rows.take(chosen)
        before = Beliefs(before.header[chosen], before.factors[chosen])
    after = _updated(rows, before)
    data, starts = record.encode_all(after)
    beliefs = BeliefColumn(rows.players, StringColumn(data, starts[:-1], starts[1:]))
    events = encode_events(rows, after.header)
    done, end = [], 0
    for shard, cut in group.cuts.items():
        flags = fresh[cut]
        start, end = end, end + int(np.count_nonzero(flags))
        applied, mine = group.batches[shard].end, slice(start, end)
        position = Position(applied, held[shard].position.applied, np.packbits(flags).tobytes())
        application = Application(position, beliefs[mine])
        done.append(Change(shard, len(flags), end - start, application, events.of(shard, mine)))
    return done


def recalled(shard: int, parts: Sequence[PartView], held: Held, published: int) -> Change:
    """Rebuild the events of a shard's last call from its fresh rows and the beliefs that it left
    (step 11).

    `parts` are all parts of that call; the events of the first `published` of them are already out.
    Raises Disagreement if the parts do not fit the stored flags, and UnknownRecord.
    """
    rows = rows_of(parts)
    bits = np.frombuffer(held.position.fresh, np.uint8)
    if len(bits) != (len(rows) + 7) // 8:
        raise Disagreement(
            f"the store holds {len(bits)} bytes of fresh flags for its last call, and the log has "
            f"{len(rows)} rows of that call, which need {(len(rows) + 7) // 8}"
        )
    fresh: Flags = np.unpackbits(bits, count=len(rows)).astype(bool)
    unpublished = np.flatnonzero(fresh)
    unpublished = unpublished[unpublished >= sum(len(part) for part in parts[:published])]
    header = _headers([held.records[row] for row in unpublished.tolist()])
    events = encode_events(rows.take(unpublished), header).of(shard, slice(0, len(unpublished)))
    return Change(
        shard, len(rows), int(fresh.sum()), Application(held.position, NO_BELIEFS), events
    )


def _headers(records: Sequence[bytes | None]) -> Table:
    nothing = bytes(record.HEADER_SIZE)
    return record.read_headers(b"".join(r[: record.HEADER_SIZE] if r else nothing for r in records))


def _decoded(rows: Rows, records: Sequence[bytes | None]) -> Beliefs:
    """Decode the records of the rows' players. A player without a belief starts from the ladder's
    rule."""
    assert len(rows) == len(records)
    capacity = max((each.kept for each in rows.rules), default=0) + 1
    beliefs = record.decode(records, capacity, 0.0, 1.0)
    new = np.flatnonzero(beliefs.header["rounds"] == 0)
    if len(new):
        initial = [newcomers(1, 0, each.initial_mu, each.initial_sigma) for each in rows.rules]
        by_rule = np.concatenate([each.header for each in initial])
        beliefs.header[new] = by_rule[rows.rule[new]]
    return beliefs


def _updated(rows: Rows, beliefs: Beliefs) -> Beliefs:
    """The beliefs after the rows' rounds."""
    every = np.arange(len(rows))
    systems.update(beliefs, every, rows.evidence, list(rows.rules), rows.rule)
    systems.note_round(beliefs, every, rows.offset, rows.time)
    return beliefs
