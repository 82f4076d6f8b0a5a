"""Many partitions, and workers that join and leave all the time while a long log is replayed."""

import time
from pathlib import Path

from tests.chaos.scene import Outcome, a_scene

PARTITIONS, WORKERS = 64, 2
EVERY_S = 5.0
BEFORE, EACH = 4_000, 200
"""The rounds that wait at the beginning, and those that come with each fault."""
TIMES = 40


def joining(name: str, folder: Path, quick: bool) -> Outcome:
    """Every five seconds a worker without a name joins, or one of those that joined leaves or is
    killed, while 64 partitions and 64 shards have a backlog."""
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
