"""Seasons between rounds: whoever rates them, in whatever pieces, gets the same bits."""

import random
from collections.abc import Iterator, Mapping
from itertools import pairwise

import msgspec
import numpy as np

from stream_rater.config.ladders import Change, Ladder, Ladders
from stream_rater.contract.events import RatingChanged
from stream_rater.contract.record import Player, Record
from stream_rater.operations.rate import rating_lines
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.updater import changes
from stream_rater.rating import record
from stream_rater.rating.model import newcomers
from stream_rater.rating.parameters import Elo, EloMMR, EloR, Glicko, Season
from stream_rater.rating.stages import rule_of
from stream_rater.replay.rating_changes import changes_of
from stream_rater.replay.sequential import Replay
from tests.builders.machines import CONFIG, SHARDS, pending_of
from tests.unit.test_waves import OTHER, a_round

LADDERS = Ladders(
    ladders={
        "a": Ladder(rating=CONFIG, changes=(Change(from_offset=150, rating=OTHER),)),
        "b": Ladder(rating=EloR(history=3)),
        "c": Ladder(rating=Elo(learning_rate=32.0, scale=174.0)),
        "d": Ladder(rating=Glicko(beta=200.0, sigma_drift=35.0)),
    }
)
IN_FULL = Ladders(
    ladders={
        name: Ladder(rating=msgspec.structs.replace(ladder.rating, history="full"))
        for name, ladder in LADDERS.ladders.items()
    }
)
COUNT = 240
ROUNDS = [a_round(offset, random.Random(offset)) for offset in range(COUNT)]
FIRST, SECOND, THIRD = Season(1, 0.5, 150.0), Season(2, 0.9, 0.0), Season(7, 0.0, 300.0)
STARTS: Mapping[int, tuple[tuple[str, Season], ...]] = {
    0: (("d", FIRST),), 80: (("a", FIRST), ("b", FIRST), ("c", FIRST)), 120: (("a", SECOND),),
    121: (("a", THIRD), ("b", SECOND)), 200: (("a", SECOND), ("b", THIRD), ("d", THIRD)),
}  # fmt: skip
"""Which seasons start before the round at an offset."""


def pieces(at_once: int) -> Iterator[list[Record]]:
    """The rounds, so many at once, but never those of two seasons."""
    cuts = [*STARTS, COUNT]
    for first, end in pairwise(cuts):
        for start in range(first, end, at_once):
            yield ROUNDS[start : min(start + at_once, end)]


def replayed(ladders: Ladders, at_once: int) -> tuple[Replay, list[RatingChanged]]:
    """All rounds through the sequential replay, and what they changed."""
    replay, published = Replay(ladders, 10), list[RatingChanged]()
    for some in pieces(at_once):
        for ladder, season in STARTS.get(some[0].offset, ()):
            replay.start_season(ladder, season)
        published += changes_of(replay.feed(some))
    return replay, published


def records_of(replay: Replay) -> dict[Player, bytes]:
    return {(name, p): pool.belief_bytes(p) for name, pool in replay.pools.items() for p, _ in pool}


def test_at_once_as_one_by_one() -> None:
    """A call may have several seasons of one player: of records, and of full histories."""
    for ladders in (LADDERS, IN_FULL):
        one_by_one, published = replayed(ladders, 1)
        for at_once in (7, COUNT):
            together, also_published = replayed(ladders, at_once)
            assert published == also_published
            for name, pool in one_by_one.pools.items():
                mine = {player: header.tobytes() for player, header in pool}
                theirs = {player: header.tobytes() for player, header in together.pools[name]}
                assert mine == theirs, name
            if ladders is LADDERS:
                assert records_of(one_by_one) == records_of(together)


def test_a_wave_of_ladders_with_seasons_and_without() -> None:
    """Rounds of one configuration are estimated apart where their ladders' seasons differ."""
    config = EloMMR(weight_limit=0.2, sigma_limit=80.0)
    ladders = Ladders(ladders=dict.fromkeys("xyz", Ladder(rating=config)))
    pending = pending_of([3, 2, 4, 2], ladders="xyzx", known=ladders)
    started = {"x": (FIRST,), "y": (), "z": (FIRST, SECOND)}
    header = newcomers(pending.count, 0, 1500.0, 350.0).header
    header["mu"] += 10.0 * np.arange(pending.count)
    header["sigma"], header["rounds"] = 90.0, 3
    header["rounds"][1] = 0
    part = estimation.estimate(
        pending, header.copy(), [config], SHARDS, lambda who, _: started[who]
    )
    rules = [part.rules[each] for each in part.rule]
    assert rules == [rule_of(config, started[name]) for name in "xyzx"]
    first, evidence = 0, set()
    for i, name in enumerate("xyzx"):
        one = pending.take(np.array([i]))
        own = slice(first, first + one.count)
        first = own.stop
        for among in started.values():
            alone = estimation.estimate(
                one, header[own].copy(), [config], SHARDS, lambda *_, among=among: among
            )
            same = alone.evidence.tobytes() == part.evidence[own].tobytes()
            assert same == (among == started[name])
            evidence.add(alone.evidence.tobytes())
    assert len(evidence) == 4 * 3
    plain = estimation.estimate(pending, header.copy(), [config], SHARDS)
    assert plain.rules == [rule_of(config)]
    none = estimation.estimate(pending, header.copy(), [config], SHARDS, lambda *_: ())
    assert plain.evidence.tobytes() == none.evidence.tobytes()


def test_a_player_without_rounds_left_is_a_newcomer() -> None:
    """The last offset and the last published values are still stored."""
    rule = rule_of(CONFIG, (FIRST,))
    beliefs = newcomers(1, 1, 1234.0, 77.0, coded=True)
    beliefs.header["last"], beliefs.header["season"], beliefs.header["time"] = 41, 1, 99
    (stored,) = record.encode(beliefs)
    again = changes.decoded([rule], np.zeros(2, np.int64), [stored, None]).header
    fresh = newcomers(2, 0, rule.initial_mu, rule.initial_sigma).header
    fresh["last"][0] = 41
    fresh["untold"][0], fresh["previous_mu"][0], fresh["previous_sigma"][0] = 1, 1234.0, 77.0
    assert fresh.tobytes() == again.tobytes()
    ladders = Ladders(ladders={"x": Ladder(rating=CONFIG)})
    pending = pending_of([2], offsets=[50], ladders="x", known=ladders)
    evidence = {
        estimation.estimate(
            pending, record.read_headers(headers), [CONFIG], SHARDS, lambda *_: (FIRST,)
        ).evidence.tobytes()
        for nobody in [bytes(record.HEADER_SIZE)]
        for headers in (stored[: record.HEADER_SIZE] + nobody, 2 * nobody)
    }
    assert len(evidence) == 1


def test_readers_see_a_season_at_once() -> None:
    """`rate` shows beliefs after the draw, also of those who have not played, and records."""
    replay = replayed(LADDERS, COUNT)[0]
    pool = replay.pools["d"]
    for season in (FIRST, Season(9, 0.0, 250.0)):
        replay.start_season("d", season)
    lines = rating_lines("d", pool, records=True)
    assert {line.mu for line in lines} == {1500.0}
    assert min({line.sigma for line in lines}) == 250.0
    assert len({line.record for line in lines}) == len(lines)
    assert {line.rating for line in lines if line.sigma == 250.0} == {1500.0 - 2.0 * 250.0}
