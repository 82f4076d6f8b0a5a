"""What commands say of files: empty, not JSON lines, compressed, out of order, standard input."""

import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream_rater.adapters.memory import Log
from stream_rater.cli import app
from stream_rater.config.ladders import DEFAULT_RATING
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.operations import input_file, rate
from stream_rater.runtime.embedded import Engine
from tests.rounds import as_json, day, event, ranked, read

ROUNDS = [as_json(round_id=f"r{i}", completed_at=f"2026-01-{1 + i:02}T00:00:00Z") for i in range(4)]


def run(*words: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app.main, words, input=stdin)


def lines(path: Path, rounds: Sequence[bytes]) -> str:
    path.write_bytes(b"".join(each + b"\n" for each in rounds))
    return str(path)


def test_one_invalid_round_is_one(tmp_path: Path) -> None:
    """And what is said of others is true."""
    bad = as_json(round_id="")
    for rounds, expected in (
        ([bad], "1 round was invalid, and there was no other"),
        ([bad, bad], "2 rounds were invalid, and there was no other"),
        ([bad, ROUNDS[0]], "1 round was invalid; the other one was taken"),
        ([bad, *ROUNDS], "1 round was invalid; the 4 others were taken"),
    ):
        result = run("rate", lines(tmp_path / "a.jsonl", rounds))
        assert result.exit_code == 1
        assert result.stderr.splitlines()[-1].endswith(f"a.jsonl: {expected}")


@pytest.mark.parametrize("text", [b"", b"\n \n"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_file_without_rounds_is_reported(tmp_path: Path, name: str, text: bytes) -> None:
    """Nothing failed, but nobody wants to look for the reason of an empty result."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    result = run("rate", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{path}: no rounds in it\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "round,player,rank\n1,ann,2\n",
            "no JSON lines (is it CSV? Then end its name in .csv): each line",
        ),
        ("\n17\n18\n", "no JSON lines: each line must be a round as a JSON object, but line 2 is"),
        ("\x1b[2J\nx", r"line 1 is: \x1b[2J"),
        ("x" * 99, f"line 1 is: {'x' * 40}…"),
        ('[{"round_id": "a"},\n{"round_id": "b"}]', "(is it one JSON array?)"),
    ],
)
def test_what_is_no_json_lines_is_reported_in_one_line(
    tmp_path: Path, text: str, expected: str
) -> None:
    """Not line by line."""
    path = tmp_path / "a.txt"
    path.write_text(text)
    config = tmp_path / "c.json"
    config.write_text('{"system":"elo-mmr","weight_limit":0.2,"sigma_limit":80}')
    for words in (["rate", str(path)], ["evaluate", str(path), "--config", str(config)]):
        result = run(*words)
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1), result.stderr
        assert expected in result.stderr


def test_one_bad_line_among_others_is_but_that(tmp_path: Path) -> None:
    """Even if it is the first."""
    result = run("rate", lines(tmp_path / "a.jsonl", [b"no round", *ROUNDS]))
    assert result.stderr.splitlines()[-1].endswith("the 4 others were taken")


def test_gzip_is_known_by_its_bytes(tmp_path: Path) -> None:
    """Whatever the file is called; what is called so and is none is an error."""
    plain = run("rate", lines(tmp_path / "a.jsonl", ROUNDS))
    packed = tmp_path / "b.jsonl"
    packed.write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    assert run("rate", str(packed)).stdout == plain.stdout != ""
    lines(tmp_path / "c.jsonl.gz", ROUNDS)
    result = run("rate", str(tmp_path / "c.jsonl.gz"))
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)


def test_a_file_in_reverse_order_is_reported(tmp_path: Path) -> None:
    """In one line, with the place; now and then a late round is nothing to speak of."""
    backwards = lines(tmp_path / "a.jsonl", ROUNDS[::-1])
    config = tmp_path / "c.json"
    config.write_text('{"system":"elo-mmr","weight_limit":0.2,"sigma_limit":80}')
    for words in (["rate", backwards], ["evaluate", backwards, "--config", str(config)]):
        result = run(*words)
        assert result.exit_code == 0
        (line,) = result.stderr.splitlines()
        assert "3 of 4 rounds were completed before the round before them" in line
        assert "the first of them is 'r2'" in line
    assert run("rate", lines(tmp_path / "b.jsonl", ROUNDS)).stderr == ""


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
        result = run("rate", file, option, str(nowhere))
        assert (result.exit_code, result.stderr) == (
            2, f"stream-rater: {nowhere}: no folder {nowhere.parent}\n",
        )  # fmt: skip
    tune = run("tune", file, "--system", "bar", "--out", str(nowhere))
    assert (tune.exit_code, len(tune.stderr.splitlines())) == (2, 1)


def season() -> list[bytes]:
    """Rounds with ties, teams, somebody who did not finish, of two ladders, one all tied."""
    alone = event(*ranked([1, 2, 2, 4], ["a", "b", "c", "d"]), round_id="r1")
    team = [{"team": ["a", "e%:"], "rank": 2}, {"player": "d", "rank": 1},
            {"player": "b", "dnf": True}]  # fmt: skip
    return [
        json.dumps(each).encode()
        for each in (
            alone,
            event(*team, round_id="r2"),
            event(*ranked([1, 1], ["a", "b"]), round_id="r3", ladder="other"),
            event({"player": "a", "dnf": True}, {"player": "c", "dnf": True}, round_id="r4"),
            *(event(*ranked([2, 1], ["a", "b"]), round_id=f"q{i}") for i in range(5)),
        )
    ]


def of_the_stream(rounds: Sequence[bytes]) -> dict[str, Any]:
    """Events by their ids, as the service publishes them."""
    engine = Engine()
    log: Log = engine.log
    for each in rounds:
        log.submit(0, each, received_s=2e9)
    engine.settle()
    expected = [rating_changed_from_json(each.value) for some in log.changed for each in some]
    return {each.event_id: each for each in expected}


def test_changes_are_those_of_the_stream(tmp_path: Path) -> None:
    """Every field of every event, bit for bit; in order of the file."""
    file, out = lines(tmp_path / "a.jsonl", season()), tmp_path / "changes.jsonl"
    result = run("rate", file, "--changes", str(out))
    assert result.exit_code == 0
    changes = [rating_changed_from_json(line) for line in out.read_bytes().splitlines()]
    assert {each.event_id: each for each in changes} == of_the_stream(season())
    assert [each.round_id for each in changes[:8]] == ["r1"] * 4 + ["r2"] * 4
    assert result.stdout == run("rate", file).stdout != ""


def test_standard_input_is_a_file_as_others(tmp_path: Path) -> None:
    """Compressed or not; its mistakes have a name, too."""
    text = b"\n".join(ROUNDS)
    wanted = run("rate", lines(tmp_path / "a.jsonl", ROUNDS)).stdout
    command = [sys.executable, "-m", "stream_rater", "rate", "-"]
    for given in (text, gzip.compress(text)):
        done = subprocess.run(command, input=given, capture_output=True, check=True)
        assert done.stdout.decode() == wanted != ""
    done = subprocess.run(command, input=b"no\nround", capture_output=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith(b"stream-rater: standard input: no JSON")


@pytest.mark.parametrize("command", ["rate", "help", "evaluate", "demo"])
def test_a_reader_that_has_enough_ends_a_command_quietly(tmp_path: Path, command: str) -> None:
    """As `head` does; without a traceback, with the exit code that shells give to SIGPIPE."""
    rounds = [
        json.dumps(event(*ranked([1, 2], [f"a{i}", f"b{i}"]), round_id=f"r{i}")).encode()
        for i in range(2000)
    ]
    file, config = lines(tmp_path / "a.jsonl", rounds), tmp_path / "c.json"
    config.write_text('{"system":"elo-mmr","weight_limit":0.2,"sigma_limit":80}')
    words = {
        "rate": ["rate", file], "help": ["rate", "--help"], "demo": ["demo", "--embedded"],
        "evaluate": ["evaluate", file, "--config", str(config)],
    }[command]  # fmt: skip
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rate` reads it as the service does. An option takes precedence, and a missing file is an
    error."""
    file, ladders = tmp_path / "a.jsonl", tmp_path / "l.toml"
    words = ["rate", lines(file, ROUNDS[:1])]
    ladders.write_text(
        '[ladders."*".rating]\nsystem = "elo-mmr"\nweight_limit = 0.3\nsigma_limit = 50\n'
    )
    config = tmp_path / "c.json"
    config.write_text('{"system":"elo-mmr","weight_limit":0.2,"sigma_limit":80}')
    plain, by_option = run(*words), run(*words, "--ladders", str(ladders))
    assert plain.stdout != by_option.stdout
    monkeypatch.setenv("STREAM_RATER_LADDERS", "")
    assert run(*words).stdout == plain.stdout
    monkeypatch.setenv("STREAM_RATER_LADDERS", str(ladders))
    assert run(*words).stdout == by_option.stdout
    assert run(*words, "--config", str(config)).stdout == plain.stdout
    monkeypatch.setenv("STREAM_RATER_LADDERS", "/no/such.toml")
    missing = run(*words)
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert missing.stderr == "stream-rater: STREAM_RATER_LADDERS: /no/such.toml: no such file\n"
