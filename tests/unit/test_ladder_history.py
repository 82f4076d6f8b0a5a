"""The ladders' notes: what they add up to, whoever writes them and wherever he dies; and a ladder
that was rated cannot just vanish from the file, since its rounds would be rejected."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import pytest

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import TEMPLATE, Ladder, Ladders
from stream_rater.contract.corrections import SeasonStarted
from stream_rater.pipeline.corrections.edits_in_force import recorded_correction
from stream_rater.pipeline.ladder_history import (
    AT_ONCE,
    History,
    LadderContradiction,
    LadderLog,
    UnknownLadderEvent,
    allowed_before,
    announce,
    encode_corrections,
    encode_histories,
    encode_restated_corrections,
    objection,
)
from stream_rater.rating.parameters import EloMMR
from stream_rater.runtime.ladder_checks import check_ladders

CHANGE = 20
OLD, NEW = ("0:x",), ("0:x", "20:y")
ONE = Ladder(rating=EloMMR(weight_limit=0.2, sigma_limit=80.0))


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


def rated_while_one_starts(log: Log, dies_after: int | None) -> dict[int, bool]:
    """Rounds come, and zombies with the old file rate them, between any two steps of a worker that
    starts with the new one, and that dies after so many. Others start later, and rate as well. By
    offset, whether a round was rated by the new parameters."""
    rated = dict[int, bool]()

    def rate(own: History) -> None:
        offset, by_new = log.end, log.rate_one(own)
        if by_new is not None:
            assert rated.setdefault(offset, by_new) == by_new

    def rounds_come() -> Iterator[None]:
        for step in itertools.count():
            if step == dies_after:
                raise Died
            rate(OLD)
            rate(NEW)
            yield

    log.between_steps = rounds_come()
    with contextlib.suppress(Died, LadderContradiction):
        log.start(NEW)
    log.between_steps = iter(())
    for own in (NEW, OLD):
        with contextlib.suppress(LadderContradiction):
            log.start(own)
    for own in (OLD, NEW) * 3:
        rate(own)
    return rated


def test_no_round_is_rated_both_ways() -> None:
    """Wherever a worker dies: what holds in the end says how each was rated."""
    for end, dies_after in itertools.product(range(24), [None, *range(10)]):
        log = log_of(end)
        rated = rated_while_one_starts(log, dies_after)
        holds = log.read().of("a")
        assert holds in (OLD, NEW)
        expected = {offset: holds == NEW and offset >= CHANGE for offset in rated}
        assert expected == rated, (end, dies_after)


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


def test_what_is_no_note_is_left() -> None:
    """A stranger's message changes nothing. A note of a newer release may change everything, and is
    refused."""
    for junk in (b"", b"\xff", b"{", b"[]", b"7", b'{"kind": 7}', b"[" * 10_000):
        log = log_of(0)
        log.write([junk])
        assert log.read().of("a") == OLD, junk
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


# --- a ladder that is not in the file -------------------------------------------------------------


def check(log: Log, *ladders: str) -> None:
    """A worker with these ladders in its file."""
    check_ladders(Ladders(ladders=dict.fromkeys(ladders, ONE)), log, lambda: [0])


def rated(*ladders: str) -> Log:
    """The notes where these were rated."""
    log = Log()
    history = Ladders(ladders={"a": ONE}).history("a")
    log.write(encode_histories("noted", dict.fromkeys(ladders, history)))
    return log


def test_a_start_without_a_rated_ladder_is_refused() -> None:
    """With its name and what to do. One that nobody rated may go; a template rates all that are not
    named."""
    log = rated("a", "b")
    check(log, "a", "b", "new")
    check(log, "a", "b")
    with pytest.raises(BadConfiguration, match="ladder 'b' was rated and is not in the ladders"):
        check(log, "a")
    with pytest.raises(BadConfiguration, match=r"ladder 'a' \(and 1 other\) was rated"):
        check(log, "new")
    check(log, "a", TEMPLATE)


def test_a_rebuild_lets_a_ladder_go_and_come_again() -> None:
    """By a file without it: then it is as if it had never been rated."""
    log = rated("a", "b")
    log.write(encode_histories("restated", {"b": ()}))
    check(log, "a")
    check(log, "a", "b")
    log.notes += rated("b").notes
    assert log.read().in_force("b"), "its first round is recorded again"
    with pytest.raises(BadConfiguration, match="ladder 'b' was rated"):
        check(log, "a")


def test_other_parameters_are_reported_with_the_way_out() -> None:
    """For production, and for who only tries things."""
    reported = objection("a", ("0:x",), ("0:y",))
    assert "rebuild --replace" in reported
    assert "in development" in reported and "another STREAM_RATER_TOPIC_PREFIX" in reported


def test_notes_of_corrections_that_the_log_does_not_reach() -> None:
    """They are newer than the log of rounds, which ends at offset 0: no worker starts, until a
    rebuild has restated them."""
    log = rated("a")
    season = SeasonStarted(ladder="a", season=1, keep=0.5, sigma=10.0)
    log.write(encode_corrections({"a": [recorded_correction(0, season, 0)]}))
    with pytest.raises(BadConfiguration, match=r"of ladder 'a' at offset 0 .* rebuild --replace"):
        check(log, "a")
    log.write(encode_restated_corrections({"a": []}))
    check(log, "a")
