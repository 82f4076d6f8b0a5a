"""`season-standings` on servers that enforce rights: the least suffice, and each of them is
needed."""

import re
from collections.abc import Iterator

import pytest

from stream_rater.adapters.kafka.season_topic import SeasonTopic
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.groups import ESTIMATORS
from stream_rater.contract.season_ended import PageWritten, message_of
from tests.integration import rights
from tests.integration.processes import WorkerProcess, complaints, stream_rater, wait_until
from tests.integration.secured import Acl
from tests.integration.test_access import Castle, castle, some_rounds
from tests.integration.topics import Bytes, Finished, produce

__all__ = ["castle"]

REDIS = ("%R~stream-rater:checkpoint*", "+hgetall", "+get", "+select")
NAMES = (
    "round-completed READ", "ladders-noted READ", "group DESCRIBE", "season-ended READ",
    "season-ended WRITE", "transactions WRITE",
)  # fmt: skip


def kafka_rights(at: Settings) -> dict[str, Acl]:
    """The rights of Kafka by name."""
    prefix = at.topic_prefix
    return {
        name: {
            "group": Acl("GROUP", prefix + ESTIMATORS, operation),
            "transactions": Acl(
                "TRANSACTIONAL_ID", f"{prefix}stream-rater-season-", operation, True
            ),
        }.get(thing, Acl("TOPIC", prefix + thing, operation))
        for name in NAMES
        for thing, operation in [name.split()]
    }


@pytest.fixture(scope="module")
def ended(castle: Castle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A place with a season that has ended, a checkpoint, and the topic."""
    at = castle.place()
    opened, user = castle.opened(at), castle.user(at, "all")
    checkpoints = (*rights.REDIS["all"], *rights.REDIS["checkpoint"])
    castle.redis.allow(user.redis_username, *checkpoints)
    produce(opened, some_rounds())
    worker = WorkerProcess(user, tmp_path_factory.mktemp("seasons") / "log")
    try:
        wait_until(Finished(opened), "all is rated")
        done = stream_rater("checkpoint", "eu", settings=castle.user(at, "checkpoint"))
        assert done.returncode == 0, done.stderr
        season = Bytes(b'{"ladder": "eu", "season": 1}', b"eu", [("event-type", b"season-started")])
        produce(opened, [season])
        wait_until(Finished(opened), "it is applied")
    finally:
        worker.close()
    store = SeasonTopic(opened, Admin(opened), "eu", 99)
    store.begin()
    mark = PageWritten(ladder="eu", season=99, page=0, pages=2, digest="d")
    store.write([message_of(mark)], "2026-11-01T00:00:00Z")  # so that there is something to read
    yield opened


@pytest.mark.parametrize("less", [*NAMES, *REDIS, None])
def test_each_right_is_needed(castle: Castle, ended: Settings, less: str | None) -> None:
    """Without one of them the command writes nothing, and a line says which server denied what.
    (Without any missing it writes, so this case is the last.)"""
    name = next(castle.users)
    acls = [acl for each, acl in kafka_rights(ended).items() if each != less]
    if less in ("round-completed READ", "season-ended READ"):
        acls.append(Acl("TOPIC", kafka_rights(ended)[less].name, "DESCRIBE"))
    castle.kafka.allow(name, tuple(acls))
    castle.redis.allow(name, *(each for each in REDIS if each != less))
    database = int(ended.redis.rpartition("/")[2])
    user = castle.settings(name, ended.topic_prefix, database)
    done = stream_rater("season-standings", "eu", settings=user)
    if less is None:
        assert (done.returncode, complaints(done.stderr)) == (0, []), done.stderr
        return
    lines = complaints(done.stderr)
    assert (done.returncode in (1, 2), len(lines)) == (True, 1), done
    server = "redis" if less in REDIS else "kafka|season-ended|ladders-noted|round-completed"
    assert re.fullmatch(f"stream-rater: .*({server}).*", lines[0]), lines[0]
