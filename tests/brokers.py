"""Kafka clusters of several nodes, nodes that are reached through a proxy, and kfake."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from local import kafka_probe
from local.go_tools import find_go
from local.kafka_node import FORMATTED, random_id, start_kafka
from local.processes import LOOPBACK, PROBE_TIMEOUT_S, Launch, Server, free_port, start_on
from local.tools import ROOT
from tests.proxy import KAFKA, Proxy

THREE_COPIES = {
    "default.replication.factor": "3", "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}  # fmt: skip
QUICK_FAILOVER = {
    # Killed members leave sooner: a session must have at least 6 s by default.
    "group.min.session.timeout.ms": "1000",
    # The same for the group protocol `consumer`, whose members do not choose.
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    # After a SIGKILL the controller lets the node join again only when its old session is over
    # (default 9 s).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""For faults that are measured: a broker's own defaults would take up most of each recovery."""
PROTOCOLS = "BROKER:PLAINTEXT,PROXY:PLAINTEXT,CONTROLLER:PLAINTEXT"


Nodes = AbstractContextManager[list[Server]]


def three_brokers(folder: Path, properties: Mapping[str, str] = {}) -> Nodes:
    """Three nodes of one cluster, all topics on all of them."""
    return brokers(folder, 3, THREE_COPIES | dict(properties))


def behind_a_proxy(
    folder: Path, proxy: Proxy, routes: Sequence[str] = (KAFKA,), properties: Mapping[str, str] = {}
) -> Nodes:
    """One node behind each route of the proxy. Clients of a route reach every node by the proxy."""
    return brokers(folder, len(routes), properties, proxy=proxy, routes=routes)


@contextmanager
def brokers(
    folder: Path, count: int, properties: Mapping[str, str] = {},
    *, proxy: Proxy | None = None, routes: Sequence[str] = (),
) -> Iterator[list[Server]]:  # fmt: skip
    """`count` nodes of one cluster, each of which is broker and controller."""
    controllers = [f"{LOOPBACK}:{free_port()}" for _ in range(count)]
    cluster = random_id()
    own = {
        "listener.security.protocol.map": PROTOCOLS,
        "controller.quorum.voters": ",".join(f"{i + 1}@{c}" for i, c in enumerate(controllers)),
        **properties,
    }

    def start(i: int) -> Server:
        data, port = folder / str(i) / "data", free_port()
        shutil.copytree(FORMATTED, data, dirs_exist_ok=True)
        (data / "meta.properties").write_text(
            f"version=1\nnode.id={i + 1}\ncluster.id={cluster}\ndirectory.id={random_id()}\n"
        )
        listeners, advertised = [f"BROKER://{LOOPBACK}:{port}"], [f"BROKER://{LOOPBACK}:{port}"]
        if proxy is not None:
            behind = f"{LOOPBACK}:{free_port()}"
            proxy.lead(routes[i], behind)
            listeners.append(f"PROXY://{behind}")
            advertised.append(f"PROXY://{proxy.address(routes[i])}")
        where = {
            "node.id": str(i + 1),
            "listeners": ",".join([*listeners, f"CONTROLLER://{controllers[i]}"]),
            "advertised.listeners": ",".join(advertised),
        }
        return start_kafka(folder / str(i), port=port, properties=own | where)

    with ExitStack() as stack, ThreadPoolExecutor(count) as pool:
        nodes = [stack.enter_context(node) for node in pool.map(start, range(count))]
        try:
            yield nodes
        finally:
            for node in nodes:  # the last ones cannot stop: they have no quorum to ask
                node.kill()


def kfake(folder: Path) -> Server:
    """The broker of `tests/kfake`, which takes Go."""
    program = str(folder / "kfake")
    build = find_go() or "go", "build", "-o", program, "."
    subprocess.run(build, cwd=ROOT / "tests" / "kfake", check=True)

    def answers(port: int) -> bool:
        return kafka_probe.ready(LOOPBACK, port, PROBE_TIMEOUT_S)

    return start_on(
        None, lambda port: Server(
            Launch("kfake", (program, str(port)), folder, port, answers, 30.0)
        ).start(),
    )  # fmt: skip
