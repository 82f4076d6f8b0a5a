"""Rating configurations, the rules that they make, what ladders warn of; and stage 1 by hand."""

import math
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stream_rater
from stream_rater.config import ladders
from stream_rater.contract.record import Record
from stream_rater.operations.rate import rate
from stream_rater.rating import parameters, stages
from stream_rater.rating.elo_mmr import performance
from stream_rater.rating.elo_mmr.performance import LEAST_WEIGHT, performances
from stream_rater.rating.model import NEVER, Beliefs, Evidence, newcomers
from stream_rater.rating.stages import RatingRule, rule_of
from stream_rater.rounds.decoder import RoundDecoder
from tests.benchmarks.stage1 import LOGISTIC, wave_of_size
from tests.elo_mmr_oracle import zero
from tests.rounds import as_json, ranked, read, wave_of

PAIR = {"system": "elo-mmr", "weight_limit": 0.23, "sigma_limit": 54}


@given(st.floats(1e-3, 1e3), st.floats(1e-2, 1e3), st.floats(1.0, 1e3), st.floats(1e-3, 1e6))
def test_both_forms_are_the_same_pair(w: float, s: float, beta: float, gamma: float) -> None:
    """gamma^2 = w s^2 and beta^2 = (1 + 1/w) s^2 for (weight_limit, sigma_limit) = (w, s)."""
    found = parameters.EloMMR(beta=math.sqrt(1.0 + 1.0 / w) * s, gamma=math.sqrt(w) * s)
    # relative: squares and roots; where w is large, 1 + 1/w forgets digits of 1/w
    assert (w, s) == pytest.approx(found.limits, rel=1e-14 * (1.0 + w))
    w, s = parameters.EloMMR(beta=beta, gamma=gamma).limits
    pair = math.sqrt(1.0 + 1.0 / w) * s, math.sqrt(w) * s
    assert pair == pytest.approx((beta, gamma), rel=1e-13)


def test_defaults() -> None:
    """Those of the contract; history is the service's K. The pair is taken as it stands."""
    found = parameters.from_json(msgspec.json.encode(PAIR))
    assert isinstance(found, parameters.EloMMR) and found.limits == (0.23, 54.0)
    assert found == parameters.EloMMR(weight_limit=0.23, sigma_limit=54.0)
    assert (found.initial_mu, found.initial_sigma, found.provisional_rounds) == (1500, 350, 5)
    assert (found.ties, found.drift_per_day, found.newcomer_weights) == ("full", 0.0, ())
    assert (found.history, found.kept, found.skip_all_tied) == (20, parameters.DEFAULT_KEPT, False)


def test_json_and_tables_agree() -> None:
    """In JSON and TOML they are equal, and so is the fingerprint, which depends on nothing else."""
    table = {
        **PAIR, "rho": "inf", "ties": "split", "history": "full", "newcomer_weights": [2, 1.5],
        "display": {"minus_sigma": 3}, "floor": 0, "drift_per_day": 4,
    }  # fmt: skip
    found = parameters.from_builtins(table)
    assert found == parameters.from_json(msgspec.json.encode(table))
    assert isinstance(found, parameters.EloMMR)
    assert (found.momentum, found.kept) == (math.inf, 0)
    assert found.display == parameters.MinusSigma(minus_sigma=3.0)
    prints = [
        parameters.fingerprint(parameters.from_builtins(each))
        for each in (PAIR, dict(reversed(PAIR.items())))
    ]
    assert (
        prints[0]
        == prints[1]
        != parameters.fingerprint(parameters.from_builtins({**PAIR, "rho": 0.5}))
    )
    assert len(prints[0]) == 16


def test_nonsense_is_refused_with_its_place() -> None:
    """One line names the field. Broken JSON raises no error of the parser's own."""
    values: dict[str, list[Any]] = {
        "sigma_limit": [0, -1, math.nan, math.inf, 1e-300], "weight_limit": [0, "much"],
        "initial_sigma": [0], "initial_mu": [math.nan, 1e10], "rho": [-1, "infinite", math.nan],
        "ties": ["half"], "drift_per_day": [-1], "history": [0, 65, "some"], "display": ["sigma"],
        "provisional_rounds": [-1], "floor": [math.inf],
    }  # fmt: skip
    nonsense: list[tuple[dict[str, Any], str]] = [
        *(({name: each}, f"$.{name}") for name, some in values.items() for each in some),
        ({"newcomer_weights": [1, 0]}, "$.newcomer_weights["),
        ({"newcomer_weights": [math.nan]}, "$.newcomer_weights["),
        ({"display": {"plus_sigma": 1}}, "plus_sigma"),
        ({"system": "elo-mmm"}, "elo-mmm"), ({"sigma_limits": 1}, "sigma_limits"),
        ({"beta": 200}, "either"), ({"beta": 200, "gamma": 30}, "either"),
        ({"weight_limit": None}, "either"), ({"weight_limit": None, "beta": 200}, "either"),
    ]  # fmt: skip
    for change, place in nonsense:
        with pytest.raises(parameters.BadParameters) as refusal:
            parameters.from_builtins({**PAIR, **change})
        assert place in str(refusal.value) and "\n" not in str(refusal.value), change
    for data in (b"", b"{", b"[]", b"null", b"{}", b"\xff", b'{"system":"elo"}'):
        with pytest.raises(parameters.BadParameters):
            parameters.from_json(data)


CONFIG = parameters.EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=1.0)


def config(**fields: Any) -> parameters.EloMMR:
    return msgspec.structs.replace(CONFIG, **fields)


def test_the_displayed_rating() -> None:
    """It is mu - 2 (sigma - sigma_limit) unless the ladder says otherwise, not below the floor."""
    for changed, expected in (
        (config(), 1560.0), (config(display="mu"), 1600.0),
        (config(display=parameters.MinusSigma(minus_sigma=3.0)), 1600.0 - 3.0 * 100.0),
        (config(floor=1590.0), 1590.0), (config(floor=1500.0), 1560.0),
    ):  # fmt: skip
        rule = rule_of(changed)
        assert expected == rule.rating(1600.0, 100.0), changed
        found = rule.rating(np.full(2, 1600.0), np.full(2, 100.0)).tolist()
        assert [expected] * 2 == found, changed
    by_spread = parameters.EloMMR(
        beta=math.sqrt(1.0 + 1.0 / 0.2) * 80.0, gamma=math.sqrt(0.2) * 80.0
    )
    assert rule_of(by_spread).rating(1600.0, 100.0) == pytest.approx(1560.0, abs=1e-9)


def test_a_law_travels() -> None:
    """Through JSON and MessagePack a law stays what it was, infinite momentum included."""
    rhos: list[Any] = [0.0, 0.04, 1.0, "inf"]
    for rho in rhos:
        conf = config(rho=rho, history="full", floor=100.0)
        rule = rule_of(conf)
        assert rule.momentum == (math.inf if rho == "inf" else rho)
        assert rule == msgspec.json.decode(msgspec.json.encode(rule), type=RatingRule)
        assert rule == msgspec.msgpack.decode(msgspec.msgpack.encode(rule), type=RatingRule)
        assert (rule.kept, rule.floor, rule.provisional_rounds) == (0, 100.0, 5)
        assert rule.config == parameters.fingerprint(conf)


def test_rows_and_their_books() -> None:
    """Each row uses its own rho and K. A round counts; the stored time never goes back."""
    rules = [rule_of(config(rho="inf", history=3)), rule_of(config(rho=0.0, history=2))]
    beliefs, rows = newcomers(2, 8, 1500.0, 350.0, coded=True), np.arange(2)
    for p in (1700.0, 1300.0, 1900.0):
        stages.update(beliefs, rows, np.array([[p, 32_000.0, 1_600.0]] * 2), rules, rows)
    assert beliefs.header["count"].tolist() == [1, 2]
    beliefs, row = newcomers(2, 1, 1500.0, 350.0), np.zeros(1, np.int64)
    seen = []
    for offset, time in ((3, -50), (4, 100), (9, 70)):
        stages.record_round(beliefs, row, row + offset, row + time)
        head = beliefs.header[0]
        seen.append([int(head[n]) for n in ("rounds", "last", "time", "previous_time")])
    assert seen == [[1, 3, -50, 0], [2, 4, 100, -50], [3, 9, 100, 100]]
    assert (beliefs.header["rounds"][1], beliefs.header["last"][1]) == (0, NEVER)


def test_a_ladder_warns_where_it_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It warns once: in Python at the line that makes it, by `rate` on standard error."""
    with pytest.warns(UserWarning, match="system topcoder: .* ratings no longer move") as caught:
        stream_rater.Ladder("topcoder")
    assert [each.filename for each in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream_rater.Ladder()
        stream_rater.Ladder("two-moment")
    file = tmp_path / "rounds.jsonl"
    file.write_bytes(as_json() + b"\n")
    rate(
        file, ladders.any_ladder(parameters.Topcoder()), tmp_path / "out.jsonl", None, records=False
    )
    assert capsys.readouterr().err.startswith("warning: ladder '*': system topcoder: ")


def test_what_a_file_of_ladders_warns_of() -> None:
    """Each text once, with the first ladder that it holds for; also of what is to hold later."""
    moving, still = (parameters.Glicko(beta=200.0, sigma_drift=drift) for drift in (35.0, 0.0))
    found = ladders.cautions_of(ladders.Ladders(ladders={
        "a": ladders.Ladder(rating=parameters.Topcoder()),
        "b": ladders.Ladder(rating=parameters.Topcoder(weight_limit=0.3)),
        "c": ladders.Ladder(rating=moving, changes=(ladders.Change(from_offset=9, rating=still),)),
        "d": ladders.Ladder(rating=CONFIG),
        "e": ladders.Ladder(rating=parameters.Codeforces(beta=200.0, weight=0.2)),
    }))  # fmt: skip
    assert [each[:10] for each in found] == ["ladder 'a'", "ladder 'c'", "ladder 'e'"]
    assert "by 0.85 points a player" in found[2]


def said_of(config: parameters.RatingConfig, places: Sequence[int], count: int = 100) -> list[str]:
    """What is said of so many such rounds, which are looked at in two calls."""
    decoder = RoundDecoder(ladders.any_ladder(config))
    values = [as_json(*ranked(places), round_id=f"r{i}") for i in range(count)]
    rounds, _ = decoder.decode([
        Record(0, i, value, received_s=math.inf) for i, value in enumerate(values)
    ])  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for some in (rounds.slice(0, count // 2), rounds.slice(count // 2, count)):
            decoder.informative(some)
    return [str(each.message) for each in caught]


def test_what_rounds_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once for a ladder: ties at one end, and more places than TrueSkill's scale has (38)."""
    for config in (CONFIG, parameters.EloR(), parameters.TwoMoment()):
        for places, way in (([1, 2, 2], "rises"), ([1, 0, 0], "rises"), ([1, 1, 3], "falls")):
            (text,) = said_of(config, places)
            assert text.startswith("ladder 'ranked-eu': many sides tie for ") and f" {way}." in text
        for places in ([1, 2, 3], [1, 1], [1, 1, 3, 4, 4], [*range(1, 20), 19, 0]):
            assert said_of(config, places) == []
        assert said_of(config, [1, 2, 2], 99) == []
    apart = msgspec.structs.replace(CONFIG, dnf="not-compared")
    for quiet in (parameters.Glicko(beta=200.0, sigma_drift=35.0), apart):
        assert said_of(quiet, [1, 0, 0]) == []
    trueskill = parameters.TrueSkill(beta=175.0, sigma_drift=3.5, draw_margin=31.1)
    (text,) = said_of(trueskill, range(1, 40), 4)
    assert "a round has 39 places, each 2 * draw_margin above the next: more than 38 leave" in text
    assert said_of(trueskill, range(1, 39), 4) == said_of(trueskill, [1, 2] * 40, 4) == []
    with pytest.warns(UserWarning, match="a round has 50 places"):
        stream_rater.Ladder("trueskill", beta=175, sigma_drift=3.5, draw_margin=31.1).rate(
            [f"p{i}" for i in range(50)]
        )
    file = tmp_path / "rounds.jsonl"
    lines = [as_json(*ranked([1, 2, 2]), round_id=f"r{i}") + b"\n" for i in range(300)]
    file.write_bytes(b"".join(lines))
    rate(file, ladders.any_ladder(CONFIG), tmp_path / "out.jsonl", None, records=False)
    assert (
        capsys.readouterr().err.count("warning: ladder 'ranked-eu': many sides tie for last") == 1
    )
    said = list[str]()
    ladders.say_cautions(ladders.any_ladder(parameters.Topcoder()), said.append)
    warnings.warn("what rounds do", stacklevel=1)
    assert said[0].startswith("ladder '*': system topcoder") and said[1:] == ["what rounds do"]


# --- stage 1 --------------------------------------------------------------------------------------

C = math.pi / math.sqrt(3.0)
STAGE_1 = parameters.EloMMR(weight_limit=0.25, sigma_limit=80.0, rho=1.0)
BETA2, GAMMA2 = (1.0 + 1.0 / 0.25) * 6400.0, 0.25 * 6400.0


def veterans(mu: list[float], sigma: list[float]) -> Beliefs:
    beliefs = newcomers(len(mu), 4, 1500.0, 350.0)
    beliefs.header["mu"], beliefs.header["sigma"] = mu, sigma
    beliefs.header["rounds"] = 9
    return beliefs


def evidence(
    beliefs: Beliefs, *standings: Any, config: parameters.EloMMR = STAGE_1, **fields: Any
) -> Evidence:
    """Of one round whose players are the beliefs, in order of place."""
    return stages.estimate(config, wave_of([read(config, *standings, **fields)], beliefs.header))


def test_a_wave_is_no_more_than_its_rounds() -> None:
    """More entries than are rated together, of rounds that differ: each has its bits alone."""
    size, rounds = 300, 30
    wave = wave_of_size(size, rounds, seed=1)._replace(
        weight=np.linspace(0.5, 2.0, rounds),
        ceiling=np.linspace(1500.0, 2500.0, rounds).repeat(size),
    )
    assert size * rounds > performance.TOGETHER > size
    together = stages.estimate(LOGISTIC, wave)
    for r in range(rounds):
        own, its = slice(r * size, (r + 1) * size), slice(r, r + 1)
        alone = wave._replace(
            round_starts=np.array([0, size]), weight=wave.weight[its],
            ceiling=wave.ceiling[own], time=wave.time[its], place=wave.place[own],
            entry_starts=np.arange(size + 1), share=wave.share[own], mu=wave.mu[own],
            sigma=wave.sigma[own], rounds=wave.rounds[own], last_time=wave.last_time[own],
        )  # fmt: skip
        assert stages.estimate(LOGISTIC, alone).tobytes() == together[own].tobytes()


def test_the_ceiling_caps_and_the_lightest_round_is_finite() -> None:
    """A weight below LEAST_WEIGHT counts as LEAST_WEIGHT, so that 1/w is finite."""
    beliefs = veterans([1500.0] * 3, [100.0] * 3)
    free = evidence(beliefs, *ranked([1, 2, 3]))[:, 0]
    capped = evidence(beliefs, *ranked([1, 2, 3]), performance_ceiling=1490.0)[:, 0]
    assert [min(p, 1490.0) for p in free] == capped.tolist()
    assert free[0] > 1490.0 > free[2]
    light = evidence(beliefs, *ranked([1, 2, 3]), weight=1e-320)[:, 1]
    assert light.tolist() == [(1 + 1 / LEAST_WEIGHT) * 6400.0] * 3


def team(place: int, *members: str, shares: list[float] | None = None) -> dict[str, Any]:
    return {"team": members, "rank": place} | ({"shares": shares} if shares else {})


def test_a_team_of_one_is_that_player() -> None:
    """A team of one who played it all is rated like a solo player, who is no team, to the bit."""
    mu, sigma = np.array([1512.3, 1633.9]), np.array([101.0, 77.7])
    beliefs = veterans(mu.tolist(), sigma.tolist())
    far = msgspec.structs.replace(STAGE_1, initial_mu=1e6)  # a sum of deviations would lose digits
    solo = evidence(beliefs, {"player": "a", "rank": 1}, {"player": "b", "rank": 2}, config=far)
    teams = evidence(beliefs, team(1, "a", shares=[1.0]), team(2, "b"), config=far)
    assert solo.tobytes() == teams.tobytes()
    u = C / np.sqrt(sigma * sigma + GAMMA2 + BETA2)
    assert performances(np.array([1, 2], np.int32), mu, u, 1.0).tolist() == solo[:, 0].tolist()
    assert solo[:, 1].tolist() == [BETA2, BETA2]


SHARES = st.sampled_from((None, [1.0, 1.0], [1.0, 0.5], [0.3, 0.9]))
BELIEFS = st.tuples(st.floats(1000, 2000), st.floats(50, 350))


@given(st.lists(BELIEFS, min_size=4, max_size=4), SHARES)
def test_teams_by_section_3_3(field: list[Any], shares: list[float] | None) -> None:
    """Two against two and by hand: sums of moments, a duel of teams, less the others' ratings."""
    beliefs = veterans([m for m, _ in field], [s for _, s in field])
    mu = np.array([m for m, _ in field]).reshape(2, 2)
    prior = np.array([s * s + GAMMA2 for _, s in field]).reshape(2, 2)
    part = np.array([shares or [1.0, 1.0], [1.0, 1.0]])
    if abs(part[0].sum() - part[1].sum()) > 1e-9:
        totals = part.sum(1, keepdims=True)
        part *= 2.0 / (1.0 / totals).sum() / totals
    level = 1500.0
    team_mu = level + (part * (mu - level)).sum(1)
    spread = (part**2 * (prior + BETA2)).sum(1)
    u = C / np.sqrt(spread)

    def minus_q(x: float, won: float) -> float:
        own, other = np.tanh((x - team_mu) * u / 2.0) * u
        # the winner meets itself as a tie (s - t) and the other as a loser (-t); else mirrored
        if won:
            return float(own - (u[1] - other) / 2.0)
        return float(other + (u[0] + own) / 2.0)

    found = [zero(partial(minus_q, won=won), -9000.0, 12000.0) for won in (True, False)]
    others = (part * (mu - level))[:, ::-1]
    expected = level + (np.array(found)[:, None] - level - others) / part
    beta2 = (spread[:, None] - part**2 * prior) / part**2
    actual = evidence(beliefs, team(1, "a", "b", shares=shares), team(2, "c", "d"))
    # thrice the golden tolerance: zero() sums cancelling terms, and shares of 0.3 triple its error
    assert expected.ravel() == pytest.approx(actual[:, 0], abs=3e-6)
    # relative: the same sum in another order
    assert beta2.ravel() == pytest.approx(actual[:, 1], rel=1e-13)
