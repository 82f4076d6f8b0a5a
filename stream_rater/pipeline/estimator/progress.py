"""Tracks which parts the store has applied, as an estimator sees it, and so which priors count
(steps 1 and 4 to 6).

A prior must include every earlier round of its player. Positions alone decide whether it does: the
store of a shard is the fold of its parts before `applied`, so only the ends of parts matter.

- floor[s]: no prior of shard s counts while `applied` is below it. At take-over it is set to the
  end of the parts, which covers everything that predecessors sent. It rises with every accepted
  `applied`, so that a store that lost writes is not trusted until it has caught up.
- await[player]: the end of the player's pending part, which contains the player's last round. Once
  an accepted `applied` has reached this end, the entry is dropped: the floor has risen past it.
- epochs: the epoch of each shard's store, as it was read when its floor was set. Another epoch
  means that all priors, and what was computed from them, are of a store that a rebuild replaced.
- in flight: the rows of each shard that were not seen applied. A shard with more than `most_rows`
  of them is full, and no round with a player in it is sent. So a shard that stands still stops only
  these rounds, however few their players are and wherever the priors come from.

`HistoryMismatches` has the shards whose store and log do not fit together (`same_history`). The end
of this file has the pace of an estimator (`PollBackoff`): how long it waits for records.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_map import NOTHING, Fingerprints, PlayerMap, shards_in
from stream_rater.contract.errors import Rebuilt
from stream_rater.pipeline import ports, same_history
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.parts.schema import Epochs

MOST_ROWS = 40_000
"""A shard is full if it has more rows than this in parts not seen applied, twice what an updater
applies in one call. Fewer, if the worker has many shards (`most_rows_of`)."""
MOST_ROWS_IN_ALL, LEAST_ROWS = 640_000, 1000
"""How many rows may be in flight in all shards together, about; and how many in any case in one."""
RECHECK_S = 5.0  # Seconds until a shard of another history is compared again.


def most_rows_of(shards: int) -> int:
    """The most rows in flight of each of so many shards."""
    return min(MOST_ROWS, max(LEAST_ROWS, MOST_ROWS_IN_ALL // shards))


class Progress:
    """The floors of all shards, and the pending parts of players."""

    def __init__(self, shards: int, most_rows: int = MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._floor = [0] * shards
        self.epochs: list[bytes | None] = [None] * shards
        """By shard, the epoch of the store that all priors were read from; None: nothing was read.
        Parts carry it."""
        self._pending = PlayerMap()
        self._in_flight: list[deque[tuple[int, Fingerprints]]] = [deque() for _ in range(shards)]
        """By shard, the ends of the parts not seen applied, rising, each with its players."""
        self._rows = [0] * shards
        """By shard, the number of rows in parts that were not seen applied: a player with several
        parts in flight counts for each."""
        self._all_rows = 0  # The number of such rows in all shards together.
        self._full: set[int] = set()  # The shards with more than `most_rows` such rows.
        self._lagging: set[int] = set()
        """The shards whose last seen `applied` was below their floor."""
        self._refused: dict[int, float] = {}
        """The shards whose beliefs are unreadable, and the time until which each is not retried."""
        self._excluded: set[int] = set()
        """The shards whose store has another history than the log (`same_history`)."""
        self.has_moved = True
        """Whether a player may have become ready since the caller last set this to False."""

    def take_over(self, ends: Sequence[int]) -> None:
        """Step 1: raise the floors to these ends of parts, by shard."""
        for shard, end in enumerate(ends):
            if end > self._floor[shard]:
                self._floor[shard] = end
                self._lagging.add(shard)

    def check_epoch(self, shard: int, epoch: bytes) -> None:
        """Steps 1 and 4: record the epoch of a shard's store. Raises Rebuilt if it has changed."""
        if self.epochs[shard] not in (None, epoch):
            raise Rebuilt(f"shard {shard} was rebuilt: nothing read before is of use")
        self.epochs[shard] = epoch

    def accept(self, shard: int, applied: int, epoch: bytes = b"") -> bool:
        """Step 4: record a shard's `applied`. Returns whether the priors read with it count. Raises
        Rebuilt if they are of another store than earlier ones."""
        self.check_epoch(shard, epoch)
        if shard in self._excluded:
            return False
        if applied < self._floor[shard]:
            self._lagging.add(shard)
            return False
        self._floor[shard] = applied
        self.has_moved = self.has_moved or shard in self._lagging
        self._lagging.discard(shard)
        in_flight = self._in_flight[shard]
        while in_flight and in_flight[0][0] <= applied:
            end, players = in_flight.popleft()
            self._rows[shard] -= len(players)
            self._all_rows -= len(players)
            self.has_moved = True
            self._pending.forget(players, np.full(len(players), end))  # keeps later pending parts
        if self._rows[shard] <= self._most_rows:
            self._full.discard(shard)
        return shard not in self._refused

    def sent(self, ends: Mapping[int, int], players: Mapping[int, Fingerprints]) -> None:
        """Step 6: record that parts are in the log. `ends` and `players` are by shard."""
        for shard, shard_players in players.items():
            self._in_flight[shard].append((ends[shard], shard_players))
            self._rows[shard] += len(shard_players)
            self._all_rows += len(shard_players)
            if self._rows[shard] > self._most_rows:
                self._full.add(shard)
        together = np.concatenate(list(players.values()))
        sizes = [len(shard_players) for shard_players in players.values()]
        until = np.array([ends[shard] for shard in players])
        self._pending.put(together, np.repeat(until, sizes))

    def has_reached(self, ends: Mapping[int, int]) -> bool:
        """Whether each of these shards was seen at or past its end, and is not below its floor."""
        return all(
            self._floor[shard] >= end and shard not in self._lagging for shard, end in ends.items()
        )

    def has_pending_part(self, players: Fingerprints) -> Flags:
        """(P,) whether each player has a pending part: one that was not seen applied."""
        found: Flags = self._pending.find(players) != NOTHING
        return found

    def ready(self, players: Fingerprints, sizes: Ints, cached: Flags | None = None) -> Flags:
        """(R,) for each round, whether the priors of all its players would count, as far as is
        known. `sizes` has the number of players of each round. `cached` (P,) says which players
        have a cached belief; their pending parts do not count."""
        if not len(sizes):
            return np.empty(0, np.bool_)
        blocked = self.has_pending_part(players)
        if cached is not None:
            blocked &= ~cached
        if closed_shards := self.closed_shards():
            blocked |= np.isin(shards_in(players), list(closed_shards))
        ready: Flags = ~np.logical_or.reduceat(blocked, np.cumsum(sizes) - sizes)
        return ready

    def closed_shards(self) -> set[int]:
        """The shards whose players are not rated now: the shards are full, below their floor,
        refused or excluded."""
        return self._full | self._lagging | self._excluded | self._refused.keys()

    @property
    def has_full_shard(self) -> bool:
        """Whether more rows of some shard than `most_rows` were not seen applied."""
        return bool(self._full)

    @property
    def rows(self) -> int:
        """The number of rows, in all shards that are not closed, that were not seen applied."""
        return self._all_rows - sum(self._rows[shard] for shard in self.closed_shards())

    def shards_to_read(self) -> list[int]:
        """The shards whose `applied` is worth reading: below the floor, or with parts in flight."""
        found = (s for s, parts in enumerate(self._in_flight) if parts or s in self._lagging)
        return [shard for shard in found if shard not in self._excluded]

    def refuse(self, shard: int, until_s: float) -> None:
        """Accept no priors of this shard until `until_s`, as a belief in it cannot be read."""
        self._refused[shard] = until_s

    def exclude(self, shard: int) -> None:
        """Ignore this shard's store, because it has another history than the log."""
        self._excluded.add(shard)

    def include(self, shard: int) -> None:
        """Stop ignoring this shard's store."""
        self._excluded.discard(shard)
        self.has_moved = True

    def retry(self, now_s: float) -> None:
        """Accept priors again from the shards whose time of refusal has passed."""
        due = [shard for shard, until_s in self._refused.items() if until_s <= now_s]
        for shard in due:
            del self._refused[shard]
        self.has_moved = self.has_moved or bool(due)


class HistoryMismatches:
    """The shards whose store has another history than the log, as one estimator sees them."""

    def __init__(self, shards: int, observer: Observer) -> None:
        self._shards = shards
        self._observer = observer
        self._mismatched: set[int] = set()
        self._due_s = 0.0

    def take_over(self, progress: Progress, now_s: float) -> ports.Step[None]:
        """Step 1: raise the floors to the ends of the shards' logs, and compare the stores of all
        shards with their logs."""
        progress.take_over((yield from self._compare(range(self._shards), progress, now_s)))

    def recheck(self, progress: Progress, now_s: float) -> ports.Step[None]:
        """Compare the shards again that had another history, once RECHECK_S have passed."""
        if self._mismatched and now_s >= self._due_s:
            yield from self._compare(sorted(self._mismatched), progress, now_s)

    def _compare(
        self, shards: Sequence[int], progress: Progress, now_s: float
    ) -> ports.Step[Sequence[int]]:
        """Compare the stores of some shards with the log. Returns the ends of all shards. Raises
        Rebuilt if a store has another epoch than before."""
        stored = yield from ports.ask(ports.ReadBeliefs(dict.fromkeys(shards, ports.NO_PLAYERS)))
        positions = {shard: each.position for shard, each in stored.items()}
        # Read after `applied`: an older end may be before it.
        ends = yield from ports.shard_ends(self._shards)
        found = yield from same_history.tails(positions, ends)
        for shard, position in positions.items():
            progress.check_epoch(shard, position.epoch)
            reason = same_history.log_too_short(position.applied, ends[shard])
            reason = reason or same_history.tail_mismatch(position, found.get(shard))
            if reason:
                self._mismatched.add(shard)
                progress.exclude(shard)
                self._observer.shard_refused(shard, reason)
            elif shard in self._mismatched:
                self._mismatched.remove(shard)
                progress.include(shard)
                self._observer.shard_opened(shard)
        self._due_s = now_s + RECHECK_S
        return ends


@dataclass(frozen=True, slots=True)
class SentWave:
    """A wave or a piece that was sent."""

    ends: Mapping[int, int]  # The end of the parts, by shard.
    players: int
    sent_s: float


class InFlightWindow:
    """The waves or pieces that are in the log and were not seen wholly applied, in the order in
    which they were sent. Each counts for at most `longest_s`. Otherwise a slow updater of one shard
    would stop the rounds of all other shards."""

    def __init__(self, progress: Progress, longest_s: float = math.inf) -> None:
        self._progress = progress
        self.epochs: Epochs = progress.epochs
        self._longest_s = longest_s
        self._pieces: deque[SentWave] = deque()

    def sent(
        self, ends: Mapping[int, int], players: Mapping[int, Fingerprints], now_s: float
    ) -> None:
        """Add a wave or piece, and record its parts in the Progress."""
        self._progress.sent(ends, players)
        own = {shard: ends[shard] for shard in players}
        self._pieces.append(SentWave(own, sum(map(len, players.values())), now_s))

    def has_at_least(self, pieces: int, players: int, now_s: float) -> bool:
        """Whether at least `pieces` waves or pieces count, of at least `players` players in all."""
        while self._pieces:
            first = self._pieces[0]
            late = now_s - first.sent_s > self._longest_s
            if not (late or self._progress.has_reached(first.ends)):
                break
            self._pieces.popleft()
        count = sum(each.players for each in self._pieces)
        return len(self._pieces) >= pieces and count >= players


# --- the pace of an estimator --------------------------------------------------------------------

IDLE_S = 0.1

BUSY_S = 0.001
"""The first time-out while rounds wait for the store, in seconds. It grows with the number of
passes of the loop without progress."""

APPLIED_S = 0.5e-6
"""The shortest time in which the store and the updaters process one row, in seconds. With many rows
in flight, polling sooner only slows them."""

PASSES_AFTER_PIECE = 100
"""After a piece of an oversize round was sent, polls last as long as after this many passes without
progress. The store is busy for longer than that, and polling slows it."""

GATHER_S = 0.015

FEW_ROUNDS, MANY_PLAYERS = 8, 2000
"""Waves of at most FEW_ROUNDS rounds come rarely enough, and one of at least MANY_PLAYERS players
is large enough. After any other wave, the next poll gathers records for GATHER_S seconds."""

MANY_WAIT = 0.25
"""If at least this share of the players of a wave waits in other rounds, the next wave follows at
once. A few rounds that wait are not worth a wave of their own."""

READ_AHEAD = 4
"""The estimator reads ahead by this many waves' worth of players in all, and of offsets in each
partition. While more players wait, it reads only partitions that have less than their share."""

WAVES_IN_FLIGHT, LONGEST_IN_FLIGHT_S = 2, 0.5
"""The estimator stops sending while WAVES_IN_FLIGHT waves, with enough players in all, were not
seen applied. Each wave counts for at most LONGEST_IN_FLIGHT_S seconds. Rounds that arrive while it
waits form one larger wave. A busy ladder then takes 15 % less CPU time."""

COMMIT_EVERY_S = 0.1
"""The shortest time between two commits of offsets. A transaction takes some 10 ms. After a crash,
records that are not committed are read again, and their rounds are found to be sent."""


class PollBackoff:
    """How long an estimator's poll waits for the first record, and then for more records. While
    rounds wait for the store, the estimator polls often at first, and less often the longer it
    waits. A wave has a fixed cost, so where many small rounds arrive, each poll gathers them for a
    moment."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._passes_waited = 0  # The number of passes since the last progress while rounds wait.
        self._corrected = False
        """Whether a piece of work on a correction was done, or had to wait, since the last poll."""
        self._may_go_on = False
        """Whether rounds wait whose players' beliefs may be cached, so that they need not wait."""
        self.gather_s = 0.0  # How long the next poll gathers, in seconds.

    def timeout_s(self, *, waiting: bool, in_flight: int) -> float:
        """The time-out of the next poll, in seconds. `waiting` says that rounds wait;
        `in_flight` is the number of players in parts not seen applied."""
        waiting, self._corrected = waiting or self._corrected, False
        at_once, self._may_go_on = self._may_go_on, False
        if not waiting:
            return self._idle_s
        if at_once:
            return 0.0
        return min(
            self._idle_s, max(APPLIED_S * in_flight, BUSY_S * (1 + self._passes_waited // 10))
        )

    def waited(self) -> None:
        """Record a pass of the loop that made no progress while rounds wait."""
        self._passes_waited += 1

    def progressed(self, *, poll_soon: bool = True) -> None:
        """Record progress. `poll_soon=False`: the progress is a sent piece of an oversize round."""
        self._passes_waited = 0 if poll_soon else PASSES_AFTER_PIECE

    def corrected(self) -> None:
        """Record that a piece of work on a correction was done. More of it may be left."""
        self.progressed()
        self._corrected = True

    def had_to_wait(self) -> None:
        """Record a pass in which queued records had to wait until the store applies parts."""
        self.waited()
        self._corrected = True

    def cached_beliefs(self, waiting: int, sent: int) -> None:
        """Record that the beliefs after a wave of `sent` players are cached, so that the players'
        next rounds need not wait for the store. If the rounds that wait have many players in all
        (`waiting`), the next poll neither waits nor gathers."""
        if waiting > MANY_WAIT * sent:
            self._may_go_on, self.gather_s = True, 0.0

    def chose_wave(self, rounds: int, players: int) -> None:
        """Record the size of the last wave."""
        small = rounds > FEW_ROUNDS and players < MANY_PLAYERS
        self.gather_s = GATHER_S if small else 0.0
