"""Compares what two readers, or one reader at two times, read committed: at one offset there is one
record, and what was read does not disappear."""

from array import array
from collections.abc import Collection
from zlib import crc32

from tests.judge.findings import Findings
from tests.judge.observations import Seen, encode

NOTHING = 0
"""The checksum of an offset at which the first reader saw no record."""


def checksum(record: Seen) -> int:
    """A checksum of key, value and headers, never NOTHING."""
    return crc32(encode((record.key, record.v, record.h))) or 1


class Readers:
    """Keeps four bytes for each offset that the first reader has read."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._first: dict[tuple[str, int], array[int]] = {}
        self._next: dict[tuple[str, int], int] = {}
        """The next offset of the other reader."""
        self._began: dict[tuple[str, int], int] = {}
        self.absent: list[tuple[str, int, int]] = []
        """What only the first reader saw."""

    def first(self, record: Seen) -> bool:
        """Take a record of the first reader. Returns False if it was read before, or comes after a
        later one."""
        known = self._first.setdefault((record.t, record.p), array("I"))
        if record.o < len(known):
            where = f"{record.t}-{record.p}@{record.o}"
            same = known[record.o] == checksum(record)
            what = "read again" if same else "another record, or one that was not there"
            if not same:
                self._findings.wrong("fork", record.key, where, f"{what}: {record.v!s:.200}")
            self._findings.checked["records read again"] += 1
            return False
        known.extend([NOTHING] * (record.o - len(known)))
        known.append(checksum(record))
        return True

    def begin(self) -> None:
        """Another reader begins."""
        self._next.clear()

    def other(self, record: Seen) -> None:
        """Compare a record of another reader."""
        place = record.t, record.p
        known = self._first.get(place, array("I"))
        expected = self._next.get(place, record.o)
        for offset in range(expected, min(record.o, len(known))):
            if known[offset] != NOTHING:
                self.absent.append((*place, offset))
        self._next[place] = record.o + 1
        if record.o >= len(known):
            self._findings.left_open["records after the first reader's end"] += 1
            return
        self._findings.checked["records compared between readers"] += 1
        if known[record.o] != checksum(record):
            self._findings.wrong(
                "fork", record.key, f"{record.t}-{record.p}@{record.o}",
                f"the first reader saw another record or none: {record.v!s:.200}",
            )  # fmt: skip

    def end(self, name: str) -> None:
        """The other reader has ended: what follows its last record is absent, too."""
        for place, known in self._first.items():
            if place in self._next:
                for offset in range(self._next[place], len(known)):
                    if known[offset] != NOTHING:
                        self.absent.append((*place, offset))
            elif any(each != NOTHING for each in known):
                self._findings.wrong("lost", name, f"{place[0]}-{place[1]}", "it saw none of these")

    def judge_absent(self, newest: Collection[tuple[int, int]]) -> None:
        """Judge what is absent. `rating-changed` is compacted, so only the newest event of each
        player must stay: those are in `newest` as partition and offset."""
        for topic, partition, offset in self.absent:
            if topic == "changed" and (partition, offset) not in newest:
                self._findings.left_open["events that compaction may have removed"] += 1
                continue
            self._findings.wrong(
                "lost", topic, f"{topic}-{partition}@{offset}", "read before, and not there again"
            )
