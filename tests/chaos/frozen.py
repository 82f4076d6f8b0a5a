"""Servers that stand still, and servers that lose what they had not written to the disk."""

import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from local.processes import Server
from tests.brokers import three_brokers
from tests.chaos.crew import Violation
from tests.chaos.hanging import array, ask, text
from tests.chaos.scene import AT_ONCE, Outcome, Scene, a_scene
from tests.integration.processes import wait_until

METADATA_TOPIC = "__cluster_metadata"
METADATA = f"{METADATA_TOPIC}-0"
"""The folder of the controllers' log, which Kafka writes to the disk before it acknowledges."""
DESCRIBE_QUORUM = 55
"""The request of Kafka's protocol that asks which controller leads."""


@contextmanager
def frozen(*servers: Server) -> Iterator[None]:
    """These processes stand still in the block, with all their connections open."""
    for each in servers:
        os.kill(each.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in servers:
            os.kill(each.pid, signal.SIGCONT)


def redis_frozen(name: str, folder: Path, quick: bool) -> Outcome:
    """Freeze Redis for longer than a call may take. What was sent to it then takes effect later,
    when its senders have given it up and asked again."""
    with a_scene(name, folder, quick) as scene:
        for _ in scene.faults(5):
            before = _lost_calls(scene)
            with frozen(scene.redis):
                scene.season.play(AT_ONCE)
                wait_until(partial(_gave_up, scene, before), "a worker has given a call up")
        return scene.outcome()


def _gave_up(scene: Scene, before: int) -> bool:
    return _lost_calls(scene) > before


def _lost_calls(scene: Scene) -> int:
    """How many calls of Redis the workers have given up."""
    scene.crew.tend()
    return int(sum(each.metric("stream_rater_restarts_total") for each in scene.crew.workers))


def controllers(name: str, folder: Path, quick: bool) -> Outcome:
    """Of three brokers, which are the controllers, too, freeze or kill the one that leads the
    controllers. Another one is elected, and the old one comes back and believes that it leads."""
    with a_scene(name, folder, quick, kafka=three_brokers, replication=3) as scene:
        for i in scene.faults(4):
            leader = active_controller(scene)
            victim = scene.kafka[leader]
            if i % 2:
                victim.kill()
                scene.season.play(AT_ONCE)
                scene.recover()
                victim.start()
                continue
            with frozen(victim):
                scene.season.play(AT_ONCE)
                scene.recover()  # two are enough
                if active_controller(scene, but=leader) == leader:
                    raise Violation(f"{name}: no other controller was elected")
        return scene.outcome()


def active_controller(scene: Scene, but: int | None = None) -> int:
    """The index of the broker that leads the controllers. `but`: a broker that is not asked."""
    asked = next(each for i, each in enumerate(scene.kafka) if i != but)
    partitions = array([struct.pack(">i", 0) + b"\0"])
    topics = array([text(METADATA_TOPIC) + partitions + b"\0"])
    answer = ask(asked.address, DESCRIBE_QUORUM, 0, topics + b"\0")
    answer.take("h")
    for _ in answer.items():  # the only topic
        answer.text()
        for _ in answer.items():  # its only partition
            _, error, leader = answer.take("ihi")
            if not error and leader > 0:
                return int(leader) - 1
    raise Violation("no controller leads")


def power_lost(name: str, folder: Path, quick: bool) -> Outcome:
    """One of three brokers loses its power, and with it all that it had not written to the disk:
    its logs are as they were some seconds before. It takes the rest from the others.

    Kafka acknowledges what is in the memory of the in-sync replicas, and writes it to the disk
    later. It writes only the log of the controllers at once, so this log is kept.
    """
    with a_scene(name, folder, quick, kafka=three_brokers, replication=3) as scene:
        for i in scene.faults(3):
            broker, kept = scene.kafka[i], folder / "kept"
            data = broker.directory / "data"
            with frozen(broker):
                copied(data, kept)
            scene.load()
            broker.kill()
            copied(data / METADATA, kept / METADATA)
            copied(kept, data)
            scene.season.play(AT_ONCE)
            broker.start()
        return scene.outcome()


def copied(source: Path, target: Path) -> None:
    """Make a folder a copy of another one, with the holes of its files: indices are mostly
    holes."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)
