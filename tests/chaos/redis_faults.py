"""The faults of Redis, and of a Redis that Sentinel watches."""

import shutil
from functools import partial
from pathlib import Path

import msgspec
from redis import Redis
from redis.crc import key_slot

from local.redis_node import ADVISED
from local.servers import Server
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.encoding import position_key
from tests.chaos.crew import Violation
from tests.chaos.scene import AT_ONCE, Outcome, Scene, a_scene
from tests.integration.processes import gone, stream_rater, wait_until
from tests.proxy import Proxy, Toxic, a_proxy
from tests.redis_cluster import a_redis_cluster
from tests.sentinels import FOLLOWER, NAME, a_watched_redis, written

BUCKETS = 4  # buckets of a ladder in a shard: few, so that a call writes to every one of them
CAUGHT, MOST_MOVES = 6, 40  # So many calls must meet a moved hash, within so many moves.
LATE_MS = 300  # the delay of the first key's move


def redis_killed(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill Redis, and start it again from its append-only file, which has all writes."""
    with a_scene(name, folder, quick) as scene:
        for _ in scene.faults(5):
            scene.redis.kill()
            scene.redis.start()
        return scene.outcome()


def redis_failover(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill a master of a Redis Cluster. Its replica, which may lack some writes, takes over."""
    six = partial(a_redis_cluster, masters=3, replicas=1)
    with a_scene(name, folder, quick, redis=six, redis_cluster=True) as scene:
        for _ in scene.faults(3):
            victim = scene.random.choice(scene.redis.masters())
            victim.kill()
            scene.season.play(AT_ONCE)
            scene.recover()
            victim.start()
            scene.redis.wait_until_whole(3)
        return scene.outcome()


def redis_resharded(name: str, folder: Path, quick: bool) -> Outcome:
    """Move shards' slots between masters, key by key, until enough calls have met a move."""
    with a_scene(
        name, folder, quick, redis=a_redis_cluster, redis_cluster=True, buckets=BUCKETS,
    ) as scene:  # fmt: skip
        caught = 0
        while caught < scene.times(CAUGHT):
            if scene.injected == MOST_MOVES:
                raise Violation(f"{name}: {MOST_MOVES} moves caught {caught} calls only")
            scene.load()
            with scene.fault():
                caught += _move(scene, scene.injected % scene.settings.shards)
        return scene.outcome()


def _move(scene: Scene, shard: int) -> int:
    """Move a slot; workers call between any two steps. Returns how many calls met the move."""
    position = position_key(shard)
    move = scene.redis.move(key_slot(position.encode()))
    move.begin()
    scene.season.play(AT_ONCE // 4)
    keys = move.keys()
    keys.remove(position)
    scene.random.shuffle(keys)
    first, *others = keys
    half = len(others) // 2
    caught: int = move.send_late(first, LATE_MS)
    for some in (others[:half], [position], others[half:], []):  # nothing: before the end
        scene.season.play(AT_ONCE // 10)
        move.wait_for_refusal()
        move.send(some)
    move.finish()
    scene.redis.wait_for_owner(move.slot, move.target)
    return caught


def redis_restored(name: str, folder: Path, quick: bool) -> Outcome:
    """FLUSHALL during work. Then an older snapshot is restored, and the log supplies the rest."""
    with a_scene(name, folder, quick) as scene:
        for _ in range(scene.times(2)):
            scene.season.play(AT_ONCE)
            scene.wait_until_rated()
            kept = snapshot(scene.redis)
            scene.load()
            with scene.fault():
                _flush(scene)
                restored(scene.redis, kept)
        return scene.outcome()


def redis_rebuilt(name: str, folder: Path, quick: bool) -> Outcome:
    """FLUSHALL during work, without a snapshot: workers leave, `rebuild` runs, others go on."""
    with a_scene(name, folder, quick) as scene:
        scene.load()
        scene.inject()
        _flush(scene)
        scene.season.play(AT_ONCE)
        scene.recover(partial(rebuilt, scene))
        return scene.outcome()


def redis_out_of_memory(name: str, folder: Path, quick: bool) -> Outcome:
    """Set Redis' memory limit too low during the workers' calls, and then high enough."""
    with a_scene(name, folder, quick) as scene:
        for _ in scene.faults(5):
            with Redis(port=scene.redis.port) as client:
                used = client.info("memory")["used_memory"]
                refused = _refused(client)
                client.config_set("maxmemory", used)
                scene.season.play(AT_ONCE)
                wait_until(partial(_refuses_more, scene, client, refused), "Redis refuses to store")
                client.config_set("maxmemory", 0)
        return scene.outcome()


def _refuses_more(scene: Scene, client: Redis, than: int) -> bool:
    scene.crew.tend()
    return _refused(client) > than


def _refused(client: Redis) -> int:
    """How many commands Redis has refused for want of memory."""
    return int(client.info("errorstats").get("errorstat_OOM", {}).get("count", 0))


def rebuilt(scene: Scene) -> None:
    """Stop all workers, rebuild the store, and start others, as an operator does."""
    scene.crew.dismiss()
    wait_until(gone(scene.settings), "the workers have left")
    done = stream_rater("rebuild", "--replace", settings=scene.settings)
    if done.returncode:
        raise Violation(f"rebuild: {done.stderr}")
    scene.crew.hire(2)


def _flush(scene: Scene) -> None:
    with connect(scene.settings) as client:
        client.flushall()


def snapshot(redis: Server) -> Path:
    """A copy of the present contents of Redis, in its own file."""
    with Redis(port=redis.port) as client:
        client.save()
    kept = redis.directory / "kept.rdb"
    shutil.copy(redis.directory / "dump.rdb", kept)
    return kept


def restored(redis: Server, kept: Path) -> None:
    """Start Redis from that copy, as the base of its append-only file, which it reads first."""
    redis.stop()
    single, folder = redis.directory / "appendonly.aof", redis.directory / "appendonlydir"
    if single.exists():  # before Redis 7, one file has the snapshot and what follows
        shutil.copy(kept, single)
    else:
        shutil.rmtree(folder)
        folder.mkdir()
        shutil.copy(kept, folder / "appendonly.aof.1.base.rdb")
        manifest = "file appendonly.aof.1.base.rdb seq 1 type b\n"
        (folder / "appendonly.aof.manifest").write_text(manifest)
    redis.start()


SILENT: Toxic = {"type": "timeout", "attributes": {"timeout": 0}}
"""Connections stay open, and nothing comes through."""
LEAST_BYTES = 50_000  # more than a server writes by itself


def sentinel_failover(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill the master after writes that its replica lacks. Then cut the new master off from replica
    and sentinels, together with one of two workers, and let it come back."""
    watched = partial(a_watched_redis, settings=ADVISED)
    with (
        a_proxy(folder) as proxy, a_scene(name, folder, quick, workers=0, redis=watched) as scene,
    ):  # fmt: skip
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


STORIES = (
    redis_killed, redis_failover, sentinel_failover, redis_resharded, redis_restored, redis_rebuilt,
    redis_out_of_memory,
)  # fmt: skip
