"""SipHash-1-3: the hash of the published test vector, and of CPython's own tables."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.siphash import Key
from stream_rater.columns.strings import hash_each
from stream_rater.contract.events import MAX_ID_BYTES

TEXT = bytes((7 * i + 3) % 256 for i in range(MAX_ID_BYTES + 9))
LENGTHS = range(1, len(TEXT) + 1)
"""CPython does not hash empty bytes."""

HASHES_OF_CPYTHON = f"print(*(hash({TEXT!r}[:length]) for length in {LENGTHS!r}))"

PUBLISHED = {
    0: "dcc40f055801acab", 1: "93ca577df39bf4c9", 3: "fbf7dde7b80af88b", 4: "2883d388605775cf",
    7: "4011b19b987d92d3", 8: "8e9a298d11959036", 9: "e43d066cb38ea425", 15: "5699512a6dd820d3",
    63: "a8b3bbb76290199d",
}  # fmt: skip
"""By length, of the bytes 0, 1, 2... under the key 00 01 02... 0f, little-endian: from the test of
Rust's standard library."""


def hash_of(key: bytes, text: bytes, before: bytes = b"", behind: bytes = b"") -> bytes:
    """The hash of a text in the midst of others, little-endian."""
    data = np.frombuffer(before + text + behind, np.uint8)
    start = np.array([len(before)])
    of = Key(*np.frombuffer(key, np.uint64))
    return hash_each(data, start, start + len(text), of).tobytes()


@pytest.mark.parametrize("length", PUBLISHED)
def test_the_published_hashes(length: int) -> None:
    """Texts of no, some and many whole words, with rests of all kinds."""
    assert hash_of(bytes(range(16)), bytes(range(length))).hex() == PUBLISHED[length]


def key_of_cpython(seed: int) -> bytes:
    """What CPython makes of PYTHONHASHSEED: bits of a linear congruential generator; 0 for 0."""
    key, x = bytearray(), seed
    for _ in range(16):
        x = (x * 214013 + 2531011) % 2**32
        key.append(x >> 16 & 0xFF if seed else 0)
    return bytes(key)


@pytest.mark.skipif(
    sys.hash_info.algorithm != "siphash13", reason="this CPython was built with another hash"
)
@pytest.mark.parametrize("seed", [0, 1, 4_294_967_295])
def test_the_hashes_of_cpython(seed: int) -> None:
    """Of all lengths that ids have, under keys that are known."""
    done = subprocess.run(
        [sys.executable, "-c", HASHES_OF_CPYTHON],
        env=os.environ | {"PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    key = key_of_cpython(seed)
    ours = [np.frombuffer(hash_of(key, TEXT[:length]), np.int64).item() for length in LENGTHS]
    assert [-2 if each == -1 else each for each in ours] == [*map(int, done.stdout.split())]


@given(st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=9))
def test_what_stands_around_a_text_does_not_count(
    text: bytes, before: bytes, behind: bytes
) -> None:
    """The hash is of its own bytes alone, wherever it begins."""
    key = bytes(range(16))
    assert hash_of(key, text, before, behind) == hash_of(key, text)
