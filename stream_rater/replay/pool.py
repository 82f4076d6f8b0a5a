"""Stores a ladder's beliefs in memory, and rates rounds on them. `sequential` replays a whole log.

The offline commands use the replay, and the service's ratings must equal its ratings bit for bit.
Both rate a round with the same functions. Only rounds that share no player are rated together, as a
wave. So each round sees the result of all earlier rounds, as if they were rated one by one.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.ranges import bounds
from stream_rater.columns.strings import StringColumn
from stream_rater.rating import record, seasons, stages
from stream_rater.rating.elo_mmr.belief import Posteriors
from stream_rater.rating.factor import factors_of
from stream_rater.rating.model import Beliefs, Evidence, Table, Wave, newcomers
from stream_rater.rating.parameters import RatingConfig, Season
from stream_rater.rating.seasons import Before
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.cores import ONE_CORE, Cores, rate_waves
from stream_rater.replay.player_index import PlayerIndex
from stream_rater.rounds.batch import OneRound, RoundBatch
from stream_rater.rounds.correction_records import Seed
from stream_rater.rounds.ragged import rows_of

NO_ROWS = np.empty(0, np.int64)
ONE_WAVE = np.array([0, 1])  # The bounds of the only wave of one round.


@kernel
def depths(starts: Ints, rows: Ints, latest: Ints) -> Ints:
    """(R,) the number of waves before each round: the length of the longest chain of earlier rounds
    that leads to it, in which each round shares a player with the next one.

    Round r has the players rows[starts[r] : starts[r + 1]]. `latest` has an element for every row
    of a player. It is zero before and after the call.
    """
    found = np.zeros(len(starts) - 1, np.int64)
    for r in range(len(found)):
        for i in range(starts[r], starts[r + 1]):
            found[r] = max(found[r], latest[rows[i]])
        for i in range(starts[r], starts[r + 1]):
            latest[rows[i]] = found[r] + 1
    for row in rows:
        latest[row] = 0
    return found


class InWaves(NamedTuple):
    """R rounds in an order in which they can be rated, wave by wave."""

    order: Ints  # (R,) the indices of the rounds among those that were given.
    rounds: RoundBatch  # (R,) the rounds in this order.
    rows: Ints  # (P,) the rows of their players, round by round.
    waves: Ints
    """(W+1,) the bounds of the W waves, which are as few as possible. Wave w has the rounds
    waves[w] : waves[w + 1]."""


def in_waves(rounds: RoundBatch, rows: Ints, players: int) -> InWaves:
    """Arrange rounds in waves. `rows` (P,) are the rows of their players, all below `players`."""
    depth = depths(bounds(rounds.sizes), rows, np.zeros(players, np.int64))
    order, waves = np.argsort(depth, kind="stable"), np.append(0, np.cumsum(np.bincount(depth)))
    if len(waves) > 2:  # with a single wave the order stays
        rows, rounds = rows[rows_of(rounds.sizes, order)], rounds.take(order)
    return InWaves(order, rounds, rows, waves)


class RatingResult(NamedTuple):
    """The result of rating rounds with P players in all; a player counts once for each round."""

    wave: Wave
    """The input of stage 1. Each player's belief before each round was drawn by the seasons."""
    evidence: Evidence  # The evidence of stage 1, of each player.
    after: Posteriors  # The mu and sigma of each player after each round.
    published: Posteriors
    """The mu and sigma of each player that were published before each round: they are not drawn."""


GIVEN = np.dtype(
    [("mu", "<f8"), ("sigma", "<f8"), ("rounds", "<i8"), ("time", "<i8"), ("offset", "<i8")]
)
"""What a seed or a reset gives to a player: its fields, and the place of its record."""
NO_GIVEN = np.empty(0, GIVEN)


def given_by(seed: Seed) -> Table:
    """(n,) what a seed or a reset gives to each of its players."""
    given = np.empty(len(seed), GIVEN)
    for name in GIVEN.names or ():
        given[name] = getattr(seed, name)
    return given


class SeedOutcome(NamedTuple):
    """The effect of seeds or resets on n of their players."""

    chosen: Ints
    """(n,) the indices of the players whose beliefs were changed, among those of the seeds."""
    rows: Ints  # (n,) the rows of these players in the table.
    published: Posteriors  # (n,) the mu and sigma of these players before.


NOTHING_SEEDED = SeedOutcome(NO_ROWS, NO_ROWS, Posteriors(np.empty(0), np.empty(0)))


class _Drawn(NamedTuple):
    """D players whose beliefs were drawn before their first round of a call. Newcomers are
    included, although a season does not change them."""

    before: Before  # The players' beliefs before they were drawn.
    first: Ints  # (D,) the index of the player's entry in that round, among all rows of the call.
    alone: Flags  # (D,) whether the player has no other round in the call.


class BeliefTable:
    """A table of beliefs, one player in each row. Rows and factors can be added. This class says
    what rounds, seeds and resets do to beliefs."""

    def __init__(self, beliefs: Beliefs) -> None:
        self._beliefs = beliefs

    def _newcomer(self) -> Table:
        """(1,) the header of a new row."""
        return newcomers(1, 0, 0.0, 1.0).header

    def make_room(self, rows: int) -> None:
        """Make room for this many rows."""
        if rows > len(self._beliefs):
            self._grow(max(rows, 5 * len(self._beliefs) // 4), self._beliefs.factors.shape[1])

    def lengthen(self, factors: int) -> None:
        """Make room for this many factors and one more in each row."""
        if factors + 1 > self._beliefs.factors.shape[1]:
            self._grow(len(self._beliefs), factors + 1)

    def _grow(self, rows: int, capacity: int) -> None:
        old = self._beliefs
        count = len(old)
        if capacity == old.factors.shape[1]:  # resize in place: the system remaps pages
            old.header.resize(rows, refcheck=False)
            old.factors.resize((rows, *old.factors.shape[1:]), refcheck=False)
            old.header[count:] = self._newcomer()
            return
        header = np.empty(rows, old.header.dtype)
        header[:count], header[count:] = old.header, self._newcomer()
        factors = np.zeros((rows, capacity, *old.factors.shape[2:]), old.factors.dtype)
        factors[:count, : old.factors.shape[1]] = old.factors
        self._beliefs = Beliefs(header, factors)

    def begin(self, rule: RatingRule, rows: Ints) -> None:
        """Let the players in these rows who have not played begin by this rule. Makes room for the
        factors that it keeps."""
        header = self._beliefs.header
        new = rows[header["rounds"][rows] == 0]
        header[new] = newcomers(1, 0, rule.initial_mu, rule.initial_sigma).header
        self.lengthen(rule.kept)

    def rate_waves(
        self, rating: RatingConfig, rule: RatingRule, rounds: RoundBatch, rows: Ints, waves: Ints,
        offset: Ints, cores: Cores = ONE_CORE,
    ) -> RatingResult:  # fmt: skip
        """Rate R rounds, where R is at least 1, by this configuration and its rule. `rows` (P,) are
        the rows of their players, who have begun, and `offset` (R,) are their offsets.

        The rounds are in the order of their waves. Wave w has the rounds waves[w] : waves[w + 1],
        no two of which share a player, and is rated after all earlier waves.
        """
        if rule.kept == 0:
            factors = int(self._beliefs.header["count"][rows].max()) + len(waves) - 1
            capacity = self._beliefs.factors.shape[1]
            if factors >= capacity:
                self.lengthen(max(factors, 2 * capacity - 1))
        wave, drawn = rounds.wave_without_beliefs(rating), self._draw(rule, rows)
        evidence, after = rate_waves(cores, rating, self._beliefs, rows, wave, waves, offset)
        published = Posteriors(wave.mu, wave.sigma)
        if drawn is not None:
            published = self._restore_undrawn(drawn, published, wave.rounds)
        return RatingResult(wave, evidence, after, published)

    def give(self, rule: RatingRule, rows: Ints, given: Table, *, is_reset: bool) -> SeedOutcome:
        """Apply seeds, or resets, of ladders with this rule. `rows` (n,) are the rows of their
        players, each of whom occurs only once, and `given` (n,) has the fields of GIVEN. A seed
        changes the players who have no round, and a reset those who have one."""
        header, played = self._beliefs.header, self._beliefs.header["rounds"][rows] > 0
        chosen = np.flatnonzero(played == is_reset)
        own, given = rows[chosen], given[chosen]
        published = Posteriors(header["mu"][own], header["sigma"][own])
        if is_reset:
            mu, sigma, offset = given["mu"], given["sigma"], given["offset"]
            seasons.reset(rule, self._beliefs, own, mu, sigma, offset)
        else:
            header[own] = seasons.seeded(rule, *(given[name] for name in GIVEN.names or ()))
        return SeedOutcome(chosen, own, published)

    def _draw(self, rule: RatingRule, rows: Ints) -> _Drawn | None:
        """Draw the beliefs of the players in `rows` by the seasons that have not drawn them yet. A
        player may be in `rows` several times. Returns None if no player lacks a season."""
        if not rule.seasons:
            return None
        late = np.flatnonzero(self._beliefs.header["season"][rows] < len(rule.seasons))
        if not len(late):
            return None
        own, first, count = np.unique(rows[late], return_index=True, return_counts=True)
        before = seasons.draw([rule], np.zeros(len(own), np.int64), self._beliefs, own)
        assert before is not None
        return _Drawn(before, late[first], count == 1)

    def _restore_undrawn(self, drawn: _Drawn, seen: Posteriors, played: Ints) -> Posteriors:
        """After the rounds, restore the undrawn beliefs as the previous ones of the players' first
        rounds. `seen` has the mu and sigma that stage 1 used, and `played` (P,) the number of
        rounds before each round. Returns the mu and sigma that were published before each round."""
        before = drawn.before
        seasons.remember(self._beliefs, before.take(drawn.alone))
        published = Posteriors(seen.mu.copy(), seen.sigma.copy())
        old = played[drawn.first] > 0
        published.mu[drawn.first[old]] = before.mu[old]
        published.sigma[drawn.first[old]] = before.sigma[old]
        return published

    def rated(self, rows: Ints) -> Ints:
        """The rows among these whose players have at least one round."""
        return rows[self._beliefs.header["rounds"][rows] > 0]

    def headers(self, rows: Ints) -> Table:
        """The beliefs in these rows, without their histories."""
        found: Table = self._beliefs.header[rows]
        return found

    def beliefs(self, rows: Ints) -> Beliefs:
        """A copy of the whole beliefs in these rows."""
        return Beliefs(self._beliefs.header[rows], self._beliefs.factors[rows])

    def encoded(self, rows: Ints) -> StringColumn:
        """The record of each belief in these rows, as the service stores it."""
        data, starts = record.encode_all(self.beliefs(rows))
        return StringColumn(data, starts[:-1], starts[1:])


class Pool(BeliefTable):
    """The beliefs of one ladder's players; players are added as they appear."""

    def __init__(self, rating: RatingConfig, started: tuple[Season, ...] = ()) -> None:
        """`started` are the seasons that have started on the ladder, in order."""
        self.rating = rating
        self.rule = rule = stages.rule_of(rating, started)
        self._index = PlayerIndex()
        capacity = rule.kept + 1 if rule.kept else 8
        super().__init__(
            newcomers(1024, capacity, rule.initial_mu, rule.initial_sigma, coded=rule.kept > 0)
        )

    def part(self, players: StringColumn) -> "Pool":
        """Copy the beliefs of these players into a new pool. Newcomers are left out; the pool adds
        them when they appear."""
        known = [(name, row) for name in players.texts() if (row := self.find(name)) is not None]
        names, rows = [name for name, _ in known], np.array([row for _, row in known], np.int64)
        pool = Pool(self.rating, self.rule.seasons)
        pool._beliefs = self.beliefs(rows)
        pool._grow(len(rows) + 1, pool._beliefs.factors.shape[1])
        pool._index.rows(StringColumn.of(names))
        return pool

    def follow(self, rating: RatingConfig) -> None:
        """Use these parameters from now on, also for the initial beliefs of players who have not
        played yet.

        If the pool has ever stored full histories, its beliefs can no longer be stored as records.
        """
        if rating is self.rating:
            return
        self.rating, self.rule = rating, stages.rule_of(rating, self.rule.seasons)
        if self.rule.kept == 0:
            self._beliefs = Beliefs(self._beliefs.header, factors_of(self._beliefs))
        self.begin(self.rule, np.arange(len(self._beliefs)))

    def start_season(self, season: Season) -> None:
        """Start a season. It draws each belief before the player's next round."""
        self.rule = stages.rule_of(self.rating, (*self.rule.seasons, season))

    def __len__(self) -> int:
        return len(self._index)

    def _newcomer(self) -> Table:
        return newcomers(1, 0, self.rule.initial_mu, self.rule.initial_sigma).header

    def rows(self, players: StringColumn) -> Ints:
        """(P,) the row of each player; new players are added."""
        rows = self._index.rows(players)
        self.make_room(len(self._index))
        return rows

    def put(self, players: Sequence[str], records: Sequence[bytes]) -> None:
        """Add new players with these records. Raises UnknownRecord."""
        beliefs = record.decode(records, 0, self.rule.initial_mu, self.rule.initial_sigma)
        rows = self.rows(StringColumn.of(list(players)))
        self.lengthen(beliefs.factors.shape[1] - 1)
        self._beliefs.header[rows] = beliefs.header
        self._beliefs.factors[rows, : beliefs.factors.shape[1]] = beliefs.factors

    def rate(self, standings: OneRound, offset: int) -> tuple[Ints, Evidence] | None:
        """Rate one round. Returns its players' rows and evidence; None if it changes nothing."""
        if not standings.is_informative(skip_all_tied=self.rating.skip_all_tied):
            return None
        rows = self.rows(standings.batch.names)
        result = self.rate_rows(standings.batch, rows, ONE_WAVE, np.array([offset]))
        return rows, result.evidence

    def rate_rows(self, rounds: RoundBatch, rows: Ints, waves: Ints, offset: Ints) -> RatingResult:
        """Rate rounds in waves by the pool's rule (`rate_waves`)."""
        return self.rate_waves(self.rating, self.rule, rounds, rows, waves, offset)

    def seed(self, seed: Seed) -> SeedOutcome:
        """Apply a seed or a reset that the corrections have edited. It changes the players of a
        seed who have no round, or the player of a reset who has one. A reset adds no player."""
        if seed.is_reset and all(self.find(name) is None for name in seed.names.texts()):
            return NOTHING_SEEDED
        return self.seed_rows(seed, self.rows(seed.names))

    def seed_rows(self, seed: Seed, rows: Ints) -> SeedOutcome:
        """Apply a seed or a reset, as `seed` does. `rows` (n,) are the rows of its players."""
        return self.give(self.rule, rows, given_by(seed), is_reset=seed.is_reset)

    def find(self, player: str) -> int | None:
        """The row of a player; None if there is no such player."""
        return self._index.find(player)

    def belief_bytes(self, player: str) -> bytes:
        """The record of one player as the service stores it. Raises KeyError if there is no such
        player, and Unrecordable if the pool keeps full histories."""
        row = self.find(player)
        if row is None:
            raise KeyError(player)
        return self.records(np.array([row]))[0]

    def records(self, rows: Ints) -> list[bytes]:
        """The records of the players in these rows. Raises Unrecordable as `belief_bytes` does."""
        if self._beliefs.in_full:
            raise record.Unrecordable("no record can hold a full history: set history to a number")
        return record.encode(self.beliefs(rows))

    def played(self) -> Ints:
        """The rows of the players with at least one round."""
        return np.flatnonzero(self._beliefs.header["rounds"][: len(self)] > 0)

    @property
    def names(self) -> StringColumn:
        """All players, in order of their rows."""
        return self._index.names(np.arange(len(self)))

    def names_of(self, rows: Ints) -> StringColumn:
        """The players in these rows."""
        return self._index.names(rows)

    def players(self) -> list[str]:
        """The names of all players as Python strings, in order of their rows."""
        return self.names.texts()

    def __contains__(self, player: str) -> bool:
        return self.find(player) is not None

    def __iter__(self) -> Iterator[tuple[str, Table]]:
        """Yield each player and the header of the player's belief."""
        yield from zip(self.players(), self._beliefs.header[: len(self)], strict=True)
