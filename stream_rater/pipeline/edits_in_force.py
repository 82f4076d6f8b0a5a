"""Which edits a round is rated by: those of the corrections that were worked in before it.

Only removed and merged players, and seasons, concern rounds after a correction.
"""

from bisect import bisect_left
from collections.abc import Iterable

from stream_rater.contract import corrections
from stream_rater.contract.corrections import (
    Correction,
    CorrectionsApplied,
    PlayerMerged,
    PlayerRemoved,
    SeasonStarted,
)
from stream_rater.pipeline.correction_ports import NotedCorrection
from stream_rater.rating.parameters import Season
from stream_rater.replay.edits import NO_EDITS, Edits, StartedSeason
from stream_rater.rounds.corrections import span_of

APPLIED = corrections.NAMES[CorrectionsApplied]


def correction_of(noted: NotedCorrection) -> Correction:
    """The correction in a note."""
    return corrections.from_message(noted.event_type, bytes(noted.correction))


class LadderEdits:
    """The corrections of one ladder, by what is noted of them."""

    def __init__(self, noted: Iterable[NotedCorrection] = ()) -> None:
        self.noted: list[NotedCorrection] = []
        """All that were accepted, in the order in which they were worked in."""
        self._waiting: dict[int, NotedCorrection] = {}
        """By offset, those that wait for `corrections-applied`, or have waited for it."""
        self._applied: dict[int, int] = {}
        """By offset, where those were worked in that wait no more."""
        self._places: set[tuple[int, int]] = set()
        self._from: list[int] = []
        self._edits: list[Edits] = []
        """Edits that hold for rounds after each of these offsets."""
        self.add(noted)

    def add(self, noted: Iterable[NotedCorrection]) -> None:
        """Add notes, in the order in which they were written. Whoever works a correction in again
        notes it again: that adds nothing."""
        for each in noted:
            if each.place in self._places:
                continue
            self._places.add(each.place)
            if each.at < 0:
                self._waiting[each.offset] = each
                continue
            self.noted.append(each)
            if each.event_type == APPLIED:
                for offset in self._waiting:
                    if offset < each.at:
                        self._applied.setdefault(offset, each.at)
            before = self._edits[-1] if self._edits else NO_EDITS
            after = _with(before, correction_of(each), each.at)
            if after is not before:
                self._from.append(each.at)
                self._edits.append(after)

    def waiting(self, before: int) -> list[NotedCorrection]:
        """Those before this offset that wait there, in order. Whoever works in again what was
        noted at this offset finds them, too."""
        waits = {o for o in self._waiting if o < before <= self._applied.get(o, before)}
        return [self._waiting[offset] for offset in sorted(waits)]

    def accepted(self, before: int) -> list[NotedCorrection]:
        """Those that were worked in before this offset, in that order."""
        return [each for each in self.noted if each.at < before]

    def of(self, offset: int) -> Edits:
        """The edits that a round at this offset is rated by."""
        number = bisect_left(self._from, offset)
        return self._edits[number - 1] if number else NO_EDITS

    @property
    def last(self) -> Edits:
        """The edits that rounds to come are rated by."""
        return self._edits[-1] if self._edits else NO_EDITS


def _with(edits: Edits, correction: Correction, at: int) -> Edits:
    match correction:
        case PlayerRemoved():
            return edits.remove(correction.player, span_of(correction))
        case PlayerMerged():
            return edits.merge(correction.player, correction.into)
        case SeasonStarted(season=season, keep=keep, sigma=sigma):
            return edits.start(StartedSeason(at, Season(season, keep, sigma)))
    return edits
