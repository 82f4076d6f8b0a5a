"""Compares a data file with the acknowledged rounds and with a sequential replay of its own log."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from sqlite3 import Connection

import msgspec

from stream_rater.adapters.sqlite.database import connect_reader
from stream_rater.adapters.sqlite.events import read_events
from stream_rater.adapters.sqlite.log import ends_of as all_ends
from stream_rater.adapters.sqlite.log import read_records, read_rejections
from stream_rater.adapters.sqlite.reading import data_file, rounds_in
from stream_rater.config.ladders import Ladders
from stream_rater.contract.events import ESTIMATORS, RatingChanged, rating_changed_from_json
from stream_rater.contract.record import Record, RecordPlace
from stream_rater.operations.compare_store import compare
from stream_rater.replay.log_reading import LogReader
from tests.chaos.season import Who, tally

Acknowledged = Mapping[tuple[str, str], RecordPlace]
"""By ladder and round id, the place that the door answered."""

EVERY = 1 << 40  # An offset that no log reaches.


class _Round(msgspec.Struct):
    ladder: str
    round_id: str
    standings: list[dict[str, object]]


_round = msgspec.json.Decoder(_Round).decode


@dataclass
class Found:
    """What is wrong with a data file."""

    updates: int = 0  # The number of changes that the accepted rounds must lead to.
    lost: int = 0  # Acknowledged rounds that are not accepted, and changes without an event.
    doubled: int = 0  # Rounds that were accepted twice, and events published twice.
    mistakes: list[str] = field(default_factory=list)  # What else is wrong, one line each.


def audit(
    path: Path, ladders: Ladders, window: int, acknowledged: Acknowledged,
    changes: Iterable[RatingChanged] | None = None,
) -> Found:  # fmt: skip
    """Compare a data file with what clients know and with a replay. The log has no corrections, all
    its rounds are rated, and no process writes it. `changes`: all events, if some are pruned."""
    with closing(connect_reader(path)) as reader:
        found = Found()
        rejected = Counter(each.code for _, each in read_rejections(reader))
        due = _compare_rounds(reader, acknowledged, found)
        if changes is None:
            changes = (rating_changed_from_json(each.value) for _, each in read_events(reader, 0))
        tallied = tally(due, changes)
        found.updates = sum(map(len, due.values()))
        found.lost += tallied.lost
        found.doubled += tallied.doubled
        found.mistakes += tallied.mistakes
        found.mistakes += _differing(path, ladders, window, rejected)
        return found


def unfinished(reader: Connection) -> int:
    """The number of records of `round-completed` that the estimators have not committed."""
    committed = committed_of(reader)
    return sum(end - committed.get(partition, 0) for partition, end in ends_of(reader).items())


def ends_of(reader: Connection) -> dict[int, int]:
    """The end of each partition of `round-completed` (of a log from which nothing was deleted)."""
    return dict(enumerate(all_ends(reader, "rounds", _fact(reader, "partitions"))))


def committed_of(reader: Connection, group: str = ESTIMATORS) -> dict[int, int]:
    sql = "SELECT partition, next FROM committed WHERE consumers = ?"
    return dict(reader.execute(sql, (group,)).fetchall())


def records_of(reader: Connection) -> Iterator[Record]:
    """All records of `round-completed`, partition by partition."""
    for partition in range(_fact(reader, "partitions")):
        yield from read_records(reader, "rounds", partition, 0, EVERY)


def _fact(reader: Connection, name: str) -> int:
    return int(reader.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0])


def _compare_rounds(
    reader: Connection, acknowledged: Acknowledged, found: Found
) -> dict[Who, dict[str, int]]:
    """Compare accepted records with acknowledged ones. Returns the changes due (`tally.Due`)."""
    rejected = {
        RecordPlace(each.record.partition, each.record.offset)
        for _, each in read_rejections(reader)
    }
    due: dict[Who, dict[str, int]] = {}
    accepted: Counter[tuple[str, str]] = Counter()
    named: dict[RecordPlace, tuple[str, str]] = {}
    for record in records_of(reader):
        round_, place = _round(record.value or b""), RecordPlace(record.partition, record.offset)
        name = named[place] = round_.ladder, round_.round_id
        if place in rejected:
            continue
        accepted[name] += 1
        for entry in round_.standings:
            mine = due.setdefault((round_.ladder, str(entry["player"])), {})
            mine.setdefault(round_.round_id, len(mine) + 1)
    for name, place in acknowledged.items():
        found.lost += not accepted[name]
        if named.get(place) != name:
            found.mistakes.append(f"{name} was acknowledged at {place}, where it is not")
    found.doubled += sum(count - 1 for count in accepted.values())
    return due


def _differing(path: Path, ladders: Ladders, window: int, rejected: Counter[str]) -> Iterator[str]:
    """Lines for what differs from a sequential replay of the log."""
    with data_file(str(path)) as file, file.snapshot():
        log = LogReader(partial(rounds_in, path), dict(enumerate(file.ends())))
        verdict = compare(log, ladders, window, file.partitions, file.beliefs)
    yield from (f"no belief: {each}" for each in verdict.missing)
    yield from (f"another belief than the replay's: {each}" for each in verdict.differing)
    if verdict.rejected != rejected:
        yield f"rejected: {dict(rejected)}, not {dict(verdict.rejected)}"
    yield from (f"a belief that the log does not explain: {each}" for each in verdict.surplus)
