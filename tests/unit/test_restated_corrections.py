"""The corrections of a ladder, restated by a rebuild: what holds of them, and what is written."""

from collections.abc import Sequence

import msgspec
import pytest

from stream_rater.config.errors import Failed, named_failures
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.corrections import (
    EVENT_TYPE,
    Correction,
    CorrectionsApplied,
    PlayerRemoved,
    RoundAmended,
    RoundVoided,
)
from stream_rater.contract.errors import LadderEventsMismatch
from stream_rater.contract.events import MOST_BYTES, StrictEntry
from stream_rater.contract.record import Record
from stream_rater.operations.corrected_rebuild import to_restate
from stream_rater.pipeline.corrections.correction_validator import (
    CorrectionQueue,
    CorrectionValidator,
    LogContext,
    QueuedCorrection,
    QueueLookahead,
)
from stream_rater.pipeline.corrections.edits_in_force import EditsOfLadders, recorded_correction
from stream_rater.pipeline.ladder_history import (
    AT_ONCE,
    encode_corrections,
    encode_histories,
    encode_restated_corrections,
)
from stream_rater.pipeline.ports import RecordedCorrection
from stream_rater.replay.checkpoint import IdFilter
from stream_rater.replay.edited_log import AppliedCorrection, Verdicts
from stream_rater.replay.edits import NO_EDITS
from stream_rater.replay.ledger import Base
from stream_rater.rounds.decoder import RoundDecoder
from tests.builders.cases import cases
from tests.builders.machines import pending_of
from tests.rounds import ranked
from tests.unit.test_ladders_disagreement import added_up


def removed(offset: int) -> RecordedCorrection:
    return recorded_correction(offset, PlayerRemoved(ladder="l", player=f"p{offset}"), offset)


OLD, NEW = [removed(1), removed(2)], [removed(1), removed(3)]
MANY = [removed(offset) for offset in range(2 * AT_ONCE + 1)]


def test_they_replace_what_was_recorded() -> None:
    """Other ladders' corrections stay, later ones come behind, and histories do not matter."""
    before = encode_corrections({"l": OLD, "m": OLD})
    restated = encode_restated_corrections({"l": NEW})
    log = added_up([*before, *restated, *encode_corrections({"l": [OLD[0], removed(9)]})])
    assert log.corrections == {"l": [*NEW, removed(9)], "m": OLD}
    assert added_up([*before, *encode_restated_corrections({"l": []})]).corrections == {"m": OLD}
    log = added_up(
        [*encode_corrections({"l": OLD}), *encode_histories("restated", {"l": ("0:x",)})]
    )
    assert log.corrections == {"l": OLD}
    stored, log = EditsOfLadders(), added_up(encode_corrections({"l": OLD}))
    assert list(stored.of("l", log.corrections).last.entries) == ["p1", "p2"]
    log.read(*encode_restated_corrections({"l": NEW}))
    assert list(stored.of("l", log.corrections).last.entries) == ["p1", "p3"]
    log.read(*encode_restated_corrections({"l": []}))
    assert not stored.of("l", log.corrections).last.entries


def test_none_counts_before_all_are_read() -> None:
    """While a message is missing, what was recorded before counts. Messages may be repeated."""
    messages = encode_restated_corrections({"l": MANY})
    assert len(messages) == 3
    assert max(map(len, messages)) <= MOST_BYTES
    log = added_up(encode_corrections({"l": OLD}))
    for each in messages:
        assert log.corrections == {"l": OLD}
        log.read(each)
    assert log.corrections == {"l": MANY}
    first, _, last = messages
    assert added_up([*encode_corrections({"l": OLD}), first, last]).corrections == {"l": OLD}
    for order in ((0, 0, 1, 1, 2, 2), (0, 1, 0, 1, 2), (2, 1, 0, 1, 2)):
        log = added_up([*encode_corrections({"l": OLD}), *(messages[i] for i in order)])
        assert log.corrections == {"l": MANY}, order


def found(*applied: AppliedCorrection) -> Verdicts:
    return Verdicts({}, {}, {}, {"l": applied} if applied else {})


def applied(offset: int, at: int | None = None) -> AppliedCorrection:
    correction = PlayerRemoved(ladder="l", player=f"p{offset}")
    return AppliedCorrection(offset, correction, offset if at is None else at)


def never() -> Verdicts:
    raise AssertionError("the notes have none that the log lacks")


def test_only_what_differs_is_written() -> None:
    """Nothing is where notes are right, else all of the ladder. What is in progress stays."""
    assert to_restate(found(applied(1), applied(2)), {"l": OLD}, never) == {}
    assert to_restate(found(), {}, never) == {}
    every = found(applied(1, -1), applied(1, 4), applied(7, -1))
    restated = to_restate(every, {}, never)
    assert [each.place for each in restated["l"]] == [(1, -1), (1, 4), (7, -1)]
    assert to_restate(found(applied(1)), {"l": OLD}, lambda: found(applied(1))) == {"l": OLD[:1]}
    assert to_restate(found(), {"l": OLD}, found) == {"l": []}
    done, every = found(applied(1)), found(*map(applied, range(1, 4)))
    assert to_restate(done, {"l": OLD}, lambda: every) == {}
    restated = to_restate(done, {"l": [*OLD, removed(5)]}, lambda: every)
    assert restated == {"l": OLD}


VOIDED = RoundVoided(ladder="l", round_id="r0")


def correction_at(offset: int, of: Correction = VOIDED) -> Record:
    event = recorded_correction(offset, of, offset)
    return Record(0, offset, bytes(event.correction), [(EVENT_TYPE, event.event_type.encode())])


def hear(*records: Record) -> None:
    """A pass comes to these corrections, after one at offset 1 was applied at offset 2."""
    done = CorrectionsApplied(ladder="l")
    before = [recorded_correction(1, VOIDED, 2), recorded_correction(2, done, 2)]
    decoder = RoundDecoder(ANY_LADDER)
    validator = CorrectionValidator(LogContext(ANY_LADDER, 10, 1), 0, decoder, before, [VOIDED])
    for each in records:
        for _ in validator.reach(each):
            pass
    for _ in validator.validate(QueuedCorrection(correction_at(5), VOIDED)):
        pass


def test_no_verdict_follows_one_that_needs_earlier_rounds() -> None:
    """The amendment may have brought in the player whom the next correction removes."""
    ids = IdFilter()
    ids.add(pending_of([2], ladders=["l"]).rounds)
    standings = msgspec.convert(ranked([1], ["new"]), list[StrictEntry])
    amended = RoundAmended(ladder="l", round_id="r0", standings=standings)
    both: Sequence[Correction] = amended, PlayerRemoved(ladder="l", player="new")
    polled = [QueuedCorrection(correction_at(20 + i, of), of) for i, of in enumerate(both)]
    log = LogContext(ANY_LADDER, 10, 1)
    base = Base(NO_EDITS, 0, (), ids)
    for first, expected in ((0, {}), (1, {21: "unknown-player"})):
        queue = CorrectionQueue("l", polled[first:], (), ())
        decoder = RoundDecoder(ANY_LADDER)
        validator = CorrectionValidator(log, 0, decoder, (), queue.to_validate, 15, base)
        ahead = QueueLookahead(queue, validator, log)
        for each in queue.polled:
            list(ahead.reach(each.record))
        assert {at: found[0][1].code for at, found in ahead.rejections.items() if found} == expected


@cases("records", [
    [correction_at(2)], [],
    [correction_at(1, PlayerRemoved(ladder="l", player="p")), correction_at(2)],
    [Record(0, 1, b"litter", [(EVENT_TYPE, b"round-voided")]), correction_at(2)],
])  # fmt: skip
def test_notes_of_another_log_have_a_name(records: Sequence[Record]) -> None:
    """If the log lacks a correction, or has another, commands and workers report it in one line."""
    with pytest.raises(LadderEventsMismatch, match=r"of ladder 'l' at offset 1 of round-completed"):
        hear(*records)
    with pytest.raises(Failed, match=r"^.*ladders-noted.*$"), named_failures():
        raise LadderEventsMismatch("duel", 7)
