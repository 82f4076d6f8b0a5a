"""The contents of the index for a ladder, and how events change them.

The index depends only on each player's newest event, not on the order of reading:

- A player's newest event is the one with the greatest `offset`. An older event changes only the
  history, which keeps the newest changes that were read (`writer`).
- A player without a counted round stays in the index without a rank. So an older event that is read
  later does not return the player to the leaderboard.
- Without views, the leaderboard lists the players who are not provisional. The histogram counts
  listed players.
- The views of a ladder (`config.views`) need more of a player than the newest event: the tier
  before, and the time of the last round if the newest event is of a correction. So an index that is
  made again from fewer events may place a player otherwise until the player's next round.
- A player leaves the list without an event when a moment comes that the newest event determines. A
  sweep takes such players out in order of moment and player. The place of the last one that was
  taken out (`LadderIndex.swept`) determines who is listed: those whose moment is later.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from stream_rater.config import views as by_views
from stream_rater.config.views import NO_VIEWS, NOT_LISTED, NOT_PROTECTED, Views
from stream_rater.contract.events import UNDECODABLE, RatingChanged, parse_time
from stream_rater.contract.season_ended import Standing

SEEDED = "players-seeded"  # An event with this cause begins a belief, and counts as a round.
BIN = 50  # The width of a bin of the histogram, in points of displayed rating.

EntryKey = tuple[str, str, int]  # A ladder, a player, and the `offset` of an event.
Swept = tuple[float, bytes]
"""The place of a player among those who leave the list: the moment in Unix seconds, and the id."""
NOT_SWEPT: Swept = (-math.inf, b"")  # The place before all others.
WRONG_CLOCK_S = 600.0  # A stored moment that is further ahead of now comes from a wrong clock.


class Placement(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A player's place by the views of a ladder. Its fields are stored as IndexedPlayer's are."""

    played_s: int  # When the last round was completed, Unix seconds.
    until_s: float  # The moment from which on the player is not listed (`views.listed_until`).
    tier: str | None = None  # The tier after the newest event; None if the ladder has none.
    previous_tier: str | None = None  # The tier before it; None if the player was not listed then.
    protected_until: int = NOT_PROTECTED  # The number of rounds up to which the tier is kept.


class IndexedPlayer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A player as published in the newest event. The fields are stored in this order, without
    names. So a new field must be added at the end, and must have a default."""

    mu: float
    sigma: float
    rating: float
    rounds: int
    provisional: bool
    completed_at: str
    offset: int  # The offset in `round-completed` of the last change of the player.
    season: int | None = None
    placement: Placement | None = None  # The place by the views of the ladder; None if it has none.

    @property
    def until_s(self) -> float:
        """The moment from which on the player is not listed, Unix seconds. It is NOT_LISTED if the
        player is not listed at all, and infinity if the moment never comes by itself."""
        if self.placement is not None:
            return self.placement.until_s
        return math.inf if self.rounds > 0 and not self.provisional else NOT_LISTED

    def is_listed(self, name: str, swept: Swept) -> bool:
        """Whether the leaderboard lists this player, whose id is `name`, after a sweep."""
        if self.placement is None:
            return self.rounds > 0 and not self.provisional
        return self.until_s > NOT_LISTED and (self.until_s, name.encode()) > swept

    def tier_at(self, at_s: float) -> str | None:
        """The tier at a time in Unix seconds; None if the player is not listed then."""
        return self.placement.tier if self.placement is not None and self.until_s > at_s else None

    def unmet(self, name: str, views: Views, at_s: float) -> by_views.Unmet | None:
        """The first rule that keeps the player, whose id is `name`, off the list at a time in Unix
        seconds."""
        played_s = 0 if self.placement is None else self.placement.played_s
        return by_views.why_not_listed(views, _facts(name, self, views, played_s), at_s)


class IndexedChange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The change of a player by an event, in the history. It is stored as an IndexedPlayer is."""

    offset: int
    round_id: str
    completed_at: str
    rank: int | None
    performance: float | None
    mu: float
    sigma: float
    rating: float
    previous_rating: float
    rounds: int
    cause: str | None = None  # The kind of the correction that caused the change; None for a round.


class LadderSummary(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The data about a ladder as a whole. The fields are stored as those of IndexedPlayer."""

    players: int = 0  # The number of players with at least one counted round.
    offset: int = -1  # The greatest `offset` of all events; -1 if there is none.
    completed_at: str = ""  # The time of that event. The season is that event's, too.
    season: int | None = None


History = tuple[IndexedChange, ...]


class LadderIndex(NamedTuple):
    """A part of a ladder's index: some players, and the data about all players."""

    players: Mapping[str, IndexedPlayer]
    summary: LadderSummary
    swept: Swept = NOT_SWEPT  # The place of the last player whom a sweep has taken out.
    made: Mapping[EntryKey, IndexedPlayer] = {}
    """If the ladder has tiers: the player after each applied event."""

    def listed(self) -> dict[str, IndexedPlayer]:
        """The players whom the leaderboard lists."""
        known = self.players.items()
        return {name: each for name, each in known if each.is_listed(name, self.swept)}


def player_of(
    event: RatingChanged, previous: IndexedPlayer | None = None, views: Views = NO_VIEWS
) -> IndexedPlayer:
    """The player after this event. `previous` is the player before it, if known."""
    found = IndexedPlayer(
        event.mu, event.sigma, event.rating, event.rounds, event.provisional, event.completed_at,
        event.offset, event.season,
    )  # fmt: skip
    if not views.id:
        return found
    played_s = _seconds(event.completed_at)
    before = None if previous is None else previous.placement
    if before is not None:
        # The time of a correction is that of another player's round.
        of_round = event.correction is None or event.correction.cause == SEEDED
        played_s = max(before.played_s, played_s) if of_round else before.played_s
    return _placed(event.player, found, previous, views, played_s)


def player_in(standing: Standing) -> IndexedPlayer:
    """A player of the leaderboard with which a season has ended."""
    return IndexedPlayer(
        standing.mu, standing.sigma, standing.rating, standing.rounds, False, "", 0,
        standing.season, Placement(0, math.inf, standing.tier),
    )  # fmt: skip


def replaced(name: str, player: IndexedPlayer, views: Views) -> IndexedPlayer:
    """The same player by other views. A tier that they still have is kept as after an event."""
    if not views.id:
        return msgspec.structs.replace(player, placement=None)
    before = player.placement
    played_s = _seconds(player.completed_at) if before is None else before.played_s
    return _placed(name, player, player, views, played_s)


def _placed(
    name: str, player: IndexedPlayer, previous: IndexedPlayer | None, views: Views, played_s: int
) -> IndexedPlayer:
    last, shown = None, None
    if previous is not None:
        shown, before = previous.tier_at(played_s), previous.placement
        if previous.rounds and before is not None and before.tier is not None:
            last = by_views.TierState(before.tier, before.protected_until)
    after = by_views.tier_after(views, last, player.rating, player.rounds)
    tier, protected_until = after or (None, NOT_PROTECTED)
    until_s = by_views.listed_until(views, _facts(name, player, views, played_s))
    placement = Placement(played_s, until_s, tier, shown, protected_until)
    return msgspec.structs.replace(player, placement=placement)


def _seconds(completed_at: str) -> int:
    """The time in an event in Unix seconds; 0 if it is no time. No worker writes such an event."""
    try:
        return parse_time(completed_at)
    except (ValueError, *UNDECODABLE):
        return 0


def _facts(name: str, player: IndexedPlayer, views: Views, played_s: int) -> by_views.NewestFacts:
    return by_views.NewestFacts(
        player.rounds, player.provisional, player.sigma, player.offset, played_s,
        views.listing.hides(name),
    )  # fmt: skip


def change_of(event: RatingChanged) -> IndexedChange:
    """The event as an entry of the history."""
    cause = None if event.correction is None else event.correction.cause
    return IndexedChange(
        event.offset, event.round_id, event.completed_at, event.rank, event.performance, event.mu,
        event.sigma, event.rating, event.previous_rating, event.rounds, cause,
    )  # fmt: skip


class PlayerErased(NamedTuple):
    """A record without a value: the index must forget the player. It is the last record of the
    player in each partition that has events of the player."""

    ladder: str
    player: str


IndexEvent = RatingChanged | PlayerErased


def apply_events(
    before: LadderIndex, events: Iterable[IndexEvent], views: Views = NO_VIEWS
) -> LadderIndex:
    """The index of a ladder after these events. `before` must have those players of the events who
    are in the index."""
    players, count, newest = dict(before.players), before.summary.players, before.summary.offset
    last: IndexedPlayer | None = None
    made: dict[EntryKey, IndexedPlayer] = {}
    for event in events:
        player = event.player
        if isinstance(event, PlayerErased):
            if (previous := players.pop(player, None)) is not None:
                count -= previous.rounds > 0
            continue
        previous = players.get(player)
        if previous is not None and previous.offset >= event.offset:
            continue
        new = players[player] = player_of(event, previous, views)
        if views.tiers:
            made[event.ladder, player, event.offset] = new
        count += (new.rounds > 0) - (previous is not None and previous.rounds > 0)
        if new.offset > newest:
            last, newest = new, new.offset
    summary = msgspec.structs.replace(before.summary, players=count)
    if last is not None:
        summary = LadderSummary(count, last.offset, last.completed_at, last.season)
    return LadderIndex(players, summary, before.swept, made)
