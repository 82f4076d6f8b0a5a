"""Corrections whose checkpoints the store does not take: the same outcome, without remains."""

from collections.abc import Container

import pytest

from stream_rater.adapters.local_driver import LocalDriver, Steps
from stream_rater.replay import checkpoint

from .test_checkpoints import Story, a_correction, a_story
from .test_corrections import as_lines


class Full(LocalDriver):
    """A driver whose store does not take some of the heads and pieces."""

    refuses: Container[int] = ()
    """By their number, from 0 on."""
    _count = 0

    def write_piece(self, ladder: str, name: str, number: int, data: bytes) -> Steps:
        return super().write_piece(ladder, name, number, data) if self._has_room() else _refused()

    def keep_checkpoint(self, ladder: str, name: str, head: bytes) -> Steps:
        return super().keep_checkpoint(ladder, name, head) if self._has_room() else _refused()

    def _has_room(self) -> bool:
        self._count += 1
        return self._count - 1 not in self.refuses


def _refused() -> Steps:
    yield
    return False


def full(story: Story, refuses: Container[int]) -> None:
    """The story's store does not take these from now on."""
    driver = Full(story.log, story.store, story.log.estimators, story.log.rounds)
    driver.refuses, story.driver = refuses, driver
    story.log_context = story.log_context._replace(checkpoint_every=1)


@pytest.mark.parametrize("for_ever", [False, True])
@pytest.mark.parametrize("takes", range(6))
def test_what_the_store_does_not_take_is_not_left_there(takes: int, *, for_ever: bool) -> None:
    """A correction ends as without checkpoints, wherever the store becomes full, for a moment or
    for ever. Of what was begun nothing is left to take room; what was there before stays."""
    plain, quick = a_story()
    before = dict(quick.store.checkpoints["l"])
    full(quick, range(takes, 1000) if for_ever else [takes])
    (line,) = as_lines([a_correction("round-voided", round_id="r25")])
    assert quick.append(line, "round-voided") == plain.append(line, "round-voided")
    stored = quick.store.checkpoints["l"]
    assert {name for _, name, _ in quick.store.pieces} == stored.keys()
    assert stored.keys() >= before.keys()
    assert (len(stored) > len(before)) == (takes > 3), "the head, players, ids, the head"
    assert all(head.whole for head in checkpoint.heads_in(stored))


def test_after_a_failure_no_further_checkpoint_is_tried() -> None:
    """Of the two that the correction would make: each try may take as long as a time-out."""
    plain, quick = a_story()
    before = dict(quick.store.checkpoints["l"])
    full(quick, [0])
    (line,) = as_lines([a_correction("round-voided", round_id="r3")])
    assert quick.append(line, "round-voided") == plain.append(line, "round-voided")
    assert quick.store.checkpoints["l"] == before
