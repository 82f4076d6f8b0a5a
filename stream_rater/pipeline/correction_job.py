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

from stream_rater.columns.arrays import Ints
from stream_rater.config import Ladder
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrected_players import Corrected, differing
from stream_rater.pipeline.correction_ports import NotedCorrection, ReadAgain
from stream_rater.pipeline.edits_in_force import APPLIED, LadderEdits, correction_of
from stream_rater.pipeline.judged_log import Judged, Known, Proposed
from stream_rater.pipeline.kept_checkpoints import Course, KeptCheckpoints
from stream_rater.pipeline.ports import LogStarts, Step, ask
from stream_rater.rating import systems
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.systems import RatingRule
from stream_rater.replay import checkpoint
from stream_rater.replay.checkpoint import Head, Place, Unusable
from stream_rater.replay.edits import Edits
from stream_rater.replay.ledger import Base, Earlier, Ledger
from stream_rater.replay.pool import Pool
from stream_rater.replay.sequential import Replay, batches_of
from stream_rater.replay.verdicts import Verdicts
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.corrections import names_in, places_of
from stream_rater.rounds.decoder import DecodedRounds
from stream_rater.rounds.validation import Invalid

NOTHING = 2**62
"""An offset after every round's."""

PIECE_BYTES = 2**17
"""About how many bytes of records are worked through before other rounds have their turn."""


class CorrectionJob:
    """Works in corrections of one ladder, all at the offset `at`."""

    def __init__(
        self, ladder: str, partition: int, at: int, proposed: Sequence[Proposed] | None,
        waiting: Sequence[NotedCorrection], accepted: Sequence[NotedCorrection], log: Judged,
    ) -> None:  # fmt: skip
        """`waiting`: corrections before `at` that are worked in with the proposed ones.
        `accepted`: the ladder's corrections that were worked in before, in that order.

        `proposed` is None: there is nothing to work in, the job makes a checkpoint at `at`.
        """
        self.ladder = ladder
        self.partition = partition
        self.at = at
        self.refused: list[tuple[Record, Invalid]] = []
        """Of the proposed corrections, those that are refused, once they are judged."""
        self.accepted: list[Proposed] = []
        """And the others."""
        self.deleted_before = 0
        """Where the log starts, if that is not its first record: then nothing is worked in."""
        self.made: int | None = None
        """The number of players in the checkpoint at `at`, if the job has made one."""
        self.progress = 0.0
        """The share of the work that is done, from 0 to 1."""
        self._log = log
        self._only_checkpoint = proposed is None
        self._every = 1 if self._only_checkpoint else log.checkpoint_every
        self._given = list(proposed or ())
        self._waiting = {each.offset: each for each in waiting}
        self._before = list(accepted)
        self._asked = [
            *(correction_of(each) for each in (*self._before, *waiting)),
            *(each.correction for each in self._given),
        ]
        self._checkpoints = KeptCheckpoints(ladder)
        self._course = self._work()
        self._pools: tuple[Pool, Pool] | None = None
        """Before and now, once they are replayed."""
        self._begin(None, [])

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
        starts = yield from ask(LogStarts(frozenset([self.partition])))
        if start := starts[self.partition]:
            self.deleted_before = start
            self._refuse_all(start)
            return
        yield from self._judge_all()
        if self._first < NOTHING or self._only_checkpoint:
            yield from self._replay()
        yield from ask(ReadAgain(self.partition, self.at, self.at))  # whoever reads may let go

    def _refuse_all(self, start: int) -> None:
        """The log does not hold its first rounds any more: no replay can tell what they taught."""
        there = [(each.record, each.correction) for each in self._given]
        for noted in self._waiting.values():
            headers = ((EVENT_TYPE, noted.event_type.encode()),)
            value = bytes(noted.correction)
            there.append(
                (Record(self.partition, noted.offset, value, headers), correction_of(noted))
            )
        for record, correction in there:
            text = f"round-completed begins at offset {start}: the rounds before it were deleted"
            invalid = Invalid("unknown-round", text)
            invalid.tell(self.ladder, getattr(correction, "round_id", ""))
            self.refused.append((record, invalid))

    # --- where to begin ---

    def _judge_all(self) -> Course[None]:
        """The first pass, from the newest checkpoint that is good for it, or from the start."""
        if self._every:
            yield from self._checkpoints.find()
        for head in self._checkpoints.heads:
            if self._may_begin_at(head):
                try:
                    self._begin(head, (yield from self._checkpoints.read(head)))
                    yield from self._judge()
                except (Earlier, Unusable):
                    continue
                return
        self._begin(None, [])
        yield from self._judge()

    def _may_begin_at(self, head: Head) -> bool:
        known = head.whole and head.offset <= self.at and head.follows(self._places)
        return known and head.rules == self._log.rules(self.ladder, head.offset)

    @property
    def _places(self) -> list[Place]:
        """Of the corrections that were worked in before."""
        return [each.place for each in self._before if each.event_type != APPLIED]

    def _begin(self, head: Head | None, pieces: Sequence[bytes]) -> None:
        """Begin at a checkpoint with these pieces, or at the log's start."""
        self._head, self._pieces = head, pieces
        self._offset = 0 if head is None else head.offset
        self._judger = self._log.judge()
        self._first = NOTHING
        """The first round that the proposed corrections change, once they are judged."""
        self._known = Known()
        self._in_checkpoint: set[Place] = set()
        """The corrections that it knows."""
        base = None
        if head is not None:
            self._known = Known(head.last, head.time, head.completed_at)
            self._in_checkpoint = set(head.corrections)
            edits = LadderEdits(each for each in self._before if self._is_in(each)).last
            pool = self._pool(edits)
            names = {name for each in self._asked for name in names_in(each)}
            base = Base(edits, head.time, {name for name in names if name in pool})
        self._known_before = self._known
        self._ledger = Ledger(self._asked, self._judger.round_decoder.read, base)
        self._edits_before = self._ledger.edits

    def _is_in(self, noted: NotedCorrection) -> bool:
        """Whether the checkpoint knows a correction."""
        return noted.place in self._in_checkpoint

    def _pool(self, edits: Edits) -> Pool:
        """The players of the checkpoint, where the job begins."""
        started = tuple(each.season for each in edits.seasons if each.offset < self._offset)
        terms = self._log.ladders.find(self.ladder, self._known.last[0])
        assert terms is not None, "the checkpoint has a round"
        return checkpoint.pool_of(Ladder(rating=terms.rating), started, self._pieces)

    @property
    def _rounds_from(self) -> int:
        """From where the rounds are read; those before the checkpoint only for duplicates."""
        return 0 if self._head is None else self._head.read_from(self._log.window)

    # --- reading ---

    def _read(self, first: int, end: int, take: Callable[[list[Record]], object]) -> Course[None]:
        """Give `take` all records from `first` to before `end`, in pieces."""
        while first < end:
            records = yield from ask(ReadAgain(self.partition, first, end))
            if not records:
                return
            for piece in batches_of(records, PIECE_BYTES, mixed=True):
                take(piece)
                share = piece[-1].offset / max(1, self.at)
                self.progress = min(1.0, 0.5 * (share + (self._pools is not None)))
                yield None
            first = records[-1].offset + 1

    def _rounds_between(
        self, records: Sequence[Record], correction: Callable[[Record], None]
    ) -> Iterator[tuple[Sequence[Record], DecodedRounds]]:
        """The rounds in some records, together up to each correction, which `correction` gets."""
        first = 0
        for i in [*places_of(records), len(records)]:
            if rounds := records[first:i]:
                yield rounds, self._judger.decode(rounds)
            first = i + 1
            if i < len(records):
                correction(records[i])

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
        proposed, records = list[Proposed](), dict[int, Record]()
        wanted = {each.offset for each in self._before if each.at >= self._offset}

        def remember(record: Record) -> None:
            if record.offset in self._waiting:
                proposed.append(Proposed(record, self._log.correction(record)))
            if record.offset in wanted:
                records[record.offset] = record

        head, proven = self._head, self._head is None

        def warm_up(some: list[Record]) -> None:
            nonlocal proven
            for rounds, _ in self._rounds_between(some, remember):
                proven |= head is not None and head.is_last_in(rounds)

        def meet(record: Record) -> None:
            """Judge the corrections that were worked in here."""
            remember(record)
            for noted in [each for each in self._before if each.at == record.offset]:
                if noted.event_type != APPLIED:
                    self._again(noted, records[noted.offset])

        def take(some: list[Record]) -> None:
            for rounds, decoded in self._rounds_between(some, meet):
                if (own := self._own(rounds, decoded)) is not None:
                    offsets: Ints = np.array([each.offset for each in own[0]], np.int64)
                    self._ledger.add(own[1], offsets, self.partition)

        first = min([self._rounds_from, *wanted, *self._waiting])
        yield from self._read(first, self._offset, warm_up)
        if not proven:
            raise Unusable("the log has no such last round")
        yield from self._read(self._offset, self.at, take)
        self._judge_proposed([*self._given, *proposed])

    def _again(self, noted: NotedCorrection, record: Record) -> None:
        """Judge a correction that was accepted, where it was worked in."""
        correction = self._log.correction(record)
        if self._is_in(noted):
            self._ledger.repeat(correction, record.received_s)
        else:
            self._ledger.judge(correction, record.received_s, noted.offset)

    def _judge_proposed(self, proposed: Sequence[Proposed]) -> None:
        self._edits_before = self._ledger.edits
        for each in proposed:
            try:
                first = self._ledger.judge(
                    each.correction, each.record.received_s, each.record.offset
                )
            except Invalid as invalid:
                invalid.tell(self.ladder, getattr(each.correction, "round_id", ""))
                self.refused.append((each.record, invalid))
            else:
                self.accepted.append(each)
                self._first = min(self._first, NOTHING if first is None else first)

    # --- the second pass ---

    def _replay(self) -> Course[None]:
        last, self._known = self._known, self._known_before
        self._judger = self._log.judge()
        now, before = (self._replay_by(e) for e in (self._ledger.edits, self._edits_before))
        replays = [now, before] if self._first < NOTHING else [now]
        self._pieces = []
        self._pools = self._pool_of(before), self._pool_of(now)

        def pass_by(record: Record) -> None:
            for replay in replays:
                replay.pass_by(record)

        def warm_up(some: list[Record]) -> None:
            for _ in self._rounds_between(some, lambda _: None):
                pass

        def take(some: list[Record]) -> None:
            for rounds, decoded in self._rounds_between(some, pass_by):
                self._own(rounds, decoded)
                for replay in replays:
                    replay.rate(rounds, decoded, self.ladder)

        yield from self._read(self._rounds_from, self._offset, warm_up)
        first = self._offset
        for offset in self._to_be_made():
            yield from self._read(first, offset, take)
            yield from self._make_checkpoint(offset, now)
            first = offset
        yield from self._read(first, self.at, take)
        self._pools = self._pool_of(before), self._pool_of(now)
        self._known = last

    def _replay_by(self, edits: Edits) -> Replay:
        verdicts = Verdicts.of_ladder(self.ladder, self.partition, edits)
        replay = Replay(self._log.ladders, 0, verdicts=verdicts, judge=self._judger)
        if self._head is not None:
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
        renewed = {
            each.offset
            for each in self._checkpoints.heads
            if self._offset < each.offset < self.at and each.corrections != self._all_places
        }
        if self.at - max(renewed | {self._offset}) >= self._every:
            renewed.add(self.at)
        return sorted(renewed)

    def _make_checkpoint(self, offset: int, replay: Replay) -> Course[None]:
        pool = replay.pools.get(self.ladder)
        if pool is None:
            return
        amended = [int(each.time[0]) for each in self._ledger.edits.amended.values()]
        head = Head(
            offset, self._log.rules(self.ladder, offset), self._all_places, self._known.last,
            max([self._known.time, *amended]), self._known.completed_at, 0,
        )  # fmt: skip
        players = yield from self._checkpoints.keep(head, pool, self.at)
        if offset == self.at:
            self.made = players

    # --- what it finds ---

    @property
    def _rating(self) -> RatingConfig:
        terms = self._log.ladders.find(self.ladder, self.at)
        assert terms is not None, "it was accepted"
        return terms.rating

    @property
    def rule(self) -> RatingRule:
        """By which the ladder's ratings are displayed."""
        return systems.rule_of(self._rating, self._ledger.edits.started)

    def corrected(self) -> Iterator[Corrected]:
        """The players whose beliefs change, some at a time."""
        if self._pools is None or self._first == NOTHING:
            return
        yield from differing(*self._pools, self._offset, self.rule)
