"""What an estimator reads again, and what it keeps: checkpoints, and the notes of all workers."""

import random
import time
import uuid
from collections.abc import Iterator

import pytest
from msgspec import Raw

from stream_rater.adapters.kafka import reader
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.local_driver import LocalLog
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.contract.corrections import PlayerRemoved, RoundVoided, name_of
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import LEAST_BYTES, MOST_BYTES, to_json
from stream_rater.contract.record import Record
from stream_rater.pipeline import ladder_history, ports
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.corrections.ladder_checkpoints import (
    Checkpoints,
    DropCheckpoint,
    KeepCheckpoint,
    ReadPiece,
    WritePiece,
)
from tests import real
from tests.contract import rigs
from tests.contract.test_reading import submit
from tests.integration.topics import Bytes, in_transactions, make_topics


def read(member: rigs.Member, first: int, end: int, partition: int = 0) -> list[Record]:
    """All records from `first` to before `end`, read as the work on a correction reads them."""
    found: list[Record] = []
    while records := member.do(ports.ReadAgain(partition, first, end)):
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
    monkeypatch.setattr(LocalLog, "poll_records", 3)
    monkeypatch.setattr(SqliteLog, "poll_records", 3)


def test_records_are_read_again_in_order(rig: rigs.Rig) -> None:
    """They come from the first offset to before the end, as often as asked, whole as in a poll."""
    submit(rig, 10, 0)
    submit(rig, 3, 1)
    member = rig.join(rigs.ESTIMATOR)
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
def test_records_come_in_several_calls(rig: rigs.Rig) -> None:
    """A call that asks for no records returns none, at once and without trouble."""
    submit(rig, 10, 0)
    member = rig.join(rigs.ESTIMATOR)
    assert 1 <= len(member.do(ports.ReadAgain(0, 0, 10))) < 10
    for end in range(11):
        assert offsets(read(member, 0, end)) == [*range(end)]
        assert not member.do(ports.ReadAgain(0, end, end))
    assert offsets(read(member, 4, 9)) == [4, 5, 6, 7, 8]
    assert not member.do(ports.ReadAgain(1, 0, 0))


def test_an_earlier_reading_may_have_been_left(rig: rigs.Rig) -> None:
    """It was of a lost partition's correction, or records came after it had seen the end."""
    submit(rig, 10)
    member = rig.join(rigs.ESTIMATOR)
    member.do(ports.ReadAgain(0, 0, 5))
    assert offsets(read(member, 0, 10, partition=1)) == [*range(10)]
    assert offsets(read(member, 5, 10)) == [*range(5, 10)]
    submit(rig, 3, 0)
    assert offsets(read(member, 10, 13)) == [10, 11, 12]
    first = member.do(ports.ReadAgain(0, 0, 13))
    submit(rig, 3, 0)
    assert offsets(read(member, first[-1].offset + 1, 16)) == [*range(len(first), 16)]


def test_deleted_records_are_not_read(rig: rigs.Rig) -> None:
    """The records that are left are read. Who must know of a loss asks where the log starts."""
    submit(rig, 6, 0)
    rig.cut(0, 4)
    member = rig.join(rigs.ESTIMATOR)
    assert member.do(ports.LogStarts(frozenset({0}))) == {0: 4}
    assert offsets(read(member, 0, 6)) == [4, 5]


@pytest.mark.integration
@pytest.mark.usefixtures("small_calls")
def test_markers_and_aborted_records_are_passed(kafka_rig: rigs.KafkaRig) -> None:
    """A transaction's end takes an offset, and records of an aborted one do not appear."""
    groups = ([Bytes(b"%d" % n, partition=0) for n in range(count)] for count in (2, 5, 1, 4))
    in_transactions(kafka_rig._settings, *groups, abort={1, 3})
    member = kafka_rig.join(rigs.ESTIMATOR)
    for end, there in ((2, [0, 1]), (3, [0, 1]), (8, [0, 1]), (9, [0, 1]), (16, [0, 1, 9])):
        assert offsets(read(member, 0, end)) == there
    assert not member.do(ports.ReadAgain(0, 10, 16))
    submit(kafka_rig, 2, 0)
    assert offsets(read(member, 0, 17)) == [0, 1, 9, 16]
    assert offsets(read(member, 2, 18)) == [9, 16, 17]


# --- notes of corrections ---


def removed(
    offset: int, player: str = "ann", at: int = 7, reason: str = ""
) -> ports.RecordedCorrection:
    correction = PlayerRemoved(ladder="a", player=player, reason=reason)
    return ports.RecordedCorrection(offset, name_of(correction), Raw(to_json(correction)), at)


VOIDED = RoundVoided(ladder="b", round_id="ü:1", batched=True)
VOID = ports.RecordedCorrection(3, name_of(VOIDED), Raw(to_json(VOIDED)))


def found(member: rigs.Member) -> dict[str, list[ports.RecordedCorrection]]:
    recorded: ports.CorrectionsByLadder = member.do(ports.NotedCorrections())
    return {ladder: list(some) for ladder, some in recorded.items()}


def test_every_member_reads_all_notes(rig: rigs.Rig) -> None:
    """They come in the order in which they were recorded, beside notes of ladders' parameters."""
    first, second = rig.join(rigs.ESTIMATOR), rig.join(rigs.ESTIMATOR)
    assert found(first) == {}
    first.do(ports.Agree({"a": ["0:x"]}))
    first.do(ports.NoteCorrections({"a": [removed(7)], "b": [VOID]}))
    first.do(ports.NoteCorrections({"a": [removed(9, "bob", 9)]}))
    due = {"a": [removed(7), removed(9, "bob", 9)], "b": [VOID]}
    assert found(first) == found(second) == found(rig.join(rigs.ESTIMATOR)) == due
    assert list(second.do(ports.Agree({"a": ["0:y"]}))["a"]) == ["0:x"]
    rig.notes().write(ladder_history.encode_histories("noted", {"c": ["0:z"]}))
    assert found(second) == due


def test_a_repeated_note_adds_nothing(rig: rigs.Rig) -> None:
    """A worker that works a correction in again after a crash records it again."""
    first, second = rig.join(rigs.ESTIMATOR), rig.join(rigs.ESTIMATOR)
    for member in (first, second, first):
        member.do(ports.NoteCorrections({"a": [removed(7)]}))
    second.do(ports.NoteCorrections({"a": [removed(9, "bob", 9), removed(7)]}))
    edits = LadderEdits(found(second)["a"])
    assert edits.recorded == [removed(7), removed(9, "bob", 9)]
    assert [each.offset for each in edits.accepted(9)] == [7]
    assert found(first) == found(second) == found(rig.join(rigs.ESTIMATOR))


# --- notes of ladders ---


def agreed(member: rigs.Member, **own: str) -> dict[str, str]:
    """The histories by which rounds may be rated, if a worker's file has the given ones."""
    found = member.do(ports.Agree({ladder: words.split() for ladder, words in own.items()}))
    return {ladder: " ".join(entries) for ladder, entries in found.items()}


def start(rig: rigs.Rig, end: int, **own: str) -> None:
    """Announce this file, as a worker does at its start, if the rounds' partition ends there."""
    histories = {each: words.split() for each, words in own.items()}
    ladder_history.announce(histories, rig.notes(), lambda _: end, uuid.uuid4().hex, lambda _: 0)


def test_what_notes_decide(rig: rigs.Rig) -> None:
    """The first note counts for later workers, too; a longer history needs an announcement. A
    change is seen once a worker has announced it; one that comes too late is refused. If a worker
    died after it proposed one, no file rates from its offset on until another worker starts."""
    first, second = rig.join(rigs.ESTIMATOR), rig.join(rigs.ESTIMATOR)
    assert agreed(first, a="0:x", b="0:- 5:y") == {"a": "0:x", "b": "0:- 5:y"}
    assert agreed(second, a="0:z 7:x", c="0:q") == {"a": "0:x", "c": "0:q"}
    assert agreed(first, a="0:x 9:y") == {"a": "0:x"}
    assert agreed(first) == {}
    odd = {"a:0": "0:q", "a:": "0:r", "\u00fc": "0:s", "": "0:limits", "no": "0:-"}
    assert agreed(first, **odd) == agreed(second, **odd) == odd
    old = rig.join(rigs.ESTIMATOR)
    agreed(old, d="0:x")
    start(rig, 7, d="0:x 7:y")
    assert agreed(old, d="0:x") == {"d": "0:x 7:y"}
    start(rig, 100, d="0:x 7:y")
    with pytest.raises(ladder_history.LadderContradiction, match="differ from offset 7 on"):
        start(rig, 8, d="0:x")
    member = rig.join(rigs.ESTIMATOR)
    agreed(member, e="0:x")
    late = r"change from offset 7 on comes too late, .* ends at 8"
    with pytest.raises(ladder_history.LadderContradiction, match=late):
        start(rig, 8, e="0:x 7:y")
    assert agreed(member, e="0:x") == {"e": "0:x"}
    member = rig.join(rigs.ESTIMATOR)
    agreed(member, f="0:x")
    rig.notes().write(ladder_history.encode_histories("proposed", {"f": ["0:x", "7:y"]}))
    assert agreed(member, f="0:x") == {"f": "0:x 7:not confirmed"}
    start(rig, 3, f="0:x")
    assert agreed(member, f="0:x") == {"f": "0:x"}
    rig.notes().write(ladder_history.encode_histories("proposed", {"f": ["0:x", "7:y"]}))
    start(rig, 3, f="0:x 7:y")
    assert agreed(member, f="0:x") == {"f": "0:x 7:y"}


@pytest.mark.integration
def test_a_note_of_a_newer_release_is_trouble(kafka_rig: rigs.KafkaRig) -> None:
    """Its meaning is not guessed. A record that is no note of any release is ignored."""
    member = kafka_rig.join(rigs.ESTIMATOR)
    log = kafka_rig.notes()
    log.write(
        [b"", b"litter", b"[]", b"{}", *ladder_history.encode_histories("noted", {"a": ["0:x"]})]
    )
    assert agreed(member, a="0:z") == {"a": "0:x"}
    log.write([b'{"kind": "later", "histories": {}}'])
    with pytest.raises(LogTrouble, match=r"ladders-noted: offset 5: a note of kind 'later'"):
        agreed(member, a="0:z")


# --- topics that take no more than Kafka's default: what workers write fits into them ---


@pytest.fixture
def narrow(settings: real.SettingsFactory) -> Iterator[rigs.KafkaRig]:
    """The rig on Kafka, whose topics were made with Kafka's default."""
    at = settings(session_timeout_ms=2000, partitions=rigs.PARTITIONS, shards=rigs.SHARDS)
    make_topics(at, *Topics.of(at).names, config={"max.message.bytes": str(LEAST_BYTES)})
    found = rigs.KafkaRig(at)
    yield found
    found.close()


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.integration
def test_notes_and_parts_of_the_greatest_size_are_taken(narrow: rigs.KafkaRig) -> None:
    """Notes of a ban wave with long reasons, notes of many ladders, and the largest parts fit."""
    member = narrow.join(rigs.ESTIMATOR)
    wave = [removed(n, f"p{n}", 5000, noise(1000).hex()) for n in range(1500)]
    member.do(ports.NoteCorrections({"a": wave}))
    assert narrow.join(rigs.ESTIMATOR).do(ports.NotedCorrections()) == {"a": wave}
    later = (f"{2**40 + n}:{noise(n + 8).hex()[:16]}" for n in range(50))
    history = (*ladder_history.UNKNOWN, *later)
    histories = {f"ladder-{n}": history for n in range(1000)}
    assert {
        ladder: tuple(h) for ladder, h in member.do(ports.Agree(histories)).items()
    } == histories
    parts = [(0, noise(MOST_BYTES)), (0, b"x"), (1, noise(MOST_BYTES))]
    assert list(member.do(ports.Scatter(parts))) == [0, 1, 0]


@pytest.mark.integration
def test_a_message_that_is_too_large_is_named_with_its_cure(narrow: rigs.KafkaRig) -> None:
    """The error has topic, size and command. With the topic's new limit the work continues."""
    member = narrow.join(rigs.ESTIMATOR)
    topic = narrow._admin.topics.parts
    with pytest.raises(LogTrouble) as raised:
        member.do(ports.Scatter([(0, noise(2 * MOST_BYTES))]))
    reported = str(raised.value)
    refused = f"{topic} does not take a message of {2 * MOST_BYTES} bytes, and nothing goes on"
    assert refused in reported
    assert reported.endswith(f"--entity-name {topic} --add-config max.message.bytes=16777216`")
    rigs.configure(narrow._admin._client, topic, "max.message.bytes", str(16 * 2**20))
    deadline_s = time.monotonic() + rigs.GAIN_S
    while True:  # a broker learns of the new limit a moment later
        try:
            assert len(member.do(ports.Scatter([(0, noise(2 * MOST_BYTES))]))) == 1
            return
        except LogTrouble:
            assert time.monotonic() < deadline_s


# --- checkpoints ---

LADDERS = ("duel", "a:b{1}", "ladder of ü/%")


def test_what_is_written_is_read_by_all(rig: rigs.Rig) -> None:
    """A piece can be read once it is written. A later head of the same name replaces the first."""
    member = rig.join(rigs.ESTIMATOR)
    for ladder in LADDERS:
        assert member.do(Checkpoints(ladder)) == {}
        assert member.do(ReadPiece(ladder, "7-ab", 0)) is None
        member.do(KeepCheckpoint(ladder, "7-ab", b"half"))
        for number in range(3):
            member.do(WritePiece(ladder, "7-ab", number, b"\x00\xff" + ladder.encode() * number))
        member.do(KeepCheckpoint(ladder, "7-ab", b"whole"))
        member.do(KeepCheckpoint(ladder, "9-cd", b"\x80another"))
    other = rig.join(rigs.ESTIMATOR)
    for ladder in LADDERS:
        assert other.do(Checkpoints(ladder)) == {"7-ab": b"whole", "9-cd": b"\x80another"}
        found = [other.do(ReadPiece(ladder, "7-ab", number)) for number in range(4)]
        assert found == [*(b"\x00\xff" + ladder.encode() * number for number in range(3)), None]


def test_a_checkpoint_that_is_dropped_leaves_nothing(rig: rigs.Rig) -> None:
    """Its pieces are deleted, and no others. Dropping it again changes nothing."""
    member = rig.join(rigs.ESTIMATOR)
    for name in ("7-ab", "9-cd"):
        for number in range(2):
            member.do(WritePiece("duel", name, number, name.encode()))
        member.do(KeepCheckpoint("duel", name, b"head"))
    for _ in range(2):
        member.do(DropCheckpoint("duel", "7-ab", 2))
        assert member.do(Checkpoints("duel")) == {"9-cd": b"head"}
        assert [member.do(ReadPiece("duel", "7-ab", number)) for number in range(2)] == [None, None]
        assert member.do(ReadPiece("duel", "9-cd", 1)) == b"9-cd"
