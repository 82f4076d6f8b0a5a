"""Settings of access: what they become, what is refused, and that secrets stay hidden."""

import io
import json
import re
import socket
import threading
from collections.abc import Callable
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
from tests.integration.rights import (
    IN_A_SENTENCE,
    IN_THE_PLACE_OF,
    ON_A_CLUSTER,
    REDIS,
    REDIS_IN_A_SENTENCE,
    ROLES,
    SEASONS,
)

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


HALVES: list[dict[str, Any]] = [
    {"kafka_security_protocol": "tls"},
    {"kafka_security_protocol": "sasl_ssl"},
    {"kafka_security_protocol": "sasl_ssl", "kafka_sasl_username": "u"},
    {"kafka_sasl_username": "u", "kafka_sasl_password": SECRET},
    {"kafka_security_protocol": "ssl", "kafka_sasl_password": SECRET},
    {"kafka_ssl_ca": "/ca.pem"},
]
WRONG_REDIS: list[dict[str, Any]] = [
    {"redis": f"redis://u:{SECRET}@h:1/0", "redis_password": "other"},
    {"redis": f"redis://u:{SECRET}@h:port/0"},
    {"redis": f"redis://u:{SECRET}/x@h:1/0"},
    {"redis": f"ftp://u:{SECRET}@h:1/0"},
    {"redis": f"redis://h:1/0?password={SECRET}&socket_timeout={SECRET}"},
    {"redis": "redis://h:1/0", "redis_ca": "/ca.pem"},
    {"redis": "rediss://h:1/0", "redis_ca": "/no/ca.pem"},
]


def accepted(given: dict[str, Any], use: Callable[..., object]) -> str:
    """What is wrong with how these settings are refused; empty if nothing is."""
    try:
        use(**given)
    except BadConfiguration as refusal:
        return f"{given}: {refusal}" if SECRET in str(refusal) else ""
    return f"accepted: {given}"


def test_halves_are_refused() -> None:
    """What would connect in another way than is meant, and wrong addresses of Redis. No error
    contains the password."""
    found = [accepted(each, options) for each in HALVES]
    found += [accepted(each, lambda **given: connect(Settings(**given))) for each in WRONG_REDIS]
    assert not [*filter(None, found)]


def test_addresses_are_shown_without_password() -> None:
    """However wrong they are."""
    expected = {
        "redis://h:1/3": "redis://h:1/3",
        "h:1": "h:1",
        f"rediss://u:{SECRET}@h:1/3": "rediss://u:***@h:1/3",
        f"redis://:{SECRET}@h": "redis://:***@h",
        f"redis://u:{SECRET}@{SECRET}@h": "redis://u:***@h",
        f"redis://u:{SECRET}/x@h": "***",
        f"redis://h?password={SECRET}": "***",
        f"u:{SECRET}@h:1": "***",
        f"redis://u:{SECRET}@[h": "***",
    }
    assert {each: without_password(each) for each in expected} == expected


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


def test_the_endpoints_listen_on_the_loopback() -> None:
    """They listen there by default, and where only a port is given. A given host is used."""
    default_host, _, _ = Settings().http.rpartition(":")
    for address, host in (
        (f"{default_host}:0", "127.0.0.1"), (":0", "127.0.0.1"), ("0.0.0.0:0", "0.0.0.0"),
    ):  # fmt: skip
        app = http.application(CollectorRegistry(), list, list)
        with closing(http.Server(address, app)) as server:
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


def test_the_page_lists_the_rights_that_were_tested() -> None:
    """Exactly those: of Kafka topic by topic and group by group; of Redis but for `+select`, which
    hangs on the URL."""
    rows, found = rows_of(7), list[str]()
    for role, command in COMMANDS.items():
        reported = rows[command]
        stated = {
            topic: operations.replace(",", "").split()
            for topic, operations in zip(TOPICS, reported[:5], strict=True)
            if operations
        }
        stated |= {
            f"{kind} {name}": [operation]
            for kind, column, both in (
                ("group", reported[5], ("estimators", "updaters")),
                ("transactions", reported[6], ("estimator", "updater")),
            )
            for name, operation in by_name(column, both).items()
        }
        tested = {thing: operations.split() for thing, operations in ROLES[role].items()}
        if stated != tested:
            found.append(f"{role}: the page has {stated}, the test {tested}")
        if not REDIS[role]:
            continue
        (rules,) = [row[0] for name, row in rows_of(1).items() if command in name.split(", ")]
        given = set(rules.strip("`").replace("\\|", "|").split())
        if given != set(REDIS[role]) - {"+select"}:
            found.append(f"{role}: the page has {sorted(given)}")
    assert not found


def test_the_page_says_what_season_standings_needs() -> None:
    """In a sentence: each topic and group, and the rules of Redis."""
    (sentence,) = re.findall(r"^`season-standings` needs (.*?\(`%R.*?`\))", PAGE, re.M | re.S)
    for thing in IN_A_SENTENCE[SEASONS]:
        assert thing.split()[-1].removesuffix("s") in sentence, thing
    (rules,) = re.findall(r"\(`(.*)`\)", sentence)
    assert {*rules.split(), "+select"} == set(REDIS_IN_A_SENTENCE[SEASONS])
