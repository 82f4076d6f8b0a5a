"""Failovers of a Redis that Sentinel watches."""

from functools import partial
from pathlib import Path

import msgspec

from local.processes import Server
from local.redis_node import ADVISED
from tests.chaos.one_sided import SILENT
from tests.chaos.scene import AT_ONCE, Outcome, Scene, a_scene
from tests.integration.processes import wait_until
from tests.proxy import Proxy, a_proxy
from tests.sentinels import FOLLOWER, NAME, a_watched_redis, written

LEAST_BYTES = 50_000
"""More than a server writes by itself."""


def sentinel_failover(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill the master after writes that its replica lacks; the replica takes over. Then cut the
    master off from replica and sentinels, together with one of two workers, and let it come
    back."""
    watched = partial(a_watched_redis, settings=ADVISED)
    with (
        a_proxy(folder) as proxy,
        a_scene(name, folder, quick, workers=0, redis=watched) as scene,
    ):
        free = scene.settings
        scene.crew.settings = msgspec.structs.replace(free, redis=_led(scene, proxy))
        scene.crew.hire(1)
        scene.crew.settings = free
        scene.crew.add("worker-free").wait_ready()
        for _ in range(scene.times(2)):
            for fault in (_killed, partial(_isolated, proxy=proxy)):
                scene.load()
                with scene.fault():
                    fault(scene)
                scene.redis.wait_until_whole()
        return scene.outcome()


def _led(scene: Scene, proxy: Proxy) -> str:
    """The address of the sentinels by way of the proxy."""
    for i, each in enumerate(scene.redis.sentinels):
        proxy.lead(f"sentinel-{i}", each.address)
    ways = (proxy.address(f"sentinel-{i}") for i in range(len(scene.redis.sentinels)))
    return f"redis+sentinel://{','.join(ways)}/{NAME}"


def _killed(scene: Scene) -> None:
    """Kill the master, whose replica lacks what workers wrote last."""
    old, new = scene.redis.master, scene.redis.other
    scene.redis.cut_off(old, FOLLOWER)
    _play_until_written(scene, old)
    assert written(old) > written(new)
    old.kill()
    scene.season.play(AT_ONCE // 4)
    scene.redis.wait_for_master(new)
    scene.wait_until_rated()
    old.start()


def _isolated(scene: Scene, proxy: Proxy) -> None:
    """Cut the master off. One worker still reaches it, and no sentinel."""
    old, new = scene.redis.master, scene.redis.other
    for i in range(len(scene.redis.sentinels)):
        proxy.spoil(f"sentinel-{i}", SILENT)
    scene.redis.cut_off(old)
    scene.season.play(AT_ONCE)
    scene.redis.wait_for_master(new)
    _play_until_written(scene, new)  # the free worker has left the old master
    _play_until_written(scene, old)  # the cut worker still writes here
    scene.season.play(AT_ONCE // 4)
    scene.redis.heal(old)
    proxy.mend()


def _play_until_written(scene: Scene, server: Server) -> None:
    """Play rounds, and wait until workers have written some of them to this server."""
    before = written(server)
    scene.season.play(AT_ONCE)

    def more() -> bool:
        scene.crew.tend()
        return written(server) > before + LEAST_BYTES

    wait_until(more, "workers write to the old master", every_s=0.02)
