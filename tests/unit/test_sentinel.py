"""Addresses of sentinels, and which of their answers counts."""

from collections.abc import Mapping
from typing import Any

import pytest
import redis
from redis.sentinel import MasterNotFoundError

from stream_rater.adapters.redis import sentinel
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.connection import async_client
from stream_rater.adapters.redis.sentinel import MasterFinder, parsed
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings

ADDRESS = "redis+sentinel://a:1,b:2,c:3/ratings"
OLD, NEW = ("old", 6379), ("new", 6379)


def state(place: tuple[str, int], epoch: int, **more: Any) -> dict[str, Any]:
    """What a sentinel says of a master."""
    up = {"is_master": True, "is_sdown": False, "is_odown": False, "num-other-sentinels": 2}
    return {"ip": place[0], "port": place[1], "config-epoch": epoch, **up, **more}


class Scene:
    """A finder whose sentinels answer what `says` has, or raise it; and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.says: dict[str, Any] = {}
        self.asked: list[str] = []
        self.now_s = 0.0
        self.finder = MasterFinder(
            Settings(redis=ADDRESS, **settings), parsed(ADDRESS), {}, clock=lambda: self.now_s
        )
        for each in self.finder.sentinels:
            monkeypatch.setattr(each, "sentinel_masters", lambda each=each: self._answer(each))

    def _answer(self, asked: Any) -> Mapping[str, Any]:
        host = asked.connection_pool.connection_kwargs["host"]
        self.asked.append(host)
        found = self.says[host]
        if isinstance(found, Exception):
            raise found
        return {"ratings": found} if found else {"others": {}}


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """All sentinels name the same master."""
    found = Scene(monkeypatch)
    found.says = dict.fromkeys("abc", state(OLD, 0))
    return found


def test_the_newest_failover_counts(scene: Scene) -> None:
    """A sentinel that is cut off with the old master names it, whoever is asked first."""
    for cut_off in "abc":
        scene.says = dict.fromkeys("abc", state(NEW, 4)) | {cut_off: state(OLD, 3)}
        assert scene.finder.find() == NEW


def test_a_newer_master_that_is_down_gives_way_to_no_older_one(scene: Scene) -> None:
    """While a failover is in progress, no master is named."""
    scene.says = {"a": state(OLD, 3), "b": state(NEW, 4, is_sdown=True), "c": state(OLD, 3)}
    with pytest.raises(MasterNotFoundError, match="'ratings' that is up"):
        scene.finder.find()


def test_one_sentinel_is_enough(scene: Scene) -> None:
    """The others may be gone."""
    lost = redis.ConnectionError("refused")
    scene.says = {"a": lost, "b": redis.TimeoutError("silent"), "c": state(OLD, 0)}
    assert scene.finder.find() == OLD


def test_a_name_that_no_sentinel_knows(scene: Scene) -> None:
    """The error has the names that they know."""
    scene.says = dict.fromkeys("abc")
    with pytest.raises(MasterNotFoundError, match=r"a:1 knows no such name \(it knows: others\)"):
        scene.finder.find()


def test_sentinels_that_refuse_the_login(scene: Scene) -> None:
    """The error has the settings."""
    scene.says = dict.fromkeys("abc", redis.AuthenticationError("WRONGPASS"))
    with pytest.raises(redis.AuthenticationError, match="STREAM_RATER_REDIS_SENTINEL_PASSWORD"):
        scene.finder.find()


def test_they_are_asked_at_intervals(scene: Scene) -> None:
    """One that did not answer is left out for longer, since it may cost a second each time."""
    assert not scene.finder.names_another(NEW)
    assert scene.asked == []
    scene.now_s += sentinel.LOOK_S
    scene.says["b"] = redis.TimeoutError("silent")
    assert scene.finder.names_another(NEW)
    assert not scene.finder.names_another(NEW)
    assert scene.asked == [*"abc"]
    scene.now_s += sentinel.LOOK_S
    assert not scene.finder.names_another(OLD)
    assert scene.asked == [*"abcac"]
    scene.now_s += sentinel.SILENT_S
    assert not scene.finder.names_another(OLD)
    assert scene.asked == [*"abcacabc"]


def test_nobody_is_left_while_no_master_is_named(scene: Scene) -> None:
    """A connection that works is kept."""
    scene.now_s += sentinel.LOOK_S
    scene.says = dict.fromkeys("abc", redis.ConnectionError("refused"))
    assert not scene.finder.names_another(OLD)


def test_the_login_of_sentinels() -> None:
    """It is that of Redis unless they have one of their own."""
    ann = {"redis_username": "ann", "redis_password": "r"}
    cases: list[tuple[dict[str, Any], tuple[str | None, str | None]]] = [
        ({"redis_password": "r"}, ("default", "r")),
        (ann, ("ann", "r")),
        (ann | {"redis_sentinel_username": "default"}, ("default", "r")),
        (ann | {"redis_sentinel_password": "s"}, ("default", "s")),
        ({}, (None, None)),
    ]
    for given, login in cases:
        client = connect(Settings(redis=ADDRESS, **given))
        for each in client.connection_pool.sentinel_manager.sentinels:
            options = each.connection_pool.connection_kwargs
            assert (options.get("username"), options.get("password")) == login, given


def test_the_url_may_have_user_and_database() -> None:
    """As the URL of one server may."""
    client = connect(Settings(redis="redis+sentinel://ann:s3cret@a:1,[::1]:2/my%20own/3"))
    given = client.connection_pool.connection_kwargs
    assert (given["username"], given["password"], given["db"]) == ("ann", "s3cret", 3)
    assert client.connection_pool.service_name == "my own"
    hosts = [
        each.connection_pool.connection_kwargs["host"]
        for each in client.connection_pool.sentinel_manager.sentinels
    ]
    assert hosts == ["a", "::1"]


def test_addresses_that_make_no_sense() -> None:
    """They are refused before anything is asked, without a password in the text."""
    for address, cluster, why in (
        ("redis+sentinel://a:1,b:2", False, "write redis.sentinel://host:port,host:port/NAME"),
        ("redis+sentinel://a:1,b/m", False, "'b' is no host:port of a sentinel"),
        ("redis+sentinel://a:1,b:99999/m", False, "'b:99999' is no host:port"),
        ("redis+sentinel://a:1/m,b:2", False, "where NAME is the name of the master"),
        ("redis+sentinel://a:1/m", True, "Sentinel watches no cluster: set redis_cluster to false"),
        ("redis+sentinel://ann:s3cret@a:1,b:2", False, r"'redis.sentinel://ann:\*\*\*@"),
    ):
        for client in (connect, async_client):
            with pytest.raises(BadConfiguration, match=why) as refused:
                client(Settings(redis=address, redis_cluster=cluster))
            assert "s3cret" not in str(refused.value)
            assert "\n" not in str(refused.value)
