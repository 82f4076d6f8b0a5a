"""Stage 1's state machine: from `round-completed` to parts, steps 1 to 7 of the protocol.

1. On assignment forget everything and fetch the committed offset c; then set floor[s] to the end of
   shard s's parts, for every shard. Read [c - W, c) again for its round ids.
2. The verdict on a record is a pure function of the record and the W offsets before it
   (`verdicts`).
3. Candidates: rounds that share no player with an earlier round not yet scattered (`waves`), of
   ladders on whose parameters all workers agree (`agreement`).
4. Read a shard's `applied` and the priors asked for in one call. `applied` < floor: not ready; else
   the floor rises to it. This one lazy rule covers takeover, rollback and failover (`progress`).
5. For a round at offset o, each of its players: any `last` > o: it is wholly scattered, produce
   nothing, but await for all its players what the log holds now. `last` == o: use the prior before
   it. Else use the current prior. Nobody is read before what it awaits was seen applied.
6. Produce the parts. Only when all are acknowledged is the round scattered, and its players await
   the end of their parts.
7. Commit the contiguous prefix of finished offsets, in one transaction with the rejections among
   them. After any trouble: a new producer, and back to 1.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NoReturn

import numpy as np

from stream_rater.config import Ladders
from stream_rater.pipeline import estimation
from stream_rater.pipeline.agreement import Agreement
from stream_rater.pipeline.estimation import Cohort, Pending
from stream_rater.pipeline.flood import Flood
from stream_rater.pipeline.large import IN_NO_HURRY, LargeRound
from stream_rater.pipeline.marks import Flags, shards_in
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import (
    CommitSource,
    Committed,
    LogStarts,
    NewProducer,
    Poll,
    Priors,
    ReadPriors,
    Record,
    Rejection,
    Scatter,
    Seek,
    ShardEnds,
    Step,
    Trouble,
    ask,
    pause_s,
)
from stream_rater.pipeline.progress import Progress
from stream_rater.pipeline.source import Source
from stream_rater.pipeline.verdicts import Verdicts
from stream_rater.pipeline.waves import Waves
from stream_rater.rating import record as belief_record
from stream_rater.rating.model import HEADER, Table
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.record import UnknownRecord
from stream_rater.scanning import Scanned
from stream_rater.standings import Reader, Standings

BUSY_S = 0.001
"""How long a poll takes while rounds wait for the store; it grows with the time waited in vain."""

READ_AHEAD = 4
"""Reading rests while more than so many waves' players, or offsets, wait in memory."""

REJECTED_BYTES = 64 * 2**20
"""Reading rests while more than so many bytes wait to be rejected."""

IN_FLIGHT = 20
"""Sending rests while more than so many waves' players are in parts not seen applied."""

ROWS_PER_PART = 5000
"""Of a message at most, and of a piece in which a round larger than a wave is sent."""

REFUSED_S = 5.0
"""How often a shard with beliefs that cannot be read, or a ladder at odds, is tried again."""


class Estimator:
    """Owns partitions of `round-completed`. Drive it with `run()`."""

    def __init__(
        self,
        ladders: Ladders,
        shards: int,
        *,
        window: int = 100_000,
        wave_players: int = 20_000,
        rows_per_part: int = ROWS_PER_PART,
        rejects_per_second: float = 0.0,
        observer: Observer | None = None,
        idle_s: float = 0.1,
    ) -> None:
        self._reader = Reader(ladders)
        self._agreement = Agreement(ladders)
        self._shards = shards
        self._window = window
        self._wave_players = wave_players
        self._rows_per_part = rows_per_part
        self._piece_players = min(wave_players, rows_per_part)
        self._observer = observer or Observer()
        self._idle_s = idle_s
        self._owned: frozenset[int] = frozenset()
        self._now_s = 0.0
        self._flood = Flood(rejects_per_second)
        self._refused: set[int] = set()
        """Shards that were refused when last asked for beliefs."""
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._sources: dict[int, Source] = {}
        self._large: LargeRound | None = None
        """The round on its way that is larger than a wave."""
        self._waves = Waves[Pending]()
        self._waiting = 0
        """Players of those rounds; of a large one as many as are in hand at a time."""
        self._progress = Progress(self._shards)
        self._in_vain = 0
        """Turns since a round could be rated while some wait."""
        self._news = True
        """Whether a wave may be found where none was: not for every turn are they all looked at."""

    def run(self) -> Step[NoReturn]:
        """The machine: steps 1 to 7, for ever."""
        to_open = frozenset[int]()
        troubles = 0
        while True:
            try:
                if troubles:
                    yield from self._start_over(troubles)
                    to_open = self._owned
                yield from self._open(to_open)
                to_open = yield from self._read_on()
                if not to_open:
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
        yield from ask(NewProducer())

    # --- step 1 ---

    def _open(self, partitions: frozenset[int]) -> Step[None]:
        if not partitions:
            return
        committed = yield from self._committed(partitions)
        yield from self._raise_floors()
        starts = yield from ask(LogStarts(partitions))
        offsets = {}
        for partition in partitions:
            c, start = committed[partition], starts[partition]
            if c is not None and c < start:
                self._observer.rounds_missing(partition, c, start)
            c = max(c or 0, start)
            offsets[partition] = self._window_start(c, start)
            verdicts = Verdicts(self._reader, self._window)
            self._sources[partition] = Source(verdicts, start=offsets[partition], committed=c)
        yield from ask(Seek(offsets))

    def _window_start(self, c: int, log_start: int) -> int:
        """From where on the round ids before c matter."""
        return max(log_start, c - self._window)

    def _committed(self, partitions: frozenset[int]) -> Step[Mapping[int, int | None]]:
        return (yield from ask(Committed(partitions)))

    def _raise_floors(self) -> Step[None]:
        self._progress.take_over((yield from ask(ShardEnds())))

    # --- polls ---

    def _read_on(self) -> Step[frozenset[int]]:
        """Read what came; returns the partitions that are newly owned."""
        timeout_s = self._idle_s
        if self._waves:
            timeout_s = min(timeout_s, BUSY_S * (1 + self._in_vain // 10))
        return (yield from self._poll(timeout_s, full=self._is_full()))

    def _is_full(self) -> bool:
        most = READ_AHEAD * self._wave_players
        return (
            self._waiting > most
            or any(len(each) > most for each in self._sources.values())
            or sum(each.rejected_bytes for each in self._sources.values()) > REJECTED_BYTES
        )

    def _poll(self, timeout_s: float, *, full: bool) -> Step[frozenset[int]]:
        polled = yield from ask(Poll(timeout_s, full=full, resting=self._flood.at_rest))
        self._now_s = polled.now_s
        self._progress.retry(polled.now_s)
        self._news = self._agreement.retry(polled.now_s) or self._news
        if polled.lost or polled.gained:
            self._owned = (self._owned - polled.lost) | polled.gained
            self._observer.owned(self._owned)
            self._drop(polled.lost | polled.gained)
            self._flood.forget(polled.lost | polled.gained)
        scanned = self._reader.scan([record.value for record in polled.records])
        read = map(self._read, polled.records, scanned)
        rounds = [each for each in read if each is not None]
        if rounds:
            self._admit(estimation.pending(rounds, self._shards))
        self._flood.rest(self._now_s, self._observer.partitions_resting)
        return polled.gained

    def _drop(self, partitions: frozenset[int]) -> None:
        """Forget partitions; what their players await stays true, whoever owns them."""
        for partition in partitions:
            self._sources.pop(partition, None)
        if self._large is not None and self._large.pending.partition in partitions:
            self._large = None
        kept = [each for each in self._waves if each.partition not in partitions]
        self._waves, self._waiting = Waves(), 0
        if kept:
            self._admit(Cohort(kept))

    # --- steps 2 and 3 ---

    def _read(
        self, record: Record, scanned: Scanned | None
    ) -> tuple[Record, Standings, RatingConfig] | None:
        """The round in a record, if it is to be rated, and how."""
        source = self._sources.get(record.partition)
        found = source.judge(record, scanned) if source is not None else None
        if source is None or found is None:
            return None
        if isinstance(found, Rejection):
            self._flood.rejected(record.partition, self._now_s)
            self._observer.round_rejected(found)
            return None
        self._observer.round_accepted(found.ladder, found.round_id, record)
        rating = self._reader.terms(found.ladder, record.offset).rating
        if not found.rates(skip_all_tied=rating.skip_all_tied):
            source.finish([record.offset])
            return None
        return record, found, rating

    def _admit(self, cohort: Cohort) -> None:
        self._waiting += self._weight(cohort)
        self._waves.add(cohort.rounds, cohort.fingerprints, cohort.numbers)
        self._news = True

    def _weight(self, cohort: Cohort) -> int:
        return int(np.minimum(cohort.sizes, self._wave_players).sum())

    def _wave(self) -> list[Pending]:
        """Candidates whose players await nothing, up to a wave's size."""
        wave: list[Pending] = []
        players = 0
        if not (self._news or self._progress.moved):
            return wave
        if len(self._progress) > IN_FLIGHT * self._wave_players:
            return wave
        self._progress.moved = False
        fitting = filter(self._fits, self._waves.candidates())
        for pending in self._progress.ready_ones(fitting):
            if players and players + len(pending.fingerprints) > self._wave_players:
                break
            wave.append(pending)
            players += len(pending.fingerprints)
        self._news = bool(wave)
        return wave

    def _fits(self, pending: Pending) -> bool:
        """Whether it may be in a wave; of those too large for any, one at a time is in hand."""
        allowed = self._agreement.allows(pending.standings.ladder, pending.offset)
        if allowed and len(pending.fingerprints) > self._wave_players:
            self._large = self._large or LargeRound(pending, self._piece_players)
            return False
        return allowed

    def _agreed(self, wave: Sequence[Pending]) -> Step[list[Pending]]:
        """The rounds of a wave that are to be rated by what our file says."""
        return (yield from self._agreement.agreed(wave, self._now_s + REFUSED_S, self._observer))

    # --- steps 4 to 6 ---

    def _rate_wave(self) -> Step[None]:
        if not self._waves:
            return
        self._in_vain += 1
        wave = yield from self._agreed(self._wave())
        if not wave:
            yield from self._look_at_positions()
            return
        cohort = Cohort(wave)
        headers, accepted = yield from self._read_priors(cohort)
        ready, resumed, priors = estimation.classified(cohort, headers, accepted)
        if ready.rounds:
            yield from self._scatter(ready, priors)
        if resumed.rounds:
            yield from self._resume(resumed)
        if ready.rounds or resumed.rounds:
            self._in_vain = 0

    def _look_at_positions(self) -> Step[None]:
        if waiting := self._progress.waiting():
            self._accept((yield from ask(ReadPriors(dict.fromkeys(waiting, ())))))

    def _accept(self, read: Mapping[int, Priors]) -> set[int]:
        """The shards whose priors count."""
        return {s for s, priors in read.items() if self._progress.accept(s, priors.applied)}

    def _read_priors(self, cohort: Cohort) -> Step[tuple[Table, Flags]]:
        """(P,) headers of the cohort's players, and whether each one's shard was accepted."""
        read = yield from ask(ReadPriors(estimation.asked(cohort)))
        accepted = self._accept(read)
        order, cuts = cohort.by_shard
        headers = np.zeros(len(order), HEADER)
        for shard, where in cuts:
            try:
                headers[order[where]] = belief_record.read_headers(read[shard].headers)
            except UnknownRecord as error:
                accepted.discard(shard)
                self._refuse(shard, str(error))
            else:
                self._welcome(shard)
        counts = np.isin(np.arange(self._shards), list(accepted))
        return headers, counts[shards_in(cohort.fingerprints)]

    def _refuse(self, shard: int, reason: str) -> None:
        self._progress.refuse(shard, self._now_s + REFUSED_S)
        self._refused.add(shard)
        self._observer.shard_refused(shard, reason)

    def _welcome(self, shard: int) -> None:
        if shard in self._refused:
            self._refused.remove(shard)
            self._observer.shard_opened(shard)

    def _scatter(self, ready: Cohort, priors: Table) -> Step[None]:
        with self._observer.at_work(estimation.traced(ready.rounds)):
            part = estimation.estimate(ready, priors)
            messages = list(estimation.messages(part, ready, self._rows_per_part))
            offsets = yield from ask(Scatter(messages))
        self._finish(ready, estimation.part_ends(messages, offsets))
        self._observer.rounds_scattered(len(ready.rounds), len(part.names))

    def _resume(self, resumed: Cohort) -> Step[None]:
        """Somebody scattered these: their parts are in the log, somewhere before its end."""
        self._finish(resumed, dict(enumerate((yield from ask(ShardEnds())))))
        self._observer.rounds_resumed(len(resumed.rounds))

    def _finish(self, cohort: Cohort, part_ends: Mapping[int, int]) -> None:
        """The rounds are wholly scattered: their players' next ones wait for the store."""
        for shard, players in estimation.by_shard(cohort).items():
            self._progress.sent(shard, part_ends[shard], players)
        self._close(cohort)

    def _close(self, cohort: Cohort) -> None:
        """They are no longer to be rated."""
        self._waves.finish(cohort.rounds, cohort.fingerprints, cohort.numbers)
        self._waiting -= self._weight(cohort)
        self._news = True
        for partition, rounds in groupby(cohort.rounds, attrgetter("partition")):
            self._sources[partition].finish(each.offset for each in rounds)

    def _rate_large(self) -> Step[None]:
        """The next piece of a round larger than a wave (`large`)."""
        large = self._large
        if large is None or not large.is_due(self._progress):
            return
        self._in_vain = IN_NO_HURRY if large.is_read else 0
        done = yield from self._agreed([large.pending])
        if done and large.is_read:
            yield from large.send(self._progress, self._rows_per_part)
        elif done:
            yield from large.read(self._read_priors, self._observer)
        if not done or large.is_scattered or large.is_sent:
            self._large = None
        if large.is_scattered:
            yield from self._resume(Cohort(done))
        elif large.is_sent:
            self._close(Cohort(done))
            self._observer.rounds_scattered(1, len(large.pending.names))

    # --- step 7 ---

    def _commit(self) -> Step[None]:
        offsets: dict[int, int] = {}
        rejections: list[Rejection] = []
        for partition, source in self._sources.items():
            end, rejected = source.take_finished()
            if end is not None:
                offsets[partition] = end
                rejections += rejected
        if offsets:
            yield from ask(CommitSource(offsets, rejections))
            self._observer.positions(offsets)
