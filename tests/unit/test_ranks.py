"""Entries by rating, and inversions: against the definitions taken word by word."""

from itertools import combinations
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.evaluation.ranks import FEW, LANES, by_rating, inversions

RATINGS = st.one_of(st.sampled_from([-5e5, 0.0, 1500.0, 1500.0, 5e5]), st.floats(-1e6, 1e6))


@given(st.lists(RATINGS, min_size=1, max_size=3 * LANES))
def test_entries_by_falling_rating_keep_their_order_where_it_is_equal(mu: list[float]) -> None:
    """As a stable sort has them."""
    assert by_rating(np.array(mu)).tolist() == sorted(range(len(mu)), key=lambda i: -mu[i])


@pytest.mark.parametrize("spread", [1.0, 1e-300])
def test_all_in_one_bucket_but_one(spread: float) -> None:
    """They are sorted by merging; even where what is between them is next to nothing."""
    rng = np.random.default_rng(5)
    mu = rng.permutation(np.append(rng.normal(0.0, spread, 40 * FEW), 1e9 * spread))
    assert by_rating(mu).tolist() == np.argsort(-mu, kind="stable").tolist()


def test_a_bucket_takes_no_more_steps_than_a_sort() -> None:
    """A crowd in one of them takes a tenth of a second; by insertion it would be a minute."""
    mu = np.append(np.random.default_rng(5).normal(0.0, 1.0, 300_000), 1e12)
    by_rating(mu[:2])
    began_s = process_time()
    found = by_rating(mu)
    assert process_time() - began_s < 5.0
    assert (np.diff(mu[found]) <= 0.0).all()


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4 * LANES),
    st.randoms(use_true_random=False),
)
def test_inversions_are_pairs_the_other_way_round(places: list[int], random: object) -> None:
    """Of those not tied in place; blocks of neighbours make no difference."""
    places.sort()
    position = list(range(len(places)))
    random.shuffle(position)  # type: ignore[attr-defined]
    expected = sum(
        places[i] < places[j] and position[i] > position[j]
        for i, j in combinations(range(len(places)), 2)
    )
    assert inversions(np.array(places, np.int32), np.array(position)) == expected


def test_inversions_of_a_crowd() -> None:
    """All pairs, where the order is turned round; none where it is kept."""
    n = 40_000
    place = np.arange(1, n + 1, dtype=np.int32)
    assert inversions(place, np.arange(n)) == 0
    assert inversions(place, np.arange(n)[::-1].copy()) == n * (n - 1) // 2
