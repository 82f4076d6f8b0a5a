"""deploy/Dockerfile and compose.yaml: linted, valid, of one piece. (`test_image_runs` runs it.)"""

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from image_parts import OF_NO_USE, UNLINKED

from containers import image as made
from local.prometheus_node import API_JOB, DASHBOARD, JOB, RULES
from local.redis_node import ADVISED, start_redis
from local.tools import KAFKA_VERSION, REDIS_MINIMUM, ROOT
from stream_rater.config.settings import PREFIX, Settings
from tests import image, tools

DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
BIN = Path(sys.executable).parent


SENDS_SPANS = {
    "opentelemetry-distro", "opentelemetry-instrumentation", "wrapt",
    "opentelemetry-exporter-otlp-proto-http", "opentelemetry-exporter-otlp-proto-common",
    "opentelemetry-exporter-otlp-common", "opentelemetry-exporter-http-transport",
    "opentelemetry-proto", "googleapis-common-protos", "protobuf",
}  # fmt: skip
"""The extra `otlp` beyond the SDK, which tests know: `make image-check` sends a span by it."""


def mounts(service: str) -> dict[str, Path]:
    """The files that a service of compose.yaml sees of ours, by their place in it."""
    declared = [each.split(":") for each in SERVICES[service]["volumes"] if each.startswith(".")]
    assert all(mode == "ro" for _, _, mode in declared)
    return {inside: (DEPLOY / source).resolve() for source, inside, _ in declared}


def pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", lock.read_text(), re.MULTILINE))


def quiet(*command: object) -> None:
    """A check that finds nothing wrong."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dockerfile_is_linted() -> None:
    """By hadolint, with nothing ignored."""
    found = shutil.which("hadolint", path=BIN)
    quiet(tools.needed(Path(found) if found else None, "hadolint"), image.DOCKERFILE)


def test_the_image_is_small_and_has_no_rights() -> None:
    """It has no base at all, a numbered user, and only what it needs. A slim base builds it."""
    build, final = image.stages()
    base = made.base_of(image.DOCKERFILE.read_text())
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+-slim-[a-z]+", base)
    assert build.all("FROM") == ["${BASE} AS build"] and final.all("FROM") == ["scratch"]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", final.all("USER")[-1])
    assert final.all("COPY") == [
        "--from=build /build/root /",
        f"--from=build {image.PREFIX} {image.PREFIX}",
    ]
    assert final.all("RUN") == []
    assert [json.loads(each) for each in final.all("ENTRYPOINT")] == [["stream-rater"]]
    (labels,) = final.all("LABEL")
    declared = dict(re.findall(r'([\w.-]+)="(.*?)"', labels))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = "org.opencontainers.image"
    assert declared[f"{ours}.version"] == project["version"]
    assert declared[f"{ours}.licenses"] == project["license"]
    assert declared[f"{ours}.base.name"] == "${BASE}"
    bill = declared["stream-rater.sbom"]
    assert any(f"--output-file {bill}" in step for step in build.all("RUN"))


def test_labels_and_provenance_say_what_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit, its time or the time given, and the base's digest; no address of one machine."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1800000000")
    said = {"describe": "c0ffee", "config": "/srv/clone"}
    monkeypatch.setattr(made, "git", lambda name, *_: said.get(name, ""))
    labels = made.source_labels()
    ours = {"created": "2027-01-15T08:00:00Z", "revision": "c0ffee"}
    assert labels == {f"{made.OCI}.{name}": value for name, value in ours.items()}
    base = {f"{made.OCI}.base.name": "docker.io/b:1", f"{made.OCI}.base.digest": "sha256:abc"}
    built = made.provenance(labels | base, 0.0, 1.0)["buildDefinition"]["resolvedDependencies"]
    assert [each["digest"] for each in built] == [{"gitCommit": "c0ffee"}, {"sha256": "abc"}]


def test_the_image_installs_what_was_locked() -> None:
    """The same versions that are tested; of what runs, nothing that only tests need."""
    everything = pins(ROOT / "requirements.lock")
    runs, builds = pins(DEPLOY / "image.lock"), pins(DEPLOY / "build.lock")
    assert {n: v for n, v in (runs | builds).items() if everything.get(n, v) != v} == {}
    assert runs.keys() - everything.keys() == SENDS_SPANS and builds.keys() <= everything.keys()
    wanted = re.findall(r"^  \"([\w-]+)", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert {"numba", "redis", "confluent-kafka"} <= runs.keys() & set(wanted)
    assert runs.keys() & {"pytest", "mypy", "hatchling", "matplotlib", "scipy"} == set()
    for install in re.findall(r"\binstall (.*)", "\n".join(image.stages()[0].all("RUN"))):
        assert "--require-hashes --only-binary :all:" in install or "--no-index" in install


def imported(file: Path) -> set[str]:
    """The modules that a file imports, wherever in it."""
    found: set[str] = set()
    for each in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(each, ast.Import):
            found |= {name.name for name in each.names}
        elif isinstance(each, ast.ImportFrom) and each.module:
            found.add(each.module)
    return found


def test_the_root_lacks_nothing_that_the_service_imports() -> None:
    """The package does not import what `image_parts` leaves out, nor does what it imports."""
    names = set().union(*map(imported, (ROOT / "stream_rater").rglob("*.py")))
    ours = [each for each in names if each.partition(".")[0] in sys.stdlib_module_names]
    lacking = dict.fromkeys([*UNLINKED, *OF_NO_USE])
    program = f"import sys; sys.modules.update({lacking}); import {', '.join(sorted(ours))}"
    assert "sqlite3" in ours
    quiet(sys.executable, "-I", "-S", "-c", program)


def test_compose_is_valid() -> None:
    """By the Compose Specification's schema."""
    quiet(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec",
          DEPLOY / "compose.yaml")  # fmt: skip


def test_compose_knows_the_settings_and_the_servers() -> None:
    """What it sets are settings, and lead to its own servers, which are those that are tested."""
    declared = SERVICES["stream-rater"]["environment"]
    known = set(Settings.__struct_fields__)
    assert {name.removeprefix(PREFIX).lower() for name in declared} <= known
    listeners = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"//{declared['STREAM_RATER_KAFKA']}," in listeners
    host, _, port = declared["STREAM_RATER_REDIS"].partition(":")
    assert host in SERVICES and f":{port}:" in SERVICES[host]["ports"][0]
    assert (DEPLOY / SERVICES["stream-rater"]["build"]["context"]).resolve() == ROOT
    assert (ROOT / SERVICES["stream-rater"]["build"]["dockerfile"]) == image.DOCKERFILE

    # Kafka's very release; of Redis the first with functions, which Debian has, too.
    assert SERVICES["kafka"]["image"].rpartition(":")[2] == KAFKA_VERSION
    assert SERVICES["redis"]["image"].rpartition(":")[2] == f"{REDIS_MINIMUM}.0"


def test_compose_gives_redis_our_settings(tmp_path: Path) -> None:
    """Its own arguments, read by the real server."""
    server, *options = SERVICES["redis"]["command"]
    given = dict(each.removeprefix("--").split(" ", 1) for each in options)
    assert server == "redis-server"
    assert given.pop("protected-mode") == "no"  # it is asked from other containers
    assert given == ADVISED
    with start_redis(tmp_path, settings=given) as redis:
        assert redis.running


def test_compose_watches_by_the_same_files() -> None:
    """Prometheus and Grafana have the rules and the dashboard of helm/stream-rater/files."""
    seen = mounts("prometheus")
    rules = {path for inside, path in seen.items() if inside.startswith("/etc/prometheus/rules/")}
    assert rules == set(RULES)
    scraped = yaml.safe_load(seen["/etc/prometheus/prometheus.yml"].read_text())["scrape_configs"]
    assert [each["job_name"] for each in scraped] == [JOB, API_JOB]
    for each, service in zip(scraped, ("stream-rater", "serve"), strict=True):
        (target,) = each["static_configs"][0]["targets"]
        assert target.partition(":")[0] == service and service in SERVICES
    quiet(tools.promtool(), "check", "config", "--syntax-only", DEPLOY / "prometheus.yml")


def test_compose_provisions_the_dashboard() -> None:
    """Grafana finds it, and a Prometheus. Docker would make a folder of a missing file."""
    for service in ("prometheus", "grafana"):
        assert all(path.is_file() for path in mounts(service).values())
    seen = mounts("grafana")
    provisioning = "/etc/grafana/provisioning"
    (provider,) = yaml.safe_load(
        seen[f"{provisioning}/dashboards/stream-rater.yaml"].read_text()
    )["providers"]  # fmt: skip
    assert seen[f"{provider['options']['path']}/stream-rater.json"] == DASHBOARD
    (source,) = yaml.safe_load(
        seen[f"{provisioning}/datasources/stream-rater.yaml"].read_text()
    )["datasources"]  # fmt: skip
    assert source["url"].removeprefix("http://").partition(":")[0] in SERVICES
