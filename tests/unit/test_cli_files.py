"""What commands report about good and bad files, and on a terminal, how far a file is read."""

import csv
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stream_rater.config.ladders import ANY_LADDER, BETTER_LADDER, DEFAULT_RATING
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.operations import input_file, rate
from stream_rater.operations.compare_store import compare
from stream_rater.operations.input_file import RoundsFile
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.files import text_size
from stream_rater.replay.log_reading import LogReader
from stream_rater.runtime.engine import EmbeddedEngine
from stream_rater.runtime.progress import advancing, track_bytes
from tests.builders.cases import cases
from tests.builders.commands import Terminal, done, execute, run
from tests.builders.lines import ListedRecords
from tests.rounds import as_json, day, ranked, read

ROUNDS = [as_json(round_id=f"r{i}", completed_at=f"2026-01-{1 + i:02}T00:00:00Z") for i in range(4)]


def lines(path: Path, rounds: Sequence[bytes]) -> Path:
    path.write_bytes(b"".join(each + b"\n" for each in rounds))
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "c.json"
    path.write_text('{"system":"elo-mmr","weight_limit":0.2,"sigma_limit":80}')
    return path


def test_one_invalid_round_is_one(tmp_path: Path) -> None:
    bad = as_json(round_id="")
    for rounds, expected in (
        ([bad], "1 round was invalid, and there was no other"),
        ([bad, bad], "2 rounds were invalid, and there was no other"),
        ([bad, ROUNDS[0]], "1 round was invalid; the other one was taken"),
        ([bad, *ROUNDS], "1 round was invalid; the 4 others were taken"),
        ([b"no round", *ROUNDS], "1 round was invalid; the 4 others were taken"),
    ):
        result = run("rate", lines(tmp_path / "a.jsonl", rounds))
        assert result.exit_code == 1
        assert result.stderr.splitlines()[-1].endswith(f"a.jsonl: {expected}")


def test_a_file_without_rounds_is_reported(tmp_path: Path) -> None:
    """Nothing failed, but nobody wants to look for the reason of an empty result."""
    for text in (b"", b"\n \n"):
        for name, content in (("a.jsonl", text), ("a.jsonl.gz", gzip.compress(text))):
            (tmp_path / name).write_bytes(content)
            result = run("rate", tmp_path / name)
            assert (result.exit_code, result.stdout) == (0, "")
            assert result.stderr == f"{tmp_path / name}: no rounds in it\n"


@cases(("text", "expected"), [
    ("round,player,rank\n1,ann,2\n",
     "no JSON lines (is it CSV? Then end its name in .csv): each line"),
    ("\n17\n18\n", "no JSON lines: each line must be a round as a JSON object, but line 2 is"),
    ("\x1b[2J\nx", r"line 1 is: \x1b[2J"),
    ("x" * 99, f"line 1 is: {'x' * 40}…"),
    ('[{"round_id": "a"},\n{"round_id": "b"}]', "(is it one JSON array?)"),
])  # fmt: skip
def test_what_is_no_json_lines_is_reported_in_one_line(
    tmp_path: Path, config: Path, text: str, expected: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text)
    for words in (["rate", path], ["evaluate", path, "--config", config]):
        result = run(*words)
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1), result.stderr
        assert expected in result.stderr


def test_gzip_is_known_by_its_bytes(tmp_path: Path) -> None:
    """Whatever the file is called; what is called so and is none is an error."""
    plain, packed = lines(tmp_path / "a.jsonl", ROUNDS), tmp_path / "b.jsonl"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert done("rate", packed) == done("rate", plain) != ""
    result = run("rate", lines(tmp_path / "c.jsonl.gz", ROUNDS))
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)


def test_a_file_in_reverse_order_is_reported(tmp_path: Path, config: Path) -> None:
    """In one line, with the place; now and then a late round is nothing to speak of."""
    backwards = lines(tmp_path / "a.jsonl", ROUNDS[::-1])
    for command in ("rate", "evaluate"):
        result = run(command, backwards, "--config", config)
        assert result.exit_code == 0
        (line,) = result.stderr.splitlines()
        assert "3 of 4 rounds were completed before the round before them" in line
        assert "the first of them is 'r2'" in line
    assert run("rate", lines(tmp_path / "b.jsonl", ROUNDS), "--config", config).stderr == ""


def test_order_is_each_ladders_own() -> None:
    """Ladders may stand one after the other in a file."""
    order = input_file.Order()
    for ladder in "ab":
        for i in range(9):
            standings = read(DEFAULT_RATING, ladder=ladder, round_id=f"{i}", completed_at=day(i))
            order.add(standings.batch)
    assert order._late == 0


def test_out_is_looked_at_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong usage is reported before anything is rated."""

    def never(*_: object) -> None:
        raise AssertionError("rated")

    monkeypatch.setattr(rate, "Replay", never)
    file = lines(tmp_path / "a.jsonl", ROUNDS)
    nowhere = tmp_path / "no" / "where"
    for option in ("--out", "--changes"):
        result = run("rate", file, option, nowhere)
        said = f"stream-rater: {nowhere}: no folder {nowhere.parent}\n"
        assert (result.exit_code, result.stderr) == (2, said)
    tune = run("tune", file, "--system", "bar", "--out", nowhere)
    assert (tune.exit_code, len(tune.stderr.splitlines())) == (2, 1)


def season() -> list[bytes]:
    """Rounds with ties, teams, somebody who did not finish, of two ladders, one all tied."""
    team = {"team": ["a", "e%:"], "rank": 2}
    return [
        as_json(*ranked([1, 2, 2, 4], ["a", "b", "c", "d"]), round_id="r1"),
        as_json(team, *ranked([1, 0], ["d", "b"]), round_id="r2"),
        as_json(*ranked([1, 1], ["a", "b"]), round_id="r3", ladder="other"),
        as_json(*ranked([0, 0], ["a", "c"]), round_id="r4"),
        *(as_json(*ranked([2, 1], ["a", "b"]), round_id=f"q{i}") for i in range(5)),
    ]


def of_the_stream(rounds: Sequence[bytes]) -> dict[str, Any]:
    """Events by their ids, as the service publishes them."""
    engine = EmbeddedEngine(BETTER_LADDER)
    for each in rounds:
        engine.log.submit(0, each, received_s=2e9)
    engine.settle()
    events = [each.value for some in engine.log.changed for each in some]
    return {each.event_id: each for each in map(rating_changed_from_json, events)}


def test_changes_are_those_of_the_stream(tmp_path: Path) -> None:
    """Every field of every event, bit for bit; in order of the file."""
    file, out = lines(tmp_path / "a.jsonl", season()), tmp_path / "changes.jsonl"
    text = done("rate", file, "--changes", out)
    changes = [rating_changed_from_json(line) for line in out.read_bytes().splitlines()]
    assert {each.event_id: each for each in changes} == of_the_stream(season())
    assert [each.round_id for each in changes[:8]] == ["r1"] * 4 + ["r2"] * 4
    assert text == done("rate", file) != ""


def test_standard_input_is_a_file_as_others(tmp_path: Path) -> None:
    """Compressed or not; its mistakes have a name, too."""
    text = b"\n".join(ROUNDS)
    wanted = done("rate", lines(tmp_path / "a.jsonl", ROUNDS))
    command = [sys.executable, "-m", "stream_rater", "rate", "-"]
    found = subprocess.run(command, input=gzip.compress(text), capture_output=True, check=True)
    assert found.stdout.decode() == wanted != ""
    bad = subprocess.run(command, input=b"no\nround", capture_output=True, check=False)
    assert bad.returncode == 1 and bad.stderr.startswith(b"stream-rater: standard input: no JSON")


@pytest.mark.parametrize("command", ["rate", "help"])
def test_a_reader_that_has_enough_ends_a_command_quietly(tmp_path: Path, command: str) -> None:
    """As `head` does; without a traceback, with the exit code that shells give to SIGPIPE."""
    names = [(f"a{i}", f"b{i}") for i in range(2000)]
    rounds = [as_json(*ranked([1, 2], some), round_id=f"r{some[0]}") for some in names]
    file = lines(tmp_path / "a.jsonl", rounds)
    words = {"rate": ["rate", str(file)], "help": ["rate", "--help"]}[command]
    with subprocess.Popen(
        [sys.executable, "-m", "stream_rater", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        if command == "rate":
            process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_rate_takes_the_ladders_file_of_the_environment(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the service does. An option takes precedence, and a missing file is an error."""
    words, ladders = ["rate", lines(tmp_path / "a.jsonl", ROUNDS[:1])], tmp_path / "l.toml"
    ladders.write_text(
        '[ladders."*".rating]\nsystem = "elo-mmr"\nweight_limit = 0.3\nsigma_limit = 50\n'
    )
    plain, by_option = done(*words), done(*words, "--ladders", ladders)
    assert plain != by_option
    monkeypatch.setenv("STREAM_RATER_LADDERS", "")
    assert done(*words) == plain
    monkeypatch.setenv("STREAM_RATER_LADDERS", str(ladders))
    assert done(*words) == by_option
    assert done(*words, "--config", config) not in (plain, by_option)
    monkeypatch.setenv("STREAM_RATER_LADDERS", "/no/such.toml")
    missing = run(*words)
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert missing.stderr == "stream-rater: /no/such.toml: no such file\n"


def a_screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error, as a terminal; made in the test itself, before which pytest sets its own."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return terminal


def test_a_file_is_read_with_a_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress is in per cent, to the end. A pipe or what is too short for gzip has no size."""
    rounds = [as_json(round_id=f"r{i}") for i in range(5000)]
    text, path = b"\n".join(rounds) + b"\n", tmp_path / "a.jsonl"
    for packed in (False, True):
        screen = a_screen(monkeypatch)
        path.write_bytes(gzip.compress(text) if packed else text)
        assert text_size(path) == len(text)
        assert [(record.value or b"").strip() for record in RoundsFile(path).records()] == rounds
        shown = [int(each) for each in re.findall(r"(\d+)%", screen.getvalue())]
        assert shown and shown[-1] > 90 and "a.jsonl" in screen.getvalue()
    os.mkfifo(tmp_path / "pipe")
    assert text_size(tmp_path / "pipe") is None
    (tmp_path / "short").write_bytes(b"\x1f\x8b")
    assert text_size(tmp_path / "short") == 2


def test_a_replay_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """First the rated records of all, then the compared beliefs of all, with the time left."""
    rounds = [as_json(round_id=f"r{i}", completed_at=day(i)) for i in range(200)]
    screen, log = a_screen(monkeypatch), list(records_of(rounds))
    stored = [(("l", each), b"") for each in ("ann", "bob")]
    compare(LogReader(ListedRecords(log, 50), {0: len(log)}), ANY_LADDER, 10, 0, lambda: [stored])
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    for bar, count in (("rounds", 200), ("beliefs", 2)):
        shown = re.findall(rf"{bar} \S+ +(\d+)/(\d+) [\d:-]+", text)
        assert shown and shown[-1] == (str(count), str(count))


def test_nobody_sees_progress_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    """Where standard error is no terminal, lines are passed on."""
    assert list(track_bytes([b"a", b"b"], "x", 2)) == [b"a", b"b"]
    with advancing("x", 2) as advance:
        advance(2)
    assert capfd.readouterr().err == ""


def test_rate_has_three_forms_and_a_database(tmp_path: Path, config: Path) -> None:
    """All have the same players in the same order. A terminal gets a table, a pipe JSON lines."""
    words = ["rate", str(lines(tmp_path / "a.jsonl", ROUNDS)), "--config", str(config)]
    rows = [json.loads(line) for line in done(*words).splitlines()]
    assert done(*words, "--format", "json") == done(*words)
    head, *text = csv.reader(done(*words, "--format", "csv").splitlines())
    assert head == list(rows[0]) == ["ladder", "player", "mu", "sigma", "rating", "rounds"]
    assert text == [[str(value) for value in row.values()] for row in rows]
    best = done(*words, "--format", "table").splitlines()[2].split()
    assert best[:3] == ["1", rows[0]["player"], f"{rows[0]['mu']:.1f}"]
    for _ in range(2):
        assert done(*words, "--to", f"sqlite:{tmp_path / 'r.db'}") == ""
    found = execute(tmp_path / "r.db", "SELECT * FROM ratings")
    assert found == [tuple(row.values()) for row in rows]


@cases("words, why", [
    (["--to", "postgres:x"], "--to: give sqlite:FILE"), (["--to", "sqlite:"], "--to: give sqlite"),
    (["--to", "sqlite:r.db", "--format", "csv"], "--to: give sqlite:FILE, without --out, --format"),
    (["--records", "--format", "csv"], "--records: only with --format json"),
    (["--to", "sqlite:ROUNDS"], "it is ROUNDS, which is read"),
])  # fmt: skip
def test_wrong_forms_are_one_line(tmp_path: Path, words: list[str], why: str) -> None:
    file = str(lines(tmp_path / "a.jsonl", ROUNDS))
    result = run("rate", file, *(word.replace("ROUNDS", file) for word in words))
    assert (result.exit_code, result.stdout) == (2, "")
    assert why.replace("ROUNDS", file) in result.stderr
