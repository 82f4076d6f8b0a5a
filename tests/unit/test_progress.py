"""Progress: which priors count, by positions alone."""

import numpy as np

from stream_rater.columns.player_map import TAKEN, Fingerprints
from stream_rater.pipeline.estimator.progress import Progress, most_rows_of

ANN, BOB = 1 << 20, 2 << 20


def crowd(*players: int) -> Fingerprints:
    """Fingerprints: a player's number, and the shard in the lowest bits."""
    return np.array(players, np.uint64) | TAKEN


def is_ready(progress: Progress, *players: int) -> bool:
    (ready,) = progress.ready(crowd(*players), np.array([len(players)])).tolist()
    return bool(ready)


def test_nothing_counts_before_all_parts_at_takeover_are_applied() -> None:
    """The floor is the log's end; at it, the shard counts."""
    progress = Progress(2)
    progress.take_over([0, 5])
    assert is_ready(progress, ANN)
    assert not is_ready(progress, ANN, BOB + 1)
    assert progress.shards_to_read() == [1]
    assert not progress.accept(1, 4)
    assert progress.accept(1, 5)
    assert is_ready(progress, ANN, BOB + 1)
    assert progress.shards_to_read() == []


def test_the_floor_rises_and_never_falls() -> None:
    """With what was accepted: a store that goes back counts again where it was, not before. Another
    partition gained later looks at the same log, but the store may be further."""
    progress = Progress(1)
    assert progress.accept(0, 7)
    assert not progress.accept(0, 6)
    assert not is_ready(progress, ANN)
    assert progress.accept(0, 7)
    assert is_ready(progress, ANN)
    progress = Progress(1)
    progress.accept(0, 7)
    progress.take_over([3])
    assert not progress.accept(0, 6)


def test_player_waits_for_its_own_part() -> None:
    """And for nobody else's. An `applied` below the floor ends no wait. Of two parts that a
    predecessor sent, the later end counts."""
    progress = Progress(1)
    progress.sent({0: 3}, {0: crowd(ANN)})
    assert not is_ready(progress, ANN)
    assert is_ready(progress, BOB)
    progress.accept(0, 2)
    assert not is_ready(progress, ANN)
    progress.accept(0, 3)
    assert is_ready(progress, ANN)
    assert progress.rows == 0
    progress = Progress(1)
    progress.accept(0, 9)
    progress.sent({0: 3}, {0: crowd(ANN)})
    progress.accept(0, 4)
    assert not is_ready(progress, ANN)
    progress = Progress(1)
    progress.sent({0: 3}, {0: crowd(ANN)})
    progress.sent({0: 5}, {0: crowd(ANN)})
    progress.accept(0, 4)
    assert not is_ready(progress, ANN)
    progress.accept(0, 5)
    assert is_ready(progress, ANN)


def test_refused_shard_is_tried_again_later() -> None:
    """A belief that cannot be read holds up its shard only, and for a while only."""
    progress = Progress(2)
    progress.refuse(0, until_s=5.0)
    assert not progress.accept(0, 1)
    assert not is_ready(progress, ANN)
    assert is_ready(progress, ANN + 1)
    progress.retry(4.9)
    assert not is_ready(progress, ANN)
    progress.retry(5.0)
    assert is_ready(progress, ANN)
    assert progress.accept(0, 1)


def test_it_says_when_to_look_again() -> None:
    """Parts seen applied, a shard that has caught up, or one to be tried again: else, in vain."""
    progress = Progress(2)

    def has_moved() -> bool:
        had_moved, progress.has_moved = progress.has_moved, False
        return had_moved

    assert has_moved()
    progress.sent({0: 5}, {0: crowd(ANN)})
    assert not has_moved()
    progress.accept(0, 4)
    assert not has_moved()
    progress.accept(0, 5)
    assert has_moved()
    progress.take_over([5, 7])
    progress.accept(1, 6)
    assert not has_moved()
    progress.accept(1, 7)
    assert has_moved()
    progress.refuse(1, until_s=9.0)
    progress.retry(8.0)
    assert not has_moved()
    progress.retry(10.0)
    assert has_moved()


def test_a_full_shard_is_closed_until_rows_are_applied() -> None:
    """For its players alone, and for those who are cached, too. Its rows do not count as work that
    the store is busy with."""
    progress = Progress(2, most_rows=2)
    progress.sent({0: 1, 1: 1}, {0: crowd(ANN, BOB), 1: crowd(ANN + 1)})
    assert not progress.has_full_shard and progress.rows == 3
    progress.sent({0: 2}, {0: crowd(ANN)})
    assert progress.has_full_shard and progress.rows == 1
    players, cached = crowd(3 << 20, BOB + 1), np.ones(2, np.bool_)
    assert progress.ready(players, np.array([1, 1]), cached).tolist() == [False, True]
    progress.accept(0, 1)
    assert not progress.has_full_shard and progress.rows == 2
    assert progress.ready(players, np.array([1, 1]), cached).tolist() == [True, True]


def test_rounds_are_looked_at_together() -> None:
    """Each has an answer of its own. Many shards have fewer rows each, so that all together are
    bounded, too."""
    progress = Progress(2)
    progress.sent({1: 3}, {1: crowd(BOB + 1)})
    progress.refuse(0, until_s=5.0)
    players = crowd(ANN + 1, BOB + 1, ANN + 1, ANN + 1, BOB)
    assert progress.ready(players, np.array([2, 1, 2])).tolist() == [False, True, False]
    assert progress.ready(players[:0], np.array([], np.int64)).tolist() == []
    assert [most_rows_of(shards) for shards in (1, 16, 64, 100_000)] == [
        40_000, 40_000, 10_000, 1000
    ]  # fmt: skip
