"""Judges the files of a run: first answers and rejections, then all records as they were read."""

from array import array
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from zlib import crc32

from tests.judge.accepted import ROUND, SEEDS, Read, read
from tests.judge.answers import Answers, Door
from tests.judge.changes import Changes, Due
from tests.judge.edited import EditedLadder, Names, Verdict, Window
from tests.judge.observations import (
    Answered,
    BadObservations,
    End,
    Findings,
    Run,
    Seen,
    Sent,
    Streamed,
    encode,
    others_of,
    records_of,
)

Rejections = Mapping[tuple[int, int], Seen]  # By place of the record, its rejection.


class Rounds:
    """Judges the records of `round-completed`, those of each partition in order."""

    def __init__(self, run: Run, rejected: Rejections, findings: Findings) -> None:
        self._run, self._rejected, self._findings = run, rejected, findings
        self.ladders: dict[str, EditedLadder] = {}
        self.changes = Changes(run, self.ladders, findings)
        self._windows: dict[int, Window] = {}
        self._names = Names()
        self._at: dict[int, list[str]] = {}  # the ladders of each partition
        self._explained: set[tuple[int, int]] = set()  # where records were rightly rejected

    def see(self, record: Seen) -> None:
        found, place = read(record, self._run), (record.p, record.o)
        self._findings.checked["records of round-completed"] += 1
        rejection = self._rejected.get(place)
        ladder = self._ladder(found.ladder, record.p) if found.ladder else None
        if self._valid(found, record, rejection):
            assert ladder is not None
            if found.kind == ROUND:
                self._findings.checked["accepted rounds"] += 1
                documented = self.changes.documented(found.ladder, record.o)
                computed = documented and not ladder.corrections and documented.judges(found.body)
                due = Due(
                    ROUND, found.body["round_id"], found.body["completed_at"],
                    ladder.add(record.o, found), body=found.body if computed else {},
                )  # fmt: skip
                self.changes.due(found.ladder, record.o, due)
            elif found.kind in SEEDS:
                self.changes.due(found.ladder, record.o, self._seeded(ladder, record.o, found))
            else:
                self._correct(ladder, found, record)
        for name in self._at.get(record.p, ()):
            self.changes.passed(name, record.o)

    def _ladder(self, name: str, partition: int) -> EditedLadder:
        if name not in self.ladders:
            self.ladders[name] = EditedLadder(self._names)
            self._at.setdefault(partition, []).append(name)
        return self.ladders[name]

    def _valid(self, found: Read, record: Seen, rejection: Seen | None) -> bool:
        """Whether a record is accepted; a correction is then judged further."""
        codes, place = found.codes, (record.p, record.o)
        open_ = found.open and not codes
        if not codes and found.kind in (ROUND, *SEEDS):
            if open_ and rejection and rejection.header("error-code") != "duplicate-round":
                pass  # taken as invalid: then its id does not count as seen
            elif self._window(record.p).is_repeated(found.ladder, found.body["round_id"], record.o):
                codes, open_ = frozenset({"duplicate-round"}), False
        if found.kind in (ROUND, *SEEDS) or codes:
            return self._decided(codes, open_, place, rejection, record)
        return True

    def _window(self, partition: int) -> Window:
        if partition not in self._windows:
            self._windows[partition] = Window(self._run.window)
        return self._windows[partition]

    def _decided(
        self, codes: frozenset[str], open_: bool, place: tuple[int, int], rejection: Seen | None,
        record: Seen,
    ) -> bool:  # fmt: skip
        """Compare verdict and rejection, if any. Returns whether the record is accepted."""
        where = f"round-completed-{record.p}@{record.o}"
        said = "accepted" if rejection is None else rejection.header("error-code")
        if rejection is not None:
            self._explained.add(place)
            self._findings.checked["rejections"] += 1
            if rejection.v != record.v and not rejection.header("original-bytes"):
                self._findings.wrong("rejection", place, where, "its value is another's")
            if rejection.key != record.key:
                self._findings.wrong("rejection", place, where, f"its key is {rejection.key!r}")
        if open_:
            self._findings.left_open["verdicts that the texts leave open"] += 1
            return rejection is None
        if (rejection is None) != (not codes) or (rejection is not None and said not in codes):
            must = " or ".join(sorted(codes)) or "accepted"
            self._findings.wrong("verdict", place, where, f"{said}, not {must}: {record.v!s:.200}")
        return not codes and rejection is None

    def _correct(self, ladder: EditedLadder, found: Read, record: Seen) -> None:
        body = found.body
        if body.get("batched") is True and found.kind not in (
            "season-started", "corrections-applied",
        ):  # fmt: skip
            ladder.waiting.append((record.o, found))
            return
        if found.kind == "corrections-applied":
            waiting, ladder.waiting = ladder.waiting, []
            open_ = not waiting
            if self._judged(Verdict(open=open_), record, record.o):
                for offset, each in waiting:
                    if self._judged(ladder.verdict(each), record, offset):
                        ladder.correct(record.o, each)
                ladder.corrections[record.o] = found.kind
                due = Due(found.kind, "", ladder.newest_time, {}, everyone=True)
                self.changes.due(found.ladder, record.o, due)
            return
        if self._judged(ladder.verdict(found), record, record.o):
            ladder.correct(record.o, found)
            if found.kind != "season-started":
                due = Due(
                    found.kind, body.get("round_id", ""), ladder.newest_time, {}, everyone=True
                )
                self.changes.due(found.ladder, record.o, due)

    def _judged(self, verdict: Verdict, record: Seen, offset: int) -> bool:
        self._findings.checked["corrections"] += 1
        place = record.p, offset
        rejection = self._rejected.get(place)
        mine = record if offset == record.o else _at(record, offset, rejection)
        return self._decided(verdict.codes, verdict.open, place, rejection, mine)

    def _seeded(self, ladder: EditedLadder, offset: int, found: Read) -> Due:
        """What must, and what may, come of a seed or a reset."""
        body = found.body
        is_reset = found.kind == "player-reset"
        rows = [body] if is_reset else body["players"]
        players = tuple(each["player"] for each in rows)
        ladder.seeds[body["round_id"]] = offset, players
        ladder.newest_time = body["at"]
        sure = [each for each in players if each not in ladder.touched and not _merged(ladder)]
        plays = {p for p in sure if ladder.counts.get(p, 0) > 0 or p in ladder.seeded}
        must = [each for each in sure if (each in plays) == is_reset]
        may = frozenset(players) - frozenset(sure)
        given = {
            each["player"]: {
                **({} if ladder.corrections or each["player"] not in must else each),
                **({} if is_reset else {"rounds": each.get("rounds") or 1}),
            }
            for each in rows
        }
        if not is_reset:
            ladder.seeded.update(players)
        self._findings.checked["seeds and resets"] += 1
        return Due(found.kind, body["round_id"], body["at"], dict.fromkeys(must), may, given=given)

    def finish(self) -> None:
        for place, rejection in self._rejected.items():
            if place not in self._explained:
                self._findings.wrong(
                    "rejection", place, f"round-rejected-{rejection.p}@{rejection.o}",
                    f"{rejection.header('error-code')} of a record that is not there, or waits",
                )  # fmt: skip
        self.changes.finish()


def _merged(ladder: EditedLadder) -> bool:
    return any(kind == "player-merged" for kind in ladder.corrections.values())


def _at(record: Seen, offset: int, rejection: Seen | None) -> Seen:
    """The record of a batched correction, as its rejection repeats it."""
    found = rejection or Seen(t="rounds", p=record.p, o=offset, v=None)
    return Seen(t="rounds", p=record.p, o=offset, v=found.v, key=found.key)


NOTHING = 0  # the checksum of an offset at which the first reader saw no record


def checksum(record: Seen) -> int:
    return crc32(encode((record.key, record.v, record.h))) or 1


class Readers:
    """Keeps four bytes for each offset that the first reader has read."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._first: dict[tuple[str, int], array[int]] = {}
        self._next: dict[tuple[str, int], int] = {}  # the next offset of the other reader
        self._began: dict[tuple[str, int], int] = {}
        self.absent: list[tuple[str, int, int]] = []  # what only the first reader saw

    def first(self, record: Seen) -> bool:
        """Take a record of the first reader. False if it was read before, or comes too late."""
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
        """Judge what is absent: of compacted events only the `newest` (partition, offset) stay."""
        for topic, partition, offset in self.absent:
            if topic == "changed" and (partition, offset) not in newest:
                self._findings.left_open["events that compaction may have removed"] += 1
                continue
            self._findings.wrong(
                "lost", topic, f"{topic}-{partition}@{offset}", "read before, and not there again"
            )


class Judge:
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
    return Judge().judge(files)
