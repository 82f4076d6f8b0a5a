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
from stream_rater.parts.schema import Part
from stream_rater.pipeline.estimation import PendingRounds, posteriors
from stream_rater.rating.record import UnknownRecord

MOST = 50_000
"""When more beliefs are held, those are dropped that the store has."""


class HeldBelief(NamedTuple):
    """A player's belief after the last round that was sent."""

    fingerprint: int
    record: bytes


class HeldBeliefs:
    """The beliefs that are held, by player."""

    def __init__(self) -> None:
        self._beliefs: dict[Player, HeldBelief] = {}
        self._places = PlayerMap()
        """The fingerprints of all players held."""

    def __len__(self) -> int:
        return len(self._beliefs)

    def may_hold(self, players: Fingerprints) -> Flags:
        """(P,) whether a player is held who has this fingerprint."""
        if not self._beliefs:
            return np.zeros(len(players), np.bool_)
        found: Flags = self._places.find(players) != NOTHING
        return found

    def record(self, player: Player) -> bytes | None:
        """The record of a player's belief; None if it is not held."""
        held = self._beliefs.get(player)
        return None if held is None else held.record

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

    def forget(self, pending: PendingRounds) -> None:
        """Drop the beliefs of the players of these rounds."""
        rows = np.flatnonzero(self.may_hold(pending.fingerprints))
        if len(rows):
            self.drop(list(pending.rounds.players().take(rows)))

    def hold(
        self, players: Sequence[Player], fingerprints: Fingerprints, records: Sequence[bytes]
    ) -> None:
        """Hold these beliefs."""
        each = zip(players, fingerprints.tolist(), records, strict=True)
        self._beliefs.update({player: HeldBelief(mark, record) for player, mark, record in each})
        self._places.note(fingerprints, np.zeros(len(fingerprints), np.int64))

    def drop(self, players: Sequence[Player]) -> None:
        """Drop the beliefs of these players. Whoever shares a fingerprint with one of them is found
        no more."""
        for player in players:
            held = self._beliefs.pop(player, None)
            if held is not None:
                mark = np.array([held.fingerprint], np.uint64)
                self._places.forget(mark, np.zeros(1, np.int64))

    def keep(self, awaiting: Callable[[Fingerprints], Flags]) -> None:
        """If many beliefs are held, drop those of players who await no part: the store has them."""
        if len(self._beliefs) <= MOST:
            return
        players = list(self._beliefs)
        marks = np.array([each.fingerprint for each in self._beliefs.values()], np.uint64)
        kept = awaiting(marks).tolist()
        self.drop([player for player, keep in zip(players, kept, strict=True) if not keep])
