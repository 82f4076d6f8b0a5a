"""The level of those present, and seats: parameters, and systems with constants in points."""

import math
from itertools import product

import msgspec
import numpy as np
import pytest

from stream_rater.columns.arrays import Floats
from stream_rater.rating import levels, parameters, stages
from stream_rater.rating.balance import even_teams
from stream_rater.rating.model import Evidence, Wave, newcomers
from stream_rater.rating.parameters import SYSTEMS, PairwiseElo, RatingConfig, Topcoder, fingerprint
from stream_rater.rating.systems.kerby import Climbing
from stream_rater.rating.wins import Believed, deviations
from stream_rater.replay.pool import Pool
from stream_rater.runtime.selfcheck import SYSTEMS as ALL_SYSTEMS
from tests.rounds import day, ranked, read

UNIT = 400.0 / math.log(10.0)


def wave(
    sizes: list[int], mu: list[float], *, share: list[float] | None = None,
    shift: list[float] | None = None, rounds: int = 9, fixed: list[bool] | None = None,
    ceiling: float = math.inf,
) -> Wave:  # fmt: skip
    """A round whose sides are in order of place."""
    players, sides = len(mu), len(sizes)
    return Wave(
        np.array([0, sides]), np.ones(1), np.full(sides, ceiling), np.zeros(1, np.int64),
        np.arange(1, sides + 1, dtype=np.int32), np.append(0, np.cumsum(sizes)),
        np.ones(players) if share is None else np.array(share), np.array(mu, np.float64),
        np.full(players, 80.0), np.full(players, rounds), np.zeros(players, np.int64),
        fixed=np.array(fixed or [], np.bool_), shift=np.array(shift or [], np.float64),
    )  # fmt: skip


def gains(config: RatingConfig, some: Wave) -> Floats:
    found: Evidence = stages.estimate(config, some)
    return found[:, 1] - some.mu


def test_every_system_has_seats() -> None:
    """Names are checked. Configurations are hashable, and fingerprints include any seats."""
    for system in SYSTEMS:
        plain = SYSTEMS[system].sample()
        seated = msgspec.structs.replace(plain, seats={"home": 60.0, "away": 0.0})
        again = msgspec.structs.replace(plain, seats={"away": 0.0, "home": 60.0})
        assert hash(seated) == hash(again) and seated == again, system
        assert stages.rule_of(seated) is stages.rule_of(again), system
        assert fingerprint(seated) == fingerprint(again) != fingerprint(plain), system
        assert fingerprint(msgspec.structs.replace(plain, seats={})) == fingerprint(plain), system
        table = {**msgspec.to_builtins(plain), "seats": {"left side": 1.0}}
        with pytest.raises(
            parameters.BadParameters, match="seats: 'left side' is no name of a seat"
        ) as bad:
            parameters.from_builtins(table)
        assert "\n" not in str(bad.value)
    for name in ("", "nine char", "heim\u00e4", "tab\t", "nul\0"):
        with pytest.raises(parameters.BadParameters, match="1 to 8 printable characters of ASCII"):
            parameters.from_builtins({"system": "two-moment", "seats": {name: 1.0}})


def test_the_same_points_for_all_are_none_to_the_bit() -> None:
    """Also where the mean of the round's points is far from 0, or is not exactly those points."""
    assert np.mean([0.1] * 3) != 0.1
    plain, seated = wave([2] * 3, [1700.0] * 6), wave([2] * 3, [1700.0] * 6, shift=[0.1] * 3)
    for name, system in SYSTEMS.items():
        config: RatingConfig = system.sample()
        moves, none = levels.moves_of(config, seated), levels.moves_of(config, plain)
        assert moves is not None, name
        if none is None:
            assert not moves.player.any() and not moves.side.any() and (moves.scale == 1.0).all()
        found = [stages.estimate(config, each) for each in (plain, seated)]
        assert np.array_equal(found[0], found[1], equal_nan=True), name


def test_even_teams_of_five_at_another_level() -> None:
    """One more player of the level is worth nothing. From 1500 it would be worth 400 points."""
    mu = np.array([1950.0, 1920.0, 1890.0, 1880.0, 1860.0])
    config = parameters.TwoMoment(inexperience=0.0)
    found = deviations(config, Believed(mu, np.full(5, 80.0), np.full(5, 9)), 2)
    assert found == pytest.approx(mu - 1900.0, abs=1e-9)
    larger, smaller = even_teams(list("abcde"), found, 2)
    assert found[larger].sum() == pytest.approx(found[smaller].sum(), abs=30.0)
    four = deviations(config, Believed(mu[:4], np.full(4, 80.0), np.full(4, 9)), 2)
    assert four == pytest.approx(mu[:4] - 1500.0, abs=0.0)


def test_constants_of_pairwise_elo() -> None:
    """Of unequal sides, with a seat: the fixed stay, rates go by own ratings, the floor counts."""
    config = PairwiseElo(learning_rate=32.0, scale=UNIT, fixed=("bot",))
    some = wave([1, 2], [1900.1, 1833.3, 1777.7], fixed=[True, False, True], shift=[33.3, 0.0])
    assert gains(config, some)[[0, 2]].tolist() == [0.0, 0.0]
    assert gains(config, some)[1] < 0.0
    rates = ((1500.0, 32.0), (2000.0, 8.0))
    table = PairwiseElo(learning_rate=rates, scale=UNIT, initial_mu=1500.0)
    plain = PairwiseElo(learning_rate=8.0, scale=UNIT, initial_mu=1500.0)
    some = wave([1, 2], [3000.0] * 3, shift=[50.0, 0.0])
    assert gains(table, some) == pytest.approx(gains(plain, some), abs=1e-9)
    config = PairwiseElo(learning_rate=64.0, scale=UNIT, initial_mu=1500.0, floor=1100.0)
    some = wave([1, 3], [1105.0] * 4, shift=[0.0, 20.0])
    found = stages.estimate(config, some)[:, 1]
    assert found[1:].tolist() == [1100.0] * 3
    assert found[0] > 1105.0


def by_hand(deviations: list[float], anchor: float, rate: float) -> list[float]:
    """The gains by pairwise Elo. An anchor is behind all but the last, who is not compared."""
    found = []
    for i, own in enumerate(deviations):
        others = [(other, 1.0 if j > i else 0.0) for j, other in enumerate(deviations) if j != i]
        if i < len(deviations) - 1:
            others.append((anchor, 1.0))
        found.append(
            sum(rate * (won - 1.0 / (1.0 + math.exp((x - own) / UNIT))) for x, won in others)
        )
    return found


def test_the_anchor_is_a_side_of_one_player() -> None:
    """It has a fixed place, so deviations are from the initial rating in rounds of any sizes."""
    config = PairwiseElo(learning_rate=16.0, scale=UNIT, initial_mu=1500.0, anchor=1800.0)
    for sizes in ([1, 2], [2, 2]):
        mu = [1900.0, 1880.0, 1910.0, 1870.0][: sum(sizes)]
        cut = sizes[0]
        sums = [sum(x - 1500.0 for x in part) for part in (mu[:cut], mu[cut:])]
        due = by_hand(sums, 300.0, 16.0)
        found = gains(config, wave(sizes, mu))
        assert found[:cut] == pytest.approx([due[0]] * cut, abs=1e-9), sizes
        assert found[cut:] == pytest.approx([due[1]] * (len(mu) - cut), abs=1e-9), sizes
    alone = wave([1, 1], [1900.0, 1880.0])
    assert levels.moves_of(config, alone) is None
    assert gains(config, alone) == pytest.approx(by_hand([400.0, 380.0], 300.0, 16.0), abs=1e-9)


def test_a_ceiling_is_on_the_ladders_scale() -> None:
    """A winner against two performs at the ceiling at most, less experience. Glicko has none."""
    some = wave([1, 2], [1900.0] * 3, ceiling=1910.0)
    sample: dict[str, RatingConfig] = {name: SYSTEMS[name].sample() for name in SYSTEMS}
    for config in (parameters.TwoMoment(inexperience=0.0), sample["elo-mmr"], sample["glicko"]):
        found = stages.estimate(config, some)[0, 0]
        free = stages.estimate(config, some._replace(ceiling=np.full(2, np.inf)))[0, 0]
        if config is sample["glicko"]:
            assert found == free
        else:
            assert found <= 1910.0 + 1e-9 < free


def test_rounds_in_waves_equal_rounds_one_by_one() -> None:
    """Elo-MMR rates unequal sides and seats wave by wave, to the same bits."""
    config = parameters.EloMMR(weight_limit=0.2, sigma_limit=80.0, seats={"home": 60.0})
    one, two = wave([1, 2], [0.0] * 3), wave([1, 1], [0.0] * 2, shift=[60.0, 0.0])
    both = Wave(
        np.array([0, 2, 4]), np.ones(2), np.full(4, np.inf), np.zeros(2, np.int64),
        np.array([1, 2, 1, 2], np.int32), np.array([0, 1, 3, 4, 5]), np.ones(5), np.zeros(5),
        np.zeros(5), np.zeros(5, np.int64), np.zeros(5, np.int64),
        shift=np.array([0.0, 0.0, 60.0, 0.0]),
    )  # fmt: skip
    rows, heads = np.array([0, 1, 2, 1, 0]), []
    for way in ("together", "alone"):
        beliefs = newcomers(3, config.kept + 1, 1500.0, 350.0, coded=True)
        beliefs.header["mu"] = [1800.0, 1850.0, 1900.0]
        if way == "together":
            stages.rate_waves(config, beliefs, rows, both, np.arange(3), np.arange(2))
        else:
            for k, each in enumerate((one, two)):
                part = rows[:3] if k == 0 else rows[3:]
                stages.rate_waves(config, beliefs, part, each, np.array([0, 1]), np.array([k]))
        heads.append(beliefs.header.copy())
    assert heads[0].tobytes() == heads[1].tobytes()


def test_which_systems_keep_more_than_mu_and_sigma() -> None:
    """The evidence is not the new mu. Kerby's have an anchor; Topcoder weights by rating."""
    kept = {name for name, each in SYSTEMS.items() if not each.sample().memoryless}
    assert kept == {"elo-mmr", "elo-r", "glicko2"}
    anchored = {name for name, each in SYSTEMS.items() if "anchor" in each.__struct_fields__}
    assert anchored == {name for name, each in SYSTEMS.items() if issubclass(each, Climbing)}
    at = [gains(Topcoder(), wave([1, 2], [mu] * 3))[0] for mu in (1600.0, 2600.0)]
    duel = [gains(Topcoder(), wave([1, 1], [mu] * 2))[0] for mu in (1600.0, 2600.0)]
    assert at[1] / at[0] == pytest.approx(duel[1] / duel[0], rel=1e-6) != 1.0


SHARED = [each for each in ALL_SYSTEMS if not isinstance(each, Climbing | Topcoder)]
"""Kerby's do not divide gains by uncertainty; Topcoder weights by the oldest member's rounds."""
MATES, FOES = ["ann", "bob", "leaver"], ["x", "y", "z"]


def after(config: RatingConfig, share: float, *, won: bool | None) -> tuple[float, float]:
    """The mu of ann and of the one who left, after a round against three equals; None: before."""
    pool = Pool(config)
    pool.rate(read(config, *ranked([1] * 6, MATES + FOES), completed_at=day(0)), 0)
    if won is not None:
        sides = (
            {"team": MATES, "shares": [1.0, 1.0, share], "seat": "short", "rank": 1 if won else 2},
            {"team": FOES, "rank": 2 if won else 1},
        )
        pool.rate(read(config, *sides, round_id="b", completed_at=day(1)), 1)
    found = dict(pool)
    return float(found["ann"]["mu"]), float(found["leaver"]["mu"])


def test_who_left_is_moved_less() -> None:
    """Others move about as before, the one who left less. Points below 0 soften their defeat."""
    for config, won in product(SHARED, (False, True)):
        start, _ = after(config, 1.0, won=None)
        (mate, same), (other, early) = (after(config, share, won=won) for share in (1.0, 0.3))
        assert mate == pytest.approx(same, abs=0.01), config
        whole, stayed, left = abs(mate - start), abs(other - start), abs(early - start)
        assert (mate > start) == (other > start) == (early > start) == won, config
        assert left < 0.8 * stayed and 0.9 * whole < stayed < 1.5 * whole, config
        knows = msgspec.structs.replace(config, seats={"short": -80.0})
        assert after(knows, 0.3, won=won)[0] > other, config
