"""Judges the files of one run: first what was answered and rejected, then all records in the order
in which they were read."""

from collections.abc import Sequence
from pathlib import Path

from tests.judge.answers import Answers
from tests.judge.door import Door
from tests.judge.findings import Findings
from tests.judge.observations import (
    Answered,
    BadObservations,
    End,
    Run,
    Seen,
    Sent,
    Streamed,
    others_of,
    records_of,
)
from tests.judge.readers import Readers
from tests.judge.rounds import Rounds


class Judge:
    """Judges one run."""

    def __init__(self) -> None:
        self.findings = Findings()
        self._answers = Answers(self.findings)
        self._door = Door(self.findings)
        self._rejected: dict[tuple[int, int], Seen] = {}
        self._runs: dict[Path, Run] = {}
        self._ends: dict[Path, End] = {}

    def judge(self, files: Sequence[Path]) -> Findings:
        """Judge the files. Raises BadObservations for a file that is no recording."""
        reading: Path | None = None
        for path in files:
            self._collect(path, is_first=reading is None)
            if reading is None and self._runs[path].partitions:
                reading = path
        if reading is None:
            self._door.finish()
            return self.findings
        self._answers.begin()
        rounds, readers = self._first(reading)
        for path in files:
            if path != reading and self._runs[path].partitions:
                readers.begin()
                for record in records_of(path):
                    readers.other(record)
                readers.end(self._runs[path].reader)
        newest = {(each.partition, each.place) for each in rounds.changes.last.values()}
        readers.judge_absent(newest)
        rounds.finish()
        self._answers.finish()
        return self.findings

    def _collect(self, path: Path, *, is_first: bool) -> None:
        """Take everything of a file but its long topics. Rejections of the first reader count."""
        for line in others_of(path):
            match line:
                case Run():
                    self._runs[path] = line
                case Seen() if is_first:
                    self._reject(line)
                case Answered():
                    if not self._door.answer(line):
                        self._answers.answer(line)
                case Streamed():
                    self._answers.stream(line)
                    self._door.stream(line)
                case Sent():
                    self._door.sent(line)
                case End():
                    self._ends[path] = line
        if path not in self._runs:
            raise BadObservations(f"{path}:1: it does not begin with what is observed")
        if path not in self._ends:
            raise BadObservations(f"{path}: it has no last line: let the recorder end by itself")

    def _reject(self, record: Seen) -> None:
        where = f"round-rejected-{record.p}@{record.o}"
        try:
            place = int(record.header("source-partition")), int(record.header("source-offset"))
        except ValueError:
            self.findings.wrong("rejection", record.key, where, f"it has no place: {record.h}")
            return
        if (known := self._rejected.get(place)) is not None:
            if known.o != record.o:
                self.findings.wrong(
                    "doubled", place, where, f"rejected before, at {known.p}@{known.o}"
                )
            return
        self._rejected[place] = record

    def _first(self, path: Path) -> tuple[Rounds, Readers]:
        """Judge the records of the first reader."""
        readers = Readers(self.findings)
        rounds = Rounds(self._runs[path], self._rejected, self.findings)
        count = 0
        for record in records_of(path):
            count += 1
            if not readers.first(record):
                continue
            if record.t == "rounds":
                rounds.see(record)
            elif record.t == "changed" and (event := rounds.changes.see(record)) is not None:
                self._answers.event(event)
        if count != self._ends[path].records:
            what = f"{count} records, not {self._ends[path].records}"
            self.findings.wrong("recording", path.name, "its end", what)
        return rounds, readers


def judged(*files: Path) -> Findings:
    """Judge the files of a run."""
    return Judge().judge(files)
