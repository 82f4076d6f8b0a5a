"""Messages: a part's contents come back; events are encoded fast and equal; all fit any topic."""

from dataclasses import replace
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import Raw

from stream_rater.adapters.kafka.envelopes import change_headers, rejected_message
from stream_rater.adapters.kafka.topic_rules import ENVELOPE_BYTES
from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import ANY_LADDER, Ladder, Ladders
from stream_rater.contract import corrections
from stream_rater.contract.events import (
    LEAST_BYTES,
    MAX_ID_BYTES,
    MOST_BYTES,
    joined,
    rating_changed_from_json,
    to_json,
)
from stream_rater.contract.record import PARENT, STATE, STATE_LENGTH, Record, Trace
from stream_rater.pipeline.corrections.correction_job import ChangedPlayers
from stream_rater.pipeline.corrections.correction_validator import LogContext, QueuedCorrection
from stream_rater.pipeline.corrections.correction_work import PartOptions, Work
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.estimator import ROWS_PER_PART
from stream_rater.pipeline.ladder_history import UNKNOWN, encode_corrections, encode_histories
from stream_rater.pipeline.parts import decoder, legacy, schema
from stream_rater.pipeline.parts.decoder import Rows, rows_of
from stream_rater.pipeline.parts.schema import NotAPart, Part, RebuildMark, UnknownPart
from stream_rater.pipeline.ports import Event, RecordedCorrection, Rejection, Scatter
from stream_rater.pipeline.updater.rating_events import NUMBERS, Events, encode_together
from stream_rater.rating.model import DID_NOT_FINISH, HEADER
from stream_rater.rating.parameters import Elo, RatingConfig, Season
from stream_rater.rating.record import FACTOR_SIZE, HEADER_SIZE, HISTORY_SIZE, MOST_FACTORS
from stream_rater.replay.rating_changes import rating_changed
from stream_rater.rounds.correction_records import decode_correction
from stream_rater.rounds.decoder import RoundDecoder
from tests.builders.cases import cases
from tests.builders.machines import RULE, as_last, part, part_in, rounds_in, with_rounds
from tests.builders.seeding import seed_part
from tests.rounds import as_json, ranked
from tests.unit.test_ladders_disagreement import added_up

PART = part((7, "ab"), (9, "c"))
MESSAGE = schema.encode(PART)
VALID = f"00-{1:032x}-{2:016x}-01"


def same(one: Part, other: Part) -> bool:
    """Whether two parts have the same rows."""
    whole = [np.full((len(each), 4), np.nan) for each in (one, other)]
    for each, evidence in zip((one, other), whole, strict=True):
        evidence[:, : each.evidence.shape[1]] = each.evidence
    beliefs = [each.beliefs and each.beliefs.strings() for each in (one, other)]
    names = "shards", "cause", "threshold"
    return (
        (list(one.rules), rounds_in(one)) == (list(other.rules), rounds_in(other))
        and one.names.texts() == other.names.texts() and beliefs[0] == beliefs[1]
        and all(getattr(one, name) == getattr(other, name) for name in names)
        and one.round_index.tolist() == other.round_index.tolist()
        and one.place.tolist() == other.place.tolist()
        and np.array_equal(whole[0], whole[1], equal_nan=True)
    )  # fmt: skip


def test_rows_that_are_taken_keep_the_rounds_that_they_need() -> None:
    """Rows may be taken in any order. Rules without a round are left out."""
    whole = part((7, "ab"), (9, "c"), (11, "d"))
    rules = [RULE, *(msgspec.structs.replace(RULE, config=each) for each in "xy")]
    rounds = [each._replace(rule=i) for i, each in enumerate(rounds_in(whole))]
    some = with_rounds(replace(whole, rules=rules), rounds).take(np.array([3, 1]))
    assert some.players == ["d", "b"]
    assert [rounds_in(some)[i].offset for i in some.round_index] == [11, 7]
    assert [some.rules[rounds_in(some)[i].rule].config for i in some.round_index] == [
        "y",
        RULE.config,
    ]


@cases("size", [1, 10, 11, 63, 64, 16_383, 16_384])
def test_each_piece_is_a_part_of_its_own(size: int) -> None:
    """Of any length, and of rows in any order."""
    whole = part((7, "a" * size), (9, "b" * size), (2**40, "c"), shards=3)
    names = StringColumn.of([f"p{number}" for number in range(len(whole))])
    whole = replace(whole, names=names)
    rows = np.array([2 * size, *range(2 * size - 1, -1, -1)])
    messages = schema.encode_pieces(whole, rows, [1, size + 1, 2 * size + 1])
    pieces = rows[:1], rows[1 : size + 1], rows[size + 1 :]
    for message, own in zip(messages, pieces, strict=True):
        assert len(msgspec.msgpack.decode(message)) == 3
        assert same(part_in(message), whole.take(own))


def correction_part() -> Part:
    beliefs = StringColumn.of_bytes([b"\xff" * 300, b"\x00"])
    some = replace(part((7, "ab"), shards=2), cause="round-voided", threshold=0.25, beliefs=beliefs)
    return replace(some, place=np.zeros(2, np.int32), evidence=np.full((2, 4), np.nan))


@cases("given", [
    PART, with_rounds(PART, [each._replace(trace=Trace(VALID, "a=b")) for each in rounds_in(PART)]),
    replace(PART, evidence=np.column_stack((PART.evidence, [1.0, np.nan, 2.0]))),
    seed_part((7, "ab"), (9, "c"), shards=2), seed_part((7, "a"), kind="player-reset", mu=np.nan),
    correction_part(),
])  # fmt: skip
def test_parts_of_the_last_release_are_read(given: Part) -> None:
    """They have the rows of ours. It refuses ours: their version is a newer one."""
    ours, theirs = schema.encode(given), as_last(given)
    assert theirs[1] in (legacy.ROUNDS, legacy.CORRECTION, legacy.SEEDED) and ours[1] == 5
    found = part_in(theirs)
    assert same(part_in(ours), given)
    if given.beliefs is not None:  # the time of a correction was not sent, and nobody reads it
        found = with_rounds(found, [each._replace(time=7000) for each in rounds_in(found)])
    assert same(found, given)
    assert decoder.read_all([theirs, ours])[0] is None


def changed(index: int, value: Any, of: Part = PART) -> bytes:
    """A message of the last release with another element."""
    elements = msgspec.msgpack.decode(as_last(of))
    elements[index] = value
    return msgspec.msgpack.encode(elements)


ROWLESS, SEEDS, CORRECTED = part((7, "")), seed_part((7, "ab")), correction_part()


@cases("message, error", [
    *((changed(0, number), UnknownPart) for number in (2, 6, 100)),
    (changed(1, []), UnknownPart), (changed(2, []), UnknownPart), (changed(2, [[7]]), UnknownPart),
    (changed(3, b"123"), UnknownPart), (changed(5, b"1" * 8), UnknownPart),
    (changed(6, "abc"), UnknownPart), (changed(6, ["a", "a", "c"]), UnknownPart),
    (changed(2, [[2**63, 0, 0, "r", "a", ""]] * 2), UnknownPart),
    (changed(3, "round-voided", SEEDS), UnknownPart), (changed(4, 7, SEEDS), UnknownPart),
    (changed(8, b"1234", SEEDS), UnknownPart), (changed(11, ["a", "a"], SEEDS), UnknownPart),
    *((changed(7, np.array([0, no], "<i4").tobytes(), SEEDS), UnknownPart) for no in (1, -1)),
    (changed(10, ["a"], CORRECTED), UnknownPart), (changed(10, ["a", "a"], CORRECTED), UnknownPart),
    (MESSAGE[:20], UnknownPart), (MESSAGE[:-1], UnknownPart), (b"\x91\x01", UnknownPart),
    (b"\xdd\x00\x00\x00\x01\x02", UnknownPart),
    *((each, NotAPart) for each in (b"", b"{}", b"garbage", b"\x90", b"\x91\xa1x", b"\xdc\x00")),
])  # fmt: skip
def test_part_that_is_not_understood(message: bytes, error: type[Exception]) -> None:
    """It is refused, never guessed at. What no release wrote differs from the rest."""
    with pytest.raises(error) as found:
        decoder.read(message)
    assert type(found.value) is error


def test_part_of_another_kernel() -> None:
    """Both versions are named. An older part is applied if its evidence means the same."""
    ours, older = KERNEL_VERSION, schema.OLDEST_KERNEL - 1
    with pytest.raises(UnknownPart, match=rf"version 77, this worker has {ours}: .* newer release"):
        part_in(by_kernel(77))
    with pytest.raises(UnknownPart, match=rf"version {older}, .* has {ours}: .* older release"):
        part_in(by_kernel(older))
    oldest = schema.OLDEST_KERNEL
    assert part_in(by_kernel(oldest), kernel=oldest + 2).rules[0].kernel == oldest
    assert part_in(by_kernel(oldest + 2), kernel=oldest + 2).rules[0].kernel == oldest + 2
    with pytest.raises(UnknownPart):
        part_in(by_kernel(oldest + 3), kernel=oldest + 2)


def by_kernel(version: int) -> bytes:
    return schema.encode(replace(PART, rules=[msgspec.structs.replace(RULE, kernel=version)]))


def test_mark_of_a_rebuild() -> None:
    """It has the number of shards, the epoch, and the offset from which parts were pending. Those
    of the last release have the number alone."""
    with pytest.raises(RebuildMark) as found:
        decoder.read(schema.mark(700, b"word", 5))
    assert found.value.mark == schema.Mark(schema.MARK, 700, b"word", 5)
    with pytest.raises(RebuildMark) as found:
        decoder.read(msgspec.msgpack.encode([schema.MARK, 700]))
    assert found.value.mark == schema.Mark(schema.MARK, 700)
    for unknown in ([schema.MARK, 7, 1, 1], [schema.MARK, "7"], [schema.MARK]):
        with pytest.raises(UnknownPart):
            decoder.read(msgspec.msgpack.encode(unknown))


# --- rating changes -------------------------------------------------------------------------------


def encode_each(shard: int, rows: Rows, numbers: Floats, counts: Ints) -> list[Event]:
    """Encode events one by one. `numbers` is (n, NUMBERS), `counts` (n,) the rounds played."""
    events = []
    times, time = rows.completed_at
    round_ids, texts = rows.round_ids.texts(), times.texts()
    players = zip(rows.players, rows.round.tolist(), rows.rule_index.tolist(), strict=True)
    more = zip(
        rows.place.tolist(), counts.tolist(), rows.offset.tolist(), numbers.tolist(), strict=True
    )
    for ((ladder, player), r, rule), (place, count, offset, row) in zip(players, more, strict=True):
        changed = rating_changed(
            ladder, round_ids[r], player, texts[time[r]], place, row, count, offset,
            rows.rules[rule],
        )  # fmt: skip
        key, event_id = joined(ladder, player).encode(), changed.event_id.encode()
        round_time = changed.completed_at, rows.traces.get(r)
        events.append(Event(shard, key, to_json(changed), event_id, *round_time))
    return events


KINDS = [0.0, -0.0, 1.0, -1234.5, 1e300, 5e-324, 1e-7, 1e16, 0.1 + 0.2, np.float32(1 / 3)]
UNUSUAL = ['a"', "a\\b", "a:b", "{a", "a}", "100%", "tab\tbed", "\x00", "\x1f"]


def some(*players: str) -> tuple[Rows, Floats, Ints]:
    """Rounds of one player, two and three ladders, with numbers of every kind."""
    rows = part((5, players), (1_000_000, ["x"]), (7, ["yy", "zzz"]))
    ladders, traces = ("a", "bé", "a"), (None, Trace(f"00-{1:032x}-{1:016x}-01"), None)
    rounds = [
        each._replace(ladder=ladder, trace=trace)
        for each, ladder, trace in zip(rounds_in(rows), ladders, traces, strict=True)
    ]
    place = np.arange(1, 1 + len(rows.players), dtype=np.int32)
    place[1] = DID_NOT_FINISH
    count = len(rows.players)
    numbers = np.resize(np.array(KINDS), (count, NUMBERS))
    counts = np.resize(RULE.provisional_rounds + np.array([-1, 0, 2**23]), count)
    return as_rows(with_rounds(replace(rows, place=place), rounds)), numbers, counts


def as_rows(of: Part) -> Rows:
    return rows_of([decoder.read(schema.encode(of))])


def published(rows: Rows, numbers: Floats, counts: Ints, cut: slice) -> list[Event]:
    events = encode_together(rows, numbers, counts, {3: cut})[3]
    assert len(events) == len(list(events))
    assert all(each in events for each in events)
    return list(events)


def test_the_quick_way_makes_the_same() -> None:
    """Of all rows and of any that follow each other; of none where no row was fresh."""
    for players in (["p"], ["ann", "bob"], ["Straße", "名前", "\x7f", "'/"]):
        rows, numbers, counts = some(*players)
        events = encode_each(3, rows, numbers, counts)
        for first in range(len(rows) + 1):
            for last in range(first, len(rows) + 1):
                cut = slice(first, last)
                assert published(rows, numbers, counts, cut) == events[cut], players
    assert published(rows.take(np.empty(0, np.int64)), numbers[:0], counts[:0], slice(0, 0)) == []


def test_an_offset_ends_the_event() -> None:
    """Of any size, and after all fields that were there before; nothing is said of what is not."""
    _, numbers, counts = some("p")
    for offset in (0, 9, 10, 2**39 - 1, 2**63 - 1):
        given = part((5, "p"))
        given = with_rounds(given, [rounds_in(given)[0]._replace(offset=offset)])
        rows = as_rows(given)
        messages = published(rows, numbers[:1], counts[:1], slice(0, 1))
        assert messages == encode_each(3, rows, numbers[:1], counts[:1])
        assert messages[0].value.endswith(b'"provisional":true,"offset":%d}' % offset)


def test_what_must_be_escaped() -> None:
    """Wherever it stands, in keys and in JSON; a time stands in no key."""
    for unusual, place in product(UNUSUAL, ("player", "ladder", "round_id", "completed_at")):
        rows, numbers, counts = some(unusual if place == "player" else "p")
        if place != "player":
            given = part((5, "p"))
            rows = as_rows(replace(given, **{place: [unusual]}))  # type: ignore[arg-type]
        numbers, counts = numbers[: len(rows)], counts[: len(rows)]
        events = published(rows, numbers, counts, slice(0, len(rows)))
        assert events == encode_each(3, rows, numbers, counts), (unusual, place)
        assert getattr(rating_changed_from_json(events[0].value), place) == unusual


def test_all_shards_begin_before_any_goes_on() -> None:
    """The order within a shard stays."""
    cuts = {3: slice(0, 1), 4: slice(1, 3), 5: slice(3, 3)}
    one, two, none = encode_together(*some("a", "b", "c"), cuts).values()
    (a,), (b, c) = one, two
    assert list(Events.combined([one, none, two])) == [a, b, c]
    assert list(Events.combined([two, one])) == [b, a, c]
    assert list(Events.combined([two, Events.of(3, [a])])) == [b, a, c]


# --- the largest message of each kind -------------------------------------------------------------

HEADERS_BYTES = 2 * STATE_LENGTH  # What a message's headers may take beside its value.
LONGEST_TIME = "2026-11-20T20:15:05." + 43 * "0" + "Z"
TRACE = Trace(f"00-{1:032x}-{1:016x}-01", "s" * STATE_LENGTH)
TRACED = ((PARENT, TRACE.parent.encode()), (STATE, TRACE.state.encode()))
FULL_RECORD = bytes(HEADER_SIZE + HISTORY_SIZE + FACTOR_SIZE * MOST_FACTORS)


def long_id(number: int, char: str = "x") -> str:
    return f"{number:06}{char * MAX_ID_BYTES}"[:MAX_ID_BYTES]


def pending(rounds: int, players: int, ladders: Ladders = ANY_LADDER) -> PendingRounds:
    """Rounds with the longest ids, times and traces, on the ladders of the file in turn."""
    names = [each for each in ladders.ladders if each != "*"] or [long_id(0)]
    records = []
    for i in range(rounds):
        ids = [long_id(number) for number in range(players * i, players * (i + 1))]
        value = as_json(
            *ranked(range(1, players + 1), ids),
            round_id=long_id(i), ladder=names[i % len(names)], completed_at=LONGEST_TIME,
        )  # fmt: skip
        records.append(Record(0, 10 * i, value, TRACED, received_s=4e9))
    decoded, rejections = RoundDecoder(ladders).decode(records)
    assert rejections == [None] * rounds
    return estimation.pending_rounds(records, decoded, 1)


def sent(
    rounds: PendingRounds, rating: RatingConfig = ANY_LADDER.ladders["*"].rating, **more: Any
) -> list[bytes]:
    """The messages of these rounds; what they say is checked to be whole."""
    part = estimation.estimate(rounds, np.zeros(rounds.count, HEADER), [rating], 1, **more)
    whole = schema.messages(part, *rounds.by_shard, ROWS_PER_PART, [None])
    found = [message for _, message in whole]
    rows = [
        (name, each.round_id[number], each.rules[each.rule[number]])
        for each in map(part_in, found)
        for name, number in zip(each.players, each.round_index.tolist(), strict=True)
    ]
    index = rounds.for_each_player(np.arange(len(rounds)))[rounds.by_shard[0]].tolist()
    names = [rounds.rounds.names.texts()[i] for i in rounds.by_shard[0].tolist()]
    all_rounds = rounds_in(part)
    due = [all_rounds[number] for number in index]
    assert rows == [
        (name, each.round_id, part.rules[each.rule]) for name, each in zip(names, due, strict=True)
    ]
    return found


def test_parts_fit() -> None:
    """A part is cut until each message fits. It has only the rules of its own ladders."""
    found = sent(pending(ROWS_PER_PART // 2, 2))
    assert sum(map(len, found)) > 2 * MOST_BYTES
    assert max(map(len, found)) <= MOST_BYTES
    names, elo = [long_id(number) for number in range(300)], Elo(learning_rate=32.0)
    started = {
        name: tuple(Season(1000 * number + 2**20, 0.5, float(i)) for number in range(200))
        for i, name in enumerate(names)
    }
    rounds = pending(300, 2, Ladders(ladders=dict.fromkeys(names, Ladder(rating=elo))))
    rounds.rounds.config_index[:] = 0
    found = sent(rounds, elo, seasons=lambda each, _: started[each])
    assert len(found) > 1
    assert max(map(len, found)) <= MOST_BYTES


def work_on(queued: QueuedCorrection, rows: int = ROWS_PER_PART) -> Work:
    return Work(queued, LadderEdits(), LogContext(ANY_LADDER, 0, 1), PartOptions(1, rows))


def test_correction_parts_with_full_records() -> None:
    """5,000 players of one shard with the longest ids, and as long a history as a record has."""
    players = [long_id(number) for number in range(ROWS_PER_PART)]
    some = ChangedPlayers(players, [FULL_RECORD] * ROWS_PER_PART)
    removed = corrections.PlayerRemoved(ladder=long_id(0), player=long_id(1))
    queued = QueuedCorrection(Record(0, 7, None), removed)
    found = messages_of(work_on(queued), some)
    assert len(found) > 1
    assert max(map(len, found)) <= MOST_BYTES
    parts = list(map(part_in, found))
    assert [player for each in parts for player in each.players] == players
    assert all(each.beliefs and set(each.beliefs.strings()) == {FULL_RECORD} for each in parts)
    few = messages_of(work_on(queued, 2), ChangedPlayers(players[:5], some.records[:5]))
    assert [len(part_in(each)) for each in few] == [2, 2, 1]


def messages_of(work: Work, some: ChangedPlayers) -> list[bytes]:
    step = work._send(some, lambda *_: None, [None])
    effect = next(step)
    assert isinstance(effect, Scatter)
    return [message for _, message in effect.parts]


def test_the_largest_rating_change() -> None:
    """Ids of characters that keys and JSON escape, the longest time and numbers, and a trace."""
    (message,) = sent(pending(1, 2))
    part = part_in(message)
    numbers = np.full((2, NUMBERS), -2.2250738585072014e-308)
    for worst in ("\x01" * MAX_ID_BYTES, "%" * MAX_ID_BYTES):
        rounds = [each._replace(ladder=worst, round_id=worst) for each in rounds_in(part)]
        named = replace(with_rounds(part, rounds), names=StringColumn.of([worst, worst[1:]]))
        rows = rows_of([decoder.read(schema.encode(named))])
        for event in encode_each(3, rows, numbers, np.full(2, 2**24 - 1)):
            headers = sum(len(name) + len(value) for name, value in change_headers(event))
            assert len(event.key) + len(event.value) + headers < 8 * 1024


def test_the_largest_rejection() -> None:
    """The whole record, and headers of which each has a bound."""
    headers = (
        ("content-type", b"t" * 10**6), (corrections.EVENT_TYPE, b"e" * 10**6),
        ("other", b"o" * 10**6), *TRACED,
    )  # fmt: skip
    record = Record(0, 7, b"v" * 3_000_000, headers, key=b"k" * 2_000_000)
    with pytest.raises(Exception, match="none of") as raised:
        decode_correction(record, ANY_LADDER)
    reported: Any = raised.value
    message = rejected_message(Rejection(record, reported.code, str(reported)), "t", LEAST_BYTES)
    assert len(message["key"]) + len(message["value"]) == LEAST_BYTES
    assert sum(len(n) + len(v) for n, v in message["headers"]) < ENVELOPE_BYTES // 2


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
    record = Record(0, 7, to_json(fields), ((corrections.EVENT_TYPE, kind.encode()),), 4e9)
    queued = QueuedCorrection(record, decode_correction(record, ANY_LADDER))
    work = work_on(queued)
    if kind == "season-started":
        work.job.accepted = [queued]
    (found,) = work.ladder_events()
    assert found.event_type == kind
    assert len(found.correction) < 1024


def test_notes_fit() -> None:
    """Of thousands of removals, and of long histories. Headers have room beside a message."""
    removed = [
        corrections.PlayerRemoved(ladder=long_id(0), player=long_id(number), reason="r" * 1000)
        for number in range(2500)
    ]
    wave = [
        RecordedCorrection(at, corrections.name_of(each), Raw(to_json(each)), 5000)
        for at, each in enumerate([*removed, corrections.CorrectionsApplied(ladder=long_id(0))])
    ]
    messages = encode_corrections({long_id(0): wave, "b": wave[:1]})
    assert max(map(len, messages)) <= MOST_BYTES
    assert len(messages) > 4
    assert added_up(messages).corrections == {long_id(0): wave, "b": wave[:1]}
    later = (f"{2**40 + offset}:0123456789abcdef" for offset in range(100))
    history = (*UNKNOWN, *later)
    histories = {long_id(number, "\x01"): history for number in range(1000)}
    messages = encode_histories("noted", histories)
    assert len(messages) > 5
    assert max(map(len, messages)) <= MOST_BYTES
    log = added_up(messages)
    assert {ladder: log.in_force(ladder) for ladder in log.ladders} == histories
    assert MOST_BYTES + HEADERS_BYTES < LEAST_BYTES
