"""Which valid rounds are duplicates (protocol step 2): those whose id was there before.

A duplicate has the ladder and round id of a valid record among the W offsets before it, in the same
partition. That one may itself be a duplicate: otherwise a verdict would depend on the whole log. So
a round is rated once per id within W offsets of any repetition.
"""

from collections import deque

from stream_rater.rounds.validation import Invalid


class DuplicateWindow:
    """The ids of the last W offsets of one partition, whose records come in order."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._recent: deque[tuple[int, tuple[str, str]]] = deque()
        self._latest: dict[tuple[str, str], int] = {}

    def check(self, offset: int, ladder: str, round_id: str) -> None:
        """Remember a valid round; raises Invalid where it is a duplicate."""
        oldest = offset - self._window
        if self._recent and self._recent[0][0] < oldest:
            self._forget_before(oldest)
        key = (ladder, round_id)
        earlier = self._latest.get(key)
        self._latest[key] = offset
        self._recent.append((offset, key))
        if earlier is not None:
            twice = Invalid("duplicate-round", f"round_id {round_id!r} stands at offset {earlier}")
            twice.tell(ladder, round_id)
            raise twice

    def _forget_before(self, offset: int) -> None:
        while self._recent and self._recent[0][0] < offset:
            seen, key = self._recent.popleft()
            if self._latest[key] == seen:
                del self._latest[key]
