"""Renders of the chart, one for each of its `ci/*-values.yaml` and for changes of them."""

import functools
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.go_tools import GO_MINIMUM, HELM, HELM_DOCS
from local.tools import ROOT

CHART = ROOT / "helm" / "stream-rater"
GOLDEN = Path(__file__).with_name("golden")
CASES = tuple(sorted(path.name.removesuffix("-values.yaml") for path in CHART.glob("ci/*.yaml")))
RELEASE, NAMESPACE = "rater", "games"

Resource = dict[str, Any]


def require_helm() -> None:
    """Skip where no Go could build Helm; fail on CI."""
    if HELM.path.exists() and HELM_DOCS.path.exists():
        return
    reason = f"no Helm: `make setup` builds it, with Go {'.'.join(map(str, GO_MINIMUM))} or newer"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def helm(*arguments: str, at: Path = CHART) -> "subprocess.CompletedProcess[str]":
    """Run Helm to its end, with no configuration of this user's."""
    require_helm()
    alone = {"PATH": os.environ["PATH"], "HELM_CONFIG_HOME": "/nonexistent", "HOME": "/nonexistent"}
    return subprocess.run(
        [HELM.path, *arguments], cwd=at, env=alone, capture_output=True, text=True, check=False
    )


def values_of(case: str) -> str:
    """The option that gives the values of a case."""
    return f"--values=ci/{case}-values.yaml"


@functools.cache
def rendered(case: str, *changes: str) -> str:
    """What the chart makes of a case's values, changed by `key=value` pairs."""
    options = [f"--set={change}" for change in changes]
    done = helm("template", RELEASE, ".", f"--namespace={NAMESPACE}", values_of(case), *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(*options: str) -> str:
    """Why Helm does not take these values."""
    done = helm("template", RELEASE, ".", *options)
    assert done.returncode != 0, f"taken: {options}"
    return done.stderr


def resources(case: str, *changes: str) -> list[Resource]:
    return [each for each in yaml.load_all(rendered(case, *changes), yaml.CSafeLoader) if each]


def of_kind(kind: str, case: str, *changes: str) -> list[Resource]:
    return [each for each in resources(case, *changes) if each["kind"] == kind]


def the(kind: str, case: str, *changes: str) -> Resource:
    (found,) = of_kind(kind, case, *changes)
    return found


def worker_pods(case: str, *changes: str) -> dict[str, Resource]:
    """The pod of each component, as its StatefulSet describes it."""
    return {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]
        for each in of_kind("StatefulSet", case, *changes)
    }


def files(case: str, *changes: str) -> dict[str, str]:
    """What the workers find in their configuration folder."""
    found: dict[str, str] = of_kind("ConfigMap", case, *changes)[0]["data"]
    return found


def documentation() -> str:
    """The chart's README, as helm-docs makes it from the comments in values.yaml."""
    require_helm()
    done = subprocess.run(
        [HELM_DOCS.path, "--chart-search-root=.", "--sort-values-order=file", "--dry-run"],
        cwd=CHART, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip() + "\n"
