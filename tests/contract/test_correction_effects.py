"""What corrections need: the estimator reads a partition again, and keeps notes."""

import msgspec
import pytest
from confluent_kafka import Producer

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka import reader
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.local_driver import LocalDriver
from stream_rater.adapters.sqlite.driver import SqliteDriver
from stream_rater.contract.corrections import PlayerRemoved, RoundVoided, name_of
from stream_rater.contract.events import to_json
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_ports import (
    CorrectionsByLadder,
    NoteCorrections,
    NotedCorrections,
    ReadAgain,
    RecordedCorrection,
)
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.ladder_history import encode_histories
from stream_rater.pipeline.ports import Agree, LogStarts
from tests.contract.rigs import ESTIMATOR, KafkaRig, Member, Rig
from tests.contract.test_reading import submit
from tests.integration.topics import Bytes
from tests.waits import STILL_S


def read(member: Member, first: int, end: int, partition: int = 0) -> list[Record]:
    """What comes until nothing comes any more, as the work on a correction reads it."""
    found: list[Record] = []
    while records := member.do(ReadAgain(partition, first, end)):
        assert all(each.partition == partition for each in records)
        found += records
        first = found[-1].offset + 1
    return found


def offsets(records: list[Record]) -> list[int]:
    return [each.offset for each in records]


@pytest.fixture
def small_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many calls for few records, and no long wait for what never comes."""
    monkeypatch.setattr(reader, "REREAD_AT_ONCE", 3)
    monkeypatch.setattr(reader, "REREAD_TIMEOUT_S", 3.0)
    monkeypatch.setattr(LocalDriver, "poll_records", 3)
    monkeypatch.setattr(SqliteDriver, "poll_records", 3)


def test_records_are_read_again_in_order(rig: Rig) -> None:
    """From the first offset to before the end, whatever lies behind it, and as often as asked. A
    record is whole, as a poll gives it: the kind of a correction is in its headers, and when it
    came counts."""
    submit(rig, 0, 10)
    submit(rig, 1, 3)
    member = rig.join(ESTIMATOR)
    for _ in range(2):
        assert offsets(read(member, 0, 10)) == [*range(10)]
    assert offsets(read(member, 0, 4)) == [*range(4)]
    assert offsets(read(member, 4, 8)) == [*range(4, 8)], "it goes on where a call stopped"
    assert offsets(read(member, 2, 3)) == [2]
    assert offsets(read(member, 0, 3, partition=1)) == [0, 1, 2]
    assert offsets(read(member, 7, 10)) == [7, 8, 9]
    rig.submit(1, Bytes(b"value", b"key", [("event-type", b"round-voided")]), Bytes(None, None))
    first, second = read(member, 3, 5, partition=1)
    assert (first.value, first.key) == (b"value", b"key")
    assert list(first.headers) == [("event-type", b"round-voided")]
    assert first.received_s > 1e9
    assert (second.value, second.key) == (None, None)


@pytest.mark.usefixtures("small_calls")
def test_records_come_in_several_calls(rig: Rig) -> None:
    """And nothing when there is none, at once and without trouble."""
    submit(rig, 0, 10)
    member = rig.join(ESTIMATOR)
    assert 1 <= len(member.do(ReadAgain(0, 0, 10))) < 10
    for end in range(11):
        assert offsets(read(member, 0, end)) == [*range(end)]
        assert not member.do(ReadAgain(0, end, end))
    assert offsets(read(member, 4, 9)) == [4, 5, 6, 7, 8]
    assert not member.do(ReadAgain(1, 0, 0))


def test_an_earlier_reading_may_have_been_left(rig: Rig) -> None:
    """The partition of a correction was lost in the middle of the work. Or records came after the
    reader had seen the end."""
    submit(rig, 0, 10)
    submit(rig, 1, 10)
    member = rig.join(ESTIMATOR)
    member.do(ReadAgain(0, 0, 5))
    assert offsets(read(member, 0, 10, partition=1)) == [*range(10)]
    assert offsets(read(member, 5, 10)) == [*range(5, 10)]
    submit(rig, 0, 3)
    assert offsets(read(member, 10, 13)) == [10, 11, 12]
    first = member.do(ReadAgain(0, 0, 13))
    submit(rig, 0, 3)
    assert offsets(read(member, first[-1].offset + 1, 16)) == [*range(len(first), 16)]


def test_deleted_records_are_not_read(rig: Rig) -> None:
    """What is left of them is read; whoever must know asks where the log starts."""
    submit(rig, 0, 6)
    rig.cut(0, 4)
    member = rig.join(ESTIMATOR)
    assert member.do(LogStarts(frozenset({0}))) == {0: 4}
    assert offsets(read(member, 0, 6)) == [4, 5]


def in_transactions(rig: KafkaRig, *counts: int) -> None:
    """Send so many records in one transaction each; aborted, if the number is below 0."""
    settings = rig._settings
    producer = Producer(
        {"bootstrap.servers": settings.kafka, "transactional.id": settings.topic_prefix + "game"},
        logger=CLIENT_LOGGER,
    )
    producer.init_transactions(STILL_S)
    for count in counts:
        producer.begin_transaction()
        for number in range(abs(count)):
            producer.produce(Topics.of(settings).rounds, b"%d" % number, partition=0)
        producer.flush(STILL_S)
        producer.commit_transaction(STILL_S) if count > 0 else producer.abort_transaction(STILL_S)


@pytest.mark.integration
@pytest.mark.usefixtures("small_calls")
def test_markers_and_aborted_records_are_passed(kafka_rig: KafkaRig) -> None:
    """A game may report in transactions. Their ends take an offset each, and what was aborted is
    not there."""
    in_transactions(kafka_rig, 2, -5, 1, -4)
    member = kafka_rig.join(ESTIMATOR)
    for end, there in ((2, [0, 1]), (3, [0, 1]), (8, [0, 1]), (9, [0, 1]), (16, [0, 1, 9])):
        assert offsets(read(member, 0, end)) == there
    assert not member.do(ReadAgain(0, 10, 16))
    submit(kafka_rig, 0, 2)
    assert offsets(read(member, 0, 17)) == [0, 1, 9, 16]
    assert offsets(read(member, 2, 18)) == [9, 16, 17]


# --- notes ---


def removed(offset: int, player: str = "ann", at: int = 7) -> RecordedCorrection:
    correction = PlayerRemoved(ladder="a", player=player)
    return RecordedCorrection(offset, name_of(correction), _raw(to_json(correction)), at)


def voided(offset: int) -> RecordedCorrection:
    correction = RoundVoided(ladder="b", round_id="ü:1", batched=True)
    return RecordedCorrection(offset, name_of(correction), _raw(to_json(correction)))


def _raw(data: bytes) -> msgspec.Raw:
    return msgspec.Raw(data)


def found(member: Member) -> dict[str, list[RecordedCorrection]]:
    recorded: CorrectionsByLadder = member.do(NotedCorrections())
    return {ladder: list(some) for ladder, some in recorded.items()}


def test_every_member_reads_all_notes(rig: Rig) -> None:
    """They come in the order in which they were recorded, beside the notes of the ladders'
    parameters."""
    first, second = rig.join(ESTIMATOR), rig.join(ESTIMATOR)
    assert found(first) == {}
    first.do(Agree({"a": ["0:x"]}))
    first.do(NoteCorrections({"a": [removed(7)], "b": [voided(3)]}))
    first.do(NoteCorrections({"a": [removed(9, "bob", 9)]}))
    due = {"a": [removed(7), removed(9, "bob", 9)], "b": [voided(3)]}
    assert found(first) == found(second) == found(rig.join(ESTIMATOR)) == due
    assert list(second.do(Agree({"a": ["0:y"]}))["a"]) == ["0:x"]
    rig.notes().write(encode_histories("noted", {"c": ["0:z"]}))
    assert found(second) == due


def test_a_repeated_note_adds_nothing(rig: Rig) -> None:
    """Whoever works a correction in again after a crash notes it again."""
    first, second = rig.join(ESTIMATOR), rig.join(ESTIMATOR)
    for member in (first, second, first):
        member.do(NoteCorrections({"a": [removed(7)]}))
    second.do(NoteCorrections({"a": [removed(9, "bob", 9), removed(7)]}))
    edits = LadderEdits(found(second)["a"])
    assert edits.recorded == [removed(7), removed(9, "bob", 9)]
    assert [each.offset for each in edits.accepted(9)] == [7]
    assert found(first) == found(second) == found(rig.join(ESTIMATOR))


def test_many_notes(rig: Rig) -> None:
    """A ban wave of thousands."""
    member = rig.join(ESTIMATOR)
    wave = [removed(n, f"player-{n}", 5000) for n in range(5000)]
    member.do(NoteCorrections({"a": wave}))
    assert found(rig.join(ESTIMATOR)) == {"a": wave}
