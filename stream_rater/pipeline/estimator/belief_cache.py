"""Beliefs that an estimator computes itself, while the store has yet to apply their last round.

All rounds of a ladder pass through one estimator, and a belief is rated nowhere else. So once all
parts of a round are acknowledged, the estimator knows what the store will hold: it computes stage 2
by the same kernels. A round whose players' beliefs are held need not wait for the updaters.

Only players are held for whom another round waits (`priors`). What is held is a record as the store
will hold it, by the player's ladder and id: a fingerprint only says where it is worth looking.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.columns.player_map import NOTHING, Fingerprints, PlayerMap
from stream_rater.contract.record import Player
from stream_rater.pipeline.estimator.estimation import PendingRounds, posteriors
from stream_rater.pipeline.parts.schema import Part
from stream_rater.rating.record import UnknownRecord

MOST = 50_000
"""When more beliefs are held, those are dropped that the store has."""


class HeldBelief(NamedTuple):
    """A player's belief after the last round that was sent."""

    player: Player
    record: bytes


class HeldBeliefs:
    """The beliefs that are held: of players with one fingerprint that of the last one only."""

    def __init__(self) -> None:
        self._beliefs: dict[int, HeldBelief] = {}
        """By fingerprint."""
        self._marks = PlayerMap()
        """The same fingerprints."""

    def __len__(self) -> int:
        return len(self._beliefs)

    def may_hold(self, players: Fingerprints) -> Flags:
        """(P,) whether a player is held who has this fingerprint."""
        if not self._beliefs:
            return np.zeros(len(players), np.bool_)
        found: Flags = self._marks.find(players) != NOTHING
        return found

    def records(self, players: Sequence[Player], fingerprints: Fingerprints) -> list[bytes | None]:
        """The record of each player's belief; None where it is not held."""
        found = map(self._beliefs.get, fingerprints.tolist())
        each = zip(players, found, strict=True)
        return [held.record if held and held.player == player else None for player, held in each]

    def sent(self, pending: PendingRounds, part: Part, records: Mapping[int, bytes | None]) -> None:
        """Hold the beliefs of some players after rounds that were sent: of those whose `records`
        before them are given, by their number among the rounds' players."""
        rows = np.array(list(records), np.int64)
        try:
            after = posteriors(part, pending, rows, list(records.values()))
        except UnknownRecord:  # the updater refuses the shard and says why
            return
        players = pending.rounds.players().take(rows)
        self.hold(list(players), pending.fingerprints[rows], after)

    def hold(
        self, players: Sequence[Player], fingerprints: Fingerprints, records: Sequence[bytes]
    ) -> None:
        """Hold these beliefs."""
        beliefs = map(HeldBelief, players, records)
        self._beliefs.update(zip(fingerprints.tolist(), beliefs, strict=True))
        self._marks.note(fingerprints, np.zeros(len(fingerprints), np.int64))

    def drop(self, players: Fingerprints) -> None:
        """Drop the beliefs of the players with these fingerprints."""
        held = players[self.may_hold(players)]
        for mark in held.tolist():
            self._beliefs.pop(mark, None)
        self._marks.forget(held, np.zeros(len(held), np.int64))

    def keep(self, awaiting: Callable[[Fingerprints], Flags]) -> None:
        """If many beliefs are held, drop those of players who await no part: the store has them."""
        if len(self._beliefs) > MOST:
            marks = np.array(list(self._beliefs), np.uint64)
            self.drop(marks[~awaiting(marks)])
