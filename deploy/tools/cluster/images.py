"""The images that the cluster runs, as archives that containerd imports: ours, Kafka and Redis, and
those that Kubernetes itself needs.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cluster.binaries import BINARIES
from cluster.node import PAUSE
from containers import servers
from containers.engine import Engine
from containers.servers import Recipe
from local.tools import LocalServerError

OURS: Final = "localhost/stream-rater:0.1.0"
COREDNS: Final = "localhost/coredns:1"
FOLDER: Final = BINARIES / "images"


def ensure(engine: Engine, say: Callable[[str], None]) -> str:
    """Make an archive of each image. Returns a sentence on what was done."""
    if not engine.has(OURS):
        raise LocalServerError(f"no image {OURS}: run `make image`")
    kafka, redis, _ = servers.RECIPES
    recipes = (alone("pause", PAUSE), alone("coredns", COREDNS), kafka, redis)
    made = [recipe.name for recipe in recipes if servers.ensure(engine, recipe, say)]
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in (OURS, PAUSE, COREDNS, kafka.name, redis.name):
        identity = engine.run("image", "inspect", "--format={{.Id}}", name).strip()
        archive = FOLDER / f"{name.rpartition('/')[2].replace(':', '-')}-{identity[-12:]}.tar"
        if not archive.exists():
            for old in FOLDER.glob(f"{archive.name.rpartition('-')[0]}-*"):
                old.unlink()
            engine.run("save", f"--output={archive}.new", name)
            Path(f"{archive}.new").rename(archive)
    return f"made {', '.join(made)}" if made else "made before"


def alone(program: str, name: str) -> Recipe:
    """The recipe of an image with one program that needs no library."""

    def fill(folder: Path) -> None:
        folder.mkdir(parents=True)
        shutil.copy(BINARIES / program, folder / program)

    settings = (f'ENTRYPOINT ["/{program}"]', "USER 65532:65532")
    return Recipe(name, fill, settings, (BINARIES / program,))
