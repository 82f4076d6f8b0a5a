"""The bounded table of records against a dictionary."""

import numpy as np
import pytest

from stream_rater.columns import record_table
from stream_rater.columns.record_table import RecordTable
from stream_rater.columns.strings import StringColumn

MIB = 2**20


def column(*texts: str) -> StringColumn:
    """A column of strings."""
    return StringColumn.of_bytes([each.encode() for each in texts])


def put(table: RecordTable, owner: int, fingerprint: int, name: str, record: str) -> None:
    """Store one record."""
    table.put(np.array([owner]), column(name), np.array([fingerprint], np.uint64), column(record))


def find(table: RecordTable, owner: int, fingerprint: int, name: str) -> str | None:
    """Find one record."""
    there, records = table.find(np.array([owner]), column(name), np.array([fingerprint], np.uint64))
    [record] = records.strings()
    assert there[0] or not record
    return record.decode() if there[0] else None


def test_a_fingerprint_is_not_taken_for_the_player() -> None:
    """A record is found only for its owner and its whole name."""
    table = RecordTable(MIB)
    put(table, 1, 7, "ann", "a record")
    assert find(table, 1, 7, "ann") == "a record"
    for owner, name in [(2, "ann"), (1, "bob"), (1, "an"), (1, "anna"), (1, "")]:
        assert find(table, owner, 7, name) is None
    assert find(table, 1, 8, "ann") is None


def test_of_two_with_one_fingerprint_the_last_is_stored() -> None:
    """The older entry is gone, rather than found for the other."""
    table = RecordTable(MIB)
    put(table, 1, 7, "ann", "of ann")
    put(table, 1, 7, "bob", "of bob")
    assert (find(table, 1, 7, "ann"), find(table, 1, 7, "bob"), len(table)) == (None, "of bob", 1)


def test_an_entry_without_room_leaves_no_older_one() -> None:
    """A record that has become too long is not stored, and its older copy is gone."""
    table = RecordTable(MIB)
    put(table, 1, 7, "ann", "short")
    put(table, 1, 7, "ann", "x" * record_table.LONGEST)
    assert (find(table, 1, 7, "ann"), len(table)) == (None, 0)
    put(table, 1, 9, "bob", "x" * record_table.LONGEST)
    assert (find(table, 1, 9, "bob"), len(table)) == (None, 0)


def test_slots_grow_with_the_records() -> None:
    """Longer entries find room after the first of them, and the memory stays bounded."""
    table = RecordTable(MIB)
    for size in (10, 200, 500, 1000):
        put(table, 1, size, "ann", "x" * size)
        assert find(table, 1, size, "ann") == "x" * size
        assert table.bytes_used <= MIB


def test_slots_do_not_grow_beyond_the_memory() -> None:
    """Where one set of longer slots would take too much, a long entry is not stored."""
    most = record_table.WAYS * (record_table.SHORTEST + record_table.ABOUT)
    table = RecordTable(most)
    put(table, 1, 7, "ann", "short")
    put(table, 1, 8, "bob", "x" * 500)
    assert (find(table, 1, 7, "ann"), find(table, 1, 8, "bob")) == ("short", None)
    assert table.bytes_used <= most


def test_entries_are_forgotten() -> None:
    """By fingerprint, and all of them."""
    table = RecordTable(MIB)
    for each in (7, 8, 9):
        put(table, 1, each, str(each), "r")
    table.forget(np.array([7, 70], np.uint64))
    assert [find(table, 1, each, str(each)) for each in (7, 8)] == [None, "r"]
    assert len(table) == 2
    table.clear()
    assert (find(table, 1, 8, "8"), len(table)) == (None, 0)


def test_an_owner_is_forgotten_whole() -> None:
    """The entries of others stay, and the owner may store entries again."""
    table = RecordTable(MIB)
    for owner, each in [(1, 7), (2, 8), (1, 9)]:
        put(table, owner, each, str(each), "r")
    table.forget_owner(1)
    assert [find(table, *each) for each in [(1, 7, "7"), (2, 8, "8")]] == [None, "r"]
    assert len(table) == 1
    put(table, 1, 9, "9", "again")
    assert find(table, 1, 9, "9") == "again"


def test_a_fingerprint_says_who_may_be_there() -> None:
    """Whoever's the entry is. The question does not count as a use of it."""
    table = RecordTable(record_table.WAYS * (record_table.SHORTEST + record_table.ABOUT))
    for each in range(1, record_table.WAYS + 1):
        put(table, 1, each, str(each), "r")
    there = table.may_contain(np.array([1, 2, 100], np.uint64))
    assert there.tolist() == [True, True, False]
    put(table, 1, 100, "new", "r")
    assert find(table, 1, 1, "1") is None
    table.clear()
    assert not table.may_contain(np.array([1, 2, 100], np.uint64)).any()


def test_without_memory_nothing_is_stored() -> None:
    """The table can be turned off."""
    table = RecordTable(0)
    put(table, 1, 7, "ann", "r")
    assert table.is_off and find(table, 1, 7, "ann") is None


def test_what_was_used_last_stays() -> None:
    """A full set drops the entry that was not used for the longest time."""
    table = RecordTable(record_table.WAYS * (record_table.SHORTEST + record_table.ABOUT))
    for each in range(1, record_table.WAYS + 1):
        put(table, 1, each, str(each), "r")
    assert find(table, 1, 1, "1") == "r"
    put(table, 1, 100, "new", "r")
    assert find(table, 1, 1, "1") == find(table, 1, 100, "new") == "r"
    assert find(table, 1, 2, "2") is None
    assert (len(table), table.evictions) == (record_table.WAYS, 1)


@pytest.mark.parametrize("seed", range(5))
def test_a_found_record_is_the_last_one_stored(seed: int) -> None:
    """Random calls against a dictionary: what is found is right, and the size is bounded."""
    random = np.random.default_rng(seed)
    table, stored = RecordTable(64 * 1024), dict[tuple[int, str], str]()
    found = 0
    for _ in range(300):
        players = random.integers(0, 600, 40)
        owners, names = players % 3, [f"p{each}" for each in players]
        prints = (players % 400 + 1).astype(np.uint64) * np.uint64(2**40 + 1)
        there, records = table.find(owners, column(*names), prints)
        for i, each in enumerate(records.strings()):
            if there[i]:
                assert each.decode() == stored[int(owners[i]), names[i]]
                found += 1
        if random.random() < 0.1:
            table.forget(prints[:10])
            for key in zip(owners[:10].tolist(), names[:10], strict=True):
                stored.pop(key, None)
        new = ["r" * int(random.integers(1, 120)) + str(random.integers(9)) for _ in players]
        table.put(owners, column(*names), prints, column(*new))
        stored.update(zip(zip(owners.tolist(), names, strict=True), new, strict=True))
        assert 0 < table.bytes_used <= 64 * 1024
    assert found > 500
