"""The faults: what breaks, when, and how it is repaired."""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import msgspec
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    PartitionMetadata,
    ResourceType,
)

from local.servers import Server
from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topic_rules import MIN_INSYNC, UNCLEAN
from stream_rater.adapters.kafka.topics import Topics
from tests.brokers import behind_a_proxy, three_brokers
from tests.chaos import below, correcting, redis_faults
from tests.chaos.correcting import NEXT_KERNEL
from tests.chaos.redis_faults import SILENT, rebuilt
from tests.chaos.rolling import rolling
from tests.chaos.scene import AT_ONCE, MOST_MISTAKES, Freed, Outcome, Scene, a_scene, freed, verify
from tests.chaos.season import CODEFORCES, codeforces, differing, lobbies
from tests.chaos.serving import serve_killed
from tests.chaos.standalone import ingest, standalone
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.test_upgrade import CHANGE, LADDER
from tests.integration.topics import newest_events, other_producers
from tests.proxy import ANSWERS, DIRECTIONS, KAFKA, REDIS, REQUESTS, ROUTES, Toxic, a_proxy
from tests.waits import STILL_S

FIRST_NODE = 1  # the first broker's node id
ADVICE = "run `stream-rater rebuild --replace`"


class Torn(Outcome, frozen=True, kw_only=True):
    """An outcome after the log lost records. `wrong` counts ratings that are not of all reported
    rounds, and players whose newest event differs from their rating. Events of lost rounds cannot
    be taken back, so they are counted apart, and not judged."""

    vanished: int  # the rounds that the log lost, although Kafka had acknowledged them
    refusals: int  # how often a worker refused the log
    events_lost: int  # the changes that are in the store, and whose event is not in the log
    events_again: int  # the second events of rounds that were lost and reported again


def unclean_election(name: str, folder: Path, quick: bool) -> Torn:
    """With two copies of each topic, one of two brokers dies, rounds are reported, the other one
    dies, and the first comes back and leads with what it has. An operator does as the workers say,
    and the lost rounds are reported again."""
    vanished = refusals = 0
    with a_scene(name, folder, quick, kafka=three_brokers, replication=2, partitions=1) as scene:
        admin = AdminClient({"bootstrap.servers": scene.settings.kafka}, logger=CLIENT_LOGGER)
        _allow(scene, admin)
        for _ in range(scene.times(3)):
            scene.season.play(AT_ONCE)
            scene.wait_until_rated()
            leader, follower = _copies(scene, admin)
            follower.kill()
            _wait_for_copies(scene, admin, 1)
            lost = scene.season.play(AT_ONCE)
            scene.wait_until_rated()
            scene.inject()
            leader.kill()
            follower.start()
            other_producers()  # an idempotent producer notices the loss, and ends with an error
            scene.season.play(AT_ONCE // 4)
            leader.start()
            _wait_for_copies(scene, admin, 2)
            vanished += len(lost)
            refusals += _wait_for_refusal(scene)
            rebuilt(scene)
            scene.season.replay(lost)
            scene.recover()
        return _outcome(scene, vanished, refusals)


def _wait_for_refusal(scene: Scene) -> int:
    """Wait until a worker refuses to continue. Returns how many do."""

    def refusing() -> list[WorkerProcess]:
        return [each for each in scene.crew.workers if ADVICE in each.log()]

    wait_until(lambda: bool(refusing()), f"{scene.name}: a worker refuses the log")
    return len(refusing())


def _outcome(scene: Scene, vanished: int, refusals: int) -> Torn:
    """What is in the store and in the log at the end."""
    scene.wait_until_rated()
    verify(scene.name, scene.settings)
    found, wrong = scene.season.tally(), scene.season.rated_otherwise()
    wrong += differing(newest_events(scene.settings), scene.settings)
    for line in wrong[:MOST_MISTAKES]:
        sys.stderr.write(f"{scene.name}: {line}\n")
    return Torn(
        fault=scene.name, injected=scene.injected, updates=scene.season.updates,
        lost=0, doubled=0, wrong=len(wrong), recoveries=len(scene.recoveries_s),
        recovery_s=round(max(scene.recoveries_s), 2),
        vanished=vanished, refusals=refusals, events_lost=found.lost, events_again=found.doubled,
    )  # fmt: skip


def _allow(scene: Scene, admin: AdminClient) -> None:
    """Allow writes with one in-sync replica, and unclean elections, for the service's topics."""
    topics = Topics.of(scene.settings)
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in ((MIN_INSYNC, "1"), (UNCLEAN, "true"))
    ]
    wanted = [
        ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
        for name in (topics.rounds, topics.parts, topics.changed)
    ]
    for done in admin.incremental_alter_configs(wanted).values():
        done.result(STILL_S)


def _copies(scene: Scene, admin: AdminClient) -> tuple[Server, Server]:
    """The broker that leads the rounds, and the other one that has them."""
    rounds = _rounds(scene, admin)
    (other,) = set(rounds.replicas) - {rounds.leader}
    return scene.kafka[rounds.leader - FIRST_NODE], scene.kafka[other - FIRST_NODE]


def _rounds(scene: Scene, admin: AdminClient) -> PartitionMetadata:
    """The only partition of the rounds."""
    rounds = Topics.of(scene.settings).rounds
    return admin.list_topics(rounds, timeout=STILL_S).topics[rounds].partitions[0]


def _wait_for_copies(scene: Scene, admin: AdminClient, count: int) -> None:
    wait_until(lambda: len(_rounds(scene, admin).isrs) == count, f"{count} copies are in sync")


CUTS = tuple(product((DIRECTIONS, (ANSWERS,), (REQUESTS,)), ROUTES))  # what is cut, to which server
CUT_S = 5.0  # longer than a session, so that the other worker takes over what the cut one had


def one_sided(name: str, folder: Path, quick: bool) -> Outcome:
    """Cut one of two workers off, from Kafka or Redis, in one direction or both."""
    with a_proxy(folder) as proxy:
        kafka = partial(behind_a_proxy, proxy=proxy)
        with a_scene(name, folder, quick, workers=0, kafka=kafka) as scene:
            proxy.lead(REDIS, scene.redis.address)
            ways = {route: proxy.address(route) for route in ROUTES}
            free, behind = scene.settings, msgspec.structs.replace(scene.settings, **ways)
            scene.crew.settings = behind
            scene.crew.hire(1)
            scene.crew.settings = free
            other = scene.crew.add("worker-free")
            other.wait_ready()
            for i in scene.faults(len(CUTS)):
                directions, route = CUTS[i]
                proxy.spoil(route, SILENT, directions)
                scene.season.play(AT_ONCE)
                time.sleep(CUT_S)  # the fault itself
                scene.season.play(AT_ONCE // 4)
                proxy.mend()
            return scene.outcome()


PARTITIONS, WORKERS = 64, 2
EVERY_S = 5.0
BEFORE, EACH = 4_000, 200  # the rounds that wait at first, and those that come with each fault
TIMES = 40


def joining(name: str, folder: Path, quick: bool) -> Outcome:
    """Every 5 s, a nameless worker joins, leaves or dies. All 64 partitions have a backlog."""
    with a_scene(
        name, folder, quick, workers=WORKERS, named=False,
        partitions=PARTITIONS, shards=PARTITIONS,
    ) as scene:  # fmt: skip
        scene.season.play(BEFORE // (10 if quick else 1))
        guests = list(scene.crew.workers[:0])
        for i in range(TIMES if not quick else 3):
            scene.season.play(EACH)
            scene.inject()
            if i % 3 == 0 or not guests:
                guests.append(scene.crew.add(""))
            else:
                guest = guests.pop(scene.random.randrange(len(guests)))
                if guest in scene.crew.workers:  # else it has ended, and was replaced
                    guest.kill() if i % 3 == 1 else guest.terminate()
                    guest.wait()
                    scene.crew.workers.remove(guest)
            time.sleep(EVERY_S)  # the fault itself: before the last change has settled
            scene.crew.tend()
        scene.recover()
        return scene.outcome()


CHANGED_FROM = 7 * AT_ONCE // 2
"""The offset from which a ladder has other parameters in an upgrade: among the rounds sent last."""
KILLS, AHEAD, GUST = 100, 10, 10  # Kills, rounds with each, and faults until all is rated.

TOXICS: dict[str, Toxic | None] = {  # The faults of connections.
    "cut": None,
    "delayed": {"type": "latency", "attributes": {"latency": 300, "jitter": 250}},  # ms
    "throttled": {"type": "bandwidth", "attributes": {"rate": 20}},  # KB/s
    "silent": SILENT,
    "torn": {"type": "limit_data", "attributes": {"bytes": 20_000}},  # ends within an answer
}
SPOILT_S = 4.0
LADDERS = LADDER.replace("ranked", '"*"') + LADDER  # a default ladder, and one that is changed

Story = Callable[[str, Path, bool], Outcome]


def storm(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill or freeze three workers at random while rounds stream. Two have names. The third is
    another member after each restart, so that its partitions move before it is back."""
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
                scene.crew.kill(worker)
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
            scene.kafka[i].kill() if hard else scene.kafka[i].stop()
            scene.kafka[i].start()
        return scene.outcome()


def lone_broker(name: str, folder: Path, quick: bool) -> Outcome:
    """Stop the only broker during transactions, and start it again. It is not killed: Kafka 4.4 may
    then leave a transaction without an end in its partitions, which an operator must write."""
    with a_scene(name, folder, quick) as scene:
        for _ in scene.faults(3):
            scene.kafka[0].restart()
        return scene.outcome()


def hard_lone_broker(name: str, folder: Path, quick: bool) -> Freed:
    """Kill the only broker during transactions, start it, and end those that hang, as decided."""
    hanging: list[object] = []
    with a_scene(name, folder, quick) as scene:
        for _ in range(scene.times(5)):
            scene.load()
            scene.inject()
            scene.kafka[0].kill()
            scene.kafka[0].start()
            scene.recover(lambda: hanging.extend(freed(scene)))
        return Freed(**msgspec.structs.asdict(scene.outcome()), freed=len(hanging))


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


def one_of_three_brokers(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill one of three brokers and start it again. Writes need two of the three replicas."""
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


def _named(*stories: Story) -> dict[str, Story]:
    """Stories by their names."""
    return {story.__name__.replace("_", "-"): story for story in stories}


FAULTS: dict[str, Story] = {
    "storm-codeforces" if CODEFORCES.is_file() else "storm-lobbies": storm,
    **_named(upgrade, *correcting.STORIES),
    **{
        f"{how}-{what.__name__}-{count}": partial(what, hard=how == "hard", workers=count)
        for what in (broker, worker)
        for how in ("clean", "hard")
        for count in (1, 3)
    },
    "hard-worker-unnamed": partial(worker, hard=True, workers=2, named=False),
    **_named(lone_broker, hard_lone_broker, all_brokers, one_of_three_brokers),
    **{f"connections-{how}": partial(connections, toxic=toxic) for how, toxic in TOXICS.items()},
    **_named(
        *redis_faults.STORIES, *below.STORIES, one_sided, joining, rolling, standalone, ingest,
        serve_killed, unclean_election,
    ),
}  # fmt: skip

ON_REQUEST = frozenset(
    {"hard-lone-broker", "corrections-hard-lone-broker", "unclean-election", "releases"}
)
"""For these, docs/guarantees.md promises less: Kafka needs a human, or has lost records. The last
one compiles the kernels of another release, out of git."""
