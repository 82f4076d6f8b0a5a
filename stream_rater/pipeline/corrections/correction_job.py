"""Works a ladder's corrections in: reads the ladder's rounds again, and finds whose belief changes.

The job is a pure function of the log before the corrections' offset c, and of the ladders file:
whoever repeats it finds the same beliefs, to the bit. It has two passes through the log, in pieces:

1. *Judge*: read which rounds and players there were, and judge the corrections.
2. *Replay*: rate all rounds before c twice, by the edits of before and by those of now. The players
   whose records then differ are those to be corrected.

Both passes begin at the last checkpoint (`replay.checkpoint`) before the first round that changes,
or at the log's start if there is none. On its way the second pass makes the checkpoints anew that
the corrections have made useless, and one at c if the last one is far behind.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from stream_rater.config.ladders import Ladder
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.ahead import AllAhead, Queue
from stream_rater.pipeline.corrections.beginning import Beginning
from stream_rater.pipeline.corrections.corrected_players import Corrected, differing
from stream_rater.pipeline.corrections.correction_ports import NotedCorrection, ReadAgain
from stream_rater.pipeline.corrections.edits_in_force import APPLIED, LadderEdits, correction_of
from stream_rater.pipeline.corrections.hearing import (
    Course,
    Hearing,
    Refusals,
    parted,
    proposed_in,
    too_late,
)
from stream_rater.pipeline.corrections.judged_log import Judged, Proposed
from stream_rater.pipeline.corrections.kept_checkpoints import KeptCheckpoints
from stream_rater.pipeline.ports import LogStarts, Step, ask
from stream_rater.rating import stages
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.checkpoint import Head, Place, Unusable
from stream_rater.replay.edits import NO_EDITS, Edits
from stream_rater.replay.id_filter import IdFilter
from stream_rater.replay.ledger import Base, Earlier
from stream_rater.replay.pool import Pool
from stream_rater.replay.sequential import Replay, batches_of
from stream_rater.replay.verdicts import Verdicts
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.decoder import DecodedRounds
from stream_rater.rounds.validation import Invalid

NOTHING = 2**62
"""An offset after every round's."""

PIECE_BYTES = 2**17
"""About how many bytes of records are worked through before other rounds have their turn."""


class CorrectionJob:
    """Works in corrections of one ladder, all at the offset `at`."""

    ahead_kind = AllAhead

    def __init__(
        self, ladder: str, partition: int, at: int, proposed: Sequence[Proposed] | None,
        waiting: Sequence[NotedCorrection], accepted: Sequence[NotedCorrection], log: Judged,
        queues: Sequence[Queue] = (), refusals: Refusals | None = None,
    ) -> None:  # fmt: skip
        """`waiting`: corrections before `at` that are worked in with the proposed ones.
        `accepted`: the ladder's corrections that were worked in before, in that order.

        `proposed` is None: there is nothing to work in, the job makes a checkpoint at `at`.

        `queues`: corrections that wait, here and on other ladders of the partition; some of them
        are judged on the way. `refusals`: all is refused, as was found before.
        """
        self.ladder = ladder
        self.partition = partition
        self.at = at
        self.refused: Refusals = []
        """Of the proposed corrections, those that are refused, once they are judged."""
        self.accepted: list[Proposed] = []
        """And the others."""
        self.ahead: dict[int, Refusals | None] = {}
        """What was found of corrections that wait, by their offset (`ahead.Ahead`)."""
        self.deleted_before = 0
        """Where the log starts, if that is not its first record: then nothing is worked in."""
        self.made: int | None = None
        """The number of players in the checkpoint at `at`, if the job has made one."""
        self.progress = 0.0
        """The share of the work that is done, from 0 to 1."""
        self._log = log
        self._queues = queues
        self._refusals = refusals
        self._only_checkpoint = proposed is None
        self._every = 1 if self._only_checkpoint else log.checkpoint_every
        self._given = list(proposed or ())
        self._waiting = {each.offset: each for each in waiting}
        self._before = list(accepted)
        self._asked = [
            *(correction_of(each) for each in waiting),
            *(each.correction for each in self._given),
        ]
        self._checkpoints = KeptCheckpoints(ladder)
        self._course = self._work()
        self._pools: tuple[Pool, Pool] | None = None
        """Before and now, once they are replayed."""
        self._begin(Beginning())

    def step(self) -> Step[bool]:
        """Do the next piece of the work. Returns whether the job is done."""
        outcome: Any = None
        while True:
            try:
                effect = self._course.send(outcome)
            except StopIteration:
                return True
            if effect is None:
                return False
            outcome = yield effect

    @property
    def completed_at(self) -> str:
        """When the ladder's last round before was completed, as reported."""
        return self._known.completed_at

    def _work(self) -> Course[None]:
        if self._refusals is not None:
            self.refused = list(self._refusals)
            return
        starts = yield from ask(LogStarts(frozenset([self.partition])))
        if start := starts[self.partition]:
            self.deleted_before = start
            waiting = [proposed_in(self.partition, each) for each in self._waiting.values()]
            self.refused = too_late([*self._given, *waiting], start)
            return
        if not (self._given or self._waiting or self._only_checkpoint):
            return
        yield from self._judge_all()
        if self._first < NOTHING or self._only_checkpoint:
            yield from self._replay()
        yield from ask(ReadAgain(self.partition, self.at, self.at))  # whoever reads may let go

    # --- where to begin ---

    def _judge_all(self) -> Course[None]:
        """The first pass, from the newest checkpoint that is good for it, or from the start."""
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
        """Of the corrections that were worked in before."""
        return [each.place for each in self._before if each.event_type != APPLIED]

    def _begin(self, beginning: Beginning) -> None:
        self._beginning = beginning
        self._judger = self._log.judge()
        self._first = NOTHING
        """The first round that the proposed corrections change, once they are judged."""
        self._known = beginning.known
        self._edits = self._edits_before = NO_EDITS
        """By which the second pass rates the rounds."""

    @property
    def _offset(self) -> int:
        """Where the job begins."""
        return self._beginning.offset

    def _hearing(self, queue: Queue) -> Hearing:
        """Of this ladder, or, where the job begins at the log's start, of another one."""
        known, base, head = set[Place](), None, self._beginning.head
        if head is not None:
            known = self._known_at(head)
            edits = LadderEdits(each for each in queue.accepted if each.place in known).last
            pool, ids = self._pool(edits), self._ids_before()
            base = Base(edits, head.time, {each for each in queue.names if each in pool}, ids)
        return Hearing(
            self._log, self.partition, self._judger.round_decoder, queue.accepted, queue.asked,
            self._offset, base, known,
        )  # fmt: skip

    def _known_at(self, head: Head) -> set[Place]:
        """The corrections that a checkpoint knows."""
        return set(head.corrections)

    def _ids_before(self) -> IdFilter:
        """Those that may be in the checkpoint's rounds."""
        return self._beginning.ids

    def _pool(self, edits: Edits) -> Pool:
        """The players of the checkpoint, where the job begins."""
        return self._beginning.pool(edits, self.ladder, self._log.ladders)

    @property
    def _rounds_from(self) -> int:
        """From where the rounds are read; those before the checkpoint only for duplicates."""
        head = self._beginning.head
        return 0 if head is None else head.read_from(self._log.window)

    # --- reading ---

    def _read(
        self, first: int, end: int, take: Callable[[list[Record]], Course[None]]
    ) -> Course[None]:
        """Give `take` all records from `first` to before `end`, in pieces."""
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

    def _own(
        self, records: Sequence[Record], decoded: DecodedRounds
    ) -> tuple[list[Record], RoundBatch] | None:
        """The ladder's rounds among these, and their records; None without any."""
        heads, valid = decoded.rounds.heads, decoded.valid(records)
        mine = [i for i, head in enumerate(heads) if head.ladder == self.ladder]
        if not mine:
            return None
        rounds: RoundBatch = decoded.rounds.take(np.array(mine, np.int64))
        own = [valid[i] for i in mine]
        self._known = self._known.read(own[-1], rounds)
        return own, rounds

    # --- the first pass ---

    def _judge(self) -> Course[None]:
        self.refused, self.accepted = [], []
        hearing = self._hearing(
            Queue(self.ladder, self._given, list(self._waiting.values()), self._before)
        )
        first = min([self._rounds_from, *hearing.wanted, *self._waiting])
        ahead, proposed = self._ahead_from(first), list[Proposed]()

        def remember(record: Record) -> None:
            hearing.remember(record)
            if record.offset in self._waiting:
                proposed.append(Proposed(record, self._log.correction(record)))

        head, proven = self._beginning.head, self._beginning.head is None

        def warm_up(some: list[Record]) -> Course[None]:
            nonlocal proven
            for records, decoded in parted(some, self._judger):
                if decoded is None:
                    remember(records[0])
                    ahead.remember(records[0])
                else:
                    proven |= head is not None and head.is_last_in(records)
            yield from ()

        def take(some: list[Record]) -> Course[None]:
            for records, decoded in parted(some, self._judger):
                if decoded is None:
                    remember(records[0])
                    yield from hearing.meet(records[0])
                elif (own := self._own(records, decoded)) is not None:
                    hearing.add(own[1], own[0])
                yield from ahead.read(records, decoded)

        def look_ahead(some: list[Record]) -> Course[None]:
            for records, decoded in parted(some, self._judger):
                yield from ahead.read(records, decoded)

        yield from self._read(first, self._offset, warm_up)
        if not proven:
            raise Unusable("the log has no such last round")
        yield from self._read(self._offset, self.at, take)
        yield from self._judge_proposed(hearing, [*self._given, *proposed])
        yield from self._read(self.at, ahead.end, look_ahead)
        self.ahead |= ahead.refusals

    def _ahead_from(self, first: int) -> AllAhead:
        """Those of the queues that can be judged in a pass that reads from this offset on. Other
        ladders have checkpoints of their own."""
        all_ladders = self._beginning.head is None
        queues = [each for each in self._queues if all_ladders or each.ladder == self.ladder]
        ahead = self.ahead_kind(queues, self._hearing, self._log)
        return ahead if ahead.first >= first else self.ahead_kind((), self._hearing, self._log)

    def _judge_proposed(self, hearing: Hearing, proposed: Sequence[Proposed]) -> Course[None]:
        self._edits_before = hearing.ledger.edits
        for each in proposed:
            verdict = yield from hearing.judge(each)
            if isinstance(verdict, Invalid):
                self.refused.append((each.record, verdict))
            else:
                self.accepted.append(each)
                self._first = min(self._first, NOTHING if verdict is None else verdict)
        self._edits = hearing.ledger.edits

    # --- the second pass ---

    def _replay(self) -> Course[None]:
        last, self._known = self._known, self._beginning.known
        self._judger = self._log.judge()
        now, before = (self._replay_by(e) for e in (self._edits, self._edits_before))
        replays = [now, before] if self._first < NOTHING else [now]
        to_be_made, ids = self._to_be_made(), self._ids_before()
        self._beginning.let_go()
        self._pools = self._pool_of(before), self._pool_of(now)

        def warm_up(some: list[Record]) -> Course[None]:
            for _ in parted(some, self._judger):
                pass
            yield from ()

        def take(some: list[Record]) -> Course[None]:
            for records, decoded in parted(some, self._judger):
                if decoded is None:
                    for replay in replays:
                        replay.pass_by(records[0])
                    continue
                own = self._own(records, decoded)
                if own is not None and to_be_made:
                    ids.add(own[1])
                for replay in replays:
                    replay.rate(records, decoded, self.ladder)
            yield from ()

        yield from self._read(self._rounds_from, self._offset, warm_up)
        first = self._offset
        for offset in to_be_made:
            yield from self._read(first, offset, take)
            yield from self._make_checkpoint(offset, now, ids)
            first = offset
        yield from self._read(first, self.at, take)
        self._pools = self._pool_of(before), self._pool_of(now)
        self._known = last

    def _replay_by(self, edits: Edits) -> Replay:
        verdicts = Verdicts.of_ladder(self.ladder, self.partition, edits)
        replay = Replay(self._log.ladders, 0, verdicts=verdicts, judge=self._judger)
        if self._beginning.head is not None:
            replay.go_on(self.ladder, self._pool(edits))
        return replay

    def _pool_of(self, replay: Replay) -> Pool:
        return replay.pools.get(self.ladder) or Pool(Ladder(rating=self._rating))

    @property
    def _all_places(self) -> tuple[Place, ...]:
        """Of all corrections that are accepted now."""
        return (*self._places, *((each.record.offset, self.at) for each in self.accepted))

    def _to_be_made(self) -> list[int]:
        """The offsets of the checkpoints that the second pass makes."""
        if not self._every:
            return []
        return self._checkpoints.due(self._offset, self.at, self._every, self._all_places)

    def _make_checkpoint(self, offset: int, replay: Replay, ids: IdFilter) -> Course[None]:
        pool = replay.pools.get(self.ladder)
        if pool is None:
            return
        amended = [int(each.time[0]) for each in self._edits.amended.values()]
        self._add_amended(ids)
        head = Head(
            offset, self._log.rules(self.ladder, offset), self._all_places, self._known.last,
            max([self._known.time, *amended]), self._known.completed_at, 0,
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
        """By which the ladder's ratings are displayed."""
        return stages.rule_of(self._rating, self._edits.started)

    def corrected(self) -> Iterator[Corrected]:
        """The players whose beliefs change, some at a time."""
        if self._pools is None or self._first == NOTHING:
            return
        yield from differing(*self._pools, self._offset, self.rule)
