"""Trace context: what is valid is carried to the byte, and nothing else is."""

from hypothesis import given
from hypothesis import strategies as st

from stream_rater.contract.record import STATE_LENGTH, Headers, Trace, trace_of
from tests.builders.cases import cases

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
"""The recommendation's own."""


def sent(parent: bytes, *states: bytes) -> Headers:
    """Headers of a round among which these are."""
    first: Headers = [("content-type", b"application/json"), ("traceparent", parent)]
    return [*first, *(("tracestate", state) for state in states)]


@cases("parent", [PARENT, PARENT[:-2] + "00", "cc" + PARENT[2:]])
@cases("state", ["", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "~" * 512])
def test_what_is_valid_is_carried(parent: str, state: str) -> None:
    """Of a later version of the recommendation, too; sampled or not."""
    trace = trace_of(sent(parent.encode(), state.encode()))
    assert trace == Trace(parent, state)
    assert trace.headers() == [
        each
        for each in (("traceparent", parent.encode()), ("tracestate", state.encode()))
        if each[1]
    ]


@cases(
    "parent",
    [
        "", "00", PARENT[:-1], PARENT + "0", PARENT + "\n", PARENT + "-00", "\n" + PARENT[1:],
        PARENT.upper(), "ff" + PARENT[2:], "0g" + PARENT[2:], PARENT.replace("-", "_"),
        "00-" + 32 * "0" + PARENT[35:], PARENT[:36] + 16 * "0" + "-01", PARENT[:-1] + "\u0661",
        PARENT[:-2] + "\ufffd1", " " + PARENT, 999 * "0",
    ],
)  # fmt: skip
def test_what_is_not_valid_is_left_behind(parent: str) -> None:
    """With its state, and the round is none the worse for it."""
    assert trace_of(sent(parent.encode(), b"rojo=1")) is None


@cases("state", [b"a=\n", b"a=1\n", b"a=\x00", b"a=\xff", b"\xc3\xa9=1", b"a" * 513])
def test_a_state_that_cannot_be_carried(state: bytes) -> None:
    """The parent goes on without."""
    assert trace_of(sent(PARENT.encode(), state)) == Trace(PARENT)


def test_the_first_header_counts() -> None:
    """As of all headers; a name in other letters is another name."""
    twice = [*sent(PARENT.encode(), b"a=1", b"b=2"), ("traceparent", b"00")]
    assert trace_of(twice) == Trace(PARENT, "a=1")
    assert trace_of([("Traceparent", PARENT.encode())]) is None
    assert trace_of([("traceparent", None)]) is None
    assert trace_of([]) is None


@given(st.binary(max_size=80), st.binary(max_size=STATE_LENGTH + 20))
def test_any_bytes_have_a_verdict(parent: bytes, state: bytes) -> None:
    """Nothing is raised, and what is carried is what came."""
    assert trace_of(sent(parent, state)) is None
    trace = trace_of(sent(PARENT.encode(), state))
    assert trace is not None
    assert trace.state.encode() in (state, b"")
