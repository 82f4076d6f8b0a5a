"""The fault of `serve`: one of two processes is killed, while a recorder asks both."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from local.processes import free_port
from tests.chaos.scene import AT_ONCE, Outcome, Scene, a_scene
from tests.chaos.standalone import Host
from tests.integration.processes import WorkerProcess, wait_until

PROCESSES = 2
ANSWERS = 20  # the answers of each process that are waited for while something is broken
REQUESTS = "stream_rater_serve_requests_total"


@contextmanager
def started(scene: Scene, apis: Sequence[str], folder: Path) -> Iterator[list[Host]]:
    """A ready `serve` process at each address, with an index of its own."""
    with ExitStack() as stack:
        doors = []
        for number, address in enumerate(apis):
            place = folder / f"api-{number}"
            place.mkdir()
            settings = msgspec.structs.replace(
                scene.settings, serve=address, index=str(place / "index"), serve_rate=0.0
            )
            door = Host(settings, place, "serve", module=scene.crew.module)
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


def wait_until_all_answer(doors: Sequence[Host]) -> None:
    for door in doors:
        door.check().wait_ready()
        wait_until_asked(door.check())


def serve_killed(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill one of two `serve` processes under load, and start it with or without its index."""
    apis = [f"127.0.0.1:{free_port()}" for _ in range(PROCESSES)]
    with a_scene(name, folder, quick, apis=apis) as scene, started(scene, apis, folder) as doors:
        scene.season.play(AT_ONCE)
        scene.recover()
        for i in range(scene.times(4)):
            victim, other = doors[i % PROCESSES], doors[1 - i % PROCESSES]
            wait_until_all_answer(doors)
            scene.load()
            with scene.fault():
                wait_until_asked(other.check())
                victim.kill()
                if i // PROCESSES % 2:
                    shutil.rmtree(folder / f"api-{i % PROCESSES}" / "index")
                scene.season.play(AT_ONCE // 4)
                wait_until_asked(other.check())
                victim.start()
        wait_until_all_answer(doors)
        return scene.outcome()
