"""What a result would change: the same numbers as rating it, and nothing is changed."""

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from stream_rater import InvalidRound, Ladder
from stream_rater.library.results import RoundResult
from stream_rater.rating.parameters import Glicko, RatingConfig, TrueSkill
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.property.test_notebook import DRIFTING, ladder_of

FULL = DRIFTING.__class__(weight_limit=0.1, sigma_limit=60.0, history="full")
SIDES: list[Any] = [("ann", "eve"), "bob", ("cy", "newcomer")]


def season(rating: RatingConfig) -> Ladder:
    """Some rounds, days apart."""
    ladder = ladder_of(rating)
    places: list[list[int | None]] = [[1, 2, 2, 3], [2, 1, None, 3], [1, 2, 3, 4]]
    for day, ranks in enumerate(places * 4):
        at = f"2026-01-{day + 1:02}T12:00:00Z"
        ladder.rate(["ann", "bob", "cy", "dee"], ranks, completed_at=at)
    return ladder


def same(one: RoundResult, other: RoundResult) -> None:
    """But for the round's id."""
    columns = other.columns()
    assert list(one.columns()) == list(columns)
    for name, column in one.columns().items():
        assert column.tolist() == columns[name].tolist(), name


@pytest.mark.parametrize(
    "rating", [*SYSTEMS, DRIFTING, FULL], ids=lambda rating: rating.__struct_config__.tag
)
@pytest.mark.parametrize("ranks", [[2, 1, 3], [1, 1, 2], [None, 1, None], [1, 1, 1]])
def test_as_if_it_were_rated(rating: RatingConfig, ranks: list[int | None]) -> None:
    """To the last bit, by every system; then everybody is as before."""
    ladder = season(rating)
    before = ladder.players.to_dicts()
    more: dict[str, Any] = {
        "shares": [None, None, [1, 0.5]], "weight": 1.5, "performance_ceiling": 1700.0,
        "completed_at": "2026-03-01T00:00:00Z",
    }  # fmt: skip
    found = ladder.what_if(SIDES, ranks, **more)
    assert ladder.players.to_dicts() == before
    same(found, ladder.rate(SIDES, ranks, **more))


def test_by_the_corrections_of_the_ladder(tmp_path: Path) -> None:
    """Who was merged plays as the other one, who was removed does not play, and a season draws."""
    file = tmp_path / "corrections.jsonl"
    file.write_text(
        '{"event_type": "player-merged", "ladder": "notebook", "player": "eve", "into": "dee"}\n'
        '{"event_type": "player-removed", "ladder": "notebook", "player": "bob"}\n'
        '{"event_type": "season-started", "ladder": "notebook", "season": 2, "keep": 0.5}\n'
    )
    ladder = season(SYSTEMS[0])
    ladder.rate(["eve", "fay"])
    assert ladder.rate_file(file).refusals == ()
    found = ladder.what_if(SIDES, [2, 1, 3])
    assert found.player.tolist() == ["ann", "dee", "cy", "newcomer"]
    same(found, ladder.rate(SIDES, [2, 1, 3]))


def test_a_round_that_cannot_be_rated_is_refused() -> None:
    """As by `rate`."""
    ladder = season(SYSTEMS[0])
    for sides, ranks in ((["ann", "ann"], None), (["ann", "bob"], [0, 1]), (["ann"], None)):
        with pytest.raises(InvalidRound) as would:
            ladder.what_if(sides, ranks)
        with pytest.raises(InvalidRound) as does:
            copy.deepcopy(ladder).rate(sides, ranks)
        assert str(would.value) == str(does.value)


def test_teams_of_a_ladder() -> None:
    """Sides that are as even as can be, newcomers among them."""
    ladder = season(SYSTEMS[0])
    names = ["ann", "bob", "cy", "dee", "new", "newer"]
    teams = ladder.balance(names)
    assert sorted(player for team in teams for player in team) == sorted(names)
    quality = ladder.predict(teams).quality
    for one in range(1, 5):
        for two in range(one + 1, 6):
            team = [names[0], names[one], names[two]]
            others = [each for each in names if each not in team]
            assert ladder.predict([team, others]).quality <= quality + 1e-9
    assert ladder.balance(names[::-1]) != []
    assert {frozenset(t) for t in ladder.balance(names[::-1])} == {frozenset(t) for t in teams}


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda ladder: ladder.balance(["ann", "bob"], 3), "teams: 3 of 2 players: give a whole"),
        (lambda ladder: ladder.balance(["ann", "ann"]), "player 'ann' stands in the round twice"),
        (lambda ladder: ladder.predict(["ann", "bob"], variance_factor=0.0),
         "variance_factor: 0.0 is not above 0; 1 is the model as it is"),
        (lambda ladder: ladder.predict(["ann", "bob"], variance_factor="2"),
         "variance_factor: '2' is no number"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(ask: Any, why: str) -> None:
    """In one line, with its place and the cure."""
    with pytest.raises(InvalidRound, match=why.replace("[", r"\[")):
        ask(Ladder())


def test_draws_are_where_the_ladder_has_them() -> None:
    """By TrueSkill, as often as performances differ by twice its draw margin at most; by any system
    with a `draw_width`, as often as they differ by that; nowhere else."""
    trueskill = TrueSkill(beta=200.0, sigma_drift=35.0, draw_margin=60.0)
    glicko = Glicko(beta=200.0 * math.sqrt(2.0), sigma_drift=35.0, draw_width=120.0)
    spread = np.sqrt(350.0**2 + 200.0**2 + 35.0**2)
    played = np.random.default_rng(1).normal(0.0, spread, (400_000, 3))
    played.sort(axis=1)
    for rating in (trueskill, glicko, structs.replace(trueskill, draw_margin=1, draw_width=120.0)):
        found = ladder_of(rating).predict(["ann", "bob", "cy"])
        assert found.draw == pytest.approx((played[:, 2] - played[:, 1] <= 120.0).mean(), abs=0.003)
        assert found.win.sum() + found.draw == pytest.approx(1.0)
        assert f"draw {found.draw:.3f}" in found.title
    assert season(SYSTEMS[0]).predict(["ann", "bob", "cy"]).draw == 0.0
