"""A short run of the fuzzer, proof that it can fail, and inputs made to be costly."""

import tracemalloc

import pytest

from stream_rater.contract import events
from stream_rater.contract.events import JSON, MSGPACK
from stream_rater.rounds import depth
from stream_rater.rounds.validation import Invalid
from tests.fuzz.outcome import READER, RECEIVED, least_s, timed_outcome
from tests.fuzz.recipes import MUTATIONS
from tests.fuzz.run import LONGEST_S, run, warm
from tests.rounds import as_json, as_msgpack

RECIPES = 300
NEVER_S = 1e12

LIMIT = 8 * 2**20
COSTLY_S = 5.0
COSTLY_BYTES = 800 * 2**20
"""A quarter more than the most that was measured, 643 MiB for 8 million empty MessagePack entries;
with it a worker at its largest, 355 MiB, is at half of the 2 GiB that the chart lets a pod have."""


@pytest.mark.slow
def test_any_input_has_a_verdict_soon() -> None:
    """Some twenty thousand inputs: nothing raised but Invalid, every code of one round's, and a
    good part of the inputs valid, or else too little of the decoder would be seen."""
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


def filled(before: bytes, piece: bytes, after: bytes) -> bytes:
    """As many pieces as the limit of bytes lets through."""
    return before + piece * ((LIMIT - len(before) - len(after)) // len(piece)) + after


HEAD, TAIL = as_json().split(b'{"player":"ann","rank":1}')
MSGPACK_HEAD = as_msgpack()[: as_msgpack().index(b"standings") + len(b"standings")]
COSTLY: dict[str, tuple[bytes, str]] = {
    "empty entries": (filled(HEAD, b"{},", b"{}" + TAIL), JSON),
    "entries that are no objects": (filled(HEAD, b"0,", b"0" + TAIL), JSON),
    "a long number": (filled(HEAD + b'{"rank":', b"9", b"}" + TAIL), JSON),
    "a long fraction": (filled(HEAD + b'{"shares":[0.', b"9", b"]}" + TAIL), JSON),
    "a long exponent": (filled(HEAD + b'{"shares":[1e', b"9", b"]}" + TAIL), JSON),
    "an escaped string": (filled(b'{"round_id":"', b"\\u0041", b'"}'), JSON),
    "a quote never closed": (filled(b'{"round_id":"', b"\\\\", b""), JSON),
    "a key again and again": (filled(b"{", b'"weight":1,', b'"weight":1}'), JSON),
    "unknown keys": (filled(b"{", b'"zzzz":[[[]]],', b'"weight":1}'), JSON),
    "brackets in a string": (filled(b'{"round_id":"', b"[", b'"}'), JSON),
    "a large team": (filled(HEAD + b'{"team":[', b'"",', b'""]}' + TAIL), JSON),
    "packed empty entries": (filled(MSGPACK_HEAD + b"\xdd\x00\x7f\xff\x00", b"\x80", b""), MSGPACK),
    "packed nothing": (filled(b"\xdd\x00\x7f\xff\x00", b"\xc0", b""), MSGPACK),
    "a list that claims much": (MSGPACK_HEAD + b"\xdd\xff\xff\xff\xff", MSGPACK),
    "a map that claims much": (b"\xdf\xff\xff\xff\xff", MSGPACK),
    "bytes that claim much": (b"\xc6\xff\xff\xff\xff", MSGPACK),
    "lists of lists": (filled(b"\xdd\x00\x7f\xff\x00", b"\x91\x90", b""), MSGPACK),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COSTLY)
def test_costly_inputs(name: str) -> None:
    """Eight megabytes made to hurt: seconds at most, and memory in proportion."""
    data, content_type = COSTLY[name]
    assert len(data) <= LIMIT
    tracemalloc.start()
    try:
        with pytest.raises(Invalid):
            READER.read(data, [("content-type", content_type.encode())], RECEIVED)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < COSTLY_BYTES, f"{most / 2**20:.0f} MiB"
    _, took_s = timed_outcome(data, content_type)
    assert least_s(took_s, COSTLY_S, lambda: timed_outcome(data, content_type)) < COSTLY_S


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (filled(b"", b" ", b"") + b" " * 8, "too-large"),
        (b"[" * 17 + b"]" * 17, "too-deep"),
        (b"\x91" * 17 + b"\xc0", "too-deep"),
    ],
)
def test_size_and_nesting_come_before_decoding(
    monkeypatch: pytest.MonkeyPatch, data: bytes, code: str
) -> None:
    """First the size, then the nesting, and nothing is decoded of what is over either."""

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
