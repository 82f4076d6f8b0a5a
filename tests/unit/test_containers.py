"""What `make image` and `make compose` know without an engine: names, settings, their table."""

import io
import re
import socketserver
import struct
import sys
import threading
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from containers import base, compose, pip_settings, servers
from containers.engine import Engine, podman_settings
from containers.image import DOCKERFILE, bases, plain
from containers.kafka_entry import properties, ready
from containers.report import Failed, Report, table
from containers.servers import Recipe
from local import kafka_probe
from local.tools import LocalServerError
from tests.benchmarks.document.rows import Origin, made
from tests.benchmarks.document.tables import BY_SECTION


def test_the_bases_of_the_dockerfile() -> None:
    """But for the stages that it makes, and for none at all."""
    assert bases(DOCKERFILE.read_text()) == ["docker.io/library/python:3.11-slim-bookworm"]
    assert bases("FROM a:1 AS one\nFROM one AS two\nFROM scratch\n") == ["a:1"]


def test_a_base_is_made_of_what_its_name_says() -> None:
    """Or not at all."""
    assert base.read_name("docker.io/library/python:3.11-slim-bookworm") == ("3.11", "bookworm")
    assert base.read_name("host/python:3.12.4-slim-trixie") == ("3.12", "trixie")
    with pytest.raises(LocalServerError, match="cannot be made here"):
        base.read_name("docker.io/library/redis:7.0")


def test_pips_settings_are_lent_to_a_build(tmp_path: Path) -> None:
    """What leads to packages; folders of this machine do not."""
    authorities = tmp_path / "ca.pem"
    authorities.write_text("x")
    reported = (
        ":env:.timeout='180'\nglobal.timeout='15'\nglobal.index-url='index'\n"
        f"global.cert='{authorities}'\nglobal.find-links='\\n/wheels\\nfile://x'\n"
        "install.user='true'\n"
    )
    settings = pip_settings.read(reported)
    assert settings["timeout"] == "180"
    lines = pip_settings.as_file(settings).splitlines()
    assert lines[0] == "[global]"
    assert set(lines[1:]) == {
        "timeout = 180", "index-url = index", "find-links = file://x",
        f"cert = {pip_settings.CERTIFICATES}",
    }  # fmt: skip
    assert pip_settings.certificates(settings, {}) == authorities
    assert pip_settings.certificates({}, {"SSL_CERT_FILE": str(authorities)}) == authorities
    assert pip_settings.certificates({"cert": "/not/there"}, {}) is None
    assert pip_settings.as_file({}) == "[global]\n"


def test_limits_are_podmans() -> None:
    """In the form that it reads."""
    assert 'default_ulimits = ["nofile=20:20", "nproc=10:10"]' in podman_settings(20, 10)


def test_names_are_spelt_as_in_locks() -> None:
    """Case, dots and underscores do not count."""
    assert plain("Confluent_Kafka") == plain("confluent.kafka") == "confluent-kafka"


def test_kafkas_variables_are_its_properties() -> None:
    """As Apache's image reads them."""
    reported = properties(
        {"KAFKA_LOG_DIRS": "/x", "KAFKA_A__B___C": "1", "KAFKA_HEAP_OPTS": "-Xmx1g", "HOME": "/"}
    )
    assert reported == "a_b-c=1\nlog.dirs=/x\n"


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


def test_cells_cannot_break_the_table() -> None:
    """Lines and bars in what was seen."""
    assert table(("a", "b"), [("x\ny", "1|2")]).splitlines()[-1] == "| x y | 1/2 |"


class NoEngine(Engine):
    """Remembers what it is asked; has the images that it is given, by label."""

    def __init__(self, labels: dict[str, str]) -> None:
        super().__init__(("podman",), {})
        self.labels, self.asked = labels, list[tuple[str, ...]]()

    def tried(self, *arguments: str, timeout_s: float = 0.0) -> CompletedProcess[str]:
        """An image is inspected, removed, or made."""
        self.asked.append(arguments[:2])
        found = self.labels.get(arguments[-1])
        absent = arguments[1] == "inspect" and found is None
        return CompletedProcess(arguments, int(absent), f"{found}\n", "")


def recipe(program: Path) -> Recipe:
    """Of one file."""
    return Recipe("localhost/one:1", lambda folder: folder.mkdir(), (), (program,))


@pytest.mark.parametrize("had", ["none", "registry", "same", "older"])
def test_an_image_is_made_when_it_would_be_another(tmp_path: Path, had: str) -> None:
    """Not in the place of one that came from a registry, and not again."""
    program = tmp_path / "program"
    program.write_bytes(b"1")
    one = recipe(program)
    labels = {"registry": "<no value>", "same": one.label, "older": one.label}
    engine = NoEngine({one.name: labels[had]} if had in labels else {})
    if had == "older":
        program.write_bytes(b"2")
    reported: list[str] = []
    made = servers.ensure(engine, one, reported.append)
    assert made == (had in ("none", "older")) == bool(reported)
    assert (("image", "rm") in engine.asked) == (had == "older")
    assert any(each[0] == "import" for each in engine.asked) == made


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


@pytest.mark.parametrize(
    ("reported", "seen"),
    [
        (answer(struct.pack(">h", 35)), False),  # refused
        (answer(struct.pack(">h", 0), correlation_id=8), False),  # to another request
        (answer(b""), False),
        (b"", ConnectionResetError),
        (answer(struct.pack(">h", 0)), ConnectionResetError),  # one answer of three
    ],
)
def test_a_broker_that_does_not_work_is_not_ready(
    reported: bytes, seen: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe of the servers here, as the image's command calls it."""
    monkeypatch.setitem(sys.modules, "kafka_probe", kafka_probe)
    with socketserver.TCPServer(("127.0.0.1", 0), Broker) as server:
        server.answer = reported  # type: ignore[attr-defined]
        threading.Thread(target=server.handle_request, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        if seen is False:
            assert ready(address) is False
        else:
            with pytest.raises(seen):  # type: ignore[call-overload]
                ready(address)


def test_what_goes_into_the_image_alone_imports_nothing_of_ours() -> None:
    """Only Python is there."""
    for path in servers.SOURCES:
        if path.name in ("kafka_entry.py", "kafka_probe.py"):
            text = path.read_text()
            found = re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)
            assert set(found) <= sys.stdlib_module_names
