"""Settings of access: what they become, what is refused, and that secrets stay hidden."""

import io
import json
import re
import socket
import threading
from contextlib import closing, redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry

from stream_rater.adapters.access import LARGEST_RESPONSE_BYTES, client_options
from stream_rater.adapters.redis.client import connect
from stream_rater.config import files
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings, without_password
from stream_rater.runtime import http, log
from tests import pages
from tests.integration.rights import IN_THE_PLACE_OF, ON_A_CLUSTER, REDIS, ROLES

SECRET = "s3cr3t"


def options(**given: Any) -> dict[str, Any]:
    """The security options that librdkafka gets."""
    reported = client_options(Settings(**given))
    return {name: reported[name] for name in reported if name.startswith(("ss", "sas", "sec"))}


def test_without_settings_nothing_is_said_of_security() -> None:
    """So that `kafka_options` alone decide."""
    assert options() == {}
    assert options(kafka_options={"security.protocol": "ssl"}) == {"security.protocol": "ssl"}


def test_what_kafka_is_given() -> None:
    """Protocol in any case, password and files where they belong, nothing that is not given."""
    given = {"kafka_sasl_username": "u", "kafka_sasl_password": SECRET, "kafka_ssl_ca": "/ca.pem"}
    assert options(kafka_security_protocol="SASL_SSL", **given) == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": SECRET,
        "ssl.ca.location": "/ca.pem",
    }
    assert options(kafka_security_protocol="ssl", kafka_ssl_certificate="c", kafka_ssl_key="k") == {
        "security.protocol": "ssl",
        "ssl.certificate.location": "c",
        "ssl.key.location": "k",
    }


def test_the_bound_of_what_can_be_read_is_nobodys_to_choose() -> None:
    """It decides verdicts: with different ones two workers would disagree."""
    given = Settings(kafka_options={"receive.message.max.bytes": "1000000000"})
    assert client_options(given)["receive.message.max.bytes"] == LARGEST_RESPONSE_BYTES


@pytest.mark.parametrize(
    "given",
    [
        {"kafka_security_protocol": "tls"},
        {"kafka_security_protocol": "sasl_ssl"},
        {"kafka_security_protocol": "sasl_ssl", "kafka_sasl_username": "u"},
        {"kafka_sasl_username": "u", "kafka_sasl_password": SECRET},
        {"kafka_security_protocol": "ssl", "kafka_sasl_password": SECRET},
        {"kafka_ssl_ca": "/ca.pem"},
    ],
)
def test_halves_are_refused(given: dict[str, Any]) -> None:
    """What would connect in another way than is meant."""
    with pytest.raises(BadConfiguration) as refusal:
        options(**given)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    "given",
    [
        {"redis": f"redis://u:{SECRET}@h:1/0", "redis_password": "other"},
        {"redis": f"redis://u:{SECRET}@h:port/0"},
        {"redis": f"redis://u:{SECRET}/x@h:1/0"},
        {"redis": f"ftp://u:{SECRET}@h:1/0"},
        {"redis": f"redis://h:1/0?password={SECRET}&socket_timeout={SECRET}"},
        {"redis": "redis://h:1/0", "redis_ca": "/ca.pem"},
        {"redis": "rediss://h:1/0", "redis_ca": "/no/ca.pem"},
    ],
)
def test_redis_addresses_are_refused_without_their_password(given: dict[str, Any]) -> None:
    """The error does not contain the password."""
    with pytest.raises(BadConfiguration) as refusal:
        connect(Settings(**given))
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("redis://h:1/3", "redis://h:1/3"),
        ("h:1", "h:1"),
        (f"rediss://u:{SECRET}@h:1/3", "rediss://u:***@h:1/3"),
        (f"redis://:{SECRET}@h", "redis://:***@h"),
        (f"redis://u:{SECRET}@{SECRET}@h", "redis://u:***@h"),
        (f"redis://u:{SECRET}/x@h", "***"),
        (f"redis://h?password={SECRET}", "***"),
        (f"u:{SECRET}@h:1", "***"),
        (f"redis://u:{SECRET}@[h", "***"),
    ],
)
def test_addresses_are_shown_without_password(address: str, expected: str) -> None:
    """However wrong they are."""
    assert without_password(address) == expected


def test_settings_print_no_secret() -> None:
    """Whoever prints or logs them, whole."""
    given = Settings(
        kafka_sasl_password=SECRET, redis_password=SECRET, redis=f"redis://:{SECRET}@h",
        kafka_options={"sasl.password": SECRET},
    )  # fmt: skip
    assert SECRET not in f"{given} {given!r}"
    assert "shards=4" in repr(given)


def test_secrets_from_files(tmp_path: Path) -> None:
    """Without the line's end; given twice, missing or empty they are refused."""
    file = tmp_path / "password"
    file.write_text(f"{SECRET} \n")
    found = files.read_settings(None, {"STREAM_RATER_REDIS_PASSWORD_FILE": str(file)})
    assert found.redis_password == f"{SECRET} "
    both = {f"STREAM_RATER_KAFKA_SASL_PASSWORD{end}": str(file) for end in ("", "_FILE")}
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for given, says in (
        (both, "not both"),
        ({"STREAM_RATER_REDIS_PASSWORD_FILE": str(empty)}, "empty: empty"),
        ({"STREAM_RATER_REDIS_PASSWORD_FILE": "/no/file"}, "/no/file: no such file"),
    ):
        with pytest.raises(BadConfiguration, match=says):
            files.read_settings(None, given)


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


@pytest.mark.parametrize(
    ("address", "host"),
    [(None, "127.0.0.1"), (":0", "127.0.0.1"), ("0.0.0.0:0", "0.0.0.0")],
)
def test_the_endpoints_listen_on_the_loopback(address: str | None, host: str) -> None:
    """They listen there by default, and where only a port is given. A given host is used."""
    default_host, _, _ = Settings().http.rpartition(":")
    app = http.application(CollectorRegistry(), list, list)
    server = http.Server(f"{default_host}:0" if address is None else address, app)
    with closing(server):
        assert server._server.sockets[0].getsockname()[0] == host
        with socket.create_connection(("127.0.0.1", server.port), 5.0) as connection:
            assert connection.getpeername()[0] == "127.0.0.1"


def test_the_endpoints_end_with_what_is_open() -> None:
    """On a host of several addresses too; a client that keeps its connection holds nothing up."""
    before = threading.active_count()
    server = http.Server("*:0", http.application(CollectorRegistry(), list, list))
    with socket.create_connection(("127.0.0.1", server.port), 5.0) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        server.close()
        while connection.recv(4096):
            pass
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), 5.0)


# --- the tables of rights ------------------------------------------------------------------------

PAGE = pages.text("reference/access.md")


def rows_of(columns: int) -> dict[str, list[str]]:
    """By the first column, the others, of the table that has so many of them."""
    found = re.findall(r"^\| (`.*?) \|(.*) \|$", PAGE, re.MULTILINE)
    table = [(name, [c.strip() for c in re.split(r"(?<!\\)\|", rest)]) for name, rest in found]
    return {name: rest for name, rest in table if len(rest) == columns}


TOPICS = (
    "round-completed", "performance-estimated", "rating-changed", "round-rejected", "ladders-noted",
)  # fmt: skip
COMMANDS = {
    "estimator": "`run --role estimator`", "updater": "`run --role updater`", "all": "`run`",
    "submit": "`submit`", "correct": "`correct`", "correct --dry-run": "`correct --dry-run`",
    "seed --from-ladder": "`seed --from-ladder`",
    "tune": "`tune --from-topic`",
    "watch": "`watch`", "rejected": "`rejected`", "verify": "`verify`",
    "rebuild": "`rebuild`", "erase": "`erase`",
    "erase --to": "`erase --to`, on the new topics", "inspect": "`inspect`",
    "inspect --player": "`inspect --player`",
    "predict": "`predict`", "checkpoint": "`checkpoint`", "serve": "`serve`",
    "serve with beliefs": "`serve` with `what-if` and `explain`",
    "serve with min_offset": "`serve` with `min_offset`",
    "serve with writing": "`serve` that takes rounds",
}  # fmt: skip


def by_name(column: str, both: tuple[str, str]) -> dict[str, str]:
    """What a cell says of groups, or of transactional ids."""
    reported: dict[str, str] = {}
    for each in filter(None, column.split("; ")):
        name, _, operation = each.rpartition(": ")
        one = name.strip("`").removeprefix("stream-rater-").removesuffix("-*")
        reported |= dict.fromkeys(both if name == "both" else (one,), operation)
    return reported


def test_every_role_has_a_row() -> None:
    """On a Redis Cluster a worker needs more, which a sentence says."""
    assert ROLES.keys() == REDIS.keys() == {*COMMANDS, "on a cluster"}
    assert set(REDIS["on a cluster"]) - set(REDIS["all"]) == set(ON_A_CLUSTER)
    assert f"`{' '.join(ON_A_CLUSTER)}`" in PAGE


def test_the_page_lists_the_rights_of_scripts() -> None:
    """Each in the place of the right of functions that a user lacks."""
    listing, loading = IN_THE_PLACE_OF["+function|list"], IN_THE_PLACE_OF["+function|load"]
    calling = " ".join(IN_THE_PLACE_OF["+fcall"])
    for rule, others in (("+fcall", calling), ("+function|list +function|load", *listing)):
        assert f"| `{rule}` | `{others}` |".replace("|l", "\\|l") in PAGE
    assert loading == ()


@pytest.mark.parametrize("role", COMMANDS)
def test_the_page_lists_kafkas_rights_that_were_tested(role: str) -> None:
    """Exactly those, topic by topic and group by group."""
    reported = rows_of(7)[COMMANDS[role]]
    for topic, operations in zip(TOPICS, reported[:5], strict=True):
        assert operations.replace(",", "").split() == ROLES[role].get(topic, "").split(), topic
    for kind, column, both in (
        ("group", reported[5], ("estimators", "updaters")),
        ("transactions", reported[6], ("estimator", "updater")),
    ):
        wanted = {k.split()[1]: v for k, v in ROLES[role].items() if k.startswith(kind)}
        assert by_name(column, both) == wanted, kind


@pytest.mark.parametrize("role", [role for role in COMMANDS if REDIS[role]])
def test_the_page_lists_redis_rules_that_were_tested(role: str) -> None:
    """Exactly those, but for `+select`, which hangs on the URL."""
    (reported,) = [v[0] for k, v in rows_of(1).items() if COMMANDS[role] in k.split(", ")]
    assert set(reported.strip("`").replace("\\|", "|").split()) == set(REDIS[role]) - {"+select"}
