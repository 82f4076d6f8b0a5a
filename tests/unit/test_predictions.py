"""Predictions compared with a simulation; effects of a result; even teams; explanations."""

import copy
import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from msgspec import structs

from stream_rater import InvalidRound, Ladder
from stream_rater.columns.arrays import Floats
from stream_rater.index.entries import IndexedChange
from stream_rater.rating import balance, record, wins
from stream_rater.rating.balance import ImpossibleGroups, deals, even_teams
from stream_rater.rating.factor import WIDTH_SHIFT, factors_of
from stream_rater.rating.model import Beliefs
from stream_rater.rating.parameters import EloMMR, Glicko, RatingConfig, TrueSkill, TwoMoment
from stream_rater.rating.roots import TOLERANCE
from stream_rater.rating.stages import rule_of
from stream_rater.runtime.selfcheck import SYSTEMS
from stream_rater.serve.bodies import ExplainAnswer
from stream_rater.serve.explaining import explain_belief
from tests.elo_mmr_oracle import zero
from tests.property.test_notebook import DRIFTING, ladder_of

DRAWS = 400_000
CONFIG = EloMMR(beta=200.0, gamma=50.0)
NOISE = 200.0**2 + 50.0**2


def sides(mu: Sequence[float] | Floats, sigma: Sequence[float] | Floats) -> wins.Performances:
    return wins.Performances(np.array(mu, np.float64), np.array(sigma, np.float64))


def test_as_often_as_in_a_simulation() -> None:
    """Wins and ranks of as many rounds as make five standard errors small."""
    for some in (
        sides([1500.0, 1600.0, 1400.0], [200.0, 300.0, 100.0]),
        sides([1500.0] * 12, [250.0] * 12),
        sides([0.0, 10.0, 20.0, 500.0], [1.0, 5.0, 300.0, 2.0]),
        sides(range(1000, 2000, 50), range(50, 450, 20)),
    ):
        rng, count = np.random.default_rng(1), len(some.mu)
        played = rng.normal(some.mu, some.sigma, (DRAWS, count))
        won = np.bincount(played.argmax(axis=1), minlength=count) / DRAWS
        ranks = 1.0 + (-played).argsort(axis=1).argsort(axis=1).mean(axis=0)
        error = 5.0 / math.sqrt(DRAWS)
        assert wins.win_probabilities(some) == pytest.approx(won, abs=0.5 * error), count
        assert wins.expected_ranks(some) == pytest.approx(ranks, abs=error * count / 2.0), count


def test_a_sides_performance_is_a_teams() -> None:
    """Deviations and variances add up by shares, beta with them (section 3.3)."""
    found = wins.performances_of(
        CONFIG, np.array([0, 1, 3]), np.array([1.0, 1.0, 0.5]), np.array([1600.0, 1700.0, 1300.0]),
        np.array([90.0, 80.0, 70.0]),
    )  # fmt: skip
    assert found.mu == pytest.approx([1600.0, 1500.0 + 200.0 - 100.0])
    variances = [90.0**2 + NOISE, 80.0**2 + NOISE + 0.25 * (70.0**2 + NOISE)]
    assert found.sigma**2 == pytest.approx(variances)
    of_three = TwoMoment(team_noise=0.25), np.array([0, 2, 5]), np.ones(5), np.zeros(5), np.zeros(5)
    noise = of_three[0].chances.noise  # of two members as ever, of three times their root
    found = wins.performances_of(*of_three, 2.0)
    assert found.sigma**2 == pytest.approx([4.0 * noise, 6.0 * math.sqrt(3.0) * noise])


def test_newcomers_are_as_believed() -> None:
    """Nobody need have played, and nobody plays by being asked for."""
    ladder = Ladder(initial_mu=1000.0, weight_limit=0.2, sigma_limit=80.0)
    found = ladder.predict(["x", ("y", "z"), "w"])
    assert found.win[1] < found.win[0]  # the mean of two varies less
    assert found.win[0] == pytest.approx(found.win[2], abs=1e-12)
    assert found.expected_rank == pytest.approx([2.0, 2.0, 2.0])
    assert len(ladder) == 0
    rows = found.to_dicts()
    assert [row["players"] for row in rows] == [("x",), ("y", "z"), ("w",)]
    assert sum(row["win"] for row in rows) == pytest.approx(1.0)
    assert f"y, z {rows[1]['win']:.3f}" in " ".join(repr(found).split())


FULL = DRIFTING.__class__(weight_limit=0.1, sigma_limit=60.0, history="full")
SIDES: list[Any] = [("ann", "eve"), "bob", ("cy", "newcomer")]


def played_for_days(rating: RatingConfig) -> Ladder:
    ladder = ladder_of(rating)
    places: list[list[int | None]] = [[1, 2, 2, 3], [2, 1, None, 3], [1, 2, 3, 4]]
    for day, ranks in enumerate(places * 4):
        at = f"2026-01-{day + 1:02}T12:00:00Z"
        ladder.rate(["ann", "bob", "cy", "dee"], ranks, completed_at=at)
    return ladder


def test_as_if_it_were_rated() -> None:
    """To the last bit, by every system; then everybody is as before."""
    more: dict[str, Any] = {
        "shares": [None, None, [1, 0.5]], "weight": 1.5, "performance_ceiling": 1700.0,
        "completed_at": "2026-03-01T00:00:00Z",
    }  # fmt: skip
    results: list[list[int | None]] = [[2, 1, 3], [1, 1, 2], [None, 1, None], [1, 1, 1]]
    for rating in (*SYSTEMS, DRIFTING, FULL):
        whole = played_for_days(rating)
        for ranks in results:
            ladder = copy.deepcopy(whole)
            before = ladder.players.to_dicts()
            found = ladder.what_if(SIDES, ranks, **more)
            assert ladder.players.to_dicts() == before, (rating, ranks)
            assert found.to_dicts() == ladder.rate(SIDES, ranks, **more).to_dicts()


def test_what_makes_no_sense_is_refused() -> None:
    """In one line, with its place and the cure; a round that cannot be rated as by `rate`."""
    ladder = played_for_days(SYSTEMS[0])
    rounds: list[dict[str, Any]] = [
        {"sides": ["ann", "ann"]}, {"sides": ["ann"]},
        {"sides": ["ann", "bob"], "shares": [None, 0.0]},
        {"sides": ["ann", "bob"], "ranks": [0, 1]},
    ]  # fmt: skip
    for given in rounds:
        with pytest.raises(InvalidRound) as does:
            copy.deepcopy(ladder).rate(**given)
        asked: list[Callable[..., Any]] = [ladder.what_if]
        for ask in asked if "ranks" in given else [*asked, ladder.predict]:
            with pytest.raises(InvalidRound) as would:
                ask(**given)
            assert str(would.value) == str(does.value)
    wrong: list[tuple[Callable[[Any], Any], str]] = [
        (lambda of: of.balance(["ann", "bob"], 3), "teams: 3 of 2 players: give a whole"),
        (lambda of: of.balance(["ann", "ann"]), "player 'ann' stands in the round twice"),
        (lambda of: of.balance(["ann", "bob"], groups=[["ann", "bob"]]), r"groups\[0\]: 2 players"),
        (lambda of: of.balance(["ann", "bob"], groups=["eve"]), r"groups\[0\]: 'eve' is none of"),
        (lambda of: of.balance(["ann", "bob"], groups="ann"), "groups: 'ann' is a text"),
        (lambda of: of.predict(["ann", "bob"], variance_factor=0.0),
         "variance_factor: 0.0 is not above 0; 1 is the model as it is"),
        (lambda of: of.predict(["ann", "bob"], variance_factor="2"),
         "variance_factor: '2' is no number"),
    ]  # fmt: skip
    for refused, why in wrong:
        with pytest.raises(InvalidRound, match=why):
            refused(Ladder())


def test_draws_are_where_the_ladder_has_them() -> None:
    """As often as performances differ by less than the draw margin or `draw_width`."""
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
    assert played_for_days(SYSTEMS[0]).predict(["ann", "bob", "cy"]).draw == 0.0


# --- even teams -----------------------------------------------------------------------------------


def names(count: int) -> list[str]:
    return [f"p{i:02}" for i in range(count)]


def skills(count: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(0.0, 300.0, count)


def spread(deviation: Floats, teams: list[list[int]]) -> float:
    """The variance of the teams' sums."""
    return float(np.var([deviation[members].sum() for members in teams]))


def every_deal(players: list[int], sizes: list[int]) -> list[list[list[int]]]:
    """All of them, those of equal teams more than once."""
    if not sizes:
        return [[]]
    found = []
    for members in itertools.combinations(players, sizes[0]):
        rest = [each for each in players if each not in members]
        found += [[list(members), *others] for others in every_deal(rest, sizes[1:])]
    return found


def test_no_teams_are_more_even() -> None:
    """Every deal of a few players was looked at, as many as differ in who plays with whom."""
    for players, teams in ((2, 2), (5, 2), (8, 2), (7, 3), (8, 4), (6, 6)):
        sizes = [players * (t + 1) // teams - players * t // teams for t in range(teams)]
        sizes.sort(reverse=True)
        every = every_deal(list(range(players)), sizes)
        differing = {frozenset(map(frozenset, deal)) for deal in every}
        assert deals(np.array(sizes)) == len(differing), sizes
        for seed in range(5):
            deviation = skills(players, seed)
            found = even_teams(names(players), deviation, teams)
            assert [len(members) for members in found] == sizes
            assert sorted(itertools.chain(*found)) == list(range(players))
            least = min(spread(deviation, deal) for deal in every)
            assert spread(deviation, found) == pytest.approx(least, abs=1e-6), sizes
            groups = some_groups(players, sizes[0], seed)
            together = [deal for deal in every if keeps(groups, deal)]
            least = min(spread(deviation, deal) for deal in together)
            found = even_teams(names(players), deviation, teams, of_names(groups))
            assert keeps(groups, found) and list(map(len, found)) == sizes
            assert spread(deviation, found) == pytest.approx(least, abs=1e-6), groups


def some_groups(players: int, most: int, seed: int) -> list[list[int]]:
    """A group as large as a team may be, and a pair if there is room for one beside it."""
    order = np.random.default_rng(seed).permutation(players).tolist()
    return [order[:most], *([order[most : most + 2]] if 2 * most <= players and most > 1 else [])]


def of_names(groups: list[list[int]]) -> list[list[str]]:
    return [[f"p{i:02}" for i in group] for group in groups]


def keeps(groups: list[list[int]], deal: list[list[int]]) -> bool:
    return all(any({*group} <= {*team} for team in deal) for group in groups)


def test_the_order_of_players_means_nothing() -> None:
    """Also where some are equally good. Many are dealt to a hundredth of chance."""
    for players, teams in ((10, 2), (12, 3), (40, 2), (60, 5), (101, 10)):
        who, deviation = names(players), np.round(skills(players), -2)
        wanted = {frozenset(who[i] for i in t) for t in even_teams(who, deviation, teams)}
        for seed in range(3):
            order = np.random.default_rng(seed).permutation(players)
            shuffled = [who[i] for i in order]
            found = even_teams(shuffled, deviation[order], teams)
            assert {frozenset(shuffled[i] for i in t) for t in found} == wanted, (players, teams)
    for players, teams in ((60, 2), (60, 5), (500, 100)):
        deviation = skills(players)
        dealt: Any = np.split(np.random.default_rng(2).permutation(players), teams)
        found = even_teams(names(players), deviation, teams)
        assert spread(deviation, found) < 0.0001 * spread(deviation, dealt), (players, teams)


def test_what_is_found_is_nearly_as_even() -> None:
    """Where all deals can still be looked at: of 12 players in three teams and of 16 in two."""
    for (players, teams), seed in itertools.product(((12, 3), (16, 2)), range(10)):
        for friends in ([], of_names([[0, 1, 2], [3, 4], [5, 6]])):
            given = names(players), skills(players, seed), teams, friends
            best = spread(given[1], even_teams(*given))
            with patch.object(balance, "MOST_DEALS", 0):
                found = spread(given[1], even_teams(*given))
            gap = math.sqrt(found) - math.sqrt(best)
            assert -1e-6 <= gap <= 15.0  # points, where one player deviates by 300


def test_groups_that_do_not_fit() -> None:
    """Three pairs do not fit into two teams of three, nor into many teams of odd sizes."""
    pairs = [[f"p{2 * i:02}", f"p{2 * i + 1:02}"] for i in range(30)]
    for players, teams in ((6, 2), (60, 20)):
        with pytest.raises(ImpossibleGroups, match="do not fit into teams of these sizes"):
            even_teams(names(players), skills(players), teams, pairs[: players // 2])
    found = even_teams(names(60), skills(60), 15, pairs)
    assert {len(team) for team in found} == {4} and found[0][:2] == [0, 1]


# --- why a rating is what it is -------------------------------------------------------------------

REMEMBERED = 60


def a_history(rating: RatingConfig) -> tuple[Beliefs, list[IndexedChange]]:
    """The stored belief about `ann` after some rounds, and the changes published for her."""
    ladder = ladder_of(rating)
    rng, published = random.Random(1), []
    for number in range(REMEMBERED):
        ranks = rng.sample(range(1, 5), 4)
        row = ladder.rate(["ann", "bob", "cy", "dee"], ranks, round_id=f"r{number}").to_dicts()[0]
        published.append(IndexedChange(
            number, f"r{number}", "", row["rank"], row["performance"], row["mu"], row["sigma"],
            row["rating"], row["previous_rating"], number + 1,
        ))  # fmt: skip
    return record.decode([ladder._rater.pool.belief_bytes("ann")], 0, 0.0, 1.0), published


def explanation(rating: RatingConfig, kept: int = REMEMBERED) -> ExplainAnswer:
    beliefs, published = a_history(rating)
    return explain_belief("ann", beliefs, rule_of(rating), published[-kept:])


def test_pulls_cancel() -> None:
    """Of every system, because mu is the mode of the belief; weights are parts of one."""
    for rating in SYSTEMS:
        found = explanation(rating)
        factors = [found.gaussian, *found.performances]
        assert sum(each.weight for each in factors) == pytest.approx(1.0), rating
        assert sum(each.pull for each in factors) == pytest.approx(0.0, abs=TOLERANCE), rating
        assert found.performances == sorted(found.performances, key=lambda each: -each.weight)
        assert all(each.pull * (each.at - found.mu) >= 0.0 for each in factors), rating


def test_a_pull_is_what_the_rating_moves_by() -> None:
    """With a factor a hundredth lighter, the mode is a hundredth of its pull lower."""
    rating = SYSTEMS[0]
    beliefs, published = a_history(rating)
    found = explain_belief("ann", beliefs, rule_of(rating), published)
    header: Any = beliefs.header[0]
    p, a, r = factors_of(beliefs)[0, : header["count"]].T
    for each in found.performances[:5]:
        lighter = np.where(p == each.at, 0.99, 1.0) * r

        def slope(x: float, r: Any = lighter) -> float:
            pulls = header["scale"] * r * np.tanh((x - p) * a)
            return float(header["precision"] * (x - header["center"]) + pulls.sum())

        mode = zero(slope, found.mu - 50.0, found.mu + 50.0)
        assert found.mu - mode == pytest.approx(each.pull / 100.0, rel=0.05, abs=1e-3)


def test_rounds_are_named() -> None:
    """As far as the history reaches back. A performance of several rounds names none."""
    beliefs, published = a_history(SYSTEMS[0])
    count = beliefs.header["count"][0]
    wide = beliefs.factors[0, :count] >> WIDTH_SHIFT > 0
    merged = set(factors_of(beliefs)[0, :count][wide, 0].tolist())
    named = [each for each in explanation(SYSTEMS[0]).performances if each.rounds]
    assert merged and not merged & {each.at for each in named}
    assert len(named) > count / 2
    by_round = {each.round_id: each.performance for each in published}
    for each in named:
        for one in each.rounds:
            assert each.at == pytest.approx(by_round[one], abs=1 / 32 + 1e-9)
    few = explanation(SYSTEMS[0], kept=3).performances
    last = {f"r{REMEMBERED - i}" for i in (1, 2, 3)}
    kept = {one for each in few for one in each.rounds}
    assert kept and kept <= last


def test_in_words() -> None:
    """Sentences with the same numbers; of a system without performances, that it has none."""
    found = explanation(SYSTEMS[0])
    strongest = max(found.performances, key=lambda each: abs(each.pull))
    text = " ".join(found.in_words)
    assert f"{found.mu:.1f}, give or take {found.sigma:.1f}" in text
    assert f"A performance of {strongest.at:.1f}" in text
    assert f"by {abs(strongest.pull):.1f} points" in text
    (glicko,) = [explanation(each) for each in SYSTEMS if each.__struct_config__.tag == "glicko"]
    assert glicko.performances == [] and len(glicko.in_words) == 2
    assert glicko.gaussian.pull == 0.0 and glicko.gaussian.weight == 1.0
