"""Seeds and resets: events in `round-completed` that give players a belief without a round.

Both are keyed by ladder, as rounds are, and the header `event-type` names the kind. A seed gives
players who have no round the ratings that they bring from another system. A reset makes one
player's rating uncertain again. Each has an id in `round_id`, so that a record that is sent twice
counts once, and so that `round-voided` can take it back.
"""

from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

SEEDED = "players-seeded"
RESET = "player-reset"

MOST_PLAYERS = 5_000  # The most players of a seed.
MOST_SEED_BYTES = 512 * 1024  # The most bytes of a seed that our own producers send.


class SeededPlayer(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One player's rating in a seed."""

    player: str
    mu: float
    sigma: float | None = None
    """The uncertainty of mu. None means the initial one of the ladder."""
    rounds: int = 1
    """The number of rounds that stand behind the rating. The player counts as having played
    them."""


class RatingGiven(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields that seeds and resets have in common."""

    kind: ClassVar[str]
    """The name in the header `event-type`."""

    ladder: str
    round_id: str
    """The id. Within the duplicate window, no round, seed or reset of the ladder has the same."""
    at: str
    """The time from which on the rating counts, as RFC 3339 with a zone."""
    source: str = ""
    """A text for people: where the ratings come from. It is stored in the log, and no program reads
    it."""
    event_type: str = ""
    """The kind, as a file names it. In a topic the header names the kind."""


class PlayersSeeded(RatingGiven, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gives these players a first rating. It changes nothing for a player who has a round or a seed
    before it in the edited log."""

    kind: ClassVar[str] = SEEDED
    players: list[SeededPlayer]


class PlayerReset(RatingGiven, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Raises one player's sigma to at least `sigma`, and moves mu to `mu` if it is given. It
    changes nothing for a player who has no round and no seed before it in the edited log."""

    kind: ClassVar[str] = RESET
    player: str
    sigma: float
    mu: float | UnsetType = UNSET


SEEDS: dict[str, type[PlayersSeeded | PlayerReset]] = {SEEDED: PlayersSeeded, RESET: PlayerReset}
"""The kinds of events that give ratings, by the name in the header `event-type`."""
