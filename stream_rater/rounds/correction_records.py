"""Finds the corrections among records, decodes them, and checks that they are well-formed and that
their ladder accepts corrections. This is the part of validation that needs only the record and the
ladders file. The other part, in `replay.ledger`, checks whether the log has the round or the player
that is corrected, and validates the new standings of an amendment."""

import math
from typing import NamedTuple

import msgspec

from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract import corrections, events
from stream_rater.contract.corrections import Correction
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import SEEDS
from stream_rater.rounds import batch, decoder
from stream_rater.rounds.fallback import LONGEST_TEXT
from stream_rater.rounds.validation import Invalid, id_mistake

MOST_SEASONS = 2**16 - 1  # The most seasons of a ladder, since a belief counts them in 16 bits.
LAST_SEASON = 2**31 - 1
MOST_SIGMA = 1e9

FIRST, LAST = -(2**62), 2**62  # Times before and after those of all rounds, Unix seconds.


def decode(record: Record, ladders: Ladders, partitions: int = ANYWHERE) -> Correction:
    """Decode and validate the correction in a record of a topic with `partitions` partitions.
    Raises Invalid if it is not well-formed, or if its ladder accepts no corrections."""
    correction = well_formed(record, ladders, partitions)
    if (invalid := rejection(correction, ladders, record.offset)) is not None:
        raise invalid
    return correction


def rejection(correction: Correction, ladders: Ladders, offset: int) -> Invalid | None:
    """The reason why the ladder accepts no corrections at this offset; None if it accepts them."""
    terms = ladders.find(correction.ladder, offset)
    if terms is None or terms.limits.corrections == "accepted":
        return None
    text = f"ladder {correction.ladder!r} takes no corrections: its limits say so"
    invalid = Invalid("corrections-refused", text)
    invalid.set_round(correction.ladder, getattr(correction, "round_id", ""))
    return invalid


def well_formed(record: Record, ladders: Ladders, partitions: int = ANYWHERE) -> Correction:
    """Like `decode`, but also for a ladder that accepts no corrections. Raises Invalid."""
    correction = decoder.event_in(record, ladders.limits.max_bytes, _from_message)
    try:
        _check(correction, ladders, record, partitions)
    except Invalid as invalid:
        invalid.set_round(correction.ladder, getattr(correction, "round_id", ""))
        raise
    return correction


def _from_message(kind: str, value: bytes, *, packed: bool) -> Correction:
    if kind not in corrections.KINDS:
        known = ", ".join((*corrections.KINDS, *SEEDS))
        text = f"{corrections.EVENT_TYPE} {events.shown(kind[:LONGEST_TEXT])!r} is none of {known}"
        raise Invalid("malformed", text)
    return corrections.from_message(kind, value, packed=packed)


def _check(correction: Correction, ladders: Ladders, record: Record, partitions: int) -> None:
    for name in ("ladder", "round_id", "player", "into"):
        value = getattr(correction, name, None)
        if value is not None and (mistake := id_mistake(value)):
            raise Invalid("bad-id", f"{name}: {mistake}")
    if ladders.find(correction.ladder, record.offset) is None:
        raise Invalid("unknown-ladder", f"ladder {correction.ladder!r} is not configured")
    match correction:
        case corrections.PlayerRemoved(since=since, until=until):
            span = span_of(correction)
            if span.since >= span.until:
                raise Invalid("bad-time", f"from: {since} is not before until: {until}")
        case corrections.PlayerMerged(player=player, into=into):
            if player == into:
                raise Invalid("bad-merge", f"player {player!r} cannot be merged into itself")
        case corrections.SeasonStarted(season=season, keep=keep, sigma=sigma):
            if not 1 <= season <= LAST_SEASON:
                raise Invalid("bad-season", f"season: {season} is not in 1..{LAST_SEASON}")
            if not 0.0 <= keep <= 1.0:
                raise Invalid("bad-season", f"keep: {keep} is not in [0, 1]")
            if not 0.0 <= sigma <= MOST_SIGMA:
                raise Invalid("bad-season", f"sigma: {sigma} is not in [0, {MOST_SIGMA:g}]")
    decoder.check_partition(correction.ladder, "correction", record, partitions)


class Span(NamedTuple):
    """A span of times in which a player is removed."""

    since: int  # The first time, in Unix seconds.
    until: int  # The time after the last one.
    seeds: bool = False  # Whether the player is removed from seeds and resets of the span, too.

    def has(self, time: int) -> bool:
        return self.since <= time < self.until


def span_of(removed: corrections.PlayerRemoved) -> Span:
    """The span of times in which a player is removed. Raises Invalid."""
    times = []
    for name, text, default in (("from", removed.since, FIRST), ("until", removed.until, LAST)):
        if text is not None and (mistake := batch.time_mistake(text)):
            raise Invalid("bad-time", f"{name}: {mistake}")
        times.append(default if text is None else events.parse_time(text))
    return Span(times[0], times[1], removed.seed is True)


def amended_message(
    amended: corrections.RoundAmended, completed_at: str, weight: float, ceiling: float
) -> bytes:
    """Encode an amended round as a message of `round-completed`. `completed_at`, `weight` and
    `ceiling` are those of the original round, used where the amendment leaves a field out. An
    infinite ceiling means that there is none."""
    fields = msgspec.structs.asdict(amended)
    ours = {"completed_at": completed_at, "weight": weight}
    ours["performance_ceiling"] = None if math.isinf(ceiling) else ceiling
    given = {name: fields[name] for name in ours if fields[name] is not msgspec.UNSET}
    whole = {"round_id": amended.round_id, "ladder": amended.ladder, **ours, **given}
    return events.to_json({**whole, "standings": [_entry(each) for each in amended.standings]})


def _entry(entry: events.Entry) -> dict[str, object]:
    """The fields of an entry that are set. A score of 0 is one of them."""
    fields = msgspec.structs.asdict(entry).items()
    return {name: value for name, value in fields if value is not None and value is not False}


def names_in(correction: Correction) -> tuple[str, ...]:
    """The players whom a correction names, except those in new standings."""
    if isinstance(correction, corrections.PlayerMerged):
        return correction.player, correction.into
    return (correction.player,) if isinstance(correction, corrections.PlayerRemoved) else ()


def round_in(correction: Correction) -> str:
    """The id of the round that a correction is about, or the empty string."""
    about_round = corrections.RoundVoided | corrections.RoundAmended
    return correction.round_id if isinstance(correction, about_round) else ""
