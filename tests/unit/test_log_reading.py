"""A log is read by other processes, and gives what one process reads. The beliefs after it:
`property/test_cores.py`."""

import itertools
import multiprocessing
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import Change, Ladder, Ladders
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Record
from stream_rater.operations.cutoff import Cutoff
from stream_rater.operations.rebuild_store import Rebuild
from stream_rater.rating.parameters import Elo, EloMMR
from stream_rater.replay import log_reading
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.replay.edited_log import (
    LoggedRounds,
    MissingVerdicts,
    RecordValidator,
    ValidRecords,
)
from stream_rater.replay.log_reading import LogReader, LogSource
from stream_rater.replay.read_ahead import MOST_AHEAD, prefetched
from stream_rater.rounds.seed_records import Seed
from stream_rater.rounds.validation import Invalid
from tests.builders.cases import cases
from tests.builders.lines import a_record, a_seed
from tests.builders.logs import FailingRecords, ListedRecords
from tests.builders.machines import CONFIG
from tests.rounds import as_json, day, ranked
from tests.waits import HANGS_S

PARTITIONS, WINDOW = 4, 50
OTHER = EloMMR(weight_limit=0.1, sigma_limit=60.0, initial_mu=1000.0)
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


def read(source: LogSource, cores: Cores) -> dict[int, list[Any]]:
    """By partition, all that was read, in a form that can be compared."""
    validator = RecordValidator(LADDERS, WINDOW, PARTITIONS)
    found: dict[int, list[Any]] = {p: [] for p in range(PARTITIONS)}
    with LogReader(source, ENDS).validated(validator, LADDERS, WINDOW, PARTITIONS, cores) as all_:
        for each in all_:
            for partition, what in content_of(each, validator):
                found[partition].append(what)
    return found


def content_of(valid: ValidRecords, validator: RecordValidator) -> Iterator[tuple[int, Any]]:
    for record, invalid in valid.rejected:
        yield record.partition, (record.offset, invalid.code, str(invalid))
    for each in valid.content:
        if isinstance(each, Seed):
            yield each.partition, (each.offset, each.names.texts(), each.rating, each.mu.tolist())
        elif isinstance(each, LoggedRounds):
            ratings = validator.round_decoder.ratings
            both = zip(each.partition.tolist(), each.offset.tolist(), each.rounds, strict=True)
            for partition, offset, one in both:
                rating = ratings[int(one.batch.config_index[0])]
                yield partition, (offset, one.ladder, one.players, one.place.tolist(), rating)


def test_other_processes_read_the_same() -> None:
    """Rounds, seeds and rejections, in the order of each partition, with the configurations."""
    due = read(ListedRecords(LOG, 30), ONE_CORE)
    assert sum(map(len, due.values())) == len(LOG)
    assert {len(what) for each in due.values() for what in each} == {3, 4, 5}, "of all kinds"
    assert {who: sorted(map(str, each)) for who, each in due.items()} == {
        who: sorted(map(str, each)) for who, each in read(ListedRecords(LOG, 30), Cores(3)).items()
    }


def test_shares() -> None:
    """Each partition with records is in one of them, and they are about as large."""
    assert log_reading._shares({0: 5, 1: 0, 2: 9, 3: 3}, 2) == [{2: 9}, {0: 5, 3: 3}]
    assert log_reading._shares({0: 5, 1: 0}, 4) == [{0: 5}]


def test_a_failure_of_a_process_is_raised_here() -> None:
    """As it was raised there. A process that is killed is named in one line, with the cure; nothing
    waits for it."""
    with pytest.raises(LogTrouble, match="nothing arrived"):
        read(FailingRecords(LOG, LogTrouble("nothing arrived")), Cores(2))
    with pytest.raises(Failed, match="a process that read the log has ended: run it again, with"):
        read(Killed(), Cores(2))


class Killed(NamedTuple):
    """A source that kills the process which reads it."""

    def batches(self, _: Mapping[int, int]) -> Iterator[Sequence[Record]]:
        """Yield nothing."""
        os.kill(os.getpid(), signal.SIGKILL)
        yield []


def test_a_replay_that_ends_early_ends_the_processes() -> None:
    """At the first correction, for example."""
    correction = Record(0, 0, b"{}", [(EVENT_TYPE, b"round-voided")])
    work = Rebuild(LADDERS, WINDOW, PARTITIONS, Cutoff({}, ENDS, 1), cores=Cores(2))
    with pytest.raises(MissingVerdicts):
        work.run(LogReader(ListedRecords([correction, *LOG]), ENDS))
    assert multiprocessing.active_children() == []


# --- stages ---------------------------------------------------------------------------------------


def test_items_come_as_they_were_made() -> None:
    """In order, all of them. A stage begins before anybody takes an item, and is not far ahead: the
    queue has a bound."""
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
