"""Places in memory, with rated or unrated logs; and commands that run on them."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from stream_rater import places
from stream_rater.adapters.memory import Log, Store
from stream_rater.columns.sharding import partition_of
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import KINDS, from_message
from stream_rater.places.port import Place
from stream_rater.runtime.engine import EmbeddedEngine
from tests.builders.lines import Line, a_record
from tests.builders.memory_place import MemoryPlace


def an_empty_place(
    partitions: int = 1, shards: int = 3, settings: Settings | None = None
) -> MemoryPlace:
    """A place with nothing in it."""
    return MemoryPlace(Log(partitions, shards), Store(), settings)


def put(place: MemoryPlace, lines: Iterable[Line]) -> None:
    """Append rounds, seeds and corrections, each to the partition of its ladder."""
    for line in lines:
        partition = partition_of(line["ladder"], place.partitions)
        record = a_record(0, line)
        key = line["ladder"].encode()
        place.log.submit(partition, record.value, record.headers, record.received_s, key)


def a_rated_place(
    lines: Iterable[Line], ladders: Ladders = ANY_LADDER, settings: Settings | None = None
) -> MemoryPlace:
    """A place with one partition, whose log is rated."""
    engine = EmbeddedEngine(ladders)
    place = MemoryPlace(engine.log, engine.store, settings)
    put(place, lines)
    engine.settle()
    return place


def use(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    """Let commands use this place, unless their settings name a data file."""
    real = places.place_of
    monkeypatch.setattr(
        places, "place_of", lambda at, **options: real(at, **options) if at.data else place
    )


class Sent:
    """Records what commands send, each at partition 3; acknowledges no correction if `broken`."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.sent: list[tuple[str, str, dict[str, Any]]] = []
        """The ladder, the kind (empty for a round) and the event of each record."""
        self.flushed_after: list[int] = []
        self.failures: list[str] = []
        self.corrections: list[tuple[int, int]] = []
        self.broken = False

    def submit(self, ladder: str, round_id: str, completed_at: str, value: bytes) -> None:
        self.sent.append((ladder, "", json.loads(value)))

    def correct(self, ladder: str, kind: str, value: bytes, subject: str) -> None:
        assert kind not in KINDS or from_message(KINDS[kind], value).ladder == ladder
        if self.broken:
            self.failures.append(f"{kind} {subject}: away")
        else:
            self.corrections.append((3, 17 + len(self.sent)))
        self.sent.append((ladder, kind, json.loads(value)))

    def flush(self) -> None:
        self.flushed_after.append(len(self.sent))

    @property
    def kinds(self) -> list[str]:
        return [kind for _, kind, _ in self.sent]

    def forget(self) -> None:
        self.sent.clear()
        self.corrections.clear()


def taking(monkeypatch: pytest.MonkeyPatch, partitions: int = 4, end: int = 7) -> Sent:
    """Let commands send to a `Sent`, for a topic of so many partitions that end at this offset."""
    taken, place = Sent(end), an_empty_place(partitions)
    monkeypatch.setattr(place, "ends", lambda: [taken.end] * partitions)
    monkeypatch.setattr(place, "submitter", lambda **_: taken)
    use(monkeypatch, place)
    return taken
