"""A single Kafka node in KRaft mode: broker and controller in one small JVM.

Two things make its start quick, both made once by `make setup` (kafka_install.py):
- `formatted/`, an empty log directory formatted by Kafka's own StorageTool: a node starts from a
  copy with ids of its own, which spares a JVM run (0.9 s);
- `classes.jsa`, the JVM's archive of the classes a node loads (1.6 s to 0.9 s). It is only used
  by the JVM and jars that it was made with; others ignore it.

All settings that a client notices are Kafka's defaults, with one exception: a new group begins at
once. By default it waits 3 s for more members, each time that a worker, `serve` or
a command is the first of its group, and tests start some two hundred. `DEFAULTS` takes that back.
"""

import base64
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from local import kafka_probe
from local.processes import LOOPBACK, PROBE_TIMEOUT_S, Launch, Server, free_port, start_on
from local.tools import JAVA_MINIMUM, KAFKA_HOME, LocalServerError, find_java

START_TIMEOUT_S: Final = 60.0
NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})

LIBS: Final = KAFKA_HOME / "libs"
FORMATTED: Final = KAFKA_HOME / "formatted"
CLASS_ARCHIVE: Final = KAFKA_HOME / "classes.jsa"

JVM_FLAGS: Final = (
    "-Xmx512m",
    "-Xms256m",
    "-XX:TieredStopAtLevel=1",  # a local node starts often and runs for a short time
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.xml')}",
)

PROPERTIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "BROKER",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        # with one node there is one copy of everything; internal topics have few partitions
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # the one exception (see the module's docstring)
        "group.initial.rebalance.delay.ms": "0",
        # small: the cleaner's default buffer is 128 MiB
        "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
    }
)


DEFAULTS: Final[Mapping[str, str]] = MappingProxyType({"group.initial.rebalance.delay.ms": "3000"})
"""With these properties every setting that a client notices is Kafka's default."""


def start_kafka(
    directory: Path,
    *,
    port: int | None = None,
    properties: Mapping[str, str] = NO_PROPERTIES,
    outlive: bool = False,
) -> Server:
    """Start Kafka with its data in `directory` and return once it answers (about a second).

    `properties` override PROPERTIES. Data in `directory` are kept. With `outlive`, the server
    runs on after this process.
    """
    java = find_java()
    if java is None:
        raise LocalServerError(f"no Java {JAVA_MINIMUM} or newer: run `make setup`")
    if not FORMATTED.is_dir():
        raise LocalServerError(f"Kafka is not installed in {KAFKA_HOME}: run `make setup`")

    def start(on_port: int) -> Server:
        return Server(node_launch(java, directory, on_port, properties, outlive=outlive)).start()

    return start_on(port, start)


def node_launch(
    java: Path,
    directory: Path,
    port: int,
    properties: Mapping[str, str] = NO_PROPERTIES,
    *,
    jvm_flags: tuple[str, ...] = (),
    outlive: bool = False,
) -> Launch:
    """Write what a node needs into `directory` and return how to start it."""
    directory.mkdir(parents=True, exist_ok=True)
    data = directory.resolve() / "data"
    configuration = directory.resolve() / "kafka.properties"
    text = render_properties(data, port, free_port(), properties)
    configuration.write_text(text, encoding="utf-8")
    ensure_formatted(data)
    return Launch(
        name="kafka",
        command=java_command(java, "kafka.Kafka", str(configuration), jvm_flags=jvm_flags),
        directory=directory,
        port=port,
        answers=lambda port: kafka_probe.ready(LOOPBACK, port, PROBE_TIMEOUT_S),
        start_timeout_s=START_TIMEOUT_S,
        outlive=outlive,
    )


def java_command(
    java: Path, main_class: str, *arguments: str, jvm_flags: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The command line that runs a class of Kafka's."""
    # In a fixed order: the class archive is only good for the class path it was made with.
    class_path = ":".join(str(jar) for jar in sorted(LIBS.glob("*.jar")))
    archive = (f"-XX:SharedArchiveFile={CLASS_ARCHIVE}",) if CLASS_ARCHIVE.exists() else ()
    flags = (*JVM_FLAGS, *archive, *jvm_flags)
    return (str(java), *flags, "-cp", class_path, main_class, *arguments)


def render_properties(
    data: Path, port: int, controller_port: int, properties: Mapping[str, str]
) -> str:
    """The text of the node's properties."""
    broker, controller = f"{LOOPBACK}:{port}", f"{LOOPBACK}:{controller_port}"
    merged = {
        **PROPERTIES,
        "listeners": f"BROKER://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"BROKER://{broker}",
        "controller.quorum.voters": f"1@{controller}",
        "log.dirs": str(data),
        **properties,
    }
    return "".join(f"{key}={value}\n" for key, value in merged.items())


def ensure_formatted(data: Path) -> None:
    """Make `data` a formatted log directory, from the template, unless it already is one."""
    if (data / "meta.properties").exists():
        return
    shutil.copytree(FORMATTED, data, dirs_exist_ok=True)
    # Written last: if it is there, the copy is complete.
    (data / "meta.properties").write_text(
        f"version=1\nnode.id=1\ncluster.id={random_id()}\ndirectory.id={random_id()}\n",
        encoding="utf-8",
    )


def random_id() -> str:
    """A random id as Kafka writes them: 16 bytes in URL-safe base64, no leading dash."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
    return "A" + text[1:] if text.startswith("-") else text
