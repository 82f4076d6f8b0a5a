"""Runs within the cluster's namespaces: starts the cluster, runs all checks, and stops it. The rows
go to `rows.json` in the folder.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from cluster import binaries, images
from cluster.binaries import BINARIES, GATEWAY, KEDA, PROMETHEUS_OPERATOR
from cluster.checks import Checks
from cluster.kubectl import Kube
from cluster.node import NODE, Node
from containers.report import Failed, Report, wait_for
from local.go_tools import HELM
from local.tools import ROOT, LocalServerError

MANIFESTS: Final = Path(__file__).parent / "manifests"
READY_S: Final = 180.0


def main() -> int:
    """Run all steps in order. If one fails that others need, the run ends."""
    folder = Path(sys.argv[1])
    report = Report("kubernetes")
    node = Node(folder)
    kube = Kube(BINARIES / "kubectl", HELM.path, node.admin, ROOT / "helm" / "stream-rater")
    try:
        if brought_up(report, node, kube):
            Checks(report, kube, folder).all()
    except KeyboardInterrupt:
        report.failed += 1
    finally:
        report.check("stopped", lambda: stopped(node, kube))
        outcome = {"rows": report.rows, "failed": report.failed}
        (folder / "rows.json").write_text(json.dumps(outcome), encoding="utf-8")
    return min(report.failed, 1)


def brought_up(report: Report, node: Node, kube: Kube) -> bool:
    """Start a node with names, Services, NetworkPolicy, Kafka and Redis. Whether it is ready."""
    steps = (
        ("control plane", lambda: control_plane(node)),
        ("containerd, images", lambda: containers(node)),
        ("node ready", lambda: node_ready(node, kube)),
        ("CoreDNS", lambda: applied(kube, "dns", "kube-system", "deployment/coredns")),
        ("NetworkPolicy plugin", lambda: policies(node)),
        ("Kafka, Redis", lambda: applied(kube, "servers", "servers", "statefulset/kafka",
                                         "statefulset/redis")),
        ("CRDs", lambda: definitions(kube)),
        ("KEDA", lambda: scaler(node, kube)),
    )  # fmt: skip
    return all(report.check(name, what) for name, what in steps)


def control_plane(node: Node) -> str:
    """Start etcd, kube-apiserver, kube-controller-manager and kube-scheduler."""
    started(node.start_control_plane)
    return ", ".join(server.log.stem for server in node.running)


def containers(node: Node) -> str:
    """Start containerd, and import every image."""
    started(node.start_containers)
    archives = sorted(images.FOLDER.glob("*.tar"))
    for archive in archives:
        command = ["ctr", f"--address={node.containerd}", "--namespace=k8s.io", "images", "import"]
        done = subprocess.run([*command, str(archive)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"{archive.name}: {done.stderr.strip()[-300:]}")
    return f"{len(archives)} images imported"


def node_ready(node: Node, kube: Kube) -> str:
    """Start kubelet and kube-proxy, and wait until the node is ready."""
    started(node.start_kubelet)
    wait_for(partial(kube.has, "node", NODE), "kubelet registers the node", READY_S)
    kube.run("wait", f"node/{NODE}", "--for=condition=Ready", f"--timeout={READY_S:.0f}s")
    info = kube.get("node", NODE)["status"]["nodeInfo"]
    return f"{info['kubeletVersion']}, {info['containerRuntimeVersion']}, kube-proxy (iptables)"


def policies(node: Node) -> str:
    """Start kube-router, only as a firewall."""
    started(node.start_policies)
    return "kube-router"


def applied(kube: Kube, manifest: str, namespace: str, *waited: str) -> str:
    """Apply a file of `manifests/`, and wait until what it makes is ready."""
    kube.anywhere("apply", f"--filename={MANIFESTS / manifest}.yaml")
    for each in waited:
        wait = ("rollout", "status", each, f"--namespace={namespace}", f"--timeout={READY_S:.0f}s")
        kube.anywhere(*wait)
    return f"{', '.join(waited)} ready"


def definitions(kube: Kube) -> str:
    """Define the resources of the Prometheus operator and of the Gateway API."""
    return "; ".join(defined(kube, *each) for each in (PROMETHEUS_OPERATOR, GATEWAY))


def scaler(node: Node, kube: Kube) -> str:
    """Start KEDA, and wait for its metrics in the API."""
    definitions = defined(kube, *KEDA)
    kube.anywhere("apply", f"--filename={MANIFESTS / 'keda.yaml'}")
    started(node.start_scaler)
    service = ("apiservice/v1beta1.external.metrics.k8s.io", "--for=condition=Available")
    kube.run("wait", *service, f"--timeout={READY_S:.0f}s")
    return f"{KEDA[0].rpartition('@')[2]}; {definitions}"


def defined(kube: Kube, *module: Any) -> str:
    """Apply the definitions of a module, and wait until they hold."""
    names = []
    for path in binaries.definitions(*module):
        kube.anywhere("apply", "--server-side", f"--filename={path}")
        name = yaml.safe_load(path.read_text(encoding="utf-8"))["metadata"]["name"]
        wait_for(partial(kube.has, f"crd/{name}"), name, 30.0)
        kube.run("wait", f"crd/{name}", "--for=condition=Established", "--timeout=60s")
        names.append(name.partition(".")[0])
    return f"{', '.join(names)} established"


def stopped(node: Node, kube: Kube) -> str:
    """Delete and stop everything in order. The kernel ends the rest."""
    if any(server.log.stem == "kubelet" for server in node.running):
        kube.tried("delete", "namespace", "games", "servers", "--timeout=60s")
    node.stop()
    return f"{len(node.running)} processes"


def started(start: Callable[[], None]) -> None:
    """Start servers. Raises Failed with their message if they do not start."""
    try:
        start()
    except LocalServerError as error:
        raise Failed(" / ".join(str(error).splitlines())[-600:]) from None


if __name__ == "__main__":
    sys.exit(main())
