"""The programs of the cluster, built by Go once and kept in `.servers`: Kubernetes, etcd, CoreDNS,
kube-router, KEDA and the pause program of pods.

Each folder in `go/` is a Go module that names its tools. Its go.sum has the hash of every source.
Definitions of the resources of KEDA, the Prometheus operator and the Gateway API come from their
own modules.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.go_tools import GO_MINIMUM, describe_found, find_go
from local.stamps import Stamp, digest
from local.tools import SERVERS, LocalServerError

MODULES: Final = Path(__file__).parent / "go"
BINARIES: Final = SERVERS / "kubernetes"
KUBERNETES_VERSION: Final = "1.34.4"
BUILD_TIMEOUT_S: Final = 5400.0
PROMETHEUS_OPERATOR: Final = (
    "github.com/prometheus-operator/prometheus-operator@v0.85.0",
    "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
    (
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ),
)
GATEWAY: Final = (
    "sigs.k8s.io/gateway-api@v1.4.0",
    "h1:ZwlNM6zOHq0h3WUX2gfByPs2yAEsy/EenYJB78jpQfQ=",
    ("config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",),
)
KEDA: Final = (
    "github.com/kedacore/keda/v2@v2.21.0",
    "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
    (
        "config/crd/bases/keda.sh_scaledobjects.yaml",
        "config/crd/bases/keda.sh_scaledjobs.yaml",
        "config/crd/bases/keda.sh_triggerauthentications.yaml",
        "config/crd/bases/keda.sh_clustertriggerauthentications.yaml",
        "config/crd/bases/eventing.keda.sh_cloudeventsources.yaml",
        "config/crd/bases/eventing.keda.sh_clustercloudeventsources.yaml",
    ),
)
"""Modules that define resources: version, hash of the sources, files."""
VERSION: Final = "k8s.io/component-base/version"
FLAGS: Final = (
    "-trimpath", "-ldflags",
    f"-s -w -X {VERSION}.gitVersion=v{KUBERNETES_VERSION} -X {VERSION}.gitMajor=1 "
    f"-X {VERSION}.gitMinor={KUBERNETES_VERSION.split('.')[1]}",
)  # fmt: skip


@dataclass(frozen=True)
class Module:
    """A folder of `go/`, and the programs that are built from it."""

    name: str
    programs: tuple[str, ...]
    what: str = "tool"
    """The argument of `go build`."""
    static: bool = False
    """Whether the programs run in images without libraries."""

    @property
    def sources(self) -> tuple[Path, ...]:
        """The files that say which sources the programs are built from."""
        return tuple(MODULES / self.name / file for file in ("go.mod", "go.sum", "main.go"))


ALL: Final = (
    Module("pause", ("pause",), ".", static=True),
    Module("coredns", ("coredns",), static=True),
    Module("kube-router", ("kube-router",)),
    Module("keda", ("adapter", "operator")),
    Module(
        "kubernetes",
        (
            "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy",
            "kubectl", "server",
        ),
    ),
)  # fmt: skip
"""`server` is etcd, `operator` and `adapter` are KEDA's."""


def ensure(say: Callable[[str], None]) -> str:
    """Build all programs that are missing, and download the definitions: the cluster has no
    network. Returns a sentence on what was done."""
    go = find_go()
    if go is None:
        wanted = ".".join(map(str, GO_MINIMUM))
        raise LocalServerError(f"no Go {wanted} or newer ({describe_found()})")
    built = [module.name for module in ALL if build(go, module, say)]
    for each in (PROMETHEUS_OPERATOR, GATEWAY, KEDA):
        definitions(*each)
    return f"built {', '.join(built)}" if built else "built before"


def build(go: Path, module: Module, say: Callable[[str], None]) -> bool:
    """Build one module's programs unless they are there. Returns whether any was built."""
    stamp, wanted = Stamp(BINARIES / f"{module.name}.stamp"), digest(*FLAGS, *module.sources)
    if stamp.is_current(wanted) and all((BINARIES / each).exists() for each in module.programs):
        return False
    say(f"building {module.name} with Go (once; Kubernetes and KEDA take many minutes)")
    fresh = BINARIES / f"{module.name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    done = subprocess.run(
        ["nice", "-n", "10", str(go), "build", *FLAGS, "-o", f"{fresh}/", module.what],
        cwd=MODULES / module.name,
        env=environment() | ({"CGO_ENABLED": "0"} if module.static else {}),
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise LocalServerError(f"Go could not build {module.name}: {reason}")
    for each in module.programs:
        (fresh / each).rename(BINARIES / each)
    shutil.rmtree(fresh)
    stamp.write(wanted)
    return True


def definitions(name: str, wanted: str, files: Sequence[str]) -> list[Path]:
    """The paths of files of a Go module, whose sources must have the wanted hash."""
    go = find_go()
    assert go is not None, "the programs come first"
    done = subprocess.run(
        [str(go), "mod", "download", "-json", name],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    module = json.loads(done.stdout or "{}")
    if module.get("Sum") != wanted:
        raise LocalServerError(f"{name}: {module.get('Error', 'other sources than expected')}")
    return [Path(module["Dir"], each) for each in files]


def environment() -> dict[str, str]:
    """Our environment, without variables that make Go cross-compile."""
    kept = {n: v for n, v in os.environ.items() if n not in ("GOOS", "GOARCH", "GOFLAGS")}
    return {**kept, "GOTOOLCHAIN": "local", "GOWORK": "off"}
