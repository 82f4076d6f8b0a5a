"""The faults of `serve`: it is killed, its Redis goes back to an older state, and its index moves
in a Redis Cluster, while the recorder asks and follows two processes. The judge judges all
answers."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from redis.crc import key_slot

from stream_rater.adapters.redis.index_keys import ROOT, keys_of
from tests.chaos.redis_faults import restored, snapshot
from tests.chaos.scene import AT_ONCE, Outcome, Scene, a_scene, advised_redis
from tests.chaos.season import LADDERS
from tests.chaos.standalone import Host, free_port
from tests.integration.processes import WorkerProcess, wait_until
from tests.redis_cluster import a_redis_cluster

PROCESSES = 2  # the `serve` processes on one index
ANSWERS = 20  # the answers of each process that are waited for while something is broken
REQUESTS = "stream_rater_serve_requests_total"
GONE = ("ASK", "TRYAGAIN")  # how a node refuses a call if keys have gone to another node


@contextmanager
def started(scene: Scene, apis: Sequence[str], folder: Path, redis: str) -> Iterator[list[Host]]:
    """A ready `serve` process at each address, whose index is in this Redis."""
    with ExitStack() as stack:
        doors = []
        for number, address in enumerate(apis):
            place = folder / f"api-{number}"
            place.mkdir()
            settings = msgspec.structs.replace(
                scene.settings, serve=address, redis=redis, serve_rate=0.0
            )
            door = Host(settings, place, "serve")
            stack.callback(door.close)
            door.start()
            doors.append(door)
        for door in doors:
            door.check().wait_ready()
        yield doors


def wait_until_asked(serve: WorkerProcess, count: int = ANSWERS) -> None:
    """Wait until a process has answered so many more requests, whatever the answers are."""
    before = serve.metric(REQUESTS)
    wait_until(
        lambda: serve.metric(REQUESTS) >= before + count, "it answers",
        moves=lambda: serve.metric(REQUESTS),
    )  # fmt: skip


def _wait_until_all_answer(doors: Sequence[Host]) -> None:
    for door in doors:
        door.check().wait_ready()
        wait_until_asked(door.check())


def serve_killed(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill one of two `serve` processes under load, and set their Redis back to an older copy
    before it starts again. The other one, which has answered from what is lost, goes on."""
    apis = [f"127.0.0.1:{free_port()}" for _ in range(PROCESSES)]
    with (
        a_scene(name, folder, quick, apis=apis) as scene,
        advised_redis(folder / "index") as redis,
        started(scene, apis, folder, redis.address) as doors,
    ):
        scene.season.play(AT_ONCE)
        scene.recover()
        for i in range(scene.times(4)):
            victim, other = doors[i % PROCESSES], doors[1 - i % PROCESSES]
            _wait_until_all_answer(doors)
            kept = snapshot(redis)
            scene.load()
            with scene.fault():
                wait_until_asked(other.check())
                victim.kill()
                restored(redis, kept)
                scene.season.play(AT_ONCE // 4)
                wait_until_asked(other.check())
                victim.start()
        _wait_until_all_answer(doors)
        return scene.outcome()


def index_resharded(name: str, folder: Path, quick: bool) -> Outcome:
    """Move the slots of the index between the masters of a Redis Cluster, key by key, while two
    `serve` processes answer from it and write to it."""
    apis = [f"127.0.0.1:{free_port()}" for _ in range(PROCESSES)]
    with (
        a_scene(name, folder, quick, apis=apis, redis=a_redis_cluster, redis_cluster=True) as scene,
        started(scene, apis, folder, scene.settings.redis) as doors,
    ):  # fmt: skip
        keys = [keys_of(ladder).players for ladder in LADDERS]
        for turn in range(scene.times(3)):
            for key in (ROOT, keys[turn % len(keys)]):
                scene.load()
                for door in doors:
                    wait_until_asked(door.check())
                with scene.fault():
                    _move(scene, key)
        _wait_until_all_answer(doors)
        return scene.outcome()


def _move(scene: Scene, key: str) -> None:
    """Move the slot of a key. Between any two steps somebody has asked for what has gone."""
    move = scene.redis.move(key_slot(key.encode()))
    wait_until(move.keys, "the index has keys there")
    move.begin()
    keys = move.keys()
    scene.random.shuffle(keys)
    half = (len(keys) + 1) // 2  # the root is a single key
    for some in (keys[:half], keys[half:]):
        scene.season.play(AT_ONCE // 10)
        move.send(some)
        move.wait_for_refusal(GONE)
    move.finish()
    scene.redis.wait_for_owner(move.slot, move.target)
