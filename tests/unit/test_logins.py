"""What Kafka's clients show of who they are, where that may change while they run."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from stream_rater.adapters import logins
from stream_rater.adapters.access import (
    client_options,
    new_producer,
    noting_refusals,
    trouble_of,
)
from stream_rater.adapters.logins import SETTLE_S, Login, login_of, token_function
from stream_rater.config.changing_credentials import PATIENCE_S
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble
from tests.waits import STILL_S

NOWHERE = "127.0.0.1:1"
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error")


class Client:
    """A client that keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.given.append((username, password))


class Story:
    """A login by a password file, at a time that the test says."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 1000.0
        self.file = folder / "password"
        self.file.write_text("one\n")
        self.login = Login("ann", "one", str(self.file), lambda: self.now_s, lambda do: do())

    def refused_at(self, now_s: float) -> str:
        self.now_s = now_s
        return self.login.after_refusal()


def test_all_clients_get_a_new_password(tmp_path: Path) -> None:
    """Those that there are when it is read, and those that come later and were made with the old
    one. A client that was made with the present one is left alone."""
    story, early, late, latest = Story(tmp_path), Client(), Client(), Client()
    story.login.adopt(early, "one")
    assert early.given == []
    story.file.write_text("two\n")
    assert "has changed" in story.refused_at(1.0)
    story.login.adopt(late, "one")
    story.login.adopt(latest, "two")
    assert (early.given, late.given, latest.given) == ([("ann", "two")], [("ann", "two")], [])


def test_a_client_that_is_in_use_gets_the_password_later(tmp_path: Path) -> None:
    """It is in a call of another thread, whose callback asks about a refusal, too. Neither waits
    for the other."""
    answered = threading.Event()

    class Used(Client):
        """Takes a password once the other thread's call has ended."""

        def set_sasl_credentials(self, username: str, password: str) -> None:
            assert answered.wait(STILL_S)
            super().set_sasl_credentials(username, password)

    file, client = tmp_path / "password", Used()
    file.write_text("two")
    threads: list[threading.Thread] = []

    def soon(action: Callable[[], object]) -> None:
        threads.append(threading.Thread(target=action))
        threads[-1].start()

    login = Login("ann", "one", str(file), soon=soon)
    login.adopt(client, "one")
    login.after_refusal()

    def ask() -> None:
        login.after_refusal()
        answered.set()

    other = threading.Thread(target=ask)
    other.start()
    for each in (*threads, other):
        each.join(2 * STILL_S)
    assert client.given == [("ann", "two")]


def test_a_callback_waits_for_no_lock(tmp_path: Path) -> None:
    """The garbage collector may delete a client in a thread that holds the lock, and the client
    calls back then."""
    named: dict[str, Any] = {"kafka_sasl_username": "ann", "kafka_sasl_password": "one"}
    settings = secured(**named, kafka_sasl_password_file=str(tmp_path / "password"))
    login, found = login_of(settings), list[KafkaError]()
    assert login is not None
    thread = threading.Thread(target=lambda: noting_refusals(found.append)(REFUSED))
    with login._lock, logins._lock:
        thread.start()
        thread.join(STILL_S)
        assert (thread.is_alive(), found) == (False, [REFUSED])


def test_an_unchanged_password_is_tried_for_a_while(tmp_path: Path) -> None:
    """The server may learn of it later. Then it is useless to try again. Refusals with a pause
    between are two series: between them the login was accepted."""
    story = Story(tmp_path)
    assert "has not changed" in story.refused_at(1000.0)
    assert story.refused_at(1000.0 + 2 * PATIENCE_S)
    assert story.refused_at(1000.0 + 3 * PATIENCE_S - 1)
    assert story.refused_at(1000.0 + 3 * PATIENCE_S) == ""


def test_a_new_password_is_a_new_series_and_refusals_of_the_old_one_do_not_count(
    tmp_path: Path,
) -> None:
    """Several clients are refused at about the same time, and one of them reads the file."""
    story = Story(tmp_path)
    story.refused_at(1000.0)
    story.file.write_text("two")
    assert "has changed" in story.refused_at(1000.0 + PATIENCE_S)
    assert "has changed" in story.refused_at(1000.0 + PATIENCE_S + SETTLE_S - 1)
    began_s = 1000.0 + PATIENCE_S + SETTLE_S
    assert "has not changed" in story.refused_at(began_s)
    assert story.refused_at(began_s + PATIENCE_S) == ""


def test_a_file_that_is_being_replaced_counts_as_unchanged(tmp_path: Path) -> None:
    """It is missing, empty or half written."""
    story, client = Story(tmp_path), Client()
    story.login.adopt(client, "one")
    for content in (b"", b"\n", b"\xff"):
        story.file.write_bytes(content)
        assert "has not changed" in story.refused_at(1.0), content
    story.file.unlink()
    assert "has not changed" in story.refused_at(1.0)
    assert client.given == []


def secured(**changes: Any) -> Settings:
    """Settings with SASL, and a server that does not answer."""
    return Settings(**({"kafka": NOWHERE, "kafka_security_protocol": "sasl_plaintext"} | changes))


def test_only_what_can_change_is_waited_for(tmp_path: Path) -> None:
    """A password from a file, or a token. As long as no client shows any, a refusal is final."""
    named: dict[str, Any] = {"kafka_sasl_username": "ann", "kafka_sasl_password": "one"}
    file: dict[str, Any] = {"kafka_sasl_password_file": str(tmp_path / "password")}
    assert login_of(Settings()) is None
    assert login_of(secured(**named)) is None
    assert login_of(Settings(**file)) is None
    assert login_of(secured(kafka_sasl_mechanism="OAUTHBEARER")) is not None
    assert isinstance(trouble_of(REFUSED), Denied)
    settings = secured(**named, **file)
    client = new_producer(settings, client_options(settings))
    trouble = trouble_of(REFUSED)
    assert isinstance(trouble, LogTrouble)
    assert trouble.cause == "denied"
    assert f"{tmp_path / 'password'} has not changed" in str(trouble)
    del client
    assert isinstance(trouble_of(REFUSED), Denied)


def test_clients_of_one_kafka_have_one_login() -> None:
    """So that whichever is refused reads the file for all of them."""
    settings = secured(kafka_sasl_mechanism="OAUTHBEARER")
    login = login_of(settings)
    assert login_of(settings) is login
    assert login_of(secured(kafka_sasl_mechanism="oauthbearer")) is login
    assert login_of(secured(kafka_sasl_mechanism="OAUTHBEARER", kafka="127.0.0.1:2")) is not login


# --- tokens from a function ----------------------------------------------------------------------

FUNCTIONS = """
def good(config): return "abc", 2e9
def with_principal(config): return "abc", 2_000_000_000, "ann", {"scope": "x"}
def fails(config): raise ValueError("no issuer\\nat all")
def text(config): return "abc"
def unnamed(config): return None
def reversed_(config): return 2e9, "abc"
value = 5
"""


@pytest.fixture
def signer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with functions for tokens."""
    (tmp_path / "signer_of_a_test.py").write_text(FUNCTIONS)
    (tmp_path / "broken_signer_of_a_test.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "signer_of_a_test"


def test_a_token_is_handed_on(signer: str) -> None:
    """As the function returns it."""
    for function in ("good", "with_principal"):
        assert token_function(f"{signer}:{function}")("")[0] == "abc"


def test_a_function_that_fails_is_named_in_one_line(signer: str) -> None:
    """The client is not made: it would wait, and would not say why."""
    for function, says in (
        ("fails", "fails raised ValueError: no issuer at all"),
        ("text", "text must return a token and .* returned a str"),
        ("unnamed", "returned a NoneType"),
        ("reversed_", "returned a tuple"),
    ):
        settings = secured(kafka_sasl_mechanism="OAUTHBEARER", kafka_token=f"{signer}:{function}")
        with pytest.raises(LogTrouble, match=says) as trouble:
            new_producer(settings, client_options(settings))
        assert str(trouble.value).startswith("kafka: STREAM_RATER_KAFKA_TOKEN: ")
        assert "\n" not in str(trouble.value)


@pytest.mark.usefixtures("signer")
def test_a_token_that_cannot_be_is_refused() -> None:
    """Before any client is made, in one line that names the setting."""
    usual = {"kafka_sasl_mechanism": "OAUTHBEARER", "kafka_token": "signer_of_a_test:good"}
    by_password = {"kafka_sasl_username": "u", "kafka_sasl_password": "p"}
    cases: list[tuple[dict[str, str], str]] = [
        ({"kafka_token": "signer"}, "name a function as module:function"),
        ({"kafka_token": ":token"}, "name a function as module:function"),
        ({"kafka_token": "no_such_module_at_all:f"}, "cannot be imported: .*: install it, or name"),
        ({"kafka_token": "broken_signer_of_a_test:f"}, "cannot be imported: ModuleNotFoundError"),
        ({"kafka_token": "signer_of_a_test:other"}, "has no function 'other'"),
        ({"kafka_token": "signer_of_a_test:value"}, "has no function 'value'"),
        ({"kafka_sasl_mechanism": "PLAIN", **by_password}, "kafka_sasl_mechanism=OAUTHBEARER"),
        ({"kafka_security_protocol": "ssl"}, "give kafka_security_protocol with SASL"),
    ]
    for given, says in cases:
        with pytest.raises(BadConfiguration, match=says) as refusal:
            client_options(secured(**(usual | given)))
        assert str(refusal.value).startswith("STREAM_RATER_KAFKA_TOKEN")
