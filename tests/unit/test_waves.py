"""Waves: rounds come after every earlier one that shares a player, and after no other."""

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.names import lay_out
from stream_rater.pipeline.marks import Fingerprints, fingerprints
from stream_rater.pipeline.waves import Waves
from stream_rater.rating.model import Ints


class Round(NamedTuple):
    """A round."""

    number: int


class ByNumber(Waves[Round]):
    """Rounds named by their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self._crowds: dict[int, Fingerprints] = {}

    def enter(self, *rounds: tuple[int, Fingerprints]) -> None:
        """These, in one call."""
        self._crowds.update(rounds)
        self.add([Round(number) for number, _ in rounds], *self._columns([n for n, _ in rounds]))

    def _columns(self, numbers: Sequence[int]) -> tuple[Fingerprints, Ints]:
        crowds = [self._crowds[number] for number in numbers]
        return np.concatenate(crowds), np.repeat(numbers, [len(each) for each in crowds])

    def done(self, *numbers: int) -> None:
        """Finish these."""
        self.finish([Round(number) for number in numbers], *self._columns(numbers))

    def free(self) -> list[int]:
        """The candidates."""
        return [each.number for each in self.candidates()]


def waves_of(*rounds: str) -> ByNumber:
    """Rounds numbered from 0, a letter a player."""
    waves = ByNumber()
    half = len(rounds) // 2
    for first, some in ((0, rounds[:half]), (half, rounds[half:])):
        if some:
            waves.enter(*enumerate(map(crowd, some), first))
    return waves


def crowd(players: str) -> Fingerprints:
    """A letter a player."""
    return fingerprints(lay_out(list(players)), [""], [len(players)], 2)


def test_rounds_without_common_players_are_free_at_once() -> None:
    """Nobody waits for strangers."""
    assert waves_of("ab", "cd", "ef").free() == [0, 1, 2]


def test_a_common_player_makes_a_round_wait() -> None:
    """The later round is free once the earlier is finished, not before."""
    waves = waves_of("ab", "bc", "cd")
    assert waves.free() == [0]
    waves.done(0)
    assert waves.free() == [1]
    waves.done(1)
    assert waves.free() == [2]


def test_a_round_waits_for_each_of_its_players() -> None:
    """Two predecessors, finished in any order."""
    waves = waves_of("ab", "cd", "bc")
    waves.done(1)
    assert waves.free() == [0]
    waves.done(0)
    assert waves.free() == [2]


def test_only_a_candidate_can_be_finished() -> None:
    """Finishing a round that waits is a mistake of ours."""
    with pytest.raises(AssertionError):
        waves_of("ab", "bc").done(1)


def test_finished_rounds_leave_nothing_behind() -> None:
    """Memory is for what waits."""
    waves = waves_of("ab", "bc")
    waves.done(0)
    waves.done(1)
    assert len(waves) == 0
    assert len(waves._latest) == 0
    assert not waves._free
    assert not waves._followers
    assert not waves._behind
    assert 0 not in waves


def test_players_who_cannot_be_told_apart_only_wait() -> None:
    """Two of one fingerprint: in one round they block nobody, in two the later round waits."""
    alike = np.repeat(crowd("a"), 2)
    waves = ByNumber()
    waves.enter((0, alike), (1, alike))
    assert waves.free() == [0]
    waves.done(0)
    assert waves.free() == [1]
    waves.done(1)
    assert len(waves) == len(waves._latest) == 0


rounds = st.lists(st.sets(st.sampled_from("abcdefg"), min_size=1, max_size=4), max_size=25)


@given(rounds, st.integers(0, 2**32))
def test_candidates_are_those_of_the_definition(found: Sequence[set[str]], seed: int) -> None:
    """Rounds that share no player with an earlier unfinished one, whatever order they finish in."""
    rng = random.Random(seed)
    waves = waves_of(*("".join(sorted(players)) for players in found))
    left = list(range(len(found)))
    while left:
        free = [r for i, r in enumerate(left) if not any(found[r] & found[e] for e in left[:i])]
        assert sorted(waves.free()) == free
        done = rng.sample(free, rng.randint(1, len(free)))
        waves.done(*done)
        left = [r for r in left if r not in done]
