"""Other faults while corrections are applied: of Redis, of Kafka, and an upgrade."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos.corrected import CorrectedSeason, matches
from tests.chaos.correcting import AHEAD, FIRST, LADDERS_FILE, Work
from tests.chaos.freeing import Freed, freed
from tests.chaos.scene import Outcome, Scene, a_scene
from tests.integration.processes import wait_until
from tests.redis_cluster import a_redis_cluster

NEXT_KERNEL = "tests.chaos.next_kernel"
AT_ONCE = 2
"""Corrections that are sent together."""


@contextmanager
def a_corrected_scene(
    name: str, folder: Path, quick: bool, **more: Any
) -> Iterator[tuple[Scene, CorrectedSeason]]:
    """Three workers, and enough rounds for the work on a correction to take some tenths of a
    second."""
    folder.mkdir(parents=True)
    ladders = folder / "ladders.toml"
    ladders.write_text(LADDERS_FILE)
    with a_scene(
        name, folder, matches(), workers=3, quick=quick, season=CorrectedSeason, partitions=1,
        ladders=str(ladders), checkpoint_every=500, **more,
    ) as scene:  # fmt: skip
        assert isinstance(scene.season, CorrectedSeason)
        scene.season.play(FIRST)
        scene.wait_until_rated()
        yield scene, scene.season


def during(
    scene: Scene, season: CorrectedSeason, breaks: Callable[[], object], *, begun: bool = True
) -> None:
    """Break something while corrections are applied and later rounds wait. Without
    `begun` they may still wait for earlier rounds, or be done."""
    work = Work(scene, season.correct(AT_ONCE))
    season.play(AHEAD)
    if begun:
        work.begun()
    time.sleep(scene.random.uniform(0.0, 0.5))  # the fault comes early or late in the work
    scene.inject()
    breaks()


def corrections_failover(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill a master of a Redis Cluster while corrections are applied. Its replica may lack
    correction parts that were applied, and checkpoints, or some pieces of one."""
    six = partial(a_redis_cluster, masters=3, replicas=1)
    with a_corrected_scene(name, folder, quick, redis=six, redis_cluster=True) as (scene, season):
        for _ in range(scene.times(6)):
            victim = scene.random.choice(scene.redis.masters())
            during(scene, season, victim.kill)
            season.play(AHEAD)
            scene.recover()
            victim.start()
            scene.redis.wait_until_whole(3)
        return scene.outcome()


def corrections_hard_lone_broker(name: str, folder: Path, quick: bool) -> Freed:
    """Kill the only broker while corrections are applied, start it again, and end the
    transactions that hang. The transaction may be the estimator's commit of the correction, or the
    updater's commit of its events."""
    hanging: list[object] = []
    with a_corrected_scene(name, folder, quick) as (scene, season):
        broker = scene.kafka[0]
        for _ in range(scene.times(5)):
            during(scene, season, broker.kill)
            broker.start()
            scene.recover(lambda: hanging.extend(freed(scene)))
        return Freed.of(scene.outcome(), hanging)


def corrections_upgrade(name: str, folder: Path, quick: bool) -> Outcome:
    """Replace workers by workers of another kernel version while corrections are applied. They
    are killed in the midst of one, or asked to end. The successor applies it again by the newer
    kernels.

    Once a worker is newer, shards of the older ones may wait, and corrections behind their rounds.
    So only the first fault is sure to hit the work on one.
    """
    with a_corrected_scene(name, folder, quick) as (scene, season):
        scene.crew.module = NEXT_KERNEL
        for number, worker in enumerate(list(scene.crew.workers)):
            breaks = worker.terminate if number == 1 else worker.kill
            during(scene, season, breaks, begun=number == 0)
            worker.wait()
            newer = scene.crew.replace(worker)
            wait_until(newer.has_a_share, "it has a share")
            during(scene, season, lambda: None, begun=False)
        scene.recover()  # no sooner: older workers leave the newer ones' parts alone
        return scene.outcome()
