"""`stream-rater predict` on a file; seats and scores in Python, on the command line, by the API."""

import itertools
import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_rater import InvalidRound, Ladder
from stream_rater.serve.bodies import SideQuestion, WhatIfQuestion
from stream_rater.serve.http.beliefs import entries_of
from stream_rater.serve.predicting import prediction
from stream_rater.serve.problems import Refused
from tests.builders.commands import done, failed, run
from tests.builders.lines import a_correction, a_seed
from tests.rounds import day, event, ranked
from tests.unit.test_correct import season, written
from tests.unit.test_newcomer_level import answers

Line = dict[str, Any]
CONFIG = {"system": "trueskill", "beta": 200, "sigma_drift": 35, "draw_margin": 60}
PAIR = ["ann", "bob"]
SIDES = ["p1,ann", "p2", '["p3", "a,b"]']
GROUPS = [("p1", "ann"), "p2", ("p3", "a,b")]


def answer(*words: str) -> Line:
    result = run("predict", *words, "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    found: Line = json.loads(result.stdout)
    return found


@pytest.fixture
def file(tmp_path: Path) -> str:
    return written(tmp_path / "rounds.jsonl", season())


def rated(*words: str) -> dict[str, Line]:
    return {each["player"]: each for each in map(json.loads, done("rate", *words).splitlines())}


def test_the_numbers_of_the_kernels(tmp_path: Path, file: str) -> None:
    """Players are as `rate` prints them. The prediction is a Python ladder's, to the last bit."""
    (path := tmp_path / "c.json").write_text(json.dumps(CONFIG))
    own: list[str]
    for config, own in (({}, []), (CONFIG, ["--config", str(path)])):
        found = answer("--file", file, *own, *SIDES)
        ladder = Ladder(**config)  # type: ignore[arg-type]
        ladder.rate_file(file)
        predicted = ladder.predict(GROUPS)
        assert found["ladder"] == "l"
        sides = found["sides"]
        assert [each["win"] for each in sides] == predicted.win.tolist()
        assert [each["expected_rank"] for each in sides] == predicted.expected_rank.tolist()
        assert found["pairwise"] == predicted.pairwise.tolist()
        assert (found["draw"], found["quality"]) == (predicted.draw, predicted.quality)
        assert (found["draw"] > 0.0) == bool(config)
        lines = rated(file, *own)
        for each in itertools.chain(*(side["players"] for side in sides)):
            who = each["player"]
            if who == "a,b":
                assert (each["mu"], each["sigma"], each["rounds"]) == (1500.0, 350.0, 0)
            else:
                assert each == {name: lines[who][name] for name in each}


def test_what_if_is_what_rate_gives(tmp_path: Path, file: str) -> None:
    """As with the round at the end of the file; who did not finish, too."""
    found = answer("--file", file, *SIDES, "--ranks", "2,1,-")
    entries = [
        {"team": ["p1", "ann"], "rank": 2}, {"player": "p2", "rank": 1},
        {"team": ["p3", "a,b"], "dnf": True},
    ]  # fmt: skip
    more = event(*entries, round_id="more", ladder="l", completed_at=day(39))
    before, after = rated(file), rated(written(tmp_path / "b.jsonl", [*season(), more]))
    assert {each["player"] for each in found["changes"]} == {"p1", "ann", "p2", "p3", "a,b"}
    for each in found["changes"]:
        who = each["player"]
        assert all(each[name] == after[who][name] for name in ("mu", "sigma", "rating"))
        assert who == "a,b" or each["previous_rating"] == before[who]["rating"]


def test_even_teams_are_the_ladders(file: str) -> None:
    """All players are dealt, whatever the sides. A greater variance is less sure."""
    found = answer("--file", file, "p0,p1,p2", "p3,p4,new", "--teams", "3")
    ladder = Ladder()
    ladder.rate_file(file)
    teams = ladder.balance(["p0", "p1", "p2", "p3", "p4", "new"], 3)
    assert [tuple(p["player"] for p in side["players"]) for side in found["sides"]] == teams
    words = "--file", file, "ann", "p1", "--variance-factor"
    assert answer(*words, "1")["quality"] < answer(*words, "4")["quality"]


def test_corrections_say_who_plays(tmp_path: Path) -> None:
    """A merged player is the other one; who was removed cannot play."""
    corrections = [
        a_correction("player-merged", player="ann2", into="ann"),
        a_correction("player-removed", player="p1"),
    ]
    path = written(tmp_path / "a.jsonl", [*season(), *corrections])
    (one, other) = answer("--file", path, "ann2", "p2")["sides"]
    ann = rated(path)["ann"]
    assert one["players"][0] == {name: ann[name] for name in one["players"][0]} | {"player": "ann2"}
    assert other["players"][0]["player"] == "p2"
    for sides, who in ((["p1", "p2"], "p1"), (["ann", "ann2"], "ann2")):
        assert failed("predict", "--file", path, *sides) == (
            f"player {who!r} was removed from ladder 'l', or merged into another one of these: "
            "leave them out"
        )


def test_a_table_for_people(file: str) -> None:
    """Sides, pairs of three or more, and what a result would change."""
    shown = done("predict", "--file", file, *SIDES, "--ranks", "2,1,-")
    for each in ("p1, ann", "p3, a,b", "over 3", "quality 0.", "what the result would change"):
        assert each in shown
    assert "over" not in done("predict", "--file", file, "ann", "p1")
    nothing = done("predict", "--file", file, "ann", "p1", "--ranks", "-,-")
    assert nothing.endswith("the result would change nothing\n")


def test_wrong_words_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c").write_text("{}")
    for words, why in (
        (["ann"], "one side alone: name two at least, as in ann,bob cy,dee, or deal it by "
                  "--teams 2"),
        (["ann,ann", "bob"], "side 1: player 'ann' stands there twice: name each once"),
        (["ann", "bob,ann"], "sides 1 and 2: player 'ann' stands there twice: name each once"),
        (["ann,", "bob"], "side 1: 'ann,': an empty id: write ids as in ann,bob cy,dee"),
        (["ann", "[1]"], 'side 2: [1]: no JSON list such as ["ann", "bob"]'),
        (["ann", "x" * 300], f"side 2: {'x' * 300!r}: player {'x' * 300!r}: "),
        (["ann,bob", "--teams", "3"], "--teams 3: 2 players can be dealt into 2 to 2 teams"),
        ([*PAIR, "--ranks", "1"], "--ranks 1: 1 for 2 sides: give one for each"),
        ([*PAIR, "--ranks", "1,0"], "--ranks 1,0: '0' is no rank: give whole numbers from 1 to "
                                    "999999999, or - for who did not finish"),
        ([*PAIR, "--config", "c"], "--config is for --file: add it, or leave --config out"),
        ([*PAIR, "--seats", "home"], "--seats home: 1 for 2 sides: give one for each"),
        ([*PAIR, "--seats", "home,"], "--seats home,: '' is no name of a seat: give a text of 1 "),
        ([*PAIR, "--seats", "-,ä"], "--seats -,ä: 'ä' is no name of a seat: "),
        ([*PAIR, "--scores", "1,2"], "--scores is for --ranks: add the ranks that the scores led"),
        ([*PAIR, "--ranks", "1,2", "--scores", "1"], "--scores 1: 1 for 2 sides: give one for"),
        ([*PAIR, "--ranks", "1,2", "--scores", "1,x"],
         "--scores 1,x: 'x' is no score: give numbers such as 4 or -0.5, or - for none"),
    ):  # fmt: skip
        result = run("predict", "--ladder", "l", *words)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"stream-rater: {why}") and result.stderr.count("\n") == 1


def test_the_ladder_of_a_file(tmp_path: Path, file: str) -> None:
    """It must be named if there are several. Refused lines are reported, with exit code 1."""
    others = [event(*ranked([1, 2]), round_id="r", ladder="m", completed_at=day(1))]
    both = written(tmp_path / "b.jsonl", [*season(), *others])
    assert answer("--file", both, "--ladder", "m", "ann", "bob")["ladder"] == "m"
    for words, why in (
        (["--file", both], f"{both}: it has the ladders l, m: name one by --ladder"),
        (["--file", both, "--ladder", "n"], f"{both}: ladder 'n' has no players: no round of it "
         "was rated"),
        ([], "give --ladder, or a file of rounds by --file"),
    ):  # fmt: skip
        assert failed("predict", *words, *PAIR).startswith(why)
    Path(file).write_text(Path(file).read_text() + "{}\n")
    result = run("predict", "--file", file, "ann", "p1")
    assert result.exit_code == 1 and "quality" in result.stdout
    assert result.stderr.splitlines()[-1].endswith("1 round was invalid; the 40 others were taken")


def test_a_file_needs_no_client(file: str) -> None:
    """Neither Kafka's nor Redis's is loaded."""
    code = (
        "import sys; from stream_rater.cli.app import main\n"
        f"main(['predict', '--file', {file!r}, 'ann', 'p1'], standalone_mode=False)\n"
        "assert not {'confluent_kafka', 'redis'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_seeded_players_are_as_the_seed_says(tmp_path: Path) -> None:
    """A reset of somebody unknown makes a ladder of newcomers."""
    seed = a_seed(1, "ann", mu=1800.0, sigma=60.0, rounds=9)
    reset = a_correction("player-reset", at=day(1), round_id="x1", player="x", sigma=99.0)
    newcomer = (1500.0, 350.0, 0)
    for line, first in ((seed, (1800.0, 60.0, 9)), (reset, newcomer)):
        found = answer(*PAIR, "--file", written(tmp_path / "a.jsonl", [line]))
        players = [each for side in found["sides"] for each in side["players"]]
        shown = [(each["mu"], each["sigma"], each["rounds"]) for each in players]
        assert shown == [first, newcomer]


# --- seats and scores -----------------------------------------------------------------------------

SYSTEM = "two-moment"
SEATS = {"home": 80.0, "away": -10.0}


def ladder(**others: Any) -> Ladder:
    found = Ladder(SYSTEM, **{"seats": SEATS, **others})
    for number, (sides, seats, scores) in enumerate(ROUNDS):
        about: Any = {"completed_at": day(number), "round_id": f"r{number}"}
        found.rate(sides, seats=seats, scores=scores, **about)
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
def seated(tmp_path: Path) -> list[str]:
    """The words for the rounds, and for the configuration."""
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"system": SYSTEM, "seats": SEATS}))
    return ["--file", written(tmp_path / "rounds.jsonl", LINES), "--config", str(config)]


def test_tables_say_who_is_at_home() -> None:
    """In the names of columns, or in a column; and what was scored. Points may be NumPy's."""
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


def test_predictions_know_the_seats(seated: list[str]) -> None:
    """They are the same bits in Python, by command and API. A seat without points is none."""

    def wins(of: Ladder, pair: list[str], seats: Any = None) -> list[float]:
        found: list[float] = of.predict(pair, seats=seats).win.tolist()
        return found

    found, there, back = ladder(), ["home", "away"], ["away", "home"]
    at_home = wins(found, PAIR, there)
    assert at_home[0] > wins(found, PAIR)[0] > wins(found, PAIR, back)[0]
    sides = answer(*seated, *PAIR, "--seats", "home,away")["sides"]
    assert [(each["win"], each["seat"]) for each in sides] == list(zip(at_home, there, strict=True))
    assert "seat" not in answer(*seated, *PAIR)["sides"][0]
    players = answers(found, PAIR)
    asked = [SideQuestion(players=[n], seat=seat) for n, seat in zip(PAIR, there, strict=True)]
    assert [each.win for each in prediction(found.parameters, asked, players).sides] == at_home
    new = ["x", "y"]
    one = wins(found, new, there)
    assert one == pytest.approx(wins(found, new, back)[::-1], abs=1e-12)
    assert one[0] == pytest.approx(wins(found, new, [None, "away"])[0], abs=0.1)
    for without in ([None, None], ["gone", None]):
        assert wins(found, new, without) == wins(found, new)
    plain = ladder(seats={})
    assert wins(plain, PAIR, there) == wins(plain, PAIR)


def test_what_if_with_seats_and_scores(seated: list[str]) -> None:
    """In Python and by the command. Rounds in Python are those of a file, and seats matter."""
    found, other = ladder(), Ladder(SYSTEM, seats=SEATS)
    other.rate_file(seated[1])
    assert state(found) == state(other) != state(ladder(seats={}))
    given: dict[str, Any] = {"seats": ["away", "home"], "scores": [1, 0], "completed_at": day(3)}
    now = found.what_if(PAIR, **given)
    changes = answer(
        *seated, *PAIR, "--ranks", "1,2", "--seats", "away,home", "--scores", "1,0"
    )["changes"]  # fmt: skip
    assert [each["mu"] for each in changes] == now.mu.tolist()
    assert now.mu.tolist() == found.rate(PAIR, **given).mu.tolist()
    assert now.mu.tolist() != ladder().what_if(PAIR, completed_at=day(3)).mu.tolist()


def test_the_api_asks_what_if_with_both() -> None:
    """Seats stand in the sides, scores beside the ranks."""
    sides = [SideQuestion(players=["ann"], seat="home"), SideQuestion(players=["bob"])]
    for scores in ([0.0, None], None):
        found = entries_of(WhatIfQuestion(sides=sides, ranks=[1, None], scores=scores))
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
