"""Settings of access: what they become, what is refused; credential files; tables of rights."""

import io
import json
import os
import re
import socket
import threading
from collections.abc import Callable
from contextlib import closing, redirect_stderr
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
import trustme
from prometheus_client import CollectorRegistry

from stream_rater.adapters.access import LARGEST_RESPONSE_BYTES, client_options
from stream_rater.adapters.redis.client import connect
from stream_rater.config import files
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import PATIENCE_S, ChangingCredentials, Credentials
from stream_rater.config.settings import PREFIX, Settings, without_password
from stream_rater.runtime import http, log
from stream_rater.runtime.metrics import not_after
from tests.builders.cases import cases
from tests.integration import rights

SECRET = "s3cr3t"


def options(**given: Any) -> dict[str, Any]:
    """The security options that librdkafka gets."""
    reported = client_options(Settings(**given))
    return {name: reported[name] for name in reported if name.startswith(("ss", "sas", "sec"))}


def test_what_kafka_is_given() -> None:
    """Protocol (in any case), password and files. What is not set is left to `kafka_options`."""
    assert options() == {}
    assert options(kafka_options={"security.protocol": "ssl"}) == {"security.protocol": "ssl"}
    given = {"kafka_sasl_username": "u", "kafka_sasl_password": SECRET, "kafka_ssl_ca": "/ca.pem"}
    assert options(kafka_security_protocol="SASL_SSL", **given) == {
        "security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u",
        "sasl.password": SECRET, "ssl.ca.location": "/ca.pem",
    }  # fmt: skip
    assert options(kafka_security_protocol="ssl", kafka_ssl_certificate="c", kafka_ssl_key="k") == {
        "security.protocol": "ssl", "ssl.certificate.location": "c", "ssl.key.location": "k",
    }  # fmt: skip


def test_workers_on_one_host_have_different_names() -> None:
    """By their names, or by the ports of their metrics."""
    given = Settings(instance_id="rater-0"), Settings(http=":9109"), Settings(http=":0")
    names = [client_options(each)["client.id"] for each in given]
    expected = "rater-0", "worker-9109", f"worker-{os.getpid()}"
    assert names == [f"stream-rater-{each}" for each in expected]


def test_the_bound_of_what_can_be_read_is_nobodys_to_choose() -> None:
    """It decides verdicts: with different ones two workers would disagree."""
    given = Settings(kafka_options={"receive.message.max.bytes": "1000000000"})
    assert client_options(given)["receive.message.max.bytes"] == LARGEST_RESPONSE_BYTES


@cases("connects, given", [
    (client_options, {"kafka_security_protocol": "tls"}),
    (client_options, {"kafka_security_protocol": "sasl_ssl"}),
    (client_options, {"kafka_security_protocol": "sasl_ssl", "kafka_sasl_username": "u"}),
    (client_options, {"kafka_sasl_username": "u", "kafka_sasl_password": SECRET}),
    (client_options, {"kafka_security_protocol": "ssl", "kafka_sasl_password": SECRET}),
    (client_options, {"kafka_ssl_ca": "/ca.pem"}),
    (connect, {"redis": f"redis://u:{SECRET}@h:1/0", "redis_password": "other"}),
    (connect, {"redis": f"redis://u:{SECRET}@h:port/0"}),
    (connect, {"redis": f"redis://u:{SECRET}/x@h:1/0"}),
    (connect, {"redis": f"ftp://u:{SECRET}@h:1/0"}),
    (connect, {"redis": f"redis://h:1/0?password={SECRET}&socket_timeout={SECRET}"}),
    (connect, {"redis": "redis://h:1/0", "redis_ca": "/ca.pem"}),
    (connect, {"redis": "rediss://h:1/0", "redis_ca": "/no/ca.pem"}),
])  # fmt: skip
def test_halves_are_refused(connects: Callable[..., object], given: dict[str, Any]) -> None:
    """They would connect in another way than is meant. No error contains the password."""
    with pytest.raises(BadConfiguration) as refused:
        connects(Settings(**given))
    assert SECRET not in str(refused.value)


def test_addresses_are_shown_without_password() -> None:
    expected = {
        "redis://h:1/3": "redis://h:1/3", "h:1": "h:1",
        f"rediss://u:{SECRET}@h:1/3": "rediss://u:***@h:1/3",
        f"redis://:{SECRET}@h": "redis://:***@h",
        f"redis://u:{SECRET}@{SECRET}@h": "redis://u:***@h", f"redis://u:{SECRET}/x@h": "***",
        f"redis://h?password={SECRET}": "***", f"u:{SECRET}@h:1": "***",
        f"redis://u:{SECRET}@[h": "***",
    }  # fmt: skip
    assert {each: without_password(each) for each in expected} == expected


def test_settings_print_no_secret() -> None:
    given = Settings(
        kafka_sasl_password=SECRET, redis_password=SECRET, redis=f"redis://:{SECRET}@h",
        kafka_options={"sasl.password": SECRET},
    )  # fmt: skip
    assert SECRET not in f"{given} {given!r} {Credentials('ann', SECRET)!r}"
    assert "shards=4" in repr(given)


def test_secrets_from_files(tmp_path: Path) -> None:
    """Without the line's end; given twice, missing or empty they are refused."""
    (file := tmp_path / "password").write_text(f"{SECRET} \n")
    found = files.read_settings(None, {"STREAM_RATER_REDIS_PASSWORD_FILE": str(file)})
    assert found.redis_password == f"{SECRET} "
    both = {f"STREAM_RATER_KAFKA_SASL_PASSWORD{end}": str(file) for end in ("", "_FILE")}
    (empty := tmp_path / "empty").write_text("\n")
    for given, says in (
        (both, "not both"),
        ({"STREAM_RATER_REDIS_PASSWORD_FILE": str(empty)}, "empty: empty"),
        ({"STREAM_RATER_REDIS_PASSWORD_FILE": "/no/file"}, "/no/file: no such file"),
    ):
        with pytest.raises(BadConfiguration, match=says):
            files.read_settings(None, given)


@cases("token", [" ", "tök€n", "a\nb", " lead", "end ", "\x7f", "a" * 5000])
def test_a_token_that_no_request_can_send_is_refused(tmp_path: Path, token: str) -> None:
    """In the environment and in a file. The error does not show it."""
    (file := tmp_path / "token").write_text(f"{token}\n", encoding="utf-8")
    for name in ("SERVE_TOKEN", "SERVE_WRITE_TOKEN"):
        for given in ({f"{PREFIX}{name}": token}, {f"{PREFIX}{name}_FILE": str(file)}):
            with pytest.raises(BadConfiguration, match=f"{name.lower()}: no request can") as found:
                files.read_settings(None, given)
            assert len(str(found.value)) < 150


def test_the_token_for_reading_is_not_that_for_writing() -> None:
    """Nor is a token with a blank within refused: requests send it."""
    given = {f"{PREFIX}SERVE_TOKEN": "a b", f"{PREFIX}SERVE_WRITE_TOKEN": "a b"}
    with pytest.raises(BadConfiguration, match="are the same"):
        files.read_settings(None, given)
    given[f"{PREFIX}SERVE_WRITE_TOKEN"] = "c"
    assert files.read_settings(None, given).serve_token == "a b"


def test_tracebacks_in_the_log_show_no_variables() -> None:
    """A password may be among them."""
    out = io.StringIO()

    def fails(password: str) -> None:
        raise ValueError(f"{len(password)} characters")

    with redirect_stderr(out):
        log.configure("debug")
        try:
            fails(SECRET)
        except ValueError:
            log.logger("test").exception("failed")
    structlog.reset_defaults()
    (line,) = out.getvalue().splitlines()
    assert "6 characters" in line and "fails" in json.dumps(json.loads(line)["exception"])
    assert SECRET not in line


def test_the_endpoints_listen_on_the_loopback() -> None:
    """They listen there by default, and where only a port is given. A given host is used."""
    usual = f"{Settings().http.rpartition(':')[0]}:0"
    for address, host in ((usual, "127.0.0.1"), (":0", "127.0.0.1"), ("0.0.0.0:0", "0.0.0.0")):
        app = http.application(CollectorRegistry(), list, list)
        with closing(http.ProbeServer(address, app)) as server:
            assert server._server.sockets[0].getsockname()[0] == host
            with socket.create_connection(("127.0.0.1", server.port), 5.0) as connection:
                assert connection.getpeername()[0] == "127.0.0.1"


def test_the_endpoints_end_with_what_is_open() -> None:
    """On a host of several addresses too; a client that keeps its connection holds nothing up."""
    before = threading.active_count()
    server = http.ProbeServer("*:0", http.application(CollectorRegistry(), list, list))
    with socket.create_connection(("127.0.0.1", server.port), 5.0) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        server.close()
        while connection.recv(4096):
            pass
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), 5.0)


GIVEN = Credentials("ann", "given")


def test_a_file_is_read_again(tmp_path: Path) -> None:
    """The line's end is left out. While the file is absent or empty, the last contents count."""
    file = tmp_path / "password"
    found = ChangingCredentials(GIVEN, password_file=str(file))
    for content, says in ((None, "no such file"), (b"", "empty"), (b"\xff", "not UTF-8")):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(BadConfiguration, match=f"password: {says}"):
            found.read()
    for password in ("first\n", "second\r\n"):
        file.write_text(password)
        assert found.read() == Credentials("ann", password.strip())
    file.write_text("")
    assert found.read() == Credentials("ann", "second")
    file.unlink()
    assert found.read() == Credentials("ann", "second")


def test_a_changed_file_is_tried_at_once(tmp_path: Path) -> None:
    """However long the server refused the old password, the new one gets its own time."""
    file, now_s = tmp_path / "password", [0.0]
    file.write_text("old")
    found = ChangingCredentials(GIVEN, password_file=str(file), clock=lambda: now_s[0])
    old = found.read()
    assert not found.is_final(old)
    now_s[0] = PATIENCE_S
    file.write_text("new")
    assert not found.is_final(old)
    assert not found.is_final(found.read())
    now_s[0] = 2 * PATIENCE_S
    assert found.is_final(found.read())


def test_the_end_of_a_certificate(tmp_path: Path) -> None:
    """It is that of the file's first certificate. From 2050 on it has another encoding."""
    authority, path = trustme.CA(), tmp_path / "chain.pem"
    for year in (2031, 2049, 2050, 2077):
        end = datetime(year, 2, 3, 4, 5, 6, tzinfo=UTC)
        issued = authority.issue_cert("kafka.test", not_after=end)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        for before in (b"", b"Certificate:\n  Data:\n"):
            path.write_bytes(before + chain)
            assert not_after(str(path)) == end.timestamp(), (year, before)


def test_what_is_none(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    for text in ("", "no certificate", damaged):
        path.write_text(text)
        assert not_after(str(path)) is None, text
    assert not_after(str(tmp_path / "absent.pem")) is None


# --- the rights on the page, with which `integration/test_access.py` runs each role ---------------


def test_every_role_has_a_row() -> None:
    """On a Redis Cluster a worker needs more, which a sentence says. Rights of scripts are in the
    place of the rights of functions that a user lacks."""
    page, commands, scripts = rights.PAGE, rights.COMMANDS, rights.IN_THE_PLACE_OF
    assert {*rights.rows_of(7)} == {*commands.values()}
    named = {name for names in rights.rows_of(1) for name in names.split(", ")}
    of_scripts = {"`+fcall`", "`+function\\|list +function\\|load`"}
    assert named - {*commands.values()} == of_scripts
    assert f"`{' '.join(rights.ON_A_CLUSTER)}`" in page
    calling, listing = (" ".join(scripts[rule]) for rule in ("+fcall", "+function|list"))
    for rule, others in (("+fcall", calling), ("+function|list +function|load", listing)):
        assert f"| `{rule}` | `{others}` |".replace("|l", "\\|l") in page


def test_the_page_says_what_season_standings_needs() -> None:
    """In a sentence: each topic and group, and the rules of Redis."""
    form = r"^`season-standings` needs (.*?\(`%R.*?`\))"
    (sentence,) = re.findall(form, rights.PAGE, re.M | re.S)
    for thing in rights.IN_A_SENTENCE[rights.SEASONS]:
        assert thing.split()[-1].removesuffix("s") in sentence, thing
    (rules,) = re.findall(r"\(`(.*)`\)", sentence)
    assert {*rules.split(), "+select"} == set(rights.REDIS_IN_A_SENTENCE[rights.SEASONS])
