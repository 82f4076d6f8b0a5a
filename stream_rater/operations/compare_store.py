"""Verifies the store: compares every belief with the sequential replay of the log as its
corrections edit it, bit for bit. A belief that a correction has written may differ from the replay
in the fields about the past (`same_belief`).

Workers may rate on. A belief that is ahead of the replay (its `last` is behind the log's ends) is
compared by a second, longer replay, with the player's belief as it is there after `last`."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.columns.player_column import NO_FLAGS
from stream_rater.columns.sharding import partition_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Player, Record
from stream_rater.rating import record
from stream_rater.replay import ledger, sequential
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.replay.edited_log import Content, LoggedRounds, Verdicts
from stream_rater.replay.edits import indices_by
from stream_rater.replay.log_reading import LogReader
from stream_rater.rounds import validation
from stream_rater.rounds.correction_records import Seed, decode_correction
from stream_rater.runtime.progress import advancing

MOST_AHEAD = 2  # The number of batches that are read from the store ahead.
UNANNOUNCED = frozenset({"previous_mu", "previous_sigma", "untold"})
"""Fields with what was last published of the player, if a correction was not published."""
SET_BY_CORRECTIONS = UNANNOUNCED | {"last", "previous_time", "previous_season"}
"""The fields of a belief that a correction sets to other values than a replay does."""
Stored = Sequence[tuple[Player, bytes]]  # Players with their stored beliefs.


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
    surplus: list[Player] = field(default_factory=list)
    """Those with a belief that the log does not explain."""
    ahead: dict[Player, bytes] = field(default_factory=dict)
    """The beliefs that are ahead of the replay; after `compare_ahead`, those not compared."""
    stored: int = 0  # The number of beliefs in the store, of all ladders.

    @property
    def equal(self) -> bool:
        """Whether every belief exists and is equal, and there are no others."""
        return not (self.missing or self.differing or self.surplus)


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


def last_of(belief: bytes) -> int:
    """The `last` of a stored belief; -1 if it cannot be read."""
    with suppress(record.UnknownRecord):
        return max(record.read_headers(belief[: record.HEADER_SIZE])["last"].tolist(), default=-1)
    return -1


def compare(
    log: LogReader, ladders: Ladders, window: int, partitions: int,
    stored: Callable[[], Iterable[Stored]], *, cores: Cores = ONE_CORE,
    only: Collection[str] | None = None,
) -> Verdict:  # fmt: skip
    """Replay the records of `round-completed`, which has `partitions` partitions, and compare each
    belief of the store. `stored`: yields all of them. `only`: the ladders that are replayed and
    compared; None: all."""
    replayed = _replayed(log, ladders, window, partitions, cores, only, {})
    pools = replayed.replay.pools
    seen = {ladder: np.zeros(len(pool), np.bool_) for ladder, pool in pools.items()}
    with advancing("beliefs", sum(map(len, pools.values()))) as advance:
        for batch in cores.ahead(stored(), MOST_AHEAD):
            replayed.compare(batch, seen)
            advance(len(batch))
    for ladder, flags in seen.items():
        names = pools[ladder].names_of(np.flatnonzero(~flags)).texts()
        replayed.verdict.missing += [(ladder, name) for name in names]
        replayed.verdict.beliefs += len(names)
    return replayed.verdict


def compare_ahead(
    verdict: Verdict, log: LogReader, ladders: Ladders, window: int, partitions: int,
    since: Mapping[int, int], cores: Cores = ONE_CORE,
) -> None:  # fmt: skip
    """Compare the beliefs that were ahead of the ends `since`. `log` goes further. Those of ladders
    that were corrected behind `since` are left, because that edits the rounds before, too."""
    ahead, only = verdict.ahead, {ladder for ladder, _ in verdict.ahead}
    replayed = _replayed(log, ladders, window, partitions, cores, only, ahead)
    for player, belief in [*ahead.items()]:
        offsets = replayed.corrected.get(player[0], ())
        if max(offsets, default=-1) < since[partition_of(player[0], partitions)]:
            del ahead[player]
            if not same_belief(belief, replayed.passed.get(player), offsets):
                verdict.differing.append(player)


def _replayed(
    log: LogReader, ladders: Ladders, window: int, partitions: int, cores: Cores,
    only: Collection[str] | None, ahead: Mapping[Player, bytes],
) -> "_Replayed":  # fmt: skip
    run = partial(_Replayed, log, ladders, window, partitions, cores, only, ahead)
    return ledger.with_verdicts(run, log.records, ladders, window, partitions)


class _Replayed:
    """The replay of a whole log, and the offsets of its corrections."""

    def __init__(
        self, log: LogReader, ladders: Ladders, window: int, partitions: int, cores: Cores,
        only: Collection[str] | None, ahead: Mapping[Player, bytes], verdicts: Verdicts | None,
    ) -> None:  # fmt: skip
        """Raises MissingVerdicts."""
        self.passed: dict[Player, bytes] = {}
        """By player of `ahead`, the belief after the `last` there."""
        self._stops: dict[tuple[str, int], list[str]] = {}
        """By ladder and offset, the players of `ahead` with this `last`."""
        for (ladder, player), belief in ahead.items():
            self._stops.setdefault((ladder, last_of(belief)), []).append(player)
        self._stop_offsets = [offset for _, offset in self._stops]
        self._partitions, self._ends = partitions or 1, log.ends
        self.replay = sequential.Replay(ladders, window, partitions, verdicts, cores=cores)
        self._only = None if only is None else frozenset(only)
        self.verdict = Verdict()
        self.corrected: dict[str, set[int]] = {}
        """By ladder with corrections, the offsets of accepted corrections, seeds and resets."""
        self._seeds: dict[str, set[int]] = {}  # By ladder, the offsets of seeds and resets.
        self._ladders = ladders
        edited, progress = self.replay.log, advancing("rounds", log.total)
        with progress as advance, log.validated(edited.validator, cores) as batches:
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
            stops = np.flatnonzero(np.isin(own.offset, self._stop_offsets)) + 1
            for start, end in pairwise(sorted({0, *stops.tolist(), len(own)})):
                part = own.take(np.arange(start, end))
                self.replay.rate(part)
                self._pass(part.rounds.heads[-1].ladder, int(part.offset[-1]))
        elif isinstance(each, Seed):
            if self._only is None or each.ladder in self._only:
                self.replay.seed(each)
                self._pass(each.ladder, each.offset)
                self.verdict.seeds += 1
                self._seeds.setdefault(each.ladder, set()).add(each.offset)
        else:
            self.replay.start_season_at(each)
            ladder = decode_correction(each, self._ladders).ladder
            if self._only is None or ladder in self._only:
                self.corrected.setdefault(ladder, set()).add(each.offset)

    def _pass(self, ladder: str, offset: int) -> None:
        pool = self.replay.pools.get(ladder)
        for player in self._stops.get((ladder, offset), ()):
            if pool is not None and player in pool:
                self.passed[ladder, player] = pool.belief_bytes(player)

    def compare(self, batch: Stored, seen: Mapping[str, Flags]) -> None:
        """Compare some beliefs of the store. `seen`: by ladder, (P,) whether the belief of each
        player of the replay was compared."""
        self.verdict.stored += len(batch)
        for ladder, places in indices_by(ladder for (ladder, _), _ in batch).items():
            if self._only is not None and ladder not in self._only:
                continue
            found = [batch[i] for i in places.tolist()]
            pool, own = self.replay.pools.get(ladder), seen.get(ladder, NO_FLAGS)
            rows = np.zeros(len(found), np.int64)
            if pool is not None:
                rows = pool.rows(StringColumn.of([name for (_, name), _ in found]))
                new = np.flatnonzero(rows < len(own))
                new = new[~own[rows[new]]]
                own[rows[new]] = True
                for i, due in zip(new.tolist(), pool.records(rows[new]), strict=True):
                    if found[i][1] != due:
                        self._judge(found[i], due)
                self.verdict.beliefs += len(new)
            for i in np.flatnonzero(rows >= len(own)).tolist():
                self._judge(found[i], None)
                self.verdict.beliefs += 1

    def _judge(self, found: tuple[Player, bytes], due: bytes | None) -> None:
        player, belief = found
        ladder, verdict = player[0], self.verdict
        if same_belief(belief, due, self.corrected.get(ladder, ())):
            return
        if last_of(belief) >= self._ends.get(partition_of(ladder, self._partitions), math.inf):
            verdict.ahead[player] = belief
        else:
            (verdict.surplus if due is None else verdict.differing).append(player)
