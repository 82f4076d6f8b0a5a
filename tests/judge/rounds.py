"""Judges what becomes of each record of `round-completed`: accepted, or rejected once."""

from collections.abc import Mapping

from tests.judge.accepted import ROUND, SEEDS, Read, read
from tests.judge.changes import Changes, Due
from tests.judge.edited import EditedLadder, Names, Verdict, Window
from tests.judge.findings import Findings
from tests.judge.observations import Run, Seen

Rejections = Mapping[tuple[int, int], Seen]
"""The record of `round-rejected` about each place in `round-completed`."""


class Rounds:
    """Judges the records of `round-completed`, those of each partition in order."""

    def __init__(self, run: Run, rejected: Rejections, findings: Findings) -> None:
        self._run, self._rejected, self._findings = run, rejected, findings
        self.ladders: dict[str, EditedLadder] = {}
        self.changes = Changes(run, self.ladders, findings)
        self._windows: dict[int, Window] = {}
        self._names = Names()
        self._at: dict[int, list[str]] = {}
        """The ladders of each partition."""
        self._explained: set[tuple[int, int]] = set()
        """The places of records that were rightly rejected."""

    def see(self, record: Seen) -> None:
        """Judge a record."""
        found, place = read(record, self._run), (record.p, record.o)
        self._findings.checked["records of round-completed"] += 1
        rejection = self._rejected.get(place)
        ladder = self._ladder(found.ladder, record.p) if found.ladder else None
        if self._valid(found, record, rejection):
            assert ladder is not None
            if found.kind == ROUND:
                self._findings.checked["accepted rounds"] += 1
                due = Due(
                    ROUND, found.body["round_id"], found.body["completed_at"],
                    ladder.add(record.o, found),
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
        """Compare the verdict with the rejection, if there is one. Returns whether the record is
        accepted."""
        where = f"round-completed-{record.p}@{record.o}"
        said = "accepted" if rejection is None else rejection.header("error-code")
        if rejection is not None:
            self._explained.add(place)
            self._findings.checked["rejections"] += 1
            if rejection.v != record.v and not rejection.header("original-bytes"):
                self._findings.wrong("rejection", place, where, "its value is another's")
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
                due = Due(found.kind, "", "", {}, everyone=True)
                self.changes.due(found.ladder, record.o, due)
            return
        if self._judged(ladder.verdict(found), record, record.o):
            ladder.correct(record.o, found)
            if found.kind != "season-started":
                due = Due(found.kind, body.get("round_id", ""), "", {}, everyone=True)
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
        sure = [each for each in players if each not in ladder.touched and not _merged(ladder)]
        plays = {p for p in sure if ladder.counts.get(p, 0) > 0 or p in ladder.seeded}
        must = [each for each in sure if (each in plays) == is_reset]
        may = frozenset(players) - frozenset(sure)
        rounds = {each["player"]: each.get("rounds") or 1 for each in rows}
        if not is_reset:
            ladder.seeded.update(players)
        self._findings.checked["seeds and resets"] += 1
        return Due(
            found.kind, body["round_id"], body["at"], dict.fromkeys(must), may,
            rounds={} if is_reset else rounds,
        )  # fmt: skip

    def finish(self) -> None:
        """Judge what never came."""
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
    return Seen(t="rounds", p=record.p, o=offset, v=rejection.v if rejection else None)
