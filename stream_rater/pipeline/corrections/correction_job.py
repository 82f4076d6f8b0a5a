"""Applies a ladder's corrections: reads its rounds again, and finds the beliefs that change.

The job is a pure function of the log before the corrections' offset c, and of the ladders file. So
a repeated job gives the same beliefs, bit for bit. It reads the log in two passes:

1. *Validate*: read which rounds, seeds and players there were, and validate the corrections.
2. *Replay*: rate all rounds before c twice, with the edits before the corrections and with those
   after them. The players whose records then differ are corrected. Seeds and resets are applied at
   their places between the rounds.

Both passes begin at the last checkpoint (`replay.checkpoint`) before the first round that changes,
or at the log's start if there is none. The second pass also makes new checkpoints in place of those
that the corrections have made useless. It makes one at c, too, if the last checkpoint is far
behind.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections import correction_validator as validation
from stream_rater.pipeline.corrections.correction_validator import (
    CorrectionQueue,
    CorrectionValidator,
    LogContext,
    QueuedCorrection,
    Rejections,
    Steps,
)
from stream_rater.pipeline.corrections.edits_in_force import APPLIED, LadderEdits
from stream_rater.pipeline.corrections.ladder_checkpoints import LadderCheckpoints, StartingPoint
from stream_rater.pipeline.ports import LogStarts, ReadAgain, RecordedCorrection, Step, ask
from stream_rater.rating import record as belief_record
from stream_rater.rating import stages
from stream_rater.rating.model import newcomers
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.checkpoint import CheckpointHead, IdFilter, RecordPlace, UnusableCheckpoint
from stream_rater.replay.edited_log import LoggedRounds, Verdicts, batches_of
from stream_rater.replay.edits import NO_EDITS, Edits
from stream_rater.replay.ledger import Base, NeedsEarlierRounds
from stream_rater.replay.pool import Pool
from stream_rater.replay.sequential import Replay
from stream_rater.rounds.correction_records import Seed
from stream_rater.rounds.validation import Invalid

NO_ROUND = 2**62  # An offset that is greater than the offset of every round.

PIECE_BYTES = 2**17
"""The work pauses after about this many bytes of records, so that other rounds can be rated."""

PLAYERS_AT_ONCE = 5000  # The number of players of two pools that are compared at a time.


class CorrectionJob:
    """Applies corrections of one ladder, all at the offset `at`."""

    def __init__(
        self, ladder: str, partition: int, at: int, proposed: Sequence[QueuedCorrection] | None,
        waiting: Sequence[RecordedCorrection], accepted: Sequence[RecordedCorrection],
        log: LogContext,
        queues: Sequence[CorrectionQueue] = (),
        rejections: Rejections | None = None,
        *, make_ahead: validation.MakeAhead = validation.QueueLookahead,
    ) -> None:  # fmt: skip
        """`waiting`: corrections before `at` that are applied together with the proposed ones.
        `accepted`: the ladder's corrections that were applied before, in that order.

        If `proposed` is None, the job applies nothing and only makes a checkpoint at `at`.

        `queues`: queued corrections of this ladder and of other ladders of the partition; some of
        them are validated in the same pass. `rejections`: given if it is known that all corrections
        are rejected, and why. `make_ahead` makes the validation of each queue.
        """
        self.ladder = ladder
        self.partition = partition
        self.at = at
        self.rejected: Rejections = []  # The proposed corrections that are rejected.
        self.accepted: list[QueuedCorrection] = []  # The proposed corrections that are accepted.
        self.ahead: dict[int, Rejections | None] = {}
        """The verdicts on queued corrections, by their offset (`QueueLookahead`)."""
        self.deleted_before = 0
        """The offset at which the log starts, if its first records were deleted; else 0. If they
        were deleted, nothing is applied."""
        self.checkpoint_players: int | None = None
        """The number of players in the checkpoint at `at`, if the job has made one."""
        self.progress = 0.0  # The share of the work that is done, from 0 to 1.
        self._log = log
        self._queues = queues
        self._known_rejections = rejections
        self._make_ahead = make_ahead
        self._only_checkpoint = proposed is None
        self._checkpoint_every = 1 if self._only_checkpoint else log.checkpoint_every
        self._proposed = list(proposed or ())
        self._waiting = {each.offset: each for each in waiting}
        self._accepted_before = list(accepted)
        self._checkpoints = LadderCheckpoints(ladder)
        self._steps = self._work()
        self._pools: tuple[Pool, Pool] | None = None
        """The pools before and after the corrections, once they are replayed."""
        self._start_from(StartingPoint())

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
        """The time of the ladder's last round, seed or reset before `at`, as reported."""
        return self._read_so_far.completed_at

    def _work(self) -> Steps[None]:
        if self._known_rejections is not None:
            self.rejected = list(self._known_rejections)
            return
        starts = yield from ask(LogStarts(frozenset([self.partition])))
        if start := starts[self.partition]:
            self.deleted_before = start
            waiting = [validation.queued_of(self.partition, e) for e in self._waiting.values()]
            self.rejected = validation.reject_incomplete_log([*self._proposed, *waiting], start)
            return
        if not (self._proposed or self._waiting or self._only_checkpoint):
            return
        yield from self._validate_from_checkpoint()
        if self._first_changed < NO_ROUND or self._only_checkpoint:
            yield from self._replay()
        yield from ask(ReadAgain(self.partition, self.at, self.at))  # the reader may close

    # --- where to begin ---

    def _validate_from_checkpoint(self) -> Steps[None]:
        """Run the first pass from the newest usable checkpoint, or from the log's start."""
        if self._checkpoint_every:
            yield from self._checkpoints.find()
        for head in self._checkpoints.heads:
            if self._may_begin_at(head):
                try:
                    self._start_from(StartingPoint(head, (yield from self._checkpoints.read(head))))
                    yield from self._validate()
                except (NeedsEarlierRounds, UnusableCheckpoint):
                    continue
                return
        self._start_from(StartingPoint())
        yield from self._validate()

    def _may_begin_at(self, head: CheckpointHead) -> bool:
        known = head.whole and head.offset <= self.at and head.follows(self._places)
        return known and head.rules == self._log.rules(self.ladder, head.offset)

    @property
    def _places(self) -> list[RecordPlace]:
        """The places of the corrections that were applied before."""
        return [each.place for each in self._accepted_before if each.event_type != APPLIED]

    def _start_from(self, starting_point: StartingPoint) -> None:
        self._starting_point = starting_point
        self._record_validator = self._log.validator()
        self._first_changed = NO_ROUND
        """The offset of the first round that the proposed corrections change, once validated."""
        self._read_so_far = starting_point.read
        self._edits = self._edits_before = NO_EDITS
        """The edits before the proposed corrections. `_edits` has those after them."""

    @property
    def _offset(self) -> int:
        """The offset at which the job begins."""
        return self._starting_point.offset

    def _validator_for(self, queue: CorrectionQueue) -> CorrectionValidator:
        """The validator of this ladder's corrections. If the job begins at the log's start, the
        queue may be of another ladder."""
        known, base, head = set[RecordPlace](), None, self._starting_point.head
        if head is not None:
            known = self._places_in(head)
            edits = LadderEdits(each for each in queue.accepted if each.place in known).last
            pool, ids = self._pool(edits), self._ids_before()
            base = Base(edits, head.time, {each for each in queue.names if each in pool}, ids)
        return CorrectionValidator(
            self._log, self.partition, self._record_validator.round_decoder, queue.accepted,
            queue.to_validate, self._offset, base, known,
        )  # fmt: skip

    def _places_in(self, head: CheckpointHead) -> set[RecordPlace]:
        return set(head.corrections)

    def _ids_before(self) -> IdFilter:
        return self._starting_point.ids

    def _pool(self, edits: Edits) -> Pool:
        return self._starting_point.pool(edits, self.ladder, self._log.ladders)

    @property
    def _rounds_from(self) -> int:
        """The offset from which the rounds are read. Rounds before the checkpoint are only used to
        find duplicates."""
        head = self._starting_point.head
        return 0 if head is None else head.read_from(self._log.window)

    # --- reading ---

    def _read(
        self, first: int, end: int, take: Callable[[Sequence[Record]], Iterable[Any]]
    ) -> Steps[None]:
        """Pass all records from `first` to before `end` to `take`, in batches."""
        while first < end:
            records = yield from ask(ReadAgain(self.partition, first, end))
            if not records:
                return
            for batch in batches_of(records, PIECE_BYTES, mixed=True):
                yield from take(batch)
                share = batch[-1].offset / max(1, self.at)
                self.progress = min(1.0, 0.5 * (share + (self._pools is not None)))
                yield None
            first = records[-1].offset + 1

    def _ladder_rounds(self, records: Sequence[Record], batch: LoggedRounds) -> LoggedRounds:
        """The ladder's rounds among `batch`, which were read from these records."""
        own = batch.of_ladder(self.ladder)
        if len(own):
            head, time = own.rounds.heads[-1], int(own.rounds.time.max())
            self._note(records, int(own.offset[-1]), time, head.completed_at)
        return own

    def _is_of_ladder(self, records: Sequence[Record], seed: Seed) -> bool:
        """Whether a seed or a reset, which was read from these records, is of the ladder."""
        if seed.ladder == self.ladder:
            self._note(records, seed.offset, seed.time, seed.head.completed_at)
        return seed.ladder == self.ladder

    def _note(self, records: Sequence[Record], offset: int, time: int, completed_at: str) -> None:
        last = next(each for each in reversed(records) if each.offset == offset)
        self._read_so_far = self._read_so_far.read(last, time, completed_at)

    # --- the first pass ---

    def _validate(self) -> Steps[None]:
        self.rejected, self.accepted = [], []
        waiting = list(self._waiting.values())
        validator = self._validator_for(
            CorrectionQueue(self.ladder, self._proposed, waiting, self._accepted_before)
        )
        first = min([self._rounds_from, *validator.wanted, *self._waiting])
        ahead, proposed = self._ahead_from(first), list[QueuedCorrection]()

        def remember(record: Record) -> None:
            validator.remember(record)
            if record.offset in self._waiting:
                proposed.append(QueuedCorrection(record, self._log.correction(record)))

        head, proven = self._starting_point.head, self._starting_point.head is None

        def warm_up(batch: Sequence[Record]) -> Iterable[None]:
            nonlocal proven
            for each in self._record_validator.read(batch):
                if isinstance(each, Record):
                    remember(each)
                    ahead.remember(each)
            proven |= head is not None and head.is_last_in(batch)
            return ()

        def take(batch: Sequence[Record]) -> Steps[None]:
            for each in self._record_validator.read(batch):
                if isinstance(each, Record):
                    remember(each)
                    yield from validator.reach(each)
                elif isinstance(each, Seed):
                    if self._is_of_ladder(batch, each):
                        validator.ledger.add_seed(each)
                elif len(own := self._ladder_rounds(batch, each)):
                    validator.add(own)
                yield from ahead.read(each)

        def look_ahead(batch: Sequence[Record]) -> Steps[None]:
            for each in self._record_validator.read(batch):
                yield from ahead.read(each)

        yield from self._read(first, self._offset, warm_up)
        if not proven:
            raise UnusableCheckpoint("the log has no such last record")
        yield from self._read(self._offset, self.at, take)
        yield from self._validate_proposed(validator, [*self._proposed, *proposed])
        yield from self._read(self.at, ahead.end, look_ahead)
        self.ahead |= ahead.rejections

    def _ahead_from(self, first: int) -> validation.Lookahead:
        """The queues that can be validated in a pass from this offset on. Other ladders have their
        own checkpoints, so their queues need a pass from the log's start."""
        all_ladders = self._starting_point.head is None
        queues = [each for each in self._queues if all_ladders or each.ladder == self.ladder]
        ahead = validation.Lookahead(queues, self._validator_for, self._log, self._make_ahead)
        if ahead.first >= first:
            return ahead
        return validation.Lookahead((), self._validator_for, self._log)

    def _validate_proposed(
        self, validator: CorrectionValidator, proposed: Sequence[QueuedCorrection]
    ) -> Steps[None]:
        self._edits_before = validator.ledger.edits
        for each in proposed:
            verdict = yield from validator.validate(each)
            if isinstance(verdict, Invalid):
                self.rejected.append((each.record, verdict))
                continue
            self.accepted.append(each)
            if verdict is not None:
                self._first_changed = min(self._first_changed, verdict)
        self._edits = validator.ledger.edits

    # --- the second pass ---

    def _replay(self) -> Steps[None]:
        last, self._read_so_far = self._read_so_far, self._starting_point.read
        self._record_validator = self._log.validator()
        after, before = (self._replay_by(e) for e in (self._edits, self._edits_before))
        replays = [after, before] if self._first_changed < NO_ROUND else [after]
        offsets, every = list[int](), self._checkpoint_every
        if every:
            offsets = self._checkpoints.due(self._offset, self.at, every, self._all_places)
        ids = self._ids_before() if offsets else None
        self._starting_point.release()
        self._pools = self._pool_of(before), self._pool_of(after)

        def warm_up(batch: Sequence[Record]) -> Iterable[None]:
            for _ in self._record_validator.read(batch):
                pass
            return ()

        def take(batch: Sequence[Record]) -> Iterable[None]:
            for each in self._record_validator.read(batch):
                if isinstance(each, Record):
                    for replay in replays:
                        replay.start_season_at(each)
                elif isinstance(each, Seed):
                    if self._is_of_ladder(batch, each):
                        if ids is not None:
                            ids.add(each)
                        for replay in replays:
                            replay.seed(each)
                elif len(own := self._ladder_rounds(batch, each)):
                    if ids is not None:
                        ids.add(own.rounds)
                    for replay in replays:
                        replay.rate(own)
            return ()

        yield from self._read(self._rounds_from, self._offset, warm_up)
        first = self._offset
        for offset in offsets:
            yield from self._read(first, offset, take)
            if ids is not None:
                yield from self._make_checkpoint(offset, after, ids)
            first = offset
        yield from self._read(first, self.at, take)
        self._pools = self._pool_of(before), self._pool_of(after)
        self._read_so_far = last

    def _replay_by(self, edits: Edits) -> Replay:
        verdicts = Verdicts.of_ladder(self.ladder, self.partition, edits)
        replay = Replay(self._log.ladders, 0, verdicts=verdicts, validator=self._record_validator)
        if self._starting_point.head is not None:
            replay.resume(self.ladder, self._pool(edits))
        return replay

    def _pool_of(self, replay: Replay) -> Pool:
        return replay.pools.get(self.ladder) or Pool(self._rating)

    @property
    def _all_places(self) -> tuple[RecordPlace, ...]:
        """The places of all corrections that are accepted now."""
        return (*self._places, *((each.record.offset, self.at) for each in self.accepted))

    def _make_checkpoint(self, offset: int, replay: Replay, ids: IdFilter) -> Steps[None]:
        pool = replay.pools.get(self.ladder)
        if pool is None:
            return
        amended = [int(each.time[0]) for each in self._edits.amended.values()]
        self._add_amended(ids)
        read = self._read_so_far
        head = CheckpointHead(
            offset, self._log.rules(self.ladder, offset), self._all_places, read.last,
            max([read.time, *amended]), read.completed_at, 0,
        )  # fmt: skip
        players = yield from self._checkpoints.write(head, pool, ids, self.at)
        if offset == self.at:
            self.checkpoint_players = players

    def _add_amended(self, ids: IdFilter) -> None:
        for each in self._edits.amended.values():
            ids.add(each)

    # --- what it finds ---

    @property
    def replayed_pool(self) -> Pool:
        """The beliefs after the corrections, once the rounds before `at` are replayed. A job that
        only makes a checkpoint replays them always."""
        assert self._pools is not None, "they are replayed"
        return self._pools[1]

    @property
    def latest_time_s(self) -> int:
        """The latest time of a round, seed or reset of the ladder before `at`, in Unix seconds; 0
        if there is none."""
        return self._read_so_far.time

    @property
    def _rating(self) -> RatingConfig:
        terms = self._log.ladders.find(self.ladder, self.at)
        assert terms is not None, "it was accepted"
        return terms.rating

    @property
    def rule(self) -> RatingRule:
        """The rule that computes the ladder's displayed ratings."""
        return stages.rule_of(self._rating, self._edits.started)

    def corrected(self) -> "Iterator[ChangedPlayers]":
        """Yield the players whose beliefs change, in batches. A batch may be empty."""
        if self._pools is not None and self._first_changed < NO_ROUND:
            yield from changed_players(*self._pools, self._offset, self.rule)


class ChangedPlayers(NamedTuple):
    """A batch of players whose beliefs change."""

    players: list[str]
    records: list[bytes]  # In each, `last` is the offset of the player's last round.


def changed_players(
    before: Pool, after: Pool, first: int, rule: RatingRule
) -> Iterator[ChangedPlayers]:
    """Yield the players whose records differ between two pools, in batches. The pools were equal
    before the round at offset `first`. By `rule`, a player without rounds counts as a newcomer."""
    after.rows(before.names)  # add the players that only `before` has
    names = after.names
    old = before.rows(names)
    initial = newcomers(1, 1, rule.initial_mu, rule.initial_sigma, coded=True)
    (newcomer,) = belief_record.encode(initial)
    for start in range(0, len(names), PLAYERS_AT_ONCE):
        rows = np.arange(start, min(start + PLAYERS_AT_ONCE, len(names)))
        latest = np.maximum(after.headers(rows)["last"], before.headers(old[rows])["last"])
        rows = rows[latest >= first]
        played = after.headers(rows)["rounds"].tolist()
        each = zip(rows, played, after.records(rows), before.records(old[rows]), strict=True)
        new = [(row, record if rounds else newcomer, other) for row, rounds, record, other in each]
        changed = [(row, record) for row, record, other in new if record != other]
        players = names.take(np.array([row for row, _ in changed], np.int64)).texts()
        yield ChangedPlayers(players, [record for _, record in changed])
