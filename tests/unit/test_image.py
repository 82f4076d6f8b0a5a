"""deploy/Dockerfile and compose.yaml: linted, valid, and of one piece with the rest; what goes into
the image: links on the way to a file, libraries without symbols.

That the commands of the Dockerfile work is `tests/integration/test_image_runs.py`'s to see.
"""

import ctypes
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import image_parts
import msgspec
import pytest
import yaml
from image_parts import Root, libraries, needed_by, read_ldd, strip, trim

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
    """Version by package."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", lock.read_text(), re.MULTILINE))


def test_the_dockerfile_is_linted() -> None:
    """By hadolint, with nothing ignored."""
    found = shutil.which("hadolint", path=BIN)
    linter = tools.needed(Path(found) if found else None, "hadolint")
    done = subprocess.run(
        [linter, str(image.DOCKERFILE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_is_small_and_has_no_rights() -> None:
    """A slim base to build on and none to run on, a numbered user who is not root, only what was
    installed and what of the system it needs."""
    build, final = image.stages()
    base = "docker.io/library/python:3.11-slim-bookworm"
    assert build.all("FROM") == [f"{base} AS build"] and final.all("FROM") == ["scratch"]
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
    assert declared[f"{ours}.base.name"] == base
    bill = declared["stream-rater.sbom"]
    assert any(f"--output-file {bill}" in step for step in build.all("RUN"))


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


def test_compose_is_valid() -> None:
    """By the Compose Specification's schema."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [*command, str(DEPLOY / "compose.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_knows_the_services_settings() -> None:
    """What it sets are settings, and lead to its own servers."""
    declared = SERVICES["stream-rater"]["environment"]
    assert {name.removeprefix(PREFIX).lower() for name in declared} <= set(
        Settings.__struct_fields__
    )
    listeners = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"//{declared['STREAM_RATER_KAFKA']}," in listeners
    host, _, port = declared["STREAM_RATER_REDIS"].partition(":")
    assert host in SERVICES and f":{port}:" in SERVICES[host]["ports"][0]
    assert (DEPLOY / SERVICES["stream-rater"]["build"]["context"]).resolve() == ROOT
    assert (ROOT / SERVICES["stream-rater"]["build"]["dockerfile"]) == image.DOCKERFILE


def test_compose_has_the_servers_that_are_tested() -> None:
    """Kafka's very release; of Redis the first with functions, which Debian has, too."""
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
    configuration = yaml.safe_load(seen["/etc/prometheus/prometheus.yml"].read_text())
    scraped = configuration["scrape_configs"]
    assert [each["job_name"] for each in scraped] == [JOB, API_JOB]
    for each, service in zip(scraped, ("stream-rater", "serve"), strict=True):
        (target,) = each["static_configs"][0]["targets"]
        assert target.partition(":")[0] == service and service in SERVICES
    done = subprocess.run(
        [tools.promtool(), "check", "config", "--syntax-only", str(DEPLOY / "prometheus.yml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_compose_provisions_the_dashboard() -> None:
    """Where Grafana looks for it, with a Prometheus that is there. Docker would make a folder of a
    file that is missing."""
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


LIBRARY = Path(str(msgspec._core.__file__))


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A small system where /lib is /usr/lib, and a certificate is a link to a link."""
    folder = tmp_path / "system"
    (folder / "usr/lib/ssl").mkdir(parents=True)
    (folder / "etc/ssl/certs").mkdir(parents=True)
    (folder / "usr/share/ca").mkdir(parents=True)
    (folder / "lib").symlink_to("usr/lib")
    (folder / "usr/lib/libx.so.1.2").write_text("x")
    (folder / "usr/lib/libx.so.1").symlink_to("libx.so.1.2")
    (folder / "usr/lib/ssl/certs").symlink_to("/etc/ssl/certs")
    (folder / "etc/ssl/certs/hash.0").symlink_to("one.pem")
    (folder / "etc/ssl/certs/one.pem").symlink_to("/usr/share/ca/one.crt")
    (folder / "usr/share/ca/one.crt").write_text("one")
    return folder


def test_a_library_comes_with_its_links(system: Path, tmp_path: Path) -> None:
    """By the name that the linker looks for, through a linked folder."""
    (tmp_path / "root").mkdir()
    root = Root(tmp_path / "root", system)
    root.bring("/lib/libx.so.1")
    assert (tmp_path / "root/lib").readlink() == Path("usr/lib")
    assert (tmp_path / "root/lib/libx.so.1").read_text() == "x"
    assert root.brought == {"/usr/lib/libx.so.1.2"}


def test_a_folder_comes_with_what_its_links_point_to(system: Path, tmp_path: Path) -> None:
    """Also where that is far from it."""
    (tmp_path / "root").mkdir()
    root = Root(tmp_path / "root", system)
    root.bring("/usr/lib/ssl/certs")
    root.bring("/not/there")
    assert (tmp_path / "root/usr/share/ca/one.crt").read_text() == "one"
    assert (tmp_path / "root/etc/ssl/certs/hash.0").readlink() == Path("one.pem")
    assert root.brought == {"/usr/share/ca/one.crt"}


def test_ldd_is_read() -> None:
    """Names with and without an arrow; what is not found is left out."""
    printed = (
        "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibtbb.so.12 => not found\n"
        "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f17)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f18)\n"
    )
    assert read_ldd(printed) == {
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
    }


def test_a_stripped_library_still_loads(tmp_path: Path) -> None:
    """Without its symbols it is smaller, and stripping it again changes nothing."""
    copy = tmp_path / "stripped.so"
    shutil.copy(LIBRARY, copy)
    strip(copy)
    once = copy.read_bytes()
    assert len(once) < LIBRARY.stat().st_size
    ctypes.CDLL(str(copy))
    strip(copy)
    assert copy.read_bytes() == once
    assert needed_by([LIBRARY]) == needed_by([copy])


def test_tests_and_headers_are_trimmed(tmp_path: Path) -> None:
    """Whatever programs use stays."""
    packages = tmp_path / "lib/python3.11/site-packages"
    (packages / "numpy/tests/deep").mkdir(parents=True)
    (packages / "numpy/tests/deep/test_x.py").write_text("x" * 100)
    (packages / "pygments/lexers").mkdir(parents=True)
    (packages / "pygments/lexers/python.py").write_text("x")
    (packages / "pygments/lexers/perl.py").write_text("x")
    (packages / "pygments/lexers/__pycache__").mkdir()
    (packages / "pygments/lexers/__pycache__/perl.cpython-311.pyc").write_text("x")
    (packages / "numpy/x.h").write_text("x" * 10)
    (packages / "numpy/x.py").write_text("x")
    shutil.copy(LIBRARY, packages / "numpy/x.so")
    saved = trim(tmp_path)
    assert sorted(p.name for p in packages.rglob("*") if p.is_file()) == [
        "python.py", "x.py", "x.so",
    ]  # fmt: skip
    smaller = LIBRARY.stat().st_size - (packages / "numpy/x.so").stat().st_size
    assert saved == 112 + smaller
    assert [p.name for p in libraries(tmp_path)] == ["x.so"]


def test_it_needs_nothing_but_python() -> None:
    """In the build stage there is nothing else. A command that makes no sense is refused."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", image_parts.__file__],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "python image_parts.py" in done.stderr
