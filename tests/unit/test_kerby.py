"""Kerby's systems by the note, round by round; Plackett-Luce and Thurstone against SciPy."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad, solve_ivp

from stream_rater.columns.arrays import Floats
from stream_rater.rating import parameters, stages
from stream_rater.rating.kernels import climb, plackett_luce, thurstone
from stream_rater.rating.model import newcomers
from stream_rater.rating.normal import hazard
from tests.rounds import ranked, read, wave_of

SYSTEMS = {
    "elo": {}, "elo gaussian": {"model": "gaussian"}, "pairwise-elo": {},
    "pairwise-elo gaussian": {"model": "gaussian"}, "pairwise-elo average": {"pairs": "average"},
    "plackett-luce": {}, "plackett-luce first": {"orientation": "first"}, "thurstone": {},
}  # fmt: skip

LOGISTIC = (
    "elo", "pairwise-elo", "pairwise-elo average", "plackett-luce", "plackett-luce first",
)  # fmt: skip
NORMALS = ("elo gaussian", "pairwise-elo gaussian", "thurstone")
PRECISION = 1e-8  # Thurstone's grid, for few players.


def config(name: str, **fields: Any) -> parameters.RatingConfig:
    table = {"system": name.split(maxsplit=1)[0], "learning_rate": 0.25, "initial_mu": 0.0}
    table["history"] = "full"  # unrounded
    return parameters.from_builtins({**table, **SYSTEMS[name], **fields})


def rate(
    conf: parameters.RatingConfig, standings: list[Any], mu: dict[str, float], **fields: Any
) -> Any:
    """New rating by player, after one round."""
    found = read(conf, *standings, **fields)
    header = newcomers(len(found.players), 0, conf.initial_mu, conf.initial_sigma).header
    header["mu"] = [mu.get(player, conf.initial_mu) for player in found.players]
    evidence = stages.estimate(conf, wave_of([found], header, config=conf))
    return dict(zip(found.players, evidence[:, 1].tolist(), strict=True))


def gains(
    conf: parameters.RatingConfig, places: list[int], mu: list[float], **fields: Any
) -> list[float]:
    names = [f"p{i}" for i in range(len(places))]
    before = dict(zip(names, mu, strict=True))
    after = rate(conf, ranked(places, names), before, **fields)
    return [after[name] - before[name] for name in names]


def test_two_players_are_elos() -> None:
    """r' = r + eta (1 - P(win)) (3.1.1); r' = r + eta phi(z) / Phi(z) / sqrt 2 (3.1.2); chess."""
    for name, gap in product(LOGISTIC, (-40.0, -2.0, 0.0, 0.7, 300.0)):
        gain = 0.25 / (1.0 + math.exp(min(gap, 700.0)))
        found = gains(config(name), [1, 2], [gap, 0.0])
        assert [gain, -gain] == pytest.approx(found, abs=1e-14), (name, gap)
    for name, gap in product(NORMALS, (-6.0, -2.0, 0.0, 0.7, 5.0)):
        gain = 0.25 * hazard(-gap / math.sqrt(2.0)) / math.sqrt(2.0)
        found = gains(config(name), [1, 2], [gap, 0.0])
        assert [gain, -gain] == pytest.approx(found, abs=PRECISION), (name, gap)
    chess = config("elo", learning_rate=32, scale=400 / math.log(10), initial_mu=1500)
    gain = 32.0 * (1.0 - 1.0 / (1.0 + 10.0 ** (-4.0 / 400.0)))
    assert [gain, -gain] == pytest.approx(gains(chess, [1, 2], [1613.0, 1609.0]), abs=1e-12)


def test_a_draw_is_half_a_win_and_half_a_loss() -> None:
    """Whoever is rated higher loses what the other wins; equals stay where they are."""
    for name in SYSTEMS:
        conf = config(name)
        win, loss = gains(conf, [1, 2], [0.8, 0.0]), gains(conf, [2, 1], [0.8, 0.0])
        mean = [0.5 * (a + b) for a, b in zip(win, loss, strict=True)]
        assert mean == pytest.approx(gains(conf, [1, 1], [0.8, 0.0]), abs=1e-12), name
        assert gains(conf, [1, 1, 1], [0.5] * 3) == pytest.approx([0.0] * 3, abs=PRECISION), name


def test_a_round_is_zero_sum() -> None:
    """Without an anchor and a floor, and all with one learning rate (sections 3.1 and 3.2)."""
    rounds = [1, 2, 3, 4, 5], [1, 2, 2, 0, 0], [3, 1, 1, 1, 2], [1, 0, 0, 0, 0]
    random = np.random.default_rng(5)
    for name, places in product(set(SYSTEMS) - {"pairwise-elo average"}, rounds):
        found = sum(gains(config(name), places, random.normal(0, 1, 5).tolist()))
        assert found == pytest.approx(0.0, abs=PRECISION), (name, places)


def test_pairs_are_summed_or_averaged() -> None:
    """Over the pairs of a player; two who did not finish are no pair (section 3.2.1)."""
    mu, expected = [0.3, -0.8, 0.5, 1.1], [0.0] * 4
    for i, j in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3)):
        win, loss = gains(config("pairwise-elo"), [1, 2], [mu[i], mu[j]])
        expected[i] += win
        expected[j] += loss
    average = [each / pairs for each, pairs in zip(expected, (3, 3, 2, 2), strict=True)]
    for name, due in (("pairwise-elo", expected), ("pairwise-elo average", average)):
        assert due == pytest.approx(gains(config(name), [1, 2, 0, 0], mu), abs=1e-14), name


def test_the_unfinished_and_the_anchor() -> None:
    """Unfinished players never gain (sections 4 and 6). An anchor is one that stays."""
    mu, one, other = [0.3, -0.8, 0.5], [0.3, -0.8, 0.5, -3.0], [0.3, -0.8, -3.0, 0.5]
    for name in SYSTEMS:
        conf = config(name, anchor=0.4)
        found, swapped = gains(conf, [1, 2, 0, 0], one), gains(conf, [1, 2, 0, 0], other)
        assert found[2] < 0.0 and found[3] < 0.0 and found[0] > 0.0, name
        assert found == pytest.approx([swapped[i] for i in (0, 1, 3, 2)], abs=1e-14), name
        with_dummy = config(name, anchor=0.6)
        one_more = gains(config(name), [1, 2, 0, 0], [*mu, 0.6])[:3]
        for places in ([1, 2, 0], [1, 2, 3]):
            assert one_more == pytest.approx(gains(with_dummy, places, mu), abs=1e-14), name
        assert gains(with_dummy, [1, 1, 1], mu) == [0.0, 0.0, 0.0], name
        assert sum(gains(with_dummy, [1, 2, 3], mu)) > 0.0, name


def test_the_floor_and_the_fixed() -> None:
    """A rating stops at the floor (5.2). The fixed stay, and count for others. Sigma is absent."""
    for name in SYSTEMS:
        free, floored = config(name), config(name, floor=-0.01)
        plain, found = gains(free, [1, 2], [0.0, 0.0]), gains(floored, [1, 2], [0.0, 0.0])
        assert (plain[1] < -0.01, found) == (True, [plain[0], -0.01]), name
        standings = ranked([1, 2, 3], ["bot", "ann", "bob"])
        moved = rate(free, standings, {"ann": 0.4})
        fixed = rate(config(name, fixed=["bot"]), standings, {"ann": 0.4})
        assert (fixed, moved["bot"] != 0.0) == ({**moved, "bot": 0.0}, True), name
        assert stages.rule_of(free).rating(12.0, 350.0) == 12.0, name


def test_learning_rate_weight_and_scale() -> None:
    """The rate is linear between ratings, flat outside (5.2). Weight 3 is three times as far."""
    table = [[0.0, 0.6], [1.0, 0.13], [2.0, 0.09]]
    knots, rates = np.array(table).T.copy()
    at = np.array([-5.0, 0.0, 0.25, 1.0, 1.5, 2.0, 7.0])
    expected = np.interp(at, knots, rates).tolist()
    assert [climb.interpolate(x, knots, rates) for x in at] == pytest.approx(expected, abs=1e-15)
    for name in SYSTEMS:
        one = gains(config(name, learning_rate=1.0), [2, 1, 3], [0.25, 1.5, 3.0])
        found = gains(config(name, learning_rate=table), [2, 1, 3], [0.25, 1.5, 3.0])
        expected = [g * eta for g, eta in zip(one, (0.4825, 0.11, 0.09), strict=True)]
        assert expected == pytest.approx(found, abs=1e-14), name
        light, heavy = (
            gains(config(name), [1, 2, 3], [0.1, 0.9, 0.0], weight=w) for w in (1.0, 3.0)
        )
        assert [3.0 * each for each in light] == pytest.approx(heavy, abs=1e-14), name
        small = gains(config(name, anchor=0.2), [1, 2, 0], [0.5, 0.9, -0.3])
        conf = config(name, learning_rate=25.0, scale=100.0, anchor=20.0)
        large = gains(conf, [1, 2, 0], [50.0, 90.0, -30.0])
        assert [100.0 * each for each in small] == pytest.approx(large, abs=1e-10), name


def test_a_member_climbs_by_the_share() -> None:
    """A side rates as its mean, by shares, times one total of both, and so does its gradient."""
    standings = [{"team": ["a", "b"], "shares": [1, 0.5], "rank": 1}, {"player": "c", "rank": 2}]
    team, total = (0.4 + 0.5 * -0.2) / 1.5, 2.0 / (1.0 / 1.5 + 1.0)
    for name in SYSTEMS:
        after = rate(config(name), standings, {"a": 0.4, "b": -0.2, "c": 0.7})
        gain, loss = gains(config(name), [1, 2], [total * team, total * 0.7])
        a, b = total / 1.5 * gain, 0.5 * total / 1.5 * gain
        due = {"a": 0.4 + a, "b": -0.2 + b, "c": 0.7 + total * loss}
        assert due == pytest.approx(after, abs=1e-14), name


places = st.lists(st.integers(0, 4), min_size=2, max_size=7)


@given(st.sampled_from(sorted(SYSTEMS)), places, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_places_matter_and_the_order_of_the_list_does_not(
    name: str, places: list[int], random: Any
) -> None:
    """With ties, dnf and equal ratings. Of two equals the better placed ends at least as high."""
    full = [places[0] or 1, *places[1:]]
    conf, entries = config(name, anchor=-0.5), ranked(full)
    mu = {each["player"]: random.choice([0.0, 0.5, -1.2]) for each in entries}
    expected = rate(conf, entries, mu)
    random.shuffle(entries)
    assert expected == pytest.approx(rate(conf, entries, mu), abs=1e-12)
    found = gains(config(name), full, [0.3] * len(full))
    ends = [found[i] for i in sorted(range(len(full)), key=lambda i: full[i] or 99)]
    assert all(a >= b - PRECISION for a, b in itertools.pairwise(ends))


def test_nonsense_is_refused_with_its_place() -> None:
    """One line that names the field."""
    nonsense: list[dict[str, Any]] = [
        *({"learning_rate": each} for each in (0, [], [[1, 0.1], [1, 0.2]], [[1, -0.1]], math.nan)),
        {"scale": 0}, {"anchor": math.inf}, {"fixed": "bot"}, {"floor": 1.0, "initial_mu": 0.0},
        {"model": "cauchy"}, {"pairs": "best"}, {"orientation": "first"},
    ]  # fmt: skip
    for change in nonsense:
        with pytest.raises(parameters.BadParameters, match=next(iter(change))) as refusal:
            parameters.from_builtins({"system": "pairwise-elo", "learning_rate": 1.0, **change})
        assert "\n" not in str(refusal.value)


# --- the probability of an order, and its gradient ------------------------------------------------


class Exponential:
    """Of mean exp(x)."""

    def __init__(self, x: float) -> None:
        self.rate = math.exp(-x)
        self.range = 0.0, 39.0 / self.rate

    def density(self, t: float) -> float:
        return self.rate * math.exp(-self.rate * t)

    def below(self, t: float) -> float:
        return -math.expm1(-self.rate * t)


class Normal:
    """Of mean x and variance 1."""

    def __init__(self, x: float) -> None:
        self.x = x
        self.range = x - 8.5, x + 8.5

    def density(self, t: float) -> float:
        return math.exp(-0.5 * (t - self.x) ** 2) / math.sqrt(2.0 * math.pi)

    def below(self, t: float) -> float:
        return 0.5 * math.erfc((self.x - t) / math.sqrt(2.0))


class Gumbel:
    """Less the logarithm of an exponential time of mean exp(-x): who is chosen first is best."""

    def __init__(self, x: float) -> None:
        self.x = x
        self.range = x - 4.0, x + 26.0

    def density(self, t: float) -> float:
        return math.exp(self.x - t - math.exp(self.x - t))

    def below(self, t: float) -> float:
        return math.exp(-math.exp(self.x - t))


MODELS: dict[str, tuple[Any, type[Exponential | Normal | Gumbel], int]] = {
    "plackett-luce": (plackett_luce.gradient, Exponential, climb.EXPONENTIAL),
    "plackett-luce first": (plackett_luce.gradient_of_choices, Gumbel, climb.CHOICES),
    "thurstone": (thurstone.gradient, Normal, climb.GAUSSIAN),
}
DIFFERENCE = 1e-4
REFERENCE = 1e-7
"""The quadrature's error: 1e-11 over DIFFERENCE, plus DIFFERENCE squared. Thurstone's grid is no
worse."""


def ln_probability(model: str, x: Floats, ranked: int) -> float:
    """ln P(max(x[ranked:]) < x[ranked-1] < ... < x[0]), by a chain of ODEs (section 3.2.3)."""
    each = [MODELS[model][1](rating) for rating in x]
    last, others = each[ranked:] or each[-1:], each[: min(ranked, len(x) - 1)][::-1]

    def derivatives(t: float, f: Floats) -> Floats:
        below = math.prod(d.below(t) for d in last)
        return np.array([d.density(t) * g for d, g in zip(others, [below, *f[:-1]], strict=True)])

    low, high = min(d.range[0] for d in each), max(d.range[1] for d in each)
    solved = solve_ivp(
        derivatives, (low, high), np.zeros(len(others)), method="DOP853", rtol=1e-11, atol=1e-16,
        max_step=0.5,
    )  # fmt: skip
    return math.log(solved.y[-1, -1])


def differences(of: Callable[[Floats], float], x: Floats) -> list[float]:
    """The gradient of a function by central differences."""
    found = []
    for i in range(len(x)):
        step = np.zeros(len(x))
        step[i] = DIFFERENCE
        found.append((of(x + step) - of(x - step)) / (2.0 * DIFFERENCE))
    return found


ORDERS = [
    ([0.3, -0.2], 2), ([0.3, -0.2], 1), ([1.5, -1.0, 0.2], 3), ([-1.0, 0.4, 1.1], 1),
    ([0.1, 0.2, -0.5, 0.9], 2), ([0.5, -0.7, 1.2, 0.1, -0.3], 5), ([-0.5, 1.0, 0.3, 0.8, -1.0], 3),
]  # fmt: skip


def test_probability_and_gradient() -> None:
    """Of up to five players, the order of some at the end not observed."""
    for model, (x, ranked_ones) in product(MODELS, ORDERS):
        g, ratings = np.empty(len(x)), np.array(x)
        logarithm = MODELS[model][0](ratings, ranked_ones, g)
        expected = ln_probability(model, ratings, ranked_ones)
        assert logarithm == pytest.approx(expected, abs=REFERENCE), (model, x)
        due = differences(partial(ln_probability, model, ranked=ranked_ones), ratings)
        assert g.tolist() == pytest.approx(due, abs=REFERENCE), (model, x)
        assert sum(g) == pytest.approx(0.0, abs=REFERENCE), (model, x)


def test_the_integral_of_the_unobserved() -> None:
    """Rates e^25 apart, or a thousand of them: as SciPy integrates v from 0 to 1 (v = e^-t)."""
    for log_c in ([-30.0] * 3, [25.0, -25.0], [3.0] * 40, [0.0] * 1000):
        found = plackett_luce.unobserved(np.array(log_c), np.empty(len(log_c)))

        def integrand(v: float, log_c: list[float] = log_c) -> float:
            return math.exp(sum(math.log(-math.expm1(math.exp(c) * math.log(v))) for c in log_c))

        expected, _ = quad(integrand, 0.0, 1.0, epsabs=0.0, epsrel=1e-9, limit=400)
        assert math.exp(found) == pytest.approx(expected, rel=1e-8), log_c[:3]


def test_thousands_do_not_underflow() -> None:
    """ln P and the gradient are finite; that sums to 0. Of equals P = 1/n!, to the last digits."""
    for model, ranked_ones, spread in product(MODELS, (1500, 700), (0.0, 1.0, 30.0)):
        x = np.random.default_rng(3).normal(0.0, spread, 1500)
        g = np.empty(len(x))
        case = model, ranked_ones, spread
        assert MODELS[model][0](x, ranked_ones, g) < -1000.0, case
        assert np.all(np.isfinite(g)), case
        # 1e-9 of the largest, for rounding; where ratings lie 100 apart the grid is the limit
        most = 1e-9 * np.abs(g).sum() + (1e-3 if spread > 10.0 else 0.0)
        assert abs(g.sum()) < most, case
    for gradient, _, _ in MODELS.values():
        logarithm = gradient(np.zeros(1000), 1000, np.empty(1000))
        assert logarithm == pytest.approx(-math.lgamma(1001), abs=1e-6)


def test_ratings_far_apart_give_the_most_likely_performances() -> None:
    """No grid has room for them. The constraints are taken one at a time, by Dykstra's method."""
    for apart, ranked_ones in product((1e6, 1e20, 1e38), (2, 5, 7)):
        x = apart * np.array([-0.3, 0.9, -1.0, 0.5, 0.25, -0.75, 1.0])
        g = np.empty(7)
        thurstone.gradient(x, ranked_ones, g)
        pairs = [(k, k + 1) for k in range(ranked_ones - 1)]
        pairs += [(ranked_ones - 1, j) for j in range(ranked_ones, 7)]
        t, corrections = x.copy(), np.zeros((len(pairs), 7))
        for _ in range(2000):
            for number, (better, worse) in enumerate(pairs):
                y = t - corrections[number]
                t = y.copy()
                if y[better] < y[worse]:
                    t[[better, worse]] = 0.5 * (y[better] + y[worse])
                corrections[number] = t - y
        assert (x + g).tolist() == pytest.approx(t.tolist(), abs=1e-9 * apart), ranked_ones


def test_the_orientations_of_plackett_luce() -> None:
    """Each is the other with order and scale reversed. The default is not in the fingerprint."""
    last, first = (config("plackett-luce", orientation=each) for each in ("last", "first"))
    assert "orientation" not in parameters.for_fingerprint(last)
    assert parameters.fingerprint(first) != parameters.fingerprint(last)
    random = np.random.default_rng(2)
    for n in (2, 3, 8, 40):
        mu, places = random.normal(0.0, 2.0, n), sorted(random.integers(1, n, n).tolist())
        turned = gains(last, [n - each for each in places], (-mu).tolist())
        assert gains(first, places, mu.tolist()) == pytest.approx([-g for g in turned], abs=1e-12)
    for places in ([1, 2], [1, 1], [1, 0]):
        mu = random.normal(0.0, 300.0, 2)
        assert gains(first, places, mu.tolist()) == gains(last, places, mu.tolist())
    assert gains(first, [1, 2, 3, 4], [0.0] * 4)[0] == pytest.approx(0.25 * 0.75, abs=1e-12)
    assert gains(last, [1, 2, 3, 4], [0.0] * 4)[3] == pytest.approx(-0.25 * 0.75, abs=1e-12)


def test_a_tie_is_half_of_two_orders() -> None:
    """Those who tie stand by rating, once falling and once rising; equals share alike."""
    x = np.array([1.0, 0.2, 0.7, 0.7, -0.5])
    lo, hi = np.array([0, 1, 1, 1, 4]), np.array([0, 3, 3, 3, 4])
    for model, (gradient, _, likelihood) in MODELS.items():
        found = climb.order_gradient(x, lo, hi, 5, likelihood)
        g, mean = np.empty(5), np.zeros(5)
        for order in ([0, 1, 2, 3, 4], [0, 3, 2, 1, 4]):
            gradient(x[order], 5, g)
            mean[order] += 0.5 * g
        mean[[2, 3]] = 0.5 * (mean[2] + mean[3])
        assert found.tolist() == pytest.approx(mean.tolist(), abs=1e-12), model
        assert found[2] == found[3], model
