"""`correct … --dry-run` shows the difference between two ratings and sends nothing."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.columns.sharding import partition_of
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Record
from stream_rater.operations import live_log, submit
from stream_rater.replay.edited_log import records_of
from tests.builders.cases import cases
from tests.builders.commands import piped, run
from tests.builders.lines import a_correction, a_seed
from tests.rounds import day, event, ranked

Line = dict[str, Any]
PLAYERS = [f"p{i}" for i in range(8)]


def season(rounds: int = 40, ladder: str = "l") -> list[Line]:
    """Random lobbies of few players, and two accounts who never meet."""
    rng = random.Random(rounds)
    lines = []
    for number in range(rounds):
        names = [*rng.sample(PLAYERS, 3), rng.choice(["ann", "ann2"])]
        rng.shuffle(names)
        standings = ranked([1, 2, 2, 4], names)
        lines.append(event(*standings, round_id=f"r{number}", ladder=ladder,
                           completed_at=day(number)))  # fmt: skip
    return lines


def written(path: Path, lines: list[Line]) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return str(path)


def rated(path: str, ladder: str = "l") -> dict[str, Line]:
    result = run("rate", path)
    assert result.exit_code == 0, result.stderr
    lines = map(json.loads, result.stdout.splitlines())
    return {each["player"]: each for each in lines if each["ladder"] == ladder}


def differences(before: dict[str, Line], after: dict[str, Line]) -> dict[str, Any]:
    """By player (rating before, after, difference, rounds before, after), of those who move."""
    found = {}
    for who in before | after:
        old, new = before.get(who), after.get(who)
        if old != new:
            found[who] = (
                old and old["rating"], new and new["rating"],
                new["rating"] - old["rating"] if old and new else None,
                old["rounds"] if old else 0, new["rounds"] if new else 0,
            )  # fmt: skip
    return found


SEED = a_seed(1, "p2", "new", "ann")
AMENDED = {"round_id": "r3", "standings": ranked([1, 2], ["p1", "zoe"])}


def test_a_void_of_a_seed(tmp_path: Path) -> None:
    """Its players begin as newcomers, and who has no round is gone. The summary counts the seed."""
    log = [SEED, *season()]
    voided = a_correction("round-voided", round_id="s1")
    file, after = written(tmp_path / "a.jsonl", log), [*log, voided]
    result = run("correct", "void", "l", "s1", "--dry-run", "--file", file, "--format", "json")
    assert result.exit_code == 0, result.stderr
    moves = [json.loads(line) for line in result.stdout.splitlines()]
    shown = {each.pop("player"): tuple(each.values())[1:] for each in moves}
    assert shown == differences(rated(file), rated(written(tmp_path / "b.jsonl", after)))
    assert shown["new"][1:3] == (None, None) and len(shown) > 3
    assert "0 of 40 rounds and 1 seed would be touched" in result.stderr


CASES: list[tuple[list[str], list[Line]]] = [
    (["void", "l", "r5"], [{"event_type": "round-voided", "round_id": "r5"}]),
    (["void", "l", "r5", "--batched"],
     [{"event_type": "round-voided", "round_id": "r5", "batched": True},
      {"event_type": "corrections-applied"}]),
    (["amend", "l", "BATCHED"],
     [{"event_type": "round-amended", **AMENDED, "batched": True},
      {"event_type": "corrections-applied"}]),
    (["amend", "l", "ROUND"], [{"event_type": "round-amended", **AMENDED}]),
    (["remove", "l", "p2"], [{"event_type": "player-removed", "player": "p2"}]),
    (["remove", "l", "p2", "--from", day(9), "--until", day(20)],
     [{"event_type": "player-removed", "player": "p2", "from": day(9), "until": day(20)}]),
    (["remove", "l", "p2", "p3"],
     [{"event_type": "player-removed", "player": "p2", "batched": True},
      {"event_type": "player-removed", "player": "p3", "batched": True},
      {"event_type": "corrections-applied"}]),
    (["merge", "l", "ann2", "ann"],
     [{"event_type": "player-merged", "player": "ann2", "into": "ann"}]),
    (["season", "l", "1", "--keep", "0.5", "--sigma", "200"],
     [{"event_type": "season-started", "season": 1, "keep": 0.5, "sigma": 200}]),
    (["apply", "l"], [{"event_type": "corrections-applied"}]),
]  # fmt: skip
BEFORE: list[Line] = [
    a_correction("round-voided", round_id="r1"),
    a_correction("player-removed", player="p7", batched=True),
]


@cases("before", [[], BEFORE])
@cases(("words", "lines"), CASES)
def test_it_is_the_difference_of_two_ratings(
    tmp_path: Path, words: list[str], lines: list[Line], before: list[Line]
) -> None:
    """That of the file with the correction and that of the file alone, bit for bit, in a file that
    has corrections already, too."""
    log = [*season(), *before, *season(7, "other")]
    file = written(tmp_path / "a.jsonl", log)
    longer = written(tmp_path / "b.jsonl", [*log, *({"ladder": "l", **each} for each in lines)])
    round_ = tmp_path / "round.json"
    round_.write_text(json.dumps(AMENDED))
    batched = tmp_path / "batched.json"
    batched.write_text(json.dumps(AMENDED | {"batched": True}))
    files = {"ROUND": str(round_), "BATCHED": str(batched)}
    given = [files.get(word, word) for word in words]
    result = run("correct", *given, "--dry-run", "--file", file, "--format", "json")
    assert result.exit_code == 0, result.stderr
    moves = [json.loads(line) for line in result.stdout.splitlines()]
    reported = {each.pop("player"): tuple(each.values())[1:] for each in moves}
    due = differences(rated(file), rated(longer))
    assert reported == due
    if words[0] in ("void", "amend", "remove", "merge"):
        assert due, "it does something"
    sizes = [abs(each["difference"]) for each in moves if each["difference"] is not None]
    assert sizes == sorted(sizes, reverse=True)
    assert result.stderr.splitlines()[-1].startswith(f"{len(due)} of ")


def test_who_is_gone_comes_first(tmp_path: Path) -> None:
    """Then the largest difference; the last line counts all of them. If nobody moves, there is no
    table: an amendment that says what was reported."""
    file = written(tmp_path / "a.jsonl", season())
    played = sum("p2" in json.dumps(each) for each in season())
    result = run("correct", "remove", "l", "p2", "--dry-run", "--file", file, "--top", "3")
    assert result.exit_code == 0, result.stderr
    *table, last = result.stdout.splitlines()
    rows = [line.replace("│", " ").split() for line in table if "│" in line]
    assert len(rows) == 3 and rows[0] == ["p2", rows[0][1], "–", "–", str(played), "0"]
    assert abs(float(rows[1][3])) >= abs(float(rows[2][3])) > 0.0
    assert last == f"10 of 10 players would move; {played} of 40 rounds would be touched"
    assert result.stderr == "ladder 'l': takes player 'p2' out of all rounds\n"
    first = season()[0]
    round_ = tmp_path / "round.json"
    round_.write_text(json.dumps(first))
    file = written(tmp_path / "a.jsonl", season())
    result = run("correct", "amend", "l", str(round_), "--dry-run", "--file", file)
    assert result.stdout == "0 of 10 players would move; 0 of 40 rounds would be touched\n"


@cases(
    ("words", "reported"),
    [
        (["void", "l", "no"], "round 'no': unknown-round: round_id 'no' is not on this ladder"),
        (["void", "l", "r1"], "round 'r1': already-voided: "),
        (["remove", "l", "no"], "player 'no': unknown-player: "),
        (["remove", "m", "p1"], "ladder 'm', player 'p1': unknown-player: "),
        (["merge", "l", "p1", "p2"], "player 'p1': bad-merge: "),
    ],
)
def test_a_rejection_is_reported_by_its_code(
    tmp_path: Path, words: list[str], reported: str
) -> None:
    """In one line, after what it would do; nothing on standard output."""
    file = written(tmp_path / "a.jsonl", [*season(), *BEFORE])
    result = run("correct", *words, "--dry-run", "--file", file)
    _, line = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (1, "")
    assert line.startswith("stream-rater: ladder ") and reported in line


def test_of_a_wave_each_rejection_is_reported(tmp_path: Path) -> None:
    """The others are shown; the exit code is 1. What waits and would be rejected was not asked for,
    and is no failure."""
    file = written(tmp_path / "a.jsonl", season())
    words = ["remove", "l", "p1", "no", "never"]
    result = run("correct", *words, "--dry-run", "--file", file)
    assert result.exit_code == 1 and "10 of 10 players would move" in result.stdout
    *_, one, two, last = result.stderr.splitlines()
    assert "'no': unknown-player" in one and "'never': unknown-player" in two
    assert last == "stream-rater: 2 of 4 corrections would be refused"
    waiting = a_correction("round-voided", round_id="no", batched=True)
    file = written(tmp_path / "a.jsonl", [*season(), waiting])
    result = run("correct", "apply", "l", "--dry-run", "--file", file)
    assert result.exit_code == 0
    assert "waiting at offset 40: unknown-round: " in result.stderr


def test_a_round_may_come_from_standard_input(tmp_path: Path) -> None:
    """As `-`."""
    file = written(tmp_path / "a.jsonl", season())
    words = ("correct", "amend", "l", "-", "--dry-run", "--file", file)
    assert "1 of 40 rounds would be touched" in piped(json.dumps(AMENDED), *words)


def test_the_live_log_is_rated_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same rules; nothing is sent."""
    lines, home = [json.dumps(each).encode() for each in season()], partition_of("l", 3)
    records = [
        Record(home, 3 * each.offset, each.value, each.headers, received_s=2e9)
        for each in records_of(lines)
    ]  # with holes between them, as transactions leave
    monkeypatch.setattr(live_log, "live_log", lambda *_: (lambda: iter(records), home, 3))
    monkeypatch.setattr(submit, "Submitter", None)
    file = written(tmp_path / "a.jsonl", season())
    words = ["correct", "void", "l", "r5", "--dry-run", "--format", "json"]
    assert run(*words).stdout == run(*words, "--file", file).stdout != ""


def test_a_live_log_that_is_cut_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratings cannot be computed from a part; nor by another ladders file than that of the
    workers."""
    home = partition_of("l", 3)
    admin = SimpleNamespace(
        topics=Topics.of(Settings()), partitions_of=lambda *_: [3],
        starts=lambda *_: [5 * (p == home) for p in range(3)], stable_ends=lambda *_: [9] * 3,
    )  # fmt: skip
    why = [""]
    monkeypatch.setattr(live_log, "Admin", lambda _: admin)
    monkeypatch.setattr(live_log, "read_ladder_events", lambda *_: None)
    monkeypatch.setattr(live_log, "disagreement", lambda *_, **__: why[0])
    cut = run("correct", "void", "l", "r1", "--dry-run")
    assert cut.exit_code == 1 and f"partition {home} starts at 5: the rounds before" in cut.stderr
    why[0] = "they differ"
    other = run("correct", "void", "l", "r1", "--dry-run")
    assert (other.exit_code, other.stderr) == (2, "stream-rater: they differ: nothing was rated\n")
