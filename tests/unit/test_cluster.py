"""What `make kubernetes` knows without a cluster: its files fit the chart, its load counts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cluster import images, inside, node
from cluster.checks import CHANGE, CHART, LADDERS, VALUES
from cluster.init import HOSTS
from containers import servers
from containers.load import Load
from containers.report import Failed
from demonstration.figures import Phase
from local.tools import ROOT
from stream_rater.config.files import read_ladders

SCHEMA = yaml.safe_load((ROOT / CHART / "values.schema.json").read_text())
OWN = yaml.safe_load((ROOT / VALUES.partition("=")[2]).read_text())


def manifests() -> list[dict[str, Any]]:
    """Everything that is applied."""
    files = sorted(inside.MANIFESTS.glob("*.yaml"))
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


def test_its_values_are_values_of_the_chart() -> None:
    """By the chart's own schema."""
    jsonschema.validate(OWN, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**OWN, "settings": {"shards": 0}}, SCHEMA)


def test_no_pod_runs_an_image_that_is_not_imported() -> None:
    """Nothing can be pulled there."""
    imported = {images.OURS, node.PAUSE, images.COREDNS, servers.KAFKA, servers.REDIS}
    templates = [
        each["spec"]["template"] for each in manifests() if "template" in each.get("spec", ())
    ]
    used = [container for each in templates for container in each["spec"]["containers"]]
    assert used
    assert {each["image"] for each in used} < imported
    assert {each["imagePullPolicy"] for each in used} == {OWN["image"]["pullPolicy"]} == {"Never"}


def test_addresses_are_those_of_the_node() -> None:
    """Manifests cannot ask Python."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for each in manifests():
        by_kind.setdefault(each["kind"], []).append(each)
    service = {each["metadata"]["name"]: each["spec"]["clusterIP"] for each in by_kind["Service"]}
    assert service["kube-dns"] == node.DNS
    assert {"kafka.servers": service["kafka"], "redis.servers": service["redis"]} == HOSTS
    (slice_,) = by_kind["EndpointSlice"]
    assert slice_["endpoints"][0]["addresses"] == [node.ADDRESS]
    assert slice_["ports"][0]["port"] == node.ADAPTER_PORT


def test_games_are_under_the_restricted_standard() -> None:
    """Enforced by the API server."""
    spaces = [each["metadata"] for each in manifests() if each["kind"] == "Namespace"]
    enforced = {
        each["name"]: each.get("labels", {}).get("pod-security.kubernetes.io/enforce")
        for each in spaces
    }
    assert enforced["games"] == enforced["servers"] == "restricted"


def test_the_changed_ladders_can_be_read(tmp_path: Path) -> None:
    """Ours, with new parameters from an offset on."""
    changed = tmp_path / "changed.toml"
    changed.write_text(LADDERS.read_text() + CHANGE.format(offset=12))
    read_ladders(changed)


@dataclass
class Played(Load):
    """Reports nothing and follows nothing: rounds and events are given."""

    def _report(self) -> None:
        self._reported.set()

    def _follow(self) -> None:
        self._ready.set()


def events(*names: str) -> list[dict[str, str]]:
    """Of one round each."""
    return [{"event_id": n, "round_id": n, "completed_at": "2026-01-01T00:00:00Z"} for n in names]


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        (("a", "b"), "0 lost, 0 doubled"),
        (("a",), "1 lost, 0 doubled"),
        (("a", "b", "b"), "0 lost, 1 doubled"),
    ],
)
def test_what_is_lost_or_doubled_fails(tmp_path: Path, seen: tuple[str, ...], problem: str) -> None:
    """And what is neither does not."""
    with Played("nowhere:1", tmp_path, rounds=2, expected=2, phase=Phase(0.0)) as load:
        load.phase.take(events(*seen), 1.8e9)
        if len(seen) == len(set(seen)) == load.expected:
            assert problem in load.finish()
        else:
            with pytest.raises(Failed, match=problem):
                load.finish()


def test_a_load_that_saw_nothing_fails(tmp_path: Path) -> None:
    """No rounds are no proof."""
    with Played("nowhere:1", tmp_path) as load, pytest.raises(Failed):
        load.finish()
