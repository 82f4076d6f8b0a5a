"""`stream_rater.Ladder`: rounds, beliefs, refusals with their place; and `rate_file`."""

import base64
import copy
import gzip
import html
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest

import stream_rater
from local.tools import ROOT
from stream_rater import BadParameters, InvalidRound, Ladder, OtherLadder, RefusedLine
from stream_rater.library import rater, tables
from stream_rater.library.parameters import Parameters
from stream_rater.rating.elo_mmr.belief import rate_waves
from stream_rater.rating.parameters import Kerby, RatingConfig
from stream_rater.replay.edited_log import BATCH_BYTES
from tests.builders.cases import cases
from tests.builders.commands import run
from tests.builders.lines import a_correction, a_round

LIMITS: Any = {"weight_limit": 0.2, "sigma_limit": 80.0}
PAIR = ["ann", "bob"]


def a_ladder() -> Ladder:
    """On which ann has beaten bob and cy, and dee tied with them."""
    found = Ladder("elo-mmr")
    found.rate([("ann",), ("bob", "cy"), "dee"], ranks=[1, 2, 2])
    return found


@pytest.fixture
def ladder() -> Ladder:
    return a_ladder()


def state(ladder: Ladder) -> list[Any]:
    return [ladder.name, ladder.players.to_dicts(), [ladder.record(each) for each in ladder]]


def test_a_result_has_a_row_for_each_player(ladder: Ladder) -> None:
    """In the order of sides, with the names of `rating-changed`. By default the first side won."""
    found = ladder.rate(["dee", ("cy", "eve"), "ann"], ranks=[2, None, 1], round_id="r")
    assert found.player.tolist() == ["dee", "cy", "eve", "ann"]
    assert found.side.tolist() == [0, 1, 1, 2] and found.rank.tolist() == [2, 0, 0, 1]
    assert found.rounds.tolist() == [2, 2, 1, 2] and found.provisional.all()
    assert found.previous_mu[2] == 1500.0 and found.previous_sigma[2] == 350.0
    assert found.rating_change == pytest.approx(found.rating - found.previous_rating)
    rows = found.to_dicts()
    assert len(found) == len(rows) == 4 and [row["rank"] for row in rows] == [2, None, None, 1]
    assert rows[3]["mu"] == ladder["ann"].mu and type(rows[3]["rounds"]) is int
    assert found.round_id == "r"
    assert Ladder().rate(["ann", "bob", ("cy", "dee")]).rank.tolist() == [1, 2, 3, 3]


def test_numbers_of_numpy_are_numbers() -> None:
    half: Any = np.float32(0.5)
    limits: Any = {"weight_limit": np.float64(0.2), "sigma_limit": np.int64(80)}
    shares: Any = [np.array([0.5, 1.0]), half]
    ranks: Any = np.array([2, 1])
    one, other = Ladder(**limits), Ladder("elo-mmr")
    one.rate([PAIR, ["cy"]], ranks, shares=shares, weight=half)
    other.rate([PAIR, ["cy"]], [2, 1], shares=[[0.5, 1], 0.5], weight=0.5)
    assert state(one) == state(other)


@cases("ranks", [[None, None], [1, 1]])
def test_a_round_that_is_not_informative(ranks: list[int | None]) -> None:
    """It has an empty result, makes no player and changes no bit. Its id counts as seen."""
    ladder = Ladder(skip_all_tied=True, **LIMITS)
    ladder.rate(PAIR)
    before = state(ladder)
    for sides, name in ((["cy", "dee"], "new"), (PAIR, "r")):
        found = ladder.rate(sides, ranks, round_id=name)
        assert found.to_dicts() == [] and state(ladder) == before
    assert "which taught nothing" in repr(found)
    with pytest.raises(InvalidRound, match="'r' stands at offset 2"):
        ladder.rate(PAIR, round_id="r")
    assert len(Ladder(**LIMITS).rate(PAIR, [1, 1])) == 2


def test_no_time_passes_unless_given() -> None:
    """A round without a time has the latest time before it. The result is in UTC."""
    ladder, same, later = (Ladder(drift_per_day=50.0, **LIMITS) for _ in range(3))
    times = ["1970-01-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-01-01T00:00:00Z"]
    reported = [ladder.rate(PAIR).completed_at]
    ladder.rate(PAIR, completed_at="2026-03-01T01:00:00+01:00")
    ladder.rate(PAIR, completed_at=times[2])
    reported.append(ladder.rate(["bob", "ann"]).completed_at)
    assert reported == times[:2] and ladder["ann"].last_completed_at == times[1]
    for each, last in ((same, times[1]), (later, "2026-03-02T00:00:00Z")):
        for time in times:
            each.rate(PAIR, completed_at=time)
        each.rate(["bob", "ann"], completed_at=last)
    assert ladder["ann"] == same["ann"] and ladder["ann"].sigma < later["ann"].sigma
    ladder, utc = Ladder(), "2026-01-01T09:29:59"
    east = timezone(timedelta(hours=2, minutes=30, seconds=1))
    for at in (datetime(2026, 1, 1, 12, tzinfo=east), datetime(2026, 1, 1, 9, 29, 59, 5, UTC)):
        assert ladder.rate(PAIR, completed_at=at).completed_at.startswith(utc)
    assert str(ladder.players.last_completed_at[0]) == utc


LONG = "x" * 129


class Names(set[str]):
    """A set by another name."""


@cases("given, code, message", [
    ({"sides": "ann"}, "malformed", "sides: 'ann' is a text, not a list of sides"),
    ({"sides": 7}, "malformed", "sides: 7 is no list"),
    *(({"sides": each}, "malformed", f"sides: a {type(each).__name__} has no order that counts: "
       "give a list, with ranks apart, as ranks=[1, 2]")
      for each in ({*PAIR}, frozenset(PAIR), dict.fromkeys(PAIR, 1))),
    ({"sides": ["ann", {"bob", "cy"}]}, "malformed", "sides[1]: a set has no order"),
    ({"sides": [["ann"], Names({"bob"})]}, "malformed", "sides[1]: a Names has no order"),
    ({"ranks": {1, 2}}, "malformed", "ranks: a set has no order"),
    ({"ranks": []}, "bad-rank", "ranks: 0 for 2 sides"),
    ({"sides": ["ann", 7]}, "bad-id", "sides[1]: 7 is no id: ids are texts, so quote it: '7'"),
    ({"sides": ["ann", ("bob", 7)]}, "bad-id", "sides[1][1]: 7 is no id: ids are texts, so"),
    ({"sides": ["ann", ("bob", b"7")]}, "bad-id", "sides[1][1]: b'7' is no id: ids are texts"),
    ({"sides": ["ann", None]}, "malformed", "sides[1]: None is no list"),
    ({"sides": ["ann", ("bob", "")]}, "bad-id", "sides[1][1]: empty"),
    ({"sides": [LONG, "bob"]}, "bad-id", "sides[0]: over 128 bytes"),
    ({"sides": ["\ud800", "bob"]}, "bad-id", "sides[0]: not to be encoded as UTF-8"),
    ({"sides": ["ann", ()]}, "malformed", "sides[1]: nobody: name one player at least"),
    ({"sides": ["ann", ("bob", "ann")]}, "duplicate-player", "sides[0] and sides[1][1]:"),
    ({"sides": ["ann"]}, "too-few-entries", "sides: 1, a round needs 2"),
    ({"sides": []}, "too-few-entries", "sides: 0, a round needs 2"),
    ({"ranks": [1]}, "bad-rank", "ranks: 1 for 2 sides"),
    ({"ranks": [1, 1.5]}, "bad-rank", "ranks[1]: 1.5 is no whole number; None: did not finish"),
    ({"ranks": [1, 0]}, "bad-rank", "ranks[1]: not in 1..2147483646"),
    ({"ranks": [2**70, 1]}, "bad-rank", "ranks[0]: not in 1..2147483646"),
    ({"shares": [0.5]}, "bad-shares", "shares: 1 for 2 sides; None: all of it"),
    ({"shares": [None, [1, 0.5]]}, "bad-shares", "shares[1]: 2 for 1 players"),
    ({"shares": [None, 1.5]}, "bad-shares", "shares[1]: 1.5 is not in [1e-06, 1]"),
    ({"shares": [["half"], None]}, "bad-shares", "shares[0][0]: 'half' is no number"),
    ({"weight": "much"}, "bad-weight", "weight: 'much' is no number"),
    ({"weight": 0}, "bad-weight", "weight: 0.0 is not in (0, 1000]"),
    ({"weight": float("nan")}, "bad-weight", "weight: nan is not in (0, 1000]"),
    ({"performance_ceiling": -1e12}, "malformed", "performance_ceiling: -1000000000000.0 is not"),
    ({"completed_at": 5}, "bad-time", "completed_at: 5 is neither a datetime nor a text"),
    ({"completed_at": datetime(2026, 1, 1)}, "bad-time", "completed_at: a datetime without"),
    ({"completed_at": "yesterday"}, "bad-time", "completed_at: Invalid RFC3339 "
     "encoded datetime: write a day, a time and a zone, as 2020-01-01T00:00:00Z"),
    ({"completed_at": "\ud800"}, "bad-time", "completed_at: '\\ud800' is no RFC 3339 time"),
    ({"completed_at": "1850-01-01T00:00:00Z"}, "bad-time", "completed_at: before the year"),
    ({"round_id": 7}, "bad-id", "round_id: 7 is no id: ids are texts, so quote it: '7'"),
    ({"round_id": LONG}, "bad-id", "round_id: over 128 bytes"),
    ({"round_id": "notebook-0"}, "duplicate-round", "round_id 'notebook-0' stands at offset 0"),
])  # fmt: skip
def test_an_invalid_round_changes_nothing(given: dict[str, Any], code: str, message: str) -> None:
    """One line says why, and where in the arguments; the next round is as if it had not been."""
    ladder, same = a_ladder(), a_ladder()
    before = state(ladder)
    with pytest.raises(InvalidRound) as refused:
        ladder.rate(**{"sides": PAIR, **given})
    assert refused.value.code == code and str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)
    assert state(ladder) == before
    assert ladder.rate(PAIR).round_id == same.rate(PAIR).round_id
    assert state(ladder) == state(same)


def test_numbers_of_players_and_of_the_release(ladder: Ladder) -> None:
    """The most players are a whole number, or one line says so."""
    assert len(ladder.leaderboard(np.int64(1))) == 1  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="most: '5' is no whole number; None: all players"):
        ladder.leaderboard("5")  # type: ignore[arg-type]
    assert stream_rater.__version__ == version("stream-rater")


def test_an_error_while_rating_is_undone(ladder: Ladder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is rated again after any error, also after Ctrl-C."""
    before = state(ladder)
    with monkeypatch.context() as patch:
        interrupted = Mock(side_effect=KeyboardInterrupt)
        patch.setattr("stream_rater.rating.stages.belief.rate_waves", interrupted)
        patch.setattr("stream_rater.replay.single.PlainRounds.rate", interrupted)
        for sides in (PAIR, ["ann", "bob", "cy"]):
            with pytest.raises(KeyboardInterrupt):
                ladder.rate(sides, round_id="r")
    assert state(ladder) == before
    assert len(ladder.rate(PAIR, round_id="r")) == 2


def test_a_copy_is_another_ladder(ladder: Ladder) -> None:
    """It has the same rounds, and goes on by itself; in another process, too."""
    before = state(ladder)
    for copied in (copy.deepcopy(ladder), pickle.loads(pickle.dumps(ladder))):
        assert state(copied) == before
        copied.rate(PAIR)
        assert state(copied) != before == state(ladder)
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)['dee'])"
    command, given = [sys.executable, "-c", code], pickle.dumps(ladder)
    printed = subprocess.run(command, cwd=ROOT, input=given, capture_output=True, check=True).stdout
    assert printed.decode() == f"{ladder['dee']}\n"


def test_players_are_found_by_id(ladder: Ladder) -> None:
    """A player without rounds is a KeyError, but `get` gives a newcomer. Asking makes no player."""
    assert list(ladder) == ["ann", "bob", "cy", "dee"] and len(ladder) == 4
    assert "ann" in ladder and "eve" not in ladder and 7 not in ladder
    assert ladder["ann"] == ladder.get("ann") and ladder["ann"].rounds == 1
    with pytest.raises(KeyError, match=r"'eve' has played no round here; get\(\) gives"):
        ladder["eve"]
    with pytest.raises(KeyError, match=r"'eve' has played no round here"):
        ladder.record("eve")
    newcomer = ladder.get("eve")
    assert (newcomer.mu, newcomer.sigma, newcomer.rating) == (1500.0, 350.0, 960.0)
    assert (newcomer.rounds, newcomer.provisional, newcomer.last_completed_at) == (0, True, None)
    with pytest.raises(InvalidRound, match="player: empty"):
        ladder.get("")
    for row in ladder.players.to_dicts():
        belief = ladder[row["player"]]
        assert row == {name: getattr(belief, name) for name in row}
    assert ladder.players.mu.dtype == np.float64 and len(ladder.players) == len(ladder) == 4


def test_the_same_rating_is_the_same_rank() -> None:
    """In order of id; after it as many ranks are left out. No more than asked for."""
    ladder = Ladder("elo", learning_rate=32.0, scale=174.0)
    for winner, loser in (("z", "a"), ("y", "b"), ("m", "c")):
        ladder.rate([winner, loser])
    ladder.rate(["m", "d"])
    board = ladder.leaderboard()
    assert board.player.tolist() == ["m", "y", "z", "d", "a", "b", "c"]
    assert board.rank.tolist() == [1, 2, 2, 4, 5, 5, 5]
    assert list(board.to_dicts()[0]) == ["rank", *ladder.players.to_dicts()[0], "percentile"]
    assert board.percentile.tolist() == [100.0 * (7 - rank) / 7 for rank in board.rank.tolist()]
    for most in range(9):
        assert ladder.leaderboard(most).to_dicts() == board.to_dicts()[:most]
    assert len(ladder.leaderboard(-1)) == len(Ladder().leaderboard(3)) == 0


@cases("given, message", [
    ({"system": "elommr"}, "Invalid value 'elommr' - at `$.system`; the systems are bar"),
    ({"weigth_limit": 0.2, "sigma_limit": 80}, "`weigth_limit`; the nearest is weight_limit"),
    ({"system": "glicko", "beta": 200.0}, "missing required field `sigma_drift`"),
    ({"weight_limit": 0.2}, "give either weight_limit and sigma_limit, or beta and gamma"),
    ({"weight_limit": -1, "sigma_limit": 80}, "at `$.weight_limit`"), ({"system": 7}, "Ladder: "),
])  # fmt: skip
def test_bad_parameters_are_one_line(given: Any, message: str) -> None:
    with pytest.raises(BadParameters) as refused:
        Ladder(**given)
    assert message in str(refused.value) and str(refused.value).startswith("Ladder: ")
    assert "\n" not in str(refused.value)


def test_every_parameter_is_a_keyword() -> None:
    """That type checkers know: those of all systems, and no other."""
    every = {
        field for system in (*RatingConfig.__args__, *Kerby.__args__)
        for field in system.__struct_fields__
    }  # fmt: skip
    assert set(Parameters.__annotations__) == every


def test_a_table_is_cut_and_says_how_many_are_left() -> None:
    """In text and in HTML, where ids command nothing, not in the line above either."""
    ladder, names = Ladder("elo-mmr"), ["<b>\x1b[2J", *(f"p{i}" for i in range(29))]
    found = ladder.rate(names, round_id="\x1b[2J")
    lines = repr(found).splitlines()
    assert len(lines) == 2 + tables.SHOWN_ROWS + 1 and lines[-1] == "… and 10 more"
    assert lines[0].startswith("round \\x1b[2J, ")
    assert lines[2].startswith("<b>\\x1b[2J") and "1500.0" in lines[2]
    page = found._repr_html_()
    assert page.count("<tr>") == 1 + tables.SHOWN_ROWS and "… and 10 more" in page
    assert html.escape("<b>\\x1b[2J") in page and "<b>" not in page
    assert repr(ladder) == "<Ladder 'notebook' by elo-mmr: 30 players>"
    assert "30 players" in repr(ladder.leaderboard())


# --- files ----------------------------------------------------------------------------------------

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:

    def written(name: str, lines: Sequence[Any]) -> Path:
        texts = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines]
        text = b"".join(each + b"\n" for each in texts)
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
        return tmp_path / name

    return written


def duels(count: int, first: int = 0, ladder: str = "duel") -> list[dict[str, Any]]:
    """Among six players."""
    pairs = [(i, f"p{i % 6}", f"p{(i + 1 + i % 4) % 6}") for i in range(first, first + count)]
    return [a_round(*each, ladder=ladder) for each in pairs]


def rated(path: Path) -> list[Any]:
    """What `stream-rater rate` prints about a file's players."""
    return [json.loads(line) for line in run("rate", path, "--records").stdout.splitlines()]


def ratings_of(ladder: Ladder) -> list[Any]:
    names = "player", "mu", "sigma", "rating", "rounds"
    return [
        {"ladder": ladder.name, **{name: row[name] for name in names},
         "record": base64.b64encode(ladder.record(row["player"])).decode()}
        for row in ladder.leaderboard().to_dicts()
    ]  # fmt: skip


def rate_one(ladder: Ladder, line: dict[str, Any]) -> None:
    names, ranks = zip(*((each["player"], each["rank"]) for each in line["standings"]), strict=True)
    ladder.rate(names, ranks, completed_at=line["completed_at"], round_id=line["round_id"])


@cases("name", ["rounds.jsonl", "rounds.jsonl.gz"])
def test_a_file_is_rated_as_by_the_command(write: Write, name: str) -> None:
    """Each number and each record is the same. What is no round is reported with its line."""
    light = {**a_round(99, "ann", "bob", ladder="duel"), "weight": 0}
    lines = [*duels(40), b"", b"junk", light, a_round(41, "a", "b", ladder="duel")]
    ladder = Ladder()
    found = ladder.rate_file(write(name, lines))
    assert (found.rounds, found.updates, found.ladder) == (41, 82, "duel")
    assert (found.refused, found.other_rounds, found.corrections) == (2, 0, 0)
    bad, weightless = found.refusals
    assert (bad.line, bad.code) == (42, "malformed")
    assert weightless == RefusedLine(43, "bad-weight", "weight: 0.0 is not in (0, 1000]")
    assert ratings_of(ladder) == rated(write(name, lines)) and len(ladder) == 8


def test_ids_count_in_all_of_them(write: Write) -> None:
    """A round that was given is refused in a file, and the other way round."""
    lines = duels(5)
    ladder = Ladder()
    rate_one(ladder, lines[2])
    found = ladder.rate_file(write("all.jsonl", lines))
    again = RefusedLine(3, "duplicate-round", "round_id 'r2' stands at offset 0")
    assert (found.rounds, found.refusals) == (4, (again,))
    with pytest.raises(ValueError, match="'r3' stands at offset 4"):
        rate_one(ladder, lines[3])


def test_a_file_of_several_ladders_needs_a_choice(write: Write) -> None:
    """The first round of another one is named, and nothing was changed."""
    lines = [*duels(3), a_round(9, "x", "y", ladder="arena"), *duels(3, first=10)]
    path, ladder = write("mixed.jsonl", lines), Ladder()
    with pytest.raises(OtherLadder) as refused:
        ladder.rate_file(path)
    why = "a round of ladder 'arena' among those of 'duel': say which to rate, as ladder='duel'"
    assert str(refused.value) == f"{path}:4: {why}"
    assert (len(ladder), ladder.name) == (0, "notebook")
    found = ladder.rate_file(path, ladder="duel")
    assert (found.rounds, found.other_rounds, found.updates) == (6, 1, 12)
    assert ratings_of(ladder) == [each for each in rated(path) if each["ladder"] == "duel"]
    arena = Ladder()
    arena.rate_file(path, ladder="arena")
    assert ratings_of(arena) == [each for each in rated(path) if each["ladder"] == "arena"]


def test_a_ladder_that_no_round_of_a_file_has(write: Write) -> None:
    """The ladders of the file are named. Nothing was changed, also after a file of no ladder."""
    path, ladder, other = write("duel.jsonl", duels(3)), Ladder(), Ladder()
    with pytest.raises(OtherLadder, match=r"duel.jsonl: no round of ladder 'dual': its .* 'duel'"):
        ladder.rate_file(path, ladder="dual")
    assert (len(ladder), ladder.name) == (0, "notebook")
    ladder.rate_file(path)
    assert ratings_of(ladder) == rated(path)
    assert other.rate_file(write("junk.jsonl", [{"a": 1}])).refused == 1
    assert (other.rate_file(path).rounds, other.name) == (3, "duel")


def test_a_ladder_stays_one(write: Write) -> None:
    """Once a file has named it, no file of another one is rated."""
    ladder = Ladder()
    ladder.rate_file(write("duel.jsonl", duels(3)))
    before, arena = state(ladder), write("arena.jsonl", duels(3, ladder="arena"))
    with pytest.raises(OtherLadder, match=r"arena.jsonl:1: a round of ladder 'arena'"):
        ladder.rate_file(arena)
    with pytest.raises(OtherLadder, match="ladder 'arena', but this one is 'duel': make another"):
        ladder.rate_file(arena, ladder="arena")
    assert state(ladder) == before
    assert ladder.rate_file(write("junk.jsonl", [{"a": 1}])).rounds == 0
    assert state(ladder) == before


VOIDED = a_correction("round-voided", ladder="duel", round_id="r7")
REMOVED = a_correction("player-removed", ladder="duel", player="p3")
MERGED = a_correction("player-merged", ladder="duel", player="p0", into="new")
SEASON = a_correction("season-started", ladder="duel", season=1, keep=0.5, sigma=200)
UNKNOWN = a_correction("round-voided", ladder="duel", round_id="nobody's")
NEW = a_round(40, "new", "p9", ladder="duel")


def test_a_file_is_rated_as_its_corrections_make_it(write: Write) -> None:
    """The players are as by the command. A rejected correction is reported with its line."""
    lines = [*duels(12), SEASON, *duels(6, first=12), VOIDED, UNKNOWN, REMOVED, *duels(6, first=18)]
    ladder, path = Ladder(), write("all.jsonl", lines)
    found = ladder.rate_file(path)
    assert (found.rounds, found.corrections, found.refused) == (24, 3, 1)
    unknown = RefusedLine(21, "unknown-round", 'round_id "nobody\'s" is not on this ladder')
    assert found.refusals == (unknown,)
    assert ratings_of(ladder) == rated(path) and "p3" not in ladder


@cases("correction", [VOIDED, REMOVED, MERGED, SEASON])
def test_a_correction_reaches_back(write: Write, correction: dict[str, Any]) -> None:
    """It edits earlier rounds and files, and it counts for what is given later. All of them are one
    log, whoever gives which part; the file gives the ladder its name."""
    lines = [*duels(15), NEW, correction, *duels(6, first=20)]
    ladder = Ladder()
    for each in lines[:6]:
        rate_one(ladder, each)
    assert ladder.name == "notebook"
    ladder.rate_file(str(write("some.jsonl", lines[6:16])))
    assert ladder.name == "duel"
    found = ladder.rate_file(write("corrections.jsonl", lines[16:20]))
    assert (found.rounds, found.corrections, found.refused) == (3, 1, 0)
    ladder.rate_file(write("more.jsonl.gz", lines[20:21]))
    for each in lines[21:]:
        rate_one(ladder, each)
    assert ratings_of(ladder) == rated(write("all.jsonl", lines))


def test_corrections_count_for_the_next_round(write: Write) -> None:
    """A season shows at once. A merged player has the new id, a removed player no row."""
    ladder = Ladder("elo-mmr")
    ladder.rate_file(write("a.jsonl", [*duels(12), NEW]))
    before = ladder["p1"]
    ladder.rate_file(write("b.jsonl", [SEASON]))
    after = ladder["p1"]
    assert after.mu == pytest.approx(0.5 * (1500.0 + before.mu), abs=1.0) and after.sigma == 200.0
    assert ladder.players.to_dicts()[1]["mu"] == after.mu
    assert ladder.get("nobody") == Ladder("elo-mmr").get("nobody")
    ladder.rate_file(write("c.jsonl", [REMOVED, MERGED]))
    given: Any = ["p4", ("p3", "p1"), "p0", "newcomer"], [3, 1, 2, 4]
    would, found = ladder.what_if(*given), ladder.rate(*given)
    assert found.player.tolist() == ["p4", "p1", "new", "newcomer"]
    assert found.side.tolist() == [0, 1, 2, 3] and found.rank.tolist() == [3, 1, 2, 4]
    assert would.to_dicts() == found.to_dicts()
    assert len(ladder.rate(["p3", "p1"])) == 0


def test_a_file_that_ends_too_early_changes_nothing(write: Write) -> None:
    """However much of it was rated, on a ladder with rounds and on one without."""
    ladder = Ladder()
    ladder.rate_file(write("good.jsonl", duels(10)))
    before, same = state(ladder), write("more.jsonl", duels(50, first=10))
    lines = duels(4000, first=1000)
    cut = write("cut.jsonl.gz", lines)
    assert sum(len(json.dumps(each)) for each in lines) > 2 * BATCH_BYTES
    cut.write_bytes(cut.read_bytes()[:-9])
    for each in (ladder, Ladder()):
        with pytest.raises(OSError, match=r"cut.jsonl.gz: the compressed file is cut off"):
            each.rate_file(cut)
    assert state(ladder) == before
    ladder.rate_file(same)
    assert ratings_of(ladder) == rated(write("all.jsonl", duels(60)))


def test_a_file_that_is_broken_off_is_undone(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes in the middle of the file: what was rated before is rated again."""
    ladder, path = Ladder("elo-mmr"), write("long.jsonl", duels(4000, first=10))
    ladder.rate_file(write("a.jsonl", duels(10)))
    before, kernel = state(ladder), "stream_rater.rating.stages.belief.rate_waves"
    interrupted = Mock(wraps=rate_waves, side_effect=[DEFAULT, KeyboardInterrupt])
    with monkeypatch.context() as patch:
        patch.setattr(kernel, interrupted)
        with pytest.raises(KeyboardInterrupt):
            ladder.rate_file(path)
    assert state(ladder) == before
    assert ladder.rate_file(path).rounds == 4000


def test_other_files_are_named(write: Write) -> None:
    """In one line; and one that is not there."""
    for text in (b"player,rank", b"[{}]"):
        with pytest.raises(OSError, match=r"other.txt: no JSON lines"):
            Ladder().rate_file(write("other.txt", [text]))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Ladder().rate_file("nowhere.jsonl")


def test_a_file_must_be_what_it_was(write: Write) -> None:
    """If a correction makes the ladder read it again: else the log would be another one."""
    ladder = Ladder()
    path = write("a.jsonl", duels(12))
    ladder.rate_file(path)
    before, correction = state(ladder), write("b.jsonl", [*duels(3, first=20), VOIDED])
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(OSError, match=r"a.jsonl: has changed since it was rated"):
        ladder.rate_file(correction)
    path.unlink()
    with pytest.raises(OtherLadder):
        ladder.rate_file(write("c.jsonl", [*duels(3, first=20), a_round(9, "x", "y", ladder="z")]))
    assert state(ladder) == before
    assert ladder.rate_file(write("d.jsonl", duels(3, first=20))).rounds == 3


def test_the_first_refusals_are_kept(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than anybody reads; all are counted."""
    monkeypatch.setattr(rater, "MOST_REJECTED_LINES", 3)
    found = Ladder().rate_file(write("a.jsonl", [*duels(1), *({"n": i} for i in range(9))]))
    assert found.refused == 9 and [each.line for each in found.refusals] == [2, 3, 4]
