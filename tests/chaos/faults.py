"""The faults: what breaks, when, and how it is repaired."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from local.servers import Server
from tests.brokers import behind_a_proxy, three_brokers
from tests.chaos.clocks import clock_jumps
from tests.chaos.correcting import (
    NEXT_KERNEL,
    corrections,
    corrections_failover,
    corrections_hard_lone_broker,
    corrections_upgrade,
)
from tests.chaos.freeing import Freed, freed
from tests.chaos.frozen import controllers, power_lost, redis_frozen
from tests.chaos.full_disks import kafka_disk_full, redis_disk_full, temporary_full
from tests.chaos.ingest import ingest
from tests.chaos.joining import joining
from tests.chaos.one_sided import one_sided
from tests.chaos.redis_faults import (
    redis_failover,
    redis_killed,
    redis_out_of_memory,
    redis_rebuilt,
    redis_resharded,
    redis_restored,
)
from tests.chaos.rolling import rolling
from tests.chaos.scene import AT_ONCE, Outcome, a_scene
from tests.chaos.season import CODEFORCES, codeforces, lobbies
from tests.chaos.seeded import seeds
from tests.chaos.sentinel_faults import sentinel_failover
from tests.chaos.serving import index_resharded, serve_killed
from tests.chaos.standalone import standalone
from tests.chaos.unclean import unclean_election
from tests.integration.processes import wait_until
from tests.integration.test_upgrade import CHANGE, LADDER
from tests.proxy import KAFKA, REDIS, ROUTES, Toxic, a_proxy

CHANGED_FROM = 7 * AT_ONCE // 2
"""The offset from which a ladder has other parameters in an upgrade: among the rounds sent last."""
KILLS, AHEAD, GUST = 100, 10, 10
"""A storm: the number of kills, the rounds sent with each, and the faults before the storm ends and
all rounds are rated."""

TOXICS: dict[str, Toxic | None] = {
    "cut": None,
    "delayed": {"type": "latency", "attributes": {"latency": 300, "jitter": 250}},  # ms
    "throttled": {"type": "bandwidth", "attributes": {"rate": 20}},  # KB/s
    "silent": {"type": "timeout", "attributes": {"timeout": 0}},  # open, and nothing comes through
    "torn": {"type": "limit_data", "attributes": {"bytes": 20_000}},  # ends within an answer
}
"""The faults of connections."""
SPOILT_S = 4.0

LADDERS = LADDER.replace("ranked", '"*"') + LADDER
"""A default ladder, and one that is changed."""

Story = Callable[[str, Path, bool], Outcome]


def storm(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill or freeze three workers at random moments while rounds stream.

    Two have names. The third is another member of the groups each time, so that partitions move:
    those of the first worker to be killed move before another comes.
    """
    rounds = codeforces() if CODEFORCES.is_file() else lobbies()
    with a_scene(name, folder, quick, rounds) as scene:
        unnamed = scene.crew.add("")
        unnamed.wait_ready()
        scene.season.play(AHEAD)
        scene.inject()
        unnamed.kill()
        wait_until(lambda: scene.crew.rebalances() > scene.moved_before, "a share moves")
        scene.crew.replace(unnamed)
        kills = 1
        while kills < (KILLS if not quick else 4):
            if scene.random.random() < 0.5 or scene.season.finished():
                scene.season.play(scene.random.randint(1, AHEAD))
            scene.inject()
            worker = scene.random.choice(scene.crew.workers)
            if scene.random.random() < 0.25:
                worker.pause()
                time.sleep(scene.random.uniform(0.1, 3.5))  # the fault itself: up to a lost session
                worker.go_on()
            else:
                worker.kill()
                scene.crew.replace(worker)
                kills += 1
                time.sleep(scene.random.expovariate(2.0))
            scene.crew.tend()
            if scene.injected % GUST == 0:
                scene.recover()
        scene.recover()
        return scene.outcome()


def upgrade(name: str, folder: Path, quick: bool) -> Outcome:
    """Replace workers one by one with workers of another kernel version and other parameters."""
    folder.mkdir(parents=True)
    before, after = folder / "before.toml", folder / "after.toml"
    before.write_text(LADDERS)
    after.write_text(LADDERS + CHANGE.format(CHANGED_FROM))
    with a_scene(
        name, folder, quick, workers=3, partitions=1, ladders=str(before),
        redisplayed={"ranked": CHANGED_FROM},
    ) as scene:  # fmt: skip
        scene.load()
        scene.crew.module = NEXT_KERNEL
        scene.crew.settings = msgspec.structs.replace(scene.settings, ladders=str(after))
        for worker in list(scene.crew.workers):
            scene.load()
            scene.inject()
            worker.terminate()
            worker.wait()
            newer = scene.crew.replace(worker)
            wait_until(newer.has_a_share, "it has a share")
        scene.recover()  # no sooner: older workers leave the newer ones' parts alone
        return scene.outcome()


def broker(name: str, folder: Path, quick: bool, *, hard: bool, workers: int) -> Outcome:
    """Stop or kill each of three brokers during transactions, and start it again."""
    with a_scene(name, folder, quick, workers=workers, kafka=three_brokers, replication=3) as scene:
        for i in scene.faults(3):
            _down(scene.kafka[i], hard)
            scene.kafka[i].start()
        return scene.outcome()


def lone_broker(name: str, folder: Path, quick: bool) -> Outcome:
    """Stop the only broker during transactions, and start it again.

    It is not killed: at its start, Kafka 4.4 may then complete a transaction that was about to be
    committed without writing its end to its partitions. Readers do not see what follows there
    until an operator ends the transaction.
    """
    with a_scene(name, folder, quick) as scene:
        for _ in scene.faults(3):
            scene.kafka[0].restart()
        return scene.outcome()


def hard_lone_broker(name: str, folder: Path, quick: bool) -> Freed:
    """Kill the only broker during transactions, start it again, and end hanging
    transactions as they had been decided."""
    hanging: list[object] = []
    with a_scene(name, folder, quick) as scene:
        for _ in range(scene.times(5)):
            scene.load()
            scene.inject()
            _down(scene.kafka[0], hard=True)
            scene.kafka[0].start()
            scene.recover(lambda: hanging.extend(freed(scene)))
        return Freed.of(scene.outcome(), hanging)


def worker(
    name: str, folder: Path, quick: bool, *, hard: bool, workers: int, named: bool = True
) -> Outcome:
    """Stop or kill a worker during work, and start it again."""
    with a_scene(name, folder, quick, workers=workers, named=named) as scene:
        for _ in scene.faults(3):
            victim = scene.random.choice(scene.crew.workers)
            victim.kill() if hard else victim.terminate()
            victim.wait()
            scene.crew.replace(victim)
        return scene.outcome()


def all_brokers(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill all three brokers at once during transactions, and start them again."""
    with (
        a_scene(name, folder, quick, kafka=three_brokers, replication=3) as scene,
        ThreadPoolExecutor() as together,
    ):
        for _ in scene.faults(5):
            list(together.map(Server.kill, scene.kafka))
            list(together.map(Server.start, scene.kafka))
        return scene.outcome()


def one_of_three(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill one of three brokers and start it again. All topics are on all brokers; two replicas are
    needed to write."""
    with a_scene(name, folder, quick, kafka=three_brokers, replication=3) as scene:
        for i in scene.faults(3):
            scene.kafka[i].kill()
            scene.season.play(AT_ONCE)
            scene.recover()  # two are enough
            scene.season.play(AT_ONCE // 4)
            scene.kafka[i].start()
        return scene.outcome()


def connections(name: str, folder: Path, quick: bool, *, toxic: Toxic | None) -> Outcome:
    """Disturb or cut the workers' connections to Kafka, to Redis, and to both, for some seconds."""
    with a_proxy(folder) as proxy:
        kafka = partial(behind_a_proxy, proxy=proxy)
        with a_scene(name, folder, quick, workers=0, kafka=kafka) as scene:
            proxy.lead(REDIS, scene.redis.address)
            ways = {route: proxy.address(route) for route in ROUTES}
            scene.crew.settings = msgspec.structs.replace(scene.settings, **ways)
            scene.crew.hire(2)
            for i in scene.faults(6):
                for route in ((KAFKA,), (REDIS,), ROUTES)[i % 3]:
                    if toxic is None:
                        proxy.cut(route)
                    else:
                        proxy.spoil(route, toxic)
                scene.season.play(AT_ONCE)
                time.sleep(SPOILT_S)  # the fault itself
                proxy.mend()
            return scene.outcome()


def _down(server: Server, hard: bool) -> None:
    if hard:
        server.kill()
    else:
        server.stop()


FAULTS: dict[str, Story] = {
    "storm-codeforces" if CODEFORCES.is_file() else "storm-lobbies": storm,
    "upgrade": upgrade,
    "corrections": corrections,
    "corrections-failover": corrections_failover,
    "corrections-hard-lone-broker": corrections_hard_lone_broker,
    "corrections-upgrade": corrections_upgrade,
    "seeds": seeds,
    **{
        f"{how}-{what.__name__}-{count}": partial(what, hard=how == "hard", workers=count)
        for what in (broker, worker)
        for how in ("clean", "hard")
        for count in (1, 3)
    },
    "hard-worker-unnamed": partial(worker, hard=True, workers=2, named=False),
    "lone-broker": lone_broker,
    "hard-lone-broker": hard_lone_broker,
    "all-brokers": all_brokers,
    "one-of-three-brokers": one_of_three,
    **{f"connections-{how}": partial(connections, toxic=toxic) for how, toxic in TOXICS.items()},
    "redis-killed": redis_killed,
    "redis-failover": redis_failover,
    "sentinel-failover": sentinel_failover,
    "redis-resharded": redis_resharded,
    "redis-restored": redis_restored,
    "redis-rebuilt": redis_rebuilt,
    "redis-frozen": redis_frozen,
    "redis-out-of-memory": redis_out_of_memory,
    "redis-disk-full": redis_disk_full,
    "kafka-disk-full": kafka_disk_full,
    "temporary-full": temporary_full,
    "power-lost": power_lost,
    "controllers": controllers,
    "clock-jumps": clock_jumps,
    "one-sided": one_sided,
    "joining": joining,
    "rolling": rolling,
    "standalone": standalone,
    "ingest": ingest,
    "serve-killed": serve_killed,
    "index-resharded": index_resharded,
    "unclean-election": unclean_election,
}

ON_REQUEST = frozenset({"hard-lone-broker", "corrections-hard-lone-broker", "unclean-election"})
"""Of which less is promised: Kafka itself needs a human then, or has lost records
(docs/guarantees.md)."""
