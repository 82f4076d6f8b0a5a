"""The sequential replay: what a pool of players is after its rounds, singly and many at once."""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_rater.config.ladders import Change, Ladder, Ladders
from stream_rater.contract.record import Record
from stream_rater.rating import record
from stream_rater.rating.elo_mmr import oracle
from stream_rater.rating.model import PERFORMANCE
from stream_rater.rating.parameters import EloMMR
from stream_rater.replay.pool import Pool
from stream_rater.replay.rating_changes import changes_of
from stream_rater.replay.sequential import Replay
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.builders.cases import cases
from tests.builders.machines import CONFIG as WORKERS
from tests.rounds import ranked, read
from tests.unit.test_bulk_replay import OTHER, a_round

CONFIG = EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=1.0, history=4)


def pool(**fields: Any) -> Pool:
    return Pool(Ladder(rating=msgspec.structs.replace(CONFIG, **fields)))


def rate(into: Pool, places: list[int], names: list[str], offset: int, **fields: Any) -> Any:
    return into.rate(read(into.rating, *ranked(places, names), **fields), offset)


def test_who_plays_exists() -> None:
    """Players appear with their first round, in the order they are seen, and are counted."""
    rated = pool()
    rate(rated, [1, 2], ["ann", "bob"], 5)
    rate(rated, [1, 2], ["cy", "ann"], 8)
    rows = {name: (int(b["rounds"]), int(b["last"])) for name, b in rated}
    assert rows == {"ann": (2, 8), "bob": (1, 5), "cy": (1, 8)}
    assert len(rated) == 3


def test_rows_are_the_players_by_place() -> None:
    """rate returns the row and the evidence of each player, in order of place."""
    rated = pool()
    rate(rated, [1, 2], ["ann", "bob"], 0)
    rows, evidence = rate(rated, [2, 1, 3], ["bob", "cy", "ann"], 1)
    assert rows.tolist() == [2, 1, 0]
    assert sorted(evidence[:, PERFORMANCE], reverse=True) == evidence[:, PERFORMANCE].tolist()


def test_a_round_that_is_not_informative_leaves_no_trace() -> None:
    """All are unfinished, or all tie where that is skipped. No player is made, no bit changes."""
    rated = pool(skip_all_tied=True)
    assert rate(rated, [0, 0], ["ann", "bob"], 0) is None
    assert rate(rated, [1, 1], ["ann", "bob"], 1) is None
    assert len(rated) == 0
    rate(rated, [1, 2], ["ann", "bob"], 2)
    before = rated.belief_bytes("ann")
    assert rate(rated, [1, 1], ["ann", "bob"], 3) is None
    assert before == rated.belief_bytes("ann")
    assert rate(pool(), [1, 1], ["ann", "bob"], 1) is not None


def test_a_late_round_goes_on_the_books_but_not_back_in_time() -> None:
    """A completion before a player's last leaves the stored time, and drifts nobody."""
    rated, same = pool(drift_per_day=50.0), pool(drift_per_day=50.0)
    for into, time in ((rated, "2026-01-01T00:00:00Z"), (same, "2026-03-01T00:00:00Z")):
        rate(into, [1, 2], ["ann", "bob"], 0, completed_at="2026-03-01T00:00:00Z")
        rate(into, [1, 2], ["bob", "ann"], 1, completed_at=time)
    assert rated.belief_bytes("ann") == same.belief_bytes("ann")


def test_bytes_are_the_record() -> None:
    """belief_bytes decodes to the very header that iteration shows, in K factors at most."""
    rated = pool()
    for offset in range(7):
        rate(rated, [1, 2], ["ann", "bob"], offset)
    beliefs = record.decode([rated.belief_bytes("bob")], 4, 1500.0, 350.0)
    shown = dict(rated)["bob"]
    assert shown["count"] == 4
    fields = [name for name in shown.dtype.names or () if name != "version"]
    assert [shown[name] for name in fields] == [beliefs.header[name][0] for name in fields]


def duels(into: Pool, offsets: range) -> None:
    for offset in offsets:
        rate(into, [1 + offset % 2, 2 - offset % 2], ["ann", "bob"], offset)


def test_more_players_than_expected() -> None:
    """A crowd that makes the pool grow leaves the beliefs of those there before."""
    small, large = pool(history="full"), pool(history="full")
    for into, crowd in ((small, 2), (large, 3000)):
        duels(into, range(5))
        rate(into, [1] * crowd, [f"p{i}" for i in range(crowd)], 5)
        duels(into, range(6, 9))
    assert len(large) == 3002
    assert dict(small)["ann"].tobytes() == dict(large)["ann"].tobytes()


def test_longer_histories_than_expected() -> None:
    """A full history grows with the rounds: forty duels give the oracle's ratings. No record holds
    it: asking for one is an error that says what to set."""
    rated = pool(history="full")
    duels(rated, range(40))
    assert isinstance(rated.rating, EloMMR)
    players = [oracle.newcomer(rated.rating) for _ in range(2)]
    for offset in range(40):
        oracle.rate_round(players, [1 + offset % 2, 2 - offset % 2], rated.rating)
    beliefs = dict(rated)
    actual = [float(beliefs[name]["mu"]) for name in ("ann", "bob")]
    assert [player.mu for player in players] == pytest.approx(actual, abs=1e-9)  # as golden, 2e-12
    assert beliefs["ann"]["count"] == 40
    with pytest.raises(record.Unrecordable, match="history"):
        rated.belief_bytes("ann")


def test_mixed_up_rounds_of_strangers_commute() -> None:
    """Rounds that share no player can be rated in any order, to the bit."""
    rounds = [([1, 2], ["a", "b"]), ([1, 2, 2], ["c", "d", "e"]), ([1, 0], ["f", "g"])]
    seen = set()
    for order in itertools.permutations(range(3)):
        rated = pool()
        for i in order:
            rate(rated, *rounds[i], offset=i)
        seen.add(tuple(rated.belief_bytes(name) for name in "abcdefg"))
    assert len(seen) == 1


def test_parameters_change_on_the_way() -> None:
    """Beliefs go on as they are, newcomers begin by the new parameters, and the record may hold
    more factors or fewer, as if it had been read back from the store by each."""
    longer = msgspec.structs.replace(CONFIG, history=9, initial_mu=1200.0, rho=0.1)
    shorter = msgspec.structs.replace(CONFIG, history=2)
    rated = pool()
    duels(rated, range(8))
    before = rated.belief_bytes("ann")
    rated.follow(longer)
    assert rated.belief_bytes("ann") == before
    rate(rated, [1, 2], ["cy", "dee"], 8)
    assert float(dict(rated)["cy"]["previous_mu"]) == 1200.0
    duels(rated, range(9, 16))
    assert dict(rated)["ann"]["count"] == 9
    rated.follow(shorter)
    rate(rated, [1, 2], ["ann", "bob"], 16)
    assert dict(rated)["ann"]["count"] == 2
    rate(rated, [1, 2], ["eve", "fay"], 17)
    assert float(dict(rated)["eve"]["previous_mu"]) == 1500.0


def test_a_rating_moves_the_right_way() -> None:
    """Who wins goes up, who loses goes down, and both are better known."""
    rated = pool()
    rate(rated, [1, 2], ["ann", "bob"], 0)
    ann, bob = (dict(rated)[name] for name in ("ann", "bob"))
    assert ann["mu"] > 1500.0 > bob["mu"]
    assert 1500.0 - bob["mu"] == np.float64(ann["mu"] - 1500.0)
    assert ann["sigma"] == bob["sigma"] < 350.0


# --- many rounds rated in one call: the same bits as one after the other --------------------------

COUNT = 100
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


@cases(
    "ladder",
    [
        *(Ladder(rating=each) for each in (*SYSTEMS, WORKERS, FULL, DRIFTING)),
        Ladder(rating=WORKERS, changes=CHANGES),
    ],
    lambda ladder: ladder.rating.__struct_config__.tag,
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
