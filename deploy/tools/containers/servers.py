"""Images of Kafka, Redis and Prometheus, made of the programs that `make up` runs here: for a
machine that reaches no registry. Each holds its program, the libraries it loads, and no shell.

They have the names that deploy/compose.yaml gives, and stand in the place of those images.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from image_parts import GROUPS, OF_THE_SYSTEM, USERS, Root, make_root, needed_by

from containers.base import FROM_A_REGISTRY, LABEL, made_here
from containers.engine import Engine
from local.kafka_node import LIBS
from local.stamps import digest
from local.tools import (
    KAFKA_VERSION,
    LocalServerError,
    find_java,
    find_prometheus,
    find_redis_server,
)

HERE: Final = Path(__file__).parent
SOURCES: Final = (
    HERE / "servers.py", HERE / "kafka_entry.py", HERE.parent / "image_parts.py",
    HERE.parent / "local" / "kafka_probe.py", HERE.parent / "local" / "log4j2.xml",
)  # fmt: skip
NOT_RUN: Final = {"jmods", "src.zip", "demo", "man", "legal", "docs"}
KAFKA: Final = f"docker.io/apache/kafka:{KAFKA_VERSION}"
REDIS: Final = "docker.io/library/redis:7.0"
PROMETHEUS: Final = "docker.io/prom/prometheus:v3.5.0"


@dataclass(frozen=True)
class Recipe:
    """How to make an image: what fills its root, and what it starts."""

    name: str
    fill: Callable[[Path], None]
    settings: tuple[str, ...]
    """Its settings, as Dockerfile instructions."""
    programs: tuple[Path, ...] = ()
    """Files of this machine. If one changes, the image is made again."""

    @property
    def label(self) -> str:
        """The sources of the image, as a label."""
        return f"programs-{digest(KAFKA_VERSION, *SOURCES, *self.programs)}"


def ensure(engine: Engine, recipe: Recipe, say: Callable[[str], None]) -> bool:
    """Make an image, unless it was made of the same files. Returns whether it was made."""
    had = made_here(engine, recipe.name)
    if had in (FROM_A_REGISTRY, recipe.label):
        return False
    if had is not None:
        engine.tried("image", "rm", recipe.name)
    say(f"making {recipe.name} of this machine's programs")
    make(engine, recipe)
    return True


def make(engine: Engine, recipe: Recipe) -> None:
    """Fill a folder, and make one layer of it."""
    with tempfile.TemporaryDirectory(prefix="stream-rater-server-") as folder:
        root, archive = Path(folder, "root"), Path(folder, "root.tar")
        recipe.fill(root)
        command = ["tar", "--create", f"--file={archive}", f"--directory={root}", "."]
        subprocess.run(command, check=True)
        changes = [
            f"--change={each}" for each in (*recipe.settings, f"LABEL {LABEL}={recipe.label}")
        ]
        engine.run("import", *changes, str(archive), recipe.name)


def fill_redis(folder: Path) -> None:
    """Copy Redis' server and command line client."""
    server = _found(find_redis_server(), "redis-server")
    programs = [server, _found(shutil.which("redis-cli"), "redis-cli")]
    _with_libraries(folder, programs)
    _writable(folder / "data")


def fill_prometheus(folder: Path) -> None:
    """Copy Prometheus' server, which needs few libraries."""
    _with_libraries(folder, [_found(find_prometheus(), "prometheus")])
    _writable(folder / "prometheus")


def fill_kafka(folder: Path) -> None:
    """Copy Java, Kafka's jars, and Python for the entry program."""
    java = _found(find_java(), "java").resolve()
    home = java.parents[1]
    with tempfile.TemporaryDirectory() as nothing:
        (Path(nothing) / "bin").mkdir()
        make_root(Path(nothing), folder)
    root = Root(folder)
    for each in sorted(home.iterdir()):
        if each.name not in NOT_RUN:
            root.bring(str(each))
    programs = [java, *home.glob("lib/*.so"), *home.glob("lib/server/*.so")]
    for name in sorted(needed_by(programs)):
        root.bring(name)
    _link(folder / "usr/bin/java", str(java))
    _link(folder / "usr/bin/python3", _python(folder))
    target = folder / "opt/kafka"
    (target / "bin").mkdir(parents=True)
    shutil.copytree(LIBS, target / "libs")
    shutil.copy(SOURCES[-1], target / "log4j2.xml")
    shutil.copy(HERE.parent / "local" / "kafka_probe.py", target)
    entry = target / "entry.py"
    text = (HERE / "kafka_entry.py").read_text(encoding="utf-8")
    entry.write_text(f"#!/usr/bin/python3\n{text}", encoding="utf-8")
    entry.chmod(0o755)
    (target / "bin/kafka-broker-api-versions.sh").symlink_to("../entry.py")
    _writable(folder / "var/lib/kafka/data")


RECIPES: Final = (
    Recipe(KAFKA, fill_kafka, ('ENTRYPOINT ["/opt/kafka/entry.py"]', "USER 65532:65532",
                               "ENV PATH=/usr/bin LANG=C.UTF-8", "VOLUME /var/lib/kafka/data")),
    Recipe(REDIS, fill_redis, ('CMD ["redis-server"]', "USER 65532:65532", "ENV PATH=/usr/bin",
                               "WORKDIR /data", "VOLUME /data")),
    Recipe(PROMETHEUS, fill_prometheus, (
        'ENTRYPOINT ["/usr/bin/prometheus"]', "USER 65532:65532", "WORKDIR /prometheus",
        'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]',
    )),
)  # fmt: skip


def _with_libraries(folder: Path, programs: Sequence[Path]) -> None:
    folder.mkdir(parents=True)
    root = Root(folder)
    for name in (*map(str, programs), *sorted(needed_by(programs)), *OF_THE_SYSTEM):
        root.bring(name)
    root.write("/etc/passwd", USERS)
    root.write("/etc/group", GROUPS)
    _writable(folder / "tmp")


def _writable(folder: Path) -> None:
    """Make a folder writable for every user."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o1777)


def _link(place: Path, target: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.is_symlink() and not place.exists():
        place.symlink_to(target)


def _python(folder: Path) -> str:
    """The path in the image of the interpreter that make_root copied."""
    (found,) = [p for p in folder.rglob("bin/python3.*") if not p.is_symlink()]
    return f"/{found.relative_to(folder)}"


def _found(program: Path | str | None, name: str) -> Path:
    if program is None:
        raise LocalServerError(f"no {name} here: run `make setup`")
    return Path(program)
