"""The store is lost and rebuilt, with seeds and resets before, at and after the cut-off."""

from collections.abc import Callable

import pytest

from stream_rater.config.errors import Failed
from stream_rater.pipeline.ports import Apply, CommitSource, Publish, Scatter
from stream_rater.rating import record

from .actors import PRODUCTION, Actor
from .stage import A0, A1, A2, B0, B2, C0, Stage


def begun(stage: Stage) -> tuple[Actor, Actor]:
    """A round of a veteran, a seed in which the veteran stands, too, and a reset; all published."""
    workers = stage.rated(A0, A1)
    stage.seed(A0, B0, A2)
    stage.reset(A1)
    stage.turns()
    return workers


def expired(stage: Stage) -> None:
    """All parts are deleted."""
    begun(stage)
    stage.expire()


def veterans_row_alone(stage: Stage) -> None:
    """Only the seed's part is left of the veteran, in which the row changed nothing."""
    stage.rated(A0, A1)
    stage.expire()
    stage.seed(A0, B0)
    stage.turns()


def seed_waits(stage: Stage) -> None:
    """A seed and a reset are committed and not applied, and a round behind them is not sent."""
    estimator, _ = begun(stage)
    stage.seed(C0, B2, A0)
    stage.reset(B0)
    stage.through(estimator, CommitSource)
    stage.round(C0, B0)


def seed_sent_in_part(stage: Stage) -> None:
    """One part of a seed is applied and published. The others were not sent."""
    estimator, updater = begun(stage)
    stage.seed(C0, B2)
    stage.until(estimator, Scatter)
    estimator.advance(2)
    stage.crash(estimator)
    stage.turns(updater)


def seed_applied_unpublished(stage: Stage) -> None:
    """The updater dies between the store and the log."""
    estimator, updater = begun(stage)
    stage.seed(C0, A0)
    stage.through(estimator, CommitSource)
    stage.through(updater, Apply)
    stage.crash(updater)


def voided_seed(stage: Stage) -> None:
    """A seed is voided, and its correction is applied. The veteran is untouched."""
    begun(stage)
    stage.correct("round-voided", round_id="round-2")
    stage.turns()


def void_that_moves_nobody(stage: Stage) -> None:
    """A seed is voided, and a later one says the same of its player: only the time is another."""
    stage.seed(A0, B0)
    stage.seed(A0)
    stage.workers()
    stage.turns()
    stage.correct("round-voided", round_id="round-1")
    stage.turns()


def void_that_waits(stage: Stage) -> None:
    """The void of the only earlier round wakes a later seed. Its correction waits to be applied."""
    estimator, _ = stage.rated(A0, A1)
    stage.seed(A0, B0)
    stage.turns()
    stage.correct("round-voided", round_id="round-1")
    stage.turns(estimator)


def seed_behind_a_rejected_correction(stage: Stage) -> None:
    """A correction was rejected: the ladder has none."""
    begun(stage)
    stage.correct("round-voided", round_id="nowhere")
    stage.turns()


def seed_behind_a_removal(stage: Stage) -> None:
    """Players are removed, from seeds, too, or merged. Then seeds name them."""
    begun(stage)
    stage.correct("player-removed", player=A0, seed=True)
    stage.correct("player-merged", player=B0, into=A1)
    stage.turns()
    stage.seed(A0, B0, C0)
    stage.turns()


def seed_behind_a_void(stage: Stage) -> None:
    """The void of one of two rounds changes a veteran. Then a seed names the veteran."""
    stage.rated(A0, A1)
    workers = stage.rated(A1, A0)
    stage.correct("round-voided", round_id="round-1")
    stage.seed(A0)
    stage.turns(*workers)


def season_between(stage: Stage) -> None:
    """A season starts between two seeds."""
    begun(stage)
    stage.correct("season-started", season=1, keep=0.5, sigma=150.0)
    stage.seed(C0)
    stage.turns()


def nothing_but_a_seed(stage: Stage) -> None:
    """A rebuild right after a seed is published is the end of a run, too."""
    stage.seed(A0)
    estimator, updater = stage.workers()
    stage.through(estimator, CommitSource)
    stage.through(updater, Publish)


DONE = [
    begun, expired, veterans_row_alone, seed_sent_in_part, voided_seed, void_that_moves_nobody,
    seed_behind_a_rejected_correction, seed_behind_a_removal, seed_behind_a_void, season_between,
    nothing_but_a_seed,
]  # fmt: skip
WAITING = [seed_waits, seed_applied_unpublished]


@pytest.mark.parametrize(
    ("shards", "stories"), [(2, DONE), (3, [*DONE, *WAITING, void_that_waits])], ids=["2", "3"]
)
def test_rebuilt_store_is_that_of_a_replay(
    shards: int, stories: list[Callable[[Stage], object]]
) -> None:  # fmt: skip
    """Each change is published once, and beliefs are as replayed: also if shards are added, after
    a second loss, and without later rounds."""
    wrong = [
        f"{story.__name__}, lost {times} times, then a round {goes_on}: {found[0]}"
        for story in stories
        for times, goes_on in ((1, True), (2, True), (1, False))
        if (found := rebuilt(story, shards, times, goes_on=goes_on))
    ]
    assert wrong == []


def rebuilt(
    story: Callable[[Stage], object], shards: int, times: int, *, goes_on: bool
) -> list[str]:  # fmt: skip
    """The violations after a story and so many losses of the store. `goes_on`: all play later."""
    stage = Stage(PRODUCTION)
    stage.begin_with(shards)
    story(stage)
    for _ in range(times):
        stage.rebuild()
    if goes_on:
        stage.round(B0, A0, A1, A2, C0)
    stage.workers()
    return stage.finish()


def test_an_earlier_row_is_not_taken_for_the_last_one() -> None:
    """The oracle takes the offset of a seed without effect for the last one only if it is later."""
    stage = Stage(PRODUCTION)
    stage.rated(A0, A1)
    early = stage.seed(A0)
    stage.workers()
    assert stage.finish() == []
    stage.rated(A0, A1)
    stage.rebuild_and_start()
    assert stage.finish() == []
    belief = record.decode([stage.store.beliefs[0]["a", A0]], 0, 0.0, 1.0)
    belief.header["last"] = early
    stage.store.beliefs[0]["a", A0] = record.encode(belief)[0]
    assert stage.finish() == [f"beliefs differ: {[('a', A0)]}"]


@pytest.mark.parametrize("story", WAITING)
def test_shards_are_not_added_while_a_seed_waits(story: Callable[[Stage], object]) -> None:
    """Nobody would send its parts again. The same holds for rounds."""
    stage = Stage(PRODUCTION)
    stage.begin_with(2)
    story(stage)
    with pytest.raises(Failed, match="was cut for fewer than 3 shards and was not applied"):
        stage.rebuild()
