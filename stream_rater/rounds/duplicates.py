"""The verdict on each record of a partition: valid, rejected or a duplicate (protocol step 2).

A pure function of the record, the partition it lies in, the ladders, and the W offsets before it.

Offsets order the rounds of a ladder, and they do so within one partition. So a round that lies in
another partition than its ladder's is rejected.

A duplicate has the ladder and round id of a valid record among the W offsets before it; that one
may itself be a duplicate, or else the verdict would hang on the whole log. So a round is rated once
per id within W offsets of any repetition.
"""

from collections import deque

from stream_rater.columns.sharding import ANYWHERE
from stream_rater.contract.record import Record
from stream_rater.rounds.batch import Told
from stream_rater.rounds.decoder import read_alone
from stream_rater.rounds.validation import Invalid, Reader, Standings


class Verdicts:
    """Judges one partition's records in order, remembering the ids of the last W offsets; the topic
    has so many partitions."""

    def __init__(self, reader: Reader, window: int, partitions: int = ANYWHERE) -> None:
        self._reader = reader
        self._partitions = partitions
        self._window = window
        self._recent: deque[tuple[int, tuple[str, str]]] = deque()
        self._latest: dict[tuple[str, str], int] = {}

    def judge(self, record: Record) -> Standings:
        """The round in a record; raises Invalid with the code to reject it by."""
        standings = read_alone(self._reader, record, self._partitions)
        self.check(record.offset, standings)
        return standings

    def check(self, offset: int, told: Told) -> None:
        """Remember a valid round; raises Invalid where it is a duplicate."""
        oldest = offset - self._window
        if self._recent and self._recent[0][0] < oldest:
            self._forget_before(oldest)
        round_id = (told.ladder, told.round_id)
        earlier = self._latest.get(round_id)
        self._latest[round_id] = offset
        self._recent.append((offset, round_id))
        if earlier is not None:
            twice = Invalid(
                "duplicate-round", f"round_id {round_id[1]!r} stands at offset {earlier}"
            )
            twice.tell(*round_id)
            raise twice

    def _forget_before(self, offset: int) -> None:
        while self._recent and self._recent[0][0] < offset:
            seen, round_id = self._recent.popleft()
            if self._latest[round_id] == seen:
                del self._latest[round_id]
