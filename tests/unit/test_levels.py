"""The level of those present, and seats: their parameters, and what systems with constants on the
ladder's scale make of a moved round."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_rater.columns.arrays import Floats
from stream_rater.config.ladders import Ladder
from stream_rater.rating import levels, stages
from stream_rater.rating.model import Evidence, Wave, newcomers
from stream_rater.rating.parameters import (
    SYSTEMS,
    BadParameters,
    EloMMR,
    PairwiseElo,
    RatingConfig,
    Topcoder,
    TwoMoment,
    fingerprint,
    from_builtins,
)
from stream_rater.rating.prediction.balance import even_teams
from stream_rater.rating.prediction.forecast import Believed, deviations
from stream_rater.rating.systems.kerby import Climbing
from stream_rater.replay.pool import Pool
from tests.rounds import read

UNIT = 400.0 / math.log(10.0)


def wave(
    sizes: list[int], mu: list[float], *, share: list[float] | None = None,
    shift: list[float] | None = None, rounds: int = 9, fixed: list[bool] | None = None,
    ceiling: float = math.inf,
) -> Wave:  # fmt: skip
    """A round whose sides are in order of place."""
    players, sides = len(mu), len(sizes)
    return Wave(
        np.array([0, sides]), np.ones(1), np.array([ceiling]), np.zeros(1, np.int64),
        np.arange(1, sides + 1, dtype=np.int32), np.append(0, np.cumsum(sizes)),
        np.ones(players) if share is None else np.array(share), np.array(mu, np.float64),
        np.full(players, 80.0), np.full(players, rounds), np.zeros(players, np.int64),
        fixed=np.array(fixed or [], np.bool_), shift=np.array(shift or [], np.float64),
    )  # fmt: skip


def gains(config: RatingConfig, some: Wave) -> Floats:
    found: Evidence = stages.estimate(config, some)
    return found[:, 1] - some.mu


# --- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_has_seats(system: str) -> None:
    """Names are checked, a configuration stays hashable, and the fingerprint has the seats only if
    there are some."""
    plain = SYSTEMS[system].sample()
    seated = msgspec.structs.replace(plain, seats={"home": 60.0, "away": 0.0})
    again = msgspec.structs.replace(plain, seats={"away": 0.0, "home": 60.0})
    assert hash(seated) == hash(again) and seated == again
    assert stages.rule_of(seated) is stages.rule_of(again)
    assert fingerprint(seated) == fingerprint(again) != fingerprint(plain)
    assert fingerprint(msgspec.structs.replace(plain, seats={})) == fingerprint(plain)
    table = {**msgspec.to_builtins(plain), "seats": {"left side": 1.0}}
    with pytest.raises(BadParameters, match="seats: 'left side' is no name of a seat") as caught:
        from_builtins(table)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "nine char", "heim\u00e4", "tab\t", "nul\0"])
def test_a_bad_name_of_a_seat(name: str) -> None:
    with pytest.raises(BadParameters, match="1 to 8 printable characters of ASCII"):
        from_builtins({"system": "two-moment", "seats": {name: 1.0}})


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_same_points_for_all_are_none_to_the_bit(system: str) -> None:
    """Also where the mean of the round's points is far from 0, or is not exactly those points."""
    config: RatingConfig = SYSTEMS[system].sample()
    assert np.mean([0.1] * 3) != 0.1
    plain, seated = wave([2] * 3, [1700.0] * 6), wave([2] * 3, [1700.0] * 6, shift=[0.1] * 3)
    moves, none = levels.moves_of(config, seated), levels.moves_of(config, plain)
    assert moves is not None
    if none is None:
        assert not moves.player.any() and not moves.side.any() and not moves.ceiling.any()
    found = [stages.estimate(config, each) for each in (plain, seated)]
    assert np.array_equal(found[0], found[1], equal_nan=True)


# --- even teams ----------------------------------------------------------------------------------


def test_even_teams_of_five_at_another_level() -> None:
    """The team of two has the best: one more player of the level is worth nothing. From 1500, the
    third would be worth 400 points, and the two best would be too few."""
    mu = np.array([1950.0, 1920.0, 1890.0, 1880.0, 1860.0])
    config = TwoMoment(inexperience=0.0)
    found = deviations(config, Believed(mu, np.full(5, 80.0), np.full(5, 9)), 2)
    assert found == pytest.approx(mu - 1900.0, abs=1e-9)
    larger, smaller = even_teams(list("abcde"), found, 2)
    assert found[larger].sum() == pytest.approx(found[smaller].sum(), abs=30.0)
    four = deviations(config, Believed(mu[:4], np.full(4, 80.0), np.full(4, 9)), 2)
    assert four == pytest.approx(mu[:4] - 1500.0, abs=0.0)


# --- systems with constants on the ladder's scale ------------------------------------------------


def test_a_fixed_player_stays_to_the_bit() -> None:
    """In a round of unequal sides, and with a seat."""
    config = PairwiseElo(learning_rate=32.0, scale=UNIT, fixed=("bot",))
    some = wave([1, 2], [1900.1, 1833.3, 1777.7], fixed=[True, False, True], shift=[33.3, 0.0])
    assert gains(config, some)[[0, 2]].tolist() == [0.0, 0.0]
    assert gains(config, some)[1] < 0.0


def test_learning_rates_go_by_the_players_own_ratings() -> None:
    """All are at 3000, where the rate is 8, though the round is moved to 1500, where it is 32."""
    rates = ((1500.0, 32.0), (2000.0, 8.0))
    table = PairwiseElo(learning_rate=rates, scale=UNIT, initial_mu=1500.0)
    plain = PairwiseElo(learning_rate=8.0, scale=UNIT, initial_mu=1500.0)
    some = wave([1, 2], [3000.0] * 3, shift=[50.0, 0.0])
    assert gains(table, some) == pytest.approx(gains(plain, some), abs=1e-9)


def test_no_rating_falls_below_the_floor() -> None:
    """The floor is where it is, though the round is moved."""
    config = PairwiseElo(learning_rate=64.0, scale=UNIT, initial_mu=1500.0, floor=1100.0)
    some = wave([1, 3], [1105.0] * 4, shift=[0.0, 20.0])
    found = stages.estimate(config, some)[:, 1]
    assert found[1:].tolist() == [1100.0] * 3
    assert found[0] > 1105.0


def by_hand(deviations: list[float], anchor: float, rate: float) -> list[float]:
    """The gains of sides in order of place by pairwise Elo, with an anchor that is behind all but
    the last, whose order to it is not observed."""
    found = []
    for i, own in enumerate(deviations):
        others = [(other, 1.0 if j > i else 0.0) for j, other in enumerate(deviations) if j != i]
        if i < len(deviations) - 1:
            others.append((anchor, 1.0))
        found.append(
            sum(rate * (won - 1.0 / (1.0 + math.exp((x - own) / UNIT))) for x, won in others)
        )
    return found


@pytest.mark.parametrize("sizes", [[1, 2], [2, 2]])
def test_the_anchor_is_a_side_of_one_player(sizes: list[int]) -> None:
    """So a ladder with an anchor has sides of different sizes even in a round of two against two.
    By hand: all deviations, the anchor's too, are from the level of the players."""
    config = PairwiseElo(learning_rate=16.0, scale=UNIT, initial_mu=1500.0, anchor=1800.0)
    mu = [1900.0, 1880.0, 1910.0, 1870.0][: sum(sizes)]
    level = sum(mu) / len(mu)
    cut = sizes[0]
    sums = [sum(x - level for x in part) for part in (mu[:cut], mu[cut:])]
    due = by_hand(sums, 1800.0 - level, 16.0)
    found = gains(config, wave(sizes, mu))
    assert found[:cut] == pytest.approx([due[0]] * cut, abs=1e-9)
    assert found[cut:] == pytest.approx([due[1]] * (len(mu) - cut), abs=1e-9)
    alone = wave([1, 1], [1900.0, 1880.0])
    assert levels.moves_of(config, alone) is None
    assert gains(config, alone) == pytest.approx(by_hand([400.0, 380.0], 300.0, 16.0), abs=1e-9)


def test_topcoder_weighs_by_the_rating_itself() -> None:
    """A round of one at 2600 against two weighs less for the one than at 1600, as a duel does."""
    at = [gains(Topcoder(), wave([1, 2], [mu] * 3))[0] for mu in (1600.0, 2600.0)]
    duel = [gains(Topcoder(), wave([1, 1], [mu] * 2))[0] for mu in (1600.0, 2600.0)]
    assert at[1] / at[0] == pytest.approx(duel[1] / duel[0], rel=1e-6) != 1.0


@pytest.mark.parametrize("name", ["two-moment", "elo-mmr", "glicko"])
def test_a_ceiling_is_on_the_ladders_scale(name: str) -> None:
    """The one who wins against two performs at the ceiling at most, though the round is moved."""
    some = wave([1, 2], [1900.0] * 3, ceiling=1910.0)
    config: RatingConfig = SYSTEMS[name].sample()
    if isinstance(config, TwoMoment):  # a ceiling limits what was performed, experience apart
        config = TwoMoment(inexperience=0.0)
    found = stages.estimate(config, some)[0, 0]
    free = stages.estimate(config, some._replace(ceiling=np.full(1, np.inf)))[0, 0]
    if name == "glicko":
        assert found == free  # it has no ceilings
    else:
        assert found <= 1910.0 + 1e-9 < free


# --- many rounds at once -------------------------------------------------------------------------


def test_rounds_in_waves_equal_rounds_one_by_one() -> None:
    """Elo-MMR rates waves in one call. With a round of unequal sides or with seats it rates them
    wave by wave, to the same bits as each round alone."""
    config = EloMMR(weight_limit=0.2, sigma_limit=80.0, seats={"home": 60.0})
    one, two = wave([1, 2], [0.0] * 3), wave([1, 1], [0.0] * 2, shift=[60.0, 0.0])
    both = Wave(
        np.array([0, 2, 4]), np.ones(2), np.full(2, np.inf), np.zeros(2, np.int64),
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


def test_a_team_wins_as_much_in_a_pool_elsewhere() -> None:
    """Two ladders that differ by their initial rating and nothing else: a season of newcomers ends
    alike."""
    standings: list[dict[str, Any]] = [
        {"team": ["ann", "bob"], "rank": 1}, {"player": "cy", "rank": 2},
    ]  # fmt: skip
    found = []
    for initial in (1500.0, 1900.0):
        pool = Pool(Ladder(rating=TwoMoment(initial_mu=initial)))
        for offset in range(3):
            pool.rate(read(pool.rating, *standings), offset)
        found.append({name: float(head["mu"]) - initial for name, head in pool})
    assert found[0] == pytest.approx(found[1], abs=0.01)


def test_which_systems_keep_more_than_mu_and_sigma() -> None:
    """Their evidence is not the new mu, so a moved round takes back its first column alone."""
    kept = {name for name, each in SYSTEMS.items() if not each.sample().memoryless}
    assert kept == {"elo-mmr", "elo-r", "glicko2"}


def test_kerbys_systems_are_those_with_an_anchor() -> None:
    """`levels` asks each for its anchor."""
    anchored = {name for name, each in SYSTEMS.items() if "anchor" in each.__struct_fields__}
    assert anchored == {name for name, each in SYSTEMS.items() if issubclass(each, Climbing)}
