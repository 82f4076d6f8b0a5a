"""What a batch of parts does to one shard: which rows are fresh, the new records, the events.

Pure: from the parts and what the store holds to what it shall hold. The same rows and the same
beliefs give the same bytes, whoever computes them and however often.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stream_rater.pipeline.parts import Part
from stream_rater.pipeline.ports import Application, Event, Held, Player, Position
from stream_rater.pipeline.telling import Together, events_of
from stream_rater.rating import record, systems
from stream_rater.rating.model import Beliefs, Ints, Table, newcomers

Flags = npt.NDArray[np.bool_]


class Disagreement(ValueError):
    """Log and store do not belong together."""


@dataclass(frozen=True, slots=True)
class Change:
    """One shard's batch, computed."""

    shard: int
    rows: int
    fresh: int
    application: Application
    events: Collection[Event] = field(repr=False)


def players_of(part: Part) -> list[Player]:
    """(ladder, player) of each row."""
    ladders = [each.ladder for each in part.rounds]
    return list(zip(map(ladders.__getitem__, part.round_index.tolist()), part.players, strict=True))


def computed(shard: int, parts: Sequence[Part], end: int, held: Held) -> Change:
    """Apply parts up to offset `end` to what the shard holds (steps 12 and 13)."""
    fresh: list[Flags] = [np.empty(0, np.bool_)]
    beliefs: list[tuple[Player, bytes]] = []
    events: list[Collection[Event]] = []
    for part, records in _with_records(parts, held.records):
        if not records:  # of no round
            continue
        mine, before = part, _decoded(part, records)
        fresh.append(_offsets(part) > before.header["last"])
        rows = np.flatnonzero(fresh[-1])
        if len(rows) == 0:
            continue
        if len(rows) < len(records):
            mine = part.slice(rows)
            before = _decoded(mine, [records[i] for i in rows.tolist()])
        after = _updated(mine, before)
        beliefs += zip(players_of(mine), record.encode(after), strict=True)
        events.append(events_of(shard, mine, after.header))
    flags = np.concatenate(fresh)
    position = Position(end, held.position.applied, np.packbits(flags).tobytes())
    application = Application(position, beliefs)
    return Change(shard, len(flags), int(flags.sum()), application, Together(events))


def recalled(shard: int, parts: Sequence[Part], held: Held, published: int) -> Change:
    """The events of the last call, from its fresh rows and the beliefs it left (step 11).

    `parts` are all of that call, of which the first `published` need no events any more.
    """
    rows = sum(len(part.players) for part in parts)
    bits = np.frombuffer(held.position.fresh, np.uint8)
    if len(bits) != (rows + 7) // 8:
        raise Disagreement(
            f"the store's last call had {8 * len(bits)} rows or up to 7 fewer, the log has {rows}"
        )
    fresh = np.unpackbits(bits, count=rows).astype(bool)
    events: list[Collection[Event]] = []
    start = 0
    for i, (part, records) in enumerate(_with_records(parts, held.records)):
        mine = np.flatnonzero(fresh[start : start + len(records)])
        start += len(records)
        if len(mine) and i >= published:
            header = _headers([records[row] for row in mine.tolist()])
            events.append(events_of(shard, part.slice(mine), header))
    application = Application(held.position, ())
    return Change(shard, rows, int(fresh.sum()), application, Together(events))


def _with_records(
    parts: Sequence[Part], records: Sequence[bytes | None]
) -> list[tuple[Part, Sequence[bytes | None]]]:
    """Each part with its rows' records; `records` has those of all parts in a row."""
    pairs, start = [], 0
    for part in parts:
        pairs.append((part, records[start : start + len(part.players)]))
        start += len(part.players)
    assert start == len(records)
    return pairs


def _headers(records: Sequence[bytes | None]) -> Table:
    nothing = bytes(record.HEADER_SIZE)
    return record.read_headers(b"".join(r[: record.HEADER_SIZE] if r else nothing for r in records))


def _offsets(part: Part) -> Ints:
    return np.array([each.offset for each in part.rounds], np.int64)[part.round_index]


def _laws(part: Part) -> Ints:
    return np.array([each.law for each in part.rounds], np.int64)[part.round_index]


def _decoded(part: Part, records: Sequence[bytes | None]) -> Beliefs:
    """The beliefs of the part's rows, of which there are some; newcomers by their ladder's law."""
    first, *others = part.laws
    capacity = max(each.kept for each in part.laws) + 1
    beliefs = record.decode(records, capacity, first.initial_mu, first.initial_sigma)
    law = _laws(part) if others else None
    for i, each in enumerate(others, start=1):
        new = np.flatnonzero((law == i) & (beliefs.header["rounds"] == 0))
        beliefs.header[new] = newcomers(len(new), 0, each.initial_mu, each.initial_sigma).header
    return beliefs


def _updated(part: Part, beliefs: Beliefs) -> Beliefs:
    """The same beliefs after the part's rounds."""
    rows = np.arange(len(part.players))
    systems.update(beliefs, rows, part.evidence, list(part.laws), _laws(part))
    time = np.array([each.time for each in part.rounds], np.int64)[part.round_index]
    systems.note_round(beliefs, rows, _offsets(part), time)
    return beliefs
