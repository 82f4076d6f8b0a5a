"""`tune --from-topic` on a log in memory, the entry that it proposes, and `Ladder.tune`."""

import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

import stream_rater
from stream_rater import MissingExtra, TrialsFailed
from stream_rater.cli.tables import ladders_file_entry
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import Failed
from stream_rater.config.files import read_ladders, read_rating
from stream_rater.config.ladders import DEFAULT_RATING, TEMPLATE, Change, Ladder, Ladders, Limits
from stream_rater.contract.record import Record
from stream_rater.evaluation import proposal
from stream_rater.evaluation.proposal import propose
from stream_rater.evaluation.tuning import Validated
from stream_rater.operations import tune as operation
from stream_rater.operations.evaluate import SeasonFile
from stream_rater.operations.tune import DAY_S, GrowthForecast
from stream_rater.pipeline.ladder_history import encode_histories
from stream_rater.rating.parameters import Elo, EloMMR, MinusSigma, RatingConfig
from stream_rater.replay.edited_log import records_of
from tests.benchmarks.lab.game import Kind, season
from tests.benchmarks.offline import Made, made_up
from tests.builders import commands
from tests.builders.cases import cases
from tests.builders.memory_places import an_empty_place, use
from tests.rounds import day, event, ranked
from tests.unit.test_executors import Dropping

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
    """Runs the command on a log of these lines, ten minutes apart, by a ladders file or none."""

    def run(lines: Sequence[Line], *words: str, file: str = POOR, ladder: str = "l") -> Result:
        home = partition_of(ladder, 3)
        records = [
            Record(
                home, 3 * each.offset, each.value, each.headers, received_s=2e9 + 6e2 * each.offset
            )
            for each in records_of([json.dumps(each).encode() for each in lines])
        ]  # with holes between them, as transactions leave
        place = an_empty_place(partitions=3)
        monkeypatch.setattr(place, "rounds", lambda *_: iter(records))
        place.note(encode_histories("noted", {"ranked": ("0:x",)}))
        use(monkeypatch, place)
        path = tmp_path / "ladders.toml"
        path.write_text(file)
        monkeypatch.setenv("STREAM_RATER_LADDERS", str(path) if file else "")
        given = ["tune", "--from-topic", "--ladder", ladder, "--trials", "40", "--workers", "1"]
        return commands.run(*given, *words)

    return run


def pasted(result: Result, folder: Path, before: str = POOR) -> Ladders:
    assert result.exit_code == 0, result.stderr
    path = folder / "pasted.toml"
    path.write_text(before + result.stdout)
    return read_ladders(path)


def table(result: Result) -> list[list[str]]:
    """The rows of the printed table, cell by cell."""
    lines = (line for line in result.stderr.splitlines() if "│" in line)
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_it_proposes_a_change_of_the_ladders_file(tune: Tune, tmp_path: Path) -> None:
    """It includes parameters that are not tuned, in TOML and JSON, and shows the gain."""
    out = tmp_path / "tuned.json"
    result = tune(rounds(), "--out", str(out))
    (change,) = pasted(result, tmp_path).ladders["l"].changes
    assert change.rating == read_rating(out)
    assert change.rating.floor == 100.0
    assert change.limits is None
    assert tomllib.loads(result.stdout).keys() == {"ladders"}
    first, title, *_, last = result.stderr.splitlines()
    assert first == "ladder 'l': 120 rounds read, 0 rejected"
    assert title.strip() == "ladder 'l', codeforces: 60 rounds to tune on, 60 to compare on"
    assert last.startswith("better on rounds it had not seen: adopt it (better in log loss, -")
    assert result.stdout.startswith(f"# {last}\n")
    rows = {each[0]: each[1:] for each in table(result)}
    *_, now, tuned, gain = rows["↓ log loss"]
    mean, low, high = (float(each) for each in gain.translate({91: "", 93: "", 44: ""}).split())
    assert low < mean < high < 0.0
    assert mean == pytest.approx(float(tuned) - float(now), abs=2e-4)
    (change,) = tomllib.loads(result.stdout)["ladders"]["l"]["changes"]
    assert rows["beta"][:2] == [str(change["rating"]["beta"]), "points"]


def test_what_is_worse_is_not_proposed(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3, no line for the ladders file, and in Python the ladder's own parameters."""
    poor = Validated([0.0, 0.0], True, 1.0, 0.1, [])  # ratings hardly move
    monkeypatch.setattr(proposal, "validated", lambda *_: poor)
    out = tmp_path / "tuned.json"
    result = tune(rounds(300), "--out", str(out), file=POOR.replace("0.002", "0.3"))
    assert result.stderr.splitlines()[-1].startswith("worse on rounds it had not seen: keep what")
    assert (result.exit_code, result.stdout, out.exists()) == (3, "", False)
    ladder = stream_rater.Ladder("codeforces", beta=200, weight=0.3)
    ladder.rate_file(commands.as_file(tmp_path / "l.jsonl", rounds(300)))
    found = ladder.tune()
    assert found.verdict == "worse on rounds it had not seen: keep what you have"
    assert stream_rater.Ladder(found.system, **found.parameters).parameters == ladder.parameters


def test_the_offset_is_a_day_ahead(tune: Tune, tmp_path: Path) -> None:
    """By the last day's 144 offsets, each of three. The last reading of a log counts."""
    (change,) = pasted(tune(rounds(200)), tmp_path).ladders["l"].changes
    assert change.from_offset == 3 * 199 + 1 + 3 * 144 + 1
    pace = GrowthForecast()
    for days in ((0.0, 2.0, 9.0), (0.0, 2.0, 0.5, 2.2)):
        records = [Record(0, 2 * i, b"", received_s=DAY_S * each) for i, each in enumerate(days)]
        assert list(pace.watch(records)) == records
    assert pace.in_a_day() == 7 + 7 - 2


def test_only_this_ladders_rounds_count(tune: Tune, tmp_path: Path) -> None:
    """Others may lie in the same partition. Rounds count as corrections make them."""
    ours, others = rounds(), rounds(90, "m", 5)
    file = POOR + POOR.replace("ladders.l", "ladders.m")
    mixed = [line for pair in zip(ours, others, strict=False) for line in pair] + ours[90:]
    alone, beside = tune(ours, file=file), tune(mixed, file=file)
    assert "120 rounds read" in beside.stderr
    assert table(alone) == table(beside)
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
    """By code, once, though the log is read three times. Other ladders' records do not count."""
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
    """It is compared all the same, and said so. Without a file, the defaults are compared."""
    result = tune(rounds(), "--system", "elo-mmr")
    found = pasted(result, tmp_path).ladders
    assert found["l"].changes == () and isinstance(found["l-elo-mmr"].rating, EloMMR)
    assert found["l-elo-mmr"].from_offset == 0
    assert "another system is another ladder: 'l' cannot change to elo-mmr" in result.stderr
    same = tune(rounds(), "--system", "codeforces")
    assert "another system" not in same.stderr and same.stdout == tune(rounds()).stdout
    result = tune(rounds(), file="")
    ladders = pasted(result, tmp_path, "").ladders
    assert ladders.keys() == {"*", "l"} and ladders["l"].from_offset > 3 * 120
    assert ladders["*"] == Ladder(rating=DEFAULT_RATING)


@cases("ladder, nearest", [("rankd", "; the nearest name is 'ranked'"), ("ll", "?"), ("zzz", "")])
def test_an_unknown_ladder_is_reported(tune: Tune, ladder: str, nearest: str) -> None:
    """In one line, with the nearest of those that were rated or are in the ladders file."""
    file = POOR.replace("ladders.l", 'ladders."lll"') if nearest == "?" else POOR
    near = nearest.replace("?", "; the nearest name is 'lll'")
    result = tune(rounds(), ladder=ladder, file=file)
    expected = f"ladder '{ladder}' has no players: no round of it was rated{near}"
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"stream-rater: {expected}\n"


def test_a_ladder_whose_rounds_were_all_rejected_is_reported(tune: Tune) -> None:
    """With why, and without its own name as the nearest; too few, with how many and the cure."""
    result = tune([each | {"completed_at": "no"} for each in rounds(30)])
    expected = "ladder 'l' has no players: no round of it was rated; 30 rejected (30 bad-time)"
    assert (result.exit_code, result.stderr) == (1, f"stream-rater: {expected}\n")
    result = tune(rounds(60), "--train", "0.3")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == (
        "stream-rater: ladder 'l': 18 rounds to tune on and 42 to compare on say who was better, "
        "and 20 of each are needed: wait for more rounds, or choose another --train than 0.3"
    )


@cases("words, expected", [
    (["--from-topic"], "--from-topic: name the ladder to tune by --ladder"),
    (["FILE", "--from-topic", "--ladder", "l"], "give a file of rounds or --from-topic, not "),
    (["FILE", "--system", "bar", "--ladder", "l"], "--ladder is for --from-topic: add it, or "),
    (["FILE", "--system", "bar", "--settings", "FILE"], "--settings is for --from-topic: "),
    (["FILE"], "give --system"),
    ([], "give a file of rounds, or --from-topic and --ladder"),
    (["--from-topic", "--ladder", "l", "--out", "/no/such/file"], "/no/such/file: no folder"),
])  # fmt: skip
def test_wrong_usage_is_one_line(tmp_path: Path, words: list[str], expected: str) -> None:
    """With exit code 2, before anything is read."""
    file = tmp_path / "rounds.jsonl"
    file.write_text("")
    given = [str(file) if word == "FILE" else word for word in words]
    result = commands.run("tune", *given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"stream-rater: {expected}") and result.stderr.count("\n") == 1


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


@cases("from_offset, weight", [(358, 0.5), (359, 0.002)])
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


# --- what is proposed for the ladders file is what the file then says -----------------------------

OURS = EloMMR(weight_limit=0.1, sigma_limit=60.0)
NEWER = EloMMR(weight_limit=0.25, sigma_limit=90.0, rho="inf", display=MinusSigma(2.0),
               newcomer_weights=(0.6, 0.8), skip_all_tied=True, floor=1e-6)  # fmt: skip
RATING = 'rating = { system = "elo-mmr", weight_limit = 0.1, sigma_limit = 60 }\n'  # OURS.


def entered(
    folder: Path, before: str, name: str = "l", rating: RatingConfig = NEWER, offset: int = 700
) -> Ladders:
    """The ladders file with the entry that is proposed for a ladder."""
    known = msgspec.convert(tomllib.loads(before), Ladders)
    added = ladders_file_entry(known, name, rating, offset, named=True)
    path = folder / "ladders.toml"
    path.write_text(f"{before}\n# why\n{added}")
    return read_ladders(path)


def file_of(name: str, more: str = "") -> str:
    return f"[ladders.{name}]\n{RATING}{more}"


@cases("key", ["ranked-eu", '"ranked eu"', '"a.b"', '"ümlaut \\" \\\\ \\u007f"'])
def test_a_ladder_of_the_file_changes(key: str, tmp_path: Path) -> None:
    """From the offset on, whatever its name; not before, and no other table changes."""
    (name,) = tomllib.loads(file_of(key))["ladders"]
    due = Ladder(rating=OURS, changes=(Change(from_offset=700, rating=NEWER),))
    assert entered(tmp_path, file_of(key), name).ladders == {name: due}


def test_a_change_comes_after_those_there_are(tmp_path: Path) -> None:
    """Even if they are further ahead; also of rates by rating, and players by name."""
    before = file_of(
        "l", "[[ladders.l.changes]]\nfrom_offset = 900\nlimits = { max_entries = 9 }\n"
    )
    for offset, due in ((700, 901), (900, 901), (1000, 1000)):
        found = entered(tmp_path, before, offset=offset)
        assert [each.from_offset for each in found.ladders["l"].changes] == [900, due]
        terms = found.find("l", due)
        assert terms is not None and (terms.rating, terms.limits.max_entries) == (NEWER, 9)
    rating: Any = Elo(learning_rate=((1000.0, 40.0), (2000.0, 20.0)), fixed=('b"t', "ü\x7f"))
    before = '[ladders.l]\nrating = { system = "elo", learning_rate = 30 }\n'
    found = entered(tmp_path, before, rating=rating)
    assert found.ladders["l"].changes == (Change(from_offset=700, rating=rating),)


def test_a_ladder_of_the_template_gets_a_table(tmp_path: Path) -> None:
    """From the offset on, with the template's limits; other ladders stay with the template."""
    limits = Limits(max_entries=9, unknown_fields="reject")
    before = file_of('"*"') + 'limits = { max_entries = 9, unknown_fields = "reject" }\n'
    found = entered(tmp_path, before)
    assert found.ladders["l"] == Ladder(rating=NEWER, limits=limits, from_offset=700)
    assert found.ladders[TEMPLATE] == Ladder(rating=OURS, limits=limits)
    assert found.find("l", 699) == found.find("m")
    usual = Ladders(ladders={TEMPLATE: Ladder(rating=OURS)})
    assert "limits" not in ladders_file_entry(usual, "l", NEWER, 700, named=True)


# --- `Ladder.tune`: the numbers of a live ladder's proposal ---------------------------------------

FEW_TRIALS = 16


@pytest.fixture
def duels(tmp_path: Path) -> Path:
    """Rounds of one ladder, of which one is taken back."""
    path = tmp_path / "duel.jsonl"
    void = b'{"event_type": "round-voided", "ladder": "duel", "round_id": "r3"}\n'
    path.write_bytes(b"".join(made_up(200, Made(200, 4, 20))) + void)
    return path


@pytest.fixture
def ladder(duels: Path) -> stream_rater.Ladder:
    made = stream_rater.Ladder("glicko", beta=200, sigma_drift=35)
    made.rate_file(duels)
    return made


@cases("system", [None, "elo-mmr"])
def test_it_is_the_proposal_for_a_live_ladder(
    duels: Path, ladder: stream_rater.Ladder, system: Any
) -> None:
    """For its own system and for another one. What is found makes a ladder."""
    before, sessions = ladder.players.to_dicts(), SeasonFile(duels).play(list)
    found = ladder.tune(system, trials=FEW_TRIALS)
    due = propose(
        ladder.parameters, system or "glicko", sessions, "log_loss", train=0.5, trials=FEW_TRIALS
    )
    assert stream_rater.Ladder(found.system, **found.parameters).parameters == due.rating
    assert (found.verdict, found.tuned_rounds, found.compared_rounds) == (due.verdict, 99, 100)
    assert found.at_ends == due.at_ends and found.title.endswith(found.verdict)
    rows = [
        (each.measure, each.now, each.tuned, each.difference.mean, each.difference.low)
        for each in due.compared
    ]
    keys = ("measure", "now", "tuned", "difference", "low")
    assert [tuple(row[key] for key in keys) for row in found.to_dicts()] == rows and len(rows) == 2
    assert ladder.players.to_dicts() == before


def test_the_executor_makes_no_difference(ladder: stream_rater.Ladder) -> None:
    """Neither does its order of work."""
    with ThreadPoolExecutor(2) as threads:
        there = ladder.tune(trials=FEW_TRIALS, metric="pair_inversion", executor=threads)
    here = ladder.tune(trials=FEW_TRIALS, metric="pair_inversion")
    assert (there.parameters, there.to_dicts()) == (here.parameters, here.to_dicts())


def test_mistakes_are_one_line(
    ladder: stream_rater.Ladder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each names the argument, or what is missing: workers, and SciPy."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"system": "chess"}, "system: 'chess' is none of bar, "),
        ({"metric": "beauty"}, "metric: 'beauty' is none of pair_inversion, "),
        ({"trials": 0}, "trials: 0 is no whole number from 1 on"),
        ({"train": 1.0}, r"train: 1.0 is not in \[0, 1\)"),
        ({"train": 0.01}, "train: 1 rounds to tune on and 19. to compare on"),
    ]
    for options, why in wrong:
        with pytest.raises(ValueError, match=f"^{why}"):
            ladder.tune(**options)
    assert stream_rater.TrialsFailed is TrialsFailed
    with pytest.raises(TrialsFailed, match="the executor dropped a trial"):
        ladder.tune(trials=FEW_TRIALS, executor=Dropping())
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtra, match=r"scipy is not installed: stream-rater\[lab\]"):
        ladder.tune(trials=FEW_TRIALS)
