"""Follows the standings of past seasons, beside the events. Their topic need not exist, and the
right to read it may be missing: then there are no past seasons."""

from collections.abc import Callable

from stream_rater.contract.errors import Denied, Trouble, Unrecoverable
from stream_rater.contract.season_ended import record_of
from stream_rater.index.log import FollowedLog, FollowedTopic
from stream_rater.index.writer import IndexWriter

LOOK_S = 10.0  # The interval at which it looks for the topic, while there is none.
DENIED_S = 60.0  # The pause after a denied right.
AT_ONCE = 50  # The most batches of records in one call.
FIRST_WAIT_S = 0.2


class SeasonFollower:
    """Keeps the standings in the index up to date."""

    def __init__(
        self, log: FollowedLog, writer: IndexWriter, trouble: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        """`trouble` receives what failed and is tried again."""
        self._log, self._writer, self._trouble, self._clock = log, writer, trouble, clock
        self._topic: FollowedTopic | None = None
        self._positions: list[int] = []
        self._ends: list[int] = []
        self._again_s, self._whole = clock(), False
        self.caught_up = False
        """Whether every record that existed when reading began is written, as far as this process
        may read them."""

    def poll(self) -> None:
        """Write what has arrived. Nothing is raised: what fails is tried again later."""
        if self._clock() < self._again_s:
            return
        try:
            self._poll()
        except (Denied, Unrecoverable) as error:
            self.caught_up = True  # nothing else needs the right, or the file
            self._pause(str(error), DENIED_S)
        except Trouble as trouble:
            self._pause(str(trouble), LOOK_S)

    def _pause(self, why: str, pause_s: float) -> None:
        self._trouble(f"past seasons: {why}")
        self.close()
        self._again_s = self._clock() + pause_s

    def _poll(self) -> None:
        topic = self._topic or self._open()
        for _ in range(AT_ONCE if topic is not None else 0):
            assert topic is not None
            records = topic.gather(0.0 if self._whole else FIRST_WAIT_S)
            before = list(self._positions)
            for each in records:
                self._positions[each.partition] = each.offset + 1
            for partition, end in topic.reached.items():
                self._positions[partition] = max(self._positions[partition], end)
            if self._positions != before:
                found = [record_of(each.key or b"", each.value) for each in records]
                self._writer.apply_seasons(found, self._positions)
            both = zip(self._positions, self._ends, strict=True)
            self._whole = self._whole or all(at >= end for at, end in both)
            self.caught_up |= self._whole
            if not records:
                break

    def _open(self) -> FollowedTopic | None:
        """Begin to read the topic; None if it does not exist."""
        topic = self._log.standings()
        if topic is None:
            self.caught_up, self._again_s = True, self._clock() + LOOK_S
            return None
        try:
            self._ends = list(topic.ends())
            self._positions = list(self._writer.begin_seasons(topic.id, self._ends))
            topic.start_at(self._positions)
        except BaseException:
            topic.close()
            raise
        self._topic, self._whole = topic, False
        return topic

    def close(self) -> None:
        """Close the topic. The next call of `poll` opens it again."""
        if self._topic is not None:
            self._topic.close()
            self._topic = None
