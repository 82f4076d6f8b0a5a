"""Works a ladder's corrections in: reads the ladder's rounds again, and finds whose belief changes.

The job is a pure function of the log before the corrections' offset c, and of the ladders file:
whoever repeats it finds the same beliefs, to the bit. It has two passes through the log, in pieces:

1. *Judge*: read which rounds and players there were, and judge the corrections.
2. *Replay*: rate all rounds before c twice, by the edits of before and by those of now. The players
   whose records then differ are those to be corrected.

The log is read from its start.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.config import Ladder, Ladders
from stream_rater.contract.corrections import EVENT_TYPE, Correction
from stream_rater.contract.record import Record
from stream_rater.pipeline.correction_ports import NotedCorrection, ReadAgain
from stream_rater.pipeline.edits_in_force import APPLIED, correction_of
from stream_rater.pipeline.ports import LogStarts, Step, ask
from stream_rater.rating import record as belief_record
from stream_rater.rating import systems
from stream_rater.rating.model import newcomers
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.systems import RatingRule
from stream_rater.replay.edits import Edits
from stream_rater.replay.ledger import Ledger
from stream_rater.replay.pool import Pool
from stream_rater.replay.sequential import Judge, Replay, batches_of
from stream_rater.replay.verdicts import Verdicts
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.corrections import decode, places_of
from stream_rater.rounds.decoder import DecodedRounds
from stream_rater.rounds.validation import Invalid

NOTHING = 2**62
"""An offset after every round's."""

PIECE_BYTES = 2**17
"""About how many bytes of records are worked through before other rounds have their turn."""

AT_ONCE = 5000
"""About how many players are compared at a time."""


class Proposed(NamedTuple):
    """A correction that is to be judged."""

    record: Record
    correction: Correction


class Judged(NamedTuple):
    """How the records of the log are judged."""

    ladders: Ladders
    window: int
    partitions: int

    def judge(self) -> Judge:
        """A judge of the log from its start."""
        return Judge(self.ladders, self.window, self.partitions)

    def correction(self, record: Record) -> Correction:
        """The well-formed correction in a record. Raises Invalid."""
        return decode(record, self.ladders, self.partitions)


class Corrected(NamedTuple):
    """Some players whose beliefs change."""

    players: list[str]
    records: list[bytes]
    """Their records now; `last` is the offset of their last round."""


NOBODY = Corrected([], [])


class CorrectionJob:
    """Works in corrections of one ladder, all at the offset `at`."""

    def __init__(
        self, ladder: str, partition: int, at: int, proposed: Sequence[Proposed],
        waiting: Sequence[NotedCorrection], accepted: Sequence[NotedCorrection], log: Judged,
    ) -> None:  # fmt: skip
        """`waiting`: corrections before `at` that are worked in with the proposed ones.
        `accepted`: the ladder's corrections that were worked in before, in that order."""
        self.ladder = ladder
        self.partition = partition
        self.at = at
        self.proposed = list(proposed)
        self.refused: list[tuple[Record, Invalid]] = []
        """Of the proposed corrections, those that are refused, once they are judged."""
        self.accepted: list[Proposed] = []
        """And the others."""
        self.completed_at = ""
        """When the ladder's last round before was completed, as reported."""
        self._log = log
        self._before = list(accepted)
        self._next = 0
        """The next offset to work through."""
        self._read_ahead: deque[list[Record]] = deque()
        """Pieces that were read."""
        self._replays: tuple[Replay, Replay] | None = None
        """By the edits of before and by those of now, in the second pass."""
        self._first = NOTHING
        """The first round that the proposed corrections change, once they are judged."""
        self._judge = log.judge()
        noted = [correction_of(each) for each in (*self._before, *waiting)]
        asked = [*noted, *(each.correction for each in proposed)]
        self._ledger = Ledger(asked, self._judge.round_decoder.read)
        self._noted_waiting = list(waiting)
        self._waiting = {each.offset for each in waiting}
        self._places = {each.offset for each in self._before}
        self._records: dict[int, Record] = {}
        """By offset, the corrections that were accepted before."""

    @property
    def progress(self) -> float:
        """The share of the work that is done, from 0 to 1."""
        return min(1.0, 0.5 * (self._next / max(1, self.at) + (self._replays is not None)))

    # --- reading ---

    def step(self) -> Step[bool]:
        """Read and work through the next piece of the log. Returns whether the job is done."""
        if not self._read_ahead:
            if self._next == 0 and self._replays is None:
                starts = yield from ask(LogStarts(frozenset([self.partition])))
                if start := starts[self.partition]:
                    self._refuse_all(start)
                    return True
            records = yield from ask(ReadAgain(self.partition, self._next, self.at))
            self._read_ahead.extend(batches_of(records, PIECE_BYTES))
        if self._read_ahead:
            piece = self._read_ahead.popleft()
            self._next = piece[-1].offset + 1
            self._read(piece)
            return False
        if self._replays is not None:
            return True
        self._judge_proposed()
        if self._first == NOTHING:
            return True
        self._begin_replay()
        return False

    def _read(self, records: Sequence[Record]) -> None:
        first = 0
        for i in [*places_of(records), len(records)]:
            rounds = records[first:i]
            self._read_rounds(rounds, self._judge.decode(rounds))
            first = i + 1
            if i < len(records):
                self._read_correction(records[i])

    def _read_rounds(self, records: Sequence[Record], decoded: DecodedRounds) -> None:
        if self._replays is None:
            self._know(records, decoded)
            return
        for replay in self._replays:
            replay.rate(records, decoded, self.ladder)

    # --- the first pass ---

    def _know(self, records: Sequence[Record], decoded: DecodedRounds) -> None:
        heads, own = decoded.rounds.heads, decoded.valid(records)
        mine = [i for i, head in enumerate(heads) if head.ladder == self.ladder]
        if not mine:
            return
        self.completed_at = heads[mine[-1]].completed_at
        rounds: RoundBatch = decoded.rounds.take(np.array(mine, np.int64))
        offsets: Ints = np.array([own[i].offset for i in mine], np.int64)
        self._ledger.add(rounds, offsets, self.partition)

    def _read_correction(self, record: Record) -> None:
        """Remember a correction that was accepted; judge those that were worked in here. In the
        second pass, start a season."""
        if self._replays is not None:
            for replay in self._replays:
                replay.pass_by(record)
            return
        if record.offset in self._waiting:
            self.proposed.append(Proposed(record, self._log.correction(record)))
        if record.offset in self._places:
            self._records[record.offset] = record
        for noted in [each for each in self._before if each.at == record.offset]:
            if noted.event_type != APPLIED:
                known = self._records[noted.offset]
                correction = self._log.correction(known)
                self._ledger.judge(correction, known.received_s, noted.offset)

    def _judge_proposed(self) -> None:
        self._edits_before: Edits = self._ledger.edits
        for each in self.proposed:
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

    def _refuse_all(self, start: int) -> None:
        """The log does not hold its first rounds any more: no replay can tell what they taught."""
        there = [(each.record, each.correction) for each in self.proposed]
        for noted in self._noted_waiting:
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

    # --- the second pass ---

    def _begin_replay(self) -> None:
        self._judge = self._log.judge()
        both = [
            Verdicts.of_ladder(self.ladder, self.partition, each)
            for each in (self._edits_before, self._ledger.edits)
        ]
        before, now = (Replay(self._log.ladders, 0, verdicts=v, judge=self._judge) for v in both)
        self._replays, self._next = (before, now), 0

    @property
    def _rating(self) -> RatingConfig:
        terms = self._log.ladders.find(self.ladder, self.at)
        assert terms is not None, "it was accepted"
        return terms.rating

    @property
    def rule(self) -> RatingRule:
        """By which the ladder's ratings are displayed."""
        return systems.rule_of(self._rating, self._ledger.edits.started)

    def _records_of(self, pool: Pool, rows: Ints) -> list[bytes]:
        """The records of these players. Who has no round left is as new as anybody at `at`."""
        new = newcomers(1, 1, self.rule.initial_mu, self.rule.initial_sigma, coded=True)
        (nobody,) = belief_record.encode(new)
        rounds = pool.headers(rows)["rounds"].tolist()
        both = zip(pool.records(rows), rounds, strict=True)
        return [data if played else nobody for data, played in both]

    def corrected(self) -> Iterator[Corrected]:
        """The players whose beliefs change, some at a time."""
        if self._replays is None:
            return
        nobody = Ladder(rating=self._rating)
        before, now = (each.pools.get(self.ladder) or Pool(nobody) for each in self._replays)
        now.rows(before.names)  # now it has all players
        names = now.names
        old = before.rows(names)
        for first in range(0, len(names), AT_ONCE):
            rows = np.arange(first, min(first + AT_ONCE, len(names)))
            played = now.headers(rows)["rounds"] + before.headers(old[rows])["rounds"]
            rows = rows[played > 0]
            own = self._records_of(now, rows)
            both = zip(own, before.records(old[rows]), strict=True)
            changed = zip(rows.tolist(), both, strict=True)
            differ = {row: one for row, (one, other) in changed if one != other}
            if not differ:
                yield NOBODY
            else:
                yield Corrected(names.take(np.array(list(differ))).texts(), list(differ.values()))
