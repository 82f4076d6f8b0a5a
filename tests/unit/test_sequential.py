"""Many rounds rated in one call: the same bits, and the same changes, as one after the other."""

import random
from collections.abc import Iterator

import msgspec
import pytest

from stream_rater.config.ladders import Change, Ladder, Ladders
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import EloMMR
from stream_rater.replay.rating_changes import changes_of
from stream_rater.replay.sequential import Replay
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.builders.machines import CONFIG
from tests.unit.test_bulk_replay import OTHER, a_round

COUNT = 200
FULL = EloMMR(weight_limit=0.2, sigma_limit=80.0, history="full", drift_per_day=3.0)
DRIFTING = EloMMR(
    weight_limit=0.1, sigma_limit=60.0, rho="inf", ties="split", newcomer_weights=(0.5, 0.7),
    drift_per_day=9.0, skip_all_tied=True, history=3,
)  # fmt: skip
CHANGES = (Change(from_offset=60, rating=OTHER), Change(from_offset=61, rating=FULL))


def seen(ladder: Ladder, at_once: int) -> Iterator[object]:
    """All that comes of some rounds, so many fed at once: changes, then every belief."""
    rounds = [a_round(offset, random.Random(offset)) for offset in range(COUNT)]
    rounds[30] = Record(0, 30, b"junk", received_s=4e9)
    replay = Replay(Ladders(ladders=dict.fromkeys("abcd", ladder)), 10)
    for first in range(0, COUNT, at_once):
        batch = replay.feed(rounds[first : first + at_once])
        yield from changes_of(batch)
    for name, pool in sorted(replay.pools.items()):
        for player, header in pool:
            yield name, player, header.tobytes()
            if pool.rating.kept:
                yield pool.belief_bytes(player)


@pytest.mark.parametrize(
    "ladder",
    [
        *(Ladder(rating=each) for each in (*SYSTEMS, CONFIG, FULL, DRIFTING)),
        Ladder(rating=CONFIG, changes=CHANGES),
    ],
    ids=lambda ladder: ladder.rating.__struct_config__.tag,
)
def test_at_once_as_one_by_one(ladder: Ladder) -> None:
    """Several ladders have teams, ties, shares, unfinished entries, and rounds that are not
    informative. Every system rates them, with short and full histories, and with parameters that
    change on the way."""
    one_by_one = list(seen(ladder, 1))
    assert len(one_by_one) > 3 * COUNT
    for at_once in (7, COUNT):
        assert list(seen(ladder, at_once)) == one_by_one


def test_a_player_who_is_fixed_stays_so() -> None:
    """By name, in whatever turn."""
    elo = next(each for each in SYSTEMS if each.__struct_config__.tag == "elo")
    fixed = msgspec.structs.replace(elo, fixed=("p1", "p7"))
    reported = {each for each in seen(Ladder(rating=fixed), COUNT) if isinstance(each, tuple)}
    assert (
        reported
        == {each for each in seen(Ladder(rating=fixed), 1) if isinstance(each, tuple)}
        != {each for each in seen(Ladder(rating=elo), 1) if isinstance(each, tuple)}
    )
