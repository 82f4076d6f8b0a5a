"""Step 3: what is finished or rated only if all workers agree on its ladder."""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any
from unittest.mock import patch

from stream_rater.adapters.local_driver import Steps
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.pipeline.estimator.admission import NONE_UNSETTLED, Agreement
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Step

from .actors import Actor
from .game import LADDERS
from .registry import catches
from .stage import A0, A1, A2, B0, B1, B2, Stage
from .world import UnkindDriver


class LadderEventsReadOnce(UnkindDriver):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._keep_agreed: dict[str, Any] = {}

    def agree(self, histories: Mapping[str, Sequence[str]], only_read: Container[str]) -> Steps:
        new = {each: own for each, own in histories.items() if each not in self._keep_agreed}
        self._keep_agreed |= yield from super().agree(new, only_read)
        return {ladder: self._keep_agreed[ladder] for ladder in histories}


@catches("notes-read-once", "notes read after each poll", LadderEventsReadOnce)
def ladder_is_changed_and_the_store_is_lost(stage: Stage) -> None:
    """A worker with the old file goes on after a change is on record. The store is rebuilt."""
    old, updater = stage.rated(A0, B0)
    stage.announce()
    stage.store.roll_back(0, 1000)
    for _ in range(7):
        stage.round(A0, B0)
        stage.turns(updater, old)
    stage.replace(old)


class FilesNotCompared(Estimator):
    def _rate_wave(self) -> Step[None]:
        with patch.object(self._agreement, "agreed", _as_it_is):
            yield from super()._rate_wave()


def _as_it_is(wave: PendingRounds, *_: object) -> Step[PendingRounds]:
    yield from ()
    return wave


@catches("files-not-compared", "ladders files compared", FilesNotCompared)
def worker_that_was_forgotten(stage: Stage) -> None:
    """A ladder's parameters change at offset 5, but the estimator still has the old file."""
    forgotten, _ = stage.workers()
    stage.round(A0, A1)
    stage.turns(forgotten)
    stage.announce()
    for _ in range(6):
        stage.round(A0, A1)
        stage.turns()
    stage.replace(forgotten)


def forgotten(stage: Stage) -> Actor:
    """An estimator with the old file, which stands where the changes of the new one begin."""
    old, updater = stage.workers()
    for _ in range(5):
        stage.round(A0, A1)
        stage.turns(old, updater)
    stage.announce()
    return old


class Unagreed(Estimator):
    """Finishes what it does not rate without a look at the notes."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        settle = self._admission.settle

        def at_once(allowed_before: Callable[[str], float]) -> None:
            settle(lambda _: math.inf)

        self._admission.settle = at_once  # type: ignore[method-assign]


@catches("rejected-unagreed", "rejections agreed", Unagreed)
def round_that_the_new_file_allows(stage: Stage) -> None:
    """It has more entries than the old file allows."""
    old = forgotten(stage)
    stage.round(A0, A1, A2, B0, B1, B2)
    stage.turns()
    stage.replace(old)


@catches("silent-unagreed", "rounds that change nothing agreed", Unagreed)
def round_that_counts_by_the_new_file(stage: Stage) -> None:
    """By the old file, rounds in which all tie change no rating."""
    old = forgotten(stage)
    for _ in range(5):  # by the new file they change ratings from the next change on
        stage.round(standings=[{"player": each, "rank": 1} for each in (A0, B1)])
    stage.turns()
    stage.replace(old)


@catches("seed-unagreed", "refused seeds agreed", Unagreed)
def seed_of_a_ladder_that_the_new_file_names(stage: Stage) -> None:
    old = forgotten(stage)
    stage.seed(A0, B1, ladder="c")
    stage.turns()
    stage.replace(old)


class AgreedBefore(Agreement):
    """Reads no notes for records of ladders on which the file has agreed once."""

    def agreed(
        self, wave: PendingRounds, until_s: float, observer: Observer,
        unsettled: Mapping[str, Sequence[tuple[int, int]]] = NONE_UNSETTLED,
    ) -> Step[PendingRounds]:  # fmt: skip
        new = {ladder: at for ladder, at in unsettled.items() if ladder not in self._agreed_up_to}
        return (yield from super().agreed(wave, until_s, observer, new))


class Unnoted(Agreement):
    """Writes no note before a record is finished that is not rated."""

    def _is_recorded(self, ladder: str) -> bool:
        return False


def agreeing(kind: type[Agreement]) -> type[Estimator]:
    class Altered(Estimator):
        """An estimator with this agreement."""

        def __init__(self, ladders: Ladders, *given: Any, **options: Any) -> None:
            super().__init__(ladders, *given, **options)
            self._agreement = kind(ladders)

    return Altered


@catches("agreed-once", "notes read after each poll", agreeing(AgreedBefore))
def round_that_is_allowed_since_a_moment(stage: Stage) -> None:
    """The old worker has agreed on the ladder. Then the change is announced."""
    old = forgotten(stage)
    stage.round(A0, A1, A2, B0, B1, B2)
    stage.turns()
    stage.replace(old)


@catches("unknown-unnoted", "notes of unknown ladders", agreeing(Unnoted))
def ladder_that_is_named_too_late(stage: Stage) -> None:
    """A round of a ladder was rejected when a worker is started whose file names it."""
    old, _ = stage.workers()
    stage.round(A0, A1, ladder="c")
    stage.turns()
    stage.announce(Ladders(ladders=LADDERS.ladders | {"c": LADDERS.ladders["f"]}))
    stage.replace(old)
    stage.round(A0, A1, ladder="c")


class MisplacedWaits(Estimator):
    """Holds records that are outside their ladder's partition, too."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._admission._log = self._admission._log._replace(partitions=ANYWHERE)


@catches("misplaced-waits", "records elsewhere need no agreement", MisplacedWaits, stuck=True)
def misplaced_round_after_a_change(stage: Stage) -> None:
    """Its offset there is past that of a change of its ladder, which the old file lacks."""
    old, updater = stage.workers()
    stage.announce()
    for _ in range(5):
        stage.round(A0, A1, ladder="d", partition=1)
    stage.round(A0, A1, partition=1)
    stage.turns(old, updater)
