"""Waves: rounds come after every earlier one that shares a player, and after no other."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.names import lay_out
from stream_rater.pipeline.marks import Fingerprints, fingerprints
from stream_rater.pipeline.waves import Waves


def waves_of(*rounds: str) -> Waves:
    """Rounds numbered from 0, a letter a player."""
    waves = Waves()
    half = len(rounds) // 2
    for first, some in ((0, rounds[:half]), (half, rounds[half:])):
        waves.add(range(first, first + len(some)), [crowd(players) for players in some])
    return waves


def crowd(players: str) -> Fingerprints:
    """A letter a player."""
    return fingerprints(lay_out(list(players)), [""], [len(players)], 2)


def test_rounds_without_common_players_are_free_at_once() -> None:
    """Nobody waits for strangers."""
    assert list(waves_of("ab", "cd", "ef").candidates()) == [0, 1, 2]


def test_a_common_player_makes_a_round_wait() -> None:
    """The later round is free once the earlier is finished, not before."""
    waves = waves_of("ab", "bc", "cd")
    assert list(waves.candidates()) == [0]
    waves.finish([0])
    assert list(waves.candidates()) == [1]
    waves.finish([1])
    assert list(waves.candidates()) == [2]


def test_a_round_waits_for_each_of_its_players() -> None:
    """Two predecessors, finished in any order."""
    waves = waves_of("ab", "cd", "bc")
    waves.finish([1])
    assert list(waves.candidates()) == [0]
    waves.finish([0])
    assert list(waves.candidates()) == [2]


def test_only_a_candidate_can_be_finished() -> None:
    """Finishing a round that waits is a mistake of ours."""
    with pytest.raises(AssertionError):
        waves_of("ab", "bc").finish([1])


def test_finished_rounds_leave_nothing_behind() -> None:
    """Memory is for what waits."""
    waves = waves_of("ab", "bc")
    waves.finish([0])
    waves.finish([1])
    assert len(waves) == 0
    assert len(waves._latest) == 0
    assert not waves._players
    assert not waves._free
    assert not waves._followers
    assert not waves._behind
    assert 0 not in waves


def test_players_who_cannot_be_told_apart_only_wait() -> None:
    """Two of one fingerprint: in one round they block nobody, in two the later round waits."""
    alike = np.repeat(crowd("a"), 2)
    waves = Waves()
    waves.add([0, 1], [alike, alike])
    assert list(waves.candidates()) == [0]
    waves.finish([0])
    assert list(waves.candidates()) == [1]
    waves.finish([1])
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
        assert sorted(waves.candidates()) == free
        done = rng.sample(free, rng.randint(1, len(free)))
        waves.finish(done)
        left = [r for r in left if r not in done]
