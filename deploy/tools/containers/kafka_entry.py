"""What the Kafka image that is made here runs: a node configured by KAFKA_... variables, as in
Apache's image, and, in place of the command for a broker's versions, one that asks whether the
broker is ready.

    entry.py                                                    the node
    kafka-broker-api-versions.sh --bootstrap-server HOST:PORT   the command, by this file's name

It needs nothing but Python, and `kafka_probe.py` beside it.
"""

import base64
import importlib
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

HOME = Path("/opt/kafka")
JAVA = "/usr/bin/java"
FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
CONFIGURATION = Path("/tmp/kafka.properties")
TIMEOUT_S = 5.0
NOT_THE_BROKERS = {"KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_CLUSTER_ID"}


def properties(environment: Mapping[str, str]) -> str:
    """Properties from variables: KAFKA_LOG_DIRS=x is log.dirs=x, `__` is `_`, and `___` is `-`."""
    lines = []
    for name, value in sorted(environment.items()):
        if name.startswith("KAFKA_") and name not in NOT_THE_BROKERS:
            words = name.removeprefix("KAFKA_").lower().replace("___", "-").replace("__", "\0")
            lines.append(f"{words.replace('_', '.').replace(chr(0), '_')}={value}\n")
    return "".join(lines)


def java(main_class: str, *arguments: str) -> list[str]:
    """The command line that runs a class of Kafka's."""
    jars = ":".join(str(jar) for jar in sorted((HOME / "libs").glob("*.jar")))
    heap = os.environ.get("KAFKA_HEAP_OPTS", "-Xmx512m -Xms256m").split()
    log = f"-Dlog4j2.configurationFile={HOME / 'log4j2.xml'}"
    return [JAVA, *heap, *FLAGS, log, "-cp", jars, main_class, *arguments]


def ready(address: str) -> bool:
    """Whether the broker at HOST:PORT is ready (`kafka_probe`)."""
    host, _, port = address.rpartition(":")
    probe = importlib.import_module("kafka_probe")  # lies beside this file in the image
    return bool(probe.ready(host, int(port), TIMEOUT_S))


def main() -> None:
    """Run the node in this process, or act as the command, by the name of this file."""
    if Path(sys.argv[0]).name.startswith("kafka-broker-api-versions"):
        sys.exit(0 if ready(sys.argv[sys.argv.index("--bootstrap-server") + 1]) else 1)
    CONFIGURATION.write_text(properties(os.environ), encoding="utf-8")
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").lstrip("-")
    given = os.environ.get("KAFKA_CLUSTER_ID") or cluster
    format_it = ("format", "--ignore-formatted", "--cluster-id", given)
    subprocess.run(
        java("kafka.tools.StorageTool", *format_it, "--config", str(CONFIGURATION)), check=True
    )
    os.execv(JAVA, java("kafka.Kafka", str(CONFIGURATION)))


if __name__ == "__main__":
    main()
