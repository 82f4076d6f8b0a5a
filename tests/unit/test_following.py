"""Following: each part of a game is predicted by what was best before it."""

import numpy as np
import pytest

from stream_rater.evaluation.following import PARTS, Candidate, distinct, followed, parts_of


def candidates(*losses: list[float], cost: float = 0.0, since: int = 0) -> list[Candidate]:
    return [Candidate([0.1 * i], cost, np.array(each), since) for i, each in enumerate(losses)]


def test_the_best_so_far_predicts_the_next_part() -> None:
    """Until then the first one does, whatever comes later."""
    ones = [1.0] * 30
    turning = [0.9] * 10 + [1.5] * 20
    chosen = followed(candidates(ones, turning), 0, np.arange(30))
    assert len(parts_of(np.arange(30))) == PARTS == 30
    assert chosen.tolist() == [0] + [1] * 11 + [0] * 18
    assert followed(candidates(ones, turning), 1, np.arange(30))[0] == 1


def test_no_round_has_a_say_in_its_own_prediction() -> None:
    """Nor has a later one: what they lose changes nothing before the next part."""
    random = np.random.default_rng(3)
    losses = random.normal(1.0, 0.3, (4, 90))
    numbers = np.arange(90)
    before = followed(candidates(*losses.tolist()), 2, numbers)
    for start, _ in parts_of(numbers):
        changed = losses.copy()
        changed[:, start:] = random.normal(1.0, 3.0, (4, 90 - start))
        after = followed(candidates(*changed.tolist()), 2, numbers)
        assert after[: start + 1].tolist() == before[: start + 1].tolist()
    assert len(set(before.tolist())) > 1


def test_the_first_part_and_the_prior_count() -> None:
    """A point that was worse on the first part, or is far from the prior's mean, must make up
    for it."""
    near, far = candidates([1.0] * 30, [0.9] * 30)
    chosen = followed([near, far._replace(cost=0.55)], 0, np.arange(30))
    assert chosen.tolist() == [0] * 6 + [1] * 24


def test_a_point_that_was_found_later_predicts_later_rounds_alone() -> None:
    """However good it is on the rounds before, on which it was found."""
    one, two = candidates([1.0] * 30, [0.5] * 30)
    chosen = followed([one, two._replace(since=12)], 0, np.arange(30))
    assert chosen.tolist() == [0] * 12 + [1] * 18


def test_the_parts_of_a_cut_round_are_in_one_part() -> None:
    """They have one number."""
    numbers = np.repeat(np.arange(7), [50, 1, 1, 30, 1, 200, 9])
    parts = parts_of(numbers)
    assert (parts[0][0], parts[-1][1]) == (0, len(numbers))
    assert [end for _, end in parts[:-1]] == [start for start, _ in parts[1:]]
    for start, _ in parts[1:]:
        assert numbers[start - 1] != numbers[start]
    assert parts_of(numbers[:0]) == []
    assert followed(candidates([], []), 0, numbers[:0]).tolist() == []


def test_a_few_points_unlike_each_other_are_followed() -> None:
    """The wanted ones in any case and once, then others in their order."""
    wanted = [[0.5, 0.5], [0.52, 0.5], [0.5, 0.5]]
    others = [[0.55, 0.5], [0.9, 0.5], [0.9, 0.55], [0.5, 0.9], [0.1, 0.1]]
    due = [[0.5, 0.5], [0.52, 0.5], [0.9, 0.5], [0.5, 0.9]]
    assert distinct(wanted, others, 4, 0.12) == due
    assert distinct(wanted, others, 99, 0.12) == [*due, [0.1, 0.1]]
    assert distinct(wanted, others, 99, 0.0)[2:] == others


@pytest.mark.parametrize("count", [1, 2, 29, 31, 100])
def test_parts_have_about_the_same_size(count: int) -> None:
    """As many parts as there are rounds, if these are few."""
    sizes = [end - start for start, end in parts_of(np.arange(count))]
    assert sum(sizes) == count and len(sizes) == min(count, PARTS)
    assert max(sizes) - min(sizes) <= 1
