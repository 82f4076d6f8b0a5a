"""Rounds in the form that `evaluation` replays: players are row numbers instead of names, and
rounds are grouped in waves.

All rounds of a file are called a season here, which has nothing to do with `season-started`. They
are read a block at a time. The rounds of one ladder in a block are a session. A session is rated in
one call, wave after wave (`belief.rate_waves`). Seeds and resets come with the next session
of their ladder: they change beliefs before its rounds, and are not scored.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from msgspec import structs

from stream_rater.columns.arrays import Ints
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.edited_log import EditedLog, RecordValidator, Verdicts, batches_of
from stream_rater.replay.edits import indices_by
from stream_rater.replay.player_index import PlayerIndex
from stream_rater.replay.pool import Pool, in_waves
from stream_rater.rounds.batch import NO_ROUNDS, RoundBatch
from stream_rater.rounds.correction_records import Seed
from stream_rater.rounds.ragged import rows_of
from stream_rater.rounds.validation import Invalid

BLOCK_BYTES = 2**20  # The most bytes of the records that are read as one block.


class SeededRows(NamedTuple):
    """A seed or a reset, and the rows of its players."""

    seed: Seed
    rows: Ints  # (n,) the row of each player.

    def apply(self, pool: Pool) -> None:
        """Apply it to the beliefs of a pool, which has room for the rows. A sigma above the pool's
        initial one is cut to that, and a mu below its least one is raised to that."""
        config, seed = pool.rating, self.seed
        sigma = np.minimum(seed.sigma, config.initial_sigma)
        if not config.takes_sigma:
            sigma = np.full(len(sigma), config.initial_sigma)
        floor = config.floor if config.limits_mu else None
        mu = seed.mu if floor is None else np.maximum(seed.mu, floor)
        pool.seed_rows(replace(seed, mu=mu, sigma=sigma), self.rows)


@dataclass(frozen=True, slots=True)
class Session:
    """The rounds of one ladder in a block, wave by wave. The rounds of a wave share no player, and
    the rounds of one player are in the order of the season."""

    ladder: str
    players: int  # The number of rows that the ladder has, including those of this session.
    rows: Ints  # (P,) the row of each player, round by round, in order of place.
    rounds: RoundBatch  # (R,) the rounds. They have no names, unless a system needs them.
    waves: Ints  # (W+1,) wave w has the rounds waves[w] : waves[w + 1].
    numbers: Ints  # (R,) the number of each round in the season, from 0.
    seeds: Sequence[SeededRows] = ()
    """The seeds and resets since the session before, which come before its rounds."""

    @classmethod
    def of(
        cls, ladder: str, players: int, rows: Ints, rounds: RoundBatch, numbers: Ints
    ) -> "Session":
        """A session of these rounds, which come in the order of the season, grouped in waves."""
        order, rounds, rows, waves = in_waves(rounds, rows, players)
        return cls(ladder, players, rows, rounds, waves, numbers[order])

    def take(self, chosen: Ints) -> "Session":
        """A session of the rounds with these indices only. `chosen` is in ascending order."""
        return Session(
            self.ladder, self.players, self.rows[rows_of(self.rounds.sizes, chosen)],
            self.rounds.take(chosen), np.unique(np.searchsorted(chosen, self.waves)),
            self.numbers[chosen], self.seeds,
        )  # fmt: skip

    def rating(self, *, skip_all_tied: bool) -> tuple["Session | None", Ints]:
        """A session of the informative rounds, or None if there are none, and their indices. With
        `skip_all_tied`, rounds in which all entries tie are not informative."""
        chosen = np.flatnonzero(self.rounds.informative(np.full(len(self.rounds), skip_all_tied)))
        if len(chosen) == len(self.rounds):
            return self, chosen
        return (self.take(chosen) if len(chosen) else None), chosen


def sessions_of(
    records: Iterable[Record], window: int, reject: Callable[[int, Invalid], None],
    players: dict[str, PlayerIndex] | None = None,
    seen: Callable[[RoundBatch], None] | None = None, rounds: int | None = None,
    verdicts: Verdicts | None = None, validator: RecordValidator | None = None,
    only: str | None = None, named: bool = False,
) -> Iterator[Session]:  # fmt: skip
    """Yield the valid rounds of the records, a block at a time: one session for each ladder in it.

    `reject` is called with the offset and the error of each invalid record. `players`, if given,
    receives the index of each ladder's players. `seen`, if given, is called with the rounds in
    order. If `rounds` is given, only so many of the first rounds are read. If `only` is given, the
    rounds of other ladders are skipped. `validator` decides which rounds are valid. Without it,
    rounds of any ladder can be valid. The rounds have no names unless `named`. Configurations that
    treat some players by name need them (`by_name`).

    The corrections among the records are applied to the rounds. A round that is left with fewer
    than two entries is skipped. `verdicts` are the verdicts on the corrections. Without them, a
    correction raises MissingVerdicts.
    """
    players, number = {} if players is None else players, 0
    log = EditedLog(ANY_LADDER, window, verdicts=verdicts, validator=validator)
    seeds: dict[str, list[SeededRows]] = {}
    for batch in map(log.read, batches_of(records, BLOCK_BYTES)):
        for record, invalid in batch.rejected:
            reject(record.offset, invalid)
        for reported in batch.seeds:
            seed = log.seed(reported)
            if seed is not None and only in (None, seed.ladder):
                rows = players.setdefault(seed.ladder, PlayerIndex()).rows(seed.names)
                seeds.setdefault(seed.ladder, []).append(SeededRows(seed, rows))
        found, counts = log.edited(batch.rounds)
        if only is not None:
            counts &= np.array([head.ladder == only for head in found.heads], np.bool_)
        if not counts.all():
            found = found.take(np.flatnonzero(counts))
        if rounds is not None and number + len(found) > rounds:
            found = found.slice(0, rounds - number)
        if seen is not None:
            seen(found)
        yield from _sessions(found, number, players, seeds, named=named)
        number += len(found)
        if number == rounds:
            return


def by_name(configs: Iterable[RatingConfig]) -> bool:
    """Whether any of these configurations treats some players by name."""
    return any(each.fixed_players for each in configs)


def _sessions(
    rounds: RoundBatch, first: int, players: dict[str, PlayerIndex],
    seeds: dict[str, list[SeededRows]], *, named: bool,
) -> Iterator[Session]:  # fmt: skip
    """Yield a session for each ladder of these rounds, whose numbers begin at `first`. The seeds of
    each ladder move to its session."""
    ladders = indices_by(head.ladder for head in rounds.heads)
    for ladder, chosen in ladders.items():
        own = rounds if len(ladders) == 1 else rounds.take(chosen)
        index = players.setdefault(ladder, PlayerIndex())
        rows = index.rows(own.names)
        kept = own if named else structs.replace(own, names=NO_ROUNDS.names)
        found = Session.of(ladder, len(index), rows, kept, first + chosen)
        yield replace(found, seeds=seeds.pop(ladder)) if ladder in seeds else found


def before(sessions: Iterable[Session], number: int) -> list[Session]:
    """Sessions with only the rounds whose number is less than `number`."""
    chosen = ((each, np.flatnonzero(each.numbers < number)) for each in sessions)
    return [
        session if len(rounds) == len(session.rounds) else session.take(rounds)
        for session, rounds in chosen if len(rounds)
    ]  # fmt: skip
