"""The measures of accuracy, against their definitions taken word by word."""

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import accuracy, bootstrap
from stream_rater.evaluation.accuracy import average, averages, by_rating, inversions, score
from stream_rater.evaluation.bootstrap import difference, differences
from stream_rater.evaluation.measures import FACTS_OF, FIELDS, MEASURES, OF_PAIRS, Difference
from stream_rater.evaluation.sides import scores_of
from stream_rater.operations.input_file import RoundsFile
from stream_rater.rating import parameters
from stream_rater.rating.elo_mmr.performance import C
from stream_rater.rating.model import DID_NOT_FINISH, Wave
from tests.benchmarks.lab import peers
from tests.benchmarks.lab.peers import PeerSystem
from tests.benchmarks.lab.report import load
from tests.builders.cases import cases

NOISE = 200.0**2


def scored(
    places: list[int], mu: list[float], rounds: list[int], *, sigma: float = 80.0,
    margin: float = 0.0, upset: float = 0.0,
) -> dict[str, float]:  # fmt: skip
    """One round's scores by name; players in any order."""
    order = sorted(range(len(places)), key=lambda i: places[i] or math.inf)
    n = len(places)
    (found,) = score(
        np.array([0, n]), np.array(places, np.int32)[order], np.arange(n + 1), np.ones(n),
        np.array(mu)[order], np.full(n, sigma), np.array(rounds)[order], 1500.0, NOISE, 1.0,
        margin > 0.0, np.array([margin]), np.array([upset]), np.empty(0),
    )  # fmt: skip
    return dict(zip(FIELDS[:OF_PAIRS], found.tolist(), strict=True))


def test_the_columns_that_kernels_write_have_their_numbers() -> None:
    for number, name in enumerate(FIELDS[:OF_PAIRS]):
        assert getattr(accuracy, name.upper()) == number, name


def test_every_measure_is_a_column_behind_its_weight() -> None:
    """What is about pairs stands in the columns of `accuracy`, what is about winners behind."""
    assert {*FACTS_OF} < {*FIELDS}
    for name, facts in FACTS_OF.items():
        at, weight = FIELDS.index(name), FIELDS.index(facts.weight)
        assert weight < at, name
        assert (at >= OF_PAIRS) == (weight >= OF_PAIRS) == facts.is_of_winner, name


def by_definition(places: list[int], mu: list[float]) -> tuple[float, float] | None:
    """Pair inversion and rank deviation in %, as data/README.md has them; None: all tie."""
    ranks = [place or math.inf for place in places]
    if len(set(ranks)) < 2:
        return None
    n = len(ranks)
    wrong = sum((ranks[i] - ranks[j]) * (mu[i] - mu[j]) > 0.0 for i, j in combinations(range(n), 2)
                if ranks[i] != ranks[j] and mu[i] != mu[j])  # fmt: skip
    deviation = 0
    for at, i in enumerate(sorted(range(n), key=lambda i: (-mu[i], ranks[i]))):
        low = sum(rank < ranks[i] for rank in ranks)
        high = low + sum(rank == ranks[i] for rank in ranks) - 1
        deviation += abs(at - min(max(at, low), high))
    return 100.0 * (1.0 - wrong / math.comb(n, 2)), 100.0 * deviation / (n * (n - 1))


def test_the_definition_on_a_round_done_by_hand() -> None:
    """Rated a > b > c, placed b, a = c: one pair of three is wrong; a stands one place too high."""
    assert by_definition([2, 1, 2], [3.0, 2.0, 1.0]) == pytest.approx((200.0 / 3, 200.0 / 6))


@st.composite
def rounds(draw: Any, most: int = 40) -> tuple[list[int], list[float], list[int]]:
    """Places (0: not finished), ratings with many equal, rounds played before."""
    n = draw(st.integers(2, most))
    few = st.integers(0, draw(st.sampled_from([1, 3, n])))
    ratings = st.integers(-4, 4) if draw(st.booleans()) else st.floats(-2000, 2000)
    places = draw(st.lists(few, min_size=n, max_size=n))
    mu = [1500.0 + x for x in draw(st.lists(ratings, min_size=n, max_size=n))]
    return places, mu, draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))


@given(rounds())
def test_pair_inversion_and_rank_deviation_are_what_they_are_defined_as(drawn: Any) -> None:
    """Of the experienced, re-ranked among themselves, and of all; weighed by their number."""
    places, mu, played = drawn
    found = scored(*drawn)
    known = [i for i, count in enumerate(played) if count >= 5]
    for those, weight, end in ((known, "experienced", ""), (range(len(mu)), "entries", "_all")):
        expected = by_definition([places[i] for i in those], [mu[i] for i in those])
        assert found[weight] == (len(those) if expected else 0)
        if expected:
            both = found[f"pair_inversion{end}"], found[f"rank_deviation{end}"]
            assert both == pytest.approx(expected, abs=1e-9)


@given(rounds())
def test_kendall_and_the_scores_are_what_they_are_defined_as(drawn: Any) -> None:
    """Over all pairs not tied in place, of rounds small enough that all are taken."""
    places, mu, played = drawn
    found = scored(places, mu, played)
    ranks = [place or math.inf for place in places]
    discordant, losses, squares, right = [], [], [], list[float]()
    for i, j in combinations(range(len(mu)), 2):
        if ranks[i] == ranks[j]:
            continue
        lead = (mu[i] - mu[j]) * (1 if ranks[i] < ranks[j] else -1)
        discordant.append(1.0 if lead < 0.0 else 0.5 if lead == 0.0 else 0.0)
        if min(played[i], played[j]) >= 5:
            right.append(100.0 * (1.0 - discordant[-1]))
        z = lead / math.sqrt(2 * (80.0**2 + NOISE))
        p = min(max(_below(z), accuracy.LEAST_PROBABILITY), 1.0 - accuracy.LEAST_PROBABILITY)
        losses.append(-math.log(p))
        squares.append((1.0 - p) ** 2)
    assert found["pairs"] == len(discordant)
    assert found["order"] == pytest.approx(np.mean(right) if right else 0.0, abs=1e-9)
    if discordant:
        assert found["kendall_tau"] == pytest.approx(np.mean(discordant), abs=1e-12)
        assert found["order_all"] == pytest.approx(100.0 - 100.0 * np.mean(discordant), abs=1e-9)
        assert found["scored"] == len(mu)
        # abs: of the normal distribution's far upper tail only 1 - p is exact
        assert found["log_loss"] == pytest.approx(np.mean(losses), rel=1e-9, abs=1e-9)
        assert found["brier"] == pytest.approx(np.mean(squares), abs=1e-9)
    else:
        assert found["scored"] == found["entries"] == 0


def _below(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def crowd(n: int, seed: int = 1) -> tuple[Any, Floats, Floats]:
    rng = np.random.default_rng(seed)
    skill = rng.normal(1500.0, 300.0, n)
    order = np.argsort(-rng.normal(skill, 250.0))
    place = (np.arange(n) // 3 + 1).astype(np.int32)
    place[-n // 10 :] = DID_NOT_FINISH
    return place, skill[order], np.full(n, 200.0**2)


def test_sampled_pairs_show_what_all_would() -> None:
    """In a crowd, within one percent of the loss over every pair; and they are the same again."""
    place, mu, variance = crowd(3000)
    some = accuracy.pair_scores(place, mu, variance, 0.0)
    i, j = np.triu_indices(len(mu), 1)
    untied = place[i] != place[j]
    z = (mu[i] - mu[j])[untied] / math.sqrt(2 * 200.0**2)
    p = np.array([_below(each) for each in z.tolist()])
    assert some[2] < len(p) / 50
    assert some[0] == pytest.approx(-np.log(p).mean(), rel=0.01)
    assert some[1] == pytest.approx(((1 - p) ** 2).mean(), rel=0.01)
    assert accuracy.pair_scores(place, mu, variance, 0.0) == some


def test_hopeless_favourites_cost_no_infinity() -> None:
    """The loss of a sure thing that did not happen is large, and a number."""
    found = scored([1, 2], [-1e6, 1e6], [0, 0])
    assert found["log_loss"] == pytest.approx(-math.log(accuracy.LEAST_PROBABILITY))
    assert found["brier"] == pytest.approx(1.0)


def test_a_team_is_predicted_by_the_sum_of_its_members() -> None:
    """Deviations add up, with shares, and so do variances; all members must be experienced."""
    (row,) = score(
        np.array([0, 2]), np.array([1, 2], np.int32), np.array([0, 2, 3]),
        np.array([1.0, 0.5, 1.0]), np.array([1600.0, 1400.0, 1540.0]), np.array([90.0, 60.0, 30.0]),
        np.array([9, 3, 7]), 1500.0, NOISE, 1.0, False, np.zeros(1), np.zeros(1), np.empty(0),
    )  # fmt: skip
    found = dict(zip(FIELDS[:OF_PAIRS], row.tolist(), strict=True))
    variance = 90.0**2 + 0.25 * 60.0**2 + 30.0**2 + 2.25 * NOISE
    assert found["log_loss"] == pytest.approx(-math.log(_below(10.0 / math.sqrt(variance))))
    assert (found["experienced"], found["pair_inversion_all"]) == (0.0, 100.0)


def test_averages_weigh_each_round_by_its_entries() -> None:
    """And are None where nothing was scored."""
    scores = np.zeros((3, len(FIELDS)))
    scores[0, :4] = 10, 80.0, 20.0, 60.0
    scores[1, :4] = 30, 60.0, 40.0, 60.0
    found = averages(scores)
    assert found["pair_inversion"] == 65.0 and found["rank_deviation"] == 35.0
    assert set(found) == set(MEASURES)
    assert [name for name, value in found.items() if value is None] == list(MEASURES[3:])


LIMITS: dict[str, Any] = {"weight_limit": 0.2, "sigma_limit": 80.0}
DRIFT: dict[str, Any] = {"beta": 200.0, "sigma_drift": 30.0}


@cases("config, expected", [
    (parameters.EloMMR(**LIMITS), (1.0, 6.0 * 6400.0 + 0.2 * 6400.0)),
    (parameters.EloMMX(**LIMITS), (1.0, 6.0 * 6400.0 + 0.2 * 6400.0)),
    (parameters.Codeforces(beta=300.0, weight=0.2), (0.0, 45_000.0)),
    (parameters.Topcoder(), (1.0, 0.0)),
    (parameters.Glicko(**DRIFT), (1.0, 20_900.0)),
    (parameters.Bar(**DRIFT), (1.0, 40_900.0)),
    (parameters.TrueSkill(**DRIFT, draw_margin=1.0), (1.0, 40_900.0)),
    (parameters.EloR(delta=100.0, sigma_limit=60.0), (1.0, 10_000.0 + 2025.0)),
])  # fmt: skip
def test_each_system_has_a_model_of_a_match_of_two(config: Any, expected: Any) -> None:
    """The parts of its variance."""
    assert config.chances == pytest.approx(expected)


@cases("system", ["elo", "pairwise-elo", "plackett-luce", "thurstone"])
@cases("model", ["logistic", "gaussian"])
def test_the_model_of_two_is_what_a_climbing_system_climbs(system: str, model: str) -> None:
    """One game moves the winner by the learning rate times the derivative of ln P(win)."""
    table = {"system": system, "learning_rate": 1e-3, "scale": 150.0, "initial_mu": 0.0}
    if system in ("elo", "pairwise-elo"):
        table["model"] = model
    config: Any = parameters.from_builtins(table)
    sigmas, noise = config.chances
    assert sigmas == 0.0

    def surprise(winner: float) -> float:
        z = (winner - 30.0) / math.sqrt(2.0 * noise)
        return -math.log(_below(z) if config.likelihood.gaussian else 1 / (1 + math.exp(-C * z)))

    one = np.ones(1)
    wave = Wave(
        np.array([0, 2]), one, np.full(2, np.inf), np.zeros(1, np.int64),
        np.array([1, 2], np.int32), np.arange(3), np.ones(2),
        np.array([-100.0, 30.0]), np.ones(2), *np.zeros((2, 2), np.int64),
    )  # fmt: skip
    performance = config.estimate(wave)[0, 0]  # mu + scale^2 d ln P / d mu
    slope = (surprise(-101.0) - surprise(-99.0)) / 2.0
    assert (performance + 100.0) / 150.0**2 == pytest.approx(slope, rel=1e-4)


@cases("n", [2, 5, accuracy.EXACT, accuracy.EXACT + 1, 300])
def test_every_pair_that_could_be_scored_is_counted_once(n: int) -> None:
    """As scored, as a draw, or as two of whom neither finished; whatever the size of the round."""
    random = np.random.default_rng(n)
    places = np.sort(random.integers(1, max(n // 2, 2), n))
    places[n - n // 4 :] = 0
    found = scored(places.tolist(), random.normal(1500.0, 200.0, n).tolist(), [9] * n)
    order = np.array([*places[places > 0], *places[places == 0]])
    scoreable = [(i, i + d) for d in accuracy.distances_of(n) for i in range(n - d)]
    kinds = [
        "unfinished" if order[i] == order[j] == 0 else "drawn" if order[i] == order[j] else "scored"
        for i, j in scoreable
    ]
    for kind in ("scored", "drawn", "unfinished"):
        assert found[f"pairs_{kind}"] == kinds.count(kind), kind


# --- entries by rating, and inversions ------------------------------------------------------------

RATINGS = st.one_of(st.sampled_from([-5e5, 0.0, 1500.0, 1500.0, 5e5]), st.floats(-1e6, 1e6))


@given(st.lists(RATINGS, min_size=1, max_size=200))
def test_entries_by_falling_rating_keep_their_order_where_it_is_equal(mu: list[float]) -> None:
    assert by_rating(np.array(mu)).tolist() == sorted(range(len(mu)), key=lambda i: -mu[i])


@given(st.lists(st.integers(1, 6), min_size=1, max_size=260), st.integers(0, 2**32))
def test_inversions_are_pairs_the_other_way_round(places: list[int], seed: int) -> None:
    """Of those not tied in place."""
    places.sort()
    position = np.random.default_rng(seed).permutation(len(places))
    expected = sum(
        places[i] < places[j] and position[i] > position[j]
        for i, j in combinations(range(len(places)), 2)
    )
    assert inversions(np.array(places, np.int32), position) == expected


# --- the paired bootstrap, where the answer is known ----------------------------------------------


def scores(values: Floats, weights: Floats) -> Floats:
    found = np.zeros((len(values), len(FIELDS)))
    found[:, FIELDS.index("experienced")] = weights
    found[:, FIELDS.index("pair_inversion")] = values
    return found


RNG = np.random.default_rng(7)
VALUES, WEIGHTS = RNG.normal(75.0, 5.0, 400), RNG.integers(2, 50, 400).astype(np.float64)


def test_what_is_better_in_every_round_is_certain() -> None:
    """Rounds are paired: a constant gap has no width. A gap that changes its sign is noise."""
    same = scores(VALUES, WEIGHTS)
    assert difference(same, same, "pair_inversion") == Difference(0.0, 0.0, 0.0)
    found = difference(scores(VALUES + 0.5, WEIGHTS), scores(VALUES, WEIGHTS), "pair_inversion")
    assert found is not None and not found.noise
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    gaps = np.where(np.arange(len(VALUES)) % 2, 1.0, -1.0)
    found = difference(scores(VALUES + gaps, WEIGHTS), scores(VALUES, WEIGHTS), "pair_inversion")
    assert found is not None and found.noise and found.low < 0.0 < found.high


def test_the_interval_is_as_wide_as_the_normal_one() -> None:
    """With equal weights: 1.96 standard errors of the differences on both sides, within 5 %."""
    gaps = RNG.normal(0.3, 2.0, len(VALUES))
    even = np.ones(len(VALUES))
    found = difference(scores(VALUES + gaps, even), scores(VALUES, even), "pair_inversion")
    assert found is not None
    mean, error = gaps.mean(), 1.96 * gaps.std() / np.sqrt(len(gaps))
    assert found.mean == pytest.approx(mean)
    assert (found.low, found.high) == pytest.approx((mean - error, mean + error), abs=0.1 * error)


def test_heavy_rounds_count_more() -> None:
    base, other, weights = (np.array(each) for each in ([50.0, 50.0], [60.0, 50.0], [3.0, 1.0]))
    found = difference(scores(other, weights), scores(base, weights), "pair_inversion")
    assert found is not None and found.mean == pytest.approx(7.5)


def test_several_measures_have_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each difference is as if computed alone; there is none where nothing was scored."""
    one, other = (np.random.default_rng(seed).random((60, len(FIELDS))) for seed in (1, 2))
    one[:, FIELDS.index("pairs")] = 0.0
    alone = {measure: difference(one, other, measure) for measure in MEASURES}
    assert alone["kendall_tau"] is None and alone["brier"] is not None
    assert difference(one[:0], other[:0], "brier") is None
    drawn: list[int] = []
    draws = bootstrap._resample

    def counting(rounds: int, count: int) -> Iterator[Floats]:
        drawn.append(count)
        return draws(rounds, count)

    monkeypatch.setattr(bootstrap, "_resample", counting)
    together = differences(one, other, MEASURES)
    assert len(drawn) == 1

    def parts(found: Mapping[str, Difference | None]) -> list[float]:
        return [x for each in found.values() if each for x in (each.mean, each.low, each.high)]

    assert together["kendall_tau"] is None and together.keys() == alone.keys()
    assert parts(together) == pytest.approx(parts(alone))


@cases("rounds", [50, 51])
def test_each_draw_takes_as_many_rounds_as_there_are(
    monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    """With repetition, and as independent draws vary; however they are cut into chunks."""
    found = []
    for chunk in (1, 7 * rounds, 10**6):
        monkeypatch.setattr(bootstrap, "CHUNK", chunk)
        found.append(np.concatenate([each.copy() for each in bootstrap._resample(rounds, 3000)]))
    times = found[0]
    assert times.shape == (3000, rounds) and set(times.sum(axis=1)) == {float(rounds)}
    assert abs(times.mean(axis=0) - 1.0).max() < 0.1
    assert times.var() == pytest.approx(1.0 - 1.0 / rounds, rel=0.05)
    assert abs(np.corrcoef(times.T) - np.eye(rounds)).max() < 0.1
    assert np.array_equal(times, found[1]) and np.array_equal(times, found[2])


def test_many_rounds_are_drawn_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean is the same, and the interval about as wide."""
    rng = np.random.default_rng(5)
    weights = rng.integers(2, 9, 6001).astype(np.float64)
    base = scores(rng.normal(70.0, 5.0, 6001), weights)
    other = scores(rng.normal(70.2, 5.0, 6001), weights)
    alone = difference(base, other, "pair_inversion")
    monkeypatch.setattr(bootstrap, "MOST_RESAMPLED", 1000)
    grouped = difference(base, other, "pair_inversion")
    assert alone is not None and grouped is not None
    assert grouped.mean == pytest.approx(alone.mean)
    assert grouped.high - grouped.low == pytest.approx(alone.high - alone.low, rel=0.15)


# --- the scores of a peer on real rounds, by a scorer that shares no code with ours ---

PEER = "openskill-thurstone-mosteller"
ROUNDS = {"clubs": 3000, "frc": 2000}  # A file of duels with draws, and one of teams.
BETA, TAU = 9.0, 0.25
KNOWN = 5  # A side is experienced if each of its members has played so many rounds before.


def by_openskill(path: Path, count: int) -> tuple[float, float, int]:
    """By openskill: the mean of -ln P(winner), % of experienced favourites who won, the rounds."""
    model: Any = peers.peer_module("openskill.models").ThurstoneMostellerFull(
        mu=0.0, sigma=25.0 / 3.0, beta=BETA, tau=TAU
    )
    ratings: dict[str, Any] = {}
    played: dict[str, int] = defaultdict(int)
    losses, right = [], []
    with gzip.open(path, "rt") as lines:
        for _, line in zip(range(count), lines, strict=False):
            standings = json.loads(line)["standings"]
            assert len(standings) == 2
            names = [each.get("team") or [each["player"]] for each in standings]
            ranks = [each["rank"] for each in standings]
            teams = [[ratings.setdefault(x, model.rating(mu=0.0, sigma=25.0 / 3.0)) for x in team]
                     for team in names]  # fmt: skip
            if ranks[0] != ranks[1]:
                winner = 0 if ranks[0] < ranks[1] else 1
                losses.append(-math.log(model.predict_win(teams)[winner]))
                if min(played[x] for team in names for x in team) >= KNOWN:
                    gap = sum(r.mu for r in teams[winner]) - sum(r.mu for r in teams[1 - winner])
                    right.append(1.0 if gap > 0.0 else 0.0 if gap < 0.0 else 0.5)
            for team, rated in zip(names, model.rate(teams, ranks=ranks), strict=True):
                for name, rating in zip(team, rated, strict=True):
                    ratings[name] = rating
                    played[name] += 1
    return math.fsum(losses) / len(losses), 100.0 * sum(right) / len(right), len(losses)


@pytest.mark.skipif(PEER in peers.missing(), reason="`make bench` installs openskill")
@cases("name", sorted(ROUNDS))
def test_an_independent_scorer_agrees(shared: Path, name: str) -> None:
    """In log loss and in order, to 1e-4, on thousands of real rounds, as `evidence` plays them."""
    path = shared / "data" / f"{name}.jsonl.gz"
    data, _ = load(path, RoundsFile(path), ROUNDS[name])
    config = peers.PeerConfig(PEER, beta=BETA, tau=TAU)
    scores = scores_of(PeerSystem(PEER).play(data.sessions, config))
    log_loss, order, rounds = by_openskill(path, ROUNDS[name])
    assert rounds > 1500
    assert average(scores, "log_loss") == pytest.approx(log_loss, abs=1e-4)
    assert average(scores, "order") == pytest.approx(order, abs=1e-4)
