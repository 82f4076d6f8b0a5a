"""Makes all estimators rate a ladder by the same parameters, whatever their ladders files say.

Kafka stores the history of each ladder as ladder events: the parameters that rate it, and the
offset from which on they hold (`ladder_history`). After an estimator has polled a round, and before
it sends any part of the round, it reads these events to their end. It rates the round only if its
own ladders file agrees with them. So an estimator with an old file sees a change before it can rate
by the old parameters, even if it is a zombie.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.config.ladders import Ladders
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.ladder_history import History, allowed_before, objection
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Agree, Step, ask

NOT_ANNOUNCED = "the ladders file has a change that was not announced: start this worker again"


class Agreement:
    """The ladders file of one estimator, and the ladders for which it disagrees with the ladder
    events."""

    def __init__(self, ladders: Ladders) -> None:
        self._own: Callable[[str], History] = cache(ladders.history)
        """The history of a ladder, according to the file."""
        self._odds: dict[str, float] = {}
        self._until_s = 0.0

    def compare(self, noted: Mapping[str, History], until_s: float) -> dict[str, float]:
        """Compare the file with the histories in the ladder events. Returns, by ladder, the offset
        from which on they disagree; ladders that agree are left out. The result is remembered until
        `until_s`."""
        found = {
            ladder: allowed_before(self._own(ladder), history) for ladder, history in noted.items()
        }
        at_odds = {ladder: offset for ladder, offset in found.items() if offset < math.inf}
        for ladder in found.keys() - at_odds.keys():
            self._odds.pop(ladder, None)
        if at_odds:
            self._odds |= at_odds
            self._until_s = until_s
        return at_odds

    def agreed(
        self, wave: PendingRounds, until_s: float, observer: Observer
    ) -> Step[PendingRounds]:
        """Read the ladder events, compare the file with them, and keep the rounds of a wave that
        may be rated."""
        ladders = {head.ladder for head in wave.rounds.heads}
        if not ladders:
            return wave
        yield from self._read(ladders, until_s, observer)
        return wave.take(np.flatnonzero(self.allowed(wave)))

    def agreed_at(self, ladder: str, offset: int, until_s: float, observer: Observer) -> Step[bool]:
        """Read the ladder events, and return whether the record of a ladder at this offset may be
        rated."""
        if offset < self._odds.get(ladder, math.inf):
            yield from self._read({ladder}, until_s, observer)
        return offset < self._odds.get(ladder, math.inf)

    def _read(self, ladders: set[str], until_s: float, observer: Observer) -> Step[None]:
        noted = yield from ask(Agree({ladder: self._own(ladder) for ladder in ladders}))
        at_odds = self.compare(noted, until_s)
        for ladder, offset in at_odds.items():
            why = objection(ladder, self._own(ladder), noted[ladder]) or NOT_ANNOUNCED
            observer.ladder_refused(ladder, offset, why)
        observer.ladders_agreed(ladders - at_odds.keys())

    def retry(self, now_s: float) -> bool:
        """Whether the remembered disagreements have expired. If so, they are forgotten, because the
        ladder events or the store may have been repaired."""
        due = bool(self._odds) and now_s >= self._until_s
        if due:
            self._odds = {}
        return due

    @property
    def is_full(self) -> bool:
        """Whether no disagreement is remembered, that is, whether all rounds may be rated."""
        return not self._odds

    def allowed(self, pending: PendingRounds) -> Flags:
        """(R,) whether each round may be rated, according to the remembered disagreements."""
        if self.is_full:
            return np.ones(len(pending), np.bool_)
        ends = [self._odds.get(head.ladder, math.inf) for head in pending.rounds.heads]
        allowed: Flags = pending.offsets < np.array(ends)
        return allowed
