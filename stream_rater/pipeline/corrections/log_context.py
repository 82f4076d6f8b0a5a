"""The knowledge of a correction job about the log: how records are validated, and what was read."""

from typing import NamedTuple

from stream_rater.config.ladders import Ladders
from stream_rater.contract.corrections import Batched, Correction
from stream_rater.contract.record import Record, checksum
from stream_rater.replay import checkpoint
from stream_rater.replay.checkpoint import RecordPlace
from stream_rater.replay.edited_log import RecordValidator
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.correction_records import rejection, well_formed
from stream_rater.rounds.seed_records import Seed
from stream_rater.rounds.validation import Invalid


class QueuedCorrection(NamedTuple):
    """A well-formed correction that was read and is not validated against the log yet."""

    record: Record
    correction: Correction

    @property
    def ladder(self) -> str:
        """The ladder."""
        return self.correction.ladder

    @property
    def partition(self) -> int:
        """The partition of the record."""
        return self.record.partition

    @property
    def offset(self) -> int:
        """The offset of the record."""
        return self.record.offset

    @property
    def place(self) -> tuple[str, int]:
        """The ladder, and the offset of the record."""
        return self.correction.ladder, self.record.offset

    @property
    def waits(self) -> bool:
        """Whether the correction waits for the next `corrections-applied` and gets only a ladder
        event now."""
        return isinstance(self.correction, Batched) and self.correction.batched


class LogContext(NamedTuple):
    """The settings that decide which records of the log are accepted."""

    ladders: Ladders
    window: int  # The duplicate window, in records.
    partitions: int
    checkpoint_every: int = 0
    """A correction makes a checkpoint if the last one is at least this many records behind. With 0,
    corrections neither make nor use checkpoints."""

    def validator(self) -> RecordValidator:
        """A validator of the log that has not read any record yet."""
        return RecordValidator(self.ladders, self.window, self.partitions)

    def correction(self, record: Record) -> Correction:
        """Decode the correction in a record. Raises Invalid if it is not well-formed."""
        return well_formed(record, self.ladders, self.partitions)

    def rejection(self, queued: QueuedCorrection) -> Invalid | None:
        """Why the ladder accepts no corrections at this offset; None if it accepts them."""
        return rejection(queued.correction, self.ladders, queued.record.offset)

    def rules(self, ladder: str, offset: int) -> bytes:
        """A digest of all settings that decide how the ladder's rounds before an offset are
        validated and rated (`checkpoint.rules_of`)."""
        return checkpoint.rules_of(self.ladders, ladder, offset, self.window, self.partitions)


class ReadSoFar(NamedTuple):
    """A summary of the ladder's rounds, seeds and resets that a pass has read so far."""

    last: RecordPlace = (-1, 0)
    """The last one: its offset and checksum, as in Head. (-1, 0) before the first one."""
    time: int = 0  # The latest of their times, in Unix seconds.
    completed_at: str = ""  # The time of the last one, as reported.

    def read(self, record: Record, rounds: RoundBatch) -> "ReadSoFar":
        """Return the summary that includes these rounds, too. `record` is the record of the last
        one."""
        return self._with(record, int(rounds.time.max()), rounds.heads[-1].completed_at)

    def read_seed(self, record: Record, seed: Seed) -> "ReadSoFar":
        """Return the summary that includes the seed or reset in this record, too."""
        return self._with(record, seed.time, seed.head.completed_at)

    def _with(self, record: Record, time: int, completed_at: str) -> "ReadSoFar":
        place = record.offset, checksum(record.value)
        return ReadSoFar(place, max(self.time, time), completed_at)
