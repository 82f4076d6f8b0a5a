"""The verdicts on all corrections of a log."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stream_rater.contract.corrections import Correction
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import Season
from stream_rater.replay.edits import NO_EDITS, Edits
from stream_rater.rounds.validation import Invalid


class WorkedIn(NamedTuple):
    """A correction that was accepted, or one that waits for `corrections-applied`."""

    offset: int
    """Of its record."""
    correction: Correction
    at: int
    """The offset at which it was worked in; -1: it waits."""


class Verdicts(NamedTuple):
    """What becomes of a log's corrections."""

    edits: Mapping[str, Edits]
    """By ladder, all corrections that were accepted."""
    refusals: Mapping[tuple[int, int], Invalid]
    """By partition and offset, why each of the others is refused."""

    starts: Mapping[tuple[int, int], tuple[str, Season]] = {}
    """By partition and offset, the ladder on which a season starts there."""
    worked_in: Mapping[str, Sequence[WorkedIn]] = {}
    """By ladder, what workers note of its corrections, in that order. A correction that has waited
    stands there twice."""

    @classmethod
    def of_ladder(cls, ladder: str, partition: int, edits: Edits) -> "Verdicts":
        """What is known of one ladder, whose records are in this partition."""
        seasons = {(partition, each.offset): (ladder, each.season) for each in edits.seasons}
        return cls({ladder: edits}, {}, seasons)

    def on(self, record: Record) -> Invalid | None:
        """Why the correction in a record is refused, or None."""
        return self.refusals.get((record.partition, record.offset))

    def of(self, ladder: str) -> Edits:
        """The edits of a ladder's rounds."""
        return self.edits.get(ladder, NO_EDITS)


NO_VERDICTS = Verdicts({}, {})
"""Those on a log without corrections."""
