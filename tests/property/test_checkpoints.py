"""Corrections that begin at checkpoints have the outcome, to the byte, of those that do not."""

import random
from collections.abc import Container
from typing import Any

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from stream_rater.adapters.local_driver import LocalDriver, Steps, estimator_worker
from stream_rater.adapters.memory import Log, Store
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.ladders import ANY_LADDER, Ladder, Ladders
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.pipeline.corrections.correction_job import CorrectionJob
from stream_rater.pipeline.corrections.correction_validator import LogContext, QueuedCorrection
from stream_rater.pipeline.corrections.correction_work import PartOptions, Work
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.rating.parameters import EloMMR
from stream_rater.replay import checkpoint
from stream_rater.rounds.correction_records import is_correction
from stream_rater.rounds.validation import Invalid
from tests import edited_by_hand
from tests.builders.cases import cases
from tests.builders.lines import Line, a_correction, a_record, a_round, a_seed
from tests.rounds import day

from .test_corrections import some_ladders

OTHERS = Ladders(ladders={"*": Ladder(rating=EloMMR(weight_limit=0.4, sigma_limit=120.0, rho=0.3))})
"""Other parameters than ANY_LADDER has."""

LATER_S = 1.8e9  # After all rounds.
OPTIONS = PartOptions(shards=2, rows_per_part=5)


class Story:
    """One log whose corrections are applied one after the other."""

    def __init__(self, window: int, every: int, ladders: Ladders = ANY_LADDER) -> None:
        self.log = Log(1, 1)
        self.store = Store()
        self.driver: LocalDriver = estimator_worker(self.log, self.store)
        self.edits = LadderEdits()
        self.log_context = LogContext(ladders, window, 1, every)
        self.begun_at: list[int] = []
        self.codes: dict[int, str] = {}
        """Why corrections were rejected: the code by offset."""

    def perform(self, job: CorrectionJob) -> None:
        """Do all of a job's work."""
        done = False
        while not done:
            step, outcome = job.step(), None
            try:
                while True:
                    outcome = self.driver.perform(step.send(outcome))
            except StopIteration as ended:
                done = ended.value

    def correct(self, line: Line) -> Any:
        """Append a line. Of a correction, returns the codes, the notes, and who changes."""
        given = a_record(0, line)
        offset = self.log.submit(0, given.value, tuple(given.headers), LATER_S)
        record = self.log.rounds[0][offset]
        if not is_correction(record):
            return None
        try:
            queued = QueuedCorrection(record, self.log_context.correction(record))
        except Invalid as invalid:
            self.codes[offset] = invalid.code
            return invalid.code
        return self.work_in(queued)

    def work_in(self, queued: QueuedCorrection) -> Any:
        """Work a correction in. Returns the codes, the notes, and who changes to what, and when."""
        work = Work(queued, self.edits, self.log_context, OPTIONS)
        if (rejection := self.log_context.rejection(queued)) is not None:
            self.codes[queued.record.offset] = rejection.code
            return rejection.code, work.ladder_events()
        if not work.waits:
            self.perform(work.job)
        notes = work.ladder_events()
        self.edits.add(notes)
        self.begun_at.append(work.job._offset)
        rejected = [(each.offset, why.code) for each, why in work.job.rejected]
        self.codes |= rejected
        changed = [pair for some in work.job.corrected() for pair in zip(*some, strict=True)]
        return rejected, notes, sorted(changed), work.job.completed_at if changed else ""

    @property
    def has_beliefs(self) -> bool:
        """Whether there was a round or a seed."""
        return any(not is_correction(each) for each in self.log.rounds[0])

    def checkpoint(self) -> None:
        """Make a checkpoint of all rounds so far."""
        end = len(self.log.rounds[0])
        accepted = self.edits.accepted(end)
        self.perform(CorrectionJob("l", 0, end, None, (), accepted, self.log_context))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32), size=st.integers(6, 50), window=st.sampled_from([0, 5, 1000]),
    every=st.sampled_from([1, 3, 10]),
)  # fmt: skip
def test_a_checkpoint_knows_every_kind_of_correction(
    seed: int, size: int, window: int, every: int
) -> None:
    """The ladders may change. The codes are those of another editor of the log."""
    rng = random.Random(seed)
    log = edited_by_hand.a_log(rng, size, seeds=True)
    ladders, takes_before = some_ladders(rng, size)
    plain, quick = Story(window, 0, ladders), Story(window, every, ladders)
    for line in log:
        assert quick.correct(line) == plain.correct(line)
        if rng.random() < 0.1 and quick.has_beliefs:
            quick.checkpoint()
    if window >= size:
        assert plain.codes == edited_by_hand.edited(log, takes_before)[1]
    assert not any(plain.begun_at)
    event(f"begun at a checkpoint: {sum(map(bool, quick.begun_at)) > 0}")


def a_story(window: int = 1000) -> tuple[Story, Story]:
    """Twenty rounds, a checkpoint, and ten more."""
    plain, quick = Story(window, 0), Story(window, 1000)
    for number in range(30):
        for story in (plain, quick):
            story.correct(_a_duel(number))
        if number == 19:
            quick.checkpoint()
    return plain, quick


@cases("correction, begins_at", [
    (a_correction("round-voided", round_id="r25"), 20),
    (a_correction("round-voided", round_id="r3"), 0),
    (a_correction("round-voided", round_id="nowhere"), 20),
    (a_correction("player-removed", player="nobody"), 20),
    (a_correction("player-merged", player="nobody", into="a"), 20),
    (a_correction("player-merged", player="a", into="nobody"), 20),
    (a_correction("player-removed", player="a", **{"from": day(22)}), 20),
    (a_correction("player-removed", player="a"), 0),
    (a_correction("player-merged", player="a", into="b"), 0),
])  # fmt: skip
def test_a_correction_begins_where_nothing_changes_before(correction: Line, begins_at: int) -> None:
    """At the checkpoint if it is of a later round, else at the log's start."""
    plain, quick = a_story()
    assert quick.correct(correction) == plain.correct(correction)
    assert quick.begun_at == [begins_at]


@cases("harm, window", [
    ("piece", 1000), ("torn", 1000), ("version", 1000), ("twice", 1000), ("ids", 1000),
    ("head", 1000), ("text", 1000), ("half", 1000), ("log", 1000), ("log", 0), ("log", 5),
    ("gap", 1000), ("rules", 1000), ("parameters", 1000), ("kernel", 1000), ("limits", 1000),
    ("corrections", 1000),
])  # fmt: skip
def test_a_checkpoint_that_is_not_whole_is_passed_over(harm: str, window: int) -> None:
    """So is one of another log, of other rules or parameters, or of another kernel."""
    plain, quick = a_story(window)
    with pytest.MonkeyPatch.context() as patch:
        spoil(plain, quick, harm, patch)
        voided = a_correction("round-voided", round_id="r25")
        assert quick.correct(voided) == plain.correct(voided)
    assert quick.begun_at == [0]


def spoil(plain: Story, quick: Story, harm: str, patch: pytest.MonkeyPatch) -> None:
    """Do this harm to the checkpoint, to both stories' log, or to what they are rated by."""
    (name, head), store = next(iter(quick.store.checkpoints["l"].items())), quick.store
    match harm:
        case "piece":
            store.pieces.clear()
        case "torn" | "version" | "twice" | "ids":
            (found,) = checkpoint.heads_in({name: head})
            for key, data in store.pieces.items():
                if (key[2] >= found.pieces - found.id_pieces) == (harm == "ids"):
                    store.pieces[key] = _spoilt(data, harm)
        case "head":
            store.checkpoints["l"][name] = b"\x93" + head
        case "text":
            store.checkpoints["l"][name] = head.replace(b"2026-", b"20\xff6-")
        case "half" | "corrections":
            (found,) = checkpoint.heads_in({name: head})
            changed = {"whole": False} if harm == "half" else {"corrections": ((5, 5),)}
            other = msgspec.structs.replace(found, **changed)
            for number in range(found.pieces):
                store.pieces["l", other.name, number] = store.pieces["l", name, number]
            store.checkpoints["l"] = {other.name: checkpoint.encode(other)}
        case "log":
            place, _ = checkpoint.heads_in({name: head})[0].last
            there = quick.log.rounds[0][place]
            value = (there.value or b"").replace(b'"rank":2', b'"rank":1')
            for story in (plain, quick):
                story.log.rounds[0][place] = msgspec.structs.replace(there, value=value)
        case "gap":  # no round is there
            place, _ = checkpoint.heads_in({name: head})[0].last
            there = quick.log.rounds[0][place]
            other_kind = ((EVENT_TYPE, b"corrections-applied"),)
            for story in (plain, quick):
                story.log.rounds[0][place] = msgspec.structs.replace(there, headers=other_kind)
        case "rules":
            quick.log_context = quick.log_context._replace(window=999)
        case "limits":
            smaller = msgspec.structs.replace(ANY_LADDER.limits, max_bytes=999)
            ladders = msgspec.structs.replace(ANY_LADDER, limits=smaller)
            for story in (plain, quick):
                story.log_context = story.log_context._replace(ladders=ladders)
        case "parameters":
            for story in (plain, quick):
                story.log_context = story.log_context._replace(ladders=OTHERS)
        case "kernel":
            patch.setattr(checkpoint, "KERNEL_VERSION", KERNEL_VERSION + 1)


def _spoilt(piece: bytes, how: str) -> bytes:
    """A piece that is cut short, has records of another version, or has a player repeatedly."""
    if how in ("torn", "ids"):
        return piece[: len(piece) // 2]
    players, records = msgspec.msgpack.decode(piece, type=tuple[list[str], list[bytes]])
    match how:
        case "version":
            records = [bytes([each[0] + 1]) + each[1:] for each in records]
        case "twice":
            players = [players[0] for _ in players]
    return msgspec.msgpack.encode((players, records))


def test_a_second_correction_begins_there_too() -> None:
    """The checkpoint is of before all three corrections, so each can begin there."""
    plain, quick = a_story()
    for number in (25, 23, 27):
        voided = a_correction("round-voided", round_id=f"r{number}")
        assert quick.correct(voided) == plain.correct(voided)
    assert quick.begun_at == [20, 20, 20]


@cases("batched", [False, True])
def test_work_that_is_done_again_ends_the_same(batched: bool) -> None:
    """A worker that takes over does not count the accepted correction as an earlier one."""
    _, story = a_story()
    story.log_context = story.log_context._replace(checkpoint_every=1)
    story.correct(a_correction("round-voided", round_id="r25", batched=batched))
    if batched:
        story.correct(a_correction("corrections-applied"))
    record = story.log.rounds[0][-1]
    queued = QueuedCorrection(record, story.log_context.correction(record))
    first = story.work_in(queued)
    assert first[0] == [] and first[2], "it is accepted, and somebody changes"
    assert story.work_in(queued) == first
    voided = a_correction("round-voided", round_id="r41")
    for each in (_a_duel(40), _a_duel(41), voided):
        story.correct(each)
    assert story.begun_at[-1] == record.offset, "at the checkpoint that knows it"


def test_a_checkpoint_takes_the_place_of_others() -> None:
    """It replaces one at its offset with fewer corrections, and one that nobody has finished."""
    _, quick = a_story()
    half = checkpoint.CheckpointHead(0, b"", (), (-1, 0), 0, "", 1)
    quick.store.checkpoints["l"][half.name] = checkpoint.encode(half)
    quick.store.pieces["l", half.name, 0] = b"piece"
    (before,) = [each for each in quick.store.checkpoints["l"] if each != half.name]
    quick.correct(a_correction("round-voided", round_id="r3"))
    (stored,) = quick.store.checkpoints["l"]
    assert stored.partition("-")[0] == before.partition("-")[0] and stored != before
    assert {name for _, name, _ in quick.store.pieces} == {stored}


def test_a_duel_may_be_later_since_it_was_amended() -> None:
    """The checkpoint knows the amended time, so a removal that reaches the duel begins before."""
    plain, quick = Story(1000, 0), Story(1000, 1000)
    amended = a_correction(
        "round-amended", round_id="r3", completed_at=day(100),
        standings=[{"player": "a", "rank": 1}, {"player": "d", "rank": 2}],
    )  # fmt: skip
    removed = a_correction("player-removed", player="a", **{"from": day(90)})
    lines = [*map(_a_duel, range(10)), amended, *map(_a_duel, range(10, 15)), removed]
    for line in lines:
        assert quick.correct(line) == plain.correct(line)
        if line is amended:
            quick.checkpoint()
    assert quick.begun_at == [0, 0]


def _a_duel(number: int) -> Line:
    return a_round(number, *("abcd"[(number + i) % 4] for i in range(2)))


SEEDS = [a_seed(0, "x", "a"), a_seed(1, "y", "x")]


def a_seeded_story() -> tuple[Story, Story]:
    """Two seeds, a checkpoint after them, and five rounds."""
    plain, quick = Story(1000, 0), Story(1000, 1000)
    for line in (*SEEDS, *map(_a_duel, range(20, 25))):
        if line["round_id"] == "r20":
            quick.checkpoint()
        for story in (plain, quick):
            story.correct(line)
    return plain, quick


@cases("correction, begins_at, code", [
    (a_correction("round-voided", round_id="r22"), 2, ""),
    (a_correction("round-voided", round_id="s1"), 0, ""),
    (a_correction("round-amended", round_id="s1", standings=[]), 0, "bad-amend"),
    (a_correction("player-removed", player="y"), 0, "unknown-player"),
    (a_correction("player-removed", player="y", seed=True), 0, ""),
    (a_correction("player-removed", player="nobody", seed=True), 2, "unknown-player"),
    (a_correction("player-removed", player="a", seed=True, **{"from": day(5)}), 2, ""),
    (a_correction("player-removed", player="a", seed=True, **{"from": day(0)}), 0, ""),
    (a_correction("player-removed", player="a", **{"from": day(0)}), 0, ""),
    (a_correction("player-merged", player="y", into="a"), 0, ""),
])  # fmt: skip
def test_a_checkpoint_of_nothing_but_seeds(correction: Line, begins_at: int, code: str) -> None:
    """It knows their ids, players and times, and is used unless an earlier seed changes."""
    plain, quick = a_seeded_story()
    assert quick.correct(correction) == plain.correct(correction)
    assert quick.begun_at == [begins_at]
    assert quick.codes.get(len(SEEDS) + 5, "") == code


def test_a_checkpoint_of_another_seed_is_passed_over() -> None:
    """The log has another seed at the offset of the checkpoint's last record."""
    plain, quick = a_seeded_story()
    there = quick.log.rounds[0][1]
    value = (there.value or b"").replace(b"1700", b"1600")
    for story in (plain, quick):
        story.log.rounds[0][1] = msgspec.structs.replace(there, value=value)
    voided = a_correction("round-voided", round_id="r22")
    assert quick.correct(voided) == plain.correct(voided)
    assert quick.begun_at == [0]


def test_a_correction_on_a_ladder_of_seeds_has_a_time() -> None:
    """Its events have the time of the last seed, as those after rounds have the last round's."""
    story = Story(1000, 0)
    for each in SEEDS:
        story.correct(each)
    _, _, changed, completed_at = story.correct(a_correction("round-voided", round_id="s0"))
    assert [player for player, _ in changed] == ["a", "x"]
    assert completed_at == SEEDS[1]["at"]


def test_names_of_different_checkpoints_differ() -> None:
    """By place, rules, corrections and log, so one can be read while another is written."""
    head = checkpoint.CheckpointHead(7, b"rules", ((1, 2),), (5, 99), 0, "", 1)
    others = [
        msgspec.structs.replace(head, **changed)
        for changed in (
            {"offset": 8}, {"rules": b"other"}, {"corrections": ((1, 3),)}, {"last": (5, 98)},
        )
    ]  # fmt: skip
    assert len({each.name for each in (head, *others)}) == 5
    assert msgspec.structs.replace(head, whole=True).name == head.name


def test_few_checkpoints_are_kept_and_those_far_behind_are_far_apart() -> None:
    """The newest and the oldest checkpoint are kept."""
    heads: list[checkpoint.CheckpointHead] = []
    for offset in range(100, 6500, 100):
        heads.insert(0, checkpoint.CheckpointHead(offset, b"", (), (0, 0), 0, "", 1))
        gone = checkpoint.superfluous(heads, offset)
        heads = [each for each in heads if each not in gone]
        assert len(heads) <= checkpoint.MOST_CHECKPOINTS
    found: list[int] = [each.offset for each in heads]
    behind = [6400 - offset for offset in found]
    assert found[0] == 6400 and found[-1] == 100
    assert behind[1] < behind[2] < behind[3]
    assert behind[2] >= 2 * behind[1]


# --- checkpoints that the store does not take: the same outcome, without remains ------------------


class Full(LocalDriver):
    """A driver whose store does not take some of the heads and pieces."""

    refuses: Container[int] = ()  # The numbers of refused writes, from 0 on.
    _count = 0

    def write_piece(self, ladder: str, name: str, number: int, data: bytes) -> Steps:
        return super().write_piece(ladder, name, number, data) if self._has_room() else _refused()

    def keep_checkpoint(self, ladder: str, name: str, head: bytes) -> Steps:
        return super().keep_checkpoint(ladder, name, head) if self._has_room() else _refused()

    def _has_room(self) -> bool:
        self._count += 1
        return self._count - 1 not in self.refuses


def _refused() -> Steps:
    yield
    return False


def full(story: Story, refuses: Container[int]) -> None:
    """Let the story's store refuse writes of these numbers from now on."""
    driver = Full(story.log, story.store, story.log.estimators, story.log.rounds)
    driver.refuses, story.driver = refuses, driver
    story.log_context = story.log_context._replace(checkpoint_every=1)


@cases("for_ever", [False, True])
@cases("takes", range(6))
def test_what_the_store_does_not_take_is_not_left_there(takes: int, for_ever: bool) -> None:
    """A correction ends as it does without checkpoints; no part of a checkpoint is left."""
    plain, quick = a_story()
    before = dict(quick.store.checkpoints["l"])
    full(quick, range(takes, 1000) if for_ever else [takes])
    voided = a_correction("round-voided", round_id="r25")
    assert quick.correct(voided) == plain.correct(voided)
    stored = quick.store.checkpoints["l"]
    assert {name for _, name, _ in quick.store.pieces} == stored.keys()
    assert stored.keys() >= before.keys()
    assert (len(stored) > len(before)) == (takes > 3), "the head, players, ids, the head"
    assert all(head.whole for head in checkpoint.heads_in(stored))


def test_after_a_failure_no_further_checkpoint_is_tried() -> None:
    """The correction would make two, and each attempt may take as long as a time-out."""
    plain, quick = a_story()
    before = dict(quick.store.checkpoints["l"])
    full(quick, [0])
    voided = a_correction("round-voided", round_id="r3")
    assert quick.correct(voided) == plain.correct(voided)
    assert quick.store.checkpoints["l"] == before
