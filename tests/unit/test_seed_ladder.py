"""`Ladder.seed` and `Ladder.reset`: the numbers, what counts once, and what is refused."""

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_rater import InvalidRound, Ladder
from tests.builders.cases import cases

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
    """And go on from there; who has a rating keeps it, and a second call changes nothing."""
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


def test_every_kind_of_table(tmp_path: Path) -> None:
    """Gives the same ladder."""
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


def test_a_reset() -> None:
    """Raises sigma, and sets mu; it never lowers sigma, and rounds stay."""
    ladder = Ladder()
    ladder.seed(TABLE, scale="openskill")
    assert ladder.reset("ann", 200).sigma == 200.0
    found = ladder.reset("ann", 100, mu=1600)
    assert (found.sigma, found.mu, found.rounds) == (200.0, 1600.0, 212)
    with pytest.raises(KeyError, match="nobody"):
        ladder.reset("nobody", 100)


def test_time_passes_from_the_seed_on() -> None:
    """By default none does before the first round; `at` says when the ratings were true."""
    ladder = Ladder("two-moment")
    ladder.seed(TABLE, scale="openskill", at=datetime(2025, 1, 1, tzinfo=UTC))
    assert ladder["ann"].last_completed_at == "2025-01-01T00:00:00Z"
    ladder.rate([["ann"], ["bob"]])
    assert ladder["ann"].last_completed_at == "2025-01-01T00:00:00Z"


BAD = [
    ({"player": "x", "mu": 1, "sigma": 0}, "bad-seed", "table, row 2: column sigma: 0 is not over"),
    ({"player": "x", "mu": float("nan"), "sigma": 1}, "bad-seed", "column mu: empty"),
    ({"player": "x", "mu": float("inf"), "sigma": 1}, "bad-seed", "column mu: inf is no number"),
    ({"player": "x", "mu": 900, "sigma": 1}, "bad-seed", "which is 38250 on the ladder's scale"),
    ({"player": "", "mu": 1, "sigma": 1}, "bad-id", "column player: empty"),
    ({"player": 1.5, "mu": 1, "sigma": 1}, "bad-id", "column player: 1.5 is a fraction"),
    ({"player": "ann", "mu": 1, "sigma": 1}, "bad-id", "player 'ann' stands in row 1, too"),
]


@cases("row, code, message", BAD)
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
    """Are named, and nothing changes."""
    ladder = Ladder()
    with pytest.raises(ValueError, match=message):
        ladder.seed([{"player": "ann", "mu": 1500, "sigma": 70}], **given)
    assert len(ladder) == 0


def test_a_table_without_sigma_is_asked_about() -> None:
    """The text names the arguments that decide."""
    table = {"player": ["ann"], "elo": [1700]}
    with pytest.raises(ValueError, match=r'columns=\{"sigma": "COLUMN"\}, or .* sigma=105'):
        Ladder().seed(table, scale="elo")
    ladder = Ladder()
    ladder.seed(table, scale="elo", sigma=90)
    assert ladder["ann"].sigma == 90.0


@cases("given, code", [
    ({"sigma": 0}, "bad-seed"), ({"sigma": 351}, "bad-seed"),
    ({"sigma": float("nan")}, "bad-seed"),
    ({"sigma": 70, "mu": 1e6}, "bad-seed"),
    ({"sigma": 70, "mu": float("inf")}, "bad-seed"),
    ({"sigma": 70, "at": "x"}, "bad-time"),
])  # fmt: skip
def test_a_reset_that_cannot_be(given: dict[str, Any], code: str) -> None:
    """Changes nothing."""
    ladder = Ladder()
    ladder.seed(TABLE, scale="openskill")
    before = numbers(ladder)
    with pytest.raises(InvalidRound) as caught:
        ladder.reset("ann", **given)
    assert caught.value.code == code and numbers(ladder) == before


def test_who_has_played_keeps_the_rating() -> None:
    """A seed behind a round changes nothing for its players, and does so for others."""
    ladder = Ladder()
    ladder.rate(["ann", "zed"])
    before = numbers(ladder)
    found = ladder.seed(TABLE, scale="openskill")
    assert (found.players, found.begun) == (3, 2)
    assert {name: numbers(ladder)[name] for name in before} == before


def test_more_players_than_a_seed_has(tmp_path: Path) -> None:
    """A table is cut into seeds; a record with too many is refused, and nothing else is."""
    names = [f"p{number}" for number in range(5_001)]
    ladder = Ladder()
    found = ladder.seed({"player": names, "elo": [1600.0] * 5_001}, scale="elo", sigma=80)
    assert found.begun == 5_001 == len(ladder) and ladder["p5000"].mu == 1600.0
    players = ",".join(f'{{"player":"{name}","mu":1600}}' for name in names)
    head = '{"event_type":"players-seeded","ladder":"l","at":"2026-01-01T00:00:00Z",'
    path = tmp_path / "s.jsonl"
    path.write_text(
        f'{head}"round_id":"a","players":[{players}]}}\n'
        f'{head}"round_id":"b","players":[{{"player":"ann","mu":1600}}]}}\n'
    )
    other = Ladder()
    result = other.rate_file(path)
    assert (result.seeds, result.refused, list(other)) == (1, 1, ["ann"])
    (refusal,) = result.refusals
    assert (refusal.line, refusal.code) == (1, "bad-seed")
