"""Rounds, seeds and corrections as JSON objects and as records, and sources of records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.record import Record
from tests.rounds import day, event, ranked

Line = dict[str, Any]

LADDER = "l"


class Bytes(NamedTuple):
    """A record of `round-completed` to be sent."""

    value: bytes | None
    key: bytes | None = b"ranked-eu"
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int = -1  # -1 means the partition of the key.


def a_round(number: int, *players: str, ladder: str = LADDER, **fields: Any) -> Line:
    """Round `r{number}`, on that day, of these players (by default ann and bob) in rank order."""
    standings = ranked(range(1, len(players) + 1), players)
    given = {"round_id": f"r{number}", "ladder": ladder, "completed_at": day(number)}
    return event(*standings, **given | fields)


def a_seed(
    number: int, *players: str, ladder: str = LADDER, mu: float = 1700.0, sigma: float = 100.0,
    rounds: int | None = None, **fields: Any,
) -> Line:  # fmt: skip
    """A seed `s{number}` that gives these players the same belief."""
    belief = {"mu": mu, "sigma": sigma} | ({} if rounds is None else {"rounds": rounds})
    return {
        "event_type": "players-seeded", "ladder": ladder, "round_id": f"s{number}",
        "at": day(number), "players": [{"player": each, **belief} for each in players], **fields,
    }  # fmt: skip


def a_correction(kind: str, *, ladder: str = LADDER, **about: Any) -> Line:
    return {"event_type": kind, "ladder": ladder, **about}


def a_record(offset: int, line: Line, partition: int = 0) -> Record:
    """A line as a record of `round-completed`; a correction has its kind in a header."""
    kind = line.get("event_type")
    body = msgspec.json.encode({name: line[name] for name in line if name != "event_type"})
    headers = [(EVENT_TYPE, kind.encode())] if kind else []
    return Record(partition, offset, body, headers, received_s=4e9)


def a_message(line: Line) -> Bytes:
    """A line as a message to be sent to Kafka, with its ladder as the key."""
    record = a_record(0, line)
    return Bytes(record.value, line["ladder"].encode(), list(record.headers))


@dataclass(frozen=True)
class ListedRecords:
    """A `log_reading.LogSource` that reads these records in batches of `at_once`."""

    records: Sequence[Record]
    at_once: int = 1000

    def __call__(self, ends: Mapping[int, int]) -> Iterator[Sequence[Record]]:
        wanted = [each for each in self.records if each.offset < ends.get(each.partition, 0)]
        for first in range(0, len(wanted), self.at_once):
            yield wanted[first : first + self.at_once]


@dataclass(frozen=True)
class FailingRecords:
    """A `log_reading.LogSource` that yields these records, and then raises `error`."""

    records: Sequence[Record]
    error: Exception

    def __call__(self, ends: Mapping[int, int]) -> Iterator[Sequence[Record]]:
        yield from ListedRecords(self.records)(ends)
        raise self.error
