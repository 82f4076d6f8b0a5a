"""Applies a ladder's corrections: reads the ladder's rounds again, and finds the beliefs that
change.

The job is a pure function of the log before the corrections' offset c, and of the ladders file. So
a repeated job gives the same beliefs, bit for bit. It reads the log in two passes:

1. *Validate*: read which rounds and players there were, and validate the corrections.
2. *Replay*: rate all rounds before c twice, with the edits before the corrections and with those
   after them. The players whose records then differ are corrected.

Both passes begin at the last checkpoint (`replay.checkpoint`) before the first round that changes,
or at the log's start if there is none. The second pass also makes new checkpoints in place of those
that the corrections have made useless. It makes one at c, too, if the last checkpoint is far
behind.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.config.ladders import Ladder
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.ahead import Ahead, AllAhead, MakeAhead, Queue
from stream_rater.pipeline.corrections.correction_judge import (
    CorrectionJudge,
    Refusals,
    Steps,
    queued_of,
    too_late,
)
from stream_rater.pipeline.corrections.correction_ports import NotedCorrection, ReadAgain
from stream_rater.pipeline.corrections.edits_in_force import APPLIED, LadderEdits
from stream_rater.pipeline.corrections.kept_checkpoints import Beginning, KeptCheckpoints
from stream_rater.pipeline.corrections.log_context import LogContext, QueuedCorrection
from stream_rater.pipeline.ports import LogStarts, Step, ask
from stream_rater.rating import record as belief_record
from stream_rater.rating import stages
from stream_rater.rating.model import newcomers
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.checkpoint import Head, Place, Unusable
from stream_rater.replay.edited_log import LoggedRounds, Verdicts, batches_of
from stream_rater.replay.edits import NO_EDITS, Edits
from stream_rater.replay.id_filter import IdFilter
from stream_rater.replay.ledger import Base, Earlier
from stream_rater.replay.pool import Pool
from stream_rater.replay.sequential import Replay
from stream_rater.rounds.validation import Invalid

NOTHING = 2**62
"""An offset that is greater than the offset of every round."""

PIECE_BYTES = 2**17
"""The work pauses after about this many bytes of records, so that other rounds can be rated."""

PLAYERS_AT_ONCE = 5000
"""The number of players of two pools that are compared at a time."""


class CorrectionJob:
    """Applies corrections of one ladder, all at the offset `at`."""

    def __init__(
        self, ladder: str, partition: int, at: int, proposed: Sequence[QueuedCorrection] | None,
        waiting: Sequence[NotedCorrection], accepted: Sequence[NotedCorrection], log: LogContext,
        queues: Sequence[Queue] = (), refusals: Refusals | None = None,
        *, make_ahead: MakeAhead = Ahead,
    ) -> None:  # fmt: skip
        """`waiting`: corrections before `at` that are applied together with the proposed ones.
        `accepted`: the ladder's corrections that were applied before, in that order.

        If `proposed` is None, the job applies nothing and only makes a checkpoint at `at`.

        `queues`: queued corrections of this ladder and of other ladders of the partition; some of
        them are validated in the same pass. `refusals`: given if it is known that all corrections
        are rejected, and why. `make_ahead` makes the validation of each queue.
        """
        self.ladder = ladder
        self.partition = partition
        self.at = at
        self.refused: Refusals = []
        """The proposed corrections that are rejected, once they are validated."""
        self.accepted: list[QueuedCorrection] = []
        """The proposed corrections that are accepted, once they are validated."""
        self.ahead: dict[int, Refusals | None] = {}
        """The verdicts on queued corrections, by their offset (`ahead.Ahead`)."""
        self.deleted_before = 0
        """The offset at which the log starts, if its first records were deleted; else 0. If they
        were deleted, nothing is applied."""
        self.made: int | None = None
        """The number of players in the checkpoint at `at`, if the job has made one."""
        self.progress = 0.0
        """The share of the work that is done, from 0 to 1."""
        self._log = log
        self._queues = queues
        self._refusals = refusals
        self._make_ahead = make_ahead
        self._only_checkpoint = proposed is None
        self._every = 1 if self._only_checkpoint else log.checkpoint_every
        self._given = list(proposed or ())
        self._waiting = {each.offset: each for each in waiting}
        self._before = list(accepted)
        self._checkpoints = KeptCheckpoints(ladder)
        self._steps = self._work()
        self._pools: tuple[Pool, Pool] | None = None
        """The pools before and after the corrections, once they are replayed."""
        self._begin(Beginning())

    def step(self) -> Step[bool]:
        """Do the next step of the work. Returns whether the job is done."""
        outcome: Any = None
        while True:
            try:
                effect = self._steps.send(outcome)
            except StopIteration:
                return True
            if effect is None:
                return False
            outcome = yield effect

    @property
    def completed_at(self) -> str:
        """The time when the ladder's last round before `at` was completed, as reported."""
        return self._read_so_far.completed_at

    def _work(self) -> Steps[None]:
        if self._refusals is not None:
            self.refused = list(self._refusals)
            return
        starts = yield from ask(LogStarts(frozenset([self.partition])))
        if start := starts[self.partition]:
            self.deleted_before = start
            waiting = [queued_of(self.partition, each) for each in self._waiting.values()]
            self.refused = too_late([*self._given, *waiting], start)
            return
        if not (self._given or self._waiting or self._only_checkpoint):
            return
        yield from self._judge_all()
        if self._first < NOTHING or self._only_checkpoint:
            yield from self._replay()
        yield from ask(ReadAgain(self.partition, self.at, self.at))  # the reader may close

    # --- where to begin ---

    def _judge_all(self) -> Steps[None]:
        """Run the first pass from the newest usable checkpoint, or from the log's start."""
        if self._every:
            yield from self._checkpoints.find()
        for head in self._checkpoints.heads:
            if self._may_begin_at(head):
                try:
                    self._begin(Beginning(head, (yield from self._checkpoints.read(head))))
                    yield from self._judge()
                except (Earlier, Unusable):
                    continue
                return
        self._begin(Beginning())
        yield from self._judge()

    def _may_begin_at(self, head: Head) -> bool:
        known = head.whole and head.offset <= self.at and head.follows(self._places)
        return known and head.rules == self._log.rules(self.ladder, head.offset)

    @property
    def _places(self) -> list[Place]:
        """The places of the corrections that were applied before."""
        return [each.place for each in self._before if each.event_type != APPLIED]

    def _begin(self, beginning: Beginning) -> None:
        self._beginning = beginning
        self._validator = self._log.validator()
        self._first = NOTHING
        """The offset of the first round that the proposed corrections change, once they are
        validated."""
        self._read_so_far = beginning.read
        self._edits = self._edits_before = NO_EDITS
        """The edits before the proposed corrections. `_edits` has those after them."""

    @property
    def _offset(self) -> int:
        """The offset at which the job begins."""
        return self._beginning.offset

    def _judge_of(self, queue: Queue) -> CorrectionJudge:
        """The validator of this ladder's corrections. If the job begins at the log's start, the
        queue may be of another ladder."""
        known, base, head = set[Place](), None, self._beginning.head
        if head is not None:
            known = self._known_at(head)
            edits = LadderEdits(each for each in queue.accepted if each.place in known).last
            pool, ids = self._pool(edits), self._ids_before()
            base = Base(edits, head.time, {each for each in queue.names if each in pool}, ids)
        return CorrectionJudge(
            self._log, self.partition, self._validator.round_decoder, queue.accepted, queue.asked,
            self._offset, base, known,
        )  # fmt: skip

    def _known_at(self, head: Head) -> set[Place]:
        """The places of the corrections that a checkpoint includes."""
        return set(head.corrections)

    def _ids_before(self) -> IdFilter:
        """A filter for the ids in the checkpoint's rounds."""
        return self._beginning.ids

    def _pool(self, edits: Edits) -> Pool:
        """The players and beliefs of the checkpoint at which the job begins."""
        return self._beginning.pool(edits, self.ladder, self._log.ladders)

    @property
    def _rounds_from(self) -> int:
        """The offset from which the rounds are read. Rounds before the checkpoint are only used to
        find duplicates."""
        head = self._beginning.head
        return 0 if head is None else head.read_from(self._log.window)

    # --- reading ---

    def _read(
        self, first: int, end: int, take: Callable[[list[Record]], Steps[None]]
    ) -> Steps[None]:
        """Pass all records from `first` to before `end` to `take`, in batches."""
        while first < end:
            records = yield from ask(ReadAgain(self.partition, first, end))
            if not records:
                return
            for piece in batches_of(records, PIECE_BYTES, mixed=True):
                yield from take(piece)
                share = piece[-1].offset / max(1, self.at)
                self.progress = min(1.0, 0.5 * (share + (self._pools is not None)))
                yield None
            first = records[-1].offset + 1

    def _own(self, records: Sequence[Record], some: LoggedRounds) -> LoggedRounds:
        """The ladder's rounds among `some`, which were read from these records."""
        own = some.of_ladder(self.ladder)
        if len(own):
            last = next(each for each in reversed(records) if each.offset == own.offset[-1])
            self._read_so_far = self._read_so_far.read(last, own.rounds)
        return own

    # --- the first pass ---

    def _judge(self) -> Steps[None]:
        self.refused, self.accepted = [], []
        waiting = list(self._waiting.values())
        judge = self._judge_of(Queue(self.ladder, self._given, waiting, self._before))
        first = min([self._rounds_from, *judge.wanted, *self._waiting])
        ahead, proposed = self._ahead_from(first), list[QueuedCorrection]()

        def remember(record: Record) -> None:
            judge.remember(record)
            if record.offset in self._waiting:
                proposed.append(QueuedCorrection(record, self._log.correction(record)))

        head, proven = self._beginning.head, self._beginning.head is None

        def warm_up(some: list[Record]) -> Steps[None]:
            nonlocal proven
            for each in self._validator.read(some):
                if isinstance(each, Record):
                    remember(each)
                    ahead.remember(each)
            proven |= head is not None and head.is_last_in(some)
            yield from ()

        def take(some: list[Record]) -> Steps[None]:
            for each in self._validator.read(some):
                if isinstance(each, Record):
                    remember(each)
                    yield from judge.reach(each)
                elif len(own := self._own(some, each)):
                    judge.add(own)
                yield from ahead.read(each)

        def look_ahead(some: list[Record]) -> Steps[None]:
            for each in self._validator.read(some):
                yield from ahead.read(each)

        yield from self._read(first, self._offset, warm_up)
        if not proven:
            raise Unusable("the log has no such last round")
        yield from self._read(self._offset, self.at, take)
        yield from self._judge_proposed(judge, [*self._given, *proposed])
        yield from self._read(self.at, ahead.end, look_ahead)
        self.ahead |= ahead.refusals

    def _ahead_from(self, first: int) -> AllAhead:
        """The queues that can be validated in a pass that reads from this offset on. Queues of
        other ladders need a pass from the log's start, because those ladders have their own
        checkpoints."""
        all_ladders = self._beginning.head is None
        queues = [each for each in self._queues if all_ladders or each.ladder == self.ladder]
        ahead = AllAhead(queues, self._judge_of, self._log, self._make_ahead)
        return ahead if ahead.first >= first else AllAhead((), self._judge_of, self._log)

    def _judge_proposed(
        self, judge: CorrectionJudge, proposed: Sequence[QueuedCorrection]
    ) -> Steps[None]:
        self._edits_before = judge.ledger.edits
        for each in proposed:
            verdict = yield from judge.judge(each)
            if isinstance(verdict, Invalid):
                self.refused.append((each.record, verdict))
            else:
                self.accepted.append(each)
                self._first = min(self._first, NOTHING if verdict is None else verdict)
        self._edits = judge.ledger.edits

    # --- the second pass ---

    def _replay(self) -> Steps[None]:
        last, self._read_so_far = self._read_so_far, self._beginning.read
        self._validator = self._log.validator()
        now, before = (self._replay_by(e) for e in (self._edits, self._edits_before))
        replays = [now, before] if self._first < NOTHING else [now]
        to_be_made, ids = self._to_be_made(), self._ids_before()
        self._beginning.release()
        self._pools = self._pool_of(before), self._pool_of(now)

        def warm_up(some: list[Record]) -> Steps[None]:
            for _ in self._validator.read(some):
                pass
            yield from ()

        def take(some: list[Record]) -> Steps[None]:
            for each in self._validator.read(some):
                if isinstance(each, Record):
                    for replay in replays:
                        replay.start_season_at(each)
                elif len(own := self._own(some, each)):
                    if to_be_made:
                        ids.add(own.rounds)
                    for replay in replays:
                        replay.rate(own)
            yield from ()

        yield from self._read(self._rounds_from, self._offset, warm_up)
        first = self._offset
        for offset in to_be_made:
            yield from self._read(first, offset, take)
            yield from self._make_checkpoint(offset, now, ids)
            first = offset
        yield from self._read(first, self.at, take)
        self._pools = self._pool_of(before), self._pool_of(now)
        self._read_so_far = last

    def _replay_by(self, edits: Edits) -> Replay:
        verdicts = Verdicts.of_ladder(self.ladder, self.partition, edits)
        replay = Replay(self._log.ladders, 0, verdicts=verdicts, validator=self._validator)
        if self._beginning.head is not None:
            replay.resume(self.ladder, self._pool(edits))
        return replay

    def _pool_of(self, replay: Replay) -> Pool:
        return replay.pools.get(self.ladder) or Pool(Ladder(rating=self._rating))

    @property
    def _all_places(self) -> tuple[Place, ...]:
        """The places of all corrections that are accepted now."""
        return (*self._places, *((each.record.offset, self.at) for each in self.accepted))

    def _to_be_made(self) -> list[int]:
        """The offsets at which the second pass makes checkpoints."""
        if not self._every:
            return []
        return self._checkpoints.due(self._offset, self.at, self._every, self._all_places)

    def _make_checkpoint(self, offset: int, replay: Replay, ids: IdFilter) -> Steps[None]:
        pool = replay.pools.get(self.ladder)
        if pool is None:
            return
        amended = [int(each.time[0]) for each in self._edits.amended.values()]
        self._add_amended(ids)
        read = self._read_so_far
        head = Head(
            offset, self._log.rules(self.ladder, offset), self._all_places, read.last,
            max([read.time, *amended]), read.completed_at, 0,
        )  # fmt: skip
        players = yield from self._checkpoints.keep(head, pool, ids, self.at)
        if offset == self.at:
            self.made = players

    def _add_amended(self, ids: IdFilter) -> None:
        for each in self._edits.amended.values():
            ids.add(each)

    # --- what it finds ---

    @property
    def _rating(self) -> RatingConfig:
        terms = self._log.ladders.find(self.ladder, self.at)
        assert terms is not None, "it was accepted"
        return terms.rating

    @property
    def rule(self) -> RatingRule:
        """The rule that computes the ladder's displayed ratings."""
        return stages.rule_of(self._rating, self._edits.started)

    def corrected(self) -> "Iterator[Corrected]":
        """Yield the players whose beliefs change, in batches."""
        if self._pools is not None and self._first < NOTHING:
            yield from differing(*self._pools, self._offset, self.rule)


class Corrected(NamedTuple):
    """A batch of players whose beliefs change."""

    players: list[str]
    records: list[bytes]
    """The players' new records. The `last` of each is the offset of the player's last round."""


NOBODY = Corrected([], [])


def differing(before: Pool, now: Pool, first: int, rule: RatingRule) -> Iterator[Corrected]:
    """Yield the players whose records differ between two pools, in batches. The pools were equal
    before the round at offset `first`. A player who has no round left counts as a newcomer by this
    rule."""
    now.rows(before.names)  # add the players that only `before` has
    names = now.names
    old = before.rows(names)
    new = newcomers(1, 1, rule.initial_mu, rule.initial_sigma, coded=True)
    (newcomer,) = belief_record.encode(new)
    for start in range(0, len(names), PLAYERS_AT_ONCE):
        rows = np.arange(start, min(start + PLAYERS_AT_ONCE, len(names)))
        latest = np.maximum(now.headers(rows)["last"], before.headers(old[rows])["last"])
        rows = rows[latest >= first]
        both = zip(_records_of(now, rows, newcomer), before.records(old[rows]), strict=True)
        changed = zip(rows.tolist(), both, strict=True)
        differ = {row: one for row, (one, other) in changed if one != other}
        if not differ:
            yield NOBODY
        else:
            yield Corrected(names.take(np.array(list(differ))).texts(), list(differ.values()))


def _records_of(pool: Pool, rows: Ints, newcomer: bytes) -> list[bytes]:
    """The records of the players in these rows. A player who has no round left gets the newcomer's
    record."""
    rounds = pool.headers(rows)["rounds"].tolist()
    both = zip(pool.records(rows), rounds, strict=True)
    return [data if played else newcomer for data, played in both]
