"""What `make image` knows without an engine: names, pip's settings, its table."""

import io
from pathlib import Path

import pytest
from containers import base, pip_settings
from containers.engine import podman_settings
from containers.image import DOCKERFILE, bases, plain
from containers.kafka_entry import properties
from containers.report import Failed, Report, table

from local.tools import LocalServerError


def test_the_bases_of_the_dockerfile() -> None:
    """But for the stages that it makes, and for none at all."""
    assert bases(DOCKERFILE.read_text()) == ["docker.io/library/python:3.11-slim-bookworm"]
    assert bases("FROM a:1 AS one\nFROM one AS two\nFROM scratch\n") == ["a:1"]


def test_a_base_is_made_of_what_its_name_tells() -> None:
    """Or not at all."""
    assert base.read_name("docker.io/library/python:3.11-slim-bookworm") == ("3.11", "bookworm")
    assert base.read_name("host/python:3.12.4-slim-trixie") == ("3.12", "trixie")
    with pytest.raises(LocalServerError, match="cannot be made here"):
        base.read_name("docker.io/library/redis:7.0")


def test_pips_settings_are_lent_to_a_build(tmp_path: Path) -> None:
    """What leads to packages; folders of this machine do not."""
    authorities = tmp_path / "ca.pem"
    authorities.write_text("x")
    told = (
        ":env:.timeout='180'\nglobal.timeout='15'\nglobal.index-url='index'\n"
        f"global.cert='{authorities}'\nglobal.find-links='\\n/wheels\\nfile://x'\n"
        "install.user='true'\n"
    )
    settings = pip_settings.read(told)
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
    told = properties(
        {"KAFKA_LOG_DIRS": "/x", "KAFKA_A__B___C": "1", "KAFKA_HEAP_OPTS": "-Xmx1g", "HOME": "/"}
    )
    assert told == "a_b-c=1\nlog.dirs=/x\n"


def test_a_failed_check_is_told_and_counted() -> None:
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
