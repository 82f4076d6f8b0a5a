"""Columns: a number for each player, the bounded table of records, and columns of messages."""

from random import Random
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns import player_map, record_table
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn, RecordColumn
from stream_rater.columns.record_table import RecordTable
from stream_rater.columns.sharding import shards_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.record import Record
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import NO_ROUNDS, PendingRounds
from stream_rater.rating.seats import NO_SEAT
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.decoder import RoundDecoder
from tests.builders.cases import cases
from tests.rounds import as_json


def crowd(*numbers: int) -> player_map.Fingerprints:
    return np.array(numbers, np.uint64) | player_map.TAKEN


PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=12)


@given(st.lists(st.tuples(st.booleans(), PAIRS), max_size=30))
def test_marks_are_a_dict(calls: list[tuple[bool, list[tuple[int, int]]]]) -> None:
    """Players are put and forgotten in any order, and many of them look for the same place."""
    marks, wanted = player_map.PlayerMap(), dict[int, int]()
    everybody = crowd(*range(41))
    for is_put, pairs in calls:
        players, numbers = crowd(*(p for p, _ in pairs)), np.array([n for _, n in pairs], np.int64)
        if is_put:
            before = marks.put(players, numbers).tolist()
            for (player, number), previous in zip(pairs, before, strict=True):
                assert previous == wanted.get(player, player_map.NOTHING)
                wanted[player] = number
        else:
            marks.forget(players, numbers)
            for player, number in pairs:
                if wanted.get(player) == number:
                    del wanted[player]
        assert len(marks) == len(wanted)
        assert marks.find(everybody).tolist() == [
            wanted.get(p, player_map.NOTHING) for p in range(41)
        ]


def test_marks_grow_and_shrink() -> None:
    """Far more than there is room for at first; all of it forgotten again, but for one."""
    marks = player_map.PlayerMap()
    players = crowd(*range(100_000))
    numbers = np.arange(100_000)
    for start in range(0, 100_000, 7000):
        marks.put(players[start : start + 7000], numbers[start : start + 7000])
    assert len(marks) == 100_000
    assert (marks.find(players) == numbers).all()
    marks.forget(players[::-1], np.where(numbers == 5, 6, numbers)[::-1])
    assert len(marks) == 1
    assert np.flatnonzero(marks.find(players) != player_map.NOTHING).tolist() == [5]


ids = st.text(max_size=9)


def fingerprints(players: list[tuple[str, str]], shards: int) -> player_map.Fingerprints:
    """Each alone on its ladder."""
    names = StringColumn.of([name for _, name in players])
    return player_map.fingerprints(
        names, [ladder for ladder, _ in players], [1] * len(players), shards
    )


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=20, unique=True), st.integers(1, 2000))
def test_fingerprints_hold_the_shard(players: list[tuple[str, str]], shards: int) -> None:
    """The players' own, whoever else is asked for; and those of different ones differ."""
    found = fingerprints(players, shards)
    assert (
        player_map.shards_in(found).tolist()
        == shards_of([name for _, name in players], shards).tolist()
    )
    assert len(set(found.tolist())) == len(players)
    for player, fingerprint in zip(players, found.tolist(), strict=True):
        assert fingerprints([player], shards).tolist() == [fingerprint]


@given(st.lists(st.lists(ids, max_size=4), min_size=1, max_size=5))
def test_fingerprints_of_ladders_together(ladders: list[list[str]]) -> None:
    """They are those of each player alone; none is 0, which stands for a free place."""
    names = list(map(str, range(len(ladders))))
    players = [(name, each) for name, own in zip(names, ladders, strict=True) for each in own]
    if players:
        laid_out = StringColumn.of([each for _, each in players])
        found = player_map.fingerprints(laid_out, names, list(map(len, ladders)), 7)
        assert found.tolist() == fingerprints(players, 7).tolist()
    assert (fingerprints([("", "")] * 3, 1) != 0).all()


KAFKA_UTILS_TEST = {
    "21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829, "abc": 479470107,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}  # fmt: skip
"""From Apache Kafka, clients' UtilsTest.testMurmur2."""


@cases(("text", "signed"), KAFKA_UTILS_TEST.items())
def test_murmur2_is_kafkas(text: str, signed: int) -> None:
    """The shard is Kafka's toPositive(murmur2(key)) % partitions."""
    positive = signed & 0x7FFFFFFF
    for shards in (1, 3, 8, 1000):
        assert shards_of([text], shards).tolist() == [positive % shards]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=50))
def test_players_by_shard(shards: list[int]) -> None:
    """As a stable sort would put them, and each shard that has any with its own."""
    order, cuts = player_map.by_shard(np.array(shards, np.uint64) | player_map.TAKEN)
    assert order.tolist() == sorted(range(len(shards)), key=shards.__getitem__)
    found = {shard: [shards[i] for i in order[where].tolist()] for shard, where in cuts}
    assert found == {shard: [shard] * shards.count(shard) for shard in sorted(set(shards))}


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
WRITTEN = st.lists(st.tuples(st.tuples(NAMES, NAMES), st.binary(max_size=3)), max_size=6)


@given(WRITTEN, st.integers(-7, 7), st.integers(-7, 7))
def test_a_column_is_its_players_or_entries(written: list[Any], first: int, last: int) -> None:
    """All of them, some, and each alone."""
    other = ("ladder", "another")
    for column, given_ones, more in (
        (PlayerColumn.of([player for player, _ in written]), [p for p, _ in written], other),
        (BeliefColumn.of(written), written, (other, b"")),
    ):
        assert list(column) == given_ones and len(column) == len(given_ones)
        assert (column, repr(column)) == (given_ones, repr(given_ones))
        assert column != [*given_ones, more]
        assert list(column[first:last]) == given_ones[first:last]
        each_alone = [column[i] for i in range(-len(given_ones), len(given_ones))]
        assert each_alone == given_ones + given_ones


MIB = 2**20


def column(*texts: str) -> StringColumn:
    return StringColumn.of_bytes([each.encode() for each in texts])


def put(table: RecordTable, owner: int, fingerprint: int, name: str, record: str) -> None:
    table.put(np.array([owner]), column(name), np.array([fingerprint], np.uint64), column(record))


def find(table: RecordTable, owner: int, fingerprint: int, name: str) -> str | None:
    there, records = table.find(np.array([owner]), column(name), np.array([fingerprint], np.uint64))
    [record] = records.strings()
    assert there[0] or not record
    return record.decode() if there[0] else None


def test_one_entry_of_a_fingerprint_and_none_that_is_older() -> None:
    """Of two with one fingerprint the last is stored. One that is too long deletes the older."""
    table = RecordTable(MIB)
    put(table, 1, 7, "ann", "of ann")
    put(table, 1, 7, "bob", "of bob")
    assert (find(table, 1, 7, "ann"), find(table, 1, 7, "bob"), len(table)) == (None, "of bob", 1)
    put(table, 1, 7, "bob", "x" * record_table.LONGEST)
    assert (find(table, 1, 7, "bob"), len(table)) == (None, 0)
    put(table, 1, 9, "cid", "x" * record_table.LONGEST)
    assert (find(table, 1, 9, "cid"), len(table)) == (None, 0)


def test_slots_grow_with_the_records_within_the_memory() -> None:
    """Longer entries find room later, unless longer slots would take too much memory."""
    table = RecordTable(MIB)
    for size in (10, 200, 500, 1000):
        put(table, 1, size, "ann", "x" * size)
        assert find(table, 1, size, "ann") == "x" * size
        assert table.bytes_used <= MIB
    most = record_table.WAYS * (record_table.SHORTEST + record_table.ABOUT)
    table = RecordTable(most)
    put(table, 1, 7, "ann", "short")
    put(table, 1, 8, "bob", "x" * 500)
    assert (find(table, 1, 7, "ann"), find(table, 1, 8, "bob")) == ("short", None)
    assert table.bytes_used <= most
    table = RecordTable(0)
    put(table, 1, 7, "ann", "r")
    assert table.is_off and find(table, 1, 7, "ann") is None


def test_entries_are_forgotten() -> None:
    """By fingerprint; all of an owner, who may store entries again; and all of them."""
    table = RecordTable(MIB)
    for owner, each in [(1, 7), (2, 8), (1, 9), (1, 10)]:
        put(table, owner, each, str(each), "r")
    table.forget(np.array([7, 70], np.uint64))
    assert (find(table, 1, 7, "7"), find(table, 2, 8, "8"), len(table)) == (None, "r", 3)
    table.forget_owner(1)
    assert (find(table, 1, 9, "9"), find(table, 2, 8, "8"), len(table)) == (None, "r", 1)
    put(table, 1, 9, "9", "again")
    assert find(table, 1, 9, "9") == "again"
    table.clear()
    assert (find(table, 2, 8, "8"), len(table)) == (None, 0)


def test_what_was_used_last_stays() -> None:
    """A full set drops the entry that was unused for longest. Asking who may be there is no use."""
    table = RecordTable(record_table.WAYS * (record_table.SHORTEST + record_table.ABOUT))
    for each in range(1, record_table.WAYS + 1):
        put(table, 1, each, str(each), "r")
    assert find(table, 1, 1, "1") == "r"
    assert table.may_contain(np.array([2, 3, 100], np.uint64)).tolist() == [True, True, False]
    put(table, 1, 100, "new", "r")
    assert find(table, 1, 1, "1") == find(table, 1, 100, "new") == "r"
    assert find(table, 1, 2, "2") is None
    assert (len(table), table.evictions) == (record_table.WAYS, 1)
    table.clear()
    assert not table.may_contain(np.array([1, 2, 100], np.uint64)).any()


def test_a_found_record_is_the_last_one_stored() -> None:
    """Random calls against a dictionary: what is found is right, and the size is bounded."""
    for seed in range(3):
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
        assert found > 500, seed


records = st.lists(st.none() | st.binary(max_size=4), max_size=6)


@given(st.lists(records, min_size=1, max_size=4), st.randoms())
def test_a_column_is_its_records(each: list[list[bytes | None]], random: Random) -> None:
    """An empty record is not an absent one, whether columns are joined, taken or replaced."""
    whole = [record for one in each for record in one]
    count = len(whole)
    joined = RecordColumn.joined([RecordColumn.of(one) for one in each])
    assert list(joined) == whole and joined == whole
    assert [joined[i] for i in range(count)] == whole
    assert joined.absent == whole.count(None)
    assert RecordColumn.of(joined) is joined
    assert list(RecordColumn.nothing(count)) == [None] * count
    cut, order = random.randint(0, count), random.sample(range(count), count)
    assert list(RecordColumn.joined([joined[cut:], joined[:cut]])) == whole[cut:] + whole[:cut]
    assert list(joined.take(np.array(order, np.int64))) == [whole[i] for i in order]
    rows = sorted(random.sample(range(count), random.randint(0, count)))
    others, expected = [random.choice([None, b"", b"other"]) for _ in rows], list(whole)
    for row, other in zip(rows, others, strict=True):
        expected[row] = other
    assert list(joined.replaced(np.array(rows, np.int64), RecordColumn.of(others))) == expected


def test_shared_bytes_stay_shared() -> None:
    """Slices of one column of strings are joined without a copy."""
    whole = StringColumn.of(["ann", "bob", "cid"])
    again = StringColumn.joined([whole.slice(2, 3), whole.slice(0, 2)])
    assert (again.texts(), again.data is whole.data) == (["cid", "ann", "bob"], True)
    assert len(StringColumn.joined([])) == 0


TEAMS = st.lists(st.lists(st.integers(1, 3), min_size=2, max_size=4), min_size=1, max_size=6)
"""By round, the size of each team."""


def pending_of(sizes: list[list[int]], in_seats: int = 0) -> PendingRounds:
    """Rounds of teams of these sizes. So many first rounds have seats and scores."""
    records = []
    for r, teams in enumerate(sizes):
        standings = [
            {
                "team": [f"{r}.{t}.{i}" for i in range(size)],
                "shares": [0.5 + 0.01 * (10 * r + i) / 2 for i in range(size)],
                "rank": t + 1,
                **({"seat": f"{r}.{t}", "score": t} if r < in_seats else {}),
            }
            for t, size in enumerate(teams)
        ]
        records.append(Record(0, 10 * r, as_json(*standings, round_id=f"r{r}"), received_s=4e9))
    return estimation.pending_rounds(records, RoundDecoder(ANY_LADDER).decode(records)[0], 3)


def rows(rounds: RoundBatch) -> list[Any]:
    found = []
    entry = player = 0
    count = len(rounds.place)
    seat = rounds.seat if len(rounds.seat) else np.full(count, NO_SEAT)
    score = rounds.score if len(rounds.score) else np.full(count, np.nan)
    for r, head in enumerate(rounds.heads):
        entries = slice(entry, entry := entry + int(rounds.entries[r]))
        own = slice(player, player := player + int(rounds.sizes[r]))
        found.append([
            head.round_id, int(rounds.time[r]), rounds.place[entries].tolist(),
            rounds.members[entries].tolist(), rounds.share[own].tolist(),
            rounds.names.slice(own.start, own.stop).texts(), seat[entries].tolist(),
            str(score[entries]),
        ])  # fmt: skip
    return found


@given(TEAMS, st.integers(0, 6), st.data())
def test_every_column_follows_its_round(
    sizes: list[list[int]], in_seats: int, data: st.DataObject
) -> None:
    """Whatever rounds are taken, cut out or joined, in whatever order, with seats and without."""
    whole = pending_of(sizes, in_seats)
    rounds, all_rows = whole.rounds, rows(pending_of(sizes, in_seats).rounds)
    some = data.draw(st.lists(st.integers(0, len(sizes) - 1)))
    taken = rounds.take(np.array(some, np.int64))
    assert rows(taken) == [all_rows[i] for i in some]
    first = data.draw(st.integers(0, len(sizes)))
    last = data.draw(st.integers(first, len(sizes)))
    assert rows(rounds.slice(first, last)) == all_rows[first:last]
    assert rows(RoundBatch.concat([rounds, taken])) == all_rows + rows(taken)
    without = pending_of(sizes).rounds
    assert rows(RoundBatch.concat([rounds, without])) == all_rows + rows(without)
    assert rows(RoundBatch.concat([without, taken])) == rows(without) + rows(taken)
    assert [rows(each.batch) for each in rounds] == [[row] for row in all_rows]
    rising = np.array(sorted(set(some)), np.int64)
    part = whole.take(rising)
    assert rows(part.rounds) == [all_rows[i] for i in rising]
    assert part.offsets.tolist() == (10 * rising).tolist()
    assert part.fingerprints.tolist() == whole.players(rising).tolist()
    both = PendingRounds.concat([part, whole])
    assert both.offsets.tolist() == part.offsets.tolist() + whole.offsets.tolist()
    assert both.count == part.count + whole.count


def test_nothing_is_one_object_and_names_may_stay_away() -> None:
    """Columns without rounds are one object. In the laboratory, rounds have no names."""
    assert PendingRounds.concat([]) is NO_ROUNDS is PendingRounds.concat([NO_ROUNDS, NO_ROUNDS])
    pending = pending_of([[1, 2], [1, 1]])
    assert PendingRounds.concat([NO_ROUNDS, pending]) is pending
    assert pending.take(np.empty(0, np.int64)) is NO_ROUNDS
    assert pending.take(np.array([0, 1])) is pending
    rounds = msgspec.structs.replace(pending.rounds, names=StringColumn.of([]))
    assert len(rounds.take(np.array([1])).names) == len(rounds.slice(0, 1).names) == 0
    assert len(RoundBatch.concat([rounds, rounds]).names) == 0
