"""The belief record: bytes in, the same bytes out, and nothing guessed."""

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.rating import record
from stream_rater.rating.model import NEVER, Beliefs, newcomers
from stream_rater.rating.record import FACTOR_SIZE, HEADER_SIZE, VERSION, UnknownRecord

HEADER = struct.Struct("<BBHIqqq6d")
"""model.HEADER, said once more by hand: the layout is a promise to every later release."""

words = st.integers(-(2**63), 2**63 - 1)
numbers = st.floats(width=64)  # any bits that are a number, infinities and NaN included


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """The bytes of any belief there could be."""
    factors = draw(st.lists(st.tuples(numbers, numbers, numbers), max_size=20))
    head = HEADER.pack(
        VERSION,
        draw(st.integers(0, 255)),
        len(factors),
        draw(st.integers(0, 2**32 - 1)),
        *(draw(words) for _ in range(3)),
        *(draw(numbers) for _ in range(6)),
    )
    return head + b"".join(struct.pack("<3d", *each) for each in factors)


def decode(*given: bytes | None, capacity: int = 4) -> Beliefs:
    return record.decode(given, capacity, 1500.0, 350.0)


@given(st.lists(records(), min_size=1, max_size=4))
def test_a_round_trip_is_the_identity(given_records: list[bytes]) -> None:
    """decode then encode gives the very bytes, whatever the numbers."""
    assert given_records == record.encode(decode(*given_records))


def test_fields_are_where_they_belong() -> None:
    """Version, count, rounds, last, time, previous time, then mu, sigma and the rest, in order."""
    head = HEADER.pack(VERSION, 0, 1, 7, 11, 12, 13, *(float(i) for i in range(20, 26)))
    beliefs = decode(head + struct.pack("<3d", 1600.0, 0.01, 0.02))
    names = ["count", "rounds", "last", "time", "previous_time", "mu", "sigma", "previous_mu"]
    names += ["previous_sigma", "center", "precision"]
    expected = [1, 7, 11, 12, 13, 20.0, 21.0, 22.0, 23.0, 24.0, 25.0]
    assert expected == [beliefs.header[name][0].item() for name in names]
    assert beliefs.factors[0, 0].tolist() == [1600.0, 0.01, 0.02]


def test_nothing_is_a_newcomer() -> None:
    """No record is a player who never played, with room for the capacity asked for."""
    beliefs = decode(None, capacity=5)
    fresh = newcomers(1, 5, 1500.0, 350.0)
    assert fresh.header.tobytes() == beliefs.header.tobytes()
    assert beliefs.factors.shape == (1, 5, 3)
    assert beliefs.header["last"][0] == NEVER


def test_there_is_always_room_for_one_more() -> None:
    """Factors beyond the capacity asked for (K was once larger) are kept, with a row to spare."""
    full = newcomers(1, 9, 1500.0, 350.0)
    full.header["count"] = 9
    full.factors[0] = np.arange(27.0).reshape(9, 3)
    beliefs = decode(None, record.encode(full)[0], capacity=4)
    assert beliefs.factors.shape == (2, 10, 3)
    assert full.factors[0].tolist() == beliefs.factors[1, :9].tolist()


GOOD = record.encode(newcomers(1, 1, 1500.0, 350.0))[0]


@pytest.mark.parametrize("version", [0, VERSION + 1, 255])
def test_an_unknown_version_is_refused(version: int) -> None:
    """Another release's record is never guessed at."""
    with pytest.raises(UnknownRecord, match="version"):
        decode(bytes([version]) + GOOD[1:])


@given(records(), st.data())
def test_a_cut_record_is_refused(whole: bytes, data: st.DataObject) -> None:
    """Any part of a record that lacks its end is refused, the empty one, too."""
    with pytest.raises(UnknownRecord):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(records(), st.binary(min_size=1, max_size=2 * FACTOR_SIZE))
def test_an_overlong_record_is_refused(whole: bytes, more: bytes) -> None:
    """Bytes that the count does not explain are refused."""
    with pytest.raises(UnknownRecord):
        decode(whole + more)


@given(st.binary(max_size=3 * HEADER_SIZE))
def test_noise_is_refused_or_read(noise: bytes) -> None:
    """Arbitrary bytes raise UnknownRecord and nothing else."""
    with contextlib.suppress(UnknownRecord):
        assert record.encode(decode(noise)) == [noise]


@given(st.lists(records(), max_size=5))
def test_headers_alone_are_what_the_records_say(given_records: list[bytes]) -> None:
    """read_headers on the cut records gives the columns that decode gives."""
    headers = record.read_headers(b"".join(each[:HEADER_SIZE] for each in given_records))
    assert headers.tobytes() == b"".join(each[:HEADER_SIZE] for each in given_records)


def test_headers_of_an_unknown_version_are_refused() -> None:
    """One foreign header among good ones, or a torn one, is refused; zeros mean no belief."""
    head = GOOD[:HEADER_SIZE]
    with pytest.raises(UnknownRecord, match="version"):
        record.read_headers(head + bytes([VERSION + 1]) + head[1:])
    with pytest.raises(UnknownRecord, match="whole"):
        record.read_headers(head + head[:-1])
    assert record.read_headers(head + bytes(HEADER_SIZE))["version"].tolist() == [VERSION, 0]
