"""The sequential replay: a pool after its rounds, one by one, many at once, or from processes."""

import itertools
import multiprocessing
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import Change, Ladder, Ladders
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Record
from stream_rater.operations.cutoff import Cutoff
from stream_rater.operations.rebuild_store import Rebuild
from stream_rater.rating import record
from stream_rater.rating.parameters import Elo, EloMMR
from stream_rater.replay import edited_log, log_reading
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.replay.files import MOST_AHEAD, prefetched
from stream_rater.replay.log_reading import LogReader, LogSource
from stream_rater.replay.pool import Pool
from stream_rater.replay.rating_changes import changes_of
from stream_rater.replay.sequential import Replay
from stream_rater.rounds.correction_records import Seed
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.builders.cases import cases
from tests.builders.lines import FailingRecords, ListedRecords, a_record, a_seed
from tests.builders.machines import CONFIG
from tests.rounds import as_json, day, ranked, read
from tests.unit.test_waves import OTHER, a_round
from tests.waits import HANGS_S


def pool(**fields: Any) -> Pool:
    return Pool(msgspec.structs.replace(CONFIG, **fields))


def rate(into: Pool, places: list[int], names: list[str], offset: int, **fields: Any) -> Any:
    return into.rate(read(into.rating, *ranked(places, names), **fields), offset)


def duels(into: Pool, offsets: range) -> None:
    for offset in offsets:
        rate(into, [1 + offset % 2, 2 - offset % 2], ["ann", "bob"], offset)


def test_more_players_than_expected() -> None:
    """A crowd that makes the pool grow leaves the beliefs of those there before. A full history
    cannot be recorded."""
    small, large = pool(history="full"), pool(history="full")
    for into, crowd in ((small, 2), (large, 3000)):
        duels(into, range(5))
        rate(into, [1] * crowd, [f"p{i}" for i in range(crowd)], 5)
        duels(into, range(6, 9))
    assert len(large) == 3002
    assert dict(small)["ann"].tobytes() == dict(large)["ann"].tobytes()
    with pytest.raises(record.Unrecordable, match="set history to a number"):
        small.belief_bytes("ann")


def test_parameters_change_on_the_way() -> None:
    """Beliefs go on, newcomers begin by the new ones, and records have more factors or fewer."""
    longer = msgspec.structs.replace(CONFIG, history=9, initial_mu=1200.0, rho=0.1)
    shorter = msgspec.structs.replace(CONFIG, history=2)
    rated = pool()
    duels(rated, range(8))
    before = rated.belief_bytes("ann")
    rated.follow(longer)
    assert rated.belief_bytes("ann") == before
    rate(rated, [1, 2], ["cy", "dee"], 8)
    assert float(dict(rated)["cy"]["previous_mu"]) == 1200.0
    duels(rated, range(9, 16))
    assert dict(rated)["ann"]["count"] == 9
    rated.follow(shorter)
    rate(rated, [1, 2], ["ann", "bob"], 16)
    assert dict(rated)["ann"]["count"] == 2
    rate(rated, [1, 2], ["eve", "fay"], 17)
    assert float(dict(rated)["eve"]["previous_mu"]) == 1500.0


# --- many rounds rated in one call: the same bits as one after the other --------------------------

COUNT = 100
FULL = EloMMR(weight_limit=0.2, sigma_limit=80.0, history="full", drift_per_day=3.0)
DRIFTING = EloMMR(
    weight_limit=0.1, sigma_limit=60.0, rho="inf", ties="split", newcomer_weights=(0.5, 0.7),
    drift_per_day=9.0, skip_all_tied=True, history=3,
)  # fmt: skip
FIXED = Elo(learning_rate=32.0, scale=174.0, fixed=("p1", "p7"))
CHANGES = (Change(from_offset=60, rating=OTHER), Change(from_offset=61, rating=FULL))


def seen(ladder: Ladder, at_once: int) -> Iterator[object]:
    """All that comes of some rounds, so many fed at once: changes, then every belief."""
    rounds = [a_round(offset, random.Random(offset)) for offset in range(COUNT)]
    rounds[30] = Record(0, 30, b"junk", received_s=4e9)
    replay = Replay(Ladders(ladders=dict.fromkeys("abcd", ladder)), 10)
    for first in range(0, COUNT, at_once):
        yield from changes_of(replay.feed(rounds[first : first + at_once]))
    for name, pool in sorted(replay.pools.items()):
        for player, header in pool:
            yield name, player, header.tobytes()
            if pool.rating.kept:
                yield pool.belief_bytes(player)


@cases(
    "ladder",
    [
        *(Ladder(rating=each) for each in (*SYSTEMS, CONFIG, FULL, DRIFTING, FIXED)),
        Ladder(rating=CONFIG, changes=CHANGES),
    ],
    lambda ladder: ladder.rating.__struct_config__.tag,
)
def test_at_once_as_one_by_one(ladder: Ladder) -> None:
    """By every system, for rounds of all kinds, and with parameters that change."""
    one_by_one = list(seen(ladder, 1))
    assert len(one_by_one) > 3 * COUNT
    for at_once in (7, COUNT):
        assert list(seen(ladder, at_once)) == one_by_one


# --- a log that other processes read --------------------------------------------------------------

PARTITIONS, WINDOW = 4, 50
LADDERS = Ladders(
    ladders={
        "a": Ladder(rating=CONFIG, changes=(Change(from_offset=20, rating=OTHER),)),
        "*": Ladder(rating=Elo(learning_rate=32.0, scale=174.0)),
    }
)


def a_random_record(rng: random.Random, partition: int, offset: int, ladder: str) -> Record:
    """Mostly a round; some are malformed or come twice; some are seeds."""
    if rng.random() < 0.1:
        value = as_json(ladder=ladder, round_id=f"r{offset - 1}")[: rng.randint(1, 300)]
        return Record(partition, offset, value, received_s=4e9)
    if rng.random() < 0.1:
        return a_record(offset, a_seed(offset, f"s{offset}", ladder=ladder, at=day(1)), partition)
    names = rng.sample([f"p{i}" for i in range(30)], rng.randint(2, 8))
    value = as_json(
        *ranked([rng.randint(0, 4) for _ in names], names), ladder=ladder,
        round_id=f"r{rng.choice([offset, offset, offset, offset - 3])}", completed_at=day(offset),
    )  # fmt: skip
    return Record(partition, offset, value, received_s=4e9)


def a_log() -> list[Record]:
    """Of five ladders, in all partitions, which take turns."""
    rng, ends = random.Random(5), Counter[int]()
    found = []
    for _ in range(400):
        ladder = rng.choice("abcde")
        partition = partition_of(ladder, PARTITIONS)
        found.append(a_random_record(rng, partition, ends[partition], ladder))
        ends[partition] += 1
    return found


LOG = a_log()
ENDS = {p: sum(each.partition == p for each in LOG) for p in range(PARTITIONS)}


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "LONG_LOG", 1)


def read_log(source: LogSource, cores: Cores) -> dict[int, list[Any]]:
    """By partition, all that was read, in a form that can be compared."""
    validator = edited_log.RecordValidator(LADDERS, WINDOW, PARTITIONS)
    found: dict[int, list[Any]] = {p: [] for p in range(PARTITIONS)}
    with LogReader(source, ENDS).validated(validator, cores) as all_:
        for each in all_:
            for partition, what in content_of(each, validator):
                found[partition].append(what)
    return found


def content_of(
    valid: edited_log.ValidRecords, validator: edited_log.RecordValidator
) -> Iterator[tuple[int, Any]]:
    for bad, invalid in valid.rejected:
        yield bad.partition, (bad.offset, invalid.code, str(invalid))
    for each in valid.content:
        if isinstance(each, Seed):
            yield each.partition, (each.offset, each.names.texts(), each.rating, each.mu.tolist())
        elif isinstance(each, edited_log.LoggedRounds):
            ratings = validator.round_decoder.ratings
            both = zip(each.partition.tolist(), each.offset.tolist(), each.rounds, strict=True)
            for partition, offset, one in both:
                rating = ratings[int(one.batch.config_index[0])]
                yield partition, (offset, one.ladder, one.players, one.place.tolist(), rating)


def test_other_processes_read_the_same() -> None:
    """They read in the order of each partition, in shares that are about as large."""
    assert log_reading._shares({0: 5, 1: 0, 2: 9, 3: 3}, 2) == [{2: 9}, {0: 5, 3: 3}]
    assert log_reading._shares({0: 5, 1: 0}, 4) == [{0: 5}]
    due = read_log(ListedRecords(LOG, 30), ONE_CORE)
    assert sum(map(len, due.values())) == len(LOG)
    assert {len(what) for each in due.values() for what in each} == {3, 4, 5}, "of all kinds"
    found = read_log(ListedRecords(LOG, 30), Cores(3))
    assert found.keys() == due.keys()
    assert all(sorted(map(str, found[who])) == sorted(map(str, due[who])) for who in due)


def test_a_failure_of_a_process_is_raised_here() -> None:
    """One that is killed is named in one line, with the cure; nothing waits for it."""
    with pytest.raises(LogTrouble, match="nothing arrived"):
        read_log(FailingRecords(LOG, LogTrouble("nothing arrived")), Cores(2))
    with pytest.raises(Failed, match="a process that read the log has ended: run it again, with"):
        read_log(Killed(), Cores(2))


class Killed:
    """A source that kills the process which reads it."""

    def __call__(self, _: Mapping[int, int]) -> Iterator[Sequence[Record]]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield []


def test_a_replay_that_ends_early_ends_the_processes() -> None:
    """At the first correction, for example."""
    correction = Record(0, 0, b"{}", [(EVENT_TYPE, b"round-voided")])
    work = Rebuild(LADDERS, WINDOW, PARTITIONS, Cutoff({}, ENDS, 1), cores=Cores(2))
    with pytest.raises(edited_log.MissingVerdicts):
        work.run(LogReader(ListedRecords([correction, *LOG]), ENDS))
    assert multiprocessing.active_children() == []


def test_items_come_as_they_were_made() -> None:
    """A stage begins before anybody takes an item. Its queue has a bound."""
    assert list(prefetched(range(10 * MOST_AHEAD))) == list(range(10 * MOST_AHEAD))
    began = threading.Event()

    def items() -> Iterator[int]:
        began.set()
        yield 1

    stage = prefetched(items())
    assert began.wait(HANGS_S) and list(stage) == [1]
    made = itertools.count()
    ahead = prefetched(iter(made.__next__, None))
    assert next(ahead) == 0
    ahead.close()  # type: ignore[attr-defined]
    assert next(made) <= MOST_AHEAD + 3


@cases("error", [OSError("unreadable"), Invalid("bad-id", "unreadable")])
def test_a_failure_is_raised_where_the_items_are_used(error: Exception) -> None:
    """After those made before it, with its message."""

    def failing() -> Iterator[int]:
        yield 1
        raise error

    items = prefetched(failing())
    assert next(items) == 1
    with pytest.raises(type(error), match=r"^unreadable$"):
        next(items)
