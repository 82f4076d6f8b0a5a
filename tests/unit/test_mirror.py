"""`verify --mirror`: in a mirror each accepted record has the same offset."""

from itertools import chain
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stream_rater import places
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Record
from stream_rater.operations import verify
from tests.builders.lines import a_record, a_round

Log = list[list[Record]]  # The records of each partition.

HERE, THERE = Settings(kafka="here"), Settings(kafka="there")
NOTES = [b"a note"]


class Logs:
    """The logs of both places, by the address of their Kafka."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rounds: dict[str, Log] = {"here": a_log()}
        self.notes = {"here": NOTES, "there": NOTES}
        patch.setattr(places, "place_of", self._place)

    def _place(self, settings: Settings, **_: Any) -> Any:
        log = self.rounds[settings.kafka]
        return SimpleNamespace(
            settings=settings, name=settings.kafka, close=lambda: None,
            ends=lambda: [each[-1].offset + 1 if each else 0 for each in log],
            starts=lambda: [each[0].offset if each else 0 for each in log],
            rounds=lambda partition, end: (each for each in log[partition] if each.offset < end),
            all_rounds=lambda: chain.from_iterable(log),
            ladder_events=lambda: self.notes[settings.kafka],
        )  # fmt: skip

    def against(self, log: Log) -> str:
        """What is said of this mirror."""
        self.rounds["there"] = log
        try:
            return str(verify.compare_mirror(HERE, THERE))
        except Failed as error:
            return str(error)


def a_log() -> Log:
    """Two partitions with a gap, as transactions leave one, and a record that is no round."""
    first = [a_record(at, a_round(at)) for at in (0, 1, 3, 4)]
    return [[*first, Record(0, 5, b"no round")], [a_record(0, a_round(9, ladder="n"), 1)]]


def changed(log: Log, at: int, **fields: Any) -> Log:
    """The same log with another record in the first partition."""
    log[0][at] = msgspec.structs.replace(log[0][at], **fields)
    return log


def test_a_mirror_is_equal_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejected records do not count, and what it lacks at the end is behind."""
    logs = Logs(monkeypatch)
    equal = "5 accepted records and 1 note are equal, offset by offset; the mirror is {} behind"
    assert logs.against(a_log()) == equal.format("0 records")
    filled = a_log()
    filled[0].insert(2, Record(0, 2, None))
    assert logs.against(changed(filled, 5, value=b"neither")) == equal.format("0 records")
    said = logs.against([a_log()[0][:3], a_log()[1]])
    assert "4 accepted records" in said and "2 records behind" in said


def test_what_is_no_mirror_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever differs, also in notes and partitions, or is the same place. A cure is named."""
    logs, (first, second) = Logs(monkeypatch), a_log()
    gapless = [msgspec.structs.replace(each, offset=at) for at, each in enumerate(first)]
    more = [*first, a_record(6, a_round(10))]
    for log, said in (
        ([gapless, second], "copy the log by `stream-rater move --from`"),
        (changed(a_log(), 3, headers=[("x", b"")]), "it is another one"),
        (changed(a_log(), 0, value=None), "is missing, or is rejected there"),
        ([more, second], "has none there"),
        ([first, second, []], "has 3 partitions"),
        ([first[1:], second], "starts at 1: the records before it were deleted"),
    ):
        assert said in logs.against(log)
    logs.notes["there"] = [b"another"]
    assert "its messages are not those of" in logs.against(a_log())
    with pytest.raises(BadConfiguration, match="it names the topics of"):
        verify.compare_mirror(HERE, HERE)
