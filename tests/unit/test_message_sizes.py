"""The largest message of each kind: none is larger than any topic takes that workers accept."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import Raw, structs

from stream_rater.adapters.kafka.envelopes import change_headers, rejected_message
from stream_rater.adapters.kafka.topic_rules import ENVELOPE_BYTES
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import ANY_LADDER, Ladder, Ladders
from stream_rater.contract.corrections import (
    EVENT_TYPE,
    Correction,
    CorrectionsApplied,
    PlayerRemoved,
    name_of,
)
from stream_rater.contract.events import MAX_ID_BYTES, to_json
from stream_rater.contract.record import PARENT, STATE, STATE_LENGTH, Record, Trace
from stream_rater.contract.sizes import LEAST_BYTES, MOST_BYTES
from stream_rater.pipeline.corrections.correction_job import ChangedPlayers
from stream_rater.pipeline.corrections.correction_ports import RecordedCorrection
from stream_rater.pipeline.corrections.correction_work import PartOptions, Work
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.corrections.log_context import LogContext, QueuedCorrection
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.estimator import ROWS_PER_PART
from stream_rater.pipeline.ladder_history import LadderLog, encode_corrections, encode_histories
from stream_rater.pipeline.parts import correction_parts, decoder, schema
from stream_rater.pipeline.parts.decoder import rows_of
from stream_rater.pipeline.ports import Rejection
from stream_rater.pipeline.updater.rating_events import NUMBERS, encode_each
from stream_rater.rating.model import HEADER
from stream_rater.rating.parameters import Elo, Season
from stream_rater.rating.record import FACTOR_SIZE, HEADER_SIZE, HISTORY_SIZE, MOST_FACTORS
from stream_rater.rounds.correction_records import decode
from stream_rater.rounds.decoder import RoundDecoder
from tests.builders.cases import cases
from tests.rounds import as_json, ranked

HEADERS_BYTES = 2 * STATE_LENGTH
"""What a message's headers may take beside its value."""
LONGEST_TIME = "2026-11-20T20:15:05." + 43 * "0" + "Z"
TRACE = Trace(f"00-{1:032x}-{1:016x}-01", "s" * STATE_LENGTH)
FULL_RECORD = bytes(HEADER_SIZE + HISTORY_SIZE + FACTOR_SIZE * MOST_FACTORS)


def long_id(number: int, char: str = "x") -> str:
    """An id of the most bytes."""
    return f"{number:06}{char * MAX_ID_BYTES}"[:MAX_ID_BYTES]


# --- performance-estimated ------------------------------------------------------------------------


def pending(rounds: int, players: int, ladders: Ladders = ANY_LADDER) -> PendingRounds:
    """Rounds with the longest ids, times and traces; each ladder of the file has one, or all are on
    one ladder."""
    names = [each for each in ladders.ladders if each != "*"] or [long_id(0)]
    trace = ((PARENT, TRACE.parent.encode()), (STATE, TRACE.state.encode()))
    ids = map(long_id, itertools.count())
    records = [
        Record(
            0, 10 * i,
            as_json(
                *ranked(range(1, players + 1), list(itertools.islice(ids, players))),
                round_id=long_id(i), ladder=names[i % len(names)], completed_at=LONGEST_TIME,
            ),
            trace, received_s=4e9,
        )
        for i in range(rounds)
    ]  # fmt: skip
    decoded, rejections = RoundDecoder(ladders).decode(records)
    assert rejections == [None] * rounds
    return estimation.pending_rounds(records, decoded, 1)


def sent(rounds: PendingRounds, most_rows: int, **more: Any) -> list[bytes]:
    """The messages of these rounds; what they say is checked to be whole."""
    decoder_ = more.pop("ratings")
    part = estimation.estimate(rounds, np.zeros(rounds.count, HEADER), decoder_, 1, **more)
    found = [message for _, message in estimation.messages(part, rounds, most_rows)]
    read = [schema.decode(each) for each in found]
    rows = [
        (name, each.rounds[number].round_id, each.rules[each.rounds[number].rule])
        for each in read
        for name, number in zip(each.players, each.round_index.tolist(), strict=True)
    ]
    index = rounds.for_each_player(np.arange(len(rounds)))[rounds.by_shard[0]].tolist()
    names = [rounds.rounds.names.texts()[i] for i in rounds.by_shard[0].tolist()]
    due = [part.rounds[number] for number in index]
    assert rows == [
        (name, each.round_id, part.rules[each.rule]) for name, each in zip(names, due, strict=True)
    ]
    return found


def test_parts_fit() -> None:
    """As many rounds of two as fill a part, with the longest ids and traces: it is cut until each
    message fits. Of many ladders with many seasons, each message has the rules of its own ladders
    only."""
    rounds = pending(ROWS_PER_PART // 2, 2)
    ratings = [ANY_LADDER.ladders["*"].rating]
    found = sent(rounds, ROWS_PER_PART, ratings=ratings)
    assert sum(map(len, found)) > 2 * MOST_BYTES
    assert max(map(len, found)) <= MOST_BYTES
    names = [long_id(number) for number in range(300)]
    ladders = Ladders(ladders={each: Ladder(rating=Elo(learning_rate=32.0)) for each in names})
    started = {
        name: tuple(Season(1000 * number + 2**20, 0.5, float(i)) for number in range(200))
        for i, name in enumerate(names)
    }
    ratings = [Elo(learning_rate=32.0)]
    rounds = pending(300, 2, ladders)
    rounds.rounds.config_index[:] = 0
    found = sent(rounds, ROWS_PER_PART, ratings=ratings, seasons=lambda each, _: started[each])
    assert len(found) > 1
    assert max(map(len, found)) <= MOST_BYTES


def test_correction_parts_with_full_records() -> None:
    """5,000 players of one shard with the longest ids, and as long a history as a record has."""
    players = [long_id(number) for number in range(ROWS_PER_PART)]
    some = ChangedPlayers(players, [FULL_RECORD] * ROWS_PER_PART)
    record = Record(0, 7, None)
    queued = QueuedCorrection(record, PlayerRemoved(ladder=long_id(0), player=long_id(1)))
    work = Work(queued, LadderEdits(), LogContext(ANY_LADDER, 0, 1), PartOptions(1, ROWS_PER_PART))
    found = [correction_parts.encode(work._part(some, rows)) for rows in cut(work, some)]
    assert len(found) > 1
    assert max(map(len, found)) <= MOST_BYTES
    parts = [correction_parts.decode(each) for each in found]
    assert [player for each in parts for player in each.players] == players
    few = Work(queued, LadderEdits(), LogContext(ANY_LADDER, 0, 1), PartOptions(1, 2))
    assert [len(each) for each in cut(few, ChangedPlayers(players[:5], some.records[:5]))] == [
        2,
        2,
        1,
    ]


def cut(work: Work, some: ChangedPlayers) -> list[Any]:
    return list(work._cut(some, list(range(len(some.players)))))


# --- rating-changed -------------------------------------------------------------------------------


def test_the_largest_rating_change() -> None:
    """Ids of characters that keys and JSON escape, the longest time and numbers, and a trace."""
    (message,) = sent(pending(1, 2), ROWS_PER_PART, ratings=[ANY_LADDER.ladders["*"].rating])
    part = schema.decode(message)
    numbers = np.full((2, NUMBERS), -2.2250738585072014e-308)
    for worst in ("\x01" * MAX_ID_BYTES, "%" * MAX_ID_BYTES):
        rounds = [structs.replace(each, ladder=worst, round_id=worst) for each in part.rounds]
        named = replace(part, rounds=rounds, names=StringColumn.of([worst, worst[1:]]))
        rows = rows_of([decoder.read(schema.encode(named))])
        for event in encode_each(3, rows, numbers, np.full(2, 2**24 - 1)):
            headers = sum(len(name) + len(value) for name, value in change_headers(event))
            assert len(event.key) + len(event.value) + headers < 8 * 1024


# --- round-rejected -------------------------------------------------------------------------------


def test_the_largest_rejection() -> None:
    """The whole record, and headers of which each has a bound."""
    headers = (
        ("content-type", b"t" * 10**6), (EVENT_TYPE, b"e" * 10**6), ("other", b"o" * 10**6),
        (PARENT, TRACE.parent.encode()), (STATE, TRACE.state.encode()),
    )  # fmt: skip
    record = Record(0, 7, b"v" * 3_000_000, headers, key=b"k" * 2_000_000)
    with pytest.raises(Exception, match="none of") as raised:
        decode(record, ANY_LADDER)
    reported: Any = raised.value
    message = rejected_message(Rejection(record, reported.code, str(reported)), "t", LEAST_BYTES)
    assert len(message["key"]) + len(message["value"]) == LEAST_BYTES
    assert sum(len(n) + len(v) for n, v in message["headers"]) < ENVELOPE_BYTES // 2


# --- ladders-noted --------------------------------------------------------------------------------


MUCH = "x" * 2_000_000
"""As much text as a record may have. Nothing bounds it before the correction is validated."""
CORRECTIONS: dict[str, dict[str, Any]] = {
    "round-voided": {"round_id": long_id(1), "batched": True},
    "round-amended": {
        "round_id": long_id(1), "completed_at": MUCH, "standings": [], "batched": True,
    },
    "player-removed": {"player": long_id(1), "from": LONGEST_TIME, "batched": True},
    "player-merged": {"player": long_id(1), "into": long_id(2), "batched": True},
    "season-started": {"season": 7},
    "corrections-applied": {},
}  # fmt: skip


@cases("kind", CORRECTIONS)
def test_the_note_of_a_correction_is_small(kind: str) -> None:
    """It is small whatever the reason is, and whatever the fields are that are validated later."""
    fields = {"ladder": long_id(0), "reason": MUCH, "event_type": MUCH, **CORRECTIONS[kind]}
    record = Record(0, 7, to_json(fields), ((EVENT_TYPE, kind.encode()),), 4e9)
    queued = QueuedCorrection(record, decode(record, ANY_LADDER))
    work = Work(queued, LadderEdits(), LogContext(ANY_LADDER, 0, 1), PartOptions(1, ROWS_PER_PART))
    if kind == "season-started":
        work.job.accepted = [queued]
    (found,) = work.ladder_events()
    assert found.event_type == kind
    assert len(found.correction) < 1024


def test_notes_fit() -> None:
    """Of a ban wave of thousands of players with the longest ids; of many ladders with long ids,
    characters that JSON escapes, and long histories. Headers have room beside the largest
    message."""
    wave = [
        _recorded(
            PlayerRemoved(ladder=long_id(0), player=long_id(number), reason="r" * 1000), number
        )
        for number in range(2500)
    ]
    wave.append(_recorded(CorrectionsApplied(ladder=long_id(0)), 5000))
    messages = encode_corrections({long_id(0): wave, "b": wave[:1]})
    assert max(map(len, messages)) <= MOST_BYTES
    assert len(messages) > 4
    log = LadderLog()
    for each in messages:
        log.read(each)
    assert log.corrections == {long_id(0): wave, "b": wave[:1]}
    history = tuple(f"{2**40 + offset}:0123456789abcdef" for offset in range(100))
    histories = {long_id(number, "\x01"): history for number in range(1000)}
    messages = encode_histories("noted", histories)
    assert len(messages) > 5
    assert max(map(len, messages)) <= MOST_BYTES
    log = LadderLog()
    for each in messages:
        log.read(each)
    assert {ladder: log.in_force(ladder) for ladder in log.ladders} == histories
    assert MOST_BYTES + HEADERS_BYTES < LEAST_BYTES


def _recorded(correction: Correction, offset: int) -> RecordedCorrection:
    return RecordedCorrection(offset, name_of(correction), Raw(to_json(correction)), 5000)
