"""What `inspect` reads back from the end of a partition of rating-changed."""

import itertools

import pytest

from stream_rater.adapters.kafka import reader
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from tests import real
from tests.integration.topics import Bytes, produce

KEY = b"eu:ann"
NOW, LONG_S = 0.0, 600.0


@pytest.fixture
def place(settings: real.SettingsFactory, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """100 events, of which a player has every seventh; offset 98 is the last. Windows are small."""
    monkeypatch.setattr(reader, "LOOK_BACK", 4)
    at = settings(shards=2)
    admin = Admin(at)
    admin.create_topics()
    keys = itertools.cycle([KEY, *[b"eu:bob"] * 6])
    events = [Bytes(b"%d" % n, next(keys), partition=1) for n in range(100)]
    produce(at, [*events, Bytes(b"elsewhere", KEY, partition=0)], admin.topics.changed)
    return at


def read_back(at: Settings, count: int, within_s: float = LONG_S) -> tuple[list[bytes | None], int]:
    """The values, and the offset from which on they are all."""
    topic = Admin(at).topics.changed
    found, begin = reader.read_back(at, topic, 1, KEY, count=count, within_s=within_s)
    return [each.value for each in found], begin


def test_the_last_rounds_are_read_back(place: Settings) -> None:
    """As many as asked for, in order, in windows of 4, 8, 16 from the end; or all that there are;
    or none of a window for which there was no time."""
    assert read_back(place, 3) == ([b"84", b"91", b"98"], 72)
    assert read_back(place, 1) == ([b"98"], 96)
    every = [b"%d" % n for n in range(0, 100, 7)]
    assert read_back(place, 100) == (every, 0)
    assert read_back(place, 3, NOW) == ([], 100)
