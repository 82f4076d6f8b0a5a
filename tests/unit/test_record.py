"""The belief record: bytes in, the same bytes out, and nothing guessed."""

import contextlib
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.rating import record
from stream_rater.rating.elo_mmr import belief
from stream_rater.rating.factor import factors_of
from stream_rater.rating.kernels import elo_r
from stream_rater.rating.model import NEVER, Beliefs, newcomers
from stream_rater.rating.record import (
    FACTOR_SIZE,
    HEADER_SIZE,
    HISTORY_SIZE,
    OLD_VERSION,
    VERSION,
    VOLATILE,
    UnknownRecord,
    Unrecordable,
)

HEADER = struct.Struct("<BbB3s5s5s5s4f2HB")
HISTORY = struct.Struct("<4f")
"""The layout, said once more by hand: it is a promise to every later release."""
HEADER_NAMES = ["version", "grid", "count", "rounds", "last", "time", "previous_time", "mu",
                "sigma", "previous_mu", "previous_sigma", "season", "previous_season",
                "untold"]  # fmt: skip
singles = st.floats(-1e6, 1e6, width=32)
grids = st.integers(-20, 10)


def integer(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little", signed=True)


def factor_code(performance: int, weight: int, excess: int) -> bytes:
    """48 bits: 20 for the performance, 15 for the weight, 13 for the excess width."""
    return (performance % 2**20 | weight << 20 | excess << 35).to_bytes(6, "little")


factor_codes = st.builds(
    factor_code,
    st.integers(1 - 2**19, 2**19 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**13 - 1),
)  # fmt: skip


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """The bytes of any belief there could be."""
    factors = draw(st.lists(factor_codes, max_size=20))
    stamps = st.integers(-(2**39) + 1, 2**39 - 1)
    head = HEADER.pack(
        VERSION if factors else OLD_VERSION, draw(grids), len(factors),
        draw(st.binary(min_size=3, max_size=3)),
        *(integer(draw(stamps), 5) for _ in range(3)), *(draw(singles) for _ in range(4)),
        *(draw(st.integers(0, 2**16 - 1)) for _ in range(2)), draw(st.integers(0, 3)),
    )  # fmt: skip
    if head[-1] & VOLATILE:
        head += struct.pack("<f", draw(st.floats(2.0**-10, 2.0**10, width=32)))
    if not factors:
        return head
    narrowest = draw(st.floats(2.0**-10, 2.0**20, width=32))
    return head + HISTORY.pack(*(draw(singles) for _ in range(3)), narrowest) + b"".join(factors)


def decode(*given: bytes | None, capacity: int = 4) -> Beliefs:
    return record.decode(given, capacity, 1500.0, 350.0)


@given(st.lists(records(), min_size=1, max_size=4))
def test_a_round_trip_is_the_identity(given_records: list[bytes]) -> None:
    """decode and then encode gives the same bytes; read_headers gives the columns of decode."""
    whole = decode(*given_records)
    assert given_records == record.encode(whole)
    headers = record.read_headers(b"".join(each[:HEADER_SIZE] for each in given_records))
    for name in HEADER_NAMES:
        assert whole.header[name].tolist() == headers[name].tolist(), name


def test_fields_are_where_they_belong() -> None:
    """Version, grid, count, rounds, last, times, mu, sigma, both before, seasons, and the rest."""
    head = HEADER.pack(
        VERSION, -4, 1, integer(7, 3), integer(11, 5), integer(-12, 5), integer(-13, 5),
        *(float(i) for i in range(20, 24)), 14, 15, 1,
    )  # fmt: skip
    # 1600 points are 25,600 steps of 1/16; code 1 << 13 is 2^-2; 6 << 9 is 1
    history = HISTORY.pack(24.0, 25.0, 26.0, 160.0) + factor_code(-25_600, 1 << 13, 6 << 9)
    beliefs = decode(head + history)
    names = [*HEADER_NAMES[1:], "center", "precision", "scale", "width"]
    expected = [-4, 1, 7, 11, -12, -13, 20.0, 21.0, 22.0, 23.0, 14, 15, 1, 24.0, 25.0, 26.0, 160.0]
    assert expected == [beliefs.header[name][0].item() for name in names]
    p, a, r = factors_of(beliefs)[0, 0].tolist()
    assert (p, r) == (-1600.0, 0.25)
    # as wide again as the narrowest: the variance is twice its
    assert math.pi**2 / (12.0 * a**2) == pytest.approx(2.0 * 160.0**2, rel=1e-15)


def test_sizes() -> None:
    """42 bytes, and with K factors 58 + 6 K (capacity.md). A number too large is an error."""
    assert (HEADER.size, HISTORY.size, 6) == (HEADER_SIZE, HISTORY_SIZE, FACTOR_SIZE)
    assert len(GOOD) == HEADER_SIZE == 42
    assert len(record.encode(rated([1500.0, 1600.0, 1700.0]))[0]) == 42 + 16 + 3 * 6
    for name, value in (("count", 65), ("rounds", 2**24), ("last", 2**39), ("time", 2**39)):
        beliefs = rated([1500.0])
        beliefs.header[name] = value
        with pytest.raises(Unrecordable, match=name):
            record.encode(beliefs)
    with pytest.raises(Unrecordable, match="full history"):
        record.encode(newcomers(1, 1, 1500.0, 350.0))


def a_newcomer(kept: int) -> Beliefs:
    beliefs = newcomers(1, kept + 1, 1500.0, 350.0, coded=True)
    beliefs.header["version"] = VERSION
    return beliefs


def rated(season: list[float], beta2: float = 30_000.0, kept: int = 4, rho: float = 0.5) -> Beliefs:
    """A player after a season of performances, with a few factors kept."""
    beliefs, one = a_newcomer(kept), np.zeros(1, np.int64)
    for i, p in enumerate(season):
        evidence = np.array([[p, beta2 * (1 + i % 3), 900.0]])
        belief.update(beliefs.header, beliefs.factors, one, evidence, np.full(1, rho), one + kept)
    return beliefs


SEASONS = st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=30)


@given(SEASONS, st.floats(1.0, 1e6), st.integers(1, 8), st.sampled_from([0.0, 0.04, 1.0, math.inf]))
def test_a_belief_is_its_record(season: list[float], beta2: float, kept: int, rho: float) -> None:
    """After every round a belief has no bit that its record lacks, by Elo-R, too."""
    of_elo_r, one = a_newcomer(kept), np.zeros(1, np.int64)
    for i, p in enumerate(season):
        evidence = np.array([[p, 250.0**2 * (1 + i % 3), 109.0**2]])
        elo_r.update(of_elo_r.header, of_elo_r.factors, one, evidence, one + kept)
    for beliefs in (rated(season, beta2, kept, rho), of_elo_r):
        again = decode(*record.encode(beliefs), capacity=kept + 1)
        count = int(beliefs.header["count"][0])
        assert beliefs.header.tobytes() == again.header.tobytes()
        assert beliefs.factors[0, :count].tobytes() == again.factors[0, :count].tobytes()


def test_nothing_is_a_newcomer() -> None:
    """Without a record a player has never played. Factors beyond the capacity are kept."""
    beliefs = decode(None, capacity=5)
    assert newcomers(1, 5, 1500.0, 350.0).header.tobytes() == beliefs.header.tobytes()
    assert beliefs.factors.shape == (1, 5)
    assert beliefs.header["last"][0] == NEVER
    full = rated([100.0 * i for i in range(12)], kept=9)
    beliefs = decode(None, record.encode(full)[0], capacity=4)
    assert beliefs.factors.shape == (2, 10)
    assert full.factors[0, :9].tolist() == beliefs.factors[1, :9].tolist()


GOOD = record.encode(newcomers(1, 1, 1500.0, 350.0, coded=True))[0]


def test_an_unknown_version_is_refused() -> None:
    """So is a torn record, alone or among good ones. Zeros mean that there is no belief."""
    for version in (0, VERSION + 1, 255):
        with pytest.raises(UnknownRecord, match="version"):
            decode(bytes([version]) + GOOD[1:])
    head = GOOD[:HEADER_SIZE]
    with pytest.raises(UnknownRecord, match="version"):
        record.read_headers(head + bytes([VERSION + 1]) + head[1:])
    with pytest.raises(UnknownRecord, match="whole"):
        record.read_headers(head + head[:-1])
    assert record.read_headers(head + bytes(HEADER_SIZE))["version"].tolist() == [OLD_VERSION, 0]


def test_the_release_before_wrote_coarser_widths() -> None:
    """Its records are read, and written as this release does. Those without factors stay."""
    assert GOOD[0] == OLD_VERSION == 3
    new = record.encode(rated([1500.0, 1900.0, 1100.0]))[0]
    codes = [int.from_bytes(new[at : at + 6], "little") for at in range(58, len(new), 6)]
    coarse = [code & (2**35 - 1) | (code >> 43) << 35 for code in codes]
    old = bytes([OLD_VERSION]) + new[1:58] + b"".join(x.to_bytes(5, "little") for x in coarse)
    beliefs = decode(old)
    assert beliefs.factors[0, :3].tolist() == [code & ~(255 << 35) for code in codes]
    again = record.encode(beliefs)[0]
    assert (again[0], again[1:58], len(again)) == (VERSION, new[1:58], 58 + 3 * 6)
    assert record.headers_of([old])["mu"] == record.headers_of([new])["mu"]
    with pytest.raises(UnknownRecord, match="58 bytes for 3"):
        decode(old[:58])


@given(records(), st.integers(0), st.binary(min_size=1, max_size=2 * FACTOR_SIZE))
def test_a_cut_or_overlong_record_is_refused(whole: bytes, kept: int, more: bytes) -> None:
    """If it lacks its end, or all; or has bytes that the count does not explain."""
    for other in (whole[: kept % len(whole)], whole + more):
        with pytest.raises(UnknownRecord):
            decode(other)


@given(st.binary(max_size=3 * HEADER_SIZE).map(lambda noise: bytes([VERSION]) + noise))
def test_noise_is_refused_or_read(noise: bytes) -> None:
    """Arbitrary bytes, even under the right version, raise UnknownRecord and nothing else."""
    with contextlib.suppress(UnknownRecord):
        decode(noise)
