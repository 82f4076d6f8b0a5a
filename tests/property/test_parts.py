"""Parts are read at once as the decoder reads each; a convoy does what its rows do one by one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.events import RatingChanged, joined, to_json
from stream_rater.contract.record import Record, Trace
from stream_rater.contract.seeds import RESET
from stream_rater.pipeline.parts import decoder, schema, unpacking
from stream_rater.pipeline.parts.decoder import PartView, rows_of
from stream_rater.pipeline.ports import Event, Position, StoredShard
from stream_rater.pipeline.updater import changes
from stream_rater.pipeline.updater.shard import Shard, ShardBatch, next_batches
from stream_rater.rating import record, stages
from stream_rater.rating.model import Beliefs
from stream_rater.rating.parameters import EloMMR, EloR, Glicko
from stream_rater.rating.stages import RatingRule, rule_of
from tests.builders.cases import cases
from tests.builders.machines import RULE, RoundInPart, columns_of, part, rounds_in, with_rounds
from tests.builders.seeding import seed_part

OTHER = msgspec.structs.replace(RULE, config="other", floor=-1.5, rho=-1.0)
TRACE = Trace(f"00-{1:032x}-{2:016x}-01", "a=b")


def some(*players: str, first: int = 7, size: int = 1) -> schema.Part:
    """A part with offsets of all sizes, two rules and ladders, a trace, and texts of any length."""
    plain = part((first, players), (2**39, ["x"]), (-1, ["yy", "zzz"]))
    rounds = [
        each._replace(rule=i % 2, ladder=ladder, round_id=size * each.round_id)
        for i, (each, ladder) in enumerate(zip(rounds_in(plain), ("a", "ß", "a"), strict=True))
    ]
    rounds[1] = rounds[1]._replace(trace=TRACE)
    return with_rounds(replace(plain, rules=[RULE, OTHER]), rounds)


def with_beginnings(plain: schema.Part) -> schema.Part:
    """The part with the mu from which the round began, for some of its rows."""
    began = np.where(np.arange(len(plain.evidence)) % 2, np.nan, 1350.5)
    return replace(plain, evidence=np.column_stack([plain.evidence, began]))


MESSAGES = [
    schema.encode(each)
    for each in (
        some("ann", "bob"), some("Straße", "名\n前", "\U0001f3c6", first=300, size=40),
        some("a" * 300, first=70_000), part((7, "ab"), (9, "c")), part((7, "")),
        with_beginnings(some("ann", "bob")), with_beginnings(part((7, "a"), shards=1)),
        seed_part((7, "ab"), (300, "c"), shards=3), seed_part((7, "a"), kind=RESET, mu=math.nan),
    )
]  # fmt: skip


def contents(view: PartView) -> list[Any]:
    """All that stage 2 reads of a part."""
    rows = rows_of([view])
    ids, (times, completed) = rows.round_ids.texts(), rows.completed_at
    texts = times.texts()
    evidence = rows.evidence.tobytes().hex(" ", 8 * schema.EVIDENCE_COLUMNS).split()
    return [
        (player, ids[r], texts[completed[r]], rows.traces.get(r), rows.rules[rule], *numbers)
        for player, r, rule, *numbers in zip(
            rows.players, rows.round.tolist(), rows.rule_index.tolist(), rows.offset.tolist(),
            rows.time.tolist(), rows.place.tolist(), evidence, strict=True,
        )
    ]  # fmt: skip


class Plain:
    """Reads the columns of a message one by one, as the format says. Raises UnknownPart."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        due(0 <= size <= len(self._data) - self._at, "it ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def ints(self, width: int, count: int) -> list[int]:
        due(width in (0, 1, 2, 4, 8), "no width")
        data = self.take(width * count)
        each = (data[width * i : width * (i + 1)] for i in range(count))
        return [int.from_bytes(some, "little", signed=width == 8) for some in each]

    def strings(self, sizes: Sequence[int]) -> list[bytes]:
        return [self.take(size) for size in sizes]

    def end(self) -> None:
        due(self._at == len(self._data), "it goes on")


def due(holds: bool, otherwise: str) -> None:
    if not holds:
        raise schema.UnknownPart(otherwise)


def decoded(message: bytes) -> list[object]:
    """The same contents by a plain reader. Raises UnknownPart or NotAPart."""
    due(schema.version_of(message) == schema.VERSION, "of another version")
    whole = Plain(message)
    due(whole.take(3) == bytes((0x93, 5, 0xC6)), "no three elements")
    packed = whole.take(int.from_bytes(whole.take(4), "big"))
    due(whole.take(1) == bytes((0xC6,)), "no columns")
    columns = Plain(whole.take(int.from_bytes(whole.take(4), "big")))
    whole.end()
    records, rules, rows, _ = (columns.ints(4, 1)[0] for _ in range(4))
    due(max(records, rows) <= len(message), "too many")
    count = columns.take(1)[0]
    widths = columns.take(11 + count)
    due(count <= 4, "more evidence")
    of_records = [columns.ints(width, records) for width in widths[:7]]
    of_rows = [columns.ints(width, rows) for width in widths[7:11]]
    evidence = np.full((rows, 4), np.nan)
    for c, width in enumerate(widths[11:]):
        due(width in (0, 8), "no width of evidence")
        if width:
            evidence[:, c] = np.frombuffer(columns.take(8 * rows), "<f8")
    try:
        head = msgspec.msgpack.decode(packed, type=schema.Head)
        ids, ladders, times = (
            [each.decode() for each in columns.strings(sizes)] for sizes in of_records[3:6]
        )
        traces = [
            msgspec.msgpack.decode(each, type=Trace) if each else None
            for each in columns.strings(of_records[6])
        ]
        names = [each.decode() for each in columns.strings(of_rows[2])]
        columns.strings(of_rows[3])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise schema.UnknownPart(str(error)) from None
    columns.end()
    fits = len(head.rules) == rules and all(0 <= each < rules for each in of_records[1])
    due(fits and all(0 <= each < records for each in of_rows[0]), "no rule, or no record")
    for rule in head.rules:
        schema.check_kernel(rule.kernel, KERNEL_VERSION)
    return [
        ((ladders[r], player), ids[r], times[r], traces[r], head.rules[of_records[1][r]],
         of_records[0][r], of_records[2][r], place, evidence[i].tobytes().hex())
        for i, (r, player, place) in enumerate(zip(of_rows[0], names, of_rows[1], strict=True))
    ]  # fmt: skip


@cases("message", MESSAGES)
def test_what_is_written_is_read(message: bytes) -> None:
    """No part that we write is left to `read`."""
    (view,) = decoder.read_all([message])
    assert view is not None
    assert contents(view) == decoded(message) == contents(decoder.read(message))
    assert [trace for trace, *_ in view.traced()] == [TRACE] * message.count(b"a=b")


def test_longest_forms() -> None:
    """Columns whose numbers take two or four bytes are read, alone and with other parts."""
    many = [f"{i:05}" for i in range(70_000)]
    messages = [MESSAGES[0], schema.encode(some(*many, "p" * 70_000)), MESSAGES[1], MESSAGES[3]]
    views = [view for view in decoder.read_all(messages) if view is not None]
    assert list(map(contents, views)) == list(map(decoded, messages))
    assert len({id(view.decoded) for view in views}) == 3
    rows = rows_of([views[3], views[0], views[2]])
    assert list(rows.players) == [row[0] for i in (3, 0, 2) for row in contents(views[i])]
    assert len({*rows.rules}) == len(rows.rules) == 2


@given(st.sampled_from(MESSAGES), st.binary(max_size=12), st.integers(0, 2000), st.integers(0, 12))
@example(MESSAGES[0], b"\xff", MESSAGES[0].index(b"bob"), 1)
@example(MESSAGES[0], b"\xc0\x80", MESSAGES[0].index(b"bob"), 2)
@example(MESSAGES[0], b"\xed\xa0\x80", MESSAGES[0].index(b"bob"), 3)
@example(MESSAGES[0], b"00", MESSAGES[0].index(b"00-0"), 2)
def test_damage(message: bytes, noise: bytes, at: int, size: int) -> None:
    """What is read of a damaged part is what the decoder reads; what that refuses is not read."""
    at %= len(message)
    damaged = message[:at] + noise + message[at + size :]
    before, view, after = decoder.read_all([MESSAGES[1], damaged, MESSAGES[3]])
    assert before is not None and contents(before) == decoded(MESSAGES[1])
    assert after is not None and contents(after) == decoded(MESSAGES[3])
    if view is not None:
        assert contents(view) == decoded(damaged)
        return
    try:
        expected = decoded(damaged)
    except (schema.UnknownPart, schema.NotAPart) as error:
        with pytest.raises(type(error)):
            decoder.read(damaged)
        return
    try:
        assert contents(decoder.read(damaged)) == expected
    except schema.UnknownPart as error:
        assert "twice" in str(error) or "too large" in str(error)


def altered(at: int, *values: int) -> bytes:
    """The first message with other bytes in its columns from `at` on."""
    columns = msgspec.msgpack.decode(MESSAGES[0])[2]
    data = columns[:at] + bytes(values) + columns[at + len(values) :]
    return MESSAGES[0].replace(columns, data)


INDEX = 31 + 3 * 8 + 3 * 1 + 3 * 8 + 4 * 3  # Where the column of the rows' records begins.


@cases("message", [
    altered(0, 2), altered(0, 4), altered(4, 1), altered(4, 3), altered(8, 4), altered(8, 6),
    altered(8, 255, 255, 255, 255), altered(16, 2), altered(16, 5), altered(17, 3), altered(17, 9),
    altered(18, 0), altered(28, 4), altered(19, 1), altered(31 + 3 * 8, 2), altered(INDEX, 3),
    MESSAGES[0] + b"\x00", MESSAGES[0][:-1], b"\x94" + MESSAGES[0][1:],
])  # fmt: skip
def test_what_does_not_fit_together(message: bytes) -> None:
    """The part is left to `read`, which refuses it."""
    with pytest.raises(schema.UnknownPart):
        decoded(message)
    assert decoder.read_all([message, MESSAGES[1]])[0] is None
    with pytest.raises(schema.UnknownPart):
        decoder.read(message)


def test_a_part_of_another_kernel_is_left_to_read() -> None:
    """It refuses the part and gives the reason."""
    newer = replace(some("ann"), rules=[RULE, msgspec.structs.replace(RULE, kernel=77)])
    message = schema.encode(newer)
    assert decoder.read_all([message]) == [None]
    with pytest.raises(schema.UnknownPart, match="newer release"):
        decoder.read(message)
    assert decoder.read_all([message], kernel=77) != [None]
    assert KERNEL_VERSION < 77


def test_a_player_twice() -> None:
    """A part with one player twice is refused. The same name on two ladders is two players."""
    twice = replace(some("ann", "ann"))
    assert decoder.read_all([schema.encode(twice)]) == [None]
    with pytest.raises(schema.UnknownPart, match="twice"):
        decoder.read(schema.encode(twice))
    (view,) = decoder.read_all([schema.encode(some("x"))])
    assert view is not None and view.players[:2] == ["x", "x"]


def test_the_same_mark_is_not_the_same_player(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two players whose marks collide are still two players."""
    unpack = unpacking.unpack

    def colliding(*arguments: Any) -> np.ndarray:
        found = unpack(*arguments)
        found[:, unpacking.DISTINCT] = False
        return found

    monkeypatch.setattr(unpacking, "unpack", colliding)
    assert decoder.read_all(MESSAGES[:2]) == [None, None]
    assert contents(decoder.read(MESSAGES[0])) == decoded(MESSAGES[0])


# --- convoys ---

SPREAD: dict[str, Any] = {"weight_limit": 0.2, "sigma_limit": 80.0}
LAWS = [
    rule_of(EloMMR(**SPREAD)),
    rule_of(EloMMR(**SPREAD, initial_mu=1000.0, initial_sigma=200.0, history=2, rho=0.5)),
    rule_of(EloMMR(**SPREAD, initial_mu=-700.0, floor=100.0, display="mu", provisional_rounds=2)),
    rule_of(EloR(history=3)), rule_of(Glicko(beta=200.0, sigma_drift=35.0)),
]  # fmt: skip
LADDERS = ("a", "b:c", "ω", 'd"\n', "e")  # One for each rule.
NAMES = ("ann", "bob", "Straße", "100%", "x{y}", "tab\t")
LAST = 5  # Offset of the last round of whoever has played.


def advanced(
    rule: RatingRule, beliefs: Beliefs, offset: int, time: int, evidence: Sequence[float]
) -> None:
    """Rate one more round of one player, in place."""
    row, zero = np.zeros(1, np.int64), np.zeros(1, np.int64)
    stages.update(beliefs, row, np.array([evidence]), [rule], zero)
    stages.record_round(beliefs, row, np.array([offset]), np.array([time]))


def known(rule: RatingRule, rounds: int) -> bytes | None:
    """The record of a player with so many rounds, the last one at LAST; None without rounds."""
    if rounds == 0:
        return None
    beliefs = record.decode([None], rule.kept + 1, rule.initial_mu, rule.initial_sigma)
    for i in range(rounds):
        advanced(rule, beliefs, LAST - rounds + 1 + i, 1000 * i, (1500.0 + 90.0 * i, 4e4, 1e3))
    return record.encode(beliefs)[0]


RECORDS = [[known(rule, rounds) for rounds in (0, 1, 2, 4)] for rule in LAWS]


class Row(NamedTuple):
    """A player in a round."""

    ladder: int
    player: str
    offset: int
    place: int
    performance: float
    rounds: int
    traced: bool

    @property
    def stored(self) -> bytes | None:
        return RECORDS[self.ladder][self.rounds]

    @property
    def evidence(self) -> tuple[float, float, float]:
        return self.performance, 3e4 + self.performance, 900.0

    @property
    def round(self) -> RoundInPart:
        trace = Trace(f"00-{1 + self.offset:032x}-{1:016x}-01", "a=b") if self.traced else None
        time, ladder = 100 * self.offset, LADDERS[self.ladder]
        return RoundInPart(self.offset, 0, time, f"r%{self.offset}", ladder, f"t{time}", trace)


rows = st.builds(
    Row,
    st.integers(0, len(LAWS) - 1), st.sampled_from(NAMES), st.integers(LAST - 1, LAST + 2),
    st.integers(0, 3), st.sampled_from([-300.0, 1500.0, 1600.1, 2800.25]), st.integers(0, 3),
    st.booleans(),
)  # fmt: skip
batches = st.lists(rows, max_size=9, unique_by=lambda row: (row.ladder, row.player))
"""Rows of one shard."""


def part_of(of: Sequence[Row]) -> bytes:
    """A part of these rows, with rules in the order in which they come."""
    rules = list(dict.fromkeys(LAWS[row.ladder] for row in of))
    rounds = dict.fromkeys(row.round for row in of)
    own = {each.ladder: rules.index(LAWS[LADDERS.index(each.ladder)]) for each in rounds}
    numbers = {each: i for i, each in enumerate(rounds)}
    whole = schema.Part(
        rules=rules,
        **columns_of(*(each._replace(rule=own[each.ladder]) for each in rounds)),
        round_index=np.array([numbers[row.round] for row in of], np.int64),
        place=np.array([row.place for row in of], np.int32),
        evidence=np.array([row.evidence for row in of]).reshape(-1, 3),
        names=StringColumn.of([row.player for row in of]),
    )
    return schema.encode(whole)


def alone(shard: int, row: Row) -> tuple[bytes, Event] | None:
    """The record and the event that one row gives, by plain means; None if it is not fresh."""
    rule, of = LAWS[row.ladder], row.round
    beliefs = record.decode([row.stored], rule.kept + 1, rule.initial_mu, rule.initial_sigma)
    if row.offset <= beliefs.header["last"][0]:
        return None
    advanced(rule, beliefs, row.offset, of.time, row.evidence)
    header = beliefs.header[0]
    mu, sigma, previous_mu, previous_sigma = (
        float(header[name]) for name in ("mu", "sigma", "previous_mu", "previous_sigma")
    )
    event_id, count = joined(of.ladder, of.round_id, row.player), int(header["rounds"])
    changed = RatingChanged(
        event_id=event_id, ladder=of.ladder, player=row.player, round_id=of.round_id,
        completed_at=of.completed_at, rank=row.place or None, mu=mu, sigma=sigma,
        previous_mu=previous_mu, previous_sigma=previous_sigma, performance=row.performance,
        rating=rule.rating(mu, sigma), previous_rating=rule.rating(previous_mu, previous_sigma),
        rounds=count, provisional=count < rule.provisional_rounds, offset=row.offset,
    )  # fmt: skip
    key = joined(of.ladder, row.player).encode()
    event = Event(shard, key, to_json(changed), event_id.encode(), of.completed_at, of.trace)
    return record.encode(beliefs)[0], event


class OfAnybody(Shard):
    """A shard that is the home of every player."""

    __slots__ = ()

    def _check_shard(self, part: PartView, shard: int) -> None:
        pass


def convoy_of(
    wanted: Mapping[int, Sequence[Row]], cuts: Sequence[int], together: bool
) -> ShardBatch:
    """A convoy of each shard's rows, in parts of these sizes, read together or one by one."""
    records = []
    for number, some in wanted.items():
        first = offset = 0
        while first < len(some) or offset == 0:
            last = first + cuts[(number + offset) % len(cuts)]
            records.append(Record(number, offset, part_of(some[first:last])))
            first, offset = last, offset + 1
    pieces = decoder.read_all([each.value or b"" for each in records])
    shards = {number: OfAnybody.at(Position(), 0, 1) for number in wanted}
    for each, piece in zip(records, pieces, strict=True):
        assert piece is not None
        shards[each.partition].read(each, part=piece if together else None)
    (batch,) = next_batches(shards, 1000)
    assert not any(shard.barrier or shard.queue for shard in shards.values())
    return batch


@given(st.dictionaries(st.integers(0, 9), batches, min_size=1, max_size=4), st.data())
def test_a_convoy_does_what_its_rows_do(wanted: dict[int, list[Row]], data: st.DataObject) -> None:
    """Beliefs and events are the same, built again, too: all rules, newcomers, stale rows."""
    cuts = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    batch = convoy_of(wanted, cuts, data.draw(st.booleans()))
    asked = {s: list(roster) for s, roster in batch.players.items()}
    assert asked == {s: [(LADDERS[r.ladder], r.player) for r in own] for s, own in wanted.items()}
    stored = {s: StoredShard(Position(7), [row.stored for row in own]) for s, own in wanted.items()}
    done = changes.compute_changes(batch, stored)
    assert list(done) == list(wanted)
    for change, (shard, own) in zip(done.values(), wanted.items(), strict=True):
        found = [(row, alone(shard, row)) for row in own]
        fresh = [(row, made) for row, made in found if made is not None]
        flags = np.packbits(np.array([made is not None for _, made in found], np.bool_))
        position = replace(change.position, tail=None)
        assert position == Position(batch.ends[shard], 7, flags.tobytes())
        assert (change.rows, change.fresh) == (len(own), len(fresh))
        new = {(LADDERS[row.ladder], row.player): record for row, (record, _) in fresh}
        assert list(change.beliefs) == list(new.items())
        assert list(change.events) == [event for _, (_, event) in fresh]
        left = [new.get(player, row.stored) for player, row in zip(asked[shard], own, strict=True)]
        now = StoredShard(change.position, left)
        again = changes.build_events_again(shard, batch.take([shard]), now, 0)
        assert list(again) == list(change.events)
