"""Corrections on real servers: sent by the command, applied and published by workers."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged, joined, rating_changed_from_json
from stream_rater.contract.record import header
from stream_rater.replay.checkpoint import heads_in
from tests import rounds
from tests.builders.lines import Bytes, a_correction, a_message, a_round
from tests.integration import topics
from tests.integration.processes import PATIENTLY, Start, done, refused, stopped
from tests.integration.test_rebuild import flush
from tests.real import SettingsFactory
from tests.waits import wait_until

Who = tuple[str, str]

INITIAL = 960.0  # The rating that a newcomer is shown with.
PLAYERS = [f"p{number}" for number in range(8)]
RANKED, DUELS = "ranked", "duels"


def played(number: int, *players: str, ladder: str = RANKED) -> Bytes:
    """A round of these players, the winner first, as a message."""
    completed_at = rounds.day(min(number, 300))
    return a_message(a_round(number, *players, ladder=ladder, completed_at=completed_at))


def season(first: int, count: int) -> Iterator[Bytes]:
    """Rounds of four on two ladders. Nobody is ever in a round with `p0-2`, who is p0 again."""
    random = Random(first)
    for number in range(first, first + count):
        players = random.sample(PLAYERS, 4)
        if number % 3 == 0:
            players = ["p0-2" if name == "p0" else name for name in players]
        yield played(number, *players, ladder=RANKED if number % 2 else DUELS)


def correct(at: Settings, *words: str) -> int:
    """Send a correction, wait until it is applied, and return its offset."""
    printed = done(at, "correct", *words)
    wait_until(topics.Finished(at), f"{words} is applied")
    found = re.search(r"offset (\d+)$", printed)
    assert found is not None, printed
    return int(found[1])


def published_events(at: Settings) -> dict[Who, list[RatingChanged]]:
    """By player, the events. Checks that each begins at the values that the last one ended with."""
    found: dict[Who, list[RatingChanged]] = {}
    ids = set()
    for message in topics.read_topic(at, Topics.of(at).changed):
        event = rating_changed_from_json(message.value() or b"")
        assert event.event_id not in ids
        ids.add(event.event_id)
        assert message.key() == joined(event.ladder, event.player).encode()
        assert header(topics.headers_of(message), "ce_id") == event.event_id
        found.setdefault((event.ladder, event.player), []).append(event)
    for who, events in found.items():
        assert [each.offset for each in events] == sorted({each.offset for each in events}), who
        assert events[0].previous_rating == INITIAL
        for before, after in pairwise(events):
            assert (after.previous_mu, after.previous_sigma) == (before.mu, before.sigma), after
        gained = sum(each.rating - each.previous_rating for each in events)
        assert gained == pytest.approx(events[-1].rating - INITIAL)
    return found


def corrections(at: Settings, offset: int, ladder: str = RANKED) -> dict[str, RatingChanged]:
    """By player, the events of the correction at this offset of a ladder."""
    found = {}
    for events in published_events(at).values():
        for event in events:
            if event.offset == offset and event.ladder == ladder:
                assert event.correction is not None and event.correction.offset == offset
                assert (event.rank, event.performance) == (None, None)
                assert event.round_id == event.correction.round_id
                found[event.player] = event
    return found


def verified(at: Settings) -> str:
    """Check that `verify` finds all equal. Returns its output."""
    printed = done(at, "verify", "--wait", PATIENTLY)
    assert "all equal, bit for bit" in printed
    return printed


def codes(at: Settings, count: int) -> list[str]:
    """The codes of all rejections, in order of their offsets."""
    printed = done(at, "rejected", "--json", "--from-start", "--count", count)
    found = [json.loads(line) for line in printed.splitlines()]
    assert len(topics.read_topic(at, Topics.of(at).rejected)) == len(found) == count
    return [each["code"] for each in sorted(found, key=lambda each: each["source_offset"])]


def last_round(at: Settings, player: str, ladder: str = RANKED) -> RatingChanged:
    return [each for each in published_events(at)[ladder, player] if each.correction is None][-1]


def applied(at: Settings, kind: str, **about: Any) -> int:
    """Send a correction without waiting for it. Returns its offset."""
    (message,) = topics.produce(at, [a_message(a_correction(kind, ladder=RANKED, **about))])
    return message.offset() or 0


def kinds(at: Settings) -> None:
    """Apply every kind of correction, one behind the other, and check the events of each."""
    voided = applied(at, "round-voided", round_id="r11", reason="the server crashed")
    standings = rounds.ranked([1, 2, 3], ["p7", "p1", "p2"])
    amended = applied(at, "round-amended", round_id="r21", standings=standings)
    removed = applied(at, "player-removed", player="p3", reason="aimbot")
    merged = applied(at, "player-merged", player="p0-2", into="p0")
    started = applied(at, "season-started", season=2, keep=0.5, sigma=300.0)
    topics.rated(at, played(900, "p1", "p2"))
    waiting = [applied(at, "round-voided", round_id=r, batched=True) for r in ("r13", "r15")]
    together = applied(at, "corrections-applied")
    wait_until(topics.Finished(at), "all are applied")

    found = corrections(at, voided)
    assert found, "players moved"
    assert {(e.correction.cause, e.round_id) for e in found.values() if e.correction} == {
        ("round-voided", "r11")
    }
    assert {each.round_id for each in corrections(at, amended).values()} == {"r21"}
    found = corrections(at, removed)
    assert (found["p3"].rounds, found["p3"].rating) == (0, INITIAL)
    assert {"p3"} < found.keys()
    found = corrections(at, merged)
    assert (found["p0-2"].rounds, found["p0-2"].rating) == (0, INITIAL)
    assert found["p0"].rounds > 1
    assert corrections(at, started) == {}, "readers see it at once; nothing is rewritten"
    events = published_events(at)[RANKED, "p1"]
    before = [each for each in events if each.offset < started][-1]
    drawn = next(each for each in events if each.round_id == "r900")
    assert drawn.season == 2 and drawn.sigma > before.sigma
    assert [corrections(at, each) for each in waiting] == [{}, {}]
    causes = {e.correction.cause for e in corrections(at, together).values() if e.correction}
    assert causes == {"corrections-applied"}


def play_on(at: Settings, first: int) -> None:
    """Play rounds with the removed player, and with the merged one, who is another one now."""
    before = published_events(at)
    topics.rated(
        at, played(first, "p3", "p0-2", "p1"), played(first + 1, "p3", "p1"),
        played(first + 2, "p0", "p0-2", "p2"), *season(first + 3, 8),
    )  # fmt: skip
    after = published_events(at)
    for unaffected in ("p3", "p0-2"):
        assert after[RANKED, unaffected] == before[RANKED, unaffected]
        assert len(after[DUELS, unaffected]) >= len(before[DUELS, unaffected])
    rounds_of = {who: {each.round_id for each in some} for who, some in after.items()}
    assert f"r{first}" in rounds_of[RANKED, "p0"] & rounds_of[RANKED, "p1"]
    assert f"r{first + 2}" in rounds_of[RANKED, "p0"] & rounds_of[RANKED, "p2"]
    assert not any(f"r{first + 1}" in each for each in rounds_of.values())


def test_every_kind_of_correction(settings: SettingsFactory, worker_process: Start) -> None:
    """One worker applies them, then another, which reads ladder events. Redis and that topic are
    lost, just after a correction that is too small to publish, and while another one waits. After a
    rebuild, each next event begins at the last published values."""
    at = settings()
    worker = worker_process(at)
    topics.rated(at, *season(0, 60))
    kinds(at)
    applied(at, "round-voided", round_id="r11")
    applied(at, "round-voided", round_id="r10")  # of the other ladder
    applied(at, "player-removed", player="p99")
    applied(at, "player-merged", player="p1", into="p2")
    applied(at, "season-started", season=2)
    wait_until(topics.Finished(at), "all are refused")
    assert codes(at, 5) == [
        "already-voided", "unknown-round", "unknown-player", "bad-merge", "bad-season",
    ]  # fmt: skip
    stopped(worker)
    worker = worker_process(at)
    play_on(at, 1000)
    applied(at, "round-voided", round_id="r1001")  # a round of which corrections have left nothing
    topics.rated(at, played(800, "p1", "p2", "p5"))
    same = rounds.ranked([1, 2, 3], ["p1", "p2", "p5"])
    small = applied(at, "round-amended", round_id="r800", standings=same, weight=0.9995)
    applied(at, "round-voided", round_id="r17", batched=True)
    wait_until(topics.Finished(at), "all are applied")
    assert corrections(at, small) == {}, "it is not published"
    stopped(worker)

    flush(at)
    topics.remove_topic(at, Topics.of(at).ladder_events)
    done(at, "rebuild", "--replace")
    before = published_events(at)
    worker_process(at)
    topics.rated(at, played(801, "p1", "p2", "p6"))
    for player in ("p1", "p2", "p6"):
        (last, new) = published_events(at)[RANKED, player][-2:]
        assert last == before[RANKED, player][-1]
        assert (new.round_id, new.previous_mu) == ("r801", last.mu)
    play_on(at, 2000)
    assert corrections(at, correct(at, "apply", RANKED))
    assert last_round(at, "p1").season == 2
    verified(at)


# --- checkpoints ----------------------------------------------------------------------------------


def made(at: Settings, *ladders: str) -> list[str]:
    """Run `checkpoint`. Returns its lines, one for each ladder."""
    return done(at, "checkpoint", *ladders, quiet=True).splitlines()


def offsets_of(at: Settings, ladder: str) -> list[int]:
    """The offsets of the ladder's checkpoints, the newest first."""
    with closing(RedisStore(at)) as store:
        return [each.offset for each in heads_in(store.checkpoints.heads(ladder)) if each.whole]


def test_a_correction_begins_at_a_checkpoint(
    settings: SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """A correction of a late round reads the checkpoint, one of an early round replays all. Both
    equal a replay. If no checkpoint can be made, one line says why."""
    at = settings(duplicate_window=2, checkpoint_every=10_000)
    worker = worker_process(at)
    topics.rated(at, *season(0, 40))
    first, second = made(at)
    form = r"ladder 'duels': 9 players, of the rounds before offset \d+ of partition \d, in \S+ s"
    assert re.fullmatch(form, first), first
    assert second.startswith(f"ladder '{RANKED}': 9 players")
    assert made(at, RANKED) == [f"ladder '{RANKED}': there is one of all rounds " + where(second)]
    (there,) = offsets_of(at, RANKED)
    topics.rated(at, *season(100, 20))
    read = worker.metric("stream_rater_stage_seconds_count", stage="ReadPiece")
    assert corrections(at, correct(at, "void", RANKED, "r107"))
    assert worker.metric("stream_rater_stage_seconds_count", stage="ReadPiece") == read + 2, (
        "of its players, and of its ids"
    )
    assert corrections(at, correct(at, "void", RANKED, "r7"))
    verified(at)
    assert offsets_of(at, RANKED) == [there], "it was made again"
    assert corrections(at, correct(at, "void", RANKED, "r109"))
    assert worker.metric("stream_rater_stage_seconds_count", stage="ReadPiece") >= read + 4
    with closing(RedisStore(at)) as store:
        for name, head in store.checkpoints.heads(RANKED).items():
            store.checkpoints.drop(RANKED, name, heads_in({name: head})[0].pieces)
    assert corrections(at, correct(at, "void", RANKED, "r111"))
    verified(at)
    assert "ladder 'nowhere' has no rounds: name one that has" in refused(
        at, "checkpoint", "nowhere", code=2
    )
    other = tmp_path / "other.toml"
    other.write_text(
        '[ladders."*".rating]\nsystem = "elo-mmr"\nweight_limit = 0.3\nsigma_limit = 90\n'
    )
    at = msgspec.structs.replace(at, ladders=str(other))
    assert "no checkpoint was made" in refused(at, "checkpoint", RANKED, code=2)


def where(line: str) -> str:
    found = re.search(r"before offset \d+ of partition \d+", line)
    assert found is not None
    return found[0]
