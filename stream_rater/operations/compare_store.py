"""Verifies the store: compares every belief with the sequential replay of the log as its
corrections edit it, bit for bit. A belief that a correction has written may differ from the replay
in the fields about the past (`same_belief`)."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.sharding import shards_of_names
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladders
from stream_rater.contract.corrections import RoundAmended
from stream_rater.contract.record import Player, Record
from stream_rater.pipeline.ports import StoredShard
from stream_rater.rating import record
from stream_rater.replay import ledger, sequential
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.replay.edited_log import NO_VERDICTS, Content, LoggedRounds, Verdicts
from stream_rater.replay.edits import indices_by
from stream_rater.replay.log_reading import LogReader
from stream_rater.rounds import validation
from stream_rater.rounds.correction_records import Seed, decode_correction
from stream_rater.runtime.progress import advancing

BATCH = 5000  # The number of beliefs that are compared together.
MOST_AHEAD = 2  # The number of batches that are read from the store ahead.
UNANNOUNCED = frozenset({"previous_mu", "previous_sigma", "untold"})
"""Fields with what was last published of the player, if a correction was not published."""
SET_BY_CORRECTIONS = UNANNOUNCED | {"last", "previous_time", "previous_season"}
"""The fields of a belief that a correction sets to other values than a replay does."""
Read = Callable[[Mapping[int, PlayerColumn]], Mapping[int, StoredShard]]
"""Reads the players' records by shard, as `RedisStore.read` does."""


@dataclass
class Verdict:
    """The result of a comparison."""

    rounds: int = 0
    seeds: int = 0  # The number of accepted seeds and resets.
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
    """Whether a stored belief, `found`, agrees with `expected`, that of the replay of the edited
    log. None means that there is no belief, and so does a belief without rounds. `corrected`: the
    offsets of the ladder's accepted corrections, seeds and resets; empty if it has no corrections.
    If a correction was the last to write a belief, the belief's `last` is the correction's offset,
    and its SET_BY_CORRECTIONS need not be equal. A rebuild keeps `last` where a correction was not
    published, and UNANNOUNCED need not be equal. It may set `last` to the offset of a seed that
    changed nothing."""
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
    log: LogReader, ladders: Ladders, window: int, partitions: int, shards: int, read: Read, *,
    cores: Cores = ONE_CORE, only: Collection[str] | None = None,
) -> Verdict:  # fmt: skip
    """Replay the records of `round-completed`, which has `partitions` partitions, and compare each
    belief with the store's. `only`: the ladders that are replayed and compared; None: all."""

    def run(verdicts: Verdicts | None) -> _Replayed:
        replayed = _Replayed(ladders, window, partitions, verdicts, cores, only)
        with advancing("rounds", log.total) as advance:
            replayed.run(log, advance)
        return replayed

    replayed = ledger.with_verdicts(run, log.records, ladders, window, partitions)
    verdict = replayed.verdict

    def found() -> Iterator[tuple[str, StoredBeliefs, list[bytes]]]:
        for ladder, pool in replayed.replay.pools.items():
            for start in range(0, len(pool), BATCH):
                rows = np.arange(start, min(start + BATCH, len(pool)))
                stored = _stored(ladder, pool.names_of(rows), shards, read)
                yield ladder, stored, pool.records(rows[stored.order])

    players = sum(map(len, replayed.replay.pools.values()))
    with advancing("beliefs", players) as advance:
        for ladder, stored, expected in cores.ahead(found(), MOST_AHEAD):
            corrected = replayed.corrected.get(ladder, set())
            _compare(verdict, ladder, corrected, stored, expected)
            advance(len(expected))
    for ladder, names in replayed.without_rounds():
        left = _stored(ladder, StringColumn.of(names), shards, read)
        _compare(verdict, ladder, (), left, None)
    return verdict


class _Replayed:
    """The replay of a whole log, and the offsets and players of its corrections."""

    def __init__(
        self, ladders: Ladders, window: int, partitions: int, verdicts: Verdicts | None,
        cores: Cores, only: Collection[str] | None,
    ) -> None:  # fmt: skip
        self.replay = sequential.Replay(ladders, window, partitions, verdicts, cores=cores)
        self._cores = cores
        self._only = None if only is None else frozenset(only)
        self.verdict = Verdict()
        self.corrected: dict[str, set[int]] = {}
        """By ladder with corrections, the offsets of accepted corrections, seeds and resets."""
        self._seeds: dict[str, set[int]] = {}  # By ladder, the offsets of seeds and resets.
        self._ladders = ladders
        self._verdicts = verdicts or NO_VERDICTS
        self._touched: dict[str, set[str]] = {}
        """By ladder, the players whom corrections touch. Some may have no rounds any more."""

    def run(self, log: LogReader, advance: Callable[[int], None]) -> None:
        """Replay the log. `advance` gets the size of each batch. Raises MissingVerdicts."""
        edited = self.replay.log
        with log.validated(edited.validator, self._cores) as batches:
            for batch in batches:
                rejected = list[tuple[Record, validation.Invalid]]()
                for each in edited.accepted(batch, rejected):
                    self._replay(each)
                self.verdict.rejected.update(invalid.code for _, invalid in rejected)
                advance(batch.count)
        for ladder, offsets in self.corrected.items():
            offsets |= self._seeds.get(ladder, set())

    def _replay(self, each: Content) -> None:
        if isinstance(each, LoggedRounds):
            own, heads = each, enumerate(each.rounds.heads)
            if self._only is not None:
                chosen = [i for i, head in heads if head.ladder in self._only]
                own = each.take(np.array(chosen, np.int64))
            if not len(own):
                return
            self.verdict.rounds += len(own)
            self.replay.rate(own)
            if self._verdicts.change_rounds:
                self._add_touched(own)
        elif isinstance(each, Seed):
            if self._only is None or each.ladder in self._only:
                self.replay.seed(each)
                self._add_seed(each)
        else:
            self.replay.start_season_at(each)
            self._add_correction(each)

    def _add_seed(self, seed: Seed) -> None:
        self.verdict.seeds += 1
        self._seeds.setdefault(seed.ladder, set()).add(seed.offset)
        edits = self._verdicts.of(seed.ladder)
        if edits.change_rounds and (left := edits.seed(seed)) is not seed:
            gone = {*seed.names.texts()} - {*(() if left is None else left.names.texts())}
            self._touched.setdefault(seed.ladder, set()).update(gone)

    def _add_correction(self, accepted: Record) -> None:
        correction = decode_correction(accepted, self._ladders)
        if self._only is not None and correction.ladder not in self._only:
            return
        self.corrected.setdefault(correction.ladder, set()).add(accepted.offset)
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
        """Yield the players who have no rounds any more, in batches, each batch with its ladder.
        The pools get rows for them."""
        for ladder, players in self._touched.items():
            left_out, pool = sorted(players), self.replay.pools.get(ladder)
            if pool is not None:
                known = len(pool)
                rows = pool.rows(StringColumn.of(left_out)).tolist()
                both = zip(left_out, rows, strict=True)
                left_out = [each for each, row in both if row >= known]
            for start in range(0, len(left_out), BATCH):
                yield ladder, left_out[start : start + BATCH]


class StoredBeliefs(NamedTuple):
    """The records of n players of a ladder in the store."""

    order: Ints  # (n,) the index of each player among those who were asked for.
    names: StringColumn  # (n,) the players, in this order.
    records: list[bytes | None]  # (n,) their records; None where there is none.


def _stored(ladder: str, names: StringColumn, shards: int, read: Read) -> StoredBeliefs:
    """The records in the store of these players, in the order of the shards."""
    owners = shards_of_names(names, shards)
    order = np.argsort(owners, kind="stable")
    sorted_names, owners = names.take(order), owners[order]
    ladders, zeros = LadderColumn(StringColumn.of([ladder])), np.zeros(len(order), np.int64)
    players = PlayerColumn(ladders, zeros, sorted_names)
    used, starts = np.unique(owners, return_index=True)
    spans = pairwise([*starts.tolist(), len(order)])
    asked = {s: players[a:b] for s, (a, b) in zip(used.tolist(), spans, strict=True)}
    stored = read(asked) if asked else {}
    records = [record for shard in asked for record in stored[shard].records]
    return StoredBeliefs(order, sorted_names, records)


def _compare(
    verdict: Verdict, ladder: str, corrected: Collection[int], stored: StoredBeliefs,
    expected: Sequence[bytes] | None,
) -> None:  # fmt: skip
    """Compare some beliefs with `expected`, those of the replay, and add the result to the verdict.
    None: the replay has no belief of these players."""
    found = stored.records
    verdict.beliefs += len(found) - (found.count(None) if expected is None else 0)
    due: Sequence[bytes | None] = [None] * len(found) if expected is None else expected
    if found == due:
        return
    both = enumerate(zip(found, due, strict=True))
    differing = np.array([i for i, (one, other) in both if one != other], np.int64)
    names = stored.names.take(differing).texts()
    for i, player in zip(differing.tolist(), names, strict=True):
        if found[i] is None:
            verdict.missing.append((ladder, player))
        elif not same_belief(found[i], due[i], corrected):
            verdict.differing.append((ladder, player))
