"""Parts read many at once are what the decoder makes of each, or are left to it."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.record import Trace
from stream_rater.pipeline.parts import decoder, schema, unpacking
from stream_rater.pipeline.parts.decoder import PartView, rows_of
from stream_rater.pipeline.parts.schema import (
    EVIDENCE_BYTES,
    EVIDENCE_COLUMNS,
    NotAPart,
    Part,
    UnknownPart,
)
from tests.builders.cases import cases
from tests.builders.machines import RULE, part

VERSION, RULES, ROUNDS, ROUND_INDEX, PLACE, EVIDENCE, PLAYERS = range(7)
OTHER = msgspec.structs.replace(RULE, config="other", floor=-1.5, rho=-1.0)
TRACE = Trace(f"00-{1:032x}-{2:016x}-01", "a=b")


def some(*players: str, first: int = 7, size: int = 1) -> Part:
    """Rounds with offsets of all sizes, two laws and ladders, and a trace; texts of any length."""
    plain = part((first, players), (2**39, ["x"]), (-1, ["yy", "zzz"]))
    rounds = [
        msgspec.structs.replace(each, rule=i % 2, ladder=ladder, round_id=size * each.round_id)
        for i, (each, ladder) in enumerate(zip(plain.rounds, ("a", "ß", "a"), strict=True))
    ]
    rounds[1] = msgspec.structs.replace(rounds[1], trace=TRACE)
    return replace(plain, rules=[RULE, OTHER], rounds=rounds)


def with_beginnings(plain: Part) -> Part:
    """A part that says of some of its rows where the round began for them."""
    began = np.where(np.arange(len(plain.evidence)) % 2, np.nan, 1350.5)
    return replace(plain, evidence=np.column_stack([plain.evidence, began]))


MESSAGES = [
    schema.encode(each)
    for each in (
        some("ann", "bob"), some("Straße", "名前", "\U0001f3c6", first=300, size=40),
        some("a" * 300, first=70_000), part((7, "ab"), (9, "c")), part((7, "")),
        with_beginnings(some("ann", "bob")), with_beginnings(part((7, "a"))),
    )
]  # fmt: skip


def contents(view: PartView) -> list[Any]:
    """All that stage 2 learns of a part."""
    rows = rows_of([view])
    ids, (times, completed) = rows.round_ids.texts(), rows.completed_at
    texts = times.texts()
    evidence = rows.evidence.tobytes().hex(" ", EVIDENCE_BYTES).split()
    return [
        (player, ids[r], texts[completed[r]], rows.traces.get(r), rows.rules[rule], *numbers)
        for player, r, rule, *numbers in zip(
            rows.players, rows.round.tolist(), rows.rule_index.tolist(), rows.offset.tolist(),
            rows.time.tolist(), rows.place.tolist(), evidence, strict=True,
        )
    ]  # fmt: skip


def decoded(message: bytes) -> list[object]:
    """The same, by the decoder; raises what it raises. A column that was left out says nothing."""
    of = schema.decode(message)
    whole = np.full((len(of.evidence), EVIDENCE_COLUMNS), np.nan)
    whole[:, : of.evidence.shape[1]] = of.evidence
    each = [of.rounds[i] for i in of.round_index.tolist()]
    return [
        ((r.ladder, player), r.round_id, r.completed_at, r.trace, of.rules[r.rule], r.offset,
         r.time, place, evidence.tobytes().hex())
        for r, player, place, evidence in zip(
            each, of.players, of.place.tolist(), whole, strict=True
        )
    ]  # fmt: skip


@cases("message", MESSAGES)
def test_what_is_written_is_read(message: bytes) -> None:
    """Nothing of it is left to the decoder."""
    (view,) = decoder.read_all([message])
    assert view is not None
    assert contents(view) == decoded(message) == contents(decoder.read(message))
    assert [trace for trace, *_ in view.traced()] == [TRACE] * message.count(b"a=b")


def test_longest_forms() -> None:
    """Lists and texts whose sizes take two bytes or four, in slabs of their own and together."""
    many = [f"{i:05}" for i in range(70_000)]
    message = schema.encode(some(*many, "p" * 70_000))
    messages = [MESSAGES[0], message, MESSAGES[1], MESSAGES[3]]
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
@example(MESSAGES[0], b"\xf4\x90\x80\x80", MESSAGES[0].index(b"\xa3bob"), 4)
@example(MESSAGES[0], b"00", MESSAGES[0].index(b"00-0"), 2)
@example(MESSAGES[0], b"\xcf" + b"\xff" * 8, 1 + MESSAGES[0].index(b"\x97\x07"), 1)
def test_damage(message: bytes, noise: bytes, at: int, size: int) -> None:
    """Whatever is read of it is what the decoder reads, in any company, which is read all the same;
    and what the decoder refuses is not read."""
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
    except (UnknownPart, NotAPart) as error:
        with pytest.raises(type(error)):
            decoder.read(damaged)
        return
    try:
        assert contents(decoder.read(damaged)) == expected
    except UnknownPart as error:
        assert "twice" in str(error) or "too large" in str(error)


def changed(index: int, value: Any) -> bytes:
    """A message of four rows with one of its elements replaced."""
    elements = msgspec.msgpack.decode(MESSAGES[0])
    elements[index] = value(elements[index])
    return msgspec.msgpack.encode(elements)


@cases(
    "message",
    [
        changed(VERSION, lambda _: 2),
        changed(RULES, lambda rules: rules[:1]),
        changed(RULES, lambda rules: rules[0]),
        changed(ROUNDS, lambda rounds: rounds[:2]),
        changed(ROUNDS, lambda rounds: [[each[0], -1, *each[2:]] for each in rounds]),
        changed(ROUND_INDEX, lambda _: np.array([0, 0, 1, 2, 3], "<i4").tobytes()),
        changed(ROUND_INDEX, lambda _: np.array([0, 0, -1, 2, 2], "<i4").tobytes()),
        changed(ROUND_INDEX, lambda column: column[:-1]),
        changed(PLACE, lambda column: column + b"0000"),
        changed(EVIDENCE, lambda column: column[:-24]),
        changed(PLAYERS, lambda players: players[:-1]),
        MESSAGES[0] + b"\x00",
        MESSAGES[0][:-1],
    ],
)
def test_what_does_not_fit_together(message: bytes) -> None:
    """Is not read, but left to the decoder, which refuses it."""
    assert decoder.read_all([message, MESSAGES[1]])[0] is None
    with pytest.raises(UnknownPart):
        decoder.read(message)


def test_a_part_of_another_kernel_is_left_to_the_decoder() -> None:
    """The decoder refuses it and says why."""
    newer = replace(some("ann"), rules=[RULE, msgspec.structs.replace(RULE, kernel=77)])
    message = schema.encode(newer)
    assert decoder.read_all([message]) == [None]
    with pytest.raises(UnknownPart, match="newer release"):
        decoder.read(message)
    assert decoder.read_all([message], kernel=77) != [None]
    assert KERNEL_VERSION < 77


def test_a_player_twice() -> None:
    """Refused, though on two ladders it is two."""
    twice = replace(some("ann", "ann"))
    assert decoder.read_all([schema.encode(twice)]) == [None]
    with pytest.raises(UnknownPart, match="twice"):
        decoder.read(schema.encode(twice))
    (view,) = decoder.read_all([schema.encode(some("x"))])
    assert view is not None and view.players[:2] == ["x", "x"]


def test_the_same_mark_is_not_the_same_player(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has another's by chance is a player still."""
    unpack = unpacking.unpack

    def colliding(*arguments: Any) -> np.ndarray:
        found = unpack(*arguments)
        found[:, unpacking.DISTINCT] = False
        return found

    monkeypatch.setattr(unpacking, "unpack", colliding)
    assert decoder.read_all(MESSAGES[:2]) == [None, None]
    assert contents(decoder.read(MESSAGES[0])) == decoded(MESSAGES[0])


def test_names_of_a_piece() -> None:
    """Texts, whatever stands between them."""
    (view,) = decoder.read_all(
        [schema.encode(replace(part((7, "ab")), names=StringColumn.of(["a\n", "b"])))]
    )
    assert view is not None and view.players == ["a\n", "b"]
