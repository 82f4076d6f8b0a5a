"""Reading the log: assignment, seeks and polls, and that nothing else is read."""

import itertools
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from stream_rater.adapters.kafka import reader
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import checksum
from stream_rater.pipeline import ports
from tests import real
from tests.builders.lines import Bytes
from tests.contract import rigs
from tests.contract.conftest import REAL
from tests.integration.topics import produce
from tests.waits import HANGS_S

EVERY = set(range(rigs.PARTITIONS))


def submit(rig: rigs.Rig, count: int, *partitions: int) -> None:
    """Submit so many records to each of these partitions; to all, if none is named."""
    for partition in partitions or EVERY:
        rig.submit(partition, *(Bytes(b"%d" % number) for number in range(count)))


def test_nothing_is_read_before_a_seek(rig: rigs.Rig) -> None:
    submit(rig, 3)
    member = rig.join(rigs.ESTIMATOR)
    member.poll_until(lambda: member.owned == EVERY)
    member.do(ports.Seek({1: 0}))
    assert member.read(3) == [(1, 0), (1, 1), (1, 2)]
    member.poll(0.3)
    member.poll(no_fetch=True)
    member.poll(0.3)
    assert member.records == []


def test_a_record_comes_whole(rig: rigs.Rig) -> None:
    """A record has the value, key, headers, place and time that were sent, or none."""
    headers = [("content-type", b"x"), ("content-type", b""), ("\u00e9", b"\x00\xff")]
    rig.submit(0, Bytes(b"\x00value", b"key\xff", headers), Bytes(None, None))
    member = rigs.read_from_start(rig, rigs.ESTIMATOR)
    member.poll_until(lambda: len(member.records) == 2)
    first, second = member.records
    assert (first.partition, first.offset) == (0, 0)
    assert (first.value, first.key) == (b"\x00value", b"key\xff")
    assert list(first.headers) == headers
    assert abs(first.received_s - time.time()) < 60.0
    assert (second.offset, second.value, second.key, list(second.headers)) == (1, None, None, [])


@pytest.mark.parametrize("enough", [1, 2])
@pytest.mark.parametrize("rig", [REAL], indirect=True)
def test_a_poll_gathers_what_comes_after_the_first(rig: rigs.Rig, enough: int) -> None:
    """A poll gathers records until there are enough, and does not wait for more."""
    submit(rig, 1, 0)
    member = rigs.read_from_start(rig, rigs.ESTIMATOR)
    returned = threading.Event()

    def others() -> None:
        submit(rig, enough - 1, 0)
        returned.wait(rigs.GAIN_S / 2)
        submit(rig, 1, 0)

    with ThreadPoolExecutor() as pool:
        sent = pool.submit(others)
        polled = member.do(ports.Poll(rigs.GAIN_S, gather_s=rigs.GAIN_S, enough=enough))
        returned.set()
        sent.result()
    assert [record.offset for record in polled.records] == list(range(enough))


def test_seek(rig: rigs.Rig) -> None:
    """The next record is the sought one; after a seek to the end, a later one. Others continue."""
    submit(rig, 600, 0)
    member = rigs.read_from_start(rig, rigs.ESTIMATOR)
    for offset in (0, 599, 300, 0, 250, 10, 590):
        member.do(ports.Seek({0: offset}))
        assert member.read(1)[0] == (0, offset)
    member.do(ports.Seek({0: 300}))
    member.do(ports.Seek({0: 10}))
    assert member.read(590) == [(0, offset) for offset in range(10, 600)]
    member.do(ports.Seek({0: 598}))
    submit(rig, 1, 1)
    assert sorted(member.read(3)) == [(0, 598), (0, 599), (1, 0)]
    member.do(ports.Seek({0: 600}))
    assert list(member.poll(0.3)) == []
    submit(rig, 1, 0)
    assert member.read(1) == [(0, 600)]


def test_seek_of_others_partitions_is_ignored(rig: rigs.Rig) -> None:
    """A seek of a partition that is not owned, or no longer owned, does nothing."""
    submit(rig, 1)
    first, second = rig.join(rigs.ESTIMATOR), rig.join(rigs.ESTIMATOR)
    rigs.settle(first, second)
    (mine,) = first.owned
    first.do(ports.Seek({0: 0, 1: 0}))
    assert first.read(1) == [(mine, 0)]
    first.poll(0.3)
    assert first.records == []


def test_full_polls_bring_no_records_and_lose_none(rig: rigs.Rig) -> None:
    """A full poll returns no records, and the next one that is not full continues without a gap."""
    submit(rig, 1000)
    member = rigs.read_from_start(rig, rigs.ESTIMATOR)
    while len(member.records) < 2000:
        assert list(member.poll(0.02, no_fetch=True)) == []
        assert list(member.poll(0.02, no_fetch=True)) == []
        while not member.poll(0.02):
            pass
    for partition in EVERY:
        offsets = [r.offset for r in member.records if r.partition == partition]
        assert offsets == list(range(1000))


def test_a_resting_partition_holds_up_no_other(rig: rigs.Rig) -> None:
    """A resting partition returns nothing, the other everything. Later it goes on without a gap."""
    submit(rig, 1000)
    member = rigs.read_from_start(rig, rigs.ESTIMATOR)
    member.poll(0.0, paused={0})
    while sum(record.partition == 1 for record in member.records) < 1000:
        member.poll(0.02, paused={0})
    assert list(member.poll(0.3, paused={0, 7})) == []
    before = sum(record.partition == 0 for record in member.records)
    member.poll_until(lambda: len(member.records) == 2000)
    assert before == 0
    assert [r.offset for r in member.records if r.partition == 0] == list(range(1000))


def test_a_seek_wakes_only_what_it_names(rig: rigs.Rig) -> None:
    """A seek between full polls leaves no partition paused; the next full poll pauses it again."""
    submit(rig, 10)
    member = rigs.read_from_start(rig, rigs.ESTIMATOR)
    member.read(20)
    member.poll(no_fetch=True)
    member.do(ports.Seek({0: 5}))
    submit(rig, 1, 1)
    assert list(member.poll(0.3, no_fetch=True)) == []
    assert sorted(member.read(6)) == [*((0, offset) for offset in range(5, 10)), (1, 10)]


def test_what_the_log_does_not_hold_is_trouble(rig: rigs.Rig) -> None:
    """Reading before the start or beyond the end raises LogTrouble. LogStarts returns the start."""
    submit(rig, 10, 0)
    member = rigs.read_from_start(rig, rigs.ESTIMATOR)
    member.read(10)
    assert member.do(ports.LogStarts(frozenset(EVERY))) == {0: 0, 1: 0}
    rig.cut(0, 7)
    assert member.do(ports.LogStarts(frozenset(EVERY))) == {0: 7, 1: 0}
    member.do(ports.Seek({0: 3}))
    with pytest.raises(LogTrouble):
        member.poll_until(lambda: len(member.records) > 0)
    member.do(ports.Seek({0: 7}))
    assert member.read(3) == [(0, 7), (0, 8), (0, 9)]
    before = len(member.records)
    member.do(ports.Seek({0: 50}))
    with pytest.raises(LogTrouble):
        member.poll_until(lambda: len(member.records) > before)


def test_members_share_the_partitions(rig: rigs.Rig) -> None:
    """A joining member gets partitions that the other loses. When it leaves, they come back."""
    submit(rig, 5)
    first = rigs.read_from_start(rig, rigs.ESTIMATOR)
    first.read(10)
    second = rig.join(rigs.ESTIMATOR)
    rigs.settle(first, second)
    assert first.lost == second.owned
    assert first.owned == EVERY - second.owned
    assert first.records + second.records == []
    rig.leave(second)
    first.poll_until(lambda: first.owned == EVERY)
    first.poll()
    assert first.owned == EVERY
    assert first.records == []


def test_what_was_lost_while_resting_is_read_again(rig: rigs.Rig) -> None:
    """A partition that was lost and regained during full polls is read from where it is sought."""
    submit(rig, 3)
    first = rigs.read_from_start(rig, rigs.ESTIMATOR)
    first.read(6)
    first.poll(no_fetch=True)
    second = rig.join(rigs.ESTIMATOR)
    rigs.settle(first, second, no_fetch=True)
    back = set(second.owned)
    rig.leave(second)
    first.poll_until(lambda: first.owned == EVERY, no_fetch=True)
    first.do(ports.Seek(dict.fromkeys(back, 0)))
    assert sorted(first.read(3)) == [(p, offset) for p in back for offset in range(3)]


def test_an_evicted_member_learns_it(rig: rigs.Rig) -> None:
    """A member that the group has evicted learns by polling that it lost all partitions."""
    first = rig.join(rigs.ESTIMATOR, evictable=True)
    first.poll_until(lambda: first.owned == EVERY)
    first.do(ports.Seek({0: 0, 1: 0}))
    second = rig.join(rigs.ESTIMATOR)
    rig.evict(first, [second])
    first.poll_until(lambda: first.lost == EVERY)


def test_who_missed_a_generation_begins_again() -> None:
    """Another member may have owned its partitions in between, though they are its own again."""
    rig = rigs.MemoryRig()
    first = rig.join(rigs.ESTIMATOR)
    first.poll()
    rig.leave(rig.join(rigs.ESTIMATOR))
    first.poll()
    assert first.lost == first.owned == EVERY


KEY = b"eu:ann"


@pytest.mark.integration
def test_the_last_events_of_a_player_are_read_back(
    settings: real.SettingsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`inspect` reads as many events of a player as it asks for, in order, in growing windows from
    the end of the partition; or all that there are; or none if it has no time."""
    monkeypatch.setattr(reader, "LOOK_BACK", 4)
    at = settings(shards=2)
    admin = Admin(at)
    admin.create_topics()
    topic, keys = admin.topics.changed, itertools.cycle([KEY, *[b"eu:bob"] * 6])
    events = [Bytes(b"%d" % n, next(keys), partition=1) for n in range(100)]
    produce(at, [*events, Bytes(b"elsewhere", KEY, partition=0)], topic)

    def read_back(count: int, within_s: float) -> tuple[list[bytes | None], int]:
        found, begin = reader.read_back(at, topic, 1, KEY, count=count, within_s=within_s)
        return [each.value for each in found], begin

    assert read_back(3, HANGS_S) == ([b"84", b"91", b"98"], 72)
    assert read_back(1, HANGS_S) == ([b"98"], 96)
    assert read_back(100, HANGS_S) == ([b"%d" % n for n in range(0, 100, 7)], 0)
    assert read_back(3, 0.0) == ([], 100)


# --- the record before a committed offset, and added shards ---------------------------------------


def test_shard_ends_show_added_shards(rig: rigs.Rig) -> None:
    """A worker that was there before shards were added learns their present number."""
    member = rig.join(rigs.ESTIMATOR)
    assert len(member.do(ports.ShardEnds())) == rigs.SHARDS
    rig.add_shards(2)

    def seen() -> Sequence[int]:
        with suppress(LogTrouble):  # a new partition has no leader yet
            return list(member.do(ports.ShardEnds()))
        return ()

    member.poll_until(lambda: seen() == [0] * (rigs.SHARDS + 2))


def test_different_records_have_different_checksums(rig: rigs.Rig) -> None:
    """A member of either group gets the checksum of a record. Only equal bytes have equal ones."""
    estimator = rig.join(rigs.ESTIMATOR)
    parts = [b"one", b"two", b"", b"two"]
    estimator.do(ports.Scatter([(1, each) for each in parts] + [(0, b"other")]))
    for member in (estimator, rig.join(rigs.UPDATER)):
        for offset, each in enumerate(parts):
            found = member.do(ports.PartSums({1: offset, 0: 0}))
            assert found == {1: checksum(each), 0: checksum(b"other")}


BOTH = frozenset(range(rigs.PARTITIONS))


def test_the_record_before_an_offset(rig: rigs.Rig) -> None:
    """Its checksum is committed with a partition's offset; a later commit without one clears it.
    Beyond the end there is none, nor of a record that was deleted."""
    member = rigs.read_from_start(rig, rigs.ESTIMATOR)
    assert member.do(ports.CommittedSource(BOTH)) == {0: None, 1: None}
    member.do(ports.CommitSource({0: 3, 1: 4}, tails={0: 0, 1: 0xFFFFFFFF}))
    assert member.do(ports.CommittedSource(BOTH)) == {
        0: ports.SourceCommit(3, 0), 1: ports.SourceCommit(4, 0xFFFFFFFF),
    }  # fmt: skip
    member.do(ports.CommitSource({1: 5}))
    assert member.do(ports.CommittedSource(BOTH)) == {
        0: ports.SourceCommit(3, 0),
        1: ports.SourceCommit(5),
    }
    values = [b"first", b"second", None]
    rig.submit(0, *map(Bytes, values))
    rig.submit(1, Bytes(b"other"))
    for end, value in enumerate(values, 1):
        assert member.do(ports.SourceTails({0: end, 1: 1})) == {
            0: ports.SourceTail(3, checksum(value)), 1: ports.SourceTail(1, checksum(b"other")),
        }  # fmt: skip
    assert member.do(ports.SourceTails({0: 4, 1: 1})) == {
        0: ports.SourceTail(3, None), 1: ports.SourceTail(1, checksum(b"other")),
    }  # fmt: skip
    rig.submit(0, *[Bytes(b"%d" % i) for i in range(5)])
    rig.cut(0, 6)
    assert member.do(ports.SourceTails({0: 5})) == {0: ports.SourceTail(8, None)}
    assert member.do(ports.SourceTails({0: 7})) == {0: ports.SourceTail(8, checksum(b"3"))}
