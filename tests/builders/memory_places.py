"""Places in memory for tests: a log put there, rated or not, and commands that run on it."""

from collections.abc import Iterable

import pytest

from stream_rater import places
from stream_rater.adapters.memory import Log, Store
from stream_rater.columns.sharding import partition_of
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.config.settings import Settings
from stream_rater.places.memory import MemoryPlace
from stream_rater.places.port import Place
from stream_rater.runtime.engine import EmbeddedEngine
from tests.builders.lines import Line, a_record


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
    """Let commands have this place, unless their settings name a data file."""
    real = places.place_of
    monkeypatch.setattr(
        places, "place_of", lambda at, **options: real(at, **options) if at.data else place
    )
