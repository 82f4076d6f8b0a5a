"""The index of `serve` on a real Redis while it is lost, in whatever way: no question is answered
from what is left, and it is made again as it was."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import redis

from stream_rater.adapters.redis.index_keys import ROOT, SUMMARY, drop_index, keys_of, member_of
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged
from stream_rater.index.entries import PlayerErased
from stream_rater.serve.cursors import AfterRow
from stream_rater.serve.index import writer as index_writer
from stream_rater.serve.index.reader import ReadPositions
from stream_rater.serve.index.writer import IndexLost, IndexWriter
from stream_rater.serve.questions import Incomplete
from tests import real
from tests.builders.cases import cases
from tests.contract.test_serve_index import (
    LADDER,
    TOPIC,
    Reader,
    an_event,
    assert_equal_to_newest,
    blocking,
    contents,
    once_it_has_read,
    some_events,
)

__all__ = ["blocking"]

pytestmark = pytest.mark.integration

PARTITIONS = 2
KEYS = [name for name in keys_of(LADDER)._fields if name != "dues"]
"""The keys of a ladder without views."""
EVENTS = [*some_events(3), an_event("ann", 40), an_event("bob", 41, 20.0)]


def places(events: Sequence[Any]) -> list[tuple[int, int]]:
    """Where these events stand: by turns in the partitions."""
    return [(i % PARTITIONS, i // PARTITIONS) for i in range(len(events))]


def ends(events: Sequence[Any]) -> list[int]:
    return [len(range(p, len(events), PARTITIONS)) for p in range(PARTITIONS)]


def written(at: Settings, events: Sequence[Any] = EVENTS, size: int = 7) -> IndexWriter:
    """A writer that has read these events from the start, in batches."""
    writer = IndexWriter(at)
    writer.begin(TOPIC, PARTITIONS)
    for first in range(0, len(events), size):
        until = first + size
        writer.apply(events[first:until], ends(events[:until]), places(events)[first:until])
    writer.checkpoint(ends(events))
    return writer


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "ladder": lambda reader: reader.ladder(LADDER),
    "players": lambda reader: reader.players(LADDER, ["ann", "nobody"]),
    "player": lambda reader: reader.player(LADDER, "ann"),
    "history": lambda reader: reader.history(LADDER, "ann"),
    "first page": lambda reader: reader.page(LADDER, None, 3),
    "page": lambda reader: reader.page(LADDER, AfterRow(20.0, "bob"), 3),
    "around": lambda reader: reader.around(LADDER, "ann", 3),
}
"""Every question about a ladder."""


LACKS = "the index is not complete"
NOTHING = dict.fromkeys(QUESTIONS, LACKS)


def answers(reader: Any) -> dict[str, Any]:
    """What is answered, by question, or LACKS."""
    found = {}
    for name, ask in QUESTIONS.items():
        try:
            found[name] = ask(reader)
        except Incomplete:
            found[name] = LACKS
    return found


def test_nothing_is_answered_before_it_is_known_what_there_is(
    blocking: Reader, at: Settings
) -> None:
    """A process that has not read the topic answers nothing, though there is an index."""
    reader = blocking(at, positions := ReadPositions())
    written(at)
    assert answers(reader) == NOTHING
    for ask in (reader.ladders, reader.check_complete):
        with pytest.raises(Incomplete):
            ask()
    positions.all_read(ends(EVENTS))
    assert LACKS not in answers(reader).values()
    assert reader.ladders() == [LADDER]


def test_a_ladder_that_never_was(blocking: Reader, at: Settings) -> None:
    """It is unknown, and not incomplete, if the whole index is there; once an event was read about
    it, it is incomplete."""
    reader = blocking(at, positions := ReadPositions())
    written(at)
    positions.all_read(ends(EVENTS))
    assert reader.ladder("asia") is None
    for player in (lambda: reader.players("asia", ["ann"]), lambda: reader.page("asia", None, 1)):
        with pytest.raises(Incomplete):
            player()
    positions.event_read("asia", 0, 3)
    with pytest.raises(Incomplete):
        reader.ladder("asia")


@cases("gone", [*KEYS, "ladder", "root", "all"])
def test_whatever_is_lost_no_answer_is_given(blocking: Reader, at: Settings, gone: str) -> None:
    """A key of a ladder, or all its keys, or the root, or all is lost. Answers that depend on it
    are refused at once, and at each step of the second reading. Then all is answered as before."""
    reader = blocking(at, positions := ReadPositions())
    drop_index(at)
    writer = written(at)
    positions.all_read(ends(EVENTS))
    before, whole = answers(reader), contents(at)
    client = redis.Redis.from_url(at.redis)
    of_ladder = keys_of(LADDER)._asdict()
    lost_keys = {"ladder": [*of_ladder.values()], "root": [ROOT], "all": list(whole)}
    client.delete(*(lost_keys.get(gone) or [of_ladder[gone]]))
    client.close()
    if gone != "root":
        assert answers(reader) == NOTHING
    if gone in ("root", "all"):
        for ask in (reader.ladders, reader.check_complete, lambda: reader.ladder("asia")):
            with pytest.raises(Incomplete):
                ask()
    with pytest.raises(IndexLost):
        writer.checkpoint(ends(EVENTS))
    again = IndexWriter(at)
    if gone == "state":  # this leaves rests, which the first write finds
        again.begin(TOPIC, PARTITIONS)
        with pytest.raises(IndexLost):
            again.apply(EVENTS[:1], ends(EVENTS[:1]), places(EVENTS)[:1])
    assert again.begin(TOPIC, PARTITIONS) == [0, 0]
    for i, event in enumerate(EVENTS):
        if gone != "root":  # which holds no player
            assert answers(reader) == NOTHING
        again.apply([event], ends(EVENTS[: i + 1]), [places(EVENTS)[i]])
    again.checkpoint(ends(EVENTS))
    assert answers(reader) == before and contents(at) == whole
    assert reader.ladders() == [LADDER]
    reader.check_complete()


def test_redis_goes_back(blocking: Reader, at: Settings) -> None:
    """An older state of Redis is whole in itself. A reader that has read one event more in any
    partition does not answer from it."""
    reader = blocking(at, positions := ReadPositions())
    for size in (len(EVENTS) - 1, len(EVENTS)):
        drop_index(at)
        written(at, EVENTS[:size])
        positions.all_read(ends(EVENTS[:-1]))
        assert LACKS not in answers(reader).values()
        positions.event_read(LADDER, *places(EVENTS)[-1])
        assert (LACKS in answers(reader).values()) == (size < len(EVENTS))
        positions.all_read(ends(EVENTS))
        assert (LACKS in answers(reader).values()) == (size < len(EVENTS))


def test_redis_goes_back_behind_an_answer(blocking: Reader, at: Settings) -> None:
    """Another process has made the index newer than this one knows it to be, this one answers from
    it, and Redis goes back. No later answer is older, and answers come again with the events."""
    for asked in QUESTIONS.values():
        drop_index(at)
        reader = blocking(at, positions := ReadPositions())
        written(at, EVENTS)
        positions.all_read(ends(EVENTS[:-2]))
        asked(reader)
        drop_index(at)
        written(at, EVENTS[:-1])
        with pytest.raises(Incomplete):
            asked(reader)
        positions.all_read(ends(EVENTS[:-1]))  # of this process: it changes nothing
        assert answers(reader) == NOTHING
        drop_index(at)
        written(at, EVENTS)
        assert LACKS not in answers(reader).values()


def test_a_key_that_is_lost_while_the_topic_is_read(
    settings: real.SettingsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any moment, before or between two batches, or between the reading and the writing of one:
    in the end the index is as it was, since it is made again."""
    for seed in range(8):
        rng, at = random.Random(seed), settings()
        drop_index(at)
        client = redis.Redis.from_url(at.redis)
        lost = getattr(keys_of(LADDER), rng.choice(KEYS))
        moment = rng.randrange(len(EVENTS))
        writer, i, losses = IndexWriter(at), 0, 0
        writer.begin(TOPIC, PARTITIONS)
        while i <= len(EVENTS):
            if i == moment and not losses:
                losses += 1
                if seed % 2:
                    client.delete(lost)
                else:
                    once_it_has_read(monkeypatch, partial(client.delete, lost))
            try:
                if i < len(EVENTS):
                    writer.apply([EVENTS[i]], ends(EVENTS[: i + 1]), [places(EVENTS)[i]])
                else:
                    writer.checkpoint(ends(EVENTS))
                i += 1
            except IndexLost:
                i = 0 if writer.begin(TOPIC, PARTITIONS) == [0, 0] else i
        client.close()
        assert_equal_to_newest(at, EVENTS)


# --- two processes -------------------------------------------------------------------------------


def test_an_event_is_applied_at_the_position_and_not_before(at: Settings) -> None:
    """The position is the next offset: the event there is new, the one before it is not. A process
    that lags behind another one in one partition, and is ahead of it in the other, applies no event
    again: neither an erasure, behind which the player came back, nor an event that an erasure
    stands behind."""
    writer = IndexWriter(at)
    writer.begin(TOPIC, 1)
    writer.apply([an_event("ann", 1)], [5], [(0, 4)])
    writer.apply([PlayerErased(LADDER, "ann"), an_event("bob", 2)], [6], [(0, 4), (0, 5)])
    assert_equal_to_newest(at, [an_event("ann", 1), an_event("bob", 2)])
    drop_index(at)
    first, second = IndexWriter(at), IndexWriter(at)
    for each in (first, second):
        each.begin(TOPIC, 2)
    story: list[Any] = [
        an_event("ann", 1),
        PlayerErased(LADDER, "ann"),
        an_event("ann", 2, rounds=1),
    ]
    first.apply(story, [3, 0], [(0, 0), (0, 1), (0, 2)])
    second.apply([*story[:2], an_event("bob", 1)], [2, 1], [(0, 0), (0, 1), (1, 0)])
    assert_equal_to_newest(at, [story[2], an_event("bob", 1)])
    gone: list[Any] = [an_event("eve", 3), PlayerErased(LADDER, "eve")]
    first.apply(gone, [5, 1], [(0, 3), (0, 4)])
    second.apply([story[2], gone[0], an_event("bob", 4)], [4, 2], [(0, 2), (0, 3), (1, 1)])
    left: list[RatingChanged] = [story[2], an_event("bob", 4)]
    assert_equal_to_newest(at, left)
    assert b"eve" not in contents(at)[keys_of(LADDER).histories.encode()]


def test_a_checkpoint_holds_though_others_write_the_root(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that records positions has written everything before them, even if another process
    adds a ladder during the checkpoint."""
    writer, other = written(at), IndexWriter(at)
    other.begin(TOPIC, PARTITIONS)
    original, done = index_writer._checked, list[int]()

    def interrupted(*given: Any) -> Any:
        if not done and given[0] == ROOT:
            done.append(1)
            other.apply([an_event("ann", 1, ladder="asia")], ends(EVENTS))
        return original(*given)

    monkeypatch.setattr(index_writer, "_checked", interrupted)
    writer.checkpoint([90, 91])
    found = dict(contents(at)[ROOT.encode()])
    assert done and (found[b"partition:0"], found[b"partition:1"]) == (90.0, 91.0)
    assert SUMMARY in contents(at)[keys_of("asia").state.encode()]


def test_a_root_without_a_ladder(at: Settings) -> None:
    """Whoever knows the ladder misses it."""
    writer = written(at)
    client = redis.Redis.from_url(at.redis)
    client.zrem(ROOT, member_of(LADDER))
    client.close()
    with pytest.raises(IndexLost, match="lacks ladders"):
        writer.checkpoint(ends(EVENTS))
