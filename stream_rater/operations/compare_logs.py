"""`stream-rater compare-logs`: whether a mirror of the log has the same accepted records, offset by
offset.

`last` of a belief, the offsets in events and in the ladders file, and the duplicate window all
count offsets of `round-completed`. So a mirror is of use only if each accepted record has its own
offset there. What a tool for mirroring does with the gaps that transactions leave is its own
affair, and a record that was rejected may be accepted in the mirror, because it arrived later
there. So both logs are validated, and what is accepted is compared.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from stream_rater.adapters.kafka.reader import read_all, read_partition
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.errors import BadConfiguration, Failed, named_failures
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.record import Record
from stream_rater.operations.rewriting import AcceptedRecords
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import Verdicts
from stream_rater.runtime.progress import counted

AT_ONCE = 5000
"""The number of records that are validated together."""


class Compared(NamedTuple):
    """What is equal, and how far the mirror is behind."""

    accepted: int
    """The number of accepted records."""
    behind: int
    """The number of offsets that the mirror lacks."""
    notes: int
    """The number of messages of `ladders-noted`."""

    def __str__(self) -> str:
        """One line."""
        return (
            f"{counted(self.accepted, 'accepted record')} and {counted(self.notes, 'note')} are "
            f"equal, offset by offset; the mirror is {counted(self.behind, 'record')} behind"
        )


def compare_logs(settings: Settings, mirror: Settings) -> Compared:
    """Compare the log of the settings with its mirror. Workers may run. Raises BadConfiguration, or
    Failed at the first record that differs."""
    if (mirror.kafka, mirror.topic_prefix) == (settings.kafka, settings.topic_prefix):
        raise BadConfiguration(
            f"MIRROR: it names the topics of {settings.topic_prefix!r} on {settings.kafka}, as the "
            f"present settings do: name the mirror's {PREFIX}KAFKA or {PREFIX}TOPIC_PREFIX in it"
        )
    ladders = ladders_of_settings(settings)
    with named_failures():
        copy = _Log(mirror, ladders, settings.duplicate_window)  # first: its ends are older
        log = _Log(settings, ladders, settings.duplicate_window)
        if len(copy.ends) != len(log.ends):
            raise Failed(
                f"{copy.topic} has {len(copy.ends)} partitions, and {log.topic} has "
                f"{len(log.ends)}: {NOT_ACCEPTED}"
            )
        accepted = sum(_compare(log, copy, partition) for partition in range(len(log.ends)))
        notes = _compare_notes(log, copy)
    behind = sum(max(0, end - copied) for end, copied in zip(log.ends, copy.ends, strict=True))
    return Compared(accepted, behind, notes)


NOT_ACCEPTED = (
    "it is no mirror that workers can use: copy the log by `stream-rater move --from`, which keeps "
    "each offset"
)


class _Log:
    """The accepted records of one `round-completed`."""

    def __init__(self, settings: Settings, ladders: Ladders, window: int) -> None:
        self._settings, self._ladders, self._window = settings, ladders, window
        admin = Admin(settings)
        self.topic, self.notes_topic = admin.topics.rounds, admin.topics.ladder_events
        (partitions, _) = admin.partitions_of(self.topic, self.notes_topic)
        self.ends = admin.ends(self.topic, partitions)
        self._verdicts: Verdicts | None = None
        for partition, start in enumerate(admin.starts(self.topic, partitions)):
            if start > 0:
                raise Failed(
                    f"{self.topic} on {settings.kafka}, partition {partition}, starts at {start}: "
                    "the records before it were deleted, and so it is not known which of the "
                    f"others were accepted: {NOT_ACCEPTED}"
                )
        read_log = partial(read_all, settings, self.topic, partitions)
        with_verdicts(self._validate, read_log, ladders, window, partitions)

    def _validate(self, verdicts: Verdicts | None) -> None:
        """Take these verdicts, if they are all that the log needs. Raises MissingVerdicts."""
        self._verdicts = verdicts
        for partition in range(len(self.ends)):
            for _ in self.accepted(partition):
                pass

    def accepted(self, partition: int) -> Iterator[Record]:
        """Yield the accepted records of a partition, in order."""
        partitions, end = len(self.ends), self.ends[partition]
        validated = AcceptedRecords(self._ladders, self._window, partitions, self._verdicts)
        records = read_partition(self._settings, self.topic, partition, end) if end else iter(())
        while batch := list(islice(records, AT_ONCE)):
            for record, counts in zip(batch, validated.of(batch), strict=True):
                if counts:
                    yield record

    def notes(self) -> list[bytes]:
        """The messages of `ladders-noted`."""
        found = read_all(self._settings, self.notes_topic, 1)
        return [each.value or b"" for each in found]


def _compare(log: _Log, copy: _Log, partition: int) -> int:
    """Compare the accepted records of a partition, as far as the mirror goes. Returns their number.
    Raises Failed."""
    end, count = copy.ends[partition], 0
    copied = copy.accepted(partition)
    for record in log.accepted(partition):
        if record.offset >= end:
            break
        _check_equal(copy.topic, record, next(copied, None))
        count += 1
    if (more := next(copied, None)) is not None:
        raise Failed(f"{_place(copy.topic, more)}: {log.topic} has none there: {NOT_ACCEPTED}")
    return count


def _check_equal(topic: str, record: Record, copied: Record | None) -> None:
    """Raise Failed unless the mirror has the same record at the same offset."""
    if copied is None or copied.offset > record.offset:
        raise Failed(f"{_place(topic, record)} is missing, or is rejected there: {NOT_ACCEPTED}")
    if copied.offset < record.offset:
        raise Failed(f"{_place(topic, copied)}: the log has none there: {NOT_ACCEPTED}")
    if _content(copied) != _content(record):
        raise Failed(f"{_place(topic, record)}: it is another one: {NOT_ACCEPTED}")


def _place(topic: str, record: Record) -> str:
    return f"{topic}, partition {record.partition}: the accepted record at offset {record.offset}"


def _content(record: Record) -> tuple[bytes | None, bytes | None, Sequence[object]]:
    return record.key, record.value, sorted(record.headers)


def _compare_notes(log: _Log, copy: _Log) -> int:
    """Compare the messages of `ladders-noted`, as far as the mirror goes. Returns their number.
    Raises Failed."""
    copied = copy.notes()  # first: it is not younger than the other
    if copied != log.notes()[: len(copied)]:
        raise Failed(
            f"{copy.notes_topic}: its messages are not those of {log.notes_topic}, in their order: "
            f"{NOT_ACCEPTED}"
        )
    return len(copied)
