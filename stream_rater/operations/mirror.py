"""`stream-rater verify --mirror`: whether a mirror of the log has the same accepted records, offset
by offset.

Beliefs, events, the ladders file and the duplicate window count offsets, so each accepted record
must have its own offset in the mirror. What is rejected there may differ, and so may gaps.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain, islice, takewhile, zip_longest

from stream_rater import places
from stream_rater.config.errors import BadConfiguration, Failed, named_failures
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract import events
from stream_rater.contract.record import Record
from stream_rater.operations.rewriting import AcceptedRecords
from stream_rater.places.port import Place
from stream_rater.replay.edited_log import Verdicts
from stream_rater.replay.ledger import with_verdicts
from stream_rater.runtime.progress import counted


class _NoMirror(Failed):
    def __init__(self, why: str) -> None:
        super().__init__(f"{why}: it is no mirror that workers can use: copy the log by "
                         "`stream-rater move --from`, which keeps each offset")  # fmt: skip


def compare_mirror(settings: Settings, mirror: Settings) -> str:
    """Compare the log with its mirror, as far as this goes, while workers may run. Returns a line
    with the counts. Raises BadConfiguration, or Failed at the first record that differs."""
    if (mirror.kafka, mirror.topic_prefix) == (settings.kafka, settings.topic_prefix):
        raise BadConfiguration(
            f"MIRROR: it names the topics of {settings.topic_prefix!r} on {settings.kafka}, as the "
            f"present settings do: name the mirror's {PREFIX}KAFKA or {PREFIX}TOPIC_PREFIX in it"
        )
    ladders = ladders_of_settings(settings)
    with named_failures(), ExitStack() as stack:
        copy, log = (  # the copy is the older
            _Log(stack.enter_context(places.opened(each)), ladders, settings.duplicate_window)
            for each in (mirror, settings)
        )
        if len(copy.ends) != len(log.ends):
            sizes = f"{copy.topic} has {len(copy.ends)} partitions, and {log.topic} has "
            raise _NoMirror(f"{sizes}{len(log.ends)}")
        accepted = sum(_compare(log, copy, partition) for partition in range(len(log.ends)))
        if copy.notes != log.notes[: len(copy.notes)]:
            others = f"its messages are not those of {log.notes_topic}, in their order"
            raise _NoMirror(f"{copy.notes_topic}: {others}")
    behind = sum(max(0, end - copied) for end, copied in zip(log.ends, copy.ends, strict=True))
    return (
        f"{counted(accepted, 'accepted record')} and {counted(len(copy.notes), 'note')} are equal, "
        f"offset by offset; the mirror is {counted(behind, 'record')} behind"
    )


class _Log:
    """The accepted records of a place, validated by these ladders and this duplicate window."""

    def __init__(self, place: Place, ladders: Ladders, window: int) -> None:
        self._place, self._ladders, self._window = place, ladders, window
        prefix = place.settings.topic_prefix
        self.topic = prefix + events.ROUND_COMPLETED
        self.notes_topic = prefix + events.LADDERS_NOTED
        self.ends = place.ends()
        for partition, start in enumerate(place.starts()):
            if start > 0:
                at = f"{place.name}, partition {partition}, starts at {start}"
                raise _NoMirror(f"{at}: the records before it were deleted, and so it is not "
                                "known which of the others were accepted")  # fmt: skip
        with_verdicts(self._validate, place.all_rounds, ladders, window, len(self.ends))
        self.notes = [*place.ladder_events()]

    def _validate(self, verdicts: Verdicts | None) -> None:
        """Take these verdicts, if they are all that the log needs. Raises MissingVerdicts."""
        self._verdicts = verdicts
        for _ in chain.from_iterable(map(self.accepted, range(len(self.ends)))):
            pass

    def accepted(self, partition: int) -> Iterator[Record]:
        """Yield the accepted records of a partition, in order."""
        partitions, end = len(self.ends), self.ends[partition]
        validated = AcceptedRecords(self._ladders, self._window, partitions, self._verdicts)
        records = iter(self._place.rounds(partition, end) if end else ())
        while batch := list(islice(records, 5000)):
            yield from (r for r, ok in zip(batch, validated.of(batch), strict=True) if ok)


def _compare(log: _Log, copy: _Log, partition: int) -> int:
    """Compare the accepted records of a partition. Returns their number. Raises Failed."""
    end, count = copy.ends[partition], 0
    records = takewhile(lambda each: each.offset < end, log.accepted(partition))
    for record, copied in zip_longest(records, copy.accepted(partition)):
        if record is None:
            wrong, why = copied, f": {log.topic} has none there"
        elif copied is None or copied.offset > record.offset:
            wrong, why = record, " is missing, or is rejected there"
        elif copied.offset < record.offset:
            wrong, why = copied, ": the log has none there"
        elif _content(copied) != _content(record):
            wrong, why = record, ": it is another one"
        else:
            count += 1
            continue
        record_at = f"the accepted record at offset {wrong.offset}"
        raise _NoMirror(f"{copy.topic}, partition {partition}: {record_at}{why}")
    return count


def _content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, sorted(record.headers)
