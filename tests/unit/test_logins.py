"""What Kafka's clients show of who they are, where that may change while they run."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError

from stream_rater.adapters import logins
from stream_rater.adapters.access import client_options, new_producer, noting_refusals, trouble_of
from stream_rater.adapters.logins import SETTLE_S, Login, login_of, token_function
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import PATIENCE_S
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble
from tests.builders.cases import cases
from tests.waits import STILL_S

NOWHERE = "127.0.0.1:1"
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error")
NAMED = {"kafka_sasl_username": "ann", "kafka_sasl_password": "one"}
OF_TOKEN = {"kafka_sasl_mechanism": "OAUTHBEARER", "kafka_token": "signer_of_a_test:good"}


def given_to(client: Mock) -> list[tuple[str, str]]:
    return [each.args for each in client.set_sasl_credentials.call_args_list]


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
    """Also a later client that was made with the old one, but not one with the present one."""
    story, early, late, latest = Story(tmp_path), Mock(), Mock(), Mock()
    story.login.adopt(early, "one")
    assert given_to(early) == []
    story.file.write_text("two\n")
    assert "has changed" in story.refused_at(1.0)
    story.login.adopt(late, "one")
    story.login.adopt(latest, "two")
    assert given_to(early) == given_to(late) == [("ann", "two")] and given_to(latest) == []


def test_a_client_that_is_in_use_gets_the_password_later(tmp_path: Path) -> None:
    """Its other call's callback asks about a refusal, too. Neither waits for the other."""
    answered, taken, file = threading.Event(), list[bool](), tmp_path / "password"
    file.write_text("two")
    client = Mock()
    client.set_sasl_credentials = lambda *_: taken.append(answered.wait(STILL_S))
    threads: list[threading.Thread] = []

    def soon(action: Callable[[], object]) -> None:
        threads.append(threading.Thread(target=action))
        threads[-1].start()

    login = Login("ann", "one", str(file), soon=soon)
    login.adopt(client, "one")
    login.after_refusal()

    def also_asked() -> None:
        login.after_refusal()
        answered.set()

    soon(also_asked)
    for each in threads:
        each.join(2 * STILL_S)
    assert taken == [True]


def test_a_callback_waits_for_no_lock(tmp_path: Path) -> None:
    """The garbage collector may delete a client, which calls back, in a thread that holds it."""
    settings = secured(**NAMED, kafka_sasl_password_file=str(tmp_path / "password"))
    login, found = login_of(settings), list[KafkaError]()
    assert login is not None
    thread = threading.Thread(target=lambda: noting_refusals(found.append)(REFUSED))
    with login._lock, logins._lock:
        thread.start()
        thread.join(STILL_S)
        assert (thread.is_alive(), found) == (False, [REFUSED])


def test_an_unchanged_password_is_tried_for_a_while(tmp_path: Path) -> None:
    """A server may learn of it later. An accepted login or a new password starts the time again."""
    story = Story(tmp_path)
    assert "has not changed" in story.refused_at(1000.0)
    assert story.refused_at(1000.0 + 2 * PATIENCE_S)
    assert story.refused_at(1000.0 + 3 * PATIENCE_S - 1)
    assert story.refused_at(1000.0 + 3 * PATIENCE_S) == ""
    story.file.write_text("two")
    began_s = 2000.0 + 3 * PATIENCE_S
    assert "has changed" in story.refused_at(began_s)
    assert "has changed" in story.refused_at(began_s + SETTLE_S - 1)
    assert "has not changed" in story.refused_at(began_s + SETTLE_S)
    assert story.refused_at(began_s + SETTLE_S + PATIENCE_S) == ""


def test_a_file_that_is_being_replaced_counts_as_unchanged(tmp_path: Path) -> None:
    """It is missing, empty or half written."""
    story, client = Story(tmp_path), Mock()
    story.login.adopt(client, "one")
    for content in (b"", b"\n", b"\xff"):
        story.file.write_bytes(content)
        assert "has not changed" in story.refused_at(1.0), content
    story.file.unlink()
    assert "has not changed" in story.refused_at(1.0)
    assert given_to(client) == []


def secured(**changes: Any) -> Settings:
    """Settings with SASL, and a server that does not answer."""
    return Settings(**({"kafka": NOWHERE, "kafka_security_protocol": "sasl_plaintext"} | changes))


def test_only_what_can_change_is_waited_for(tmp_path: Path) -> None:
    """That is a password file, or a token of some client. Clients of one Kafka share a login."""
    file: Any = {"kafka_sasl_password_file": str(tmp_path / "password")}
    for constant in (Settings(), secured(**NAMED), Settings(**file)):
        assert login_of(constant) is None
    assert isinstance(trouble_of(REFUSED), Denied)
    settings = secured(**NAMED, **file)
    client = new_producer(settings, client_options(settings))
    trouble = trouble_of(REFUSED)
    assert isinstance(trouble, LogTrouble)
    assert trouble.cause == "denied"
    assert f"{tmp_path / 'password'} has not changed" in str(trouble)
    del client
    assert isinstance(trouble_of(REFUSED), Denied)
    login = login_of(secured(kafka_sasl_mechanism="OAUTHBEARER"))
    assert login is not None and login_of(secured(kafka_sasl_mechanism="oauthbearer")) is login
    assert login_of(secured(kafka_sasl_mechanism="OAUTHBEARER", kafka="127.0.0.1:2")) is not login


FUNCTIONS = """
def good(config): return "abc", 2e9
def with_principal(config): return "abc", 2_000_000_000, "ann", {"scope": "x"}
def fails(config): raise ValueError("no issuer\\nat all")
def text(config): return "abc"
def unnamed(config): return None
def reversed_(config): return 2e9, "abc"
value = 5
"""


@pytest.fixture(autouse=True)
def signers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "signer_of_a_test.py").write_text(FUNCTIONS)
    (tmp_path / "broken_signer_of_a_test.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_token_is_handed_on_or_its_function_named_in_one_line() -> None:
    """If the function fails, the client is not made: it would wait, and would not say why."""
    for function in ("good", "with_principal"):
        assert token_function(f"signer_of_a_test:{function}")("")[0] == "abc"
    for function, says in (
        ("fails", "fails raised ValueError: no issuer at all"),
        ("text", "text must return a token and .* returned a str"),
        ("unnamed", "returned a NoneType"), ("reversed_", "returned a tuple"),
    ):  # fmt: skip
        settings = secured(**OF_TOKEN | {"kafka_token": f"signer_of_a_test:{function}"})
        with pytest.raises(LogTrouble, match=says) as trouble:
            new_producer(settings, client_options(settings))
        assert str(trouble.value).startswith("kafka: STREAM_RATER_KAFKA_TOKEN: ")
        assert "\n" not in str(trouble.value)


@cases("given, says", [
    ({"kafka_token": "signer"}, "name a function as module:function"),
    ({"kafka_token": ":token"}, "name a function as module:function"),
    ({"kafka_token": "no_such_module_at_all:f"}, "cannot be imported: .*: install it, or name"),
    ({"kafka_token": "broken_signer_of_a_test:f"}, "cannot be imported: ModuleNotFoundError"),
    ({"kafka_token": "signer_of_a_test:other"}, "has no function 'other'"),
    ({"kafka_token": "signer_of_a_test:value"}, "has no function 'value'"),
    ({"kafka_sasl_mechanism": "PLAIN"} | NAMED, "kafka_sasl_mechanism=OAUTHBEARER"),
    ({"kafka_security_protocol": "ssl"}, "give kafka_security_protocol with SASL"),
])  # fmt: skip
def test_a_token_that_cannot_be_is_refused(given: dict[str, str], says: str) -> None:
    """Before any client is made, in one line that names the setting."""
    with pytest.raises(BadConfiguration, match=says) as refusal:
        client_options(secured(**OF_TOKEN | given))
    assert str(refusal.value).startswith("STREAM_RATER_KAFKA_TOKEN")
