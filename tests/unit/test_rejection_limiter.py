"""The bucket that rejections fill."""

from hypothesis import given
from hypothesis import strategies as st

from stream_rater.pipeline.estimator.admission import BURST_S, RejectionLimiter


def test_a_partition_rests_until_the_bucket_has_leaked() -> None:
    """More than a burst at once: it rests for as long as the rest of it takes; others do not."""
    limiter = RejectionLimiter(2.0)
    for _ in range(int(2.0 * BURST_S)):
        limiter.rejected(0, 100.0)
    assert limiter.over_limit(100.0) == set()
    for _ in range(6):
        limiter.rejected(0, 100.0)
    limiter.rejected(1, 100.0)
    assert limiter.over_limit(102.9) == {0}
    assert limiter.over_limit(103.0) == set()


def test_without_a_limit_nothing_rests() -> None:
    """Nor is anything remembered."""
    limiter = RejectionLimiter(0.0)
    for _ in range(100_000):
        limiter.rejected(0, 0.0)
    assert limiter.over_limit(0.0) == set()


def test_a_forgotten_partition_begins_again() -> None:
    """As when it comes back from another worker."""
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
