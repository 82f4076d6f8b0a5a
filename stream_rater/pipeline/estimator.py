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
from stream_rater.pipeline.large import LargeRound
from stream_rater.pipeline.marks import Flags, shards_in
from stream_rater.pipeline.observer import Accepted, Observer
from stream_rater.pipeline.pace import IDLE_S, MANY_PLAYERS, Pace
from stream_rater.pipeline.ports import (
    REGROUPING_S,
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
    insist,
    pause_s,
)
from stream_rater.pipeline.progress import Ahead, Progress
from stream_rater.pipeline.source import Source, all_finished, behind, hold_much
from stream_rater.pipeline.verdicts import Verdicts
from stream_rater.pipeline.waves import Waves
from stream_rater.rating.model import Table
from stream_rater.scanning import Scanned
from stream_rater.standings import Reader

READ_AHEAD = 4
"""Reading rests while more than so many waves' players, or offsets, wait in memory."""

IN_FLIGHT = 20
"""Sending rests while more than so many waves' players are in parts not seen applied."""

AHEAD, LONGEST_AHEAD_S = 2, 0.5
"""It rests, too, while so many waves, none too small, were not seen applied, but for that time at
most: what comes meanwhile makes one large wave. A hot ladder takes 15 % less of all processors."""

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
        idle_s: float = IDLE_S,
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
        self._to_open: frozenset[int] = frozenset()
        """Those of them that are newly owned."""
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
        self._oversize = 0
        """Those rounds that are larger than a wave."""
        self._progress = Progress(self._shards)
        self._ahead = Ahead(self._progress, LONGEST_AHEAD_S)
        """Waves."""
        self._pace = Pace(self._idle_s)
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
        self._to_open = frozenset()
        self._observer.reading_back(partitions)
        yield from ask(Seek(offsets))

    def _window_start(self, c: int, log_start: int) -> int:
        """From where on the round ids before c matter."""
        return max(log_start, c - self._window)

    def _committed(self, partitions: frozenset[int]) -> Step[Mapping[int, int | None]]:
        return (yield from ask(Committed(partitions)))

    def _raise_floors(self) -> Step[None]:
        self._progress.take_over((yield from ask(ShardEnds())))

    # --- polls ---

    def _read_on(self) -> Step[None]:
        """Read what came."""
        timeout_s = self._pace.timeout_s(waiting=bool(self._waves), in_flight=len(self._progress))
        yield from self._poll(timeout_s, full=self._is_full())

    def _is_full(self) -> bool:
        most = READ_AHEAD * self._wave_players
        return self._waiting > most or hold_much(self._sources.values(), most)

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
        scanned = self._reader.scan([record.value for record in polled.records])
        read = map(self._read, polled.records, scanned)
        accepted = [each for each in read if each is not None]
        self._observer.rounds_accepted(accepted)
        if rounds := [(record, told, by) for record, told, by in accepted if by is not None]:
            self._admit(estimation.pending(rounds, self._shards))
        idle = not full and not polled.records
        self._observer.reading_back(behind(self._sources, idle=idle))
        self._flood.rest(self._now_s, self._observer.partitions_resting)

    def _drop(self, partitions: frozenset[int]) -> None:
        """Forget partitions; what their players await stays true, whoever owns them."""
        for partition in partitions:
            self._sources.pop(partition, None)
        if self._large is not None and self._large.pending.partition in partitions:
            self._large = None
        kept = [each for each in self._waves if each.partition not in partitions]
        self._waves, self._waiting, self._oversize = Waves(), 0, 0
        if kept:
            self._admit(Cohort(kept))

    # --- steps 2 and 3 ---

    def _read(self, record: Record, scanned: Scanned | None) -> Accepted | None:
        """The round in a record, if it is valid."""
        source = self._sources.get(record.partition)
        found = source.judge(record, scanned) if source is not None else None
        if source is None or found is None:
            return None
        if isinstance(found, Rejection):
            self._flood.rejected(record.partition, self._now_s)
            self._observer.round_rejected(found)
            return None
        rating = self._reader.terms(found.ladder, record.offset).rating
        if found.rates(skip_all_tied=rating.skip_all_tied):
            return record, found, rating
        source.finish([record.offset])
        return record, found, None

    def _admit(self, cohort: Cohort) -> None:
        self._count(cohort, more=1)
        self._waves.add(cohort.rounds, cohort.fingerprints, cohort.numbers)
        self._news = True

    def _count(self, cohort: Cohort, *, more: int) -> None:
        self._waiting += more * int(np.minimum(cohort.sizes, self._wave_players).sum())
        self._oversize += more * int(np.count_nonzero(cohort.sizes > self._wave_players))

    def _wave(self) -> list[Pending]:
        """Candidates whose players await nothing, up to a wave's size."""
        wave: list[Pending] = []
        players = 0
        if not (self._news or self._progress.moved):
            return wave
        if len(self._progress) > IN_FLIGHT * self._wave_players:
            return wave
        if self._ahead.has(AHEAD, min(MANY_PLAYERS, AHEAD * self._wave_players), self._now_s):
            return wave
        self._progress.moved = False
        candidates = self._waves.candidates()
        if self._oversize or not self._agreement.is_full:
            candidates = filter(self._fits, candidates)
        for pending in self._progress.ready_ones(candidates):
            if players and players + len(pending.fingerprints) > self._wave_players:
                break
            wave.append(pending)
            players += len(pending.fingerprints)
        self._news = bool(wave)
        self._pace.took(len(wave), players)
        return wave

    def _fits(self, pending: Pending) -> bool:
        """Whether it may be in a wave; of those too large for any, one at a time is in hand."""
        allowed = self._agreement.allows(pending.standings.ladder, pending.offset)
        if allowed and len(pending.fingerprints) > self._wave_players:
            self._large = self._large or LargeRound(pending, self._piece_players, self._progress)
            return False
        return allowed

    def _agreed(self, wave: Sequence[Pending]) -> Step[list[Pending]]:
        """The rounds of a wave that are to be rated by what our file says."""
        return (yield from self._agreement.agreed(wave, self._now_s + REFUSED_S, self._observer))

    # --- steps 4 to 6 ---

    def _rate_wave(self) -> Step[None]:
        if not self._waves:
            return
        self._pace.looked()
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
            self._pace.came_on()

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
        headers, unreadable = estimation.headers_of(cohort, read)
        for shard, reason in unreadable.items():
            self._refuse(shard, reason)
        for shard in self._refused.intersection(read) - unreadable.keys():
            self._welcome(shard)
        counts = np.zeros(self._shards, np.bool_)
        counts[list(accepted - unreadable.keys())] = True
        return headers, counts[shards_in(cohort.fingerprints)]

    def _refuse(self, shard: int, reason: str) -> None:
        self._progress.refuse(shard, self._now_s + REFUSED_S)
        self._refused.add(shard)
        self._observer.shard_refused(shard, reason)

    def _welcome(self, shard: int) -> None:
        self._refused.remove(shard)
        self._observer.shard_opened(shard)

    def _scatter(self, ready: Cohort, priors: Table) -> Step[None]:
        with self._observer.at_work(estimation.traced(ready.rounds)):
            part = estimation.estimate(ready, priors)
            messages = estimation.messages(part, ready, self._rows_per_part)
            offsets = yield from ask(Scatter(messages))
        self._finish(ready, estimation.part_ends(messages, offsets))
        self._observer.rounds_scattered(len(ready.rounds), len(part.names))

    def _resume(self, resumed: Cohort) -> Step[None]:
        """Somebody scattered these: their parts are in the log, somewhere before its end."""
        self._finish(resumed, dict(enumerate((yield from ask(ShardEnds())))))
        self._observer.rounds_resumed(len(resumed.rounds))

    def _finish(self, cohort: Cohort, part_ends: Mapping[int, int]) -> None:
        """The rounds are wholly scattered: their players' next ones wait for the store."""
        self._ahead.sent(part_ends, estimation.by_shard(cohort), self._now_s)
        self._close(cohort)

    def _close(self, cohort: Cohort) -> None:
        """They are no longer to be rated."""
        self._waves.finish(cohort.rounds, cohort.fingerprints, cohort.numbers)
        self._count(cohort, more=-1)
        self._news = True
        for partition, rounds in groupby(cohort.rounds, attrgetter("partition")):
            self._sources[partition].finish([each.offset for each in rounds])

    def _rate_large(self) -> Step[None]:
        """The next piece of a round larger than a wave (`large`)."""
        large = self._large
        if large is None or not large.is_due():
            return
        self._pace.came_on(hurry=not large.is_read)
        done = yield from self._agreed([large.pending])
        if done and large.is_read:
            yield from large.send(self._rows_per_part)
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
        offsets, rejections = all_finished(self._sources)

        def commit() -> CommitSource | None:
            ours = {p: offset for p, offset in offsets.items() if p in self._sources}
            told = [each for each in rejections if each.record.partition in ours]
            return CommitSource(ours, told) if ours else None

        done = yield from insist(commit, lambda: self._poll(REGROUPING_S, full=True))
        if done is not None:
            self._observer.positions(done.offsets)
