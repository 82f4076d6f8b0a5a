"""Full disks: a server whose data lie on a small file system of its own, which fills up while
rounds stream.

A small file system needs the right to mount one: chaos runs as root for these rows, or they fail.
"""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from redis import Redis

from tests.brokers import three_brokers
from tests.chaos.scene import AT_ONCE, Outcome, Scene, a_scene
from tests.integration.processes import wait_until

REDIS_MB, KAFKA_MB = 128, 512
"""Room for what a row writes, several times."""
PIECE = bytes(1024 * 1024)


class SmallDisk:
    """A small file system, and a file that takes all that is left of it."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no room."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (len(PIECE), 4096, 1):
                try:
                    while file.write(PIECE[:size]):
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink()


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """A file system of this size in the place of a folder, until the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    size = f"size={megabytes}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True)
    try:
        yield SmallDisk(folder)
    finally:  # lazily: a server that is being stopped may still hold a file
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def redis_disk_full(name: str, folder: Path, quick: bool) -> Outcome:
    """Fill the disk of Redis' append-only file until Redis refuses to write, then make room."""
    with (
        small_disk(folder / "redis", REDIS_MB) as disk,
        a_scene(name, folder, quick) as scene,
    ):
        for _ in scene.faults(3):
            disk.fill()
            scene.season.play(AT_ONCE)
            wait_until(partial(_refuses, scene), "Redis refuses to write")
            scene.season.play(AT_ONCE // 4)
            disk.free()
        return scene.outcome()


def _refuses(scene: Scene) -> bool:
    scene.crew.tend()
    with Redis(port=scene.redis.port) as client:
        return client.info("persistence")["aof_last_write_status"] == "err"


def kafka_disk_full(name: str, folder: Path, quick: bool) -> Outcome:
    """Fill the disk of one of three brokers until the broker ends. Two are enough to go on. Then
    make room, and start it again."""
    with (
        small_disk(folder / "kafka" / "0", KAFKA_MB) as disk,
        a_scene(name, folder, quick, kafka=three_brokers, replication=3) as scene,
    ):
        broker = scene.kafka[0]
        for _ in scene.faults(3):
            disk.fill()
            scene.season.play(AT_ONCE)
            wait_until(
                lambda: _ended(scene), "the broker has ended", moves=scene.season.finished.moves
            )
            scene.season.play(AT_ONCE)
            scene.recover()  # two are enough
            disk.free()
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
    before = os.environ.get("TMPDIR")
    with small_disk(folder / "tmp", 1) as disk:
        disk.fill()
        os.environ["TMPDIR"] = str(folder / "tmp")
        try:
            with a_scene(name, folder, quick) as scene:
                for _ in scene.faults(3):
                    victim = scene.random.choice(scene.crew.workers)
                    scene.crew.kill(victim)
                return scene.outcome()
        finally:
            os.environ.pop("TMPDIR")
            if before is not None:
                os.environ["TMPDIR"] = before
