"""That all workers rate a ladder by the same parameters, whatever their files say.

The store remembers each ladder's history: an entry `offset:fingerprint` for what held from which
offset on. The first worker to rate a ladder notes its own, later ones compare theirs. A file may go
on where the note ends: that is a change, and its worker notes it. A file that lacks a noted entry,
or has another in its place, must not rate from there on.

A change is noted before the log comes to its offset, and an estimator looks after it has polled a
round and before it sends any part of it: so one with an old file, even a zombie, sees the change
before it can rate a round by what no longer holds.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from stream_rater.config import Ladders
from stream_rater.pipeline.estimation import Cohort
from stream_rater.pipeline.marks import Flags
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Agree, Step, ask

History = Sequence[str]


def offset_of(entry: str) -> int:
    """From where on an entry holds."""
    return int(entry.partition(":")[0])


def goes_on(own: History, noted: History) -> bool:
    """Whether `own` is what was noted, and more."""
    return len(own) > len(noted) and tuple(own[: len(noted)]) == tuple(noted)


def odds(own: History, noted: History) -> float:
    """The offset from which on `own` is at odds with what was noted; infinite where it is not."""
    for i, entry in enumerate(noted):
        if i >= len(own):
            return offset_of(entry)
        if own[i] != entry:
            return min(offset_of(own[i]), offset_of(entry))
    return math.inf


def objection(ladder: str, offset: float) -> str:
    """What a worker at odds says."""
    return (
        f"ladder {ladder!r}: other parameters were noted from offset {offset:.0f} on than this "
        "worker's ladders file has: give all workers the same file"
    )


class Agreement:
    """What one estimator's file says, and which ladders are at odds with the note."""

    def __init__(self, ladders: Ladders) -> None:
        self._ladders = ladders
        self._own: dict[str, History] = {}
        self._odds: dict[str, float] = {}
        self._until_s = 0.0

    def own(self, ladders: Iterable[str]) -> dict[str, History]:
        """What the file says of these ladders."""
        asked = {}
        for ladder in ladders:
            if ladder not in self._own:
                self._own[ladder] = self._ladders.history(ladder)
            asked[ladder] = self._own[ladder]
        return asked

    def compare(self, noted: Mapping[str, History], until_s: float) -> dict[str, float]:
        """Ladders at odds with the note, from which offset on; remembered until that time."""
        found = {ladder: odds(self._own[ladder], entries) for ladder, entries in noted.items()}
        at_odds = {ladder: offset for ladder, offset in found.items() if offset < math.inf}
        for ladder in found.keys() - at_odds.keys():
            self._odds.pop(ladder, None)
        if at_odds:
            self._odds |= at_odds
            self._until_s = until_s
        return at_odds

    def agreed(self, wave: Cohort, until_s: float, observer: Observer) -> Step[Cohort]:
        """Note our file, compare, and keep of a wave's rounds those that it may rate."""
        ladders = {told.ladder for told in wave.rounds.told}
        if not ladders:
            return wave
        noted = yield from ask(Agree(self.own(ladders)))
        at_odds = self.compare(noted, until_s)
        for ladder, offset in at_odds.items():
            observer.ladder_refused(ladder, offset, objection(ladder, offset))
        observer.ladders_agreed(ladders - at_odds.keys())
        return wave.those(self.allowed(wave))

    def retry(self, now_s: float) -> bool:
        """After a while look again: the note, or the store, may have been mended."""
        due = bool(self._odds) and now_s >= self._until_s
        if due:
            self._odds = {}
        return due

    @property
    def is_full(self) -> bool:
        """Whether all rounds may be rated, as far as we know."""
        return not self._odds

    def allowed(self, cohort: Cohort) -> Flags:
        """(R,) whether each round may be rated, as far as we know."""
        if self.is_full:
            return np.ones(len(cohort), np.bool_)
        ends = [self._odds.get(told.ladder, math.inf) for told in cohort.rounds.told]
        allowed: Flags = cohort.offsets < np.array(ends)
        return allowed
