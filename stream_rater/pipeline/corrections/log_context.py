"""What a correction job knows of the log: how records are validated, and what it has read."""

from typing import NamedTuple

from stream_rater.config.ladders import Ladders
from stream_rater.contract.corrections import Batched, Correction
from stream_rater.contract.record import Record
from stream_rater.replay import checkpoint
from stream_rater.replay.checkpoint import Place
from stream_rater.replay.edited_log import RecordValidator
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.corrections import refusal, well_formed
from stream_rater.rounds.validation import Invalid


class QueuedCorrection(NamedTuple):
    """A well-formed correction that was read and has yet to be judged."""

    record: Record
    correction: Correction

    @property
    def place(self) -> tuple[str, int]:
        """The ladder, and the offset of the record."""
        return self.correction.ladder, self.record.offset

    @property
    def waits(self) -> bool:
        """Whether it is only noted, and worked in with the next `corrections-applied`."""
        return isinstance(self.correction, Batched) and self.correction.batched


class LogContext(NamedTuple):
    """What decides which records of the log are accepted."""

    ladders: Ladders
    window: int
    """The duplicate window, in records."""
    partitions: int
    checkpoint_every: int = 0
    """A correction makes a checkpoint if the last one is this many records behind. 0: it neither
    makes one nor uses one."""

    def validator(self) -> RecordValidator:
        """A validator of the log that has not read any record yet."""
        return RecordValidator(self.ladders, self.window, self.partitions)

    def correction(self, record: Record) -> Correction:
        """The well-formed correction in a record. Raises Invalid."""
        return well_formed(record, self.ladders, self.partitions)

    def refusal(self, queued: QueuedCorrection) -> Invalid | None:
        """Why the ladder takes no correction at this offset; None if it takes them."""
        return refusal(queued.correction, self.ladders, queued.record.offset)

    def rules(self, ladder: str, offset: int) -> bytes:
        """A digest of what decides how the ladder's rounds before an offset are validated and rated
        (`checkpoint.rules_of`)."""
        return checkpoint.rules_of(self.ladders, ladder, offset, self.window, self.partitions)


class ReadSoFar(NamedTuple):
    """What a pass has read of the ladder's rounds so far."""

    last: Place = (-1, 0)
    """As in Head."""
    time: int = 0
    """When the latest of the rounds was completed, Unix seconds."""
    completed_at: str = ""
    """When the last of the rounds was completed, as reported."""

    def read(self, record: Record, rounds: RoundBatch) -> "ReadSoFar":
        """After these rounds of the ladder too. The record is the last one's."""
        place = record.offset, checkpoint.checksum(record.value)
        time = max(self.time, int(rounds.time.max()))
        return ReadSoFar(place, time, rounds.heads[-1].completed_at)
