"""What a batch of parts does to one shard: which rows are fresh, the new records, the events.

Pure: from the parts and what the store holds to what it shall hold. The same rows and the same
beliefs give the same bytes, whoever computes them and however often.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stream_rater.events import RatingChanged, escape, to_json
from stream_rater.pipeline.parts import Part
from stream_rater.pipeline.ports import Application, Event, Held, Player, Position
from stream_rater.rating import record, systems
from stream_rater.rating.model import (
    DID_NOT_FINISH,
    NEVER,
    PERFORMANCE,
    Beliefs,
    Floats,
    Ints,
    Table,
    newcomers,
)

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
    events: Sequence[Event] = field(repr=False)


def players_of(part: Part) -> list[Player]:
    """(ladder, player) of each row."""
    ladders = [part.rounds[i].ladder for i in part.round_index.tolist()]
    return list(zip(ladders, part.players, strict=True))


def computed(shard: int, parts: Sequence[Part], end: int, held: Held) -> Change:
    """Apply parts up to offset `end` to what the shard holds (steps 12 and 13)."""
    fresh = np.concatenate(
        [_fresh(part, rows) for part, rows in _with_records(parts, held.records)]
    )
    beliefs: list[tuple[Player, bytes]] = []
    events: list[Event] = []
    start = 0
    for part, records in _with_records(parts, held.records):
        rows = np.flatnonzero(fresh[start : start + len(records)])
        start += len(records)
        if len(rows) == 0:
            continue
        mine, priors = part, records
        if len(rows) < len(records):
            mine, priors = part.slice(rows), [records[i] for i in rows.tolist()]
        updated = _update(mine, priors)
        beliefs += zip(players_of(mine), record.encode(updated), strict=True)
        events += _events(shard, mine, updated.header)
    position = Position(end, held.position.applied, np.packbits(fresh).tobytes())
    return Change(shard, len(fresh), int(fresh.sum()), Application(position, beliefs), events)


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
    events: list[Event] = []
    start = 0
    for i, (part, records) in enumerate(_with_records(parts, held.records)):
        mine = np.flatnonzero(fresh[start : start + len(records)])
        start += len(records)
        if len(mine) and i >= published:
            header = _headers([records[row] for row in mine.tolist()])
            events += _events(shard, part.slice(mine), header)
    return Change(shard, rows, int(fresh.sum()), Application(held.position, ()), events)


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


def _fresh(part: Part, records: Sequence[bytes | None]) -> Flags:
    """Rows whose round is after the last one in the belief."""
    headers = _headers(records)
    last = np.where(headers["version"] == 0, NEVER, headers["last"])
    fresh: Flags = _offsets(part) > last
    return fresh


def _update(part: Part, records: Sequence[bytes | None]) -> Beliefs:
    """The beliefs after the part's rows, newcomers by their ladder's law."""
    law = np.array([each.law for each in part.rounds], np.int64)[part.round_index]
    capacity = max(each.kept for each in part.laws) + 1
    beliefs = record.decode(records, capacity, part.laws[0].initial_mu, part.laws[0].initial_sigma)
    for i, each in enumerate(part.laws[1:], start=1):
        new = np.flatnonzero((law == i) & (beliefs.header["rounds"] == 0))
        beliefs.header[new] = newcomers(len(new), 0, each.initial_mu, each.initial_sigma).header
    rows = np.arange(len(records))
    systems.update(beliefs, rows, part.evidence, list(part.laws), law)
    time = np.array([each.time for each in part.rounds], np.int64)[part.round_index]
    systems.note_round(beliefs, rows, _offsets(part), time)
    return beliefs


def _events(shard: int, part: Part, header: Table) -> list[Event]:
    """One `rating-changed` a row, from the belief after it."""
    rating, previous = _ratings(part, header)
    columns = zip(
        part.players,
        part.round_index.tolist(),
        part.place.tolist(),
        part.evidence[:, PERFORMANCE].tolist(),
        rating.tolist(),
        previous.tolist(),
        *(header[name].tolist() for name in _SHOWN),
        strict=True,
    )
    escaped = {ladder: escape(ladder) for ladder in {each.ladder for each in part.rounds}}
    ids = [f"{escaped[each.ladder]}:{escape(each.round_id)}:" for each in part.rounds]
    provisional = [part.laws[each.law].provisional_rounds for each in part.rounds]
    events = []
    for player, r, place, performance, shown, shown_before, mu, sigma, mu_, sigma_, n in columns:
        told, name = part.rounds[r], escape(player)
        changed = RatingChanged(
            event_id=ids[r] + name,
            ladder=told.ladder,
            player=player,
            round_id=told.round_id,
            completed_at=told.completed_at,
            rank=None if place == DID_NOT_FINISH else place,
            mu=mu,
            sigma=sigma,
            previous_mu=mu_,
            previous_sigma=sigma_,
            performance=performance,
            rating=shown,
            previous_rating=shown_before,
            rounds=n,
            provisional=n < provisional[r],
        )
        key = f"{escaped[told.ladder]}:{name}".encode()
        value, event_id = to_json(changed), changed.event_id
        events.append(Event(shard, key, value, event_id, told.completed_at, told.trace))
    return events


_SHOWN = ("mu", "sigma", "previous_mu", "previous_sigma", "rounds")


def _ratings(part: Part, header: Table) -> tuple[Floats, Floats]:
    """(n,) what is shown after the round and before it, each row by its ladder's law."""
    law = np.array([each.law for each in part.rounds])[part.round_index]
    shown = np.empty((2, len(law)))
    for i, each in enumerate(part.laws):
        rows = law == i
        shown[0, rows] = each.rating(header["mu"][rows], header["sigma"][rows])
        shown[1, rows] = each.rating(header["previous_mu"][rows], header["previous_sigma"][rows])
    return shown[0], shown[1]
