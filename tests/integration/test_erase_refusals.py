"""`erase` on real servers: what it refuses, and what its advice is worth after a kill."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.config.errors import Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.settings import Settings
from stream_rater.operations.migrate import Migration
from stream_rater.operations.rewriting import Pseudonym
from stream_rater.places import opened
from tests import real
from tests.builders.kills import halting, short
from tests.integration import erasing, topics
from tests.integration.processes import Start, done, environment_of, refused, stopped
from tests.integration.test_corrections import RANKED, correct, played


def test_what_could_not_be_undone_is_refused(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start
) -> None:
    """Running workers, a pending correction, a round that is unrated, arrives during the work or
    was deleted: each is refused in one line, with its place and the remedy."""
    at = settings()
    to = generation(at)
    worker = worker_process(at)
    topics.rated(at, *erasing.season(0, 30))
    assert "workers are in the group" in erasing.refused(at, to.topic_prefix)
    looked = erasing.erase(at, to.topic_prefix, "--dry-run")
    assert looked.returncode == 0 and "nothing was written" in looked.stdout
    correct(at, "void", RANKED, "r5", "--batched")
    stopped(worker)
    assert "1 correction waiting for corrections-applied" in erasing.refused(at, to.topic_prefix)
    worker = worker_process(at)
    correct(at, "apply", RANKED)
    stopped(worker)
    assert not Admin(to).partitions()

    ladders, name = ladders_of_settings(at), Pseudonym(erasing.GERTRUDE, erasing.NAME)
    with (
        pytest.raises(Failed, match=r"partition \d: 1 record came after the command began"),
        opened(at, writes=True) as place, place.successor(to.topic_prefix) as target,
    ):  # fmt: skip
        work = Migration(place, target, ladders, name, "")
        work.check()
        found = work.search()
        topics.produce(at, [played(500, "p1", "p2")])
        work.copy(found)
    to = generation(at, "v3")
    assert re.search(
        r"round-completed, partition \d: 1 record not fin", erasing.refused(at, to.topic_prefix)
    )
    topic = Topics.of(at).rounds
    partition = next(p for p, end in enumerate(Admin(at).ends(topic, at.partitions)) if end)
    topics.delete_records(at, topic, {partition: 1})
    assert "were deleted" in erasing.refused(at, f"{to.topic_prefix}again.")


@pytest.mark.slow
def test_the_new_topics_are_checked(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start
) -> None:
    """A bad prefix, and topics that have other settings or records: one line each."""
    at = settings()
    taken = generation(at, "taken")
    worker = worker_process(at)
    topics.rated(at, *erasing.season(0, 12))
    stopped(worker)
    assert "is the prefix of the present topics" in erasing.refused(at, at.topic_prefix)
    assert "cannot begin the name of a topic" in erasing.refused(at, "v 2")
    small = {"max.message.bytes": "1000000"}
    topics.make_topics(taken, Topics.of(taken).rounds, partitions=3)
    assert "has 3 partitions, and" in erasing.refused(at, taken.topic_prefix)
    topics.remove_topic(taken, Topics.of(taken).rounds)
    topics.make_topics(taken, *Topics.of(taken).names[:4], config=small)
    assert re.search(r"is 1000000, and that of .* is 16777216: run `kafka-configs.sh .*, and run it"
                     " again$", erasing.refused(at, taken.topic_prefix))  # fmt: skip
    topics.produce(taken, [played(0, "a", "b")])
    assert re.search("holds records, or .* name another", erasing.refused(at, taken.topic_prefix))


# --- killed ---------------------------------------------------------------------------------------

EFFECTS = [  # All that `erase` writes by, in the order of the first calls.
    "stream_rater.adapters.kafka.topics.Admin.create_topics",
    "stream_rater.adapters.kafka.producers.Copier.write",
    "stream_rater.adapters.kafka.topics.Admin.commit",
    "stream_rater.adapters.redis.store.RedisCheckpoints.drop_all",
    "stream_rater.places.kafka.drop_index",
    "stream_rater.adapters.kafka.producers.PartsProducer.scatter",
    "stream_rater.adapters.redis.metadata.StoreMetadata.begin_rebuild",
    "stream_rater.adapters.redis.store.RedisStore.apply",
    "stream_rater.adapters.kafka.ladder_events.LadderEvents.write",
    "stream_rater.adapters.redis.metadata.StoreMetadata.end_rebuild",
]


def killed_after(last: str, at: Settings, to: Settings, log: Path) -> list[str]:
    """Kill `erase` after this effect. Until Redis is emptied, all beliefs must be there."""
    before, made = erasing.digests(at), list[str]()
    words = ["erase", erasing.GERTRUDE, "--pseudonym", erasing.NAME, "--to", to.topic_prefix]
    with halting(words, environment_of(at), EFFECTS, log) as halts:
        for name in halts:
            made.append(name)
            if name == last:
                return made
            assert "StoreMetadata.begin_rebuild" in made or erasing.digests(at) == before, made
    raise AssertionError(f"it has ended: {made}\n{log.read_text()}")


def test_killed(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Beliefs are there, or come back by the rebuild that is asked for, or only tombstones are
    missing. Half-finished work is refused with a remedy, and the remedy works."""
    at = settings()
    first, second = generation(at), generation(at, "v3")
    worker = worker_process(at)
    topics.rated(at, *erasing.season(0, 16))
    correct(at, "void", RANKED, "r5")
    stopped(worker)
    before = erasing.digests(at)

    made = killed_after("RedisStore.apply", at, first, tmp_path / "first.log")
    marks, emptied = "PartsProducer.scatter", "StoreMetadata.begin_rebuild"
    assert made.index(marks) < made.index(emptied), "the store is emptied after the marks"
    assert "a rebuild of the store is unfinished" in erasing.refused(at, second.topic_prefix)
    assert "offsets no longer order the rounds" in refused(first, "rebuild", "--replace")
    done(at, "rebuild", "--replace")
    assert erasing.digests(at) == before
    assert "holds records" in erasing.refused(at, first.topic_prefix)

    made += killed_after("StoreMetadata.end_rebuild", at, second, tmp_path / "second.log")
    assert set(made) == {*map(short, EFFECTS)}
    assert erasing.digests(second) == erasing.under_new_name(before), (
        "all is done but the tombstones"
    )
    ended = erasing.erase(at, f"{second.topic_prefix}again")
    assert "delete the old ones, which hold the id" in ended.stderr
