"""Makes a pod that runs one command of stream-rater beside a release. Image, settings and secrets
are those of one of the release's StatefulSets, which may be scaled to 0.

kubectl get statefulset rater-stream-rater-updater --output json |
    python3 deploy/operator_pod.py rebuild --replace | kubectl create --filename -

Needs nothing but Python: it is for whoever has `kubectl`.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

NAME = "stream-rater-operator"
COMPONENT = "app.kubernetes.io/component"
OF_WORKERS = ("startupProbe", "livenessProbe", "readinessProbe", "ports", "lifecycle")
IDENTITY = "STREAM_RATER_INSTANCE_ID"
MEMORY = {"requests": {"memory": "2Gi"}, "limits": {"memory": "8Gi"}}
"""`verify` and `rebuild` hold every belief."""

Resource = dict[str, Any]


def operator_pod(workers: Resource, command: Sequence[str]) -> Resource:
    """The pod, as it would be one of these workers, to run this instead and to end with it.

    Raises ValueError for anything but a StatefulSet of the chart's.
    """
    if workers.get("kind") != "StatefulSet":
        raise ValueError(f"a StatefulSet is wanted, not {workers.get('kind')}")
    template = workers["spec"]["template"]
    (worker,) = (c for c in template["spec"]["containers"] if c["name"] == "stream-rater")
    settings = worker["args"][worker["args"].index("--settings") :][:2]
    container = {name: value for name, value in worker.items() if name not in OF_WORKERS}
    container["args"] = [*command, *settings]
    container["env"] = [each for each in worker.get("env", ()) if each["name"] != IDENTITY]
    container["resources"] = MEMORY
    labels = {k: v for k, v in template["metadata"]["labels"].items() if k != COMPONENT}
    spec = {k: v for k, v in template["spec"].items() if k != "topologySpreadConstraints"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": NAME,
            "namespace": workers["metadata"].get("namespace", "default"),
            "labels": labels | {COMPONENT: "operator"},
        },
        "spec": spec | {"containers": [container], "restartPolicy": "Never"},
    }


def main() -> int:
    """Read the StatefulSet, write the pod."""
    if not sys.argv[1:]:
        print("usage: operator_pod.py COMMAND [OPTION...] < statefulset.json", file=sys.stderr)
        return 2
    try:
        pod = operator_pod(json.load(sys.stdin), sys.argv[1:])
    except (ValueError, KeyError) as error:
        print(f"operator_pod: {error}", file=sys.stderr)
        return 2
    json.dump(pod, sys.stdout, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
