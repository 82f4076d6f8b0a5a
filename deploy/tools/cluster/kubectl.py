"""kubectl and Helm, as the documents call them."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from containers.report import Failed

NAMESPACE: Final = "games"
RELEASE: Final = "rater"


@dataclass(frozen=True)
class Kube:
    """A cluster, with the rights of its administrator."""

    kubectl: Path
    helm: Path
    configuration: Path
    chart: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment for programs that call the cluster."""
        home = str(self.configuration.parent)
        return {**os.environ, "KUBECONFIG": str(self.configuration), "HOME": home}

    def tried(
        self, *arguments: str, given: str = "", timeout_s: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl in the namespace of the examples. It may fail."""
        return self._run(
            [str(self.kubectl), "--namespace", NAMESPACE, *arguments], given, timeout_s
        )

    def run(self, *arguments: str, given: str = "", timeout_s: float = 300.0) -> str:
        """What kubectl prints in that namespace. Raises Failed with its last lines if it fails."""
        return _output_of(self.tried(*arguments, given=given, timeout_s=timeout_s))

    def anywhere(self, *arguments: str, timeout_s: float = 300.0) -> str:
        """What kubectl prints without a namespace. Raises Failed if it fails."""
        return _output_of(self._run([str(self.kubectl), *arguments], "", timeout_s))

    def helm_tried(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Helm. It may fail."""
        return self._run([str(self.helm), "--namespace", NAMESPACE, *arguments], "", 600.0)

    def helmed(self, *arguments: str) -> str:
        """What Helm prints. Raises Failed if it fails."""
        return _output_of(self.helm_tried(*arguments))

    def has(self, *what: str) -> bool:
        """Whether a resource exists."""
        return self.tried("get", *what).returncode == 0

    def get(self, *arguments: str) -> Any:
        """The decoded output of `kubectl get`."""
        return json.loads(self.run("get", *arguments, "--output=json"))

    def ended(self, pod: str) -> bool:
        """Whether the containers of a pod have ended, with success or not."""
        phase: str = self.get("pod", pod)["status"]["phase"]
        return phase in ("Succeeded", "Failed")

    def pods(self, component: str) -> list[dict[str, Any]]:
        """The release's pods of one component, by name."""
        selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component={component}"
        found: list[dict[str, Any]] = self.get("pods", f"--selector={selector}")["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def _run(
        self, command: list[str], given: str, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command, env=self.environment, input=given, capture_output=True, text=True,
                timeout=timeout_s, check=False, cwd=self.chart.parents[1],
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Failed(f"{Path(command[0]).name} {command[-1]}: over {timeout_s:.0f} s") from None


def _output_of(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode != 0:
        program = Path(done.args[0]).name
        raise Failed(f"{program} {' '.join(done.args[1:5])}: {done.stderr.strip()[-400:]}")
    return done.stdout


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is ready."""
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
