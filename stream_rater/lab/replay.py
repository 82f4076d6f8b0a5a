"""The sequential replay: rates one round after the other, in memory.

The service's ratings must equal its ratings bit for bit, and the offline commands use it. A round
passes through the same functions as in the service, but each round sees all rounds before it.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.config import Ladder
from stream_rater.rating import record, systems
from stream_rater.rating.factor import factors_of
from stream_rater.rating.model import Beliefs, Evidence, Table, Wave, newcomers
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds.batch import RoundBatch, Standings


class Pool:
    """The beliefs of one ladder's players; players are added as they appear."""

    def __init__(self, ladder: Ladder) -> None:
        self.rating = ladder.rating
        self.rule = systems.rule_of(ladder.rating)
        self._rows: dict[str, int] = {}
        self._beliefs = self._empty(1024, self.rule.kept + 1 if self.rule.kept else 8)

    def follow(self, rating: RatingConfig) -> None:
        """Rate by these parameters from now on. Players who have not played yet start by them, too.

        Once a history was kept in full, no record can hold these beliefs any more.
        """
        if rating is self.rating:
            return
        self.rating, self.rule = rating, systems.rule_of(rating)
        if self.rule.kept == 0:
            self._beliefs = Beliefs(self._beliefs.header, factors_of(self._beliefs))
        header, factors = self._beliefs.header, self._beliefs.factors
        new = header["rounds"] == 0
        header[new] = self._empty(1, 1).header
        if self.rule.kept + 1 > factors.shape[1]:
            self._grow(len(header), self.rule.kept + 1)

    def __len__(self) -> int:
        return len(self._rows)

    def _empty(self, players: int, capacity: int) -> Beliefs:
        rule = self.rule
        coded = rule.kept > 0
        return newcomers(players, capacity, rule.initial_mu, rule.initial_sigma, coded=coded)

    def _grow(self, players: int, capacity: int) -> None:
        old = self._beliefs
        if capacity == old.factors.shape[1]:  # in place: the system remaps pages
            held = len(old)
            old.header.resize(players, refcheck=False)
            old.factors.resize((players, *old.factors.shape[1:]), refcheck=False)
            old.header[held:] = self._empty(1, 1).header
            return
        header = self._empty(players, 0).header
        header[: len(old)] = old.header
        factors = np.zeros((players, capacity, *old.factors.shape[2:]), old.factors.dtype)
        factors[: len(old), : old.factors.shape[1]] = old.factors
        self._beliefs = Beliefs(header, factors)

    def rows(self, players: list[str]) -> Ints:
        """(P,) the row of each player; new players are added."""
        known = self._rows
        rows = np.array([known.setdefault(player, len(known)) for player in players], np.int64)
        self.make_room(len(known))
        return rows

    def rate(self, standings: Standings, offset: int) -> tuple[Ints, Evidence] | None:
        """Rate one round. Returns the players' rows and the evidence, or None if the round changes
        nothing."""
        if not standings.rates(skip_all_tied=self.rating.skip_all_tied):
            return None
        rows = self.rows(standings.players)
        _, evidence = self.rate_rows(standings.batch, rows, offset)
        return rows, evidence

    def make_room(self, players: int) -> None:
        """Make room for rows below `players`; new rows are newcomers."""
        if players > len(self._beliefs):
            self._grow(max(players, 5 * len(self._beliefs) // 4), self._beliefs.factors.shape[1])

    def rate_rows(self, rounds: RoundBatch, rows: Ints, offset: int) -> tuple[Wave, Evidence]:
        """Rate rounds of one time that share no player. `rows` are the rows of their players.

        Returns what stage 1 saw, and the evidence. This is `rate` without names.
        """
        if self.rule.kept == 0:
            self._lengthen(int(self._beliefs.header["count"][rows].max()))
        wave = rounds.wave(self._beliefs.header, rows)
        evidence = systems.estimate(self.rating, wave)
        same = np.zeros(len(rows), np.int64)
        systems.update(self._beliefs, rows, evidence, [self.rule], same)
        systems.note_round(self._beliefs, rows, same + offset, same + rounds.time[0])
        return wave, evidence

    def _lengthen(self, held: int) -> None:
        """Make room for one more factor after this many."""
        if held + 1 >= self._beliefs.factors.shape[1]:
            self._grow(len(self._beliefs), 2 * self._beliefs.factors.shape[1])

    def mu(self, row: int) -> float:
        """The rating of the player in this row."""
        return float(self._beliefs.header["mu"][row])

    def headers(self, rows: Ints) -> Table:
        """The beliefs of the players in these rows, without their histories."""
        found: Table = self._beliefs.header[rows]
        return found

    def belief_bytes(self, player: str) -> bytes:
        """The record of one player as the service stores it. Raises Unrecordable if the history is
        full."""
        if self._beliefs.in_full:
            raise record.Unrecordable("no record can hold a full history: set history to a number")
        row = slice(self._rows[player], self._rows[player] + 1)
        return record.encode(Beliefs(self._beliefs.header[row], self._beliefs.factors[row]))[0]

    def records(self, players: Sequence[str]) -> list[bytes]:
        """The records of many players, without the check for a full history."""
        rows = np.array([self._rows[player] for player in players], np.int64)
        return record.encode(Beliefs(self._beliefs.header[rows], self._beliefs.factors[rows]))

    def __contains__(self, player: object) -> bool:
        return player in self._rows

    def __iter__(self) -> Iterator[tuple[str, Table]]:
        """Yield each player with the header of the belief."""
        for player, row in self._rows.items():
            yield player, self._beliefs.header[row]
