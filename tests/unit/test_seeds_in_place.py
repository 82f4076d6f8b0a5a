"""`Ladder.seed` and `Ladder.reset`, and commands on a data file with seeds and resets."""

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_rater import InvalidRound, Ladder
from tests.builders.cases import cases
from tests.builders.commands import done, execute, failed, submitted
from tests.builders.lines import a_correction, a_round, a_seed
from tests.builders.rated_data_files import merged, rate
from tests.rounds import day

TABLE = [
    {"player": "ann", "mu": 31.4, "sigma": 1.9, "games": 212},
    {"player": "bob", "mu": 25.9, "sigma": 2.4, "games": 98},
    {"player": "cy", "mu": 18.2, "sigma": 60.0, "games": 4},
]


def numbers(ladder: Ladder) -> dict[str, tuple[float, float, int]]:
    return {name: (ladder[name].mu, ladder[name].sigma, ladder[name].rounds) for name in ladder}


def single(value: float) -> float:
    return float(np.float32(value))


def test_players_begin_with_their_ratings() -> None:
    """A second call changes nothing. A reset sets mu, never lowers sigma, and keeps rounds."""
    ladder = Ladder()
    found = ladder.seed(TABLE, scale="openskill")
    assert (found.players, found.begun, found.cut, found.refused) == (3, 3, 1, 0)
    assert numbers(ladder)["ann"] == (single(1768.8), single(79.8), 212)
    assert numbers(ladder)["cy"] == (single(1214.4), 350.0, 4)
    again = ladder.seed(TABLE, scale="openskill")
    assert (again.players, again.begun) == (3, 0)
    dee = {"player": "dee", "mu": 1, "sigma": 1, "games": 1}
    other = ladder.seed([TABLE[0], dee], scale="ladder")
    assert other.begun == 1 and ladder["ann"].mu == single(1768.8)
    result = ladder.rate([["ann"], ["bob"]])
    assert result.rounds.tolist() == [213, 99]
    assert result.previous_mu.tolist() == [single(1768.8), single(1537.8)]
    assert ladder.reset("dee", 200).sigma == 200.0
    lower = ladder.reset("dee", 100, mu=1600)
    assert (lower.sigma, lower.mu, lower.rounds) == (200.0, 1600.0, 1)
    with pytest.raises(KeyError, match="nobody"):
        ladder.reset("nobody", 100)


def test_every_kind_of_table(tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl

    path = tmp_path / "t.csv"
    path.write_text("player,mu,sigma,games\nann,31.4,1.9,212\nbob,25.9,2.4,98\ncy,18.2,60,4\n")
    columns = {name: [row[name] for row in TABLE] for name in TABLE[0]}
    tables: list[Any] = [TABLE, columns, pd.DataFrame(columns), pl.DataFrame(columns), path]
    found = []
    for table in [*tables, str(path)]:
        ladder = Ladder()
        ladder.seed(table, scale=(25.0, 25.0 / 3.0))
        found.append(numbers(ladder))
    assert all(each == found[0] for each in found)


def test_a_ladder_with_seeds_is_copied_and_named(tmp_path: Path) -> None:
    """The copy rates its log again, and a file that names the ladder takes the seeds along."""
    ladder = Ladder()
    ladder.seed(TABLE, scale="openskill")
    ladder.reset("ann", 120)
    rounds = tmp_path / "r.jsonl"
    rounds.write_text(
        '{"ladder":"l","round_id":"1","completed_at":"2026-01-01T00:00:00Z","standings":'
        '[{"player":"ann","rank":1},{"player":"new","rank":2}]}\n'
        '{"event_type":"round-voided","ladder":"l","round_id":"1"}\n'
    )
    ladder.rate_file(rounds)
    assert ladder.name == "l"
    assert numbers(pickle.loads(pickle.dumps(ladder))) == numbers(ladder)
    assert ladder["ann"].sigma == 120.0 and ladder["ann"].rounds == 212
    assert len(ladder.history("bob")) == 0 and len(ladder.history("ann")) == 0


def test_a_file_with_seeds(tmp_path: Path) -> None:
    """Is rated, as the command `rate` does; a seed of another ladder is not taken silently."""
    lines = [
        '{"event_type":"players-seeded","ladder":"l","round_id":"s","at":"2026-01-01T00:00:00Z",'
        '"players":[{"player":"ann","mu":1700,"sigma":60}]}\n',
        '{"ladder":"l","round_id":"1","completed_at":"2026-01-01T00:00:00Z","standings":'
        '[{"player":"ann","rank":1},{"player":"new","rank":2}]}\n',
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("".join(lines))
    ladder = Ladder()
    result = ladder.rate_file(path)
    assert (result.ladder, result.seeds, result.rounds, result.refused) == ("l", 1, 1, 0)
    assert ladder["ann"].rounds == 2
    path.write_text(lines[0] + lines[0].replace('"l"', '"m"').replace('"s"', '"t"'))
    with pytest.raises(ValueError, match="2: a seed of ladder 'm' among those of 'l'"):
        Ladder().rate_file(path)
    alone = Ladder()
    path.write_text(lines[0])
    assert alone.rate_file(path).seeds == 1 and alone.name == "l"


def test_time_passes_from_the_seed_on() -> None:
    """It does if `at` says when that was. A seed after a round changes nothing for its players."""
    ladder = Ladder("two-moment")
    ladder.seed(TABLE, scale="openskill", at=datetime(2025, 1, 1, tzinfo=UTC))
    assert ladder["ann"].last_completed_at == "2025-01-01T00:00:00Z"
    ladder.rate([["ann"], ["bob"]])
    assert ladder["ann"].last_completed_at == "2025-01-01T00:00:00Z"
    ladder = Ladder()
    ladder.rate(["ann", "zed"])
    before = numbers(ladder)
    found = ladder.seed(TABLE, scale="openskill")
    assert (found.players, found.begun) == (3, 2)
    assert {name: numbers(ladder)[name] for name in before} == before


@cases("row, code, message", [
    ({"player": "x", "mu": 1, "sigma": 0}, "bad-seed", "table, row 2: column sigma: 0 is not over"),
    ({"player": "x", "mu": float("nan"), "sigma": 1}, "bad-seed", "column mu: empty"),
    ({"player": "x", "mu": 900, "sigma": 1}, "bad-seed", "which is 38250 on the ladder's scale"),
    ({"player": 1.5, "mu": 1, "sigma": 1}, "bad-id", "column player: 1.5 is a fraction"),
    ({"player": "ann", "mu": 1, "sigma": 1}, "bad-id", "player 'ann' stands in row 1, too"),
])  # fmt: skip
def test_a_bad_row_changes_nothing(row: dict[str, Any], code: str, message: str) -> None:
    """Unless it may be left out."""
    ladder, table = Ladder(), [{"player": "ann", "mu": 25, "sigma": 2}, row]
    with pytest.raises(InvalidRound, match="skip_invalid=True leaves") as caught:
        ladder.seed(table, scale="openskill")
    assert caught.value.code == code and message in str(caught.value)
    assert len(ladder) == 0
    found = ladder.seed(table, scale="openskill", skip_invalid=True)
    assert (found.players, found.begun, found.refused) == (1, 1, 1)
    assert found.refusals[0].line == 2 and list(ladder) == ["ann"]


@cases("given, message", [
    ({"scale": "x"}, "'x' is no scale"),
    ({"scale": (25,)}, "is no scale"),
    ({"scale": (25, 0)}, "is no scale"),
    ({"scale": "elo", "columns": {"mu": "m"}}, "no column 'm'"),
    ({"scale": "elo", "columns": {"rank": "mu"}}, "no role of a column"),
    ({"scale": "elo", "at": "x"}, "at: "),
    ({"scale": "elo", "at": datetime(2025, 1, 1)}, "at: a datetime without a zone"),
])  # fmt: skip
def test_arguments_that_cannot_be(given: dict[str, Any], message: str) -> None:
    ladder = Ladder()
    with pytest.raises(ValueError, match=message):
        ladder.seed([{"player": "ann", "mu": 1500, "sigma": 70}], **given)
    assert len(ladder) == 0


def test_a_table_without_sigma_is_asked_about() -> None:
    """The text names the arguments that decide. A long table is cut into seeds."""
    table = {"player": ["ann"], "elo": [1700]}
    with pytest.raises(ValueError, match=r'columns=\{"sigma": "COLUMN"\}, or .* sigma=105'):
        Ladder().seed(table, scale="elo")
    ladder = Ladder()
    ladder.seed(table, scale="elo", sigma=90)
    assert ladder["ann"].sigma == 90.0
    names = [f"p{number}" for number in range(5_001)]
    ladder = Ladder()
    found = ladder.seed({"player": names, "elo": [1600.0] * 5_001}, scale="elo", sigma=80)
    assert found.begun == 5_001 == len(ladder) and ladder["p5000"].mu == 1600.0


@cases("given, code", [
    ({"sigma": 0}, "bad-seed"), ({"sigma": 351}, "bad-seed"), ({"sigma": float("nan")}, "bad-seed"),
    ({"sigma": 70, "mu": 1e6}, "bad-seed"), ({"sigma": 70, "mu": float("inf")}, "bad-seed"),
    ({"sigma": 70, "at": "x"}, "bad-time"),
])  # fmt: skip
def test_a_reset_that_cannot_be(given: dict[str, Any], code: str) -> None:
    ladder = Ladder()
    ladder.seed(TABLE, scale="openskill")
    before = numbers(ladder)
    with pytest.raises(InvalidRound) as caught:
        ladder.reset("ann", **given)
    assert caught.value.code == code and numbers(ladder) == before


# --- data files -----------------------------------------------------------------------------------

OLD: dict[str, Any] = {"rounds": 9, "source": "the old system"}
LOG = [
    a_seed(0, "ann", "bob", "zed", **OLD), a_round(1, "ann", "bob"),
    a_seed(2, "bob", "cy", mu=1300.0, **OLD), a_round(3, "cy", "ann"),
    a_correction("player-reset", round_id="x4", at=day(4), player="bob", sigma=300.0),
    a_seed(5, "late", **OLD),
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A data file with seeds, resets and rounds, all of which are rated."""
    path = tmp_path / "ratings.db"
    rate(path)
    submitted(path, LOG)
    rate(path)
    return path


def test_verify_and_inspect_know_of_seeds(path: Path) -> None:
    """They are shown and counted. One that was lost or applied twice is found."""
    zed, bob, ann = (
        done("inspect", "--ladder", "l", "--player", each, "--data", path)
        for each in ("zed", "bob", "ann")
    )
    assert "after 9 rounds" in zed
    assert "given by a seed, at offset 0 of its partition; it counts from 2026-01-01" in zed
    assert "seed " in zed and "players-seeded s0" in zed
    assert "changed last by player-reset, at offset 4" in bob and "reset " in bob
    assert "before the last one" in ann and "players-seeded s0" in ann
    assert done("verify", "--data", path) == (
        "2 rounds replayed, 4 seeds applied, 0 rejected, 5 beliefs compared: all equal, bit for "
        "bit\n"
    )
    merged(path)
    ((zed,),) = execute(path, "SELECT record FROM beliefs WHERE player = 'zed'")
    execute(path, "UPDATE beliefs SET record = ? WHERE player = 'ann'", zed)
    assert "0 missing, 1 different, 0 that" in failed("verify", "--data", path)
    execute(path, "DELETE FROM beliefs WHERE player = 'zed'")
    assert "1 missing, 1 different, 0 that" in failed("verify", "--data", path)
    done("rebuild", "--data", path, "--replace")
    assert "all equal" in done("verify", "--data", path)


def test_a_seed_is_voided(path: Path) -> None:
    """A dry run shows who moves; afterwards nothing of the seed is left, also after a rebuild."""
    shown = done("correct", "void", "l", "s0", "--dry-run", "--data", path, "--format", "json")
    moves = {each["player"]: each for each in map(json.loads, shown.splitlines())}
    assert set(moves) == {"ann", "bob", "cy", "zed"} and moves["zed"]["rating_after"] is None
    done("correct", "void", "l", "s0", "--data", path)
    rate(path)
    assert "all equal" in done("verify", "--data", path)
    lines = done("watch", "--data", path, "--from-start", "--player", "zed", "--count", "2")
    assert [line.split()[3] for line in lines.splitlines()] == ["seed", "correction"]
    done("rebuild", "--data", path, "--replace")
    assert "all equal" in done("verify", "--data", path)


BELIEFS = "SELECT player, record FROM beliefs WHERE ladder <> ''"  # Without the mark of a rebuild.


@pytest.mark.parametrize("player", ["zed", "bob", "ann"])
def test_a_seeded_player_is_erased(path: Path, player: str) -> None:
    """From the records, and so from the file; the beliefs are equal to those before."""
    merged(path)
    before = dict(execute(path, BELIEFS))
    output = done("erase", player, "--data", path, "--pseudonym", "someone")
    assert "all equal to those before, bit for bit" in output
    seeds = {"zed": "0 rounds, 1 seed", "bob": "1 round, 3 seeds", "ann": "2 rounds, 1 seed"}
    assert f"{seeds[player]} and 0 corrections name the player" in output
    for each in path.parent.iterdir():
        if each.name.startswith("ratings.db"):
            assert f'"{player}"'.encode() not in each.read_bytes(), each
    merged(path)
    after = dict(execute(path, BELIEFS))
    assert after == {"someone" if who == player else who: each for who, each in before.items()}
    assert "all equal" in done("verify", "--data", path)
