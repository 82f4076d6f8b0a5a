"""Stage 1's state machine, which reads `round-completed` and sends parts. It performs steps 1 to 7
of the protocol, and steps 15 to 22 by `pipeline.corrections`.

1. On assignment, drop all state and fetch the committed offset c. Compare the record before c with
   the one that was finished, and the store of each shard with its log (`same_history`). Set
   floor[s] to the end of the parts of shard s. No prior of a shard of another history is used. Read
   the corrections in the ladder events. Read the records at [c - W, c) again to learn their round
   ids (`input_partition`). W is the duplicate window.
2. Validate each record. The result is a pure function of the record and the W offsets before it
   (`rounds.validation`). A record that is rejected, or whose round changes no rating, is unsettled.
3. Choose a wave from the candidates. A candidate is a round that shares no player with an earlier
   round that is not sent yet (`backlog`), and whose ladder all workers rate by the same parameters
   (`admission`). Finish the unsettled records on whose ladders they agree.
4. Read a shard's `applied`, epoch and priors in one call (`priors`). If the epoch is not that of
   step 1, return there. If `applied` < floor[s], the shard is not ready. Otherwise floor[s] rises
   to `applied`. This lazy rule covers takeover, rollback and failover (`progress`).
5. For a round at offset o, look at `last` in the belief of each of its players. If any `last` > o,
   the round was wholly sent: send nothing, but treat all parts that the log has now as pending for
   its players. (A zombie may have sent them after the floors were set.) If `last` == o, use the
   prior that the belief remembers from before the round. Otherwise use the current prior. A
   player's prior is read only after the player's pending part was seen applied, unless the belief
   is cached.
6. Send the parts. The round is sent once all of them are acknowledged. From then on its parts are
   pending for its players until they are seen applied. The players' new beliefs are computed and
   cached (`priors`) until the player's next round, seed or reset, a correction of the ladder,
   a lost or gained partition, or a failure. A shard with many rows in flight is full: no round of
   its players is sent until some are seen applied.
7. Commit the contiguous prefix of finished offsets at intervals, in one transaction with the
   rejections among them. After a failed effect, create a new producer and return to step 1.
"""

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import NoReturn

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_map import Fingerprints
from stream_rater.config.ladders import Ladders
from stream_rater.contract.errors import Repartitioned, Trouble
from stream_rater.pipeline import ports
from stream_rater.pipeline.corrections.correction_validator import LogContext
from stream_rater.pipeline.corrections.correction_work import THRESHOLD, PartOptions
from stream_rater.pipeline.corrections.corrections import Corrections
from stream_rater.pipeline.estimator import admission, estimation, input_partition, progress
from stream_rater.pipeline.estimator.backlog import Backlog
from stream_rater.pipeline.estimator.estimation import NO_ROUNDS, PendingRounds
from stream_rater.pipeline.estimator.oversize_round import OversizeRound
from stream_rater.pipeline.estimator.priors import (
    CACHE_BYTES,
    BeliefCache,
    PriorReader,
    PriorsRead,
    read_positions,
)
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.parts import schema
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import NotedCorrections
from stream_rater.pipeline.same_history import check_source
from stream_rater.rating.model import Beliefs, Table
from stream_rater.rating.record import Unrecordable
from stream_rater.rounds.validation import DuplicateWindow

ROWS_PER_PART = 5000
"""The most rows in a message, and the most players in a piece of an oversize round."""

REFUSED_S = 5.0
"""Seconds until a shard with unreadable beliefs, or a ladder without agreement, is tried again."""


class Estimator:
    """Owns some of the `partitions` of `round-completed`. A driver runs it by `run()`. Tests derive
    mutants from it, each of which overrides one method. So some methods are small."""

    def __init__(
        self, ladders: Ladders, shards: int, partitions: int, *, window: int = 100_000,
        wave_players: int = 20_000, rows_per_part: int = ROWS_PER_PART,
        rejects_per_second: float = 0.0, observer: Observer | None = None,
        idle_s: float = progress.IDLE_S,
        commit_every_s: float = progress.COMMIT_EVERY_S, threshold: float = THRESHOLD,
        checkpoint_every: int = 0, cache_bytes: int = CACHE_BYTES, rows_in_flight: int = 0,
        make_corrections: admission.MakeCorrections = Corrections,
    ) -> None:  # fmt: skip
        """`cache_bytes` bounds the memory of the cached beliefs; 0: none are cached.
        `rows_in_flight` bounds the rows of a shard in parts that were not seen applied; 0: the
        bound is `most_rows_of`."""
        self._agreement = admission.Agreement(ladders)
        self._shards = shards
        self._rows_in_flight = rows_in_flight or progress.most_rows_of(shards)
        self._partitions = partitions
        self._window = window
        self._wave_players = wave_players
        self._rows_per_part = rows_per_part
        self._piece_players = min(wave_players, rows_per_part)
        self._observer = observer or Observer()
        self._idle_s = idle_s
        self._commit_every_s = commit_every_s
        self._committed_s = -math.inf
        """The monotonic time of the last commit of offsets, in seconds."""
        self._owned: frozenset[int] = frozenset()
        self._to_open: frozenset[int] = frozenset()
        """The newly owned partitions, which step 1 has not opened yet."""
        self._now_s = 0.0
        self._until_s = 0.0  # The time before which nothing that is refused now is tried again.
        self._limiter = admission.RejectionLimiter(rejects_per_second)
        log = LogContext(ladders, window, partitions, checkpoint_every)
        options = PartOptions(shards, rows_per_part, threshold)
        self._admission = admission.Admission(
            log, options, self._limiter, self._observer, make_corrections
        )
        self._prior_reader = PriorReader(shards, self._observer)
        self._belief_cache = BeliefCache(cache_bytes)
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._admission.forget()
        self._inputs = self._admission.inputs
        self._oversize: OversizeRound | None = None  # The oversize round in progress.
        self._backlog = Backlog(self._wave_players)
        self._agreement.forget()
        self._belief_cache.clear()
        self._progress = progress.Progress(self._shards, self._rows_in_flight)
        self._mismatches = progress.HistoryMismatches(self._shards, self._observer)
        self._in_flight = progress.InFlightWindow(self._progress, progress.LONGEST_IN_FLIGHT_S)
        """The waves that were sent and not yet seen applied."""
        self._backoff = progress.PollBackoff(self._idle_s)
        self._may_find_wave = True
        """Whether a wave may be found now: something has changed since the last search."""

    def run(self) -> ports.Step[NoReturn]:
        """Run steps 1 to 7, and 15 to 22, forever."""
        troubles = 0
        while True:
            try:
                if troubles:
                    yield from self._start_over(troubles)
                yield from self._open(self._to_open)
                yield from self._read_on()
                if not self._to_open:  # new partitions are opened first, which raises the floors
                    yield from self._rate_wave()
                    yield from self._rate_oversize()
                    yield from self._correct()
                    yield from self._commit()
                troubles = 0
            except Trouble as trouble:
                self._observer.started_over(trouble)
                troubles += 1

    def _start_over(self, troubles: int) -> ports.Step[None]:
        """Pause, then open all owned partitions again with a new producer."""
        self._forget_everything()
        yield from self._poll(ports.pause_s(troubles), no_fetch=True)
        self._to_open = self._owned
        yield from ports.ask(ports.NewProducer())

    # --- step 1 ---

    def _open(self, partitions: frozenset[int]) -> ports.Step[None]:
        if not partitions:
            return
        if 0 < self._partitions <= (newest := max(partitions)):
            raise Repartitioned(newest, self._partitions)
        committed = yield from input_partition.committed_offsets(partitions)
        yield from self._raise_floors()
        starts = yield from ports.ask(ports.LogStarts(partitions))
        yield from self._check_source(committed, starts)
        offsets = {}
        for partition in partitions:
            commit, start = committed[partition], starts[partition]
            c = commit.offset if commit is not None else None
            if c is not None and c < start:
                self._observer.rounds_missing(partition, c, start)
            c = max(c or 0, start)
            offsets[partition] = self._window_start(c, start)
            self._inputs[partition] = input_partition.InputPartition(
                DuplicateWindow(self._window), start=offsets[partition], committed=c
            )
        self._to_open = frozenset()
        self._admission.corrections.load((yield from ports.ask(NotedCorrections())))
        self._report_behind(partitions, idle=())
        yield from ports.ask(ports.Seek(offsets))

    def _check_source(
        self, committed: Mapping[int, ports.SourceCommit | None], starts: Mapping[int, int]
    ) -> ports.Step[None]:
        yield from check_source(committed, starts)

    def _window_start(self, c: int, log_start: int) -> int:
        return max(log_start, c - self._window)

    def _raise_floors(self) -> ports.Step[None]:
        yield from self._mismatches.take_over(self._progress, self._now_s)

    # --- polls ---

    def _read_on(self) -> ports.Step[None]:
        """Poll once, and admit the rounds that were read."""
        timeout_s = self._backoff.timeout_s(
            waiting=bool(self._backlog), in_flight=self._progress.rows
        )
        no_fetch = bool(self._inputs) and self._paused >= self._inputs.keys()
        yield from self._poll(timeout_s, no_fetch=no_fetch)
        yield from self._mismatches.recheck(self._progress, self._now_s)

    def _poll(self, timeout_s: float, *, no_fetch: bool) -> ports.Step[None]:
        gather_s, paused = self._backoff.gather_s, self._paused
        polled = yield from ports.ask(
            ports.Poll(timeout_s, no_fetch=no_fetch, paused=paused, gather_s=gather_s)
        )
        self._now_s, self._until_s = polled.now_s, polled.now_s + REFUSED_S
        self._progress.retry(polled.now_s)
        self._may_find_wave = self._agreement.retry(polled.now_s) or self._may_find_wave
        if polled.lost or polled.gained:
            self._owned = (self._owned - polled.lost) | polled.gained
            self._to_open = (self._to_open - polled.lost) | polled.gained
            self._observer.owned(self._owned)
            self._drop(polled.lost | polled.gained)
            self._limiter.forget(polled.lost | polled.gained)
        if polled.records:
            self._admit(self._admission.read(polled.records, self._now_s))
        idle = frozenset[int]() if no_fetch or polled.records else self._inputs.keys() - paused
        self._report_behind(frozenset(), idle=idle)
        self._limiter.update(self._now_s, self._observer.partitions_paused)

    @property
    def _paused(self) -> frozenset[int]:
        """The partitions from which nothing is read now: too many of their records were rejected,
        or too many of their records, players or rows of seeds wait, or too many bytes of their
        rejected records. Other partitions go on."""
        most = progress.READ_AHEAD * self._wave_players
        paused = self._limiter.paused | self._admission.corrections.with_many_seeds(most)
        paused |= {p for p, source in self._inputs.items() if len(source) > most}
        most_bytes = input_partition.MOST_REJECTED_BYTES // max(1, len(self._inputs))
        paused |= {p for p, source in self._inputs.items() if source.rejected_bytes > most_bytes}
        if self._backlog.waiting > most:
            paused |= self._backlog.with_at_least(most // max(1, len(self._inputs)))
        return paused

    def _report_behind(self, opened: frozenset[int], *, idle: Collection[int]) -> None:
        """Report which partitions are being read back up to their committed offsets: those just
        opened, and all others that are not there yet. `idle` ones had no record in a poll."""
        reading_back = {
            p for p, source in self._inputs.items() if source.is_reading_back(idle=p in idle)
        }
        self._observer.reading_back(opened | reading_back)

    def _drop(self, partitions: frozenset[int]) -> None:
        """Drop partitions. The pending parts of their players stay, whoever owns the partitions."""
        self._admission.drop(partitions)
        if self._oversize is not None and self._oversize.partition in partitions:
            self._oversize = None
        self._belief_cache.clear()  # other workers rate some of these ladders now, or did
        self._backlog.drop(partitions)
        self._may_find_wave = True

    # --- steps 2 and 3 ---

    def _admit(self, pending: PendingRounds) -> None:
        """Add informative rounds to the backlog."""
        self._backlog.add(pending)
        self._agreement.polled(self._backlog.issued)
        self._may_find_wave = True

    def _wave(self) -> PendingRounds:
        """Choose the next wave; it is empty while too many waves are in flight."""
        if not (self._may_find_wave or self._progress.has_moved) or self._is_sending_paused():
            return NO_ROUNDS
        self._progress.has_moved = False
        wave = self._backlog.wave(self._eligible, self._ready)
        self._may_find_wave = len(wave) > 0
        self._backoff.chose_wave(len(wave), wave.count)
        return wave

    def _is_sending_paused(self) -> bool:
        """Whether so many waves were not seen applied that no further one is sent."""
        many = min(progress.MANY_PLAYERS, progress.WAVES_IN_FLIGHT * self._wave_players)
        return self._in_flight.has_at_least(progress.WAVES_IN_FLIGHT, many, self._now_s)

    def _ready(self, players: Fingerprints, sizes: Ints) -> Flags:
        """(R,) whether each player of a round has no pending part or has a cached belief."""
        return self._progress.ready(players, sizes, self._belief_cache.may_contain(players))

    def _eligible(self, tickets: Ints) -> Ints:
        """Return those of these tickets that may be in a wave. Begin an oversize round among them,
        if none is in progress."""
        if not self._backlog.oversize and self._agreement.is_full:
            return tickets
        large = self._backlog.sizes(tickets) > self._wave_players
        for ticket in tickets[large]:
            if self._oversize is not None:
                break
            whole = self._backlog.take(np.array([ticket]))
            if self._agreement.allowed(whole).all():
                self._oversize = OversizeRound(whole, self._piece_players, self._progress)
        small = tickets[~large]
        if self._agreement.is_full:
            return small
        return small[self._agreement.allowed(self._backlog.take(small))]

    # --- steps 4 to 6 ---

    def _rate_wave(self) -> ports.Step[None]:
        unsettled = self._admission.unsettled
        if not (self._backlog or unsettled):
            return
        wave = self._wave() if self._backlog else NO_ROUNDS
        wave = yield from self._agreement.agreed(wave, self._until_s, self._observer, unsettled)
        if unsettled:
            self._admission.settle(self._agreement.allowed_before)
        if not self._backlog:
            return
        if not wave:
            self._backoff.waited()
            yield from read_positions(self._progress)
            return
        read = yield from self._read_wave(wave)
        ready, rows, resumed = estimation.classified(wave, read.headers, read.usable)
        if ready:
            yield from self._send(ready, rows, read)
        if resumed:
            yield from self._resume(resumed)
        if ready or resumed:
            self._backoff.progressed()
        else:
            self._backoff.waited()

    def _read_wave(self, wave: PendingRounds) -> ports.Step[PriorsRead]:
        """Read the priors of a wave's players, from the cache if possible, else from the store."""
        read = self._prior_reader.read_with_cache(
            wave, self._belief_cache, self._progress, self._until_s, self._now_s
        )
        return (yield from read)

    def _send(self, ready: PendingRounds, rows: Ints | slice, read: PriorsRead) -> ports.Step[None]:
        """Estimate and send rounds. `rows` are the rows of their players in `read`."""
        with self._observer.working_on(estimation.traced(ready)):
            part = self._estimate(ready, read.headers[rows])
            epochs = self._progress.epochs
            messages = schema.messages(part, *ready.by_shard, self._rows_per_part, epochs)
            offsets = yield from ports.ask(ports.Scatter(messages))
        self._was_sent(ready, estimation.part_ends(messages, offsets))
        self._cache_beliefs(ready, part, read.beliefs_at(rows))
        self._observer.rounds_sent(len(ready), ready.count)

    def _cache_beliefs(self, sent: PendingRounds, part: Part, beliefs: Beliefs | None) -> None:
        """Cache the beliefs after these rounds, all of whose parts are acknowledged. `beliefs` (P,)
        are those of the rounds' players before them; None if they were not read."""
        if beliefs is None:
            return
        with suppress(Unrecordable):  # the updater refuses the shard and reports the reason
            evicted = self._belief_cache.put(sent, estimation.posteriors(part, sent, beliefs))
            self._observer.records_cached(evicted, self._belief_cache.bytes_used)
        self._backoff.cached_beliefs(self._backlog.waiting, sent.count)

    def _estimate(self, pending: PendingRounds, priors: Table) -> Part:
        ratings, seasons = self._admission.decoder.ratings, self._admission.corrections.seasons
        return estimation.estimate(pending, priors, ratings, self._shards, seasons)

    def _resume(self, resumed: PendingRounds) -> ports.Step[None]:
        """Finish rounds that were already sent: their parts are in the log, before its end."""
        self._was_sent(resumed, dict(enumerate((yield from ports.shard_ends(self._shards)))))
        self._observer.rounds_resumed(len(resumed))

    def _was_sent(self, pending: PendingRounds, part_ends: Mapping[int, int]) -> None:
        """Finish wholly sent rounds. Their parts are pending for their players up to these ends."""
        self._in_flight.sent(part_ends, estimation.fingerprints_by_shard(pending), self._now_s)
        self._done_with(pending)

    def _done_with(self, pending: PendingRounds) -> None:
        """Remove rounds from the backlog, and count them as done. The cached beliefs of their
        players are dropped, because they are from before these rounds."""
        self._belief_cache.drop(pending.fingerprints)
        self._backlog.finish(pending)
        self._may_find_wave = True
        input_partition.finish(self._inputs, pending)

    def _rate_oversize(self) -> ports.Step[None]:
        """Read or send the next piece of the oversize round (`oversize_round`)."""
        oversize = self._oversize
        if oversize is None or not oversize.is_due():
            return
        self._backoff.progressed(poll_soon=not oversize.is_read)
        done = yield from self._agreement.agreed(oversize.whole, self._until_s, self._observer)
        if done and oversize.is_read:
            yield from oversize.send(self._rows_per_part)
        elif done:
            piece = oversize.next_piece()
            read = yield from self._prior_reader.read(piece, self._progress, self._until_s)
            oversize.take(piece, read, self._estimate, self._observer)
        if not done or oversize.was_sent_before or oversize.is_sent:
            self._oversize = None
        if oversize.was_sent_before:
            yield from self._resume(done)
        elif oversize.is_sent:
            self._done_with(done)
            self._observer.rounds_sent(1, done.count)

    # --- corrections, seeds and resets ---

    def _correct(self) -> ports.Step[None]:
        """Do the next piece of work on the queued records that are due (`corrections`)."""
        corrections, until_s, observer = self._admission.corrections, self._until_s, self._observer
        agreed_at = partial(self._agreement.agreed_at, until_s=until_s, observer=observer)
        due = corrections.due(self._inputs)
        if due and (self._is_sending_paused() or self._progress.has_full_shard):
            if not self._backlog:  # else `_rate_wave` reads them
                yield from read_positions(self._progress)
            self._backoff.had_to_wait()
            return
        for queued in due:
            if (yield from corrections.begin(queued, self._inputs, agreed_at)):
                self._backoff.corrected()
                piece = corrections.work_on(queued, self._in_flight, self._now_s, observer)
                if (yield from piece):
                    self._drop_cached(queued.ladder, corrections.changed(queued))
                    self._admit(self._admission.finish(queued, self._now_s))

    def _drop_cached(self, ladder: str, players: Fingerprints | None) -> None:
        """Drop the cached beliefs of these players; of all players of the ladder if it is None."""
        if players is None:
            self._belief_cache.drop_ladder(ladder)
        else:
            self._belief_cache.drop(players)

    # --- step 7 ---

    def _commit(self) -> ports.Step[None]:
        if self._now_s - self._committed_s < self._commit_every_s:
            return
        poll = partial(self._poll, ports.REGROUPING_S, no_fetch=True)
        done = yield from input_partition.commit_finished(self._inputs, poll)
        if done is not None:
            self._committed_s = self._now_s
            self._observer.positions(done.offsets)
