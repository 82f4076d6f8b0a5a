"""Corrections: events in `round-completed` beside the rounds, and keyed by ladder as they are.

The header `event-type` names the kind; a record without it is a round. In a file, which has no
headers, the field `event_type` does.
"""

import msgspec
from msgspec import UNSET, UnsetType

from stream_rater.contract.events import StrictEntry

EVENT_TYPE = "event-type"
"""The header that names the kind of a record in `round-completed`."""

ROUND = "round-completed"
"""The kind of a round, for those who name it all the same."""


class Correction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all corrections have."""

    ladder: str
    reason: str = ""
    """For people. It is stored in the log and read by nobody."""
    event_type: str = ""
    """As in a file; in a topic the header counts."""


class Batched(Correction, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A correction that may wait for others."""

    batched: bool = False
    """Whether it waits for the next `corrections-applied` of its ladder."""


class RoundVoided(Batched, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A round is taken back, as if it had never been."""

    round_id: str


class RoundAmended(Batched, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A round had other standings. It keeps its place in the order; a field that is left out keeps
    its value. A voided round counts again."""

    round_id: str
    standings: list[StrictEntry]
    completed_at: str | UnsetType = UNSET
    weight: float | UnsetType = UNSET
    performance_ceiling: float | UnsetType | None = UNSET


class PlayerRemoved(Batched, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A player's entries are taken out of the rounds completed from `since` (the field `from`) to
    before `until`; from the first round on, or for ever, where it is left out. A team loses the
    member."""

    player: str
    since: str | None = msgspec.field(default=None, name="from")
    until: str | None = None


class PlayerMerged(Batched, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rounds of `player` count as those of `into`, before this and from now on."""

    player: str
    into: str


class SeasonStarted(Correction, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At this place in the order every belief is drawn towards the initial one: `keep` of mu's
    distance stays, and sigma becomes `sigma` at least."""

    season: int
    keep: float = 1.0
    sigma: float = 0.0


class CorrectionsApplied(Correction, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The batched corrections of the ladder before this are worked in, together."""


KINDS: dict[str, type[Correction]] = {
    "round-voided": RoundVoided,
    "round-amended": RoundAmended,
    "player-removed": PlayerRemoved,
    "player-merged": PlayerMerged,
    "season-started": SeasonStarted,
    "corrections-applied": CorrectionsApplied,
}
"""By the name in the header `event-type`."""

NAMES = {kind: name for name, kind in KINDS.items()}
"""By kind."""
_FROM_JSON = {name: msgspec.json.Decoder(kind).decode for name, kind in KINDS.items()}
_FROM_MSGPACK = {name: msgspec.msgpack.Decoder(kind).decode for name, kind in KINDS.items()}


def name_of(correction: Correction) -> str:
    """The name of a correction's kind."""
    return NAMES[type(correction)]


def from_message(kind: str, value: bytes, *, packed: bool = False) -> Correction:
    """The correction in a message of this kind, one of KINDS; `packed`: in MessagePack. Raises
    events.UNDECODABLE."""
    return (_FROM_MSGPACK if packed else _FROM_JSON)[kind](value)


class _AnyEvent(msgspec.Struct):
    """A line of a file, as far as its kind needs it."""

    event_type: str = ""


_any_event = msgspec.json.Decoder(_AnyEvent).decode


def kind_of_line(line: bytes) -> str:
    """The field `event_type` of a line of a file; empty for a round, and for what is no JSON."""
    if b'"event_type"' not in line:
        return ""
    try:
        kind = _any_event(line).event_type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return "" if kind == ROUND else kind
