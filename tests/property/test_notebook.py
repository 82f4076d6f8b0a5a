"""Rounds given as Python values are rated as the same rounds in a file: the same numbers and the
same records, by every system."""

import json
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_rater import Ladder
from stream_rater.config.ladders import any_ladder
from stream_rater.rating.parameters import EloMMR, RatingConfig
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.rating_changes import changes_of
from stream_rater.replay.sequential import Replay
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.rounds import day

DRIFTING = EloMMR(
    weight_limit=0.1, sigma_limit=60.0, rho="inf", ties="split", newcomer_weights=(0.5, 0.7),
    drift_per_day=9.0, skip_all_tied=True, history=3,
)  # fmt: skip
NAMES = ["ann", "bob", "cy", "dee", "eve", "Straße", "a\nb", 'q"', "7", "ä" * 64]
LADDER = "notebook"
OF_AN_EVENT = (
    "player", "rank", "mu", "sigma", "previous_mu", "previous_sigma", "performance", "rating",
    "previous_rating", "rounds", "provisional",
)  # fmt: skip
"""The fields of `rating-changed` that are columns of a result, too."""


class Given(NamedTuple):
    """A round, as it is given to `Ladder.rate`."""

    sides: list[Any]
    ranks: list[int | None]
    shares: list[Any] | None
    weight: float
    ceiling: float | None
    day: int


@st.composite
def rounds(draw: st.DrawFn) -> Given:
    """Any form: players alone by name or in a tuple, teams, ties, shares, who did not finish."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=9, unique=True))
    cuts = draw(st.sets(st.integers(1, len(names) - 1), min_size=1))
    edges = [0, *sorted(cuts), len(names)]
    sides: list[Any] = [tuple(names[a:b]) for a, b in pairwise(edges)]
    parts = st.sampled_from([1, 0.5, 0.1 + 0.2, 1e-6])
    shares = [
        draw(st.none() | st.lists(parts, min_size=len(side), max_size=len(side))) for side in sides
    ]
    sides = [side[0] if len(side) == 1 and draw(st.booleans()) else side for side in sides]
    ranks = [draw(st.sampled_from([None, 1, 2, 2, 3, 7])) for _ in sides]
    return Given(
        sides, ranks, draw(st.sampled_from([None, shares])),
        draw(st.sampled_from([1.0, 2, 0.1 + 0.2])), draw(st.sampled_from([None, 1400.0])),
        draw(st.integers(0, 30)),
    )  # fmt: skip


def line_of(number: int, given_: Given) -> bytes:
    """The same round as a line of a file."""
    shares = given_.shares or [None] * len(given_.sides)
    standings = []
    for side, rank, parts in zip(given_.sides, given_.ranks, shares, strict=True):
        entry: dict[str, Any] = {"player": side} if isinstance(side, str) else {"team": side}
        entry |= {"dnf": True} if rank is None else {"rank": rank}
        standings.append(entry | ({} if parts is None else {"shares": parts}))
    fields: dict[str, Any] = {"round_id": f"r{number}", "ladder": LADDER}
    fields["completed_at"] = day(given_.day)
    fields |= {} if given_.ceiling is None else {"performance_ceiling": given_.ceiling}
    return json.dumps({**fields, "weight": given_.weight, "standings": standings}).encode()


def ladder_of(rating: RatingConfig) -> Ladder:
    """One with these parameters, given as keywords."""
    table = msgspec.to_builtins(rating)
    return Ladder(**{name: value for name, value in table.items() if value is not None})


@pytest.mark.parametrize(
    "rating", [*SYSTEMS, DRIFTING], ids=lambda rating: rating.__struct_config__.tag
)
@given(some=st.lists(rounds(), min_size=1, max_size=6))
@example(some=[Given([("ann",), ("bob", "cy"), "dee"], [1, 2, 2], None, 1.0, None, 0)])
@example(some=[Given(["ann", "bob"], [None, None], None, 1.0, None, 0)])
@settings(max_examples=25)
def test_as_from_a_file(rating: RatingConfig, some: list[Given]) -> None:
    """Each number of each result, and each belief as the service stores it."""
    ladder, replay = ladder_of(rating), Replay(any_ladder(rating), 1000)
    assert ladder.parameters == rating
    for number, each in enumerate(some):
        result = ladder.rate(
            each.sides, each.ranks, shares=each.shares, weight=each.weight,
            performance_ceiling=each.ceiling, completed_at=day(each.day), round_id=f"r{number}",
        )  # fmt: skip
        (record,) = records_of([line_of(number, each)], number)
        events = {event.player: event for event in changes_of(replay.feed([record]))}
        reported = [{name: row[name] for name in OF_AN_EVENT} for row in result.to_dicts()]
        in_order = [
            (player, number)
            for number, side in enumerate(each.sides)
            for player in ([side] if isinstance(side, str) else side)
            if player in events
        ]
        assert list(zip(result.player, result.side, strict=True)) == in_order
        wanted = [events[player] for player, _ in in_order]
        assert reported == [
            {name: getattr(event, name) for name in OF_AN_EVENT} for event in wanted
        ]
    pool = replay.pools.get(LADDER)
    assert list(ladder) == ([] if pool is None else pool.players())
    for player in ladder:
        assert pool is not None and ladder.record(player) == pool.belief_bytes(player)
