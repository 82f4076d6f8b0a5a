"""The contents of the index for a ladder, and how events change them.

The index depends only on each player's newest event, not on the order of reading:

- A player's newest event is the one with the greatest `offset`. An older event changes only the
  history, which keeps the newest changes that were read.
- A player without a counted round stays in the index without a rank. So an older event that is read
  later does not return the player to the leaderboard.
- The leaderboard lists the players who are not provisional. The histogram counts listed players.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from stream_rater.contract.events import RatingChanged

BIN = 50
"""The width of a bin of the histogram, in points of displayed rating."""


class IndexedPlayer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A player as published in the newest event.

    The fields are stored in this order, without names. So a new field must be added at the end, and
    must have a default.
    """

    mu: float
    sigma: float
    rating: float
    rounds: int
    provisional: bool
    completed_at: str
    offset: int
    """The offset in `round-completed` of the last change of the player."""
    season: int | None = None

    @property
    def listed(self) -> bool:
        """Whether the leaderboard lists the player."""
        return self.rounds > 0 and not self.provisional


class IndexedChange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The change of a player by an event, as an entry of the history. The fields are stored as
    those of IndexedPlayer are."""

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
    cause: str | None = None
    """The kind of the correction that caused the change; None if a round caused it."""


class LadderSummary(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The data about a ladder as a whole. The fields are stored as those of IndexedPlayer are."""

    players: int = 0
    """The number of players with at least one counted round."""
    offset: int = -1
    """The greatest `offset` of all events; -1 without any. The next fields are those of the event
    with this offset."""
    completed_at: str = ""
    season: int | None = None


History = tuple[IndexedChange, ...]

decode_player = msgspec.msgpack.Decoder(IndexedPlayer).decode
decode_history = msgspec.msgpack.Decoder(History).decode
decode_change = msgspec.msgpack.Decoder(IndexedChange).decode
decode_summary = msgspec.msgpack.Decoder(LadderSummary).decode
encode_entry = msgspec.msgpack.Encoder().encode


_decode_all = msgspec.msgpack.Decoder(list[IndexedPlayer | None]).decode
_NIL = b"\xc0"
"""The encoding of None in MessagePack."""


def decode_players(records: Sequence[bytes | None]) -> list[IndexedPlayer | None]:
    """Decode the records of players in one call. None stands for a player without a record, in the
    argument and in the result."""
    head = b"\xdd" + len(records).to_bytes(4, "big")
    return _decode_all(head + b"".join([_NIL if each is None else each for each in records]))


class LadderIndex(NamedTuple):
    """A part of a ladder's index: some players, and the data about all players."""

    players: Mapping[str, IndexedPlayer]
    histories: Mapping[str, History]
    bins: Mapping[int, int]
    """The number of listed players in each bin of the histogram, by the bin's lower end. A bin that
    is absent has none."""
    summary: LadderSummary


def player_of(event: RatingChanged) -> IndexedPlayer:
    """The player after this event."""
    return IndexedPlayer(
        event.mu, event.sigma, event.rating, event.rounds, event.provisional, event.completed_at,
        event.offset, event.season,
    )  # fmt: skip


def change_of(event: RatingChanged) -> IndexedChange:
    """The event as an entry of the history."""
    cause = None if event.correction is None else event.correction.cause
    return IndexedChange(
        event.offset, event.round_id, event.completed_at, event.rank, event.performance, event.mu,
        event.sigma, event.rating, event.previous_rating, event.rounds, cause,
    )  # fmt: skip


def bin_of(rating: float) -> int:
    """The lower end of a rating's bin, in points."""
    return BIN * math.floor(rating / BIN)


class PlayerErased(NamedTuple):
    """A record without a value, which means that the index must forget the player. Each partition
    with events of the player has such a record after them."""

    ladder: str
    player: str


IndexEvent = RatingChanged | PlayerErased


def apply_events(
    before: LadderIndex, events: Iterable[IndexEvent], max_changes: int
) -> LadderIndex:
    """Apply events of one ladder, and return the index after them. `before` must have every player
    of these events who is in the index. Each history keeps its newest `max_changes` changes."""
    players, histories = dict(before.players), dict(before.histories)
    bins, summary = dict(before.bins), before.summary
    for event in events:
        player = event.player
        if isinstance(event, PlayerErased):
            histories.pop(player, None)
            if (previous := players.pop(player, None)) is not None:
                _count_listed(bins, previous, -1)
                count = summary.players - (previous.rounds > 0)
                summary = msgspec.structs.replace(summary, players=count)
            continue
        if max_changes:
            histories[player] = _with_change(
                histories.get(player, ()), change_of(event), max_changes
            )
        previous, new = players.get(player), player_of(event)
        if previous is not None and previous.offset >= new.offset:
            continue
        players[player] = new
        _count_listed(bins, previous, -1)
        _count_listed(bins, new, 1)
        count = summary.players + (new.rounds > 0) - (previous is not None and previous.rounds > 0)
        summary = msgspec.structs.replace(summary, players=count)
        if new.offset > summary.offset:
            summary = LadderSummary(count, new.offset, new.completed_at, new.season)
    return LadderIndex(players, histories, bins, summary)


def _count_listed(bins: dict[int, int], player: IndexedPlayer | None, step: int) -> None:
    """Add `step` to the histogram's count for a player, if the player is listed."""
    if player is not None and player.listed:
        at = bin_of(player.rating)
        bins[at] = bins.get(at, 0) + step


def _with_change(history: History, change: IndexedChange, max_changes: int) -> History:
    """Add a change to a history. The result is in order of offset, has one change for each offset,
    and has at most `max_changes` changes, the newest."""
    if not history or history[-1].offset < change.offset:
        return (*history, change)[-max_changes:]
    others = [each for each in history if each.offset != change.offset]
    return tuple(sorted([*others, change], key=lambda each: each.offset))[-max_changes:]
