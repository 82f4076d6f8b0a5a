"""The ladder events of a ladder's corrections, and the edits for a round. A round is rated by the
edits of the corrections that were applied before it.

Only corrections that remove or merge players or start seasons affect rounds after them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET

from stream_rater.contract import corrections
from stream_rater.contract.corrections import Correction
from stream_rater.contract.events import to_json
from stream_rater.pipeline.ports import RecordedCorrection
from stream_rater.replay.edits import NO_EDITS, Edits, EditsSoFar, StartedSeason, Version
from stream_rater.rounds.correction_records import names_in, round_in, span_of

APPLIED = corrections.NAMES[corrections.CorrectionsApplied]

CACHED = 8  # The most places whose edits are cached.


def correction_of(recorded: RecordedCorrection) -> Correction:
    """Decode the correction in a ladder event."""
    kind = corrections.KINDS[recorded.event_type]
    return corrections.from_message(kind, bytes(recorded.correction))


def recorded_correction(offset: int, correction: Correction, at: int) -> RecordedCorrection:
    """Make the ladder event of a correction whose record is at `offset`. It has all that later
    rounds are rated by, and no field of unlimited length. `at`: the offset at which the correction
    was applied; -1 while it waits."""
    correction = msgspec.structs.replace(correction, reason="", event_type="")
    if isinstance(correction, corrections.RoundAmended):
        correction = msgspec.structs.replace(correction, standings=[], completed_at=UNSET)
    value = msgspec.Raw(to_json(correction))
    return RecordedCorrection(offset, corrections.name_of(correction), value, at)


def matches(recorded: RecordedCorrection, correction: corrections.Correction) -> bool:
    """Whether a ladder event is about this correction: kind, ladder, round and players are
    equal."""
    other = correction_of(recorded)
    return (
        corrections.name_of(other) == corrections.name_of(correction)
        and other.ladder == correction.ladder
        and round_in(other) == round_in(correction)
        and names_in(other) == names_in(correction)
    )


class LadderEdits:
    """The corrections of one ladder, from their ladder events. The memory is in proportion to the
    number of ladder events. The edits of a place are computed at their first use."""

    def __init__(self, recorded: Iterable[RecordedCorrection] = ()) -> None:
        self.recorded: list[RecordedCorrection] = []
        """The accepted corrections, in the order in which they were applied."""
        self._waiting: dict[int, RecordedCorrection] = {}
        """By offset, the corrections that wait for `corrections-applied`."""
        self._applied: dict[int, list[RecordedCorrection]] = {}
        """By the offset of each `corrections-applied`, the corrections that were applied there."""
        self._places: set[tuple[int, int]] = set()
        self._corrections = EditsSoFar()
        self._offsets: list[int] = []
        self._versions: list[Version] = []
        """The version of the edits for rounds after each offset in `_offsets`."""
        self._recent: dict[int, Edits] = {}
        """By the number of the place, the edits that were used recently."""
        self.add(recorded)

    def add(self, recorded: Iterable[RecordedCorrection]) -> None:
        """Add ladder events in the order in which they were written. If a correction is applied
        again, its event comes again and adds nothing."""
        for each in recorded:
            if each.place in self._places:
                continue
            self._places.add(each.place)
            if each.at < 0:
                self._waiting[each.offset] = each
                continue
            self.recorded.append(each)
            if each.event_type == APPLIED:
                self._apply(each.at)
            self._edit(correction_of(each), each.at)

    def _apply(self, at: int) -> None:
        """Record that the corrections that waited before this offset were applied at it."""
        waited = [offset for offset in self._waiting if offset < at]
        self._applied.setdefault(at, []).extend(self._waiting.pop(each) for each in waited)

    def _edit(self, correction: Correction, at: int) -> None:
        match correction:
            case corrections.PlayerRemoved():
                self._corrections.change(correction.player, span_of(correction))
            case corrections.PlayerMerged():
                self._corrections.change(correction.player, correction.into)
            case corrections.SeasonStarted():
                self._corrections.start(StartedSeason.of(correction, at))
            case _:
                return
        if self._offsets and self._offsets[-1] == at:
            self._versions[-1] = self._corrections.version
            self._recent.pop(len(self._offsets), None)
        else:
            self._offsets.append(at)
            self._versions.append(self._corrections.version)

    def waiting(self, before: int) -> list[RecordedCorrection]:
        """The corrections before this offset that wait at it, in order. This also holds if the
        corrections that were applied at this offset are applied again."""
        candidates = [*self._waiting.values()]
        for at, applied in reversed(self._applied.items()):
            if at < before:
                break
            candidates += applied
        waits = [each for each in candidates if each.offset < before]
        return sorted(waits, key=lambda each: each.offset)

    def accepted(self, before: int) -> list[RecordedCorrection]:
        """The corrections that were applied before this offset, in that order."""
        return [each for each in self.recorded if each.at < before]

    def of(self, offset: int) -> Edits:
        """The edits by which a round at this offset is rated."""
        return self._edits_after(bisect_left(self._offsets, offset))

    def _edits_after(self, number: int) -> Edits:
        """The edits after the first `number` places."""
        if not number:
            return NO_EDITS
        found = self._recent.get(number)
        if found is None:
            if len(self._recent) >= CACHED:
                self._recent.pop(next(iter(self._recent)))
            found = self._recent[number] = self._corrections.at(self._versions[number - 1])
        return found

    @property
    def last(self) -> Edits:
        """The edits by which future rounds are rated."""
        return self._edits_after(len(self._offsets))

    @property
    def has_seasons(self) -> bool:
        """Whether a season has started."""
        return bool(self._corrections.seasons)


class EditsOfLadders:
    """A cache of the corrections of all ladders, for a repeated reader of the ladder events."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[Sequence[RecordedCorrection], int, LadderEdits]] = {}
        """By ladder, its ladder events, the number of events that were added, and the edits."""

    def of(self, ladder: str, recorded: Mapping[str, Sequence[RecordedCorrection]]) -> LadderEdits:
        """The corrections of a ladder. `recorded` has the present ladder events. Events are only
        ever appended, so known ones are not read again."""
        notes = recorded.get(ladder, ())
        known, count, edits = self._cache.get(ladder, (notes, 0, None))
        if edits is None or known is not notes or len(notes) < count:
            count, edits = 0, LadderEdits()
        edits.add(notes[count:])
        self._cache[ladder] = notes, len(notes), edits
        return edits
