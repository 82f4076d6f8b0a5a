"""Kerby's systems, round by round: examples and properties of the note, and each adaptation."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.rating import stages
from stream_rater.rating.kernels.climb import interpolate
from stream_rater.rating.model import newcomers
from stream_rater.rating.normal import hazard
from stream_rater.rating.parameters import BadParameters, RatingConfig, from_builtins
from stream_rater.rounds.batch import wave_of
from tests.rounds import ranked, read

SYSTEMS = {
    "elo": {}, "elo gaussian": {"model": "gaussian"}, "pairwise-elo": {},
    "pairwise-elo gaussian": {"model": "gaussian"}, "pairwise-elo average": {"pairs": "average"},
    "plackett-luce": {}, "thurstone": {},
}  # fmt: skip
LOGISTIC = ("elo", "pairwise-elo", "pairwise-elo average", "plackett-luce")
GAUSSIAN = ("elo gaussian", "pairwise-elo gaussian", "thurstone")
PRECISION = 1e-8
"""Thurstone's grid, for few players."""


def config(name: str, **fields: Any) -> RatingConfig:
    table = {"system": name.split(maxsplit=1)[0], "learning_rate": 0.25, "initial_mu": 0.0}
    table["history"] = "full"  # unrounded
    return from_builtins({**table, **SYSTEMS[name], **fields})


def rate(conf: RatingConfig, standings: list[Any], mu: dict[str, float], **fields: Any) -> Any:
    """New rating by player, after one round."""
    found = read(conf, *standings, **fields)
    header = newcomers(len(found.players), 0, conf.initial_mu, conf.initial_sigma).header
    header["mu"] = [mu.get(player, conf.initial_mu) for player in found.players]
    evidence = stages.estimate(conf, wave_of([found], header, config=conf))
    return dict(zip(found.players, evidence[:, 1].tolist(), strict=True))


def gains(conf: RatingConfig, places: list[int], mu: list[float], **fields: Any) -> list[float]:
    names = [f"p{i}" for i in range(len(places))]
    before = dict(zip(names, mu, strict=True))
    after = rate(conf, ranked(places, names), before, **fields)
    return [after[name] - before[name] for name in names]


@pytest.mark.parametrize("name", LOGISTIC)
def test_two_players_are_elos(name: str) -> None:
    """r' = r + eta (1 - P(win)): the note's update rule of section 3.1.1."""
    for gap in (-40.0, -2.0, 0.0, 0.7, 300.0):
        gain = 0.25 / (1.0 + math.exp(min(gap, 700.0)))
        assert [gain, -gain] == pytest.approx(gains(config(name), [1, 2], [gap, 0.0]), abs=1e-14)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_two_players_are_gaussian_elos(name: str) -> None:
    """r' = r + eta phi(z) / Phi(z) / sqrt 2, z the difference over sqrt 2 (section 3.1.2)."""
    for gap in (-6.0, -2.0, 0.0, 0.7, 5.0):
        gain = 0.25 * hazard(-gap / math.sqrt(2.0)) / math.sqrt(2.0)
        assert [gain, -gain] == pytest.approx(
            gains(config(name), [1, 2], [gap, 0.0]), abs=PRECISION
        )


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_draw_is_half_a_win_and_half_a_loss(name: str) -> None:
    """Whoever is rated higher loses what the other wins; equals stay where they are."""
    conf = config(name)
    win, loss = gains(conf, [1, 2], [0.8, 0.0]), gains(conf, [2, 1], [0.8, 0.0])
    mean = [0.5 * (a + b) for a, b in zip(win, loss, strict=True)]
    assert mean == pytest.approx(gains(conf, [1, 1], [0.8, 0.0]), abs=1e-12)
    assert gains(conf, [1, 1, 1], [0.5] * 3) == pytest.approx([0.0] * 3, abs=PRECISION)


def test_chess() -> None:
    """K = 32 and 400 points for ten to one: 1613 beats 1609 and gains 32 (1 - 0.5058)."""
    conf = config("elo", learning_rate=32, scale=400 / math.log(10), initial_mu=1500)
    expected = 32.0 * (1.0 - 1.0 / (1.0 + 10.0 ** (-4.0 / 400.0)))
    assert [expected, -expected] == pytest.approx(gains(conf, [1, 2], [1613.0, 1609.0]), abs=1e-12)


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - {"pairwise-elo average"}))
def test_a_round_is_zero_sum(name: str) -> None:
    """Without an anchor and a floor, and all with one learning rate (sections 3.1 and 3.2)."""
    random = np.random.default_rng(5)
    for places in ([1, 2, 3, 4, 5], [1, 2, 2, 0, 0], [3, 1, 1, 1, 2], [1, 0, 0, 0, 0]):
        assert sum(gains(config(name), places, random.normal(0, 1, 5).tolist())) == pytest.approx(
            0.0, abs=PRECISION
        )


@pytest.mark.parametrize("name", ["pairwise-elo", "pairwise-elo average"])
def test_pairs_are_summed_or_averaged(name: str) -> None:
    """Over the pairs of a player; two who did not finish are no pair (section 3.2.1)."""
    mu, conf = [0.3, -0.8, 0.5, 1.1], config(name)
    expected = [0.0] * 4
    for i, j in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3)):
        win, loss = gains(conf, [1, 2], [mu[i], mu[j]])
        expected[i] += win
        expected[j] += loss
    if "average" in name:
        expected = [each / pairs for each, pairs in zip(expected, (3, 3, 2, 2), strict=True)]
    assert expected == pytest.approx(gains(conf, [1, 2, 0, 0], mu), abs=1e-14)


@pytest.mark.parametrize("name", SYSTEMS)
def test_who_did_not_finish_never_gains(name: str) -> None:
    """Nor does it matter to the others in which order such are listed (sections 4 and 6)."""
    conf = config(name, anchor=0.4)
    mu = [0.3, -0.8, 0.5, -3.0]
    found = gains(conf, [1, 2, 0, 0], mu)
    assert found[2] < 0.0 and found[3] < 0.0 and found[0] > 0.0
    assert found == pytest.approx(
        [gains(conf, [1, 2, 0, 0], [mu[0], mu[1], mu[3], mu[2]])[i] for i in (0, 1, 3, 2)],
        abs=1e-14,
    )


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_anchor_is_a_player_tied_for_last(name: str) -> None:
    """As if one more had not finished, who stays; without such, tied with the last finisher."""
    with_dummy = config(name, anchor=0.6)
    mu = [0.3, -0.8, 0.5]
    one_more = gains(config(name), [1, 2, 0, 0], [*mu, 0.6])
    assert one_more[:3] == pytest.approx(gains(with_dummy, [1, 2, 0], mu), abs=1e-14)
    unobserved = gains(config(name), [1, 2, 0, 0], [*mu, 0.6])
    assert unobserved[:3] == pytest.approx(gains(with_dummy, [1, 2, 3], mu), abs=1e-14)
    assert gains(with_dummy, [1, 1, 1], mu) == [0.0, 0.0, 0.0]
    assert sum(gains(with_dummy, [1, 2, 3], mu)) > 0.0


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_floor_holds_the_rating(name: str) -> None:
    """A rating that would fall below it stops there (section 5.2)."""
    free, floored = config(name), config(name, floor=-0.01)
    assert gains(free, [1, 2], [0.0, 0.0])[1] < -0.01
    found = gains(floored, [1, 2], [0.0, 0.0])
    assert found[1] == -0.01
    assert found[0] == gains(free, [1, 2], [0.0, 0.0])[0]


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_fixed_never_move(name: str) -> None:
    """They count for the others as ever."""
    free = rate(config(name), ranked([1, 2, 3], ["bot", "ann", "bob"]), {"ann": 0.4})
    floored = rate(
        config(name, fixed=["bot"]), ranked([1, 2, 3], ["bot", "ann", "bob"]), {"ann": 0.4}
    )
    assert floored == {**free, "bot": 0.0}
    assert free["bot"] != 0.0


def test_the_learning_rate_is_linear_between_ratings() -> None:
    """And flat outside; everybody's own, so the sum is no longer zero (section 5.2)."""
    knots, rates = np.array([0.0, 1.0, 2.0]), np.array([0.6, 0.13, 0.09])
    at = np.array([-5.0, 0.0, 0.25, 1.0, 1.5, 2.0, 7.0])
    assert [interpolate(x, knots, rates) for x in at] == pytest.approx(
        np.interp(at, knots, rates).tolist(), abs=1e-15
    )
    table = [[0.0, 0.6], [1.0, 0.13], [2.0, 0.09]]
    for name in SYSTEMS:
        one = gains(config(name, learning_rate=1.0), [2, 1, 3], [0.25, 1.5, 3.0])
        found = gains(config(name, learning_rate=table), [2, 1, 3], [0.25, 1.5, 3.0])
        expected = [g * eta for g, eta in zip(one, (0.4825, 0.11, 0.09), strict=True)]
        assert expected == pytest.approx(found, abs=1e-14), name


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_weight_multiplies_the_learning_rate(name: str) -> None:
    """A round of weight 3 moves three times as far."""
    light, heavy = (gains(config(name), [1, 2, 3], [0.1, 0.9, 0.0], weight=w) for w in (1.0, 3.0))
    assert [3.0 * each for each in light] == pytest.approx(heavy, abs=1e-14)


@pytest.mark.parametrize("name", SYSTEMS)
def test_scale_is_points_per_unit(name: str) -> None:
    """Ratings, anchor and learning rate times 100, at scale 100: everything times 100."""
    small = gains(config(name, anchor=0.2), [1, 2, 0], [0.5, 0.9, -0.3])
    conf = config(name, learning_rate=25.0, scale=100.0, anchor=20.0)
    large = gains(conf, [1, 2, 0], [50.0, 90.0, -30.0])
    assert [100.0 * each for each in small] == pytest.approx(large, abs=1e-10)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_member_climbs_by_the_share(name: str) -> None:
    """A team rates as the sum of its members' shares of deviations from the mean of those present,
    and so does the gradient."""
    standings = [{"team": ["a", "b"], "shares": [1, 0.5], "rank": 1}, {"player": "c", "rank": 2}]
    after = rate(config(name), standings, {"a": 0.4, "b": -0.2, "c": 0.7})
    level = (0.4 + 0.5 * -0.2 + 0.7) / 2.5
    team = (0.4 - level) + 0.5 * (-0.2 - level)
    gain, loss = gains(config(name), [1, 2], [team, 0.7 - level])
    assert [0.4 + gain, -0.2 + 0.5 * gain, 0.7 + loss] == pytest.approx(
        [after[p] for p in "abc"], abs=1e-14
    )


places = st.lists(st.integers(0, 4), min_size=2, max_size=7)


@given(st.sampled_from(sorted(SYSTEMS)), places, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_the_order_of_the_list_does_not_matter(name: str, places: list[int], random: Any) -> None:
    """Ties, unfinished and equal ratings included (1e-12: sums round in another order)."""
    conf = config(name, anchor=-0.5)
    entries = ranked([places[0] or 1, *places[1:]])
    mu = {each["player"]: random.choice([0.0, 0.5, -1.2]) for each in entries}
    expected = rate(conf, entries, mu)
    random.shuffle(entries)
    assert expected == pytest.approx(rate(conf, entries, mu), abs=1e-12)


@given(st.sampled_from(sorted(SYSTEMS)), places)
@settings(max_examples=60)
def test_a_better_place_is_never_worse(name: str, places: list[int]) -> None:
    """Of two equally rated the better placed ends at least as high."""
    conf, full = config(name), [places[0] or 1, *places[1:]]
    found = gains(conf, full, [0.3] * len(full))
    order = sorted(range(len(full)), key=lambda i: full[i] or 99)
    ends = [found[i] for i in order]
    assert all(a >= b - PRECISION for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_thousand_players(name: str) -> None:
    """Finite, bounded gains, whoever wins."""
    mu = np.linspace(-2.0, 2.0, 1000).tolist()
    for places in (list(range(1, 1001)), [1] * 500 + [0] * 500):
        found = np.array(gains(config(name, anchor=0.0), places, mu))
        assert np.all(np.isfinite(found))
        assert np.abs(found).max() < 1000.0


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"learning_rate": 0}, "learning_rate"),
        ({"learning_rate": []}, "learning_rate"),
        ({"learning_rate": [[1, 0.1], [1, 0.2]]}, "learning_rate"),
        ({"learning_rate": [[1, -0.1]]}, "learning_rate"),
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"scale": 0}, "scale"),
        ({"anchor": math.inf}, "anchor"),
        ({"fixed": "bot"}, "fixed"),
        ({"floor": 1.0, "initial_mu": 0.0}, "floor"),
        ({"model": "cauchy"}, "model"),
        ({"pairs": "best"}, "pairs"),
    ],
)
def test_nonsense_is_refused_with_its_place(change: dict[str, Any], place: str) -> None:
    """One line that names the field."""
    with pytest.raises(BadParameters, match=place) as refusal:
        from_builtins({"system": "pairwise-elo", "learning_rate": 1.0, **change})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", SYSTEMS)
def test_mu_is_shown(name: str) -> None:
    """They have no sigma to subtract."""
    assert stages.rule_of(config(name)).rating(12.0, 350.0) == 12.0
