"""How a ladder's corrections join, one after the other.

Each takes the same time, however many there were before. `edits` says what all of them make of the
ladder's rounds; making that takes time in proportion to them, so ask it for many rounds at once.
"""

from typing import NamedTuple

from stream_rater.replay.edits import NO_EDITS, Edits, StartedSeason
from stream_rater.replay.fates import Fates, Span
from stream_rater.rounds.batch import RoundBatch


class Version(NamedTuple):
    """How much was said of players and seasons until some moment."""

    fates: int
    seasons: int


class Editing:
    """The accepted corrections of one ladder so far."""

    def __init__(self, base: Edits = NO_EDITS) -> None:
        self.fates = Fates.after(base.fates)
        self.voided = set(base.voided)
        """As in Edits, and so are the next two."""
        self.amended = dict(base.amended)
        self.seasons = list(base.seasons)
        self._edits: Edits | None = base

    def void(self, offset: int) -> None:
        """The round at this offset is voided."""
        self.voided.add(offset)
        self._edits = None

    def amend(self, offset: int, round_: RoundBatch) -> None:
        """The round at this offset was another one; it counts even if it was voided."""
        self.amended[offset] = round_
        self.voided.discard(offset)
        self._edits = None

    def remove(self, player: str, span: Span) -> None:
        """The player's entries are taken out of rounds completed in this span."""
        self.fates.remove(player, span)
        self._edits = None

    def merge(self, player: str, into: str) -> None:
        """What is the player's is another's from now on."""
        self.fates.merge(player, into)
        self._edits = None

    def start(self, season: StartedSeason) -> None:
        """A season starts."""
        self.seasons.append(season)
        self._edits = None

    def names_of(self, player: str) -> list[str]:
        """The reported names whose entries are this player's now."""
        return self.fates.names_of(player)

    @property
    def edits(self) -> Edits:
        """What all corrections until now make of rounds. Later ones do not change it."""
        if self._edits is None:
            self._edits = Edits(
                self.fates.now(), frozenset(self.voided), dict(self.amended), tuple(self.seasons)
            )
        return self._edits

    @property
    def version(self) -> Version:
        """How much was said of players and seasons until now."""
        return Version(self.fates.version, len(self.seasons))

    def at(self, version: Version) -> Edits:
        """What was said of players and seasons until then."""
        return Edits(self.fates.at(version.fates), seasons=tuple(self.seasons[: version.seasons]))
