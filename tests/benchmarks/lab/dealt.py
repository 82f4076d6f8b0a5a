"""Seasons cut and dealt in other ways: each round by itself, in blocks, and to random teams."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from stream_rater.columns.arrays import Ints
from stream_rater.evaluation.season import BLOCK_ROUNDS, Session, dealt
from stream_rater.rating.model import DID_NOT_FINISH, LAST, Places
from stream_rater.rounds.batch import NO_SCORES, NO_SEATS, RoundBatch


def singly(sessions: Iterable[Session]) -> list[Session]:
    """Each round as a session of its own, in the order of the season."""
    found: list[tuple[int, Session]] = []
    for session in sessions:
        numbers, without = session.numbers.tolist(), replace(session, seeds=())
        for i, number in enumerate(numbers):
            whole = session if number == min(numbers) else without
            found.append((number, whole.take(np.array([i]))))
    return [session for _, session in sorted(found, key=lambda each: each[0])]


def in_blocks(sessions: Iterable[Session]) -> Iterator[Session]:
    """Join sessions of one round, without seeds, of one ladder, into blocks like a file's."""
    block: list[Session] = []
    for session in sessions:
        block.append(session)
        if len(block) == BLOCK_ROUNDS:
            yield _joined(block)
            block = []
    if block:
        yield _joined(block)


def _joined(sessions: Sequence[Session]) -> Session:
    return Session.of(
        sessions[-1].ladder, sessions[-1].players, np.concatenate([each.rows for each in sessions]),
        RoundBatch.concat([each.rounds for each in sessions]),
        np.concatenate([each.numbers for each in sessions]),
    )  # fmt: skip


def deal_teams(session: Session, size: int, rng: np.random.Generator) -> Session:
    """A copy whose rounds are dealt at random into rounds of two teams of `size`. Ties share the
    mean of their ranks; the team with the lower sum of ranks is better, equal sums are a draw. A
    remainder is dropped. The parts of a round have its number. AssertionError for a round with
    teams."""

    def deal(whole: RoundBatch, dealt: Ints) -> Iterator[tuple[Ints, RoundBatch]]:
        for first in range(0, len(dealt) - 2 * size + 1, 2 * size):
            chosen = dealt[first : first + 2 * size]
            sums = _doubled_ranks(whole.place[chosen]).reshape(2, size).sum(axis=1)
            better = np.argsort(sums, kind="stable")
            place = np.array([1, 1 if sums[0] == sums[1] else 2], whole.place.dtype)
            teams = chosen.reshape(2, size)[better].ravel()
            yield teams, _of_two_teams(whole, place, teams)

    return dealt(session, deal, rng)


def _doubled_ranks(place: Places) -> Ints:
    """Twice the rank of each place among these; twice the mean rank of a tie is an integer."""
    place = np.where(place == DID_NOT_FINISH, LAST, place)
    less = (place[:, None] > place[None, :]).sum(axis=1)
    equal = (place[:, None] == place[None, :]).sum(axis=1)
    found: Ints = 2 * less + equal + 1
    return found


def _of_two_teams(whole: RoundBatch, place: Places, entries: Ints) -> RoundBatch:
    """A round of two teams of one size, the better one's first; no names, seats and scores."""
    return structs.replace(
        whole, entries=np.array([2]), sizes=np.array([len(entries)]), place=place,
        members=np.full(2, len(entries) // 2), share=whole.share[entries],
        seat=NO_SEATS, score=NO_SCORES,
    )  # fmt: skip
