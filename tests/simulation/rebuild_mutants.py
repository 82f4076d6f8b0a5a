"""Mutants of a rebuild's cut-off, each with one rule left out."""

from collections.abc import Iterable

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.contract.record import Player, Record
from stream_rater.operations.cutoff import Cutoff, Offsets


class CutoffAtTheEnd(Cutoff):
    """Counts rounds whose parts are not applied, or not sent."""

    def of(self, rows: Ints, partitions: Ints) -> Ints:
        return np.full(len(rows), 2**60)


class CutoffAtTheCommit(Cutoff):
    """Counts rounds up to the estimators' committed offset, whatever parts exist."""

    def of(self, rows: Ints, partitions: Ints) -> Ints:
        return self._sent[partitions] - 1


class CutoffOfParts(Cutoff):
    """Believes the parts, although a log lost records."""

    def __init__(
        self, applied: Offsets, sent: Offsets, shards: int, kernel: int, *, everything: bool
    ) -> None:
        super().__init__(applied, sent, shards, kernel)


class CutoffWithIgnored(Cutoff):
    """Counts parts that were cut for fewer shards and came after others had been added."""

    def _takes_effect(self, cut_for: int, record: Record) -> bool:
        return True


class CutoffOfApplied(Cutoff):
    """Counts players whose parts were deleted as new."""

    def of(self, rows: Ints, partitions: Ints) -> Ints:
        return self._before.of(rows)


class CutoffByBeliefs(Cutoff):
    """Takes the values of the beliefs for those that were published."""

    knows_published = False


class RestatesNothing(Cutoff):
    """Does not write the ladder events of corrections again."""

    restates = False


class CutoffByPartsLeft(Cutoff):
    """Counts only the parts that are left, whatever was published."""

    def add_published(self, published: Iterable[tuple[Player, int]]) -> None:
        pass


class CutoffWithWaiting(Cutoff):
    """Counts corrections that were applied, although their parts wait."""

    def pending_corrections(self) -> dict[Player, int]:
        return {}


class CutoffByTheLastRecord(Cutoff):
    """Takes the last record that correction parts have of a player, fresh or not."""

    def _add_corrected(self, player: Player, offset: int, data: bytes) -> None:
        self.corrected[player] = offset, data


class CutoffWithoutSeeds(Cutoff):
    """Passes over the parts of seeds and resets."""

    def _add_seeds(self, record: Record) -> None:
        pass
