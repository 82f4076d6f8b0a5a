"""Corrections: events in `round-completed` beside the rounds. Like rounds, they are keyed by
ladder.

The header `event-type` names the kind of a record; a record without this header is a round. A file
has no headers, so there the field `event_type` names the kind.
"""

from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from stream_rater.contract.events import StrictEntry

E = TypeVar("E")

EVENT_TYPE = "event-type"  # The header that names the kind of a record in `round-completed`.

ROUND = "round-completed"  # The kind of a round. A record of a round may name it or leave it out.


class Correction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields that all corrections have."""

    ladder: str
    reason: str = ""
    """A text for people. It is stored in the log, and no program reads it."""
    event_type: str = ""
    """The kind, as a file names it. In a topic the header names the kind."""


class Batched(Correction, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A correction that may be applied together with others."""

    batched: bool = False
    """Whether the correction waits for the next `corrections-applied` of its ladder."""


class RoundVoided(Batched, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Voids a round, as if it had never been played."""

    round_id: str


class RoundAmended(Batched, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replaces a round's standings. The round keeps its place in the order, and a field that is
    left out keeps its value. A voided round counts again."""

    round_id: str
    standings: list[StrictEntry]
    completed_at: str | UnsetType = UNSET
    weight: float | UnsetType = UNSET
    performance_ceiling: float | UnsetType | None = UNSET


class PlayerRemoved(Batched, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Removes a player's entries from the rounds that were completed from `since` (the field
    `from`) to before `until`. Without `since` the span starts at the first round; without `until`
    it never ends. A team loses this member. With `seed`, the player is removed from the seeds and
    resets of this span, too."""

    player: str
    since: str | None = msgspec.field(default=None, name="from")
    until: str | None = None
    seed: bool | UnsetType = UNSET


class PlayerMerged(Batched, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Merges a player into another one: the rounds of `player`, earlier and later ones, count as
    rounds of `into`."""

    player: str
    into: str


class SeasonStarted(Correction, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Starts a season. At this place in the order every belief is drawn towards the initial one:
    the fraction `keep` of mu's distance remains, and sigma becomes at least `sigma`."""

    season: int
    keep: float = 1.0
    sigma: float = 0.0


class CorrectionsApplied(Correction, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Applies together all batched corrections of the ladder that precede this record."""


KINDS: dict[str, type[Correction]] = {
    "round-voided": RoundVoided,
    "round-amended": RoundAmended,
    "player-removed": PlayerRemoved,
    "player-merged": PlayerMerged,
    "season-started": SeasonStarted,
    "corrections-applied": CorrectionsApplied,
}
"""The kinds of corrections, by the name in the header `event-type`."""

NAMES = {kind: name for name, kind in KINDS.items()}
"""The name in the header `event-type`, by kind."""


def name_of(correction: Correction) -> str:
    """The name of a correction's kind."""
    return NAMES[type(correction)]


def from_message(kind: type[E], value: bytes, *, packed: bool = False) -> E:
    """Decode an event of this kind, a correction, seed or reset, from a message. `packed` means
    that the message is MessagePack, not JSON. Raises one of events.UNDECODABLE."""
    return (msgspec.msgpack.decode if packed else msgspec.json.decode)(value, type=kind)


class _AnyEvent(msgspec.Struct):
    """The only field of a line of a file that its kind depends on."""

    event_type: str = ""


_any_event = msgspec.json.Decoder(_AnyEvent).decode


def kind_of_line(line: bytes) -> str:
    """The field `event_type` of a line of a file; empty for a round, or what is not JSON."""
    if b'"event_type"' not in line:
        return ""
    try:
        kind = _any_event(line).event_type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return "" if kind == ROUND else kind
