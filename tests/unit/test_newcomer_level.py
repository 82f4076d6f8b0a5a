"""Where newcomers begin, in ratings and in predictions: it is equal everywhere, to the bit."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

import stream_rater
from stream_rater.columns.arrays import Floats
from stream_rater.evaluation.evaluation import Contender
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.rating import levels, parameters
from stream_rater.rating.model import Wave
from stream_rater.rating.wins import MODEL, Believed, deviations
from stream_rater.replay.pool import ONE_WAVE, Pool
from stream_rater.serve.bodies import PlayerAnswer, SideQuestion
from stream_rater.serve.predicting import balanced_sides, prediction
from tests.builders.machines import part
from tests.rounds import as_json, ranked, read
from tests.unit.test_season import sessions

CONFIG = parameters.TwoMoment(
    newcomer_offset=-100.0, newcomer_field=0.5, initial_sigma=300.0, inexperience=0.0
)


def means(
    config: parameters.RatingConfig, mu: list[float], sigma: list[float], rounds: list[int]
) -> Floats:
    """Where players begin a round in which each plays alone."""
    return levels.of_newcomers(
        config, np.arange(len(mu) + 1), np.ones(len(mu)), np.array(mu), np.array(sigma),
        np.array(rounds, np.int64),
    )  # fmt: skip


def unchanged(config: parameters.RatingConfig) -> bool:
    """Whether a newcomer who meets somebody known begins at the initial rating."""
    mu, alone = np.array([1500.0, 1900.0]), np.array([0, 1, 2])
    return levels.of_newcomers(config, alone, np.ones(2), mu, mu, np.array([0, 1])) is mu


def test_the_level_is_that_of_those_who_played() -> None:
    """They count by how well they are known. In even teams, newcomers share the offset."""
    found = means(CONFIG, [1500.0, 1900.0, 1300.0], [300.0, 150.0, 60.0], [0, 4, 9])
    known = (1.0 - 0.25, 1.0 - 0.04)
    level = (known[0] * 400.0 - known[1] * 200.0) / (1.0 + sum(known))
    assert found.tolist() == [pytest.approx(1400.0 + 0.5 * level), 1900.0, 1300.0]
    nobody = Believed(np.full(5, 1500.0), np.full(5, 300.0), np.array([0, 0, 0, 0, 1]))
    assert deviations(CONFIG, nobody, 2).tolist() == [-50.0, -50.0, -50.0, -50.0, 0.0]
    assert deviations(CONFIG, nobody, 4).tolist() == [-100.0, -100.0, -100.0, -100.0, 0.0]


def test_each_round_has_its_own_level() -> None:
    """It does not depend on other rounds. If nobody is known, it is the offset."""
    mu, sigma, rounds = [1500.0, 1700.0, 1500.0, 1100.0], [300.0, 60.0, 300.0, 60.0], [0, 3, 0, 3]
    both = Wave(
        np.array([0, 2, 4]), np.ones(2), np.full(4, np.inf), np.zeros(2, np.int64),
        np.array([1, 2, 1, 2], np.int32), np.arange(5), np.ones(4), np.array(mu), np.array(sigma),
        np.array(rounds), np.zeros(4, np.int64),
    )  # fmt: skip
    levels.place_newcomers(CONFIG, both)
    apart = [means(CONFIG, mu[i : i + 2], sigma[i : i + 2], rounds[i : i + 2]) for i in (0, 2)]
    assert both.mu.tolist() == np.concatenate(apart).tolist()
    assert both.mu[0] > 1400.0 > both.mu[2]
    assert means(CONFIG, [1500.0, 1500.0], [300.0, 300.0], [0, 0]).tolist() == [1400.0, 1400.0]
    assert means(CONFIG, [1500.0, 2500.0], [300.0, 310.0], [0, 1]).tolist() == [1400.0, 2500.0]


def test_the_newcomers_of_a_side_bring_the_offset_once() -> None:
    """However many they are, by their shares; one who hardly played brings that share of it."""
    starts = np.array([0, 1, 6, 8, 10, 11])
    share = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1e-6, 1.0, 1.0, 0.25])
    mu, sigma = np.full(11, 1500.0), np.full(11, 300.0)
    played = np.zeros(11, np.int64)
    mu[8], sigma[8], played[8] = 1800.0, 300.0, 1  # as little is known of this player
    found = levels.of_newcomers(CONFIG, starts, share, mu, sigma, played) - 1500.0
    sides = np.add.reduceat(share * found, starts[:-1]).tolist()
    assert sides == pytest.approx([-100.0, -100.0, -100.0, 200.0, -25.0])
    assert found.tolist() == pytest.approx(
        [-100.0, *[-20.0] * 5, -100.0, -100.0, 300.0, -100.0, -100.0], abs=1e-3
    )


def test_other_systems_do_if_they_are_configured_to() -> None:
    """By default, or without an uncertainty, newcomers begin at the initial rating."""
    given: Any = {"beta": 200.0, "sigma_drift": 35.0}
    for config in (
        parameters.Glicko(**given),
        parameters.Bar(**given),
        parameters.TrueSkill(**given, draw_margin=1.0),
    ):
        assert unchanged(config)
        placing: Any = msgspec.structs.replace(config, newcomer_offset=-100.0, newcomer_field=0.5)
        assert parameters.fingerprint(placing) != parameters.fingerprint(config)
        after = []
        for each in (config, placing):
            pool = Pool(each)
            for offset in range(30):
                pool.rate(read(each, *ranked([1, 2], ["ann", "bob"])), offset)
            pool.rate(read(each, *ranked([1, 2], ["ann", "new"])), 30)
            after.append(float(dict(pool)["new"]["mu"]))
        assert abs(after[0] - after[1]) > 10.0, config
    assert unchanged(parameters.EloMMR(weight_limit=0.2, sigma_limit=80.0))
    for name, value in (
        ("newcomer_field", 1.1),
        ("newcomer_field", -0.1),
        ("newcomer_offset", 1e10),
    ):
        with pytest.raises(parameters.BadParameters, match=rf"at `\$\.{name}`"):
            parameters.from_builtins({"system": "two-moment", name: value})


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
    """In a notebook, over HTTP and in scores; and as a rating does. So are even teams."""
    ours, names = stream_rater.Ladder("two-moment"), ["ann", "bob", "new", "newer"]
    for _ in range(12):
        ours.rate(["ann", "bob"])
    dealt, _ = balanced_sides(parameters.TwoMoment(), answers(ours, names), 2)
    assert sorted(sorted(side.players) for side in dealt) == sorted(
        map(sorted, ours.balance(names, teams=2))
    )
    sides = [["ann"], ["new"]]
    placing = ours.predict(sides)
    players = answers(ours, ["ann", "new"])
    answer = prediction(
        parameters.TwoMoment(), [SideQuestion(players=side) for side in sides], players
    )
    assert [side.win for side in answer.sides] == placing.win.tolist()
    lines = [as_json(*ranked([1, 2], ["ann", "bob"]), round_id=str(i)) for i in range(12)]
    season, _ = sessions(*lines, as_json(*ranked([1, 2], ["ann", "new"]), round_id="last"))
    waves = [
        wave for _, _, wave in Contender(parameters.TwoMoment()).rate(season) if wave is not None
    ]
    seen = dict(zip(waves[-1].rounds[-2:].tolist(), waves[-1].mu[-2:].tolist(), strict=True))
    known = Believed(*(np.array([getattr(p, n) for p in players]) for n in Believed._fields))
    placed = msgspec.structs.replace(parameters.TwoMoment(), inexperience=0.0)
    assert seen[0] == pytest.approx(placed.initial_mu + deviations(placed, known, 2)[1])
    plain = MODEL.forecast(
        msgspec.structs.replace(parameters.TwoMoment(), newcomer_offset=0.0, newcomer_field=0.0),
        np.array([0, 1, 2]), np.ones(2), known,
    )  # fmt: skip
    assert plain.win[1] > placing.win[1], "150 points below the field, of which ann is all"


def test_a_season_does_not_hide_it() -> None:
    """Its first round draws those whose previous mu is that of before, and no newcomers."""
    config = parameters.TwoMoment()
    pool = Pool(config)
    pool.rate(read(config, *ranked([1, 2], ["ann", "bob"])), 0)
    before = dict(pool)["ann"]["mu"]
    pool.start_season(parameters.Season(1, 0.5, 200.0))
    standings = read(config, *ranked([2, 1], ["ann", "new"]))
    rows = pool.rows(standings.batch.names)
    result = pool.rate_rows(standings.batch, rows, ONE_WAVE, np.array([1]))
    heads = dict(pool)
    assert heads["ann"]["previous_mu"] == before
    assert (heads["ann"]["previous_season"], heads["new"]["previous_season"]) == (0, 0)
    began = heads["new"]["previous_mu"]
    assert began < 1500.0 - 50.0 and heads["new"]["previous_sigma"] == 350.0
    names = standings.batch.names.texts()
    assert result.published.mu[names.index("new")] == began
    assert result.published.mu[names.index("ann")] == before


def test_a_part_has_it_where_there_is_something_to_say() -> None:
    """Of any row. A message without newcomers is shorter."""
    some, nan = part((7, "ab")), float("nan")

    def of(*began: float) -> schema.Part:
        return replace(some, evidence=np.column_stack((some.evidence, np.array(began))))

    for began in ((1350.0, nan), (nan, 1350.5), (1.0, 2.0)):
        message = schema.encode(of(*began))
        np.testing.assert_array_equal(decoder.read(message).decoded.evidence, of(*began).evidence)
    plain = schema.encode(some)
    assert schema.encode(of(nan, nan)) == plain
    assert np.isnan(decoder.read(plain).decoded.evidence[:, 3]).all()
    assert len(schema.encode(of(1.0, 2.0))) == len(plain) + 1 + 16  # With the column's width.
