"""Stage 1's state machine: from `round-completed` to parts, steps 1 to 7 of the protocol.

1. On assignment forget everything and fetch the committed offset c; then set floor[s] to the end of
   shard s's parts, for every shard. Read [c - W, c) again for its round ids (`source`).
2. The verdict on a record is a pure function of the record and the W offsets before it
   (`duplicates`).
3. Candidates: rounds that share no player with an earlier round not yet scattered (`backlog`), of
   ladders on whose parameters all workers agree (`agreement`).
4. Read a shard's `applied` and the priors asked for in one call. `applied` < floor: not ready; else
   the floor rises to it. This one lazy rule covers takeover, rollback and failover (`progress`).
5. For a round at offset o, each of its players: any `last` > o: it is wholly scattered, produce
   nothing, but await for all its players what the log holds now. `last` == o: use the prior before
   it. Else use the current prior. Nobody is read before what it awaits was seen applied.
6. Produce the parts. Only when all are acknowledged is the round scattered, and its players await
   the end of their parts.
7. Commit the contiguous prefix of finished offsets, now and then, in one transaction with the
   rejections among them, if there are any. After any trouble: a new producer, and back to 1.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import NoReturn

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_map import shards_in
from stream_rater.config import Ladders
from stream_rater.contract.record import Record
from stream_rater.parts.schema import Part
from stream_rater.pipeline import estimation
from stream_rater.pipeline.agreement import Agreement
from stream_rater.pipeline.backlog import Backlog
from stream_rater.pipeline.estimation import NO_ROUNDS, PendingRounds
from stream_rater.pipeline.input_partition import (
    InputPartition,
    all_finished,
    behind,
    committed_by,
    hold_much,
)
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.oversize_round import OversizeRound
from stream_rater.pipeline.poll_backoff import (
    AHEAD,
    COMMIT_EVERY_S,
    IDLE_S,
    IN_FLIGHT,
    LONGEST_AHEAD_S,
    MANY_PLAYERS,
    READ_AHEAD,
    PollBackoff,
)
from stream_rater.pipeline.ports import (
    REGROUPING_S,
    CommitSource,
    LogStarts,
    NewProducer,
    Poll,
    Priors,
    ReadPriors,
    Rejection,
    Repartitioned,
    Scatter,
    Seek,
    Step,
    Trouble,
    ask,
    insist,
    pause_s,
    shard_ends,
)
from stream_rater.pipeline.progress import InFlightWindow, Progress
from stream_rater.pipeline.rejection_limiter import RejectionLimiter
from stream_rater.rating.model import Table
from stream_rater.rounds.batch import RoundHead
from stream_rater.rounds.decoder import DecodedRounds, RoundDecoder
from stream_rater.rounds.duplicates import DuplicateWindow
from stream_rater.rounds.validation import Invalid

ROWS_PER_PART = 5000
"""Of a message at most, and of a piece in which a round larger than a wave is sent."""

REFUSED_S = 5.0
"""How often a shard with beliefs that cannot be read, or a ladder at odds, is tried again."""


class Estimator:
    """Owns partitions of `round-completed`, of so many. Drive it with `run()`."""

    def __init__(
        self,
        ladders: Ladders,
        shards: int,
        partitions: int,
        *,
        window: int = 100_000,
        wave_players: int = 20_000,
        rows_per_part: int = ROWS_PER_PART,
        rejects_per_second: float = 0.0,
        observer: Observer | None = None,
        idle_s: float = IDLE_S,
        commit_every_s: float = COMMIT_EVERY_S,
    ) -> None:
        self._decoder = RoundDecoder(ladders, partitions)
        self._agreement = Agreement(ladders)
        self._shards = shards
        self._partitions = partitions
        self._window = window
        self._wave_players = wave_players
        self._rows_per_part = rows_per_part
        self._piece_players = min(wave_players, rows_per_part)
        self._observer = observer or Observer()
        self._idle_s = idle_s
        self._commit_every_s = commit_every_s
        self._committed_s = -math.inf
        """When offsets were committed last."""
        self._owned: frozenset[int] = frozenset()
        self._to_open: frozenset[int] = frozenset()
        """Those of them that are newly owned."""
        self._now_s = 0.0
        self._flood = RejectionLimiter(rejects_per_second)
        self._refused: set[int] = set()
        """Shards that were refused when last asked for beliefs."""
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._sources: dict[int, InputPartition] = {}
        self._large: OversizeRound | None = None
        """The round on its way that is larger than a wave."""
        self._backlog = Backlog(self._wave_players)
        self._progress = Progress(self._shards)
        self._ahead = InFlightWindow(self._progress, LONGEST_AHEAD_S)
        """Waves."""
        self._pace = PollBackoff(self._idle_s)
        self._news = True
        """Whether a wave may be found where none was: not for every turn are they all looked at."""

    def run(self) -> Step[NoReturn]:
        """The machine: steps 1 to 7, for ever."""
        troubles = 0
        while True:
            try:
                if troubles:
                    yield from self._start_over(troubles)
                yield from self._open(self._to_open)
                yield from self._read_on()
                if not self._to_open:
                    yield from self._rate_wave()
                    yield from self._rate_large()
                    yield from self._commit()
                troubles = 0
            except Trouble as trouble:
                self._observer.started_over(str(trouble))
                troubles += 1

    def _start_over(self, troubles: int) -> Step[None]:
        """After a pause, what is owned by then, with a new producer."""
        self._forget_everything()
        yield from self._poll(pause_s(troubles), full=True)
        self._to_open = self._owned
        yield from ask(NewProducer())

    # --- step 1 ---

    def _open(self, partitions: frozenset[int]) -> Step[None]:
        if not partitions:
            return
        if 0 < self._partitions <= (newest := max(partitions)):
            raise Repartitioned(newest, self._partitions)
        committed = yield from committed_by(partitions)
        yield from self._raise_floors()
        starts = yield from ask(LogStarts(partitions))
        offsets = {}
        for partition in partitions:
            c, start = committed[partition], starts[partition]
            if c is not None and c < start:
                self._observer.rounds_missing(partition, c, start)
            c = max(c or 0, start)
            offsets[partition] = self._window_start(c, start)
            self._sources[partition] = InputPartition(
                DuplicateWindow(self._window), start=offsets[partition], committed=c
            )
        self._to_open = frozenset()
        self._observer.reading_back(partitions)
        yield from ask(Seek(offsets))

    def _window_start(self, c: int, log_start: int) -> int:
        return max(log_start, c - self._window)

    def _raise_floors(self) -> Step[None]:
        self._progress.take_over((yield from shard_ends(self._shards)))

    # --- polls ---

    def _read_on(self) -> Step[None]:
        """Read what came."""
        timeout_s = self._pace.timeout_s(waiting=bool(self._backlog), in_flight=len(self._progress))
        yield from self._poll(timeout_s, full=self._is_full())

    def _is_full(self) -> bool:
        most = READ_AHEAD * self._wave_players
        return self._backlog.waiting > most or hold_much(self._sources.values(), most)

    def _poll(self, timeout_s: float, *, full: bool) -> Step[None]:
        polled = yield from ask(
            Poll(timeout_s, full=full, resting=self._flood.at_rest, gather_s=self._pace.gather_s)
        )
        self._now_s = polled.now_s
        self._progress.retry(polled.now_s)
        self._news = self._agreement.retry(polled.now_s) or self._news
        if polled.lost or polled.gained:
            self._owned = (self._owned - polled.lost) | polled.gained
            self._to_open = (self._to_open - polled.lost) | polled.gained
            self._observer.owned(self._owned)
            self._drop(polled.lost | polled.gained)
            self._flood.forget(polled.lost | polled.gained)
        if polled.records:
            self._read(polled.records, self._decoder.decode(polled.records))
        idle = not full and not polled.records
        self._observer.reading_back(behind(self._sources, idle=idle))
        self._flood.rest(self._now_s, self._observer.partitions_resting)

    def _drop(self, partitions: frozenset[int]) -> None:
        """Forget partitions; what their players await stays true, whoever owns them."""
        for partition in partitions:
            self._sources.pop(partition, None)
        if self._large is not None and self._large.partition in partitions:
            self._large = None
        self._backlog.drop(partitions)
        self._news = True

    # --- steps 2 and 3 ---

    def _read(self, records: Sequence[Record], decoded: DecodedRounds) -> None:
        """Admit the rounds decoded from these records, if they count and teach anything."""
        heads = iter(decoded.rounds.heads)
        found = [next(heads) if refusal is None else refusal for refusal in decoded.refusals]
        counts = list(map(self._counts, records, found))
        valid = [refusal is None for refusal in decoded.refusals]
        pending = estimation.pending_rounds(decoded.valid(records), decoded, self._shards)
        kept = np.flatnonzero(list(compress(counts, valid)))
        pending = pending.take(kept)
        if unknown := int(np.count_nonzero(decoded.unknown[kept])):
            self._observer.unknown_fields(unknown)
        self._observer.rounds_accepted(list(compress(records, counts)), pending.rounds.heads)
        teach = self._decoder.rates(pending.rounds, pending.rule)
        self._done(pending.take(np.flatnonzero(~teach)))
        self._backlog.add(pending.take(np.flatnonzero(teach)))
        self._news = True

    def _counts(self, record: Record, found: RoundHead | Invalid) -> bool:
        """Whether what was found in a record is a round to be rated."""
        source = self._sources.get(record.partition)
        verdict = source is not None and source.judge(record, found)
        if isinstance(verdict, Rejection):
            self._flood.rejected(record.partition, self._now_s)
            self._observer.round_rejected(verdict)
            return False
        return verdict

    def _wave(self) -> PendingRounds:
        """Candidates whose players await nothing, up to a wave's size."""
        if not (self._news or self._progress.moved):
            return NO_ROUNDS
        if len(self._progress) > IN_FLIGHT * self._wave_players:
            return NO_ROUNDS
        if self._ahead.has(AHEAD, min(MANY_PLAYERS, AHEAD * self._wave_players), self._now_s):
            return NO_ROUNDS
        self._progress.moved = False
        wave = self._backlog.wave(self._fitting, self._progress.ready)
        self._news = len(wave) > 0
        self._pace.took(len(wave), wave.count)
        return wave

    def _fitting(self, tickets: Ints) -> Ints:
        """Those that may be in a wave; of those too large for any, one at a time is in hand."""
        if not self._backlog.oversize and self._agreement.is_full:
            return tickets
        large = self._backlog.sizes(tickets) > self._wave_players
        for ticket in tickets[large]:
            if self._large is not None:
                break
            whole = self._backlog.take(np.array([ticket]))
            if self._agreement.allowed(whole).all():
                self._large = OversizeRound(whole, self._piece_players, self._progress)
        small = tickets[~large]
        if self._agreement.is_full:
            return small
        return small[self._agreement.allowed(self._backlog.take(small))]

    def _agreed(self, wave: PendingRounds) -> Step[PendingRounds]:
        """The rounds of a wave that are to be rated by what our file says."""
        return (yield from self._agreement.agreed(wave, self._now_s + REFUSED_S, self._observer))

    # --- steps 4 to 6 ---

    def _rate_wave(self) -> Step[None]:
        if not self._backlog:
            return
        self._pace.looked()
        wave = yield from self._agreed(self._wave())
        if not wave:
            yield from self._look_at_positions()
            return
        headers, accepted = yield from self._read_priors(wave)
        ready, resumed, priors = estimation.classified(wave, headers, accepted)
        if ready:
            yield from self._scatter(ready, priors)
        if resumed:
            yield from self._resume(resumed)
        if ready or resumed:
            self._pace.came_on()

    def _look_at_positions(self) -> Step[None]:
        if waiting := self._progress.waiting():
            self._accept((yield from ask(ReadPriors(dict.fromkeys(waiting, ())))))

    def _accept(self, read: Mapping[int, Priors]) -> set[int]:
        return {s for s, priors in read.items() if self._progress.accept(s, priors.applied)}

    def _read_priors(self, pending: PendingRounds) -> Step[tuple[Table, Flags]]:
        """(P,) headers of the rounds' players, and whether each one's shard was accepted."""
        read = yield from ask(ReadPriors(estimation.asked(pending)))
        accepted = self._accept(read)
        headers, unreadable = estimation.headers_of(pending, read)
        for shard, reason in unreadable.items():
            self._refuse(shard, reason)
        for shard in self._refused.intersection(read) - unreadable.keys():
            self._refused.remove(shard)
            self._observer.shard_opened(shard)
        counts = np.zeros(self._shards, np.bool_)
        counts[list(accepted - unreadable.keys())] = True
        return headers, counts[shards_in(pending.fingerprints)]

    def _refuse(self, shard: int, reason: str) -> None:
        self._progress.refuse(shard, self._now_s + REFUSED_S)
        self._refused.add(shard)
        self._observer.shard_refused(shard, reason)

    def _scatter(self, ready: PendingRounds, priors: Table) -> Step[None]:
        with self._observer.at_work(estimation.traced(ready)):
            part = self._estimate(ready, priors)
            messages = estimation.messages(part, ready, self._rows_per_part)
            offsets = yield from ask(Scatter(messages))
        self._finish(ready, estimation.part_ends(messages, offsets))
        self._observer.rounds_scattered(len(ready), ready.count)

    def _estimate(self, pending: PendingRounds, priors: Table) -> Part:
        return estimation.estimate(pending, priors, self._decoder.ratings, self._shards)

    def _resume(self, resumed: PendingRounds) -> Step[None]:
        """Somebody scattered these: their parts are in the log, somewhere before its end."""
        self._finish(resumed, dict(enumerate((yield from shard_ends(self._shards)))))
        self._observer.rounds_resumed(len(resumed))

    def _finish(self, pending: PendingRounds, part_ends: Mapping[int, int]) -> None:
        """The rounds are wholly scattered: their players' next ones wait for the store."""
        self._ahead.sent(part_ends, estimation.by_shard(pending), self._now_s)
        self._close(pending)

    def _close(self, pending: PendingRounds) -> None:
        """They are no longer to be rated."""
        self._backlog.finish(pending)
        self._news = True
        self._done(pending)

    def _done(self, pending: PendingRounds) -> None:
        """Nothing is left to do for these rounds."""
        partitions, _ = estimation.distinct(pending.partitions)
        for partition in partitions:
            mine = pending.partitions == partition
            self._sources[partition].finish(pending.offsets[mine].tolist())

    def _rate_large(self) -> Step[None]:
        """The next piece of a round larger than a wave (`large`)."""
        large = self._large
        if large is None or not large.is_due():
            return
        self._pace.came_on(hurry=not large.is_read)
        done = yield from self._agreed(large.whole)
        if done and large.is_read:
            yield from large.send(self._rows_per_part)
        elif done:
            yield from large.read(self._read_priors, self._estimate, self._observer)
        if not done or large.is_scattered or large.is_sent:
            self._large = None
        if large.is_scattered:
            yield from self._resume(done)
        elif large.is_sent:
            self._close(done)
            self._observer.rounds_scattered(1, done.count)

    # --- step 7 ---

    def _commit(self) -> Step[None]:
        if self._now_s - self._committed_s < self._commit_every_s:
            return
        offsets, rejections = all_finished(self._sources)

        def commit() -> CommitSource | None:
            ours = {p: offset for p, offset in offsets.items() if p in self._sources}
            told = [each for each in rejections if each.record.partition in ours]
            return CommitSource(ours, told) if ours else None

        done = yield from insist(commit, lambda: self._poll(REGROUPING_S, full=True))
        if done is not None:
            self._committed_s = self._now_s
            self._observer.positions(done.offsets)
