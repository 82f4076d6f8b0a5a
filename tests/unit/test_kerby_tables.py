"""The tables of Kerby's note by the command, and what `tune` searches of his systems."""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import structs

from stream_rater.cli import app
from stream_rater.config.files import read_rating
from stream_rater.config.ladders import Ladder, any_ladder
from stream_rater.evaluation.accuracy import averages
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.research.evidence import DataSet
from stream_rater.evaluation.research.kerby import METHODS, seasons
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.spaces import SPACES, WIDE, configuration, start
from stream_rater.evaluation.tuning import without_defaults
from stream_rater.rating.parameters import Climbing, Elo, PlackettLuce, from_builtins
from stream_rater.rating.systems.kerby import KERBYS, UNIT
from stream_rater.replay.pool import Pool
from tests.rounds import Reader, event, ranked
from tests.tables import kendall_tau

COUNT, FIRST = 60, 35
KERBY = sorted(system for system in SPACES if len(WIDE[system]) > len(SPACES[system]))


def rounds() -> list[dict[str, Any]]:
    """Made-up races, in some of which the last two do not finish."""
    return [
        event(
            *ranked([1, 2, 2, 4, *((0, 0) if number % 3 else (5, 6))],
                    [f"p{row}" for row in session.rows.tolist()]),
            round_id=f"r{number}",
        )
        for number, session in enumerate(season(Kind(20, COUNT, 6), 4))
    ]  # fmt: skip


@pytest.fixture
def report(tmp_path: Path) -> dict[str, list[str]]:
    """Cells of the table by method, of a file with two seasons."""
    lines = map(msgspec.json.encode, rounds())
    (tmp_path / "mine.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    words = ["evidence", str(tmp_path), "--out", str(tmp_path), "--only", "kerby"]
    result = CliRunner().invoke(app.main, [*words, "--season", str(FIRST)])
    assert result.exit_code == 0, result.stderr
    text = (tmp_path / "report.md").read_text()
    assert "| method | note, season 1 | note, later | mine, season 1 | mine, later |" in text
    assert "mine, season 1: 35 rounds" in text and "mine, later: 25 rounds" in text
    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows if row[0] in METHODS}


def test_the_command_makes_the_tables(report: dict[str, list[str]]) -> None:
    """Each method as pairs counted one by one have it, in each season by itself; beside the note's
    figures. TrueSkill is in order of mu less two sigmas where the note has that. What is kept
    between rounds has single precision, which may turn one of some 300 pairs around."""
    assert report.keys() == METHODS.keys()
    for name, method in METHODS.items():
        reader = Reader(any_ladder(method.config))
        read = [reader.read(msgspec.json.encode(each)) for each in rounds()]
        due = [kendall_tau(method.config, part) for part in (read[:FIRST], read[FIRST:])]
        note_season_1, _, *found = report[name]
        assert [float(each) for each in found] == pytest.approx(due, abs=1 / 300), name
        assert note_season_1 == ("–" if method.season_1 is None else f"{method.season_1:.4f}")


def test_the_whole_file_is_a_season_unless_one_is_given() -> None:
    """And no round is lost between two."""
    data = DataSet("mine", list(season(Kind(20, COUNT, 6), 4)))
    ((name, whole),) = seasons(data, None)
    assert name == "mine" and sum(len(each.rounds) for each in whole) == COUNT
    (_, first), (_, later) = seasons(data, FIRST)
    numbers = [n for part in (first, later) for each in part for n in each.numbers.tolist()]
    assert sorted(numbers) == list(range(COUNT)) and len(first) == FIRST


# --- what tune searches --------------------------------------------------------------------------


def test_his_systems_have_all_his_adaptations() -> None:
    """The first rating, the anchor, the rates and the floor, of each."""
    assert KERBY == ["elo", "pairwise-elo", "plackett-luce", "thurstone"]
    names = {"learning_rate", "initial_mu", "anchor", "rate_above", "rate_far_above", "floor"}
    for system in KERBY:
        assert {each.name for each in WIDE[system]} == names
    assert all(WIDE[system] == SPACES[system] for system in SPACES.keys() - set(KERBY))


@pytest.mark.parametrize("system", KERBY)
def test_the_search_begins_without_adaptations(system: str) -> None:
    """As the system is by itself; and every point is a configuration that reads as itself."""
    space = WIDE[system]
    assert configuration(system, start(space)) == configuration(system, start(SPACES[system]))
    random = np.random.default_rng(3)
    for at in (*([x] * len(space) for x in (0.0, 0.37, 1.0)), *random.random((20, len(space)))):
        values = {d.name: d.at(float(x)) for d, x in zip(space, at, strict=True)}
        found: Any = configuration(system, values)
        assert from_builtins(without_defaults(found)) == found
        assert isinstance(found, Climbing)
        assert found.floor is None or found.floor <= found.initial_mu


def test_the_notes_best_is_among_what_is_searched() -> None:
    """Plackett-Luce with anchor, rates and floor: in points of chess, 1500 for the note's 0, it
    predicts the same."""
    note_config: Any = METHODS["plackett-luce, anchor, rates, floor"].config
    assert isinstance(note_config, PlackettLuce)
    rates = [rate for _, rate in note_config.rates]
    assert note_config.anchor is not None
    values = {
        "learning_rate": rates[0] * UNIT, "initial_mu": 1500.0 + note_config.initial_mu * UNIT,
        "anchor": 1500.0 + note_config.anchor * UNIT, "floor": 1500.0,
        "rate_above": rates[1] / rates[0], "rate_far_above": rates[2] / rates[0],
    }  # fmt: skip
    for each in KERBYS:
        assert each.low <= values[each.name] <= each.high
    found: Any = configuration("plackett-luce", values)
    assert found.scale == PlackettLuce.tuned["scale"] == pytest.approx(400 / math.log(10))
    rounds = list(season(Kind(20, COUNT, 6), 4))
    taus = [
        averages(evaluate(rounds, each).scores)["kendall_tau"]
        for each in (note_config, found, structs.replace(found, anchor=None, floor=None))
    ]
    assert taus[0] == pytest.approx(taus[1], abs=2e-3) and taus[0] != pytest.approx(
        taus[2], abs=2e-3
    )


def test_tune_finds_an_anchor(tmp_path: Path) -> None:
    """Where newcomers are worse than all others, an anchor pays; a learning rate alone cannot say
    it. The file that is written has it, and `evaluate` reads it."""
    random, lines = np.random.default_rng(2), list[bytes]()
    skill = {f"p{i}": 2.0 for i in range(12)}
    for number in range(240):
        names = [f"p{i}" for i in random.choice(12, 4, replace=False)] + [f"new{number}"]
        played = {name: skill.get(name, 0.0) + random.normal(0.0, 0.7) for name in names}
        order = sorted(names, key=lambda name: -played[name])
        standings = ranked([1, 2, 3, 4, 5], order)
        lines.append(msgspec.json.encode(event(*standings, round_id=f"r{number}")))
    file, out = tmp_path / "rounds.jsonl", tmp_path / "found.json"
    file.write_bytes(b"\n".join(lines) + b"\n")
    words = ["tune", str(file), "--system", "plackett-luce", "--train", "0.6", "--trials", "120",
             "--metric", "log_loss", "--workers", "1", "--out", str(out)]  # fmt: skip
    result = CliRunner().invoke(app.main, words)
    assert result.exit_code == 0, result.stderr
    found = read_rating(out)
    assert isinstance(found, PlackettLuce)
    assert found.anchor is not None or found.floor is not None or found.initial_mu != 1500.0


def test_the_laboratory_knows_who_is_fixed(tmp_path: Path) -> None:
    """`evaluate` predicts as the service rates: a bot's rating stays; others' move against it."""
    config = Elo(learning_rate=40.0, scale=174.0, fixed=("bot",))
    standings = [ranked([1, 2], ["ann", "bot"]), ranked([1, 2], ["bob", "ann"])] * 4
    events = [event(*each, round_id=f"r{i}") for i, each in enumerate(standings)]
    file, named = tmp_path / "rounds.jsonl", tmp_path / "elo.json"
    file.write_bytes(b"\n".join(map(msgspec.json.encode, events)) + b"\n")
    named.write_bytes(msgspec.json.encode(config))
    free = tmp_path / "free.json"
    free.write_bytes(msgspec.json.encode(structs.replace(config, fixed=())))
    words = ["evaluate", str(file), "--train", "0", "--format", "json"]
    both = CliRunner().invoke(app.main, [*words, "--config", str(named), "--config", str(free)])
    assert both.exit_code == 0, both.stderr
    losses = [row["log_loss"] for row in msgspec.json.decode(both.stdout)]
    reader, pool = Reader(any_ladder(config)), Pool(Ladder(rating=config))
    due = []
    for offset, each in enumerate(events):
        standing = reader.read(msgspec.json.encode(each))
        ratings = {name: float(header["mu"]) for name, header in pool}
        won, lost = (ratings.get(name, 1500.0) for name in standing.players)
        z = (won - lost) / (174.0 * math.pi / math.sqrt(3.0))  # of the logistic's variance
        due.append(-math.log(0.5 * math.erfc(-z / math.sqrt(2.0))))
        pool.rate(standing, offset)
    assert losses[0] == pytest.approx(sum(due) / len(due), rel=1e-6) != losses[1]
