"""Verifies the store: compares every belief with the sequential replay of the log, bit for bit.

If the log has corrections, the replay is of the log as they edit it. A belief that a correction has
written may differ from the replay in the fields about the past: see `same_belief`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladders
from stream_rater.contract.corrections import RoundAmended
from stream_rater.contract.record import Player, Record
from stream_rater.pipeline.ports import StoredShard
from stream_rater.rating import record
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import NO_VERDICTS, LoggedRounds, Verdicts
from stream_rater.replay.edits import indices_by
from stream_rater.replay.pool import Pool
from stream_rater.replay.sequential import Replay
from stream_rater.rounds.correction_records import decode
from stream_rater.rounds.seed_records import Seed

BATCH = 5000

UNANNOUNCED = frozenset({"previous_mu", "previous_sigma", "untold"})
"""The fields of a belief that hold the last published mu and sigma of its player, if a correction
was not published."""

SET_BY_CORRECTIONS = UNANNOUNCED | {"last", "previous_time", "previous_season"}
"""The fields of a belief that a correction sets to other values than a replay does."""

Read = Callable[[Mapping[int, PlayerColumn]], Mapping[int, StoredShard]]
"""Reads the players' records by shard, as `RedisStore.read` does."""


@dataclass
class Verdict:
    """The result of a comparison."""

    rounds: int = 0
    seeds: int = 0
    """The number of accepted seeds and resets."""
    rejected: Counter[str] = field(default_factory=Counter)
    """The number of rejected records, corrections included, by error code."""
    beliefs: int = 0
    missing: list[Player] = field(default_factory=list)
    differing: list[Player] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether every belief exists and is equal."""
        return not self.missing and not self.differing


def same_belief(found: bytes | None, expected: bytes | None, corrected: Collection[int]) -> bool:
    """Whether a stored belief agrees with the replay of the edited log. `found`: the record in the
    store. `expected`: that of the replay. None means that there is no belief.

    `corrected`: the offsets of the ladder's accepted corrections, seeds and resets; empty if it has
    no corrections. If a correction was the last to write a belief, the belief's `last` is the
    correction's offset, and its SET_BY_CORRECTIONS need not be equal. A rebuild keeps `last` where
    a correction was not published, and UNANNOUNCED need not be equal. It may set `last` to the
    offset of a seed that changed nothing. A belief without rounds counts as no belief.
    """
    if found == expected:
        return True
    try:
        beliefs = record.decode([found, expected], 0, 0.0, 1.0)
    except record.UnknownRecord:
        return False
    ours, theirs = beliefs.header
    if not ours["rounds"] and not theirs["rounds"]:
        return True
    if found is None or expected is None:
        return False
    free: Collection[str] = UNANNOUNCED if ours["untold"] and corrected else ()
    free = SET_BY_CORRECTIONS if int(ours["last"]) in corrected else free
    names = [name for name in beliefs.header.dtype.names or () if name not in free]
    factors = beliefs.factors[:, : ours["count"]]
    return all(ours[name] == theirs[name] for name in names) and bool(
        (factors[0] == factors[1]).all()
    )


def compare(
    read_log: Callable[[], Iterable[Record]], ladders: Ladders, window: int, partitions: int,
    shards: int, read: Read,
) -> Verdict:  # fmt: skip
    """Replay the records of `round-completed`, which has `partitions` partitions, and compare each
    belief with the store's. `read_log`: yields all records, from the first one on, at each call."""

    def run(verdicts: Verdicts | None) -> _Replayed:
        replayed = _Replayed(ladders, window, partitions, verdicts)
        replayed.run(read_log())
        return replayed

    replayed = with_verdicts(run, read_log, ladders, window, partitions)
    verdict, store = replayed.verdict, _Store(shards, read)
    for ladder, pool in replayed.replay.pools.items():
        corrected = replayed.corrected.get(ladder, set())
        for players, expected in _batches(pool):
            stored = store.of(ladder, players)
            _compare(verdict, ladder, corrected, zip(players, stored, expected, strict=True))
    for ladder, players in replayed.without_rounds():
        stored = store.of(ladder, players)
        left = [
            (player, found, None) for player, found in zip(players, stored, strict=True) if found
        ]
        _compare(verdict, ladder, (), left)
    return verdict


class _Replayed:
    """The replay of a whole log, and the offsets and players of its corrections."""

    def __init__(
        self, ladders: Ladders, window: int, partitions: int, verdicts: Verdicts | None
    ) -> None:
        self.replay = Replay(ladders, window, partitions, verdicts)
        self.verdict = Verdict()
        self.corrected: dict[str, set[int]] = {}
        """By ladder with corrections, the offsets of accepted corrections, seeds and resets."""
        self._seeds: dict[str, set[int]] = {}
        """By ladder, the offsets of seeds and resets."""
        self._ladders = ladders
        self._verdicts = verdicts or NO_VERDICTS
        self._touched: dict[str, set[str]] = {}
        """By ladder, the players of rounds and seeds that corrections touch. Some may have no round
        left."""

    def run(self, records: Iterable[Record]) -> None:
        """Replay the log. Raises MissingVerdicts."""
        for batch in self.replay.run(records):
            self.verdict.rounds += len(batch.log.rounds)
            self.verdict.rejected.update(invalid.code for _, invalid in batch.log.rejected)
            self._add_corrections(batch.log.corrections)
            for each in batch.log.seeds:
                self._add_seed(each)
            if self._verdicts.change_rounds:
                self._add_touched(batch.log.rounds)
        for ladder, offsets in self.corrected.items():
            offsets |= self._seeds.get(ladder, set())

    def _add_seed(self, seed: Seed) -> None:
        self.verdict.seeds += 1
        self._seeds.setdefault(seed.ladder, set()).add(seed.offset)
        edits = self._verdicts.of(seed.ladder)
        if edits.change_rounds and (left := edits.seed(seed)) is not seed:
            gone = {*seed.names.texts()} - {*(() if left is None else left.names.texts())}
            self._touched.setdefault(seed.ladder, set()).update(gone)

    def _add_corrections(self, accepted: Sequence[Record]) -> None:
        for each in accepted:
            correction = decode(each, self._ladders)
            self.corrected.setdefault(correction.ladder, set()).add(each.offset)
            if isinstance(correction, RoundAmended):
                players = (
                    name for entry in correction.standings
                    for name in (entry.team or (entry.player,)) if name is not None
                )  # fmt: skip
                self._touched.setdefault(correction.ladder, set()).update(players)

    def _add_touched(self, batch: LoggedRounds) -> None:
        for ladder, places in indices_by(head.ladder for head in batch.rounds.heads).items():
            edits = self._verdicts.of(ladder)
            if edits.change_rounds:
                own = batch.take(places)
                touched = own.rounds.take(edits.touched(own.rounds, own.offset))
                self._touched.setdefault(ladder, set()).update(touched.names.texts())

    def without_rounds(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the players who have no round left, in batches, each with its ladder. The pools get
        rows for them."""
        for ladder, players in self._touched.items():
            left_out, pool = sorted(players), self.replay.pools.get(ladder)
            if pool is not None:
                known = len(pool)
                rows = pool.rows(StringColumn.of(left_out)).tolist()
                both = zip(left_out, rows, strict=True)
                left_out = [each for each, row in both if row >= known]
            for start in range(0, len(left_out), BATCH):
                yield ladder, left_out[start : start + BATCH]


class _Store:
    """Reads the beliefs of one ladder's players from the store."""

    def __init__(self, shards: int, read: Read) -> None:
        self._shards = shards
        self._read = read

    def of(self, ladder: str, players: Sequence[str]) -> list[bytes | None]:
        """The records of these players, in this order."""
        asked: dict[int, list[Player]] = {}
        for player, shard in zip(players, shards_of(players, self._shards).tolist(), strict=True):
            asked.setdefault(shard, []).append((ladder, player))
        stored = self._read({shard: PlayerColumn.of(wanted) for shard, wanted in asked.items()})
        found = {
            wanted_player: each
            for shard, wanted in asked.items()
            for wanted_player, each in zip(wanted, stored[shard].records, strict=True)
        }
        return [found[ladder, player] for player in players]


def _batches(pool: Pool) -> Iterator[tuple[list[str], list[bytes]]]:
    """Yield the players of a pool with their records, in batches."""
    players = pool.players()
    for start in range(0, len(players), BATCH):
        batch = players[start : start + BATCH]
        yield batch, pool.records(np.arange(start, start + len(batch)))


def _compare(
    verdict: Verdict, ladder: str, corrected: Collection[int],
    beliefs: Iterable[tuple[str, bytes | None, bytes | None]],
) -> None:  # fmt: skip
    """Compare some beliefs of a ladder, and note the result in the verdict. `beliefs`: the player,
    the record in the store, and the record of the replay."""
    for player, found, expected in beliefs:
        verdict.beliefs += 1
        if found is None:
            verdict.missing.append((ladder, player))
        elif not same_belief(found, expected, corrected):
            verdict.differing.append((ladder, player))
