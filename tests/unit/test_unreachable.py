"""A server that does not answer is reported with where its address comes from."""

import pytest
from confluent_kafka import KafkaError

from demonstration import corner
from examples import game_backend, matchmaking
from local.servers import Addresses
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble, StoreTrouble
from tests.builders.cases import cases

NOWHERE = "127.0.0.1:1"
DOWN = KafkaError(KafkaError._TRANSPORT)


@cases("settings, expected", [
    (
        Settings(kafka=NOWHERE),
        f"kafka at {NOWHERE}: {DOWN.str()} (the address is that of STREAM_RATER_KAFKA: is the "
        "server running?)",
    ),
    (
        Settings(),
        f"kafka at 127.0.0.1:9092: {DOWN.str()} (the default address; STREAM_RATER_KAFKA names "
        "another)",
    ),
])  # fmt: skip
def test_kafka_is_away(settings: Settings, expected: str) -> None:
    """Perhaps it was stopped, perhaps the variable is not set in this shell."""
    trouble = Admin(settings)._unreachable(DOWN)
    assert isinstance(trouble, LogTrouble)
    assert str(trouble) == expected


def test_servers_that_are_away_or_refuse() -> None:
    """A Kafka that refuses is not away: the address is right. Nobody listens on the port of
    Redis."""
    admin = Admin(Settings(kafka=NOWHERE))
    admin._remember_connection_error(KafkaError(KafkaError._AUTHENTICATION))
    trouble = admin._unreachable(DOWN)
    assert isinstance(trouble, Denied)
    assert "STREAM_RATER_KAFKA" not in str(trouble)
    store = RedisStore(Settings(redis=f"redis://{NOWHERE}"))
    with pytest.raises(StoreTrouble) as caught:
        store.count_beliefs()
    assert str(caught.value).endswith(
        "(the address is that of STREAM_RATER_REDIS: is the server running?)"
    )


@cases("variable", [KAFKA_VARIABLE, REDIS_VARIABLE])
def test_the_demo_says_how_to_do_without(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell may still have the addresses of servers that `make down` stopped."""
    for each in (KAFKA_VARIABLE, REDIS_VARIABLE):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(variable, NOWHERE)
    monkeypatch.setattr(corner, "TIMEOUT_S", 0.1)
    with pytest.raises(corner.NoCorner) as refused, corner.corner(Addresses(NOWHERE, NOWHERE)):
        pass
    assert str(refused.value).endswith(
        f"(the address is that of {variable}; without it, the demo starts its own: "
        "unset STREAM_RATER_KAFKA STREAM_RATER_REDIS)"
    )


def test_the_examples_say_where_they_have_it_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """From an option or a variable."""
    for module in (game_backend, matchmaking):
        monkeypatch.setattr(module, "CONNECT_S", 0.1)
    where = rf"Kafka at {NOWHERE} \(--kafka, or STREAM_RATER_KAFKA\) does not answer: "
    with pytest.raises(game_backend.NotReported, match=where):
        game_backend.Reporter(NOWHERE, "t").check()
    with pytest.raises(matchmaking.NotFollowed, match=where):
        matchmaking.Ratings(NOWHERE, "t")
