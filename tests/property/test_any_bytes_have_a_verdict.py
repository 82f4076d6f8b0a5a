"""Any bytes at all are a round that makes sense or a refusal with a code, and nothing else."""

import math
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_rater.contract.events import JSON, MSGPACK
from tests.fuzz.outcome import check_outcome
from tests.rounds import event

ANN, BOB, CY = ({"player": name, "rank": i + 1} for i, name in enumerate(("ann", "bob", "cy")))


@given(st.binary(max_size=200), st.sampled_from((JSON, MSGPACK)))
@settings(max_examples=500)
def test_noise(data: bytes, content_type: str) -> None:
    """Random bytes are refused with a code."""
    check_outcome(data, content_type)


WHOLE = event(
    {**ANN, "team": None}, {"team": ["x", "y"], "rank": 2, "shares": [1, 0.5]}, weight=1.5
)


@given(
    st.sampled_from((JSON, MSGPACK)),
    st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=4), st.integers(0, 4)), min_size=1),
)
@settings(max_examples=500)
def test_damaged_bytes(content_type: str, cuts: list[tuple[int, bytes, int]]) -> None:
    """A valid message with bytes changed, put in or left out is refused or still makes sense."""
    encode = msgspec.json.encode if content_type == JSON else msgspec.msgpack.encode
    data = encode(WHOLE)
    for at, put, drop in cuts:
        at %= len(data) + 1
        data = data[:at] + put + data[at + drop :]
    check_outcome(data, content_type)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.sampled_from(("ann", "2026-11-20T20:15:05Z", "ranked-eu", 1, 2, 1.0)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
fields = st.sampled_from([*WHOLE, "player", "rank", "dnf", "team", "shares", "performance_ceiling"])


@given(
    st.sampled_from((JSON, MSGPACK)),
    st.dictionaries(fields, anything, max_size=2),
    st.dictionaries(fields, anything, max_size=3),
)
@example(JSON, {"weight": math.nan}, {})
@settings(max_examples=500)
def test_damaged_values(content_type: str, outer: dict[str, Any], inner: dict[str, Any]) -> None:
    """Any value in any field is refused or makes sense."""
    encode = msgspec.json.encode if content_type == JSON else msgspec.msgpack.encode
    standings = [ANN, {**BOB, **inner}, CY]
    try:
        data = encode({**event(*standings), **outer})
    except UnicodeEncodeError:
        return  # surrogates that neither encoder writes
    check_outcome(data, content_type)
