"""What Redis holds beside the beliefs: the layout, and what a rebuild leaves of a store."""

import pytest

from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.metadata import LayoutMismatch
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.pipeline.ports import UNFINISHED, Position, StoredShard
from tests import real
from tests.contract.test_store import BOB, RedisPerformer, application, apply, read


@pytest.mark.integration
def test_another_layout_is_refused(redis_settings: real.Settings) -> None:
    """A store remembers how it was laid out, and refuses another layout by name and way out. Notes
    of an older release are found, entry by entry, whatever the ladders' ids."""
    store = RedisStore(redis_settings)
    store.check_layout({"shards": "4", "buckets": "2"})
    store.check_layout({"shards": "4", "buckets": "2", "topic": "abc"})
    for other in ({"shards": "8"}, {"buckets": "3"}):
        with pytest.raises(LayoutMismatch, match=r"laid out with .*rebuild"):
            store.check_layout(other)
        store.layout.check_rebuildable(other)
    for check in (store.check_layout, store.layout.check_rebuildable):
        with pytest.raises(LayoutMismatch, match=r"topic = abc, .* abd: .*submit the rounds again"):
            check({"shards": "4", "topic": "abd"})
    layout = store.layout
    assert layout.old_notes() == {}
    with connect(redis_settings) as client:
        for field, entry in (("a:0", "0:x"), ("a:1", "7:y"), ("a%3Ab:0", "0:z")):
            client.hset("stream-rater:ladders", field, entry)
    assert layout.old_notes() == {"a": ["0:x", "7:y"], "a:b": ["0:z"]}


@pytest.mark.integration
def test_a_rebuild_that_was_given_up(redis_settings: real.Settings) -> None:
    """Between the start and the end of a rebuild nobody may use the store, which then holds only
    keys that are not ours."""
    performer = RedisPerformer(redis_settings)
    store, layout = performer.store, {"shards": "4"}
    with connect(redis_settings) as client:
        for foreign in ("{x}:position", "other", "{1}:beliefs"):
            client.set(foreign, "1")
    store.check_layout(layout)
    assert store.layout.is_empty()
    assert store.layout.begun_by(1) == 1
    assert apply(performer, 1, application(0, 1, {("l", "p"): b"x"}))
    assert not store.layout.is_empty()
    epoch = store.layout.begin_rebuild(2)
    assert store.count_beliefs() == 0
    assert read(performer, 1).position.applied == UNFINISHED
    assert apply(performer, 1, application(UNFINISHED, 5, {}, epoch=epoch))
    with pytest.raises(LayoutMismatch, match="rebuild --replace"):
        store.check_layout(layout)
    store.layout.end_rebuild({"shards": "8"}, 2)
    store.check_layout({"shards": "8"})
    assert store.layout.begun_by(3) == 2
    with connect(redis_settings) as client:
        assert client.exists("{x}:position", "other", "{1}:beliefs") == 3


@pytest.mark.integration
def test_a_call_from_before_a_rebuild_writes_nothing(redis_settings: real.Settings) -> None:
    """A rebuild may end at the `applied` where a worker was stopped within a call. What the worker
    has read before is of another store."""
    performer = RedisPerformer(redis_settings)
    assert apply(performer, 0, application(0, 5, {BOB: b"before"}))
    stopped = application(5, 6, {BOB: b"stopped"})
    epoch = performer.store.layout.begin_rebuild(1)
    assert len(epoch) > 0 and epoch != performer.store.layout.begin_rebuild(1)
    epoch = read(performer, 0).position.epoch
    assert apply(performer, 0, application(UNFINISHED, 5, {BOB: b"rebuilt"}, epoch=epoch))
    assert not apply(performer, 0, stopped)
    position = Position(5, UNFINISHED, b"", epoch)
    assert read(performer, 0, BOB) == StoredShard(position, [b"rebuilt"])
    assert apply(performer, 0, application(5, 6, {BOB: b"next"}, epoch=epoch))
