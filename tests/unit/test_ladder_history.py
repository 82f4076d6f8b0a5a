"""The ladders' notes: what they add up to, whoever writes them and wherever he dies."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import pytest

from stream_rater.pipeline.ladder_history import (
    AT_ONCE,
    History,
    LadderContradiction,
    LadderLog,
    UnknownLadderEvent,
    allowed_before,
    announce,
    encode_histories,
)

CHANGE = 20
OLD, NEW = ("0:x",), ("0:x", "20:y")


class Died(Exception):
    """An announcer's process ended."""


class Log:
    """Notes and rounds, in one process after the other; each `read` and `write` is counted."""

    def __init__(self) -> None:
        self.notes: list[bytes] = []
        self.end = 0
        """Of the rounds."""
        self.between_steps: Iterator[object] = iter(())
        """Advanced between any two steps of an announcer, which dies where this raises."""

    def read(self) -> LadderLog:
        next(self.between_steps, None)
        ladder_log = LadderLog()
        for each in self.notes:
            ladder_log.read(each)
        return ladder_log

    def write(self, messages: Sequence[bytes]) -> None:
        next(self.between_steps, None)
        self.notes += messages

    def end_of(self, _: str) -> int:
        next(self.between_steps, None)
        return self.end

    def start(self, own: History) -> None:
        """A worker with this file."""
        announce({"a": own}, self, self.end_of, f"proposal {len(self.notes)}")

    def rate_one(self, own: History) -> bool | None:
        """A round is reported, and a worker with this file, who has polled it, rates it by the new
        parameters, or by the old ones; None: it may not rate it."""
        offset, self.end = self.end, self.end + 1
        ladder_log = LadderLog()
        for each in self.notes:
            ladder_log.read(each)
        if offset >= allowed_before(own, ladder_log.of("a")):
            return None
        return own == NEW and offset >= CHANGE


def log_of(end: int) -> Log:
    """A ladder that was rated by the old file up to an offset."""
    log = Log()
    log.write(encode_histories("noted", {"a": OLD}))
    log.end = end
    return log


@pytest.mark.parametrize("end", range(24))
@pytest.mark.parametrize("dies_after", [None, *range(10)])
def test_no_round_is_rated_both_ways(end: int, dies_after: int | None) -> None:
    """Rounds come, and zombies with the old file rate them, between any two steps of a worker that
    starts with the new one, wherever it dies: what holds in the end says how each was rated."""
    log, rated = log_of(end), dict[int, bool]()

    def rounds_come() -> Iterator[None]:
        for step in itertools.count():
            if step == dies_after:
                raise Died
            for own in (OLD, NEW):
                offset, by_new = log.end, log.rate_one(own)
                if by_new is not None:
                    assert rated.setdefault(offset, by_new) == by_new
            yield

    log.between_steps = rounds_come()
    with contextlib.suppress(Died, LadderContradiction):
        log.start(NEW)
    log.between_steps = iter(())
    for own in (NEW, OLD):
        try:
            log.start(own)
        except LadderContradiction:
            continue
    for _ in range(3):
        for own in (OLD, NEW):
            offset, by_new = log.end, log.rate_one(own)
            if by_new is not None:
                rated[offset] = by_new
    holds = log.read().of("a")
    assert holds in (OLD, NEW)
    assert {offset: holds == NEW and offset >= CHANGE for offset in rated} == rated


def test_of_rival_notes_the_first_counts() -> None:
    """And a proposal that does not go on where the notes end is none."""
    log = Log()
    log.write(encode_histories("noted", {"a": OLD, "b": ("3:z",)}))
    log.write(encode_histories("noted", {"a": ("0:q",)}))
    log.write(encode_histories("proposed", {"a": ("0:q", "7:y"), "c": NEW}))
    ladder_log = log.read()
    assert (ladder_log.of("a"), ladder_log.of("b"), ladder_log.of("c")) == (OLD, ("3:z",), ())


def test_the_first_decision_counts() -> None:
    """Of a confirmation and a withdrawal; one of another history is none."""
    for first, second, holds in (("confirmed", "withdrawn", NEW), ("withdrawn", "confirmed", OLD)):
        log = log_of(0)
        log.write(encode_histories("proposed", {"a": NEW}))
        log.write(encode_histories("confirmed", {"a": ("0:x", "9:z")}))
        assert log.read().of("a") == (*OLD, "20:not confirmed")
        log.write(encode_histories(first, {"a": NEW}) + encode_histories(second, {"a": NEW}))
        assert log.read().of("a") == holds


def test_a_rebuild_begins_again() -> None:
    """A rebuild replaces all histories of the ladders that it rated, recorded or proposed. Those of
    other ladders stay."""
    log = log_of(0)
    log.write(encode_histories("noted", {"b": OLD}) + encode_histories("proposed", {"a": NEW}))
    log.write(encode_histories("restated", {"a": ("0:q",)}))
    ladder_log = log.read()
    assert (ladder_log.of("a"), ladder_log.of("b")) == (("0:q",), OLD)


def test_many_ladders_are_several_notes() -> None:
    """A message has a size."""
    histories = {f"ladder-{i}": OLD for i in range(2 * AT_ONCE + 1)}
    messages = encode_histories("noted", histories)
    assert len(messages) == 3
    ladder_log = LadderLog()
    for each in messages:
        ladder_log.read(each)
    assert all(ladder_log.of(ladder) == OLD for ladder in histories)


@pytest.mark.parametrize("junk", [b"", b"\xff", b"{", b"[]", b"7", b'{"kind": 7}', b"[" * 10_000])
def test_what_is_no_note_is_left(junk: bytes) -> None:
    """A stranger's message changes nothing."""
    log = log_of(0)
    log.write([junk])
    assert log.read().of("a") == OLD


def test_a_note_of_a_newer_release_is_refused() -> None:
    """It may change everything."""
    with pytest.raises(UnknownLadderEvent, match="'later'"):
        LadderLog().read(b'{"kind": "later", "histories": {"a": ["0:x"]}}')


def test_changes_of_a_ladder_that_nobody_rated_are_recorded_at_the_start() -> None:
    """Before a worker with an older file notes it; one without changes may still be edited."""
    log = Log()
    log.start(OLD)
    assert log.notes == []
    log.end = 100
    log.start(NEW)
    assert log.read().of("a") == NEW
    with pytest.raises(LadderContradiction, match="differ from offset 20 on"):
        log.start(OLD)


def test_a_late_decision_is_about_its_own_proposal() -> None:
    """Not about one of the same history that another worker made since."""
    log = log_of(0)
    log.write(
        encode_histories("proposed", {"a": NEW}, "first")
        + encode_histories("withdrawn", {"a": NEW}, "first")
    )
    log.write(
        encode_histories("proposed", {"a": NEW}, "second")
        + encode_histories("confirmed", {"a": NEW}, "first")
    )
    assert log.read().of("a") == (*OLD, "20:not confirmed")
    log.write(encode_histories("confirmed", {"a": NEW}, "second"))
    assert log.read().of("a") == NEW
