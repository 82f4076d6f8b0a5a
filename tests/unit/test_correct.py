"""`correct`: the event of each word, its refusals, where it is sent. `submit`: a file's lines."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from stream_rater.columns.sharding import partition_of
from stream_rater.config.ladders import BETTER_LADDER
from stream_rater.contract.record import Record
from stream_rater.pipeline.ladder_history import encode_histories
from stream_rater.replay.edited_log import records_of
from tests.builders.cases import cases
from tests.builders.commands import as_file, done, piped, run
from tests.builders.lines import Line, a_correction, a_round, a_seed
from tests.builders.memory_places import Sent, an_empty_place, taking, use
from tests.rounds import day, ranked


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Sent:
    return taking(monkeypatch)


SPAN = ["--from", "2026-01-01T00:00:00Z", "--until", "2026-02-01T00:00:00Z"]


@cases(("words", "kind", "event", "says"), [
    (["void", "l", "r1"], "round-voided", {"round_id": "r1"}, "takes round 'r1' back"),
    (["void", "l", "r1", "--batched", "--reason", "a bug"], "round-voided",
     {"round_id": "r1", "batched": True, "reason": "a bug"}, "once `correct apply` is sent"),
    (["remove", "l", "cy"], "player-removed", {"player": "cy"}, "'cy' out of all rounds"),
    (["remove", "l", "cy", *SPAN], "player-removed",
     {"player": "cy", "from": SPAN[1], "until": SPAN[3]}, "from 2026-01-01T00:00:00Z until"),
    (["merge", "l", "cy2", "cy"], "player-merged", {"player": "cy2", "into": "cy"},
     "the rounds of player 'cy2' as those of 'cy'"),
    (["season", "l", "4", "--keep", "0.5", "--sigma", "200"], "season-started",
     {"season": 4, "keep": 0.5, "sigma": 200.0}, "starts season 4: mu keeps 0.5"),
    (["apply", "l"], "corrections-applied", {}, "works in the corrections that wait"),
])  # fmt: skip
def test_words_make_an_event(
    kafka: Sent, words: list[str], kind: str, event: Line, says: str
) -> None:
    """A line on stderr says what the correction will do. A line on stdout says where it is."""
    kafka.forget()
    result = run("correct", *words)
    assert result.stdout == f"{kind}: round-completed, partition 3, offset 17\n"
    assert kafka.sent == [("l", kind, {"ladder": "l", **event})]
    (line,) = result.stderr.splitlines()
    assert line.startswith("ladder 'l': ") and says in line


def amended(folder: Path, round_: Any, *words: str) -> Result:
    """`correct amend` with this round in a file, which may be no JSON."""
    path = folder / "round.json"
    path.write_text(round_ if isinstance(round_, str) else json.dumps(round_, indent=2))
    return run("correct", "amend", "l", path, *words)


def test_an_amended_round_is_what_the_file_says(kafka: Sent, tmp_path: Path) -> None:
    """All that it says and nothing else; it may name its ladder, and whether it waits."""
    round_ = {"round_id": "r1", "standings": ranked([1, 2, 0]), "weight": 0.5}
    more = {"ladder": "l", "reason": "swapped", "batched": True, "event_type": "round-amended"}
    result = amended(tmp_path, round_ | more)
    event = {"ladder": "l", **round_, "reason": "swapped", "batched": True}
    assert kafka.sent == [("l", "round-amended", event)]
    assert "round 'r1' right: 3 entries" in result.stderr
    assert amended(tmp_path, round_, "--reason", "again").exit_code == 0
    assert kafka.sent[1] == ("l", "round-amended", {"ladder": "l", **round_, "reason": "again"})


TWICE = [{"player": "ann", "rank": 1}, {"player": "ann", "rank": 2}]


@cases(("round_", "code", "message"), [
    ("{", 1, "malformed: "),
    ("[1]", 1, "give the round as one JSON object"),
    ({"standings": TWICE}, 1, "round_id is missing"),
    ({"round_id": "r1"}, 1, "malformed: Object missing required field `standings`"),
    ({"round_id": "r1", "standings": TWICE}, 1, "duplicate-player: "),
    ({"round_id": "r1", "standings": TWICE[:1]}, 1, "too-few-entries: "),
    ({"round_id": "r1", "standings": ranked([1, 2]), "wieght": 2}, 1, "unknown field `wieght`"),
    ({"round_id": "r1", "standings": ranked([1, 2]), "weight": -1}, 1, "bad-weight: "),
    ({"round_id": "r1", "ladder": "m", "standings": TWICE}, 2, "of ladder 'm', not of 'l'"),
])  # fmt: skip
def test_a_bad_round_is_reported_with_its_file(
    kafka: Sent, tmp_path: Path, round_: Any, code: int, message: str
) -> None:
    """In one line, before anything is sent."""
    kafka.forget()
    result = amended(tmp_path, round_)
    (line,) = result.stderr.splitlines()
    assert (result.exit_code, message in line) == (code, True), line
    assert line.startswith(f"stream-rater: {tmp_path}/round.json")
    assert kafka.sent == []


@cases(("words", "code", "message"), [
    (["void", "l", ""], 1, "bad-id: round_id: empty"),
    (["void", "l", "x" * 129], 1, "bad-id: round_id: over 128 bytes"),
    (["remove", "l", "cy", "--from", "noon"], 1, "bad-time: from: "),
    (["remove", "l", "cy", "--from", SPAN[3], "--until", SPAN[1]], 1, "is not before until"),
    (["merge", "l", "cy", "cy"], 1, "bad-merge: player 'cy' cannot be merged into itself"),
    (["season", "l", "0"], 1, "bad-season: season: 0"),
    (["season", "l", "1", "--keep", "1.5"], 1, "keep from 0 to 1"),
    (["season", "l", "1", "--sigma", "nan"], 1, "malformed: "),
    (["remove", "l"], 2, "name a player, or give --players"),
    (["void", "l", "r1", "--top", "3"], 2, "--top is for --dry-run"),
    (["void", "l", "r1", "--format", "json"], 2, "--format is for --dry-run"),
    (["void", "l", b"r\xff".decode("utf-8", "surrogateescape")], 2, "ids must be UTF-8"),
])  # fmt: skip
def test_what_is_wrong_is_one_line(kafka: Sent, words: list[str], code: int, message: str) -> None:
    """With the place and the cure; nothing is sent."""
    kafka.forget()
    result = run("correct", *words)
    (line,) = result.stderr.splitlines()
    assert (result.exit_code, kafka.sent, result.stdout) == (code, [], "")
    assert line.startswith("stream-rater: ") and message in line


def test_a_ladder_that_is_not_configured_is_reported(
    kafka: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the file to put it in."""
    ladders = tmp_path / "ladders.toml"
    rating = 'system = "elo-mmr"\nweight_limit = 0.2\nsigma_limit = 80\n'
    ladders.write_text(f"[ladders.duel.rating]\n{rating}")
    monkeypatch.setenv("STREAM_RATER_LADDERS", str(ladders))
    done("correct", "void", "duel", "r1")
    result = run("correct", "void", "dual", "r1")
    assert result.exit_code == 1
    assert result.stderr == (
        "stream-rater: ladder 'dual', round 'r1': unknown-ladder: ladder 'dual' is not "
        "configured: name it in the ladders file, which STREAM_RATER_LADDERS names\n"
    )


def test_a_wave_of_bans_is_worked_in_together(kafka: Sent, tmp_path: Path) -> None:
    """Each player once; `corrections-applied` follows when all of them have arrived."""
    listed = tmp_path / "players"
    listed.write_text("dee\n\ncy\n eve \n")
    text = done("correct", "remove", "l", "bob", "cy", "--players", listed, "--reason", "bots")
    assert kafka.kinds == ["player-removed"] * 4 + ["corrections-applied"]
    assert [event.get("player") for _, _, event in kafka.sent] == ["bob", "cy", "dee", "eve", None]
    assert [event.get("batched") for _, _, event in kafka.sent] == [True] * 4 + [None]
    assert kafka.flushed_after == [4, 5]
    assert text == (
        "4 player-removed, 1 corrections-applied: round-completed, partition 3, offsets 17 to 21\n"
    )
    kafka.forget()
    done("correct", "remove", "l", "bob", "cy", "--batched")
    assert kafka.kinds == ["player-removed"] * 2, "a batch waits until it is applied by hand"


def test_a_wave_with_mistakes_is_not_begun(kafka: Sent, tmp_path: Path) -> None:
    """Each mistake is reported with its line. A wave that was not sent whole is not applied."""
    listed = tmp_path / "players"
    listed.write_text(f"bob\n{'x' * 129}\n{'y' * 129}\n")
    result = run("correct", "remove", "l", "--players", listed)
    *lines, last = result.stderr.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"{listed}:2", f"{listed}:3"]
    assert last == "stream-rater: 2 of 4 corrections are invalid: nothing was sent"
    assert (result.exit_code, kafka.sent) == (1, [])
    kafka.forget()
    kafka.failures.append("player-removed player 'cy': Broker: Message size too large")
    result = run("correct", "remove", "l", "bob", "cy")
    assert kafka.kinds == ["player-removed"] * 2
    assert (result.exit_code, result.stdout) == (1, "")
    assert "1 of 3 corrections not sent, first player-removed player 'cy'" in result.stderr


# --- `submit`: rounds, seeds and corrections of a file --------------------------------------------


def written(path: Path, lines: list[Line]) -> str:
    return str(as_file(path, lines))


def submitted(folder: Path, lines: list[Line]) -> Result:
    return run("submit", written(folder / "a.jsonl", lines))


CORRECTIONS = [
    a_correction("round-voided", round_id="r1"),
    a_correction("round-amended", round_id="r1", standings=ranked([2, 1])),
    a_correction("player-removed", ladder="m", player="p0", batched=True),
    a_correction("player-merged", player="p0", into="p1"),
    a_correction("season-started", season=2, keep=0.5, sigma=200),
    a_correction("corrections-applied", ladder="m"),
]
ROUND = a_round(1, "p0", "p1")
SEED = a_seed(1, "p0", mu=1600)
RESET = a_correction("player-reset", ladder="m", round_id="s2", at=day(1), player="p0", sigma=200)


def test_seeds_and_corrections_are_sent_as_such(kafka: Sent, tmp_path: Path) -> None:
    """In their places in the file, by ladder and kind. The count says how many there were."""
    for lines, says in (
        ([SEED, ROUND, RESET], "1 round and 2 seeds sent\n"),
        ([ROUND, *CORRECTIONS, ROUND], "2 rounds and 6 corrections sent\n"),
    ):
        result = submitted(tmp_path, lines)
        assert (result.exit_code, result.stderr) == (0, says)
        assert kafka.sent == [(each["ladder"], each.get("event_type", ""), each) for each in lines]
        kafka.forget()
    result = submitted(tmp_path, [ROUND, ROUND | {"event_type": "round-completed"}])
    assert result.stderr == "2 rounds sent\n"
    assert kafka.kinds == ["", ""]


@cases(("line", "says"), [
    (SEED | {"players": [{"player": "p", "mu": 900, "sigma": 0}]}, "bad-seed: players[0].sigma: 0"),
    (a_seed(1, *(f"p{i:0120}" for i in range(5000))), "too-large: "),
    (SEED | {"more": 1}, "malformed: "),
    (a_correction("round-avoided"), "malformed: event-type 'round-avoided' is none of"),
    (a_correction("round-voided"), "malformed: Object missing required field `round_id`"),
    (a_correction("season-started", season=0), "bad-season: "),
    (a_correction("round-amended", round_id="r1", standings=ranked([1, 2, -2])),
     "bad-rank: standings[2]"),
])  # fmt: skip
def test_a_bad_seed_or_correction_is_reported_with_its_line(
    kafka: Sent, tmp_path: Path, line: Line, says: str
) -> None:
    """And with its code. The others are sent; the exit code is 1."""
    kafka.forget()
    result = submitted(tmp_path, [ROUND, line, RESET, CORRECTIONS[0]])
    assert (result.exit_code, kafka.kinds) == (1, ["", "player-reset", "round-voided"])
    assert f"a.jsonl:2: {says}" in result.stderr
    assert "1 round and 1 seed and 1 correction sent\n" in result.stderr


# --- `correct … --dry-run`: the difference between two ratings ---

PLAYERS = [f"p{i}" for i in range(8)]


def season(rounds: int = 40, ladder: str = "l") -> list[Line]:
    """Random lobbies of few players, and two accounts who never meet."""
    rng = random.Random(rounds)
    lines = []
    for number in range(rounds):
        names = [*rng.sample(PLAYERS, 3), rng.choice(["ann", "ann2"])]
        rng.shuffle(names)
        lines.append(a_round(number, ladder=ladder, standings=ranked([1, 2, 2, 4], names)))
    return lines


def rated(path: str) -> dict[str, Line]:
    lines = map(json.loads, done("rate", path).splitlines())
    return {each["player"]: each for each in lines if each["ladder"] == "l"}


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


def moves(result: Result) -> dict[str, Any]:
    """The differences that `--format json` shows, in its order."""
    assert result.exit_code == 0, result.stderr
    lines = map(json.loads, result.stdout.splitlines())
    return {each.pop("player"): tuple(each.values())[1:] for each in lines}


AMENDED: Line = {"round_id": "r3", "standings": ranked([1, 2], ["p1", "zoe"])}


def test_a_void_of_a_seed(tmp_path: Path) -> None:
    """Its players begin as newcomers, and who has no round is gone. The summary counts the seed."""
    log = [a_seed(1, "p2", "new", "ann"), *season()]
    voided = a_correction("round-voided", round_id="s1")
    file, after = written(tmp_path / "a.jsonl", log), [*log, voided]
    result = run("correct", "void", "l", "s1", "--dry-run", "--file", file, "--format", "json")
    shown = moves(result)
    assert shown == differences(rated(file), rated(written(tmp_path / "b.jsonl", after)))
    assert shown["new"][1:3] == (None, None) and len(shown) > 3
    assert "0 of 40 rounds and 1 seed would be touched" in result.stderr


APPLIED = a_correction("corrections-applied")
CASES: list[tuple[str, list[Line]]] = [
    ("void l r5", [a_correction("round-voided", round_id="r5")]),
    ("void l r5 --batched", [a_correction("round-voided", round_id="r5", batched=True), APPLIED]),
    ("amend l BATCHED", [a_correction("round-amended", **AMENDED, batched=True), APPLIED]),
    ("amend l ROUND", [a_correction("round-amended", **AMENDED)]),
    ("remove l p2", [a_correction("player-removed", player="p2")]),
    (f"remove l p2 --from {day(9)} --until {day(20)}",
     [a_correction("player-removed", player="p2", **{"from": day(9), "until": day(20)})]),
    ("remove l p2 p3", [*(a_correction("player-removed", player=each, batched=True)
                          for each in ("p2", "p3")), APPLIED]),
    ("merge l ann2 ann", [a_correction("player-merged", player="ann2", into="ann")]),
    ("season l 1 --keep 0.5 --sigma 200",
     [a_correction("season-started", season=1, keep=0.5, sigma=200)]),
    ("apply l", [APPLIED]),
]  # fmt: skip
BEFORE: list[Line] = [
    a_correction("round-voided", round_id="r1"),
    a_correction("player-removed", player="p7", batched=True),
]


@cases("before", [[], BEFORE])
@cases(("words", "lines"), CASES)
def test_it_is_the_difference_of_two_ratings(
    tmp_path: Path, words: str, lines: list[Line], before: list[Line]
) -> None:
    """It is that of the file with and without the correction, bit for bit, after others, too."""
    log = [*season(), *before, *season(7, "other")]
    file = written(tmp_path / "a.jsonl", log)
    longer = written(tmp_path / "b.jsonl", [*log, *lines])
    files = {
        "ROUND": written(tmp_path / "round.json", [AMENDED]),
        "BATCHED": written(tmp_path / "batched.json", [AMENDED | {"batched": True}]),
    }
    given = [files.get(word, word) for word in words.split()]
    result = run("correct", *given, "--dry-run", "--file", file, "--format", "json")
    shown, due = moves(result), differences(rated(file), rated(longer))
    assert shown == due
    if given[0] in ("void", "amend", "remove", "merge"):
        assert due, "it does something"
    sizes = [abs(difference) for _, _, difference, *_ in shown.values() if difference is not None]
    assert sizes == sorted(sizes, reverse=True)
    assert result.stderr.splitlines()[-1].startswith(f"{len(due)} of ")


def test_who_is_gone_comes_first(tmp_path: Path) -> None:
    """The largest difference is next; the last line counts all. Without moves there is no table."""
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
    first = written(tmp_path / "round.json", season()[:1])
    text = done("correct", "amend", "l", first, "--dry-run", "--file", file)
    assert text == "0 of 10 players would move; 0 of 40 rounds would be touched\n"


@cases(("words", "reported"), [
    ("void l no", "round 'no': unknown-round: round_id 'no' is not on this ladder"),
    ("void l r1", "round 'r1': already-voided: "),
    ("remove l no", "player 'no': unknown-player: "),
    ("remove m p1", "ladder 'm', player 'p1': unknown-player: "),
    ("merge l p1 p2", "player 'p1': bad-merge: "),
])  # fmt: skip
def test_a_rejection_is_reported_by_its_code(tmp_path: Path, words: str, reported: str) -> None:
    """In one line, after what it would do; nothing on standard output."""
    file = written(tmp_path / "a.jsonl", [*season(), *BEFORE])
    result = run("correct", *words.split(), "--dry-run", "--file", file)
    _, line = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (1, "")
    assert line.startswith("stream-rater: ladder ") and reported in line


def test_of_a_wave_each_rejection_is_reported(tmp_path: Path) -> None:
    """The others are shown, with exit code 1. A deferred one that is rejected is no failure."""
    file = written(tmp_path / "a.jsonl", season())
    result = run("correct", "remove", "l", "p1", "no", "never", "--dry-run", "--file", file)
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
    file = written(tmp_path / "a.jsonl", season())
    words = ("correct", "amend", "l", "-", "--dry-run", "--file", file)
    assert "1 of 40 rounds would be touched" in piped(json.dumps(AMENDED), *words)


def test_the_live_log_is_rated_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same rules, if the log has no older ones; nothing is sent."""
    monkeypatch.setattr("stream_rater.places.ladders_of", lambda _: BETTER_LADDER)
    lines, home = [json.dumps(each).encode() for each in season()], partition_of("l", 3)
    records = [
        Record(home, 3 * each.offset, each.value, each.headers, received_s=2e9)
        for each in records_of(lines)
    ]  # with holes between them, as transactions leave
    place = an_empty_place(partitions=3)
    monkeypatch.setattr(place, "rounds", lambda *_: iter(records))
    use(monkeypatch, place)
    file = written(tmp_path / "a.jsonl", season())
    words = ["correct", "void", "l", "r5", "--dry-run", "--format", "json"]
    assert run(*words).stdout == run(*words, "--file", file).stdout != ""


def test_a_live_log_that_is_cut_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a log gives no ratings, nor does a ladders file that is not the workers'."""
    home = partition_of("l", 3)
    place = an_empty_place(partitions=3)
    place.log.rounds[home].start = 5
    use(monkeypatch, place)
    cut = run("correct", "void", "l", "r1", "--dry-run")
    assert cut.exit_code == 1 and f"partition {home} starts at 5: the rounds before" in cut.stderr
    place.note(encode_histories("noted", {"l": ("0:x",)}))
    other = run("correct", "void", "l", "r1", "--dry-run")
    assert other.exit_code == 2 and other.stderr.endswith("workers: nothing was rated\n")
