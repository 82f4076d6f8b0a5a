"""`erase` on real servers, killed after each call to Kafka and Redis: what its advice, or the
next command's, leads to."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stream_rater.adapters.kafka import copier
from stream_rater.adapters.kafka.ladder_events import LadderEvents
from stream_rater.adapters.kafka.producers import PartsProducer
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.checkpoints import RedisCheckpoints
from stream_rater.adapters.redis.metadata import StoreMetadata
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.settings import Settings
from stream_rater.operations import erase as module
from stream_rater.operations.erase import Erasure, pseudonym_of
from tests import real
from tests.integration.erasing import GERTRUDE, NAME, Start, erase, season, stopped
from tests.integration.test_corrections import correct, rated, verified
from tests.integration.test_erase import RANKED, digests, in_redis, in_topics, under_new_name
from tests.integration.test_rebuild import rebuild

CALLS: list[tuple[Any, str]] = [
    (Admin, "create_topics"),
    (copier.Copier, "write"),
    (Admin, "commit"),
    (RedisCheckpoints, "drop_all"),
    (module, "drop_index"),
    (PartsProducer, "scatter"),
    (StoreMetadata, "begin_rebuild"),
    (RedisStore, "apply"),
    (LadderEvents, "write"),
    (StoreMetadata, "end_rebuild"),
]
"""All that `erase` writes by, in the order of the first calls."""


class Killed(BaseException):
    """The command ends here, without a word."""


@contextmanager
def killed_after(calls: int) -> Iterator[list[str]]:
    """Let the process end after this many calls. Yields the names of those that were made."""
    made: list[str] = []

    def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def until(*given: Any, **named: Any) -> Any:
            outcome = call(*given, **named)
            made.append(name)
            if len(made) == calls:
                raise Killed
            return outcome

        return until

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in CALLS:
            patch.setattr(owner, name, wrapped(name, getattr(owner, name)))
        yield made


def erased(at: Settings, to: Settings) -> None:
    """The command's work."""
    work = Erasure(at, to.topic_prefix, ladders_of_settings(at), pseudonym_of(GERTRUDE, NAME))
    work.check_topics()
    work.check_idle()
    mentions = work.search()
    work.copy(mentions)
    work.rebuild()
    work.conclude(delete_old=False)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # some twenty times `erase`, on whatever machine
def test_killed_after_each_call(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start
) -> None:
    """The beliefs are there again, or come back by the rebuild that the next command asks for. Then
    `erase` into other topics ends well: the id is in neither the topics nor Redis."""
    at = settings()
    worker = worker_process(at)
    rated(at, *season(0, 16))
    correct(at, "void", RANKED, "r5")
    stopped(worker)
    before = digests(at)
    seen: set[str] = set()
    for calls in itertools.count(1):
        to = generation(at, f"v{calls}")
        try:
            with killed_after(calls) as made:
                erased(at, to)
        except Killed:
            seen.update(made)
        if "end_rebuild" in made:
            assert digests(to) == under_new_name(before), "all is done but the tombstones"
            ended = erase(at, f"{to.topic_prefix}again")
            assert "delete the old ones, which hold the id" in ended.stderr
            break
        if "begin_rebuild" in made:
            done = rebuild(at, "--replace")
            assert done.returncode == 0, done.stderr
        assert digests(at) == before, made
    assert seen == {name for _, name in CALLS}
    assert not [each for each in in_topics(to) if GERTRUDE.encode() in each]
    assert not [each for each in in_redis(at) if GERTRUDE.encode() in each]
    verified(to)
