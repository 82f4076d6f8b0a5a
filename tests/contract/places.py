"""One rated log at each kind of place: in memory, in a data file, and on Kafka and Redis."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec

from local.servers import Addresses
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.log import NewRound, SqliteLog
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Player, Record
from stream_rater.operations.migrate import Digests, Migration, digests_of
from stream_rater.places import opened, place_of
from stream_rater.places.file import FilePlace
from stream_rater.places.port import Place
from tests import real
from tests.builders.lines import LADDER, Line, a_correction, a_record, a_round, a_seed
from tests.builders.memory_place import MemoryPlace
from tests.builders.memory_places import a_rated_place, an_empty_place
from tests.builders.rated_data_files import rate
from tests.integration.topics import delete_records

OTHER = "m"
LOG: list[Line] = [
    a_seed(0, "ann", "zed"), *(a_round(n, "ann", "bob", "cy") for n in range(1, 7)),
    a_round(3, "bob", "ann"), a_round(7, "bob", "dee", ladder=OTHER),
    a_correction("round-voided", round_id="r2"), a_correction("round-voided", round_id="no"),
    a_round(8, "dee", "ann"), a_correction("season-started", season=1, keep=0.5, sigma=100.0),
    a_round(9, "cy", "bob"),
]  # fmt: skip
"""One partition of two ladders: a seed, a duplicate, corrections (one is rejected), a season."""
REJECTED = {7, 10}  # The offsets of the records that are rejected.
CORRECTED = frozenset({LADDER})
SHARDS = 4

Opened = Callable[[], Place]


def records() -> list[Record]:
    return [
        msgspec.structs.replace(a_record(offset, line), key=line["ladder"].encode())
        for offset, line in enumerate(LOG)
    ]


def a_memory() -> MemoryPlace:
    """The log in memory, rated by the workers' machines."""
    return a_rated_place(LOG)


def make_file(path: Path, *, rated: bool = True) -> Settings:
    """Make a data file with the rated log, or an empty one. Returns its settings."""
    with closing(Database.open(path, partitions=1, shards=SHARDS)) as database:
        if rated:
            SqliteLog(database).submit_all(
                [NewRound(0, e.value, e.headers, e.received_s, e.key) for e in records()]
            )
    if rated:
        rate(path, partitions=1)
    return Settings(data=str(path))


def make_kafka(at: Settings) -> Settings:
    """Move the log from memory to Kafka and Redis. Returns the settings; no worker runs there."""
    at = msgspec.structs.replace(at, partitions=1, shards=SHARDS)
    with opened(at, writes=True) as target:
        moved(a_memory(), target)
    return at


def moved(source: Place, target: Place) -> Migration:
    """Move a log as the command does, until the new place can be used."""
    work = Migration(source, target, ANY_LADDER, None, "nothing was moved")
    work.check()
    target.check_new("STREAM_RATER_TOPIC_PREFIX", source)
    work.copy(work.search())
    work.rebuild()
    target.end_copy()
    source.mark_moved(target.name)
    target.end_rebuild()
    return work


class PlaceRig:
    def __init__(self, kind: str, folder: Path, addresses: Callable[[], Addresses]) -> None:
        self.kind, self._folder, self._addresses = kind, folder, addresses
        self._stack, self._made = ExitStack(), 0

    def __enter__(self) -> "PlaceRig":
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def rated(self) -> Place:
        if self.kind == "memory":
            return a_memory()
        if self.kind == "file":
            return self.opened(make_file(self._path()))
        return self.opened(make_kafka(self._settings()))

    def empty(self) -> Place:
        if self.kind == "memory":
            return an_empty_place(shards=SHARDS)
        if self.kind == "file":
            return self.opened(make_file(self._path(), rated=False))
        return self.opened(self._settings(), create=True)

    def new(self) -> Place:
        """A place that a log can be moved to."""
        return an_empty_place(shards=3) if self.kind == "memory" else self.opened(self._settings())

    def opened(self, at: Settings, *, create: bool = False) -> Place:
        place = self._stack.enter_context(closing(place_of(at, writes=True)))
        if create:
            place.admin.create_topics()  # type: ignore[attr-defined]
            place.store.prepare()  # type: ignore[attr-defined]
        return place

    def _path(self) -> Path:
        self._made += 1
        return self._folder / f"{self._made}.db"

    def _settings(self) -> Settings:
        at = self._stack.enter_context(real.a_place(self._addresses()))
        return msgspec.structs.replace(at, partitions=1, shards=SHARDS)


def digests(place: Place) -> Digests:
    """Digests of all beliefs, on a ladder with corrections without what these set in their way."""
    return digests_of(place.beliefs(), CORRECTED)


def newest(place: Place) -> dict[bytes, bytes]:
    """The value of each player's last event, by the event's key."""
    return {each.key or b"": each.value for each in place.events() if each.value}


def check_copied(old: Place, new: Place) -> int:
    """Check that each record is at its offset with key and headers, or is empty there, and that
    last events and ladder events are there once. Returns how many records are only empty now."""
    before = {(each.partition, each.offset): each for each in old.all_rounds()}
    after = {(each.partition, each.offset): each for each in new.all_rounds()}
    assert list(new.ends()) == list(old.ends()) and len(after) == sum(old.ends())
    emptied = 0
    for at, each in after.items():
        given = before.pop(at, None)
        if each.value is None:
            emptied += given is not None and given.value is not None
        else:
            assert given is not None and (each.key, each.value) == (given.key, given.value)
            assert list(each.headers) == list(given.headers)
    assert not before
    assert newest(new) == newest(old) and len([*new.events()]) == len(newest(new))
    notes = [*old.ladder_events()]
    assert [*new.ladder_events()][: len(notes)] == notes
    return emptied


@contextmanager
def unchanged(place: Place) -> Iterator[None]:
    """Check that a block changes no record, belief, event or offset of a place."""
    before = state(place)
    yield
    assert state(place) == before


def state(place: Place) -> object:
    """All that `unchanged` compares."""
    return (
        [*place.all_rounds()], digests(place), newest(place), [*place.ladder_events()],
        place.progress(), [*place.standings()],
    )  # fmt: skip


def is_file(place: Place) -> bool:
    return isinstance(place, FilePlace)


ANN: Player = (LADDER, "ann")


def write_standings(place: Place, standings: Sequence[Record]) -> None:
    """Write records of past seasons, as `season-standings` or `move` does."""
    if not isinstance(place, FilePlace):
        place.write_standings(standings)
        return
    with place.season_writer(LADDER, 1) as writer:
        writer.begin()
        for each in standings:
            writer.write([each])


def delete_rounds(place: Place, before: int) -> None:
    if isinstance(place, MemoryPlace):
        place.log.rounds[0].start = before
    elif isinstance(place, FilePlace):
        with place.database.turn():
            place._log.rounds.cut(place.database.connection, 0, before)
    else:
        delete_records(place.settings, Topics.of(place.settings).rounds, {0: before})
