"""Waves: rounds come after every earlier one that shares a player, and after no other."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.arrays import Ints
from stream_rater.columns.player_map import Fingerprints, fingerprints
from stream_rater.columns.strings import StringColumn
from stream_rater.pipeline.estimator import backlog
from stream_rater.pipeline.estimator.backlog import RoundGraph


class ByTicket(RoundGraph):
    """With the players of each ticket."""

    def __init__(self) -> None:
        super().__init__()
        self._crowds: dict[int, Fingerprints] = {}

    def enter(self, *rounds: tuple[int, Fingerprints]) -> None:
        """These, in one call."""
        self._crowds.update(rounds)
        self.add(*self._columns([ticket for ticket, _ in rounds]))

    def _columns(self, tickets: Sequence[int]) -> tuple[Ints, Ints, Fingerprints]:
        crowds = [self._crowds[ticket] for ticket in tickets]
        sizes = [len(each) for each in crowds]
        return np.array(tickets), np.array(sizes), np.concatenate(crowds)

    def done(self, *tickets: int) -> None:
        """Finish these."""
        self.finish(*self._columns(tickets))

    def free(self) -> list[int]:
        """The candidates."""
        return self.candidates().tolist()


def waves_of(*rounds: str) -> ByTicket:
    """Rounds numbered from 0, a letter a player."""
    waves = ByTicket()
    half = len(rounds) // 2
    for first, some in ((0, rounds[:half]), (half, rounds[half:])):
        if some:
            waves.enter(*enumerate(map(crowd, some), first))
    return waves


def crowd(players: str) -> Fingerprints:
    """A letter a player."""
    return fingerprints(StringColumn.of(list(players)), [""], [len(players)], 2)


def test_a_common_player_makes_a_round_wait() -> None:
    """The later round is free once the earlier is finished, not before. It waits for each of its
    players, and nobody waits for strangers. Only a candidate can be finished: finishing a round
    that waits is a mistake of ours. Finished rounds leave nothing behind."""
    assert waves_of("ab", "cd", "ef").free() == [0, 1, 2]
    waves = waves_of("ab", "bc", "cd")
    for number in range(3):
        assert waves.free() == [number]
        waves.done(number)
    assert len(waves) == len(waves._latest) == 0
    assert not waves.contains(np.arange(3)).any()
    waves = waves_of("ab", "cd", "bc")
    waves.done(1)
    assert waves.free() == [0]
    waves.done(0)
    assert waves.free() == [2]
    with pytest.raises(AssertionError):
        waves_of("ab", "bc").done(1)


def test_memory_is_for_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished rounds take no more memory than those that wait. Two players of one fingerprint: in
    one round they block nobody, in two the later round waits."""
    monkeypatch.setattr(backlog, "COMPACT_AFTER", 3)
    waves = ByTicket()
    waves.enter((0, crowd("zy")), (1, crowd("z")))
    for ticket in range(2, 100, 2):
        waves.enter((ticket, crowd("ab")), (ticket + 1, crowd("bc")))
        waves.done(ticket)
        waves.done(ticket + 1)
        assert len(waves._tickets) <= 6
        assert len(waves._before) == len(waves._following) <= 4
    assert waves.contains(np.array([0, 1, 2, 99])).tolist() == [True, True, False, False]
    waves.done(0)
    assert waves.free() == [1]
    alike, waves = np.repeat(crowd("a"), 2), ByTicket()
    waves.enter((0, alike), (1, alike))
    for number in range(2):
        assert waves.free() == [number]
        waves.done(number)
    assert len(waves) == len(waves._latest) == 0


rounds = st.lists(st.sets(st.sampled_from("abcdefg"), min_size=1, max_size=4), max_size=25)


@given(rounds, st.integers(0, 2**32))
def test_candidates_are_those_of_the_definition(found: Sequence[set[str]], seed: int) -> None:
    """Rounds that share no player with an earlier unfinished one, whatever order they finish in."""
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog, "COMPACT_AFTER", rng.randint(0, 5))
        waves = waves_of(*("".join(sorted(players)) for players in found))
        left = list(range(len(found)))
        while left:
            free = [r for i, r in enumerate(left) if not any(found[r] & found[e] for e in left[:i])]
            assert waves.free() == free
            done = sorted(rng.sample(free, rng.randint(1, len(free))))
            waves.done(*done)
            left = [r for r in left if r not in done]
