"""A short run of the fuzzer, proof that it can fail, and inputs made to be costly."""

import tracemalloc
from functools import partial

import pytest

from stream_rater.contract import events
from stream_rater.contract.events import JSON, MSGPACK
from stream_rater.rounds import depth
from stream_rater.rounds.validation import Invalid
from tests.fuzz.recipes import MUTATIONS, READER, RECEIVED, least_s, timed_outcome
from tests.fuzz.run import LONGEST_S, run, warm
from tests.rounds import as_json, as_msgpack

RECIPES = 300
NEVER_S = 1e12

LIMIT = 8 * 2**20
COSTLY_S = 40.0 / LIMIT  # no measurement: what is not linear takes longer, however slow the machine
COSTLY_BYTES = 100
"""Both are for each byte of an input. The largest input may take 800 MiB, a quarter more than the
most that was measured. Then a worker of 355 MiB is at half of the 2 GiB that a pod has."""


def test_any_input_has_a_verdict_soon() -> None:
    """Thousands of inputs raise nothing but Invalid. Every code and many valid ones occur."""
    warm()
    tally = run(0, RECIPES, NEVER_S)
    assert tally.wrong == []
    assert tally.inputs > RECIPES * MUTATIONS
    assert tally.codes[""] > tally.inputs / 100
    assert len(tally.codes) >= 9


def test_the_fuzzer_can_fail() -> None:
    """Another exception, a slow verdict and standings that break their promise are all found."""

    def raises(data: bytes, content_type: str) -> tuple[str, float]:
        if b"\xff\xff\xff\xff" in data:
            raise MemoryError(data)
        return "", 2 * LONGEST_S if data.endswith(b"1" * 400) else 0.0

    report = "\n".join(run(0, RECIPES, NEVER_S, raises).wrong)
    assert "MemoryError" in report
    assert f"{2 * LONGEST_S:.3f} s for" in report


def test_a_pause_of_the_machine_is_no_slow_verdict() -> None:
    """One slow try does not count. An input that is always slow is reported with its least cost."""
    tries = iter([("", 9.0), ("", 0.1), ("", 8.0)])
    assert least_s(10.0, 1.0, lambda: next(tries)) == 0.1
    assert least_s(10.0, 1.0, lambda: ("", 9.0)) == 9.0


def filled(before: bytes, piece: bytes, after: bytes, size: int = LIMIT) -> bytes:
    """An input with as many pieces as this size allows."""
    return before + piece * ((size - len(before) - len(after)) // len(piece)) + after


HEAD, TAIL = as_json().split(b'{"player":"ann","rank":1}')
MSGPACK_HEAD = as_msgpack()[: as_msgpack().index(b"standings") + len(b"standings")]
COSTLY: dict[str, tuple[bytes, bytes, bytes, str]] = {
    "empty entries": (HEAD, b"{},", b"{}" + TAIL, JSON),
    "entries that are no objects": (HEAD, b"0,", b"0" + TAIL, JSON),
    "a long number": (HEAD + b'{"rank":', b"9", b"}" + TAIL, JSON),
    "a long fraction": (HEAD + b'{"shares":[0.', b"9", b"]}" + TAIL, JSON),
    "a long exponent": (HEAD + b'{"shares":[1e', b"9", b"]}" + TAIL, JSON),
    "an escaped string": (b'{"round_id":"', b"\\u0041", b'"}', JSON),
    "a quote never closed": (b'{"round_id":"', b"\\\\", b"", JSON),
    "a key again and again": (b"{", b'"weight":1,', b'"weight":1}', JSON),
    "unknown keys": (b"{", b'"zzzz":[[[]]],', b'"weight":1}', JSON),
    "brackets in a string": (b'{"round_id":"', b"[", b'"}', JSON),
    "a large team": (HEAD + b'{"team":[', b'"",', b'""]}' + TAIL, JSON),
    "packed empty entries": (MSGPACK_HEAD + b"\xdd\x00\x7f\xff\x00", b"\x80", b"", MSGPACK),
    "packed nothing": (b"\xdd\x00\x7f\xff\x00", b"\xc0", b"", MSGPACK),
    "a list that claims much": (MSGPACK_HEAD, b"\xdd\xff\xff\xff\xff", b"", MSGPACK),
    "a map that claims much": (b"", b"\xdf\xff\xff\xff\xff", b"", MSGPACK),
    "bytes that claim much": (b"", b"\xc6\xff\xff\xff\xff", b"", MSGPACK),
    "lists of lists": (b"\xdd\x00\x7f\xff\x00", b"\x91\x90", b"", MSGPACK),
}
"""What comes before, what is repeated, what comes after, and the content type."""


@pytest.mark.parametrize("size", [LIMIT // 8, pytest.param(LIMIT, marks=pytest.mark.slow)])
def test_costly_inputs(size: int) -> None:
    """Time and memory are in proportion to the size of inputs that are made to be costly."""
    wrong = []
    for name, (before, piece, after, content_type) in COSTLY.items():
        data = filled(before, piece, after, len(before) + 5 if "claim" in name else size)
        tracemalloc.start()
        try:
            with pytest.raises(Invalid):
                READER.read(data, [("content-type", content_type.encode())], RECEIVED)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        again = partial(timed_outcome, data, content_type)
        took_s = least_s(again()[1], COSTLY_S * size, again)
        if most >= COSTLY_BYTES * size or took_s >= COSTLY_S * size:
            wrong.append(f"{name}: {most / 2**20:.0f} MiB, {took_s:.3f} s")
    assert wrong == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (filled(b"", b" ", b"") + b" " * 8, "too-large"),
        (b"[" * 17 + b"]" * 17, "too-deep"),
        (b"\x91" * 17 + b"\xc0", "too-deep"),
    ],
)
def test_size_and_nesting_first(monkeypatch: pytest.MonkeyPatch, data: bytes, code: str) -> None:
    """Size is checked first, then nesting. What exceeds either limit is not decoded."""

    def never(_: bytes) -> None:
        raise AssertionError("decoded")

    content_type = MSGPACK if data[0] == 0x91 else JSON
    for name in ("round_from_json", "round_from_msgpack"):
        monkeypatch.setattr(events, name, never)
    if code == "too-large":
        monkeypatch.setattr(depth, "json_depth", never)
    with pytest.raises(Invalid) as rejection:
        READER.read(data, [("content-type", content_type.encode())], RECEIVED)
    assert rejection.value.code == code
