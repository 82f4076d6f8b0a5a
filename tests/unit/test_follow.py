"""`watch` and `rejected`: what they print, and when they end."""

import itertools
import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_rater.adapters.kafka.envelopes import rejected_message
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.events import CorrectionCause
from stream_rater.contract.record import Record
from stream_rater.operations import follow
from stream_rater.pipeline.ports import Rejection
from stream_rater.pipeline.updater.corrected_changes import correction_events
from stream_rater.rating.model import HEADER
from stream_rater.runtime.embedded import Engine
from tests.builders.cases import cases
from tests.builders.commands import run
from tests.builders.machines import RULE
from tests.rounds import as_json, event, ranked

Records = list[Any]


def record_of(value: bytes | None, headers: Any = (), key: bytes = b"") -> Record:
    return Record(0, 0, value, tuple(headers), received_s=0.0, key=key)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Records]:
    """A topic with these records; then nothing comes any more, and the clock runs."""
    records: Records = []

    def following(settings: Settings, topic: str, *_: Any, **__: Any) -> Iterator[Any]:
        return itertools.chain(records, itertools.repeat(None))

    now_s = itertools.count()
    topics = Topics.of(Settings())
    admin = SimpleNamespace(topics=topics, partitions_of=lambda *_: [1])
    monkeypatch.setattr(follow, "Admin", lambda _: admin)
    monkeypatch.setattr(follow, "follow", following)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now_s)))
    yield records


def season(rounds: int) -> Records:
    """What the service publishes of some duels, ann losing each."""
    engine = Engine()
    for i in range(rounds):
        engine.log.submit(0, as_json(standings=ranked([2, 1]), round_id=f"r{i}"), received_s=2e9)
    engine.settle()
    return [record_of(each.value) for some in engine.log.changed for each in some]


def test_a_first_round_explains_itself(served: Records) -> None:
    """A newcomer has had no rating before: a loss does not look like a gain. The record of who was
    erased, which has no value, is passed over."""
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
    reported = "2026-11-25T16:00:00Z", RULE, ["ann"], header, np.ones(1, np.bool_)
    (event,) = correction_events(0, "l", cause, *reported)
    return record_of(event.value)


def test_a_correction_is_shown_by_its_cause(served: Records) -> None:
    """What moved and why; of a player with one round left, too, who is not new. Numbers stand
    where those of rounds do."""
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
    """Fewer lines than asked for are a failure, and an error gives their number. Without a number
    `watch` just ends."""
    served += season(1)
    enough = run("watch", "--count", "2", "--wait", "5")
    assert (enough.exit_code, enough.stderr) == (0, "")
    fewer = run("watch", "--count", "3", "--wait", "5")
    assert fewer.exit_code == 1 and len(fewer.stdout.splitlines()) == 2
    reported = "stream-rater: rating-changed: 2 of 3 lines, and no other within 5 s\n"
    assert fewer.stderr == reported
    forever = run("watch", "--wait", "5")
    assert (forever.exit_code, len(forever.stdout.splitlines())) == (0, 2)


def test_the_wait_begins_again_with_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    """As long as events come, it goes on. A long silence is explained once: what is waited for, and
    how to end it; not where it ends by itself."""
    now_s = itertools.count()
    lines = itertools.chain(["a", None, None, "b", None, None, "c"], itertools.repeat(None))
    assert list(follow._in_time(lines, 4.0, lambda: float(next(now_s)), "")) == ["a", "b", "c"]
    nothing = [None] * 100
    for wait_s, reported in ((None, "waiting\n"), (50.0, "")):
        clock = map(float, itertools.count()).__next__
        some: Iterator[str | None] = iter([*nothing, "a", *nothing])
        list(follow._in_time(some, wait_s, clock, "waiting"))
        assert capsys.readouterr().err == reported
    here, chosen = follow.Following(), {"ladder": None, "player": "ida"}
    assert follow._hint("t", here, chosen) == (
        "t: waiting for messages of player 'ida' (Ctrl-C ends it; --from-start begins with what is "
        "there)"
    )
    assert follow._hint("t", follow.Following(from_start=True), {"ladder": None}) == (
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
    """A message as the service writes it."""
    record = Record(3, offset, value, headers, received_s=1_795_205_705.0, key=b"k")
    reported = Rejection(record, code, f"because of {code}", "", "")
    return record_of(**rejected_message(reported, "round-completed", 10_000))


def packed(**fields: Any) -> Record:
    types = [("content-type", b"application/msgpack")]
    return refused("bad-time", msgspec.msgpack.encode(event(*ranked([1, 2]), **fields)), types)


@pytest.fixture
def rejections(served: Records) -> Records:
    """Text, binary, and what is no round at all."""
    served += [
        refused("bad-weight", as_json(ladder="l1", round_id="r1")),
        packed(ladder="l2", round_id="r2"),
        refused("malformed", b"\xff\x1b[2J", offset=8),
    ]
    return served


def test_rejections_are_shown_with_their_place(rejections: Records) -> None:
    """Code, reason and source; as much of the round as can be read. As JSON they hold the record,
    as text or in base64. By ladder and by code, others are not counted."""
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
    assert (text["source_topic"], text["source_partition"], text["source_offset"]) == (
        "round-completed", 3, 7,
    )  # fmt: skip
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
    """With the round, the players or the season in the place of the round."""
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
    assert lines[6].split()[1:4] == ["ranked-eu", "r2", "bad-rank:"], (
        "a rejected round is shown, too"
    )
    reported = [
        json.loads(line) for line in run("rejected", "--count", "7", "--json").stdout.splitlines()
    ]
    assert (reported[2]["event_type"], reported[2]["player"], reported[2]["into"]) == (
        "player-merged", "ann2", "ann",
    )  # fmt: skip
    assert "event_type" not in reported[6] and "player" not in reported[6]


def test_a_rejection_keeps_the_kind_of_its_record() -> None:
    """And none is made up for a round."""
    reported = [Record(0, 1, b"{}", [("event-type", b"round-voided")]), Record(0, 2, b"{}")]
    sent = [
        rejected_message(Rejection(each, "malformed", "", "", ""), "round-completed", 100)
        for each in reported
    ]
    kinds = [[v for name, v in each["headers"] if name == "event-type"] for each in sent]
    assert kinds == [[b"round-voided"], []]
