"""A node and its control plane: certificates, configurations, and the processes in their order."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trustme
import yaml

from cluster.binaries import BINARIES
from local.processes import Launch, Server, http_ok

NODE, ADDRESS = "node", "10.77.0.1"
PODS, SERVICES, DNS = "10.244.0.0/24", "10.96.0.0/16", "10.96.0.10"
API: Final = f"https://{ADDRESS}:6443"
PLUGINS: Final = Path("/usr/lib/cni")
CGROUP: Final = "/stream-rater-cluster"
PAUSE: Final = "localhost/pause:1"
ADAPTER_PORT: Final = 16443
START_S, START_PROBE_S = 90.0, 2.0
SUBJECTS: Final = {
    "apiserver": ("kube-apiserver", "kubernetes"),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
    "scheduler": ("system:kube-scheduler", "kubernetes"),
    "controller": ("system:kube-controller-manager", "kubernetes"),
    "admin": ("admin", "system:masters"),
    "front-proxy": ("front-proxy-client", "kubernetes"),
    "keda": ("keda-operator", "keda"),
}
"""By certificate, its common name (the user) and organization (the group, which has rights)."""
NAMES: Final = (
    "kubernetes", "kubernetes.default", "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local", "localhost", NODE, "127.0.0.1", ADDRESS, "10.96.0.1",
)  # fmt: skip


@dataclass
class Node:
    """The processes that run, and the folder of their files."""

    folder: Path
    running: list[Server] = field(default_factory=list)

    @property
    def admin(self) -> Path:
        """The path of the administrator's kubeconfig."""
        return self.folder / "admin.kubeconfig"

    @property
    def containerd(self) -> Path:
        """The socket of containerd, for `ctr`."""
        return self.folder / "containerd.sock"

    def start_control_plane(self) -> None:
        """Start etcd, the API, the controllers and the scheduler."""
        write_certificates(self.folder)
        for who in SUBJECTS:
            self._write(f"{who}.kubeconfig", kubeconfig(self.folder, who))
        self._start("etcd", 2379, _http("/health"), etcd(self.folder))
        self._start("apiserver", 6443, _https("/readyz"), api_server(self.folder))
        self._start("controller-manager", 10257, _https("/healthz"), controllers(self.folder))
        self._start("scheduler", 10259, _https("/healthz"), scheduler(self.folder))

    def start_containers(self) -> None:
        """Start containerd, with runc and the bridge plugin."""
        self._write("containerd.toml", containerd_settings(self.folder))
        (self.folder / "net.d").mkdir(exist_ok=True)
        self._write("net.d/10-pods.conflist", json.dumps(network(self.folder)))
        command = ("containerd", "--config", str(self.folder / "containerd.toml"))
        self._start("containerd", 0, lambda _: self._containerd_answers(), command)

    def start_kubelet(self) -> None:
        """kubelet, kube-proxy, and kube-router for NetworkPolicy."""
        self._write("kubelet.yaml", yaml.safe_dump(kubelet_settings(self.folder)))
        self._write("resolv.conf", "# no name server but the cluster's\n")
        self._write("proxy.yaml", yaml.safe_dump(proxy_settings(self.folder)))
        kubelet = (
            str(BINARIES / "kubelet"), f"--config={self.folder}/kubelet.yaml",
            f"--kubeconfig={self.folder}/kubelet.kubeconfig", f"--hostname-override={NODE}",
            f"--node-ip={ADDRESS}",
        )  # fmt: skip
        self._start("kubelet", 10248, _http("/healthz"), kubelet)
        command = (str(BINARIES / "kube-proxy"), f"--config={self.folder}/proxy.yaml")
        self._start("proxy", 10256, _http("/livez"), command)

    def start_policies(self) -> None:
        """Start kube-router, which only enforces NetworkPolicy here."""
        command = (
            str(BINARIES / "kube-router"), f"--kubeconfig={self.folder}/admin.kubeconfig",
            f"--hostname-override={NODE}", "--run-firewall=true", "--run-router=false",
            "--run-service-proxy=false", "--run-loadbalancer=false", "--health-port=20244",
            f"--service-cluster-ip-range={SERVICES}", "--metrics-port=0",
        )  # fmt: skip
        self._start("kube-router", 20244, _http("/healthz"), command)

    def start_scaler(self) -> None:
        """Start KEDA: its operator, and its adapter, which the API asks for metrics."""
        write_keda_certificates(self.folder)
        own = dict.fromkeys(("POD_NAMESPACE", "KEDA_CLUSTER_OBJECT_NAMESPACE"), "keda")
        where = {**os.environ, **own, "WATCH_NAMESPACE": ""}
        self._start("keda-operator", 8081, _http("/healthz"), keda_operator(self.folder), where)
        adapter = keda_adapter(self.folder)
        self._start("keda-adapter", ADAPTER_PORT, _answers_tls, adapter, where)

    def stop(self) -> None:
        """Stop all processes in reverse order."""
        for server in reversed(self.running):
            server.stop()

    def _containerd_answers(self) -> bool:
        command = ["ctr", f"--address={self.containerd}", "version"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _start(
        self, name: str, port: int, answers: Callable[[int], bool], command: tuple[str, ...],
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        launch = Launch(name, command, self.folder, port, answers, START_S, environment=environment)
        self.running.append(Server(launch).start())

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")


def _http(path: str, scheme: str = "http") -> Callable[[int], bool]:
    return lambda port: http_ok(f"{scheme}://127.0.0.1:{port}{path}", START_PROBE_S)


def _https(path: str) -> Callable[[int], bool]:
    """A probe by HTTPS. The certificate is not checked: only our server is on this port."""
    return _http(path, "https")


def _answers_tls(port: int) -> bool:
    """Whether a server accepts connections on the port, whomever it lets in."""
    with socket.create_connection(("127.0.0.1", port), START_PROBE_S):
        return True


def write_certificates(folder: Path) -> None:
    """Write an authority, a certificate for each component, and a key for service accounts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    authority.private_key_pem.write_to_path(str(folder / "ca.key"))
    for who, (name, organization) in SUBJECTS.items():
        issued = authority.issue_cert(*NAMES, common_name=name, organization_name=organization)
        issued.private_key_pem.write_to_path(str(folder / f"{who}.key"))
        for blob in issued.cert_chain_pems:
            blob.write_to_path(str(folder / f"{who}.crt"), append=True)
    command = ["openssl", "genrsa", "-out", str(folder / "accounts.key"), "2048"]
    subprocess.run(command, check=True, capture_output=True)


def kubeconfig(folder: Path, who: str) -> str:
    """The text of the kubeconfig by which a component reaches the API."""
    return yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "here", "cluster": {
            "server": API, "certificate-authority": f"{folder}/ca.crt"}}],
        "users": [{"name": who, "user": {
            "client-certificate": f"{folder}/{who}.crt", "client-key": f"{folder}/{who}.key"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": who}}],
    })  # fmt: skip


def asking(folder: Path, who: str) -> tuple[str, ...]:
    """Options by which a component asks the API: as whom, and for delegated authorization."""
    file = f"{folder}/{who}.kubeconfig"
    kinds = ("", "authentication-", "authorization-")
    return tuple(f"--{kind}kubeconfig={file}" for kind in kinds)


def serving(folder: Path) -> tuple[str, ...]:
    """Options for the certificate that a server shows."""
    cert, key = folder / "apiserver.crt", folder / "apiserver.key"
    return f"--tls-cert-file={cert}", f"--tls-private-key-file={key}"


def etcd(folder: Path) -> tuple[str, ...]:
    """The command of etcd. It is in the cluster's own network, so without TLS."""
    return (
        str(BINARIES / "server"), f"--data-dir={folder}/etcd", "--unsafe-no-fsync",
        "--listen-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380",
        "--advertise-client-urls=http://127.0.0.1:2379",
    )  # fmt: skip


def api_server(folder: Path) -> tuple[str, ...]:
    """The command of kube-apiserver. Pod Security admission is on by default."""
    return (
        str(BINARIES / "kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={ADDRESS}", "--secure-port=6443", "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICES}", "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction", f"--client-ca-file={folder}/ca.crt",
        *serving(folder), "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder}/accounts.key",
        f"--service-account-signing-key-file={folder}/accounts.key",
        f"--kubelet-client-certificate={folder}/admin.crt",
        f"--kubelet-client-key={folder}/admin.key", "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={folder}/ca.crt",
        f"--requestheader-allowed-names={SUBJECTS['front-proxy'][0]}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={folder}/front-proxy.crt",
        f"--proxy-client-key-file={folder}/front-proxy.key",
    )  # fmt: skip


def controllers(folder: Path) -> tuple[str, ...]:
    """The command of kube-controller-manager."""
    return (
        str(BINARIES / "kube-controller-manager"), *asking(folder, "controller"),
        "--authorization-always-allow-paths=/healthz", "--leader-elect=false", *serving(folder),
        "--use-service-account-credentials=true", f"--root-ca-file={folder}/ca.crt",
        "--horizontal-pod-autoscaler-sync-period=5s",
        f"--service-account-private-key-file={folder}/accounts.key",
    )  # fmt: skip


def scheduler(folder: Path) -> tuple[str, ...]:
    """The command of kube-scheduler."""
    return (
        str(BINARIES / "kube-scheduler"), *asking(folder, "scheduler"),
        "--authorization-always-allow-paths=/healthz", "--leader-elect=false", *serving(folder),
    )  # fmt: skip


def write_keda_certificates(folder: Path) -> None:
    """Write the certificates by which KEDA's parts know each other, under the names they expect."""
    own = folder / "keda"
    own.mkdir(exist_ok=True)
    for source, name in (("ca.crt", "ca.crt"), ("keda.crt", "tls.crt"), ("keda.key", "tls.key")):
        shutil.copy(folder / source, own / name)


def keda_operator(folder: Path) -> tuple[str, ...]:
    """The command of KEDA's operator."""
    return (
        str(BINARIES / "operator"), f"--kubeconfig={folder}/admin.kubeconfig",
        f"--cert-dir={folder}/keda", "--metrics-bind-address=127.0.0.1:18080",
        "--enable-webhook-patching=false",
    )  # fmt: skip


def keda_adapter(folder: Path) -> tuple[str, ...]:
    """The command of KEDA's adapter."""
    return (
        str(BINARIES / "adapter"), *asking(folder, "admin"), *serving(folder),
        f"--lister-kubeconfig={folder}/admin.kubeconfig", f"--cert-dir={folder}/keda",
        f"--secure-port={ADAPTER_PORT}", "--port=18081",
        "--metrics-service-address=127.0.0.1:9666", "--metrics-service-grpc-authority=localhost",
    )  # fmt: skip


def kubelet_settings(folder: Path) -> dict[str, Any]:
    """The configuration of kubelet: cgroups of version 1 are accepted, and no right over the whole
    machine is needed."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                           "x509": {"clientCAFile": f"{folder}/ca.crt"}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{folder}/kubelet.crt", "tlsPrivateKeyFile": f"{folder}/kubelet.key",
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "cgroupDriver": "cgroupfs", "cgroupRoot": CGROUP, "failCgroupV1": False,
        "featureGates": {"KubeletInUserNamespace": True}, "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False, "evictionHard": {}, "failSwapOn": False,
        "clusterDNS": [DNS], "clusterDomain": "cluster.local",
        "resolvConf": f"{folder}/resolv.conf", "podLogsDir": f"{folder}/pod-logs",
        "maxPods": 40, "syncFrequency": "5s", "nodeStatusUpdateFrequency": "5s",
    }  # fmt: skip


def proxy_settings(folder: Path) -> dict[str, Any]:
    """The configuration of kube-proxy, which leaves the machine's conntrack limits alone."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{folder}/admin.kubeconfig"},
        "clusterCIDR": PODS, "mode": "iptables", "hostnameOverride": NODE,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s",
                      "tcpCloseWaitTimeout": "0s"},
    }  # fmt: skip


def containerd_settings(folder: Path) -> str:
    """The configuration of containerd: no AppArmor, and no OOM score below our own."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{folder}/containerd"
state = "/run/containerd-state"
[grpc]
address = "{folder}/containerd.sock"
[{cri}]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
disable_apparmor = true
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.cni]
bin_dir = "{PLUGINS}"
conf_dir = "{folder}/net.d"
"""


def network(folder: Path) -> dict[str, Any]:
    """The configuration of the bridge to which pods are connected."""
    addresses = {
        "type": "host-local", "dataDir": f"{folder}/addresses",
        "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}],
    }  # fmt: skip
    bridge = {"type": "bridge", "bridge": "pods0", "isGateway": True, "hairpinMode": True}
    return {
        "cniVersion": "1.0.0", "name": "pods",
        "plugins": [bridge | {"ipam": addresses}],
    }  # fmt: skip
