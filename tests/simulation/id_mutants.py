"""Mutants of step 2 that remember round ids elsewhere."""

import itertools
from typing import Any

from stream_rater.contract.record import Record
from stream_rater.pipeline.estimator.admission import Admission
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.ports import Agree, Step, ask
from stream_rater.rounds.batch import RoundHead
from stream_rater.rounds.validation import Invalid


class IdsInMemory(Estimator):
    """Step 2 with the round ids that this process has seen, instead of those of the W offsets
    before."""

    def _window_start(self, c: int, log_start: int) -> int:
        return c


class IdsInStore(Estimator):
    """Step 2 that records round ids in the store when it reads them: the second reader of an id
    finds a duplicate. The store keeps the first of several writes, as Redis does with SET NX."""

    _readings = itertools.count()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._admission._is_to_be_rated = self._is_to_be_rated  # type: ignore[method-assign]

    def _window_start(self, c: int, log_start: int) -> int:
        return c

    def _poll(self, timeout_s: float, *, no_fetch: bool) -> Step[None]:
        polling = super()._poll(timeout_s, no_fetch=no_fetch)
        polled = yield from ask(next(polling))
        self._second = set[tuple[int, int]]()
        for record in polled.records:
            source = self._inputs.get(record.partition)
            if source is not None and record.offset >= source._next_offset:
                yield from self._confirm(record)
        try:
            polling.send(polled)
        except StopIteration:
            return
        raise AssertionError("a poll is one effect")

    def _confirm(self, record: Record) -> Step[None]:
        try:
            found = self._admission.decoder.read(record)
        except Invalid:
            return
        name, reading = f"{found.ladder}:{found.round_id}", (str(next(self._readings)),)
        confirmed = yield from ask(Agree({name: reading}))
        if confirmed[name] != reading:
            self._second.add((record.partition, record.offset))

    def _is_to_be_rated(self, record: Record, found: RoundHead | Invalid, now_s: float) -> bool:
        counts = Admission._is_to_be_rated(self._admission, record, found, now_s)
        if not counts or (record.partition, record.offset) not in self._second:
            return counts
        twice = Invalid("duplicate-round", "recorded in the store")
        self._inputs[record.partition]._reject(record, twice)
        return False
