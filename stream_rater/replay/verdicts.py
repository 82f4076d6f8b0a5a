"""The verdicts on all corrections of a log."""

from collections.abc import Mapping
from typing import NamedTuple

from stream_rater.contract.record import Record
from stream_rater.replay.edits import NO_EDITS, Edits
from stream_rater.rounds.validation import Invalid


class Verdicts(NamedTuple):
    """What becomes of a log's corrections."""

    edits: Mapping[str, Edits]
    """By ladder, all corrections that were accepted."""
    refusals: Mapping[tuple[int, int], Invalid]
    """By partition and offset, why each of the others is refused."""

    def on(self, record: Record) -> Invalid | None:
        """Why the correction in a record is refused, or None."""
        return self.refusals.get((record.partition, record.offset))

    def of(self, ladder: str) -> Edits:
        """The edits of a ladder's rounds."""
        return self.edits.get(ladder, NO_EDITS)


NO_VERDICTS = Verdicts({}, {})
"""Those on a log without corrections."""
