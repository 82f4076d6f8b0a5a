"""Faults below the servers: frozen processes, a power cut, full disks, and a broker's clock that
jumps, by libfaketime. That clock decides when a record arrived. A full disk is a small file system,
which only root can mount."""

import errno
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

from redis import Redis

from local.processes import Server
from local.servers import start_kafka
from local.tools import LocalServerError
from tests.brokers import three_brokers
from tests.chaos.crew import Violation
from tests.chaos.hanging import array, ask, text
from tests.chaos.scene import AT_ONCE, Outcome, Scene, a_scene
from tests.integration.processes import wait_until

METADATA_TOPIC = "__cluster_metadata"
METADATA = f"{METADATA_TOPIC}-0"  # The controllers' log. Kafka writes it to the disk at once.
DESCRIBE_QUORUM = 55  # the request of Kafka's protocol that asks which controller leads


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process (SIGSTOP) for the block. All its connections stay open."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def redis_frozen(name: str, folder: Path, quick: bool) -> Outcome:
    """Freeze Redis for longer than a call may take: calls that were given up take effect later."""
    with a_scene(name, folder, quick) as scene:
        for _ in scene.faults(5):
            before = _lost_calls(scene)
            with frozen(scene.redis.pid):
                scene.season.play(AT_ONCE)
                wait_until(partial(_gave_up, scene, before), "a worker has given a call up")
        return scene.outcome()


def _gave_up(scene: Scene, before: int) -> bool:
    return _lost_calls(scene) > before


def _lost_calls(scene: Scene) -> int:
    """How many calls to Redis the workers have given up."""
    scene.crew.tend()
    return int(sum(each.metric("stream_rater_restarts_total") for each in scene.crew.workers))


def controllers(name: str, folder: Path, quick: bool) -> Outcome:
    """Freeze or kill the one of three brokers that leads the controllers, and let it come back."""
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
            with frozen(victim.pid):
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
    """One of three brokers loses some seconds of its logs, which were not on disk, and gets them
    from the others: Kafka acknowledges what is in the memory of in-sync replicas. Only the log of
    the controllers is written at once, and so kept."""
    with a_scene(name, folder, quick, kafka=three_brokers, replication=3) as scene:
        for i in scene.faults(3):
            broker, kept = scene.kafka[i], folder / "kept"
            data = broker.directory / "data"
            with frozen(broker.pid):
                copied(data, kept)
            scene.load()
            broker.kill()
            copied(data / METADATA, kept / METADATA)
            copied(kept, data)
            scene.season.play(AT_ONCE)
            broker.start()
        return scene.outcome()


def copied(source: Path, target: Path) -> None:
    """Make a folder a copy of another one, with the holes of its files, as of indices."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


REDIS_MB, KAFKA_MB = 128, 512  # room for what a row writes, several times
PIECE = bytes(1024 * 1024)


def fill(ballast: Path) -> None:
    """Let this file take all that is left of its file system."""
    with ballast.open("ab", buffering=0) as file:
        for size in (len(PIECE), 4096, 1):
            try:
                while file.write(PIECE[:size]):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """Mount a file system of this size at a folder. Yields the path of a file in it."""
    folder.mkdir(parents=True, exist_ok=True)
    size = f"size={megabytes}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True)
    try:
        yield folder / "ballast"
    finally:  # lazily: a server that is being stopped may have a file open
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def redis_disk_full(name: str, folder: Path, quick: bool) -> Outcome:
    """Fill the disk of Redis' append-only file until Redis refuses to write, then make room."""
    with small_disk(folder / "redis", REDIS_MB) as ballast, a_scene(name, folder, quick) as scene:
        for _ in scene.faults(3):
            fill(ballast)
            scene.season.play(AT_ONCE)
            wait_until(partial(_refuses, scene), "Redis refuses to write")
            scene.season.play(AT_ONCE // 4)
            ballast.unlink()
        return scene.outcome()


def _refuses(scene: Scene) -> bool:
    scene.crew.tend()
    with Redis(port=scene.redis.port) as client:
        return client.info("persistence")["aof_last_write_status"] == "err"


def kafka_disk_full(name: str, folder: Path, quick: bool) -> Outcome:
    """Fill the disk of one of three brokers until it ends. Then make room and start it again."""
    with (
        small_disk(folder / "kafka" / "0", KAFKA_MB) as ballast,
        a_scene(name, folder, quick, kafka=three_brokers, replication=3) as scene,
    ):
        broker = scene.kafka[0]
        for _ in scene.faults(3):
            fill(ballast)
            scene.season.play(AT_ONCE)
            wait_until(
                lambda: _ended(scene), "the broker has ended", moves=scene.season.finished.moves
            )
            scene.season.play(AT_ONCE)
            scene.recover()  # two are enough
            ballast.unlink()
            broker.kill()  # forget the process that has ended
            broker.start()
        return scene.outcome()


def _ended(scene: Scene) -> bool:
    """Whether the first broker has ended. What it has to write comes from more rounds."""
    scene.crew.tend()
    if scene.kafka[0].running:
        scene.season.play(AT_ONCE // 10)
    return not scene.kafka[0].running


def temporary_full(name: str, folder: Path, quick: bool) -> Outcome:
    """Workers start and work with a folder for temporary files that has no room at all."""
    with small_disk(folder / "tmp", 1) as ballast:
        fill(ballast)
        with (
            patch.dict(os.environ, {"TMPDIR": str(folder / "tmp")}),
            a_scene(name, folder, quick) as scene,
        ):
            for _ in scene.faults(3):
                victim = scene.random.choice(scene.crew.workers)
                scene.crew.kill(victim)
            return scene.outcome()


LIBRARY = "*/faketime/libfaketimeMT.so.1"  # where Debian's package has it
JUMPS = ("-3h", "+3h", "-20d", "+2d", "+0")  # All after rounds' own times, within retention.


@contextmanager
def kafka_with_a_clock(folder: Path, properties: Mapping[str, str] = {}) -> Iterator[list[Server]]:
    """A Kafka whose clock differs from the true time as a file `clock` says. Durations are true."""
    library = next(Path("/usr/lib").glob(LIBRARY), None)
    if library is None:
        raise LocalServerError("no libfaketime: run `apt-get install libfaketime`")
    folder.mkdir(parents=True)
    set_clock(folder, "+0")
    ours = {
        "LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(folder / "clock"),
        "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # else waits with a time limit go wrong in the JVM
    }  # fmt: skip
    with patch.dict(os.environ, ours):
        server = start_kafka(folder, properties=properties)
    with server:
        yield [server]


def set_clock(folder: Path, to: str) -> None:
    new = folder / "new"
    new.write_text(to)
    new.replace(folder / "clock")


def clock_jumps(name: str, folder: Path, quick: bool) -> Outcome:
    """The broker's clock jumps back and forth while rounds stream."""
    with a_scene(name, folder, quick, kafka=kafka_with_a_clock) as scene:
        for i in scene.faults(2 * len(JUMPS)):
            set_clock(scene.kafka[0].directory, JUMPS[i % len(JUMPS)])
            scene.season.play(AT_ONCE)
        set_clock(scene.kafka[0].directory, "+0")
        scene.season.play(AT_ONCE)
        return scene.outcome()


STORIES = (
    redis_frozen, redis_disk_full, kafka_disk_full, temporary_full, power_lost, controllers,
    clock_jumps,
)  # fmt: skip
