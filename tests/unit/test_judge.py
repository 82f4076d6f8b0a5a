"""The judge finds each mistake that is planted in a recording, and nothing in a correct run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.judge.__main__ import main
from tests.judge.invented import RUN, InventedRun, text_of, whole
from tests.judge.judge import judged
from tests.judge.observations import Answered, Findings, Line, Seen, Sent, Streamed, write_all

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
    assert rules(judge(whole(put(some, i, edited(some[i], previous_mu=7.0)), run=run))) == {"chain"}


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
    """States that never were, readers that go back, and ones below `min_offset` are wrong."""
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
