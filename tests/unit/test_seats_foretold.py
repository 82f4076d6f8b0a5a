"""Seats and scores on every surface: Python, the command line and the API."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from stream_rater import InvalidRound, Ladder
from stream_rater.cli import app
from stream_rater.serve.bodies import PlayerAnswer, SideQuestion, WhatIfQuestion
from stream_rater.serve.http.beliefs import entries_of
from stream_rater.serve.predicting import prediction
from stream_rater.serve.problems import Refused
from tests.rounds import day, event
from tests.unit.test_dry_run import written

SYSTEM = "two-moment"
SEATS = {"home": 80.0, "away": -10.0}
PAIR = ["ann", "bob"]


def ladder(**others: Any) -> Ladder:
    """Of a few rounds in seats."""
    found = Ladder(SYSTEM, **{"seats": SEATS, **others})
    for number, (sides, seats, scores) in enumerate(ROUNDS):
        found.rate(
            sides, seats=seats, scores=scores, completed_at=day(number), round_id=f"r{number}"
        )
    return found


ROUNDS: list[tuple[list[Any], list[str | None] | None, list[float | None] | None]] = [
    (["ann", "bob"], ["home", "away"], [2, 1]),
    (["bob", "cy"], ["home", None], [3, None]),
    ([["cy", "ann"], ["bob", "dee"]], ["away", "home"], None),
    (["dee", "cy", "ann"], None, [5, 4, -0.5]),
]
LINES = [
    event(
        *(
            {
                ("team" if isinstance(side, list) else "player"): side, "rank": i + 1,
                **({"seat": seats[i]} if seats and seats[i] else {}),
                **({"score": scores[i]} if scores and scores[i] is not None else {}),
            }
            for i, side in enumerate(sides)
        ),
        round_id=f"r{number}", ladder="l", completed_at=day(number),
    )
    for number, (sides, seats, scores) in enumerate(ROUNDS)
]  # fmt: skip
"""The same as events."""


def state(found: Ladder) -> list[Any]:
    return [found.record(each) for each in sorted(found)]


@pytest.fixture
def file(tmp_path: Path) -> tuple[str, str]:
    """The rounds, and the configuration."""
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"system": SYSTEM, "seats": SEATS}))
    return written(tmp_path / "rounds.jsonl", LINES), str(config)


def answer(file: tuple[str, str], *words: str) -> dict[str, Any]:
    command = ["predict", "--file", file[0], "--config", file[1], "--format", "json", *words]
    result = CliRunner().invoke(app.main, command)
    assert (result.exit_code, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_rounds_in_python_are_those_of_a_file(file: tuple[str, str]) -> None:
    """With seats and scores, and seats matter."""
    other = Ladder(SYSTEM, seats=SEATS)
    other.rate_file(file[0])
    assert state(ladder()) == state(other)
    assert state(ladder(seats={})) != state(other)


def test_tables_say_who_is_at_home() -> None:
    """By the names of their columns, or in a column of seats; and what the sides scored. Points of
    NumPy are numbers."""
    wide = {"home": ["ann", "cy"], "away": ["bob", "dee"], "home_score": [2, 0],
            "away_score": [1, 3]}  # fmt: skip
    long = {
        "match_id": ["1", "1", "2", "2"], "player": ["ann", "bob", "cy", "dee"],
        "rank": [1, 2, 2, 1], "seat": ["home", "away"] * 2, "score": [2, 1, 0, 3],
    }  # fmt: skip
    same = Ladder(SYSTEM, seats=SEATS)
    same.rate(["ann", "bob"], seats=["home", "away"], scores=[2, 1])
    same.rate(["cy", "dee"], [2, 1], seats=["home", "away"], scores=[0, 3])
    points = {name: np.float64(each) for name, each in SEATS.items()}
    for table in (wide, long):
        found = Ladder(SYSTEM, seats=points)
        assert found.parameters.seats == SEATS
        found.rate_table(table)
        assert state(found) == state(same)


def test_predictions_know_the_seats(file: tuple[str, str]) -> None:
    """The same bits in Python, by the command and by the API. Swapped seats of equal players are a
    mirror, a seat without points is none, and so is any on a ladder without points."""

    def wins(of: Ladder, pair: list[str], seats: Any = None) -> list[float]:
        found: list[float] = of.predict(pair, seats=seats).win.tolist()
        return found

    found, there, back = ladder(), ["home", "away"], ["away", "home"]
    at_home = wins(found, PAIR, there)
    assert at_home[0] > wins(found, PAIR)[0] > wins(found, PAIR, back)[0]
    sides = answer(file, *PAIR, "--seats", "home,away")["sides"]
    assert [(each["win"], each["seat"]) for each in sides] == list(zip(at_home, there, strict=True))
    assert "seat" not in answer(file, *PAIR)["sides"][0]
    players = [
        PlayerAnswer(
            name, found[name].mu, found[name].sigma, 0.0, found[name].rounds, False, "", 0, None
        )
        for name in PAIR
    ]
    asked = [SideQuestion(players=[n], seat=seat) for n, seat in zip(PAIR, there, strict=True)]
    answered = prediction(found.parameters, asked, players).sides
    assert [each.win for each in answered] == at_home
    new = ["x", "y"]
    one = wins(found, new, there)
    assert one == pytest.approx(wins(found, new, back)[::-1], abs=1e-12)
    assert one[0] == pytest.approx(wins(found, new, [None, "away"])[0], abs=0.1)
    for without in ([None, None], ["gone", None]):
        assert wins(found, new, without) == wins(found, new)
    plain = ladder(seats={})
    assert wins(plain, PAIR, there) == wins(plain, PAIR)


def test_what_if_is_what_rate_gives(file: tuple[str, str]) -> None:
    """In Python and by the command."""
    found = ladder()
    given: dict[str, Any] = {"seats": ["away", "home"], "scores": [1, 0], "completed_at": day(3)}
    now = found.what_if(PAIR, **given)
    changes = answer(
        file, *PAIR, "--ranks", "1,2", "--seats", "away,home", "--scores", "1,0"
    )["changes"]  # fmt: skip
    assert [each["mu"] for each in changes] == now.mu.tolist()
    assert now.mu.tolist() == found.rate(PAIR, **given).mu.tolist()
    assert now.mu.tolist() != ladder().what_if(PAIR, completed_at=day(3)).mu.tolist()


def test_the_api_asks_what_if_with_both() -> None:
    """Seats stand in the sides, scores beside the ranks."""
    sides = [SideQuestion(players=["ann"], seat="home"), SideQuestion(players=["bob"])]
    for scores in ([0.0, None], None):
        asked = WhatIfQuestion(sides=sides, ranks=[1, None], scores=scores)
        found = entries_of(asked)
        assert [each.seat for each in found] == ["home", None]
        assert [each.score for each in found] == (scores or [None, None])
    with pytest.raises(Refused) as refused:
        entries_of(WhatIfQuestion(sides=sides, ranks=[1, 2], scores=[1.0]))
    assert refused.value.problem.place == "body.scores"
    for seat in ("", "123456789", "ä", 7):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"players": ["ann"], "seat": seat}, SideQuestion)


def test_python_names_what_is_wrong() -> None:
    """On any ladder, whether it uses them or not."""
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"seats": ["home"]}, "bad-seat", "seats: 1 for 2 sides; None: no seat"),
        ({"seats": "ha"}, "bad-seat", "seats: 'ha' is a text, not a list of seats"),
        ({"seats": 7}, "malformed", "seats: 7 is no list"),
        ({"seats": [None, ""]}, "bad-seat", "seats[1]: '' is no name of a seat: give a text of 1"),
        ({"seats": ["x" * 9, None]}, "bad-seat", "seats[0]: 'xxxxxxxxx' is no name of a seat: "),
        ({"seats": [None, 7]}, "bad-seat", "seats[1]: 7 is no name of a seat: "),
        ({"scores": [1]}, "bad-score", "scores: 1 for 2 sides; None: no score"),
        ({"scores": ["2", 1]}, "bad-score", "scores[0]: '2' is no number"),
        ({"scores": [1, np.inf]}, "bad-score", "scores[1]: inf is not finite; None: no score"),
    ]
    for (given, code, message), found in product(wrong, (Ladder(), Ladder(SYSTEM, seats=SEATS))):
        with pytest.raises(InvalidRound) as refused:
            found.rate(PAIR, **given)
        assert refused.value.code == code and str(refused.value).startswith(message)
        assert len(found) == 0
        if "seats" in given:
            with pytest.raises(InvalidRound, match=r"^seats"):
                found.predict(PAIR, **given)


def test_the_command_names_what_is_wrong() -> None:
    """In one line."""
    for words, why in (
        (["--seats", "home"], "--seats home: 1 for 2 sides: give one for each"),
        (["--seats", "home,"], "--seats home,: '' is no name of a seat: give a text of 1 to 8 "),
        (["--seats", "-,ä"], "--seats -,ä: 'ä' is no name of a seat: "),
        (["--scores", "1,2"], "--scores is for --ranks: add the ranks that the scores led to"),
        (["--ranks", "1,2", "--scores", "1"], "--scores 1: 1 for 2 sides: give one for each"),
        (["--ranks", "1,2", "--scores", "1,x"],
         "--scores 1,x: 'x' is no score: give numbers such as 4 or -0.5, or - for none"),
    ):  # fmt: skip
        result = CliRunner().invoke(app.main, ["predict", "--ladder", "l", "ann", "bob", *words])
        assert result.exit_code == 2
        assert result.stderr.startswith(f"stream-rater: {why}") and result.stderr.count("\n") == 1
