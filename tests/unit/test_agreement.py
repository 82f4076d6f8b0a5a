"""What two ladders files have in common, and the bucket that rejections fill."""

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import FILE_LIMITS, Change, Ladder, Ladders
from stream_rater.pipeline.estimator.admission import BURST_S, Agreement, RejectionLimiter
from stream_rater.pipeline.estimator.estimator import REFUSED_S, Estimator
from stream_rater.pipeline.ladder_history import allowed_before, continues, first_contradiction
from stream_rater.pipeline.ports import Agree, Poll, Polled, Scatter
from stream_rater.rating.parameters import EloMMR
from tests.builders.cases import cases
from tests.builders.machines import ByHand, Recorder, pending_of
from tests.unit.test_estimator import ONE, ZERO, opened, parts_sent, priors, read, round_at

OLD = EloMMR(weight_limit=0.2, sigma_limit=80.0)
NEW = EloMMR(weight_limit=0.3, sigma_limit=80.0)


@cases("own, in_log, offset", [
    ([], [], math.inf), (["0:a"], [], math.inf), (["0:a"], ["0:a"], math.inf),
    (["0:a", "7:b"], ["0:a"], math.inf), (["0:a"], ["0:a", "7:b"], 7),
    (["0:a", "7:b", "9:c"], ["0:a", "7:b", "8:d"], 8), (["0:a", "7:c"], ["0:a", "7:b"], 7),
    (["0:a", "5:b"], ["0:a", "7:b"], 5), (["0:b", "7:b"], ["0:a"], 0), ([], ["3:a"], 3),
])  # fmt: skip
def test_at_odds_from(own: Sequence[str], in_log: Sequence[str], offset: float) -> None:
    """It is the first offset at which the record differs from our file, which may go further."""
    assert first_contradiction(own, in_log) == offset
    assert continues(own, in_log) == (offset == math.inf and len(own) > len(in_log) > 0)
    beyond = int(own[len(in_log)][0]) if len(own) > len(in_log) else math.inf
    assert allowed_before(own, in_log) == min(offset, beyond)


def test_fingerprints_differ_with_every_parameter() -> None:
    """A named ladder has the template's fingerprint only if it has the template's parameters."""
    ladders = Ladders(ladders={"*": Ladder(rating=OLD), "a": Ladder(rating=OLD)})
    assert ladders.history("a") == ladders.history("any")
    assert Ladders(ladders={"a": Ladder(rating=NEW)}).history("a") != ladders.history("a")


def changing(offset: int) -> Ladders:
    change = Change(from_offset=offset, rating=NEW)
    return Ladders(ladders={"ladder-0": Ladder(rating=OLD, changes=(change,))})


def test_objections_are_remembered_for_a_while() -> None:
    """And forgotten when the note agrees, or the time is over."""
    ladders = changing(7)
    agreement = Agreement(ladders)
    own = {"ladder-0": ladders.history("ladder-0")}
    rival = {"ladder-0": [own["ladder-0"][0], "5:x"]}
    assert agreement.compare(rival, 10.0) == {"ladder-0": 5}
    rounds = pending_of([2, 2, 2], offsets=[4, 5, 6], ladders=["ladder-0", "ladder-0", "other"])
    assert agreement.allowed(rounds).tolist() == [True, False, True]
    agreement.retry(9.0)
    assert agreement.allowed(rounds).tolist() == [True, False, True]
    assert agreement.compare(own, 10.0) == {}
    assert agreement.allowed(rounds).all()
    agreement.compare(rival, 10.0)
    agreement.retry(10.0)
    assert agreement.allowed(rounds).all()


def test_an_estimator_at_odds_waits() -> None:
    """Rounds from the offset on wait. The estimator reports it, and continues once files agree."""
    observer, ladders = Recorder(), changing(1)
    ladders.ladders["ladder-1"] = Ladder(rating=OLD)
    hand = ByHand(Estimator(ladders, 2, ANYWHERE, observer=observer, cache_bytes=0).run())
    hand.answer(Poll, Polled(0.0, gained=frozenset([0, 1])))
    opened(hand, committed={0: 0, 1: 0})
    other = round_at(0, ONE[0], ONE[1], partition=1)
    read(hand, round_at(0, ZERO[0], ZERO[1]), round_at(1, ZERO[2], ZERO[3]), other)
    own = hand.expect(Agree).histories
    assert own == {name: ladders.history(name) for name in ("ladder-0", "ladder-1", FILE_LIMITS)}
    hand.answer(Agree, dict(own) | {"ladder-0": [own["ladder-0"][0], "1:x"]})
    priors(hand)
    assert [shard for shard, _ in hand.expect(Scatter).parts] == [0, 1]
    parts_sent(hand, 0, 0)
    assert ["from offset 1 on" in reason for _, reason in observer.at_odds] == [True]
    assert observer.agreed == {"ladder-1"}
    hand.effect = _until_agree(hand)
    hand.answer(Agree, own)
    priors(hand, applied=1)
    assert len(hand.expect(Scatter).parts) == 1
    assert observer.agreed == {"ladder-0", "ladder-1"}


def _until_agree(hand: ByHand) -> Agree:
    """Let time pass until it asks again. Until then it only polls, commits and reads positions."""
    now_s = 0.0
    for turn in range(20):
        if isinstance(hand.effect, Agree):
            assert now_s >= REFUSED_S, "it does not ask again at every turn"
            return hand.effect
        polling = isinstance(hand.effect, Poll)
        now_s = turn * REFUSED_S / 4 if polling else now_s
        hand.answer(type(hand.effect), Polled(now_s) if polling else {})
    raise AssertionError("it never looks again")


def test_a_partition_rests_until_the_bucket_has_leaked() -> None:
    """After a burst it rests until then. Others do not rest, nor does one that is gained again."""
    limiter = RejectionLimiter(2.0)
    for _ in range(int(2.0 * BURST_S)):
        limiter.rejected(0, 100.0)
    assert limiter.over_limit(100.0) == set()
    for _ in range(6):
        limiter.rejected(0, 100.0)
    limiter.rejected(1, 100.0)
    assert limiter.over_limit(102.9) == {0}
    assert limiter.over_limit(103.0) == set()
    limiter = RejectionLimiter(0.0)
    for _ in range(100_000):
        limiter.rejected(0, 0.0)
    assert limiter.over_limit(0.0) == set()
    limiter = RejectionLimiter(1.0)
    for _ in range(50):
        limiter.rejected(0, 0.0)
    limiter.forget([0, 7])
    assert limiter.over_limit(0.0) == set()


@given(
    st.floats(0.1, 1000.0),
    st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(0, 50)), max_size=60),
)
def test_the_rate_holds_in_the_long_run(per_second: float, polls: list[tuple[float, int]]) -> None:
    """Whatever comes whenever: no more than the rate, a burst and what one poll brought."""
    limiter, now_s, rejected = RejectionLimiter(per_second), 0.0, 0
    for pause_s, count in polls:
        now_s += pause_s
        if 0 in limiter.over_limit(now_s):
            continue
        for _ in range(count):
            limiter.rejected(0, now_s)
        rejected += count
        assert rejected <= per_second * (now_s + BURST_S) + 50 + 1e-6 * rejected
