"""`inspect` puts a belief into words. `watch` and `rejected`: what they print, when they end."""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from stream_rater.adapters.kafka.envelopes import rejected_message
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import (
    Correction,
    CorrectionsApplied,
    PlayerRemoved,
    RoundVoided,
    SeasonStarted,
    name_of,
)
from stream_rater.contract.errors import LogTrouble, StoreTrouble
from stream_rater.contract.events import CorrectionCause, to_json
from stream_rater.contract.record import Record
from stream_rater.operations import follow, inspect
from stream_rater.operations.inspect import _unknown_player, belief_lines, seed_in
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.ports import RecordedCorrection, Rejection
from stream_rater.pipeline.updater.belief_changes import correction_events
from stream_rater.places import kafka, kafka_topics
from stream_rater.places.kafka import KafkaPlace
from stream_rater.places.kafka_topics import topic_line
from stream_rater.places.port import Section
from stream_rater.rating.elo_mmr.performance import C
from stream_rater.rating.model import HEADER
from stream_rater.rating.stages import rule_of
from stream_rater.runtime.engine import EmbeddedEngine
from tests.builders.cases import cases
from tests.builders.commands import run
from tests.builders.machines import CONFIG, RULE
from tests.builders.memory_places import an_empty_place, use
from tests.rounds import as_json, event, ranked
from tests.unit.test_event_contract import CHANGED

NO_FACTORS = np.zeros((0, 3))


def a_belief(**fields: float) -> Any:
    header = np.zeros(1, HEADER)[0]
    usual = {"last": 345, "time": 1_795_205_705, "mu": 1612.44, "sigma": 91.2}
    for name, value in (usual | fields).items():
        header[name] = value
    return header


def test_a_belief_in_words() -> None:
    """Its factors by weight, which add up to all of it."""
    before = {"previous_mu": 1570.0, "previous_sigma": 97.9}
    factor = {"center": 1500.0, "precision": 0.0001, "scale": 1.0}
    header = a_belief(rounds=12, count=2, **before, **factor)
    a = 0.01
    weights = np.array([0.0001, 0.0002])
    factors = np.array([[1400.0, a, 0.0], [1800.0, a, 0.0], [0.0, 0.0, 0.0]])
    factors[:2, 2] = weights * C**2 / (2.0 * a)
    assert list(belief_lines(header, factors)) == [
        "believed: 1612.4 give or take 91.2, after 12 rounds",
        "before the last one: 1570.0 give or take 97.9; it was completed at "
        "2026-11-20T20:15:05Z, at offset 345 of its partition",
        "by a Gaussian factor: 1500.0 give or take 100.0, 25% of the weight",
        "and 2 performances, with their parts of the weight, the heaviest first:",
        "    1800.0  50.0%",
        "    1400.0  25.0%",
    ]


def test_a_corrected_belief_in_words() -> None:
    """A correction changed it last. A small change is not published yet."""
    header = a_belief(rounds=11, untold=1, previous_mu=1612.3, previous_sigma=91.3)
    assert list(belief_lines(header, NO_FACTORS, "round-voided")) == [
        "believed: 1612.4 give or take 91.2, after 11 rounds",
        "changed last by round-voided, at offset 345 of its partition; last published before it: "
        "1612.3 give or take 91.3",
        "this change was too small for an event of its own: the next event includes it",
        "the last round was completed at 2026-11-20T20:15:05Z",
    ]
    header["rounds"] = 0
    assert len(list(belief_lines(header, NO_FACTORS, "round-voided"))) == 3


def test_a_seeded_belief_in_words() -> None:
    """It has the rounds of the seed and no performance. A reset keeps the last round's time."""
    header = a_belief(rounds=70, previous_mu=1500.0, previous_sigma=350.0)
    assert list(belief_lines(header, NO_FACTORS, "players-seeded")) == [
        "believed: 1612.4 give or take 91.2, after 70 rounds",
        "given by a seed, at offset 345 of its partition; it counts from 2026-11-20T20:15:05Z",
    ]
    assert list(belief_lines(header, NO_FACTORS, "player-reset"))[1:] == [
        "changed last by player-reset, at offset 345 of its partition; last published before it: "
        "1500.0 give or take 350.0",
        "the last round was completed at 2026-11-20T20:15:05Z",
    ]


def an_event(cause: CorrectionCause | None) -> bytes:
    return to_json(msgspec.structs.replace(CHANGED, correction=cause))


def test_a_seed_is_known_by_the_newest_event() -> None:
    """Corrections are not seeds, and an erased event says nothing."""
    seed, void = (
        CorrectionCause(cause=each, offset=7) for each in ("players-seeded", "round-voided")
    )
    assert seed_in([an_event(void), an_event(seed)]) == seed
    for events in ([], [None], [an_event(seed), None], [an_event(void)], [an_event(None)]):
        assert seed_in(events) is None


def recorded(offset: int, at: int, correction: Correction) -> RecordedCorrection:
    """The record of a correction that was applied at an offset. -1: it is deferred."""
    return RecordedCorrection(offset, name_of(correction), msgspec.Raw(to_json(correction)), at)


EDITS = LadderEdits(
    [
        recorded(3, -1, RoundVoided(ladder="chess", round_id="r1", batched=True)),
        recorded(3, 9, RoundVoided(ladder="chess", round_id="r1", batched=True)),
        recorded(9, 9, CorrectionsApplied(ladder="chess")),
        recorded(12, 12, SeasonStarted(ladder="chess", season=2, keep=0.5, sigma=200.0)),
        recorded(13, -1, PlayerRemoved(ladder="chess", player="eve", reason="bot", batched=True)),
    ]
)


def test_the_corrections_of_a_ladder() -> None:
    """Applied corrections are shown in order, and so are the deferred ones."""
    assert list(inspect.corrections_of("chess", EDITS)) == [
        "chess: corrections applied: 3",
        "           3 round-voided round_id r1, by that at 9",
        "           9 corrections-applied",
        "          12 season-started season 2 keep 0.5 sigma 200.0",
        "corrections that wait for corrections-applied: 1",
        "          13 player-removed player eve (bot)",
    ]
    assert list(inspect.corrections_of("go", LadderEdits())) == [
        "go: corrections applied: none",
        "corrections that wait for corrections-applied: none",
    ]


def test_what_changed_a_belief_last() -> None:
    """A correction, or a round. One that waited has changed nothing at its own place."""
    causes = [inspect.cause_of(EDITS, last) for last in (3, 9, 10)]
    assert causes == ["", "corrections-applied", ""]


def test_the_season_of_a_belief() -> None:
    """The lines name the seasons that are still to be drawn, and the mu and sigma after them."""
    header = a_belief(version=1, rounds=5, mu=1700.0, sigma=90.0)
    rule = rule_of(CONFIG, EDITS.last.started)
    assert list(inspect.seasons_of(header, EDITS, rule)) == [
        "season 2; the last round was before the first; still to be drawn by season 2",
        "drawn: 1600.0 give or take 200.0",
    ]
    header["season"] = 1
    assert list(inspect.seasons_of(header, EDITS, rule)) == [
        "season 2; the last round was in season 2"
    ]
    assert list(inspect.seasons_of(header, LadderEdits(), rule)) == []


def test_a_time_that_no_calendar_has() -> None:
    """As seconds; and a belief without performances is its two numbers."""
    for seconds in (2**50, -(2**39)):
        printed = list(belief_lines(a_belief(time=seconds), NO_FACTORS))
        assert len(printed) == 2
        assert f"completed at {seconds} s" in printed[1]


def test_a_topic_in_a_line() -> None:
    """By Kafka's names, to be looked up and changed by them."""
    for kept, printed in (("604800000", "604800000 (7 days)"), ("-1", "-1 (for ever)")):
        configuration = {
            "retention.ms": kept, "cleanup.policy": "delete", "min.insync.replicas": "2",
            "segment.bytes": "1",
        }  # fmt: skip
        assert topic_line("parts", 8, 3, configuration) == (
            "parts: partitions 8, replication.factor 3, min.insync.replicas 2, cleanup.policy "
            f"delete, retention.ms {printed}"
        )


def test_one_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's answer is shown. A Redis that says nothing is not waited for."""
    place, ended = KafkaPlace(Settings(), 1.0), threading.Event()
    names = [*place.topics.names]
    monkeypatch.setattr(kafka, "section_of", lambda _, name, *__: Section(name, {}, ()))
    monkeypatch.setattr(kafka_topics, "ANSWER_S", 0.01)
    use(monkeypatch, place)
    refused, away = Mock(side_effect=StoreTrouble("refused")), Mock(side_effect=LogTrouble("away"))
    for redis, kafka_, said, why in (
        (refused, lambda *_: [0] * len(names), names, "refused"),
        (lambda _: ended.wait(), lambda *_: [0] * len(names), names, "redis: no answer within "),
        (lambda _: 1, away, ["redis answers"], "away"), (refused, away, ["refused"], "away"),
    ):  # fmt: skip
        layout = SimpleNamespace(begun_by=redis)
        store = SimpleNamespace(read=redis, layout=layout, close=lambda: None)
        place.__dict__["store"], place.admin = store, cast("Any", Mock(partitions_of=kafka_))
        result = run("inspect")
        assert (result.exit_code, result.stdout.splitlines()) == (1, said)
        assert result.stderr.startswith(f"stream-rater: {why}")
    ended.set()


def test_who_is_not_there() -> None:
    """The player, or the whole ladder, with a name that may have been meant."""
    there = ["blitz", "chess"]
    found = [_unknown_player(each, "ida", 1, there) for each in ("chess", "ches", "duel")]
    assert found == [
        "ladder 'chess' has no player 'ida' (they would be in shard 1)",
        "ladder 'ches' has no players: no round of it was rated; the nearest name is 'chess'",
        "ladder 'duel' has no players: no round of it was rated",
    ]


Records = list[Any]


def record_of(value: bytes | None, headers: Any = (), key: bytes = b"") -> Record:
    return Record(0, 0, value, tuple(headers), received_s=0.0, key=key)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Records]:
    """A topic with these records; then nothing comes any more, and the clock runs."""
    records: Records = []
    place, now_s = an_empty_place(), itertools.count()
    place.follow = lambda *_, **__: itertools.chain(  # type: ignore[method-assign]
        records, itertools.repeat(None)
    )
    use(monkeypatch, place)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now_s)))
    yield records


def season(rounds: int) -> Records:
    """What the service publishes of some duels, ann losing each."""
    engine = EmbeddedEngine()
    for i in range(rounds):
        engine.log.submit(0, as_json(standings=ranked([2, 1]), round_id=f"r{i}"), received_s=2e9)
    engine.settle()
    return [record_of(each.value) for some in engine.log.changed for each in some]


def test_a_first_round_explains_itself(served: Records) -> None:
    """A newcomer had no rating before, so a loss is no gain. Erased players are passed over."""
    served += season(2)
    lines = run("watch", "--count", "4").stdout.splitlines()
    first = [line for line in lines if "r0" in line]
    assert all("(new) -> " in line and "+" not in line for line in first) and len(first) == 2
    assert all("(new)" not in line and ("(+" in line or "(-" in line)
               for line in lines if "r1" in line)  # fmt: skip
    served.clear()
    served += [record_of(None), *season(1)]
    assert len(run("watch", "--count", "2").stdout.splitlines()) == 2


def corrected(cause: CorrectionCause, rounds: int) -> Record:
    """What the service publishes of a correction that a player loses 56 points by."""
    header = np.zeros(1, HEADER)
    header["rounds"], header["mu"], header["previous_mu"] = rounds, 1534.0, 1590.0
    header["sigma"] = header["previous_sigma"] = 80.0
    reported = "2026-11-25T16:00:00Z", RULE, ["ann"], header
    (event,) = correction_events(0, "l", cause, *reported)
    return record_of(event.value)


def test_a_correction_is_shown_by_its_cause(served: Records) -> None:
    """What changed and why, also for a player with one round left. Numbers are in their columns."""
    voided = CorrectionCause(cause="round-voided", offset=7, round_id="r-81f3")
    removed = CorrectionCause(cause="player-removed", offset=8)
    served += [*season(2)[2:3], corrected(voided, 12), corrected(removed, 1)]
    of_round, *lines = run("watch", "--count", "3").stdout.splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines] == [
        "ann                      correction      1590.0 ->  1534.0 (-56.0)  round-voided r-81f3",
        "ann                      correction      1590.0 ->  1534.0 (-56.0)  player-removed",
    ]
    assert {line.index(" -> ") for line in lines} == {of_round.index(" -> ")}
    as_json = run("watch", "--json", "--count", "3").stdout.splitlines()[1]
    assert json.loads(as_json)["correction"]["round_id"] == "r-81f3"


def test_watch_ends_when_nothing_comes(served: Records) -> None:
    """Fewer lines than asked for are a failure with their number. Without a number it just ends."""
    served += season(1)
    enough = run("watch", "--count", "2", "--wait", "5")
    assert (enough.exit_code, enough.stderr) == (0, "")
    fewer = run("watch", "--count", "3", "--wait", "5")
    assert fewer.exit_code == 1 and len(fewer.stdout.splitlines()) == 2
    assert fewer.stderr == "stream-rater: changed: 2 of 3 lines, and no other within 5 s\n"
    forever = run("watch", "--wait", "5")
    assert (forever.exit_code, len(forever.stdout.splitlines())) == (0, 2)


def test_the_wait_begins_again_with_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A long silence is explained once: what it waits for, and how to end it."""
    now_s = itertools.count()
    lines = itertools.chain(["a", None, None, "b", None, None, "c"], itertools.repeat(None))
    assert list(follow._in_time(lines, 4.0, lambda: float(next(now_s)), "")) == ["a", "b", "c"]
    nothing = [None] * 100
    for wait_s, reported in ((None, "waiting\n"), (50.0, "")):
        clock = map(float, itertools.count()).__next__
        some: Iterator[str | None] = iter([*nothing, "a", *nothing])
        list(follow._in_time(some, wait_s, clock, "waiting"))
        assert capsys.readouterr().err == reported
    here, chosen = follow.FollowedSpan(), {"ladder": None, "player": "ida"}
    assert follow._hint("t", here, chosen) == (
        "t: waiting for messages of player 'ida' (Ctrl-C ends it; --from-start begins with what is "
        "there)"
    )
    assert follow._hint("t", follow.FollowedSpan(from_start=True), {"ladder": None}) == (
        "t: waiting for messages (Ctrl-C ends it)"
    )


@cases(
    ("time", "column"),
    [
        ("2026-01-05T18:00:00Z", "2026-01-05T18:00:00Z"),
        ("2026-01-05T20:00:00.25+02:00", "2026-01-05T18:00:00Z"),
        ("2026-11-25T13:12:33.123456+00:00", "2026-11-25T13:12:33Z"),
        ("0001-01-01T00:00:00+02:00", "0001-01-01T00:00:00+02:00"),
        ("\x1b[2J", r"\x1b[2J"),
    ],
)
def test_times_stand_in_a_column(time: str, column: str) -> None:
    """Times are shown in UTC. A text that is no time is shown as it is."""
    assert follow.in_utc(time) == column


def refused(code: str, value: bytes, headers: Any = (), offset: int = 7) -> Record:
    record = Record(3, offset, value, headers, received_s=1_795_205_705.0, key=b"k")
    reported = Rejection(record, code, f"because of {code}", "", "")
    return record_of(**rejected_message(reported, "round-completed", 10_000))


def packed(**fields: Any) -> Record:
    types = [("content-type", b"application/msgpack")]
    return refused("bad-time", msgspec.msgpack.encode(event(*ranked([1, 2]), **fields)), types)


def test_rejections_are_shown_with_their_place(served: Records) -> None:
    """Code, reason, source and what can be read of the round; as JSON, the whole record."""
    served += [  # text, binary, and what is no round at all
        refused("bad-weight", as_json(ladder="l1", round_id="r1")),
        packed(ladder="l2", round_id="r2"),
        refused("malformed", b"\xff\x1b[2J", offset=8),
    ]
    lines = run("rejected", "--count", "3", "--from-start").stdout.splitlines()
    assert [line.split()[1:4] for line in lines] == [
        ["l1", "r1", "bad-weight:"], ["l2", "r2", "bad-time:"], ["-", "-", "malformed:"],
    ]  # fmt: skip
    assert lines[0].startswith("2026-11-") and lines[0].endswith(
        "because of bad-weight (round-completed partition 3 offset 7)"
    )
    lines = run("rejected", "--count", "3", "--json").stdout.splitlines()
    text, binary, junk = map(json.loads, lines)
    assert (text["ladder"], text["round_id"], text["code"]) == ("l1", "r1", "bad-weight")
    assert [text[f"source_{name}"] for name in ("topic", "partition", "offset")] == [
        "round-completed", 3, 7,
    ]  # fmt: skip
    assert json.loads(text["value"])["round_id"] == "r1" and "value_base64" not in text
    assert binary["round_id"] == "r2" and "value_base64" in binary and "value" not in binary
    assert junk["source_offset"] == 8 and "ladder" not in junk
    by_ladder = run("rejected", "--ladder", "l2", "--wait", "3").stdout
    by_code = run("rejected", "--code", "malformed", "--wait", "3").stdout
    assert (by_ladder.count("\n"), by_code.count("\n")) == (1, 1)
    assert "bad-time" in by_ladder and "malformed" in by_code and "\x1b" not in by_code
    unknown = run("rejected", "--code", "bad")
    assert unknown.exit_code == 2 and "malformed" in unknown.stderr


def refused_correction(kind: str, **fields: Any) -> Record:
    value = msgspec.json.encode({"ladder": "l1", **fields})
    return refused("bad-merge", value, [("event-type", kind.encode())])


def test_rejected_corrections_say_what_they_were(served: Records) -> None:
    """The round, players or season is in the place of a round. A round has none of these."""
    served += [
        refused_correction("round-voided", round_id="r1"),
        refused_correction("player-removed", player="ann"),
        refused_correction("player-merged", player="ann2", into="ann"),
        refused_correction("season-started", season=4),
        refused_correction("corrections-applied"),
        refused_correction("\x1b[2J", player=17, season="x"),
        refused("bad-rank", as_json(player="ann", season=3, round_id="r2")),
    ]
    lines = run("rejected", "--count", "7", "--from-start").stdout.splitlines()
    assert [line.split("refused:")[0].split()[1:] for line in lines[:5]] == [
        ["l1", "r1", "round-voided"], ["l1", "ann", "player-removed"],
        ["l1", "ann2", "->", "ann", "player-merged"], ["l1", "season", "4", "season-started"],
        ["l1", "-", "corrections-applied"],
    ]  # fmt: skip
    assert "refused: bad-merge: because of bad-merge (round-completed partition 3" in lines[0]
    assert lines[5].split()[2] == "-" and "\x1b" not in lines[5]
    assert lines[6].split()[1:4] == ["ranked-eu", "r2", "bad-rank:"]
    lines = run("rejected", "--count", "7", "--json").stdout.splitlines()
    merged, of_round = json.loads(lines[2]), json.loads(lines[6])
    said = [merged[name] for name in ("event_type", "player", "into")]
    assert said == ["player-merged", "ann2", "ann"]
    assert "event_type" not in of_round and "player" not in of_round
