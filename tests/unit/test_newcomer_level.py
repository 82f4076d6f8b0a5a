"""Where newcomers begin, in ratings and in predictions."""

from typing import Any

import msgspec
import numpy as np
import pytest

import stream_rater
from stream_rater.columns.arrays import Floats
from stream_rater.config.ladders import Ladder
from stream_rater.evaluation.evaluation import Contender
from stream_rater.rating import newcomer_level
from stream_rater.rating.model import Wave
from stream_rater.rating.parameters import (
    BadParameters,
    Bar,
    EloMMR,
    Glicko,
    RatingConfig,
    TrueSkill,
    TwoMoment,
    fingerprint,
    from_builtins,
)
from stream_rater.rating.prediction.forecast import Believed, deviations, of_round
from stream_rater.replay.pool import Pool
from stream_rater.serve.bodies import PlayerAnswer, SideQuestion
from stream_rater.serve.predicting import balanced_sides, prediction
from tests.rounds import as_json, ranked, read
from tests.unit.test_season import sessions

CONFIG = TwoMoment(
    newcomer_offset=-100.0, newcomer_field=0.5, initial_sigma=300.0, inexperience=0.0
)
PLACING: tuple[RatingConfig, ...] = (
    Glicko(beta=200.0, sigma_drift=35.0),
    Bar(beta=200.0, sigma_drift=35.0),
    TrueSkill(beta=200.0, sigma_drift=35.0, draw_margin=1.0),
)
"""Systems that place newcomers if they are configured to."""


def means(config: RatingConfig, mu: list[float], sigma: list[float], rounds: list[int]) -> Floats:
    """Where players begin a round in which each plays alone."""
    return newcomer_level.of_one_round(
        config, np.arange(len(mu) + 1), np.ones(len(mu)), np.array(mu), np.array(sigma),
        np.array(rounds, np.int64),
    )  # fmt: skip


def unchanged(config: RatingConfig) -> bool:
    """Whether a newcomer who meets somebody known begins at the initial rating."""
    mu, alone = np.array([1500.0, 1900.0]), np.array([0, 1, 2])
    return newcomer_level.of_one_round(config, alone, np.ones(2), mu, mu, np.array([0, 1])) is mu


def test_the_level_is_that_of_those_who_played() -> None:
    """Each by how well they are known, and one at the initial rating beside them."""
    found = means(CONFIG, [1500.0, 1900.0, 1300.0], [300.0, 150.0, 60.0], [0, 4, 9])
    known = (1.0 - 0.25, 1.0 - 0.04)
    level = (known[0] * 400.0 - known[1] * 200.0) / (1.0 + sum(known))
    assert found.tolist() == [pytest.approx(1400.0 + 0.5 * level), 1900.0, 1300.0]


def test_without_anybody_known_it_is_the_offset() -> None:
    """Newcomers alone, or players about which as little is known."""
    assert means(CONFIG, [1500.0, 1500.0], [300.0, 300.0], [0, 0]).tolist() == [1400.0, 1400.0]
    assert means(CONFIG, [1500.0, 2500.0], [300.0, 310.0], [0, 1]).tolist() == [1400.0, 2500.0]


def test_each_round_has_its_own_level() -> None:
    """Whatever rounds it is computed with."""
    mu, sigma, rounds = [1500.0, 1700.0, 1500.0, 1100.0], [300.0, 60.0, 300.0, 60.0], [0, 3, 0, 3]
    both = Wave(
        np.array([0, 2, 4]), np.ones(2), np.full(2, np.inf), np.zeros(2, np.int64),
        np.array([1, 2, 1, 2], np.int32), np.arange(5), np.ones(4), np.array(mu), np.array(sigma),
        np.array(rounds), np.zeros(4, np.int64),
    )  # fmt: skip
    newcomer_level.place(CONFIG, both)
    apart = [means(CONFIG, mu[i : i + 2], sigma[i : i + 2], rounds[i : i + 2]) for i in (0, 2)]
    assert both.mu.tolist() == np.concatenate(apart).tolist()
    assert both.mu[0] > 1400.0 > both.mu[2]


def test_the_newcomers_of_a_side_bring_the_offset_once() -> None:
    """However many they are, by their shares; one who hardly played brings that share of it."""
    starts = np.array([0, 1, 6, 8, 10, 11])
    share = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1e-6, 1.0, 1.0, 0.25])
    mu, sigma = np.full(11, 1500.0), np.full(11, 300.0)
    played = np.zeros(11, np.int64)
    mu[8], sigma[8], played[8] = 1800.0, 300.0, 1  # as little is known of this player
    found = newcomer_level.of_one_round(CONFIG, starts, share, mu, sigma, played) - 1500.0
    sides = np.add.reduceat(share * found, starts[:-1]).tolist()
    assert sides == pytest.approx([-100.0, -100.0, -100.0, 200.0, -25.0])
    assert found.tolist() == pytest.approx(
        [-100.0, *[-20.0] * 5, -100.0, -100.0, 300.0, -100.0, -100.0], abs=1e-3
    )


def test_even_teams_have_the_newcomers_dealt_among_them() -> None:
    """Each team's newcomers bring the offset once: four in two teams bring half of it each."""
    nobody = Believed(np.full(5, 1500.0), np.full(5, 300.0), np.array([0, 0, 0, 0, 1]))
    assert deviations(CONFIG, nobody, 2).tolist() == [-50.0, -50.0, -50.0, -50.0, 0.0]
    assert deviations(CONFIG, nobody, 4).tolist() == [-100.0, -100.0, -100.0, -100.0, 0.0]


@pytest.mark.parametrize("config", PLACING, ids=lambda each: type(each).__name__)
def test_other_systems_do_if_they_are_configured_to(config: Any) -> None:
    """By default they change nothing, and their fingerprint is that of older releases."""
    assert unchanged(config)
    placing = msgspec.structs.replace(config, newcomer_offset=-100.0, newcomer_field=0.5)
    assert fingerprint(placing) != fingerprint(config)
    after = []
    for each in (config, placing):
        pool = Pool(Ladder(rating=each))
        for offset in range(30):
            pool.rate(read(each, *ranked([1, 2], ["ann", "bob"])), offset)
        pool.rate(read(each, *ranked([1, 2], ["ann", "new"])), 30)
        row = pool.find("new")
        assert row is not None
        after.append(pool.mu(row))
    assert abs(after[0] - after[1]) > 10.0


def test_others_never_do() -> None:
    """Their evidence is not the new mu, or they have no uncertainty."""
    assert unchanged(EloMMR(weight_limit=0.2, sigma_limit=80.0))


@pytest.mark.parametrize(
    ("name", "value"),
    [("newcomer_field", 1.1), ("newcomer_field", -0.1), ("newcomer_offset", 1e10)],
)
def test_a_value_out_of_range_is_refused(name: str, value: float) -> None:
    """With its place."""
    with pytest.raises(BadParameters, match=rf"at `\$\.{name}`"):
        from_builtins({"system": "two-moment", name: value})


# --- predictions ----------------------------------------------------------------------------------


def ladder() -> stream_rater.Ladder:
    """Ann, who is good, and bob, who is not; nobody else has played."""
    found = stream_rater.Ladder(system="two-moment", history=20)
    for _ in range(12):
        found.rate(["ann", "bob"], ranks=[1, 2])
    return found


def answers(ours: stream_rater.Ladder, names: list[str]) -> list[PlayerAnswer]:
    """What the API says of them."""
    return [
        PlayerAnswer(
            player=name, mu=each.mu, sigma=each.sigma, rating=each.rating, rounds=each.rounds,
            provisional=each.provisional, completed_at=None, offset=None, season=None,
        )
        for name in names for each in [ours.get(name)]
    ]  # fmt: skip


def test_all_predictions_place_newcomers_alike() -> None:
    """In a notebook, over HTTP and in the laboratory's scores; and as a rating does."""
    ours = ladder()
    sides = [["ann"], ["new"]]
    placing = ours.predict(sides)
    players = answers(ours, ["ann", "new"])
    answer = prediction(TwoMoment(), [SideQuestion(players=side) for side in sides], players)
    assert [side.win for side in answer.sides] == placing.win.tolist()
    lines = [as_json(*ranked([1, 2], ["ann", "bob"]), round_id=str(i)) for i in range(12)]
    season, _ = sessions(*lines, as_json(*ranked([1, 2], ["ann", "new"]), round_id="last"))
    waves = [wave for _, _, wave in Contender(TwoMoment()).rate(season) if wave is not None]
    seen = dict(zip(waves[-1].rounds[-2:].tolist(), waves[-1].mu[-2:].tolist(), strict=True))
    known = Believed(*(np.array([getattr(p, n) for p in players]) for n in Believed._fields))
    placed = msgspec.structs.replace(TwoMoment(), inexperience=0.0)
    assert seen[0] == pytest.approx(placed.initial_mu + deviations(placed, known, 2)[1])
    plain = of_round(
        msgspec.structs.replace(TwoMoment(), newcomer_offset=0.0, newcomer_field=0.0),
        np.array([0, 1, 2]), np.ones(2), known,
    )  # fmt: skip
    assert plain.win[1] > placing.win[1], "150 points below the field, of which ann is all"


def test_even_teams_place_newcomers_alike() -> None:
    """Over HTTP as in a notebook."""
    ours = ladder()
    names = ["ann", "bob", "new", "newer"]
    players = answers(ours, names)
    sides, _ = balanced_sides(TwoMoment(), players, 2)
    assert sorted(map(sorted, (side.players for side in sides))) == sorted(
        map(sorted, ours.balance(names, teams=2))
    )
