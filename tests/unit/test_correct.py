"""`correct`: the event that each of its words makes, what it refuses, and where it is sent.

`submit`: rounds and corrections of a file, each validated, in the order of the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream_rater.cli import app
from tests.builders.cases import cases
from tests.builders.lines import Line, a_correction, a_round, a_seed
from tests.builders.submitters import Sent, taking
from tests.rounds import day, ranked


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Takes all that is sent."""
    return taking(monkeypatch)


def run(*words: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app.main, ["correct", *words], input=stdin)


SPAN = ["--from", "2026-01-01T00:00:00Z", "--until", "2026-02-01T00:00:00Z"]


@cases(
    ("words", "kind", "event", "says"),
    [
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
    ],
)  # fmt: skip
def test_words_make_an_event(
    kafka: Sent, words: list[str], kind: str, event: dict[str, Any], says: str
) -> None:
    """A line on stderr says what the correction will do. A line on stdout says where it is."""
    kafka.forget()
    result = run(*words)
    assert (result.exit_code, result.stdout) == (
        0, f"{kind}: round-completed, partition 3, offset 17\n",
    )  # fmt: skip
    assert kafka.sent == [("l", kind, {"ladder": "l", **event})]
    (line,) = result.stderr.splitlines()
    assert line.startswith("ladder 'l': ") and says in line


def written(folder: Path, value: Any) -> str:
    path = folder / "round.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=2))
    return str(path)


def test_an_amended_round_is_what_the_file_says(kafka: Sent, tmp_path: Path) -> None:
    """All that it says and nothing else; it may name its ladder, and whether it waits."""
    round_ = {"round_id": "r1", "standings": ranked([1, 2, 0]), "weight": 0.5}
    more = {"ladder": "l", "reason": "swapped", "batched": True, "event_type": "round-amended"}
    result = run("amend", "l", written(tmp_path, round_ | more))
    event = {"ladder": "l", **round_, "reason": "swapped", "batched": True}
    assert kafka.sent == [("l", "round-amended", event)]
    assert "round 'r1' right: 3 entries" in result.stderr
    assert run("amend", "l", written(tmp_path, round_), "--reason", "again").exit_code == 0
    assert kafka.sent[1] == ("l", "round-amended", {"ladder": "l", **round_, "reason": "again"})


TWICE = [{"player": "ann", "rank": 1}, {"player": "ann", "rank": 2}]


@cases(
    ("round_", "code", "message"),
    [
        ("{", 1, "malformed: "),
        ("[1]", 1, "give the round as one JSON object"),
        ({"standings": TWICE}, 1, "round_id is missing"),
        ({"round_id": "r1"}, 1, "malformed: Object missing required field `standings`"),
        ({"round_id": "r1", "standings": TWICE}, 1, "duplicate-player: "),
        ({"round_id": "r1", "standings": TWICE[:1]}, 1, "too-few-entries: "),
        ({"round_id": "r1", "standings": ranked([1, 2]), "wieght": 2}, 1, "unknown field `wieght`"),
        ({"round_id": "r1", "standings": ranked([1, 2]), "weight": -1}, 1, "bad-weight: "),
        ({"round_id": "r1", "ladder": "m", "standings": TWICE}, 2, "of ladder 'm', not of 'l'"),
    ],
)
def test_a_bad_round_is_reported_with_its_file(
    kafka: Sent, tmp_path: Path, round_: Any, code: int, message: str
) -> None:
    """In one line, before anything is sent."""
    kafka.forget()
    path = written(tmp_path, round_)
    result = run("amend", "l", path)
    (line,) = result.stderr.splitlines()
    assert result.exit_code == code and line.startswith(f"stream-rater: {path}") and message in line
    assert kafka.sent == []


@cases(
    ("words", "code", "message"),
    [
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
    ],
)
def test_what_is_wrong_is_one_line(kafka: Sent, words: list[str], code: int, message: str) -> None:
    """With the place and the cure; nothing is sent."""
    kafka.forget()
    result = run(*words)
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
    assert run("void", "duel", "r1").exit_code == 0
    result = run("void", "dual", "r1")
    assert result.exit_code == 1
    assert result.stderr == (
        "stream-rater: ladder 'dual', round 'r1': unknown-ladder: ladder 'dual' is not "
        "configured: name it in the ladders file, which STREAM_RATER_LADDERS names\n"
    )


def test_a_wave_of_bans_is_worked_in_together(kafka: Sent, tmp_path: Path) -> None:
    """Each player once; `corrections-applied` follows when all of them have arrived."""
    listed = tmp_path / "players"
    listed.write_text("dee\n\ncy\n eve \n")
    result = run("remove", "l", "bob", "cy", "--players", str(listed), "--reason", "bots")
    kinds = kafka.kinds
    assert kinds == ["player-removed"] * 4 + ["corrections-applied"]
    assert [event.get("player") for _, _, event in kafka.sent] == ["bob", "cy", "dee", "eve", None]
    assert [event.get("batched") for _, _, event in kafka.sent] == [True] * 4 + [None]
    assert kafka.flushed_after == [4, 5]
    assert result.stdout == (
        "4 player-removed, 1 corrections-applied: round-completed, partition 3, offsets 17 to 21\n"
    )
    kafka.forget()
    assert run("remove", "l", "bob", "cy", "--batched").exit_code == 0
    assert kafka.kinds == ["player-removed"] * 2, "a batch waits until it is applied by hand"


def test_a_wave_with_mistakes_is_not_begun(kafka: Sent, tmp_path: Path) -> None:
    """Each mistake is reported with its line, and nothing is sent. A wave that failed is not
    applied: what is not there yet would be left out."""
    listed = tmp_path / "players"
    listed.write_text(f"bob\n{'x' * 129}\n{'y' * 129}\n")
    result = run("remove", "l", "--players", str(listed))
    *lines, last = result.stderr.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"{listed}:2", f"{listed}:3"]
    assert last == "stream-rater: 2 of 4 corrections are invalid: nothing was sent"
    assert (result.exit_code, kafka.sent) == (1, [])
    kafka.forget()
    kafka.failures.append("player-removed player 'cy': Broker: Message size too large")
    result = run("remove", "l", "bob", "cy")
    assert kafka.kinds == ["player-removed"] * 2
    assert (result.exit_code, result.stdout) == (1, "")
    assert "1 of 3 corrections not sent, first player-removed player 'cy'" in result.stderr


# --- `submit`: rounds, seeds and corrections of a file --------------------------------------------


Lines = list[Line]


def submitted(folder: Path, lines: Lines) -> Result:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return CliRunner().invoke(app.main, ["submit", str(path)])


CORRECTIONS: Lines = [
    {"event_type": "round-voided", "ladder": "l", "round_id": "r1"},
    {"event_type": "round-amended", "ladder": "l", "round_id": "r1", "standings": ranked([2, 1])},
    {"event_type": "player-removed", "ladder": "m", "player": "p0", "batched": True},
    {"event_type": "player-merged", "ladder": "l", "player": "p0", "into": "p1"},
    {"event_type": "season-started", "ladder": "l", "season": 2, "keep": 0.5, "sigma": 200},
    {"event_type": "corrections-applied", "ladder": "m"},
]
ROUND = a_round(1, "p0", "p1")
SEED = a_seed(1, "p0", mu=1600)
RESET = a_correction("player-reset", ladder="m", round_id="s2", at=day(1), player="p0", sigma=200)


def test_seeds_and_corrections_are_sent_as_such(kafka: Sent, tmp_path: Path) -> None:
    """Each at its place, as the line says, under its ladder and kind; the count says how many.
    Rounds alone have no header if they name their own kind."""
    lines = [SEED, ROUND, RESET]
    result = submitted(tmp_path, lines)
    assert result.exit_code == 0
    assert result.stderr == "1 round and 2 seeds sent\n"
    assert [each[:2] for each in kafka.sent] == [
        ("l", "players-seeded"), ("l", ""), ("m", "player-reset"),
    ]  # fmt: skip
    assert [event for _, _, event in kafka.sent] == lines
    kafka.forget()
    lines = [ROUND, *CORRECTIONS, ROUND]
    result = submitted(tmp_path, lines)
    assert result.exit_code == 0
    assert result.stderr == "2 rounds and 6 corrections sent\n"
    assert kafka.sent == [(each["ladder"], each.get("event_type", ""), each) for each in lines]
    kafka.forget()
    result = submitted(tmp_path, [ROUND, ROUND | {"event_type": "round-completed"}])
    assert result.stderr == "2 rounds sent\n"
    assert kafka.kinds == ["", ""]


@cases(
    ("changed", "says"),
    [
        ({"players": [{"player": "p0", "mu": 1600, "sigma": 0}]}, "bad-seed: players[0].sigma: 0"),
        ({"players": [{"player": f"p{i:0120}", "mu": 1600} for i in range(5000)]}, "too-large: "),
        ({"more": 1}, "malformed: "),
    ],
)
def test_bad_seeds_are_not_sent(
    kafka: Sent, tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    """Each has its line and its code; all others are sent."""
    kafka.forget()
    result = submitted(tmp_path, [ROUND, {**SEED, **changed}, RESET])
    assert result.exit_code == 1
    assert f"a.jsonl:2: {says}" in result.stderr
    assert "1 round and 1 seed sent\n" in result.stderr
    assert kafka.kinds == ["", "player-reset"]


@cases(
    ("line", "message"),
    [
        ({"event_type": "round-avoided"}, "malformed: event-type 'round-avoided' is none of"),
        ({"event_type": "round-voided"}, "malformed: Object missing required field `round_id`"),
        ({"event_type": "season-started", "season": 0}, "bad-season: "),
        ({"event_type": "round-amended", "round_id": "r1", "standings": ranked([1, 2, -2])},
         "bad-rank: standings[2]"),
    ],
)  # fmt: skip
def test_a_bad_correction_is_reported_with_its_line(
    kafka: Sent, tmp_path: Path, line: dict[str, Any], message: str
) -> None:
    """The others are sent; the exit code is 1."""
    kafka.forget()
    result = submitted(tmp_path, [ROUND, {"ladder": "l", **line}, CORRECTIONS[0]])
    assert (result.exit_code, len(kafka.sent)) == (1, 2)
    assert f"a.jsonl:2: {message}" in result.stderr
    assert "1 round and 1 correction sent" in result.stderr
