"""`erase` on real servers, killed: advice works. (A data file: `contract/test_place_killed.py`.)"""

from collections.abc import Callable
from pathlib import Path

from stream_rater.config.settings import Settings
from tests import real
from tests.builders.kills import halting, short
from tests.integration.erasing import (
    GERTRUDE,
    NAME,
    RANKED,
    digests,
    erase,
    refused,
    season,
    under_new_name,
)
from tests.integration.processes import Start, environment_of, stopped
from tests.integration.test_corrections import correct, rated
from tests.integration.test_rebuild import rebuild

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
    """Kill `erase` after this effect; until the store is emptied all beliefs are there."""
    before, made = digests(at), list[str]()
    words = ["erase", GERTRUDE, "--pseudonym", NAME, "--to", to.topic_prefix]
    with halting(words, environment_of(at), EFFECTS, log) as halts:
        for name in halts:
            made.append(name)
            if name == last:
                return made
            assert "StoreMetadata.begin_rebuild" in made or digests(at) == before, made
    raise AssertionError(f"it has ended: {made}\n{log.read_text()}")


def test_killed(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Beliefs are there, or come back by the rebuild that is asked for, or only tombstones lack.
    What is half done is refused, with the cure; and the cure works."""
    at = settings()
    first, second = generation(at), generation(at, "v3")
    worker = worker_process(at)
    rated(at, *season(0, 16))
    correct(at, "void", RANKED, "r5")
    stopped(worker)
    before = digests(at)

    made = killed_after("RedisStore.apply", at, first, tmp_path / "first.log")
    marks, emptied = "PartsProducer.scatter", "StoreMetadata.begin_rebuild"
    assert made.index(marks) < made.index(emptied), "the store is emptied after the marks"
    assert "a rebuild of the store is unfinished" in refused(at, second.topic_prefix)
    assert "offsets no longer order the rounds" in rebuild(first, "--replace").stderr
    done = rebuild(at, "--replace")
    assert done.returncode == 0, done.stderr
    assert digests(at) == before
    assert "holds records" in refused(at, first.topic_prefix)

    made += killed_after("StoreMetadata.end_rebuild", at, second, tmp_path / "second.log")
    assert set(made) == {*map(short, EFFECTS)}
    assert digests(second) == under_new_name(before), "all is done but the tombstones"
    ended = erase(at, f"{second.topic_prefix}again")
    assert "delete the old ones, which hold the id" in ended.stderr
