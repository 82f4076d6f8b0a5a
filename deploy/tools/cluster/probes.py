"""Probes the cluster from within: pods of our image try what must work and what must not."""

import json
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from cluster import images
from cluster.kubectl import RELEASE, Kube
from containers.report import Failed, wait_for
from stream_rater.columns.sharding import partition_of

TOPIC: Final = "round-completed"
KAFKA: Final = "kafka.servers:9092"
POD: Final = "probe"
CONNECT: Final = """
import socket, sys
for each in sys.argv[1:]:
    host, _, port = each.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 4.0).close()
        print(each, "open")
    except OSError as error:
        print(each, "shut", type(error).__name__)
"""
PRIVILEGED: Final[dict[str, Any]] = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "privileged"},
    "spec": {"containers": [{"name": "x", "image": images.OURS,
                             "securityContext": {"privileged": True}}]},
}  # fmt: skip


class Probes:
    """The probes. Their pods run in the namespace of the release."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def privileged_refused(self) -> str:
        """A pod with more rights than the standard allows is not even created."""
        done = self._kube.tried("create", "--filename=-", given=json.dumps(PRIVILEGED))
        if done.returncode == 0 or 'violates PodSecurity "restricted' not in done.stderr:
            raise Failed(f"taken, or refused otherwise: {done.stderr[-200:]}")
        return "a privileged pod is refused: violates PodSecurity restricted"

    def names(self) -> str:
        """A pod finds Kafka and Redis by name, and reaches them through their Services."""
        output = self._from_a_pod("kafka.servers:9092", "redis.servers:6379")
        if output != ["open", "open"]:
            raise Failed(f"kafka.servers, redis.servers: {output}")
        return "kafka.servers and redis.servers are found and answer"

    def policy(self) -> str:
        """Pods without permission reach no worker; a worker reaches only what it needs."""
        pod = self._kube.pods("updater")[0]
        worker = f"{pod['status']['podIP']}:9108"
        api = "10.96.0.1:443"
        stranger = self._from_a_pod(worker, api)
        command = ("exec", pod["metadata"]["name"], "--", "python", "-c", CONNECT)
        output = self._kube.run(*command, "kafka.servers:9092", "redis.servers:6379", api)
        own = [line.split()[1] for line in output.splitlines()]
        if stranger != ["shut", "open"] or own != ["open", "open", "shut"]:
            raise Failed(f"a stranger to a worker and the API: {stranger}; a worker to Kafka, "
                         f"Redis and the API: {own}")  # fmt: skip
        return "a pod without a name reaches no worker; a worker reaches Kafka and Redis, no API"

    def _from_a_pod(self, *addresses: str) -> list[str]:
        """For each address, whether a pod of no release can connect."""
        self._kube.run("create", "--filename=-", given=json.dumps(pod(POD, addresses)))
        try:
            wait_for(partial(self._kube.ended, POD), "the probe ends", 60.0)
            return [line.split()[1] for line in self._kube.run("logs", POD).splitlines()]
        finally:
            self._kube.run("delete", "pod", POD, "--wait=true")

    def partition_end(self, ladder: str) -> int:
        """The end of the partition that a ladder's rounds go to."""
        consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": f"{RELEASE}-probe"})
        try:
            count = len(consumer.list_topics(TOPIC, timeout=10.0).topics[TOPIC].partitions)
            where = TopicPartition(TOPIC, partition_of(ladder, count))
            return int(consumer.get_watermark_offsets(where, timeout=10.0)[1])
        finally:
            consumer.close()


def pod(name: str, addresses: tuple[str, ...]) -> dict[str, Any]:
    """A pod that tries to connect, under the restricted standard."""
    container = {
        "name": "probe", "image": images.OURS, "imagePullPolicy": "Never",
        "command": ["python", "-c", CONNECT, *addresses],
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }  # fmt: skip
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"restartPolicy": "Never", "securityContext": security, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
