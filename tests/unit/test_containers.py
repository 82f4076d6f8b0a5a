"""What `make image`, `make compose` and `make kubernetes` know without an engine or a cluster."""

import io
import re
import socketserver
import struct
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cluster import images, inside, node
from cluster.checks import CHANGE, CHART, LADDERS, VALUES
from cluster.init import HOSTS
from containers import compose, servers
from containers.image import DOCKERFILE, bases
from containers.kafka_entry import ready
from containers.load import Load
from containers.report import Failed, Report
from demonstration.figures import Phase
from local import kafka_probe
from local.tools import ROOT
from stream_rater.config.files import read_ladders
from tests.benchmarks.document.rows import Origin, made
from tests.benchmarks.document.tables import BY_SECTION


def test_the_bases_of_the_dockerfile() -> None:
    """But for the stages that it makes, and for none at all."""
    assert bases(DOCKERFILE.read_text()) == ["docker.io/library/python:3.11-slim-bookworm"]
    assert bases("FROM a:1 AS one\nFROM one AS two\nFROM scratch\n") == ["a:1"]


def test_a_failed_check_is_reported_and_counted() -> None:
    """And the next one is still made."""
    report = Report("test", out=io.StringIO())

    def fails() -> str:
        raise Failed("not so")

    assert not report.check("one", fails)
    assert report.check("two", lambda: "as it should be")
    assert report.failed == 1
    assert [row[:2] for row in report.rows] == [
        ("one", "FAILED: not so"),
        ("two", "as it should be"),
    ]
    head, line, first, _ = report.table().splitlines()
    assert len(head) == len(line) == len(first)


def test_every_image_of_compose_is_ours_or_can_be_made_but_grafana() -> None:
    """Under the very names that the file gives."""
    services = yaml.safe_load(compose.FILE.read_text())["services"]
    known = {each.name for each in servers.RECIPES} | {"stream-rater"}
    assert {name for name, each in services.items() if each["image"] not in known} == {"grafana"}


def test_compose_publishes_what_is_asked_there() -> None:
    """To this machine only."""
    services = yaml.safe_load(compose.FILE.read_text())["services"]
    published = {
        port.rpartition(":")[0] for each in services.values() for port in each.get("ports", ())
    }
    asked = {
        compose.KAFKA,
        *(url.removeprefix("http://") for url in (compose.API, compose.PROMETHEUS)),
    }
    assert asked <= published


def test_the_table_goes_into_the_documents(tmp_path: Path) -> None:
    """In the order of the checks."""
    report = Report("compose", out=io.StringIO())
    report.check("up", lambda: "5 | services")
    report.check("down", lambda: "nothing left")
    origin = Origin("2026-01-01 00:00", "abc", "make compose", "here")
    (row,) = made([report.figures()], origin)
    lines = BY_SECTION["compose"].markdown([row]).splitlines()
    assert [line.split(" | ")[:2] for line in lines[-2:]] == [
        ["| up", "5 / services"],
        ["| down", "nothing left"],
    ]


class Broker(socketserver.BaseRequestHandler):
    """Answers the first request with what its server says; then it hangs up."""

    def handle(self) -> None:
        """One request, one answer."""
        self.request.recv(64)
        self.request.sendall(self.server.answer)  # type: ignore[attr-defined]


def answer(body: bytes, correlation_id: int = 7) -> bytes:
    """As Kafka frames it."""
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def test_a_broker_that_does_not_work_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe of the servers here, as the image's command calls it: one that refuses, that
    answers to another request or nothing, or that gives one answer of three."""
    monkeypatch.setitem(sys.modules, "kafka_probe", kafka_probe)
    well = struct.pack(">h", 0)
    refusals = (answer(struct.pack(">h", 35)), answer(well, correlation_id=8), answer(b""))
    for reported in (*refusals, b"", answer(well)):
        with socketserver.TCPServer(("127.0.0.1", 0), Broker) as server:
            server.answer = reported  # type: ignore[attr-defined]
            threading.Thread(target=server.handle_request, daemon=True).start()
            address = f"127.0.0.1:{server.server_address[1]}"
            if reported in refusals:
                assert ready(address) is False
            else:
                with pytest.raises(ConnectionResetError):
                    ready(address)


def test_what_goes_into_the_image_alone_imports_nothing_of_ours() -> None:
    """Only Python is there."""
    for path in servers.SOURCES:
        if path.name in ("kafka_entry.py", "kafka_probe.py"):
            text = path.read_text()
            found = re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)
            assert set(found) <= sys.stdlib_module_names


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


def test_what_is_lost_or_doubled_fails(tmp_path: Path) -> None:
    """And what is neither does not. No rounds are no proof."""
    for names, problem in (
        (("a", "b"), "0 lost, 0 doubled"),
        (("a",), "1 lost, 0 doubled"),
        (("a", "b", "b"), "0 lost, 1 doubled"),
    ):
        with Played("nowhere:1", tmp_path, rounds=2, expected=2, phase=Phase(0.0)) as load:
            load.phase.take(events(*names), 1.8e9)
            if names == ("a", "b"):
                assert problem in load.finish()
            else:
                with pytest.raises(Failed, match=problem):
                    load.finish()
    with Played("nowhere:1", tmp_path) as load, pytest.raises(Failed):
        load.finish()
