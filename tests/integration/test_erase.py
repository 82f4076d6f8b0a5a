"""`erase` on real servers: the id is gone, and every rating is what it was."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Producer

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.columns.sharding import shards_of
from stream_rater.config.settings import Settings
from stream_rater.contract.events import joined, rating_changed_from_json
from stream_rater.operations.digests import Digests, digests_of
from stream_rater.rating import record
from tests import real, rounds
from tests.integration.erasing import (
    GERTRUDE,
    NAME,
    Start,
    beliefs,
    erase,
    season,
    stopped,
)
from tests.integration.processes import stream_rater, wait_until
from tests.integration.test_corrections import (
    DUELS,
    RANKED,
    a_round,
    correct,
    corrections,
    last_round,
    published_events,
    rated,
    verified,
)
from tests.integration.test_rebuild import flush, rebuild
from tests.integration.topics import TIMEOUT_S, Bytes, headers_of, read_topic


def in_redis(at: Settings) -> Iterator[bytes]:
    """Every key, field and value."""
    with connect(at) as client:
        for key in client.scan_iter():
            yield key
            if client.type(key) == b"hash":
                for field, value in client.hgetall(key).items():
                    yield from (field, value)
            else:
                yield client.get(key)


def in_topics(at: Settings) -> Iterator[bytes]:
    """Every key, value and header's value."""
    for topic in Topics.of(at).names:
        for message in read_topic(at, topic):
            headers = headers_of(message)
            yield from (message.key() or b"", message.value() or b"")
            yield from (content or b"" for _, content in headers)


def under_new_name(found: Digests) -> Digests:
    return {(of, NAME if who == GERTRUDE else who): each for (of, who), each in found.items()}


def digests(at: Settings) -> Digests:
    """Of all beliefs, on ladders with corrections."""
    return digests_of(list(beliefs(at).items()), {RANKED, DUELS})


def in_transaction(at: Settings, record: Bytes, *, commits: bool) -> None:
    """Report a round as a game backend with transactions does. Its end takes an offset."""
    producer = Producer(
        {
            "bootstrap.servers": at.kafka, "transactional.id": f"{at.topic_prefix}game",
            "partitioner": "murmur2_random",
        },
        logger=CLIENT_LOGGER,
    )  # fmt: skip
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(Topics.of(at).rounds, record.value, record.key)
    producer.flush(TIMEOUT_S)
    (producer.commit_transaction if commits else producer.abort_transaction)(TIMEOUT_S)


def rounds_of(at: Settings) -> int:
    """How many rounds of the erased player's count."""
    stored = record.decode([beliefs(at)[RANKED, NAME]], 0, 0.0, 1.0)
    return int(stored.header["rounds"][0])


def with_a_past(at: Settings, start: Start) -> None:
    """Rate rounds of Gertrude's, alone and in teams; refuse some records that name her; take a
    round back, remove a player, and merge one into her. A checkpoint knows her, too."""
    worker = start(at)
    named = rounds.as_json(*rounds.ranked([1, 2], [GERTRUDE, GERTRUDE]), ladder=RANKED)
    rated(at, *season(0, 60), Bytes(named, RANKED.encode()), Bytes(GERTRUDE.encode(), b"ranked"))
    rated(at, *season(0, 8), a_round(60, "walter", "p1"), a_round(61, "p2", "walter"))
    in_transaction(at, a_round(62, "p4", GERTRUDE), commits=False)
    in_transaction(at, a_round(63, "p4", GERTRUDE), commits=True)
    correct(at, "void", RANKED, "r11")
    correct(at, "merge", RANKED, "walter", GERTRUDE)
    correct(at, "remove", RANKED, "p6")
    correct(at, "remove", DUELS, GERTRUDE, "--from", rounds.day(200))
    done = stream_rater("checkpoint", settings=at)
    assert done.returncode == 0, done.stderr
    rated(at, *season(70, 12))
    in_transaction(at, a_round(82, "p4", GERTRUDE), commits=True)  # the log ends with its end
    wait_until(lambda: last_round(at, GERTRUDE).round_id == "r82", "the last one is rated")
    stopped(worker)


def test_the_id_is_gone_and_ratings_are_as_before(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start
) -> None:
    """In no record of the new topics and nowhere in Redis. Workers go on from there as the replay
    of the new log says, and a round of the erased player can be taken back."""
    at = settings()
    to = generation(at)
    with_a_past(at, worker_process)
    before, events, last = digests(at), published_events(at), last_round(at, GERTRUDE)
    assert any(GERTRUDE.encode() in each for each in in_redis(at))
    looked = erase(at, to.topic_prefix, "--pseudonym", NAME, "--dry-run")
    assert looked.returncode == 0, looked.stderr
    assert not Admin(to).partitions()
    done = erase(at, to.topic_prefix, "--pseudonym", NAME)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert looked.stdout.splitlines()[:2] == done.stdout.splitlines()[:2]

    assert not [each for each in in_topics(to) if GERTRUDE.encode() in each]
    assert not [each for each in in_redis(at) if GERTRUDE.encode() in each]
    assert digests(to) == under_new_name(before)
    assert not read_topic(to, Topics.of(to).rejected)
    assert Admin(to).all_ends(Topics.of(to).rounds) == Admin(at).all_ends(Topics.of(at).rounds)
    again = published_events(to)
    assert set(again) == {(of, NAME if who == GERTRUDE else who) for of, who in events}
    for who, some in again.items():
        name = who[0], GERTRUDE if who[1] == NAME else who[1]
        assert [each.mu for each in some] == [each.mu for each in events[name]]
    assert "all equal" in verified(to)

    worker = worker_process(to)
    rated(to, *season(100, 24, NAME))
    played = rounds_of(to)
    assert corrections(to, correct(to, "void", RANKED, last.round_id))
    assert rounds_of(to) == played - 1
    rated(to, *season(200, 8, NAME), a_round(210, "walter", "p3"))
    assert published_events(to)[RANKED, NAME][-1].round_id == "r210", (
        "walter's rounds are the player's"
    )
    verified(to)
    stopped(worker)


def test_subscribers_of_the_old_topics_get_tombstones(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start
) -> None:
    """The last record of each of the player's keys has no value. The next step is printed; commands
    still read these topics, and the way back is open."""
    at = settings()
    to = generation(at)
    worker = worker_process(at)
    rated(at, *season(0, 30))
    correct(at, "void", RANKED, "r5")
    stopped(worker)
    done = erase(at, to.topic_prefix)
    assert done.returncode == 0, done.stderr
    name = re.search(r"is to be '(erased-[0-9a-f]{16})'", done.stdout)
    assert name is not None
    newest: dict[bytes, Any] = {}
    for message in read_topic(at, Topics.of(at).changed):
        newest[message.key() or b""] = message
    for ladder in (RANKED, DUELS):
        last = newest.pop(joined(ladder, GERTRUDE).encode())
        assert last.value() is None
        assert last.partition() == shards_of([GERTRUDE], at.shards)[0]
        assert beliefs(to)[ladder, name[1]]
    assert all(rating_changed_from_json(each.value()) for each in newest.values())
    assert "2 tombstones" in done.stdout
    topics = "|".join(Topics.of(at).names).replace(".", r"\.")
    assert f"--delete --topic '{topics}'" in done.stdout
    words = ["watch", "--from-start", "--wait", "1", "--player", GERTRUDE]
    assert stream_rater(*words, settings=at).returncode == 0
    ended = stream_rater("run", settings=at)
    assert ended.returncode == 2 and "set topic_prefix to that of the new topics" in ended.stderr
    flush(at)
    assert rebuild(at).returncode == 0
    shown = stream_rater("inspect", "--ladder", RANKED, "--player", GERTRUDE, settings=at)
    assert shown.returncode == 0 and "  erased: " in shown.stdout
    verified(at)


def test_old_topics_are_deleted_on_request(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start
) -> None:
    """And only then."""
    at = settings()
    to = generation(at)
    worker = worker_process(at)
    rated(at, *season(0, 12))
    stopped(worker)
    done = erase(at, to.topic_prefix, "--delete-old")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not Admin(at).partitions(), "they are gone")
    assert set(Admin(to).partitions()) == set(Topics.of(to).names)
    verified(to)
