"""`erase` on real servers: what it refuses, and what is left where it is interrupted."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.metadata import StoreMetadata
from stream_rater.config.errors import Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.settings import Settings
from stream_rater.operations.erase import Erasure, pseudonym_of
from tests import real
from tests.integration.erasing import (
    GERTRUDE,
    NAME,
    Start,
    beliefs,
    erase,
    refused,
    season,
    stopped,
)
from tests.integration.processes import stream_rater
from tests.integration.test_corrections import RANKED, a_round, correct, rated, verified
from tests.integration.test_rebuild import rebuild
from tests.integration.topics import make_topics, produce, read_topic, remove_topic
from tests.waits import STILL_S

MU = 21
"""Where mu begins in a record."""


def delete_first_rounds(at: Settings) -> None:
    """Delete a record of the first partition that has any."""
    admin = Admin(at)
    topic = admin.topics.rounds
    partition = next(p for p, end in enumerate(admin.ends(topic, at.partitions)) if end)
    client = AdminClient({"bootstrap.servers": at.kafka}, logger=CLIENT_LOGGER)
    for future in client.delete_records([TopicPartition(topic, partition, 1)]).values():
        future.result(STILL_S)


def test_what_could_not_be_undone_is_refused(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Each in one line, with its place and the cure; nothing is written."""
    at = settings()
    to, taken = generation(at), generation(at, "taken")
    worker = worker_process(at)
    rated(at, *season(0, 30))
    assert "workers are in the group" in refused(at, to.topic_prefix)
    looked = erase(at, to.topic_prefix, "--dry-run")
    assert looked.returncode == 0 and "nothing was copied" in looked.stdout
    correct(at, "void", RANKED, "r5", "--batched")
    stopped(worker)
    assert "1 correction waiting for corrections-applied" in refused(at, to.topic_prefix)
    worker = worker_process(at)
    correct(at, "apply", RANKED)
    stopped(worker)
    before = beliefs(at)

    assert "unknown-player: no accepted record names 'nobody'" in refused(
        at, to.topic_prefix, player="nobody"
    )
    assert "'p3' is a player already" in refused(at, to.topic_prefix, "--pseudonym", "p3")
    assert "is the prefix of the present topics" in refused(at, at.topic_prefix)
    assert "cannot begin the name of a topic" in refused(at, "v 2")
    small = {"max.message.bytes": "1000000"}
    make_topics(taken, Topics.of(taken).rounds, partitions=3)
    assert "has 3 partitions, and" in refused(at, taken.topic_prefix)
    remove_topic(taken, Topics.of(taken).rounds)
    make_topics(taken, *Topics.of(taken).names[:4], config=small)
    assert re.search(r"is 1000000, and that of .* is 16777216: run `kafka-configs.sh .*, and run it"
                     " again$", refused(at, taken.topic_prefix))  # fmt: skip
    produce(taken, [a_round(0, "a", "b")])
    assert re.search("holds records, or .* name another", refused(at, taken.topic_prefix))
    ladders = tmp_path / "ladders.toml"
    ladders.write_text('[ladders."*".rating]\nsystem = "elo-mmr"\nweight_limit = 0.5\n'
                       "sigma_limit = 70\n")  # fmt: skip
    other = msgspec.structs.replace(at, ladders=str(ladders))
    said = refused(other, to.topic_prefix)
    assert "to the ladders file of the workers: nothing was erased" in said
    produce(at, [a_round(500, "p1", "p2")])
    assert re.search(
        r"round-completed, partition \d: 1 record not fin", refused(at, to.topic_prefix)
    )
    stopped_again = worker_process(at)
    rated(at)
    stopped(stopped_again)
    assert {who for who, data in beliefs(at).items() if before[who] != data} == {
        (RANKED, "p1"), (RANKED, "p2"),
    }  # fmt: skip
    assert not Admin(to).partitions()
    delete_first_rounds(at)
    assert "were deleted" in refused(at, to.topic_prefix)


def test_a_belief_that_differs_is_found(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start
) -> None:
    """Then nothing is erased: workers use the store under neither prefix, and a rebuild from the
    old topics brings it back."""
    at = settings()
    to = generation(at)
    worker = worker_process(at)
    rated(at, *season(0, 30))
    stopped(worker)
    before = beliefs(at)
    with connect(at) as client:
        (key, *_) = sorted(client.scan_iter(match="{*}:belief:?*:*"))
        stored = client.hgetall(key)
        stored.pop(GERTRUDE.encode(), None)
        player, data = next(iter(stored.items()))
        client.hset(key, player, data[:MU] + bytes([data[MU] ^ 1]) + data[MU + 1 :])
    said = refused(at, to.topic_prefix)
    assert "1 are different, 0 missing and 0 too many" in said
    assert repr(player.decode()) in said and "stream-rater rebuild --replace" in said
    assert all(each.value() for each in read_topic(at, Topics.of(at).changed))
    for place in (at, to):
        ended = stream_rater("run", settings=place)
        assert ended.returncode == 2 and "a rebuild of the store is unfinished" in ended.stderr
    done = rebuild(at, "--replace")
    assert done.returncode == 0, done.stderr
    assert beliefs(at) == before
    verified(at)


def begun(at: Settings, to: Settings) -> Erasure:
    """The work after its checks."""
    work = Erasure(at, to.topic_prefix, ladders_of_settings(at), pseudonym_of(GERTRUDE, NAME))
    work.check_topics()
    work.check_idle()
    return work


def _given_up(*_: Any) -> None:
    raise InterruptedError


def test_it_can_be_run_again_after_any_interruption(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What is half done is refused, with the cure; and the cure works."""
    at = settings()
    to, other = generation(at), generation(at, "v3")
    worker = worker_process(at)
    rated(at, *season(0, 30))
    stopped(worker)
    before = beliefs(at)
    work = begun(at, to)
    work.copy(work.search())
    assert "holds records" in refused(at, to.topic_prefix)
    assert beliefs(at) == before

    with monkeypatch.context() as patch:
        patch.setattr(StoreMetadata, "end_rebuild", _given_up)
        with pytest.raises(InterruptedError):
            work.rebuild()
    assert "a rebuild of the store is unfinished" in refused(at, other.topic_prefix)
    assert "offsets no longer order the rounds" in rebuild(to, "--replace").stderr
    done = rebuild(at, "--replace")
    assert done.returncode == 0, done.stderr
    assert beliefs(at) == before
    assert "holds records" in refused(at, to.topic_prefix)
    done = erase(at, other.topic_prefix, "--pseudonym", NAME)
    assert done.returncode == 0, done.stderr
    assert {(of, GERTRUDE if who == NAME else who): data
            for (of, who), data in beliefs(other).items()} == before  # fmt: skip


def test_a_round_that_comes_during_the_work_stops_it(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start
) -> None:
    """It would be lost to the new topics."""
    at = settings()
    to = generation(at)
    worker = worker_process(at)
    rated(at, *season(0, 12))
    stopped(worker)
    work = begun(at, to)
    work.copy(work.search())
    produce(at, [a_round(500, "p1", "p2")])
    with pytest.raises(Failed, match=r"partition \d: 1 record came after erase began"):
        work.rebuild()
