"""What the page for game backends says about members who leave early: all systems that take teams
by their members' shares."""

import msgspec
import pytest

from stream_rater.config.ladders import Ladder
from stream_rater.rating.parameters import Climbing, RatingConfig, Topcoder
from stream_rater.replay.pool import Pool
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.rounds import day, ranked, read

SHARED = [each for each in SYSTEMS if not isinstance(each, Climbing | Topcoder)]
"""Kerby's systems do not divide a team's gain by uncertainty, and Topcoder weights a player by the
rounds of the oldest member."""
MATES, FOES = ["ann", "bob", "leaver"], ["x", "y", "z"]


def after(config: RatingConfig, share: float, *, won: bool | None) -> tuple[float, float]:
    """The mu of ann and of the one who left, after a round of three against three equals, who know
    each other from a draw. None: after the draw."""
    pool = Pool(Ladder(rating=config))
    pool.rate(read(config, *ranked([1] * 6, MATES + FOES), completed_at=day(0)), 0)
    if won is not None:
        _play(pool, config, share, won=won)
    found = dict(pool)
    return float(found["ann"]["mu"]), float(found["leaver"]["mu"])


def _play(pool: Pool, config: RatingConfig, share: float, *, won: bool) -> None:
    sides = (
        {"team": MATES, "shares": [1.0, 1.0, share], "seat": "short", "rank": 1 if won else 2},
        {"team": FOES, "rank": 2 if won else 1},
    )
    pool.rate(read(config, *sides, round_id="b", completed_at=day(1)), 1)


@pytest.mark.parametrize("config", SHARED, ids=lambda each: str(each.__struct_config__.tag))
@pytest.mark.parametrize("won", [False, True])
def test_who_left_is_moved_less(config: RatingConfig, won: bool) -> None:
    """Three members are moved alike. If one of them left, the others are moved about as before, and
    that one by less."""
    start, _ = after(config, 1.0, won=None)
    (mate, same), (other, early) = (after(config, share, won=won) for share in (1.0, 0.3))
    assert mate == pytest.approx(same, abs=0.01)
    whole, stayed, left = abs(mate - start), abs(other - start), abs(early - start)
    assert (mate > start) == (other > start) == (early > start) == won
    assert left < 0.8 * stayed and 0.9 * whole < stayed < 1.5 * whole


@pytest.mark.parametrize("config", SHARED, ids=lambda each: str(each.__struct_config__.tag))
def test_a_seat_says_what_one_more_is_worth(config: RatingConfig) -> None:
    """With points below 0 for the side that is short, its members lose less for a defeat, and gain
    more for a victory."""
    knows = msgspec.structs.replace(config, seats={"short": -80.0})
    for won in (False, True):
        assert after(knows, 0.3, won=won)[0] > after(config, 0.3, won=won)[0]
