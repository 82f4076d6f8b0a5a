"""What a correction job knows of the log: how it is judged, and what was read of it."""

from typing import NamedTuple

from stream_rater.config.ladders import Ladders
from stream_rater.contract.corrections import Correction
from stream_rater.contract.record import Record
from stream_rater.replay import checkpoint
from stream_rater.replay.checkpoint import Place
from stream_rater.replay.sequential import Judge
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.corrections import refusal, well_formed
from stream_rater.rounds.validation import Invalid


class Proposed(NamedTuple):
    """A correction that is to be judged."""

    record: Record
    correction: Correction


class Judged(NamedTuple):
    """How the records of the log are judged."""

    ladders: Ladders
    window: int
    partitions: int
    checkpoint_every: int = 0
    """A correction makes a checkpoint if the last one is this many records behind. 0: it neither
    makes one nor uses one."""

    def judge(self) -> Judge:
        """A judge of the log, which does not know any record yet."""
        return Judge(self.ladders, self.window, self.partitions)

    def correction(self, record: Record) -> Correction:
        """The well-formed correction in a record. Raises Invalid."""
        return well_formed(record, self.ladders, self.partitions)

    def refusal(self, proposed: Proposed) -> Invalid | None:
        """Why the ladder takes no correction at the place of this one; None if it takes them."""
        return refusal(proposed.correction, self.ladders, proposed.record.offset)

    def rules(self, ladder: str, offset: int) -> bytes:
        """By which the ladder's rounds before an offset are judged and rated (`rules_of`)."""
        return checkpoint.rules_of(self.ladders, ladder, offset, self.window, self.partitions)


class Known(NamedTuple):
    """What a pass has read of the ladder's rounds so far."""

    last: Place = (-1, 0)
    """As in Head."""
    time: int = 0
    completed_at: str = ""

    def read(self, record: Record, rounds: RoundBatch) -> "Known":
        """After these rounds of the ladder too; the record is the last one's."""
        place = record.offset, checkpoint.checksum(record.value)
        time = max(self.time, int(rounds.time.max()))
        return Known(place, time, rounds.heads[-1].completed_at)
