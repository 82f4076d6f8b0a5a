"""`stream_rater.Ladder`: rounds, what is believed, and what is refused with its place."""

import copy
import html
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from local.tools import ROOT
from stream_rater import BadParameters, InvalidRound, Ladder
from stream_rater.library import tables
from stream_rater.library.parameters import Parameters
from stream_rater.rating.parameters import Kerby, RatingConfig
from stream_rater.rating.record import Unrecordable
from tests.builders.cases import cases

LIMITS: Any = {"weight_limit": 0.2, "sigma_limit": 80.0}


PAIR = ["ann", "bob"]


def a_ladder() -> Ladder:
    """On which ann has beaten bob and cy, and dee tied with them."""
    found = Ladder()
    found.rate([("ann",), ("bob", "cy"), "dee"], ranks=[1, 2, 2])
    return found


@pytest.fixture
def ladder() -> Ladder:
    return a_ladder()


def state(ladder: Ladder) -> list[Any]:
    """All that is to be seen of a ladder."""
    return [ladder.name, ladder.players.to_dicts(), [ladder.record(each) for each in ladder]]


# --- rounds --------------------------------------------------------------------------------------


def test_a_result_has_a_row_for_each_player(ladder: Ladder) -> None:
    """In the order of the sides, whatever their ranks, by the names of `rating-changed`."""
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


def test_sides_are_in_order_unless_ranked() -> None:
    """The winner first."""
    assert Ladder().rate(["ann", "bob", ("cy", "dee")]).rank.tolist() == [1, 2, 3, 3]


def test_numbers_of_numpy_are_numbers() -> None:
    """As ranks, shares, weights and parameters."""
    limits: dict[str, Any] = {"weight_limit": np.float64(0.2), "sigma_limit": np.int64(80)}
    given: dict[str, Any] = {
        "ranks": np.array([2, 1]), "shares": [np.array([0.5, 1.0]), np.float32(0.5)],
        "weight": np.float32(0.5),
    }  # fmt: skip
    one, other = Ladder(**limits), Ladder()
    one.rate([["ann", "bob"], ["cy"]], **given)
    other.rate([["ann", "bob"], ["cy"]], [2, 1], shares=[[0.5, 1], 0.5], weight=0.5)
    assert state(one) == state(other)


@cases("ranks", [[None, None], [1, 1]])
def test_a_round_that_is_not_informative(ranks: list[int | None]) -> None:
    """It has an empty result and makes no player. Its id counts as seen."""
    ladder = Ladder(skip_all_tied=True, **LIMITS)
    found = ladder.rate(["ann", "bob"], ranks, round_id="r")
    assert len(found) == len(ladder) == 0 and found.to_dicts() == []
    assert "which taught nothing" in repr(found)
    with pytest.raises(InvalidRound, match="'r' stands at offset 0"):
        ladder.rate(["ann", "bob"], round_id="r")


def test_no_time_passes_unless_given() -> None:
    """Without `completed_at` a round is as late as the latest before it: nobody drifts."""
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


def test_datetimes_have_a_zone() -> None:
    """Any zone is accepted, and the result is in UTC."""
    east = timezone(timedelta(hours=2, minutes=30, seconds=1))
    ladder = Ladder()
    for time in (datetime(2026, 1, 1, 12, tzinfo=east), datetime(2026, 1, 1, 9, 29, 59, 5, UTC)):
        assert ladder.rate(["ann", "bob"], completed_at=time).completed_at.startswith(
            "2026-01-01T09:29:59"
        )
    assert str(ladder.players.last_completed_at[0]) == "2026-01-01T09:29:59"


LONG = "x" * 129


@cases(
    "given, code, message",
    [
        ({"sides": "ann"}, "malformed", "sides: 'ann' is a text, not a list of sides"),
        ({"sides": 7}, "malformed", "sides: 7 is no list"),
        ({"sides": ["ann", 7]}, "bad-id",
         "sides[1]: 7 is no id: ids are texts, so quote it: '7'"),
        ({"sides": ["ann", ("bob", 7)]}, "bad-id",
         "sides[1][1]: 7 is no id: ids are texts, so quote it: '7'"),
        ({"sides": ["ann", ("bob", b"7")]}, "bad-id",
         "sides[1][1]: b'7' is no id: ids are texts"),
        ({"sides": ["ann", None]}, "malformed", "sides[1]: None is no list"),
        ({"sides": ["ann", ("bob", "")]}, "bad-id", "sides[1][1]: empty"),
        ({"sides": [LONG, "bob"]}, "bad-id", "sides[0]: over 128 bytes"),
        ({"sides": ["\ud800", "bob"]}, "bad-id", "sides[0]: not to be encoded as UTF-8"),
        ({"sides": ["ann", ()]}, "malformed", "sides[1]: nobody: name one player at least"),
        ({"sides": ["ann", ("bob", "ann")]}, "duplicate-player",
         "sides[0] and sides[1][1]: player 'ann' stands in the round twice"),
        ({"sides": ["ann"]}, "too-few-entries", "sides: 1, a round needs 2"),
        ({"sides": []}, "too-few-entries", "sides: 0, a round needs 2"),
        ({"ranks": [1]}, "bad-rank", "ranks: 1 for 2 sides"),
        ({"ranks": [1, 1.5]}, "bad-rank",
         "ranks[1]: 1.5 is no whole number; None: did not finish"),
        ({"ranks": [1, 0]}, "bad-rank", "ranks[1]: not in 1..2147483646"),
        ({"ranks": [2**70, 1]}, "bad-rank", "ranks[0]: not in 1..2147483646"),
        ({"shares": [0.5]}, "bad-shares", "shares: 1 for 2 sides; None: all of it"),
        ({"shares": [None, [1, 0.5]]}, "bad-shares", "shares[1]: 2 for 1 players"),
        ({"shares": [None, 1.5]}, "bad-shares", "shares[1]: 1.5 is not in [1e-06, 1]"),
        ({"shares": [["half"], None]}, "bad-shares", "shares[0][0]: 'half' is no number"),
        ({"weight": "much"}, "bad-weight", "weight: 'much' is no number"),
        ({"weight": 0}, "bad-weight", "weight: 0.0 is not in (0, 1000]"),
        ({"weight": float("nan")}, "bad-weight", "weight: nan is not in (0, 1000]"),
        ({"performance_ceiling": -1e12}, "malformed",
         "performance_ceiling: -1000000000000.0 is not over -1e+09"),
        ({"completed_at": 5}, "bad-time", "completed_at: 5 is neither a datetime nor a text"),
        ({"completed_at": datetime(2026, 1, 1)}, "bad-time",
         "completed_at: a datetime without a zone: give tzinfo=UTC, or another"),
        ({"completed_at": "yesterday"}, "bad-time", "completed_at: Invalid RFC3339"),
        ({"completed_at": "\ud800"}, "bad-time", "completed_at: '\\ud800' is no RFC 3339 time"),
        ({"completed_at": "1850-01-01T00:00:00Z"}, "bad-time",
         "completed_at: before the year 1900"),
        ({"round_id": 7}, "bad-id", "round_id: 7 is no id: ids are texts, so quote it: '7'"),
        ({"round_id": LONG}, "bad-id", "round_id: over 128 bytes"),
        ({"round_id": "notebook-0"}, "duplicate-round",
         "round_id 'notebook-0' stands at offset 0"),
    ],
)  # fmt: skip
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


def test_a_prediction_refuses_what_a_round_does(ladder: Ladder) -> None:
    """By the same rules."""
    wrong: list[dict[str, Any]] = [{"sides": ["ann"]}, {"shares": [None, 0.0]}]
    for given in wrong:
        with pytest.raises(InvalidRound) as reported:
            ladder.predict(**{"sides": PAIR, **given})
        with pytest.raises(InvalidRound) as same:
            ladder.rate(**{"sides": PAIR, **given})
        assert str(reported.value) == str(same.value)


def test_an_error_while_rating_is_undone(ladder: Ladder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is rated again after any error, also after Ctrl-C."""
    before = state(ladder)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("stream_rater.rating.stages.kernels.rate_waves", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ladder.rate(PAIR, round_id="r")
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
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, input=pickle.dumps(ladder), capture_output=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.decode() == f"{ladder['dee']}\n"


# --- what is believed ----------------------------------------------------------------------------


def test_players_are_found_by_id(ladder: Ladder) -> None:
    """A player without rounds is a KeyError, or a newcomer to `get`. Asking makes no player."""
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
    assert len(ladder) == 4


def test_players_are_columns(ladder: Ladder) -> None:
    """The columns have what `[]` gives for each player."""
    for row in ladder.players.to_dicts():
        belief = ladder[row["player"]]
        assert row == {name: getattr(belief, name) for name in row}
    assert ladder.players.mu.dtype == np.float64 and len(ladder.players) == 4


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


def test_a_full_history_has_no_record() -> None:
    """The belief is there all the same."""
    ladder = Ladder(history="full", **LIMITS)
    ladder.rate(PAIR)
    assert ladder["ann"].rounds == 1
    with pytest.raises(Unrecordable, match="set history to a number"):
        ladder.record("ann")


# --- parameters ----------------------------------------------------------------------------------


@cases(
    "given, message",
    [
        ({"system": "elommr"},
         "Ladder: Invalid value 'elommr' - at `$.system`; the systems are bar"),
        ({"weigth_limit": 0.2, "sigma_limit": 80},
         "unknown field `weigth_limit`; the nearest is weight_limit"),
        ({"system": "glicko", "beta": 200.0}, "missing required field `sigma_drift`"),
        ({"weight_limit": 0.2}, "give either weight_limit and sigma_limit, or beta and gamma"),
        ({"weight_limit": -1, "sigma_limit": 80}, "at `$.weight_limit`"),
        ({"system": 7}, "Ladder: "),
    ],
)  # fmt: skip
def test_bad_parameters_are_one_line(given: Any, message: str) -> None:
    """With the place, and what was perhaps meant."""
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


# --- how it is shown -----------------------------------------------------------------------------


def test_a_table_is_cut_and_says_how_many_are_left() -> None:
    """In text and in HTML, where ids command nothing."""
    ladder, names = Ladder(), ["<b>\x1b[2J", *(f"p{i}" for i in range(29))]
    found = ladder.rate(names)
    lines = repr(found).splitlines()
    assert len(lines) == 2 + tables.SHOWN_ROWS + 1 and lines[-1] == "… and 10 more"
    assert lines[2].startswith("<b>\\x1b[2J") and "1500.0" in lines[2]
    page = found._repr_html_()
    assert page.count("<tr>") == 1 + tables.SHOWN_ROWS and "… and 10 more" in page
    assert html.escape("<b>\\x1b[2J") in page and "<b>" not in page
    assert repr(ladder) == "<Ladder 'notebook' by elo-mmr: 30 players>"
    assert "30 players" in repr(ladder.leaderboard())
