"""The judge of whole runs finds each mistake that is planted in a recording, and nothing in a run
without one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.builders.lines import a_round
from tests.judge.__main__ import main
from tests.judge.accepted import partition_of
from tests.judge.changes import named
from tests.judge.invented import AT, PARTITIONS, RUN, InventedRun, text_of, whole
from tests.judge.judge import judged
from tests.judge.observations import Answered, Findings, Line, Seen, Sent, Streamed, write_all

LADDER = "duels"
HOME = partition_of(LADDER, PARTITIONS)
PAIR: list[dict[str, Any]] = [{"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}]

Judged = Callable[..., Findings]


@pytest.fixture
def judge(tmp_path: Path) -> Judged:
    """Judges files, each given by its lines."""

    def found(*files: list[Line]) -> Findings:
        paths = [tmp_path / f"{i}.jsonl.gz" for i in range(len(files))]
        for path, lines in zip(paths, files, strict=True):
            write_all(path, lines)
        return judged(*paths)

    return found


def records(rounds: int = 30) -> list[Seen]:
    """A run without a mistake."""
    run = InventedRun(players=20, lobby=4)
    return [record for number in range(rounds) for record in run.round(number)]


def rules(found: Findings) -> set[str]:
    return {line.partition(":")[0] for line in found.lines}


def body_of(record: Seen) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(record.value)
    return found


def edited(record: Seen, **fields: Any) -> Seen:
    """A record with other fields in its value."""
    return replace(record, v=text_of(body_of(record) | fields))


def test_a_run_without_a_mistake(judge: Judged) -> None:
    """Everything is checked, and nothing is wrong, in whatever order the topics were read."""
    some = records()
    events_first = sorted(some, key=lambda each: each.t)
    for order in (some, events_first):
        found = judge(whole(order))
        assert found.lines == [] and found.clean
        assert found.checked["changes"] == 120 and found.checked["accepted rounds"] == 30


def _changes(some: list[Seen]) -> list[int]:
    return [i for i, each in enumerate(some) if each.t == "changed"]


def put(some: list[Seen], at: int, *others: Seen) -> list[Seen]:
    """These records in the place of one."""
    return [*some[:at], *others, *some[at + 1 :]]


def _swapped(some: list[Seen]) -> list[Seen]:
    """Two players of a round have each other's ranks."""
    i = _changes(some)[40]
    one, two = some[i], some[i + 1]
    ranks = body_of(one)["rank"], body_of(two)["rank"]
    return [*some[:i], edited(one, rank=ranks[1]), edited(two, rank=ranks[0]), *some[i + 2 :]]


def _changed(**fields: Any) -> Callable[[list[Seen]], list[Seen]]:
    def plant(some: list[Seen]) -> list[Seen]:
        i = _changes(some)[70]
        return put(some, i, edited(some[i], **fields))

    return plant


def _in_another_shard(some: list[Seen]) -> list[Seen]:
    i = _changes(some)[70]
    return put(some, i, replace(some[i], p=(some[i].p + 1) % 6, o=9000))


def _exchanged(some: list[Seen]) -> list[Seen]:
    """Two events of one player, out of order."""
    mine = [i for i in _changes(some) if some[i].key == some[_changes(some)[0]].key]
    first, second = mine[0], mine[1]
    found, a, b = list(some), some[first], some[second]
    found[first], found[second] = replace(a, v=b.v), replace(b, v=a.v)
    return found


PLANTED: dict[str, tuple[Callable[[list[Seen]], list[Seen]], str]] = {
    "an event is lost": (lambda some: put(some, _changes(some)[60]), "lost"),
    "the last event is lost": (lambda some: some[:-1], "lost"),
    "an event comes twice": (lambda some: [*some, replace(some[-1], o=9999)], "doubled"),
    "two ranks are swapped": (_swapped, "round"),
    "it begins at another rating": (_changed(previous_mu=7.0), "chain"),
    "its displayed rating before is another": (_changed(previous_rating=7.0), "chain"),
    "it counts another round": (_changed(rounds=77), "rounds"),
    "it has another time": (_changed(completed_at="2026-02-01T00:00:00Z"), "round"),
    "it has another id": (_changed(event_id="x"), "id"),
    "it names another round": (_changed(round_id="round-0"), "round"),
    "it is of a round that is not there": (_changed(offset=500_000), "of nothing"),
    "it is of no season": (_changed(season=3), "season"),
    "its numbers are none": (_changed(sigma=-1.0), "numbers"),
    "it is in another shard": (_in_another_shard, "shard"),
    "an offset has another record later": (
        lambda some: [*some, edited(some[_changes(some)[3]], mu=1.0)], "fork"
    ),
    "two events of a player are exchanged": (_exchanged, "order"),
    "it is no event": (lambda some: [*some, replace(some[-1], o=9999, v="{}")], "shape"),
}  # fmt: skip


def test_each_planted_fault_is_found(judge: Judged) -> None:
    """One line names the rule, the player and the place."""
    found = {fault: judge(whole(plant(records()))) for fault, (plant, _) in PLANTED.items()}
    assert [
        fault for fault, (_, rule) in PLANTED.items()
        if rule not in rules(found[fault]) or found[fault].clean
    ] == []  # fmt: skip
    assert [line for each in found.values() for line in each.lines if " at " not in line] == []


def test_a_change_of_the_display(judge: Judged) -> None:
    """Across it `previous_rating` may be another, and `previous_mu` not. At no other place."""
    some = records()
    i = _changes(some)[70]
    body = body_of(some[i])
    other = put(some, i, edited(some[i], previous_rating=7.0))
    for offset, right in ((body["offset"], True), (body["offset"] + 1, False)):
        run = replace(RUN, redisplayed={body["ladder"]: offset})
        assert judge(whole(other, run=run)).clean == right
    run = replace(RUN, redisplayed={body["ladder"]: body["offset"]})
    skewed = put(some, i, edited(some[i], previous_mu=7.0))
    assert rules(judge(whole(skewed, run=run))) == {"chain"}


# --- rejections ----------------------------------------------------------------------------------


def reported(offset: int, round_id: str = "r", **fields: Any) -> Seen:
    body = a_round(1, ladder=LADDER, round_id=round_id, completed_at=AT, standings=PAIR) | fields
    return Seen(t="rounds", p=HOME, o=offset, v=text_of(body), key=LADDER)


def rejection(of: Seen, code: str, offset: int = 0) -> Seen:
    """The record of `round-rejected` about another."""
    headers: list[tuple[str, str | None]] = [
        ("error-code", code), ("source-partition", str(of.p)), ("source-offset", str(of.o))
    ]  # fmt: skip
    return Seen(t="rejected", p=of.p, o=offset, v=of.v, key=of.key, h=headers)


def changes(run: InventedRun, of: Seen) -> Iterator[Seen]:
    """The changes of both players of a round."""
    for entry in PAIR:
        yield run.change(LADDER, entry["player"], entry["rank"], body_of(of)["round_id"], of.o)


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "too few": ({"standings": PAIR[:1]}, "too-few-entries"),
    "a player twice": ({"standings": [PAIR[0], PAIR[0]]}, "duplicate-player"),
    "rank 0": ({"standings": [{"player": "ann", "rank": 0}, PAIR[1]]}, "bad-rank"),
    "no time": ({"completed_at": "yesterday"}, "bad-time"),
    "weight 0": ({"weight": 0.0}, "bad-weight"),
    "an empty id": ({"round_id": ""}, "bad-id"),
    "no standings": ({"standings": None}, "malformed"),
    "shares": ({"standings": [{"team": ["ann", "cy"], "shares": [1], "rank": 1}, PAIR[1]]},
               "bad-shares"),
}  # fmt: skip


def test_an_invalid_round_is_rejected_once(judge: Judged) -> None:
    """With its code. The judge notices if it is rated, if it has another code, or if nothing comes
    of it, or two rejections."""
    good = reported(1, "good")
    of_good = [good, *changes(InventedRun(), good)]
    for case, (fields, code) in INVALID.items():
        bad = edited(reported(0, "bad"), **fields)
        assert judge(whole([bad, rejection(bad, code), *of_good])).clean, case
        assert rules(judge(whole([bad, *of_good]))) == {"verdict"}, case
        assert rules(judge(whole([bad, rejection(bad, "bad-seat"), *of_good]))) == {"verdict"}, case
        twice = [rejection(bad, code), rejection(bad, code, 5)]
        assert rules(judge(whole([bad, *twice, *of_good]))) == {"doubled"}, case


def test_a_valid_round_is_not_rejected(judge: Judged) -> None:
    """And a rejection needs a record."""
    good = reported(0)
    some = [good, *changes(InventedRun(), good)]
    assert "verdict" in rules(judge(whole([*some, rejection(good, "bad-rank")])))
    assert rules(judge(whole([*some, rejection(reported(9), "bad-rank")]))) == {"rejection"}


def test_a_repeated_round(judge: Judged) -> None:
    """It is rejected within the window, also behind another repetition, and rated beyond it."""
    run, rounds = InventedRun(), [reported(at) for at in (0, 6, 12, 30)]
    rated = [*changes(run, rounds[0]), *changes(run, rounds[3])]
    repeated = [rejection(each, "duplicate-round", i) for i, each in enumerate(rounds[1:3])]
    window = replace(RUN, window=10)
    whole_run = whole([*rounds, *rated, *repeated])[1:]
    assert judge([window, *whole_run]).lines == []
    assert "lost" in rules(judge([window, *whole([*rounds, *rated[:2], *repeated])[1:]]))
    assert rules(judge(whole([*rounds, *rated[:2], *repeated]))) == {"verdict"}


# --- corrections ---------------------------------------------------------------------------------


def correction(offset: int, kind: str, **fields: Any) -> Seen:
    body = text_of({"ladder": LADDER, **fields})
    return Seen(t="rounds", p=HOME, o=offset, v=body, key=LADDER, h=[("event-type", kind)])


def corrected(run: InventedRun, of: Seen, player: str, kind: str, **more: Any) -> Seen:
    made = run.change(LADDER, player, None, body_of(of).get("round_id", ""), of.o, **more)
    cause = {"cause": kind, "offset": of.o, "round_id": body_of(of).get("round_id", "")}
    return edited(
        made, performance=None, correction=cause,
        event_id=named(LADDER, "correction", str(of.o), player),
    )  # fmt: skip


def test_a_voided_round(judge: Judged) -> None:
    """The counts of its players fall, whether or not the correction has events. A second one is
    rejected, and one of an unknown round."""
    run, first, second = InventedRun(), reported(0, "a"), reported(4, "b")
    void = correction(1, "round-voided", round_id="a")
    again = correction(2, "round-voided", round_id="a")
    unknown = correction(3, "round-voided", round_id="x")
    codes = [rejection(again, "already-voided"), rejection(unknown, "unknown-round", 1)]
    before = list(changes(run, first))
    event = corrected(run, void, "ann", "round-voided", counted=-1)
    rest = [run.change(LADDER, "ann", 1, "b", 4), run.change(LADDER, "bob", 2, "b", 4, counted=0)]
    log = [first, void, again, unknown, second]
    assert judge(whole([*log, *codes, *before, event, *rest])).lines == []
    assert "verdict" in rules(judge(whole([*log, codes[0], *before, event, *rest])))
    assert "chain" in rules(judge(whole([*log, *codes, *before, *rest])))


def test_a_correction_that_is_not_added_up(judge: Judged) -> None:
    """An event of a correction that counts a round too many, or that moved nothing, is found."""
    run, first = InventedRun(), reported(0, "a")
    void = correction(1, "round-voided", round_id="a")
    before = list(changes(run, first))
    event = corrected(run, void, "ann", "round-voided", counted=0)
    assert rules(judge(whole([first, void, *before, event]))) == {"rounds"}
    still = edited(event, rounds=0, rating=body_of(event)["previous_rating"])
    assert rules(judge(whole([first, void, *before, still]))) == {"too small"}


def test_players_who_are_removed_and_merged(judge: Judged) -> None:
    """Later rounds lose the removed player, and count for the one that another is merged into."""
    run, first, second = InventedRun(), reported(0, "a"), reported(1, "b")
    second = edited(second, standings=[{"player": "cy", "rank": 1}, {"player": "eve", "rank": 2}])
    merge = correction(2, "player-merged", player="cy", into="ann")
    remove = correction(3, "player-removed", player="eve")
    third = replace(edited(second, round_id="c"), o=4)
    of_d = [{"player": "cy", "rank": 1}, PAIR[1]]
    fourth = replace(edited(second, round_id="d", standings=of_d), o=5)
    made = [*changes(run, first), run.change(LADDER, "cy", 1, "b", 1),
            run.change(LADDER, "eve", 2, "b", 1)]  # fmt: skip
    # Round b keeps one entry only, so it counts for nobody; rounds c, too; d is ann's and bob's.
    last = [run.change(LADDER, "ann", 1, "d", 5), run.change(LADDER, "bob", 2, "d", 5)]
    log = [first, second, merge, remove, third, fourth]
    assert judge(whole([*log, *made, *last])).lines == []
    wrong = run.change(LADDER, "cy", 1, "d", 5)
    assert "of nothing" in rules(judge(whole([*log, *made, *last, wrong])))


def test_seeds(judge: Judged) -> None:
    """A player without a round must have the event of a seed, and another must not."""
    run, first = InventedRun(), reported(0, "a")
    given = [{"player": "ann", "mu": 1.0}, {"player": "new", "mu": 1.0, "rounds": 7}]
    seed = correction(1, "players-seeded", round_id="s", at=AT, players=given)

    def seeded(player: str, **more: Any) -> Seen:
        made = run.change(LADDER, player, None, "s", 1, **more)
        cause = {"cause": "players-seeded", "offset": 1}
        return edited(made, mu=1.0, performance=None, correction=cause)

    before = list(changes(run, first))
    right = seeded("new", counted=7)
    assert judge(whole([first, seed, *before, right])).lines == []
    assert rules(judge(whole([first, seed, *before]))) == {"lost"}
    assert "of nothing" in rules(judge(whole([first, seed, *before, right, seeded("ann")])))


# --- two readers ---------------------------------------------------------------------------------


def test_two_readers(judge: Judged) -> None:
    """They see the same records, whatever is compacted; another record, or a lost one, is found."""
    some = records()
    assert judge(whole(some), whole(some)).clean
    newest = {each.key: i for i, each in enumerate(some) if each.t == "changed"}
    old, kept = _changes(some)[0], max(newest.values())
    assert judge(whole(some), whole(put(some, old))).clean
    assert rules(judge(whole(some), whole(put(some, kept)))) == {"lost"}
    other = put(some, old, edited(some[old], mu=3.0))
    assert rules(judge(whole(some), whole(other))) == {"fork"}
    a_round_less = [each for each in some if not (each.t == "rounds" and each.o == 3)]
    assert rules(judge(whole(some), whole(a_round_less))) == {"lost"}


# --- answers -------------------------------------------------------------------------------------


def answered(path: str, said: Any, c: str = "c1", **more: Any) -> Answered:
    given: dict[str, Any] = {"status": 200, "body": msgspec.Raw(msgspec.json.encode(said))} | more
    return Answered(c=c, path=path, **given)


def answer(record: Seen, connection: str = "c1", query: str = "", **fields: Any) -> Answered:
    """The answer about a player after a change."""
    body = body_of(record)
    names = ("player", "mu", "sigma", "rating", "rounds", "provisional", "completed_at", "offset")
    said = {name: body[name] for name in names} | {"season": None} | fields
    path = f"/v1/ladders/{body['ladder']}/players/{body['player']}{query}"
    return answered(path, said, connection)


def absent(record: Seen) -> Answered:
    return answered(answer(record).path, {"code": "unknown-player"}, status=404)


def of_one_player() -> tuple[list[Seen], list[Seen]]:
    """A run, and the changes of one player in it."""
    some = records(60)
    key = some[1].key
    return some, [each for each in some if each.key == key]


def test_answers(judge: Judged) -> None:
    """Right: states in order, the same again, on another connection an older one; a newcomer first.
    Wrong: a state that never was, one reader that goes back in time, also to nothing, and an answer
    that is older than `min_offset`."""
    some, mine = of_one_player()
    said = [absent(mine[0]), *map(answer, (mine[0], mine[0], mine[3])), answer(mine[1], "c2")]
    found = judge(whole(some, *said))
    assert found.lines == [] and found.checked["answers"] == 5
    assert rules(judge(whole(some, answer(mine[2], mu=5.0)))) == {"no such state"}
    assert rules(judge(whole(some, answer(mine[2]), answer(mine[1])))) == {"back in time"}
    assert rules(judge(whole(some, answer(mine[2]), absent(mine[0])))) != set()
    least = f"?min_offset={body_of(mine[3])['offset']}"
    assert judge(whole(some, answer(mine[3], query=least))).lines == []
    assert rules(judge(whole(some, answer(mine[2], query=least)))) == {"min_offset"}


def test_boards(judge: Judged) -> None:
    """Each row is a rating that the player had, the rows are in order, and nobody is there
    twice."""
    some, mine = of_one_player()
    body = body_of(mine[1])
    row = {"rank": 1, "player": body["player"], "rating": body["rating"]}

    def board(*rows: dict[str, Any]) -> Answered:
        path = f"/v1/ladders/{body['ladder']}/leaderboard?limit=2"
        return answered(path, {"rows": rows, "listed": 9, "next": None})

    assert judge(whole(some, board(row))).lines == []
    assert rules(judge(whole(some, board(row | {"rating": 5.0})))) == {"no such state"}
    assert "board" in rules(judge(whole(some, board(row, row))))


def history(*newest_first: Seen, query: str = "") -> Answered:
    """The answer with these changes of a player."""
    first = body_of(newest_first[0])
    said = {"player": first["player"], "changes": [body_of(each) for each in newest_first]}
    path = f"/v1/ladders/{first['ladder']}/players/{first['player']}/history{query}"
    return answered(path, said)


def test_histories(judge: Judged) -> None:
    """Changes are the events, newest first. On a connection a history is no older than an answer
    before it, nor an answer than a history, unless the history was asked for from a later offset
    back."""
    some, mine = of_one_player()
    first, second, third = mine[:3]
    right = [history(second, first), answer(second), history(third, second), answer(third)]
    found = judge(whole(some, *right))
    assert found.lines == [] and found.checked["histories"] == 2
    assert judge(whole(some, answer(third), history(first, query="?before=1"))).lines == []
    for wrong in (
        [answer(third), history(second, first)],
        [history(third, second), answer(second)],
        [history(third, second), history(second, first)],
    ):
        assert rules(judge(whole(some, *wrong))) == {"back in time"}
    assert "history" in rules(judge(whole(some, history(first, second))))
    assert "history" in rules(judge(whole(some, history(edited(second, mu=5.0), first))))


def test_lookups(judge: Judged) -> None:
    """The players that it asked for, and none of them older than before on the connection."""
    some, mine = of_one_player()

    def lookup(record: Seen, *players: str) -> Answered:
        said = {"players": [msgspec.json.decode(answer(record).body)]}
        path = answer(record).path.rpartition("/players/")[0] + "/players:lookup"
        return answered(path, said, ask=list(players))

    me = body_of(mine[0])["player"]
    assert judge(whole(some, lookup(mine[1], me), answer(mine[2]), lookup(mine[2], me))).clean
    assert rules(judge(whole(some, answer(mine[2]), lookup(mine[1], me)))) == {"back in time"}
    assert rules(judge(whole(some, lookup(mine[1], "another")))) == {"lookup"}


def streamed(record: Seen, connection: str = "s") -> Streamed:
    ladder = body_of(record)["ladder"]
    return Streamed(c=connection, ladder=ladder, event="rating-changed", data=record.v or "")


def test_streams(judge: Judged) -> None:
    """A stream has each event of a player once it has one."""
    some, mine = of_one_player()
    assert judge(whole(some, *map(streamed, mine[1:5]))).lines == []
    assert rules(judge(whole(some, streamed(mine[1]), streamed(mine[3])))) == {"stream"}
    assert rules(judge(whole(some, streamed(mine[1]), streamed(mine[1])))) == {"stream"}
    odd = replace(streamed(mine[1]), data=edited(mine[1], mu=4.0).v or "")
    assert rules(judge(whole(some, odd))) == {"no such state"}


# --- a run that is seen by HTTP alone ------------------------------------------------------------


def by_http(some: list[Seen]) -> list[Line]:
    """The same run as clients of a standalone process see it."""
    found: list[Line] = [replace(RUN, partitions=0)]
    for each in some:
        ladder = body_of(each)["ladder"]
        if each.t == "rounds":
            raw = msgspec.Raw(each.value)
            found.append(Sent(c="c", ladder=ladder, round=raw, status=202, p=each.p, o=each.o))
        else:
            found.append(streamed(each, f"of {ladder}"))
    return [*found, whole([])[-1]]


BY_HTTP = ("an event is lost", "the last event is lost", "an event comes twice",
           "two ranks are swapped", "it begins at another rating", "it counts another round",
           "two events of a player are exchanged")  # fmt: skip


def test_what_is_seen_by_http_alone(judge: Judged) -> None:
    """The same mistakes are found."""
    for fault in ("", *BY_HTTP):
        some = PLANTED[fault][0](records()) if fault else records()
        found = judge(by_http(some))
        assert found.clean == (not fault), (fault, found.lines)
        assert found.checked["acknowledged rounds"] == 30


# --- the command ---------------------------------------------------------------------------------


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit codes: 0 clean, 1 violated or nothing checked, 2 no recording or a torn one."""

    def run(lines: list[Line], cut: int = 0) -> int:
        path = tmp_path / "run.jsonl.gz"
        write_all(path, lines)
        if cut:
            path.write_bytes(path.read_bytes()[:-cut])
        monkeypatch.setattr("sys.argv", ["judge", str(path)])
        return main()

    assert run(whole(records())) == 0
    assert "checked changes: 120" in capsys.readouterr().out
    assert run(whole(records()[:-1])) == 1
    assert run(whole([])) == 1
    assert "NOTHING CHECKED" in capsys.readouterr().out
    assert run(whole(records())[:-1]) == 2
    assert run(whole(records()), cut=20) == 2
    assert "let the recorder end by itself" in capsys.readouterr().err


def test_the_partition_of_a_key() -> None:
    """As Kafka's own test vectors have it."""
    assert [partition_of(key, 1000) for key in ("21", "foobar", "a-little-bit-long-string")] == [
        (-973932308 & 0x7FFFFFFF) % 1000, (-790332482 & 0x7FFFFFFF) % 1000,
        (-985981536 & 0x7FFFFFFF) % 1000,
    ]  # fmt: skip
