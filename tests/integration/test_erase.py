"""`erase` on real servers: the id is gone, and every rating is what it was."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from stream_rater.adapters.access import QUIET
from stream_rater.adapters.generations import delete_topics
from stream_rater.adapters.redis import RedisStore
from stream_rater.adapters.redis_client import connect
from stream_rater.adapters.topics import Admin, Topics
from stream_rater.cli.erase import Erasure, pseudonym_of
from stream_rater.cli.terminal import Failed
from stream_rater.columns.sharding import shards_of
from stream_rater.config import Settings, service_ladders
from stream_rater.contract.events import joined, rating_changed_from_json
from stream_rater.contract.record import Player
from stream_rater.lab.digests import Digests, digests_of
from stream_rater.rating import record
from tests import real, rounds
from tests.integration.processes import WorkerProcess, complaints, stream_rater, wait_until
from tests.integration.test_corrections import (
    DUELS,
    RANKED,
    a_round,
    correct,
    corrections,
    last_round,
    rated,
    told,
    verified,
)
from tests.integration.test_rebuild import flush, gone, rebuild
from tests.integration.topics import TIMEOUT_S, Bytes, produce, read_topic

Start = Callable[..., WorkerProcess]
Ended = subprocess.CompletedProcess[str]

GERTRUDE, NAME = "gertrude", "somebody"
MU = 21
"""Where mu begins in a record."""
PLAYERS = [GERTRUDE, *(f"p{number}" for number in range(7))]


def season(first: int, count: int, who: str = GERTRUDE) -> Iterator[Bytes]:
    """Rounds on two ladders: of four, and on one of them of two teams."""
    random = Random(first)
    players = [who, *PLAYERS[1:]]
    for number in range(first, first + count):
        four = random.sample(players, 4)
        if number % 4 == 0:
            yield a_round(number, *four, ladder=DUELS)
        elif number % 4 == 2:
            teams = {"team": four[:2], "rank": 1}, {"team": four[2:], "shares": [1, 0.5], "rank": 2}
            value = rounds.as_json(*teams, round_id=f"r{number}", ladder=RANKED)
            yield Bytes(value, RANKED.encode())
        else:
            yield a_round(number, *four)


def erase(at: Settings, prefix: str, *words: str, player: str = GERTRUDE) -> Ended:
    return stream_rater("erase", player, "--to", prefix, *words, settings=at)


def refused(at: Settings, prefix: str, *words: str, player: str = GERTRUDE) -> str:
    """What one line says."""
    ended = erase(at, prefix, *words, player=player)
    lines = complaints(ended.stderr)
    assert ended.returncode in (1, 2) and len(lines) == 1, ended.stdout + ended.stderr
    return lines[0]


@pytest.fixture
def generation(settings: real.SettingsFactory) -> Iterator[Callable[..., Settings]]:
    """Makes settings of another generation of the topics of `at`; these are deleted at the end."""
    made: list[Settings] = []

    def of(at: Settings, name: str = "v2") -> Settings:
        made.append(msgspec.structs.replace(at, topic_prefix=f"{at.topic_prefix}{name}."))
        return made[-1]

    yield of
    for each in made:
        if there := Admin(each).partitions():
            delete_topics(each, there)


def stopped(worker: WorkerProcess) -> None:
    """End a worker, and wait until it has left its groups."""
    worker.terminate()
    assert worker.wait() == 0
    wait_until(gone(worker.settings), "it has left")


def beliefs(at: Settings) -> dict[Player, bytes]:
    """Every belief in Redis."""
    store = RedisStore(at)
    try:
        return {player: data for some in store.beliefs() for player, data in some}
    finally:
        store.close()


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
            headers: Any = message.headers() or ()
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
        logger=QUIET,
    )  # fmt: skip
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(Topics.of(at).rounds, record.value, record.key)
    producer.flush(TIMEOUT_S)
    (producer.commit_transaction if commits else producer.abort_transaction)(TIMEOUT_S)


def rounds_of(at: Settings) -> int:
    """How many rounds of the erased player's count."""
    held = record.decode([beliefs(at)[RANKED, NAME]], 0, 0.0, 1.0)
    return int(held.header["rounds"][0])


def with_a_past(at: Settings, start: Start) -> None:
    """Rate rounds of Gertrude's, alone and in teams; refuse some records that name her; take a
    round back, remove a player, and merge one into her."""
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
    rated(at, *season(70, 12))
    stopped(worker)


def test_the_id_is_gone_and_ratings_are_as_before(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start
) -> None:
    """In no record of the new topics and nowhere in Redis. Workers go on from there as the replay
    of the new log says, and a round of the erased player can be taken back."""
    at = settings()
    to = generation(at)
    with_a_past(at, worker_process)
    before, events, last = digests(at), told(at), last_round(at, GERTRUDE)
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
    again = told(to)
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
    assert told(to)[RANKED, NAME][-1].round_id == "r210", "walter's rounds are the player's"
    verified(to)
    stopped(worker)


def test_subscribers_of_the_old_topics_are_told(
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


def delete_first_rounds(at: Settings) -> None:
    """Delete a record of the first partition that has any."""
    admin = Admin(at)
    topic = admin.topics.rounds
    partition = next(p for p, end in enumerate(admin.ends(topic, at.partitions)) if end)
    client = AdminClient({"bootstrap.servers": at.kafka}, logger=QUIET)
    for future in client.delete_records([TopicPartition(topic, partition, 1)]).values():
        future.result(10.0)


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
    Admin(taken).create_topics()
    produce(taken, [a_round(0, "a", "b")])
    assert "holds records, or has held some" in refused(at, taken.topic_prefix)
    ladders = tmp_path / "ladders.toml"
    ladders.write_text('[ladders."*".rating]\nsystem = "elo-mmr"\nweight_limit = 0.5\n'
                       "sigma_limit = 70\n")  # fmt: skip
    other = msgspec.structs.replace(at, ladders=str(ladders))
    assert "nothing was erased" in refused(other, to.topic_prefix)
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
        held = client.hgetall(key)
        held.pop(GERTRUDE.encode(), None)
        player, data = next(iter(held.items()))
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


def test_it_can_be_run_again_after_any_interruption(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start
) -> None:
    """What is half done is refused, with the cure; and the cure works."""
    at = settings()
    to, other = generation(at), generation(at, "v3")
    worker = worker_process(at)
    rated(at, *season(0, 30))
    stopped(worker)
    before = beliefs(at)
    ladders, name = service_ladders(at), pseudonym_of(GERTRUDE, NAME)
    work = Erasure(at, to.topic_prefix, ladders, name)
    work.check()
    work.copy(work.look())
    assert "holds records" in refused(at, to.topic_prefix)
    assert beliefs(at) == before

    work.switch()  # and the rest is left undone
    assert "the store was laid out with" in refused(at, other.topic_prefix)
    RedisStore(at).layout.release()  # as before the end of the rebuild
    assert "a rebuild of the store is unfinished" in refused(at, other.topic_prefix)
    done = rebuild(at, "--replace")
    assert done.returncode == 0, done.stderr
    assert beliefs(at) == before
    assert "holds records" in refused(at, to.topic_prefix)
    done = erase(at, other.topic_prefix, "--pseudonym", NAME)
    assert done.returncode == 0, done.stderr
    assert {(of, GERTRUDE if who == NAME else who): data
            for (of, who), data in beliefs(other).items()} == before  # fmt: skip


def test_a_round_that_comes_meanwhile_stops_it(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start
) -> None:
    """It would be lost to the new topics."""
    at = settings()
    to = generation(at)
    worker = worker_process(at)
    rated(at, *season(0, 12))
    stopped(worker)
    work = Erasure(at, to.topic_prefix, service_ladders(at), pseudonym_of(GERTRUDE, NAME))
    work.check()
    survey = work.look()
    work.copy(survey)
    produce(at, [a_round(500, "p1", "p2")])
    with pytest.raises(Failed, match=r"partition \d: 1 record came meanwhile"):
        work.switch()
