"""Which edits a round is rated by: those of the corrections that were worked in before it.

Only removed and merged players, and seasons, concern rounds after a correction.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from stream_rater.contract import corrections
from stream_rater.contract.corrections import (
    Correction,
    CorrectionsApplied,
    PlayerMerged,
    PlayerRemoved,
    SeasonStarted,
)
from stream_rater.pipeline.corrections.correction_ports import NotedCorrection
from stream_rater.rating.parameters import Season
from stream_rater.replay.editing import Editing, Version
from stream_rater.replay.edits import NO_EDITS, Edits, StartedSeason
from stream_rater.rounds.corrections import span_of

APPLIED = corrections.NAMES[CorrectionsApplied]

CACHED = 8
"""For so many places at most edits are kept, once they were asked for."""


def correction_of(noted: NotedCorrection) -> Correction:
    """The correction in a note."""
    return corrections.from_message(noted.event_type, bytes(noted.correction))


class LadderEdits:
    """The corrections of one ladder, by what is noted of them.

    It takes memory in proportion to the notes. The edits of one place are made when somebody asks
    for them.
    """

    def __init__(self, noted: Iterable[NotedCorrection] = ()) -> None:
        self.noted: list[NotedCorrection] = []
        """All that were accepted, in the order in which they were worked in."""
        self._waiting: dict[int, NotedCorrection] = {}
        """By offset, those that wait for `corrections-applied`."""
        self._applied: dict[int, list[NotedCorrection]] = {}
        """By where they were worked in, those that have waited for it."""
        self._places: set[tuple[int, int]] = set()
        self._editing = Editing()
        self._from: list[int] = []
        self._versions: list[Version] = []
        """What holds for rounds after each of these offsets."""
        self._made: dict[int, Edits] = {}
        """By the number of the place, edits that were asked for lately."""
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
                self._apply(each.at)
            self._edit(correction_of(each), each.at)

    def _apply(self, at: int) -> None:
        """What waits before this offset was worked in there."""
        gone = [offset for offset in self._waiting if offset < at]
        self._applied.setdefault(at, []).extend(self._waiting.pop(each) for each in gone)

    def _edit(self, correction: Correction, at: int) -> None:
        match correction:
            case PlayerRemoved():
                self._editing.remove(correction.player, span_of(correction))
            case PlayerMerged():
                self._editing.merge(correction.player, correction.into)
            case SeasonStarted(season=season, keep=keep, sigma=sigma):
                self._editing.start(StartedSeason(at, Season(season, keep, sigma)))
            case _:
                return
        if self._from and self._from[-1] == at:
            self._versions[-1] = self._editing.version
            self._made.pop(len(self._from), None)
        else:
            self._from.append(at)
            self._versions.append(self._editing.version)

    def waiting(self, before: int) -> list[NotedCorrection]:
        """Those before this offset that wait there, in order. Whoever works in again what was
        noted at this offset finds them, too."""
        some = [*self._waiting.values()]
        for at, applied in reversed(self._applied.items()):
            if at < before:
                break
            some += applied
        waits = [each for each in some if each.offset < before]
        return sorted(waits, key=lambda each: each.offset)

    def accepted(self, before: int) -> list[NotedCorrection]:
        """Those that were worked in before this offset, in that order."""
        return [each for each in self.noted if each.at < before]

    def of(self, offset: int) -> Edits:
        """The edits that a round at this offset is rated by."""
        return self._nth(bisect_left(self._from, offset))

    def _nth(self, number: int) -> Edits:
        """Those of the first places, so many of them."""
        if not number:
            return NO_EDITS
        found = self._made.get(number)
        if found is None:
            if len(self._made) >= CACHED:
                self._made.pop(next(iter(self._made)))
            found = self._made[number] = self._editing.at(self._versions[number - 1])
        return found

    @property
    def last(self) -> Edits:
        """The edits that rounds to come are rated by."""
        return self._nth(len(self._from))

    @property
    def has_seasons(self) -> bool:
        """Whether a season has started."""
        return bool(self._editing.seasons)


class EditsOfLadders:
    """The corrections of all ladders, for who reads the notes again and again."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Sequence[NotedCorrection], int, LadderEdits]] = {}
        """By ladder, its notes, how many of them were added, and the edits."""

    def of(self, ladder: str, noted: Mapping[str, Sequence[NotedCorrection]]) -> LadderEdits:
        """The corrections of a ladder, of which this is noted now. Notes are only ever added to
        the end: those that are known are not looked at again."""
        notes = noted.get(ladder, ())
        known, count, edits = self._held.get(ladder, (notes, 0, None))
        if edits is None or known is not notes or len(notes) < count:
            count, edits = 0, LadderEdits()
        edits.add(notes[count:])
        self._held[ladder] = notes, len(notes), edits
        return edits
