"""Computes what a correction part does to a shard: records that are replaced, and their events.

A row is fresh under the rule of all rows: the correction's offset is after the belief's `last`.
The new record is the part's, with `last` = the correction's offset. Its previous mu and sigma are
those that were last told to subscribers, so that the sum of all differences told is the rating.

If the displayed rating moves less than the part's threshold, the record is marked `untold` and no
event is told. The event of the player's next round, or correction, then begins with what was last
told.
"""

from collections.abc import Sequence

import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.contract.events import CorrectionCause
from stream_rater.pipeline.parts.corrections import CorrectionPart
from stream_rater.pipeline.ports import NO_BELIEFS, Application, Event, Held
from stream_rater.pipeline.updater.changes import Change, Disagreement, encoded, headers_of
from stream_rater.pipeline.updater.correction_events import correction_events
from stream_rater.pipeline.updater.shard import Batch
from stream_rater.rating import record
from stream_rater.rating.model import NEVER, Beliefs, Table


def corrected(shard: int, batch: Batch, held: Held) -> Change:
    """Compute a correction part on the records that its shard holds. Raises UnknownRecord."""
    part = _part(batch)
    before = headers_of(held.records)
    last = np.where(before["version"] == 0, NEVER, before["last"])
    fresh: Flags = part.offset > last
    chosen = np.flatnonzero(fresh)
    beliefs = record.decode([part.records[i] for i in chosen.tolist()], 0, 0.0, 1.0)
    _remember(part, beliefs, before[chosen])
    written = encoded(batch.players.take(chosen), beliefs)
    events = _events(shard, part, chosen.tolist(), beliefs.header)
    position = held.position.moved(batch.end, np.packbits(fresh).tobytes(), batch.tail)
    application = Application(position, written, held.records.count(None))
    return Change(shard, len(part), len(chosen), application, events)


def recalled_correction(shard: int, batch: Batch, held: Held, published: int) -> Change:
    """Rebuild the events of a shard's last call, which applied a correction part (step 11). The
    events of the first `published` parts are already out. Raises Disagreement and UnknownRecord."""
    part = _part(batch)
    told = held.position.fresh
    if len(told) != (len(part) + 7) // 8:
        raise Disagreement(
            f"the store tells its last call by {len(told)} bytes, and the log has a correction of "
            f"{len(part)} players there"
        )
    bits = np.unpackbits(np.frombuffer(told, np.uint8), count=len(part))
    chosen = np.flatnonzero(bits)
    header = headers_of(held.records)[chosen]
    events = [] if published else _events(shard, part, chosen.tolist(), header)
    return Change(shard, len(part), len(chosen), Application(held.position, NO_BELIEFS), events)


def _part(batch: Batch) -> CorrectionPart:
    part = batch.correction
    assert part is not None, "the batch is of a correction"
    return part


def told_before(part: CorrectionPart, before: Table) -> tuple[Table, Table]:
    """(n,) the mu and sigma that were last told of players with these beliefs."""
    mu = np.where(before["untold"] != 0, before["previous_mu"], before["mu"])
    sigma = np.where(before["untold"] != 0, before["previous_sigma"], before["sigma"])
    new = before["version"] == 0
    return np.where(new, part.rule.initial_mu, mu), np.where(new, part.rule.initial_sigma, sigma)


def _remember(part: CorrectionPart, beliefs: Beliefs, before: Table) -> None:
    """Note the correction in the new beliefs."""
    header = beliefs.header
    header["last"] = part.offset
    header["previous_mu"], header["previous_sigma"] = told_before(part, before)
    now = part.rule.rating(header["mu"], header["sigma"])
    previous = part.rule.rating(header["previous_mu"], header["previous_sigma"])
    header["untold"] = np.abs(now - previous) < part.threshold


def _events(shard: int, part: CorrectionPart, rows: Sequence[int], header: Table) -> list[Event]:
    cause = CorrectionCause(cause=part.cause, offset=part.offset, round_id=part.round_id)
    players = [part.players[i] for i in rows]
    return correction_events(
        shard, part.ladder, cause, part.completed_at, part.rule, players, header,
        header["untold"] == 0,
    )  # fmt: skip
