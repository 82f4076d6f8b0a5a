"""`tune --from-topic` as typed, on a log in memory."""

import json
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream_rater.cli import app
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import Failed
from stream_rater.config.files import read_ladders, read_rating
from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Record
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.operations import live_log
from stream_rater.operations import tune as operation
from stream_rater.operations.tune import DAY_S, GrowthForecast
from stream_rater.rating.parameters import EloMMR
from stream_rater.replay.edited_log import records_of
from tests.rounds import day, event, ranked

Line = dict[str, Any]
POOR = """
[ladders.l]
rating = { system = "codeforces", beta = 200, weight = 0.002, floor = 100 }
limits = { max_entries = 6 }
"""
"""Ratings hardly move, and seven are too many for a round."""


def rounds(count: int = 120, ladder: str = "l", seed: int = 4) -> list[Line]:
    """A made-up season as events."""
    return [
        event(
            *ranked(list(range(1, 7)), [f"p{row}" for row in each.rows.tolist()]),
            round_id=f"r{number}", ladder=ladder, completed_at=day(number % 300),
        )
        for number, each in enumerate(season(Kind(20, count, 6), seed))
    ]  # fmt: skip


Tune = Callable[..., Result]


@pytest.fixture
def tune(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tune:
    """Runs the command on a log of these lines, of which one in ten minutes came, by this ladders
    file (none, if it is empty)."""

    def run(lines: Sequence[Line], *words: str, file: str = POOR, ladder: str = "l") -> Result:
        home = partition_of(ladder, 3)
        records = [
            Record(
                home, 3 * each.offset, each.value, each.headers, received_s=2e9 + 6e2 * each.offset
            )
            for each in records_of([json.dumps(each).encode() for each in lines])
        ]  # with holes between them, as transactions leave
        monkeypatch.setattr(live_log, "live_log", lambda *_: (lambda: iter(records), home, 3))
        monkeypatch.setattr(live_log, "Admin", lambda _: None)
        found = SimpleNamespace(ladders={"ranked": ()})
        monkeypatch.setattr(live_log, "read_ladder_events", lambda *_: found)
        path = tmp_path / "ladders.toml"
        path.write_text(file)
        monkeypatch.setenv("STREAM_RATER_LADDERS", str(path) if file else "")
        given = ["tune", "--from-topic", "--ladder", ladder, "--trials", "40", "--workers", "1"]
        return CliRunner().invoke(app.main, [*given, *words])

    return run


def pasted(result: Result, folder: Path, before: str = POOR) -> Ladders:
    """The ladders file with what was proposed."""
    assert result.exit_code == 0, result.stderr
    path = folder / "pasted.toml"
    path.write_text(before + result.stdout)
    return read_ladders(path)


def table(result: Result) -> list[list[str]]:
    """The rows of the printed table, cell by cell."""
    lines = (line for line in result.stderr.splitlines() if "│" in line)
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_it_proposes_a_change_of_the_ladders_file(tune: Tune, tmp_path: Path) -> None:
    """With the present parameters that are no dimensions, as TOML and as JSON; and it says what
    that gains."""
    out = tmp_path / "tuned.json"
    result = tune(rounds(), "--out", str(out))
    ladders = pasted(result, tmp_path)
    (change,) = ladders.ladders["l"].changes
    assert change.rating == read_rating(out)
    assert change.rating.floor == 100.0
    assert change.limits is None
    assert tomllib.loads(result.stdout).keys() == {"ladders"}
    first, title, *_, last = result.stderr.splitlines()
    assert first == "ladder 'l': 120 rounds read, 0 rejected"
    assert title.strip() == "ladder 'l', codeforces: 60 rounds to tune on, 60 to compare on"
    assert last.startswith("adopt it: better in log loss, ")
    assert result.stdout.startswith(f"# {last}\n")


def test_more_gain_is_better(tune: Tune) -> None:
    """Log loss, of which less is better, too: now less tuned; pairs in right order, tuned less
    now."""
    (name, now, tuned, gain), (order, now_right, tuned_right, more) = table(tune(rounds()))
    assert (name, order) == ("log loss", "pairs in right order")
    mean, low, high = (float(each) for each in gain.translate({91: "", 93: "", 44: ""}).split())
    assert 0.0 < low < mean < high
    assert mean == pytest.approx(float(now) - float(tuned), abs=2e-4)
    right = [float(each.removesuffix(" %")) for each in (now_right, tuned_right)]
    assert float(more.split()[0]) == pytest.approx(right[1] - right[0], abs=2e-3)


def test_the_offset_is_a_day_ahead(tune: Tune, tmp_path: Path) -> None:
    """As many offsets as the last day brought: one in ten minutes is 144, each of three."""
    (change,) = pasted(tune(rounds(200)), tmp_path).ladders["l"].changes
    assert change.from_offset == 3 * 199 + 1 + 3 * 144 + 1


def test_a_pace_is_that_of_the_last_reading() -> None:
    """A log is read again if it has corrections. Clocks may go back."""
    pace = GrowthForecast()
    for days in ((0.0, 2.0, 9.0), (0.0, 2.0, 0.5, 2.2)):
        records = [Record(0, 2 * i, b"", received_s=DAY_S * each) for i, each in enumerate(days)]
        assert list(pace.watch(records)) == records
    assert pace.in_a_day() == 7 + 7 - 2


def test_only_this_ladders_rounds_count(tune: Tune) -> None:
    """Others may lie in the same partition."""
    ours, others = rounds(), rounds(90, "m", 5)
    file = POOR + POOR.replace("ladders.l", "ladders.m")
    mixed = [line for pair in zip(ours, others, strict=False) for line in pair] + ours[90:]
    alone, beside = tune(ours, file=file), tune(mixed, file=file)
    assert "120 rounds read" in beside.stderr
    assert table(alone) == table(beside)


def test_rounds_are_as_corrections_make_them(tune: Tune, tmp_path: Path) -> None:
    """What is proposed is what the log without the mistakes would give."""
    lines = rounds()
    voided = [{"event_type": "round-voided", "ladder": "l", "round_id": f"r{i}"} for i in (3, 70)]
    hand = [each for each in lines if each["round_id"] not in ("r3", "r70")]
    corrected, without = tune([*lines, *voided]), tune(hand)
    assert "118 rounds read, 0 rejected" in corrected.stderr
    assert table(corrected) == table(without)
    (one,), (other,) = (
        pasted(each, tmp_path).ladders["l"].changes for each in (corrected, without)
    )
    assert one.rating == other.rating


def test_what_the_workers_reject_is_counted(tune: Tune) -> None:
    """By its code, once, though the log is read three times here; by the ladders file. Whose
    ladder cannot be read counts, another ladder's does not."""
    large = event(*ranked(list(range(1, 8))), round_id="large", ladder="l")
    bad = [event(round_id=name, ladder=ladder, completed_at="no")
           for name, ladder in (("x", "l"), ("y", "m"))]  # fmt: skip
    unknown = {"event_type": "round-voided", "ladder": "l", "round_id": "no"}
    file = POOR + POOR.replace("ladders.l", "ladders.m")
    lines = [*rounds(), large, *bad, rounds()[0], {"ladder": 7}, unknown]
    result = tune(lines, file=file)
    expected = "5 rejected (1 bad-id, 1 bad-time, 1 duplicate-round, 1 too-many-entries, 1 unknown-"
    assert f"ladder 'l': 120 rounds read, {expected}round)" in result.stderr
    assert (result.exit_code, table(result)) == (0, table(tune(rounds())))


def test_another_system_is_another_ladder(tune: Tune, tmp_path: Path) -> None:
    """It is compared all the same, and said so."""
    result = tune(rounds(), "--system", "elo-mmr")
    found = pasted(result, tmp_path).ladders
    assert found["l"].changes == () and isinstance(found["l-elo-mmr"].rating, EloMMR)
    assert "another system is another ladder: 'l' cannot change to elo-mmr" in result.stderr
    same = tune(rounds(), "--system", "codeforces")
    assert "another system" not in same.stderr and same.stdout == tune(rounds()).stdout


def test_without_a_ladders_file_all_of_one_is_proposed(tune: Tune, tmp_path: Path) -> None:
    """The defaults are what it is compared with."""
    result = tune(rounds(), file="")
    ladders = pasted(result, tmp_path, "").ladders
    assert ladders.keys() == {"*", "l"} and ladders["l"].from_offset > 3 * 120


@pytest.mark.parametrize(
    ("ladder", "nearest"), [("rankd", "; the nearest name is 'ranked'"), ("ll", "?"), ("zzz", "")]
)
def test_an_unknown_ladder_is_reported(tune: Tune, ladder: str, nearest: str) -> None:
    """In one line, with the nearest of those that were rated or are in the ladders file."""
    file = POOR.replace("ladders.l", 'ladders."lll"') if nearest == "?" else POOR
    near = nearest.replace("?", "; the nearest name is 'lll'")
    result = tune(rounds(), ladder=ladder, file=file)
    expected = f"ladder '{ladder}' has no players: no round of it was rated{near}"
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"stream-rater: {expected}\n"


def test_a_ladder_whose_rounds_were_all_rejected_is_reported(tune: Tune) -> None:
    """With why, and without its own name as the nearest one."""
    result = tune([each | {"completed_at": "no"} for each in rounds(30)])
    expected = "ladder 'l' has no players: no round of it was rated; 30 rejected (30 bad-time)"
    assert (result.exit_code, result.stderr) == (1, f"stream-rater: {expected}\n")


def test_too_few_rounds_are_reported(tune: Tune) -> None:
    """With how many there are, and the cure."""
    result = tune(rounds(60), "--train", "0.3")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == (
        "stream-rater: ladder 'l': 18 rounds to tune on and 42 to compare on say who was better, "
        "and 20 of each are needed: wait for more rounds, or choose another --train than 0.3"
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--from-topic"], "--from-topic: name the ladder to tune by --ladder"),
        (["FILE", "--from-topic", "--ladder", "l"], "give a file of rounds or --from-topic, not "),
        (
            ["--from-topic", "--ladder", "l", "--metric", "brier"],
            "--metric brier: with --from-topi",
        ),
        (["FILE", "--system", "bar", "--ladder", "l"], "--ladder is for --from-topic: add it, or "),
        (["FILE", "--system", "bar", "--settings", "FILE"], "--settings is for --from-topic: "),
        (["FILE"], "give --system"),
        ([], "give a file of rounds, or --from-topic and --ladder"),
        (["--from-topic", "--ladder", "l", "--out", "/no/such/file"], "/no/such/file: no folder"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path: Path, words: list[str], expected: str) -> None:
    """With exit code 2, before anything is read."""
    file = tmp_path / "rounds.jsonl"
    file.write_text("")
    given = [str(file) if word == "FILE" else word for word in words]
    result = CliRunner().invoke(app.main, ["tune", *given])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"stream-rater: {expected}") and result.stderr.count("\n") == 1


def test_a_log_that_is_cut_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cure that the command has."""
    admin = SimpleNamespace(
        topics=SimpleNamespace(rounds="round-completed"), partitions_of=lambda *_: [1],
        starts=lambda *_: [5], stable_ends=lambda *_: [9],
    )  # fmt: skip
    monkeypatch.setattr(live_log, "Admin", lambda _: admin)
    monkeypatch.setattr(live_log, "read_ladder_events", lambda *_: None)
    monkeypatch.setattr(live_log, "disagreement", lambda *_, **__: "")
    result = CliRunner().invoke(app.main, ["tune", "--from-topic", "--ladder", "l"])
    assert result.exit_code == 1
    assert result.stderr.endswith("without them: tune by a file that has them\n")


def test_a_ladder_with_fixed_players_and_a_table_of_rates_is_tuned(tune: Tune) -> None:
    """Who is fixed stays so, and the table keeps its form."""
    file = """
[ladders.l]
rating = { system = "elo", scale = 174, fixed = ["p1"], learning_rate = [[1000, 4], [2000, 2]] }
"""
    result = tune(rounds(), "--trials", "12", "--workers", "1", file=file)
    assert result.exit_code == 0, result.stderr
    assert 'fixed = ["p1"]' in result.stdout
    assert "log loss and Brier score are of" in result.stderr


@pytest.mark.parametrize(("from_offset", "weight"), [(358, 0.5), (359, 0.002)])
def test_the_present_parameters_are_those_of_the_next_round(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, from_offset: int, weight: float
) -> None:
    """Of a change that lies ahead of the partition's end nothing is known yet."""
    seen: list[Any] = []

    def proposed(_: str, present: Any, *__: Any) -> Any:
        seen.append(present.weight)
        raise Failed("seen")

    monkeypatch.setattr(operation, "_proposed", proposed)
    change = 'rating = { system = "codeforces", beta = 200, weight = 0.5, floor = 100 }'
    file = f"{POOR}[[ladders.l.changes]]\nfrom_offset = {from_offset}\n{change}\n"
    tune(rounds(), file=file)
    assert seen == [weight]
