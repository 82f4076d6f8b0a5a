"""What the Kafka image that is made here runs: a node told by KAFKA_... variables, as in Apache's
image, and the command that asks a broker for the versions of its API.

    entry.py                                                    the node
    kafka-broker-api-versions.sh --bootstrap-server HOST:PORT   the command, by this file's name

It needs nothing but Python and stands in the image on its own.
"""

import base64
import os
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

HOME = Path("/opt/kafka")
JAVA = "/usr/bin/java"
FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
CONFIGURATION = Path("/tmp/kafka.properties")
API_VERSIONS, TIMEOUT_S = 18, 5.0
NOT_THE_BROKERS = {"KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_CLUSTER_ID"}


def properties(environment: Mapping[str, str]) -> str:
    """KAFKA_LOG_DIRS=x is log.dirs=x; two underscores are one, three a dash."""
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


def versions(address: str) -> dict[int, tuple[int, int]]:
    """The requests that a broker understands, by their keys: lowest and highest version.

    OSError if it does not answer, ValueError if it refuses. Kafka's protocol, ApiVersions 0: size,
    key 18, version, correlation id, client id; the answer has an error code and an array.
    """
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as broker:
        request = struct.pack(">hhih", API_VERSIONS, 0, 1, -1)
        broker.sendall(struct.pack(">i", len(request)) + request)
        with broker.makefile("rb") as answer:
            (size,) = struct.unpack(">i", answer.read(4).rjust(4, b"\0"))
            told = answer.read(size)
    if len(told) < 10:
        raise OSError(f"{address} hung up")
    code, count = struct.unpack_from(">hi", told, 4)
    if code != 0:
        raise ValueError(f"{address} refused: error code {code}")
    rows = (struct.unpack_from(">hhh", told, 10 + 6 * each) for each in range(count))
    return {key: (lowest, highest) for key, lowest, highest in rows}


def main() -> None:
    """Become the node, or be the command."""
    if Path(sys.argv[0]).name.startswith("kafka-broker-api-versions"):
        try:
            print(len(versions(sys.argv[sys.argv.index("--bootstrap-server") + 1])), "requests")
        except (OSError, ValueError, LookupError) as error:
            sys.exit(f"{type(error).__name__}: {error}")
        return
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
