"""SipHash-1-3: a hash of bytes under a key of 128 bits.

Without the key, nobody can choose texts that collide in a hash table more often than random texts
do. Each of our tables that stores texts from outside takes its slots from this hash, under a secret
key.

The source is J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", 2012, in the
variant with one round per word and three rounds at the end. CPython and Rust use this variant for
their own tables.
"""

from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Bytes
from stream_rater.columns.kernels import inlined

Word = np.uint64


class Key(NamedTuple):
    """The two halves of a key."""

    low: Word
    high: Word


State = tuple[Word, Word, Word, Word]

START = (
    Word(0x736F6D6570736575), Word(0x646F72616E646F6D),
    Word(0x6C7967656E657261), Word(0x7465646279746573),
)  # fmt: skip
"""The state under the key 0, in ASCII "somepseudorandomlygeneratedbytes"."""
END = Word(0xFF)  # The value that enters the state after the last word.
LAST_ROUNDS = 3

WORD, HALF = Word(8), Word(4)  # The number of bytes in a word, and in half of one.
BYTE_BITS = Word(8)
ZERO, ONE = Word(0), Word(1)


@inlined
def _rotated(word: Word, bits: int) -> Word:
    """The word, rotated to the left."""
    return Word((word << Word(bits)) | (word >> Word(64 - bits)))


@inlined
def _round(a: Word, b: Word, c: Word, d: Word) -> State:
    a, c = Word(a + b), Word(c + d)
    b, d = Word(_rotated(b, 13) ^ a), Word(_rotated(d, 16) ^ c)
    a, c = Word(_rotated(a, 32) + d), Word(c + b)
    b, d = Word(_rotated(b, 17) ^ c), Word(_rotated(d, 21) ^ a)
    return a, b, _rotated(c, 32), d


@inlined
def _bytes_at(data: Bytes, at: Word, count: Word) -> Word:
    """`count` bytes, at most a word, little-endian. A constant `count` gives a single load."""
    number = Word(data[at])
    for k in range(ONE, count):
        number |= Word(data[at + k]) << Word(BYTE_BITS * k)
    return number


@inlined
def _rest(data: Bytes, at: Word, size: Word) -> Word:
    """The bytes that remain after the whole words of a text, as a little-endian number. The text
    has `size` bytes, and the remaining ones begin at `at`. No byte around the text is read."""
    rest = size % WORD
    if rest == ZERO:
        return ZERO
    if size > WORD:  # the text's last 8 bytes, without those that were in a whole word
        return _bytes_at(data, at + rest - WORD, WORD) >> Word(BYTE_BITS * (WORD - rest))
    if rest >= HALF:  # two halves, which may overlap
        last = rest - HALF
        return Word(
            _bytes_at(data, at, HALF) | _bytes_at(data, at + last, HALF) << Word(BYTE_BITS * last)
        )
    return _bytes_at(data, at, rest)


@inlined
def hashed(key: Key, data: Bytes, start: int, end: int) -> Word:
    """The hash of data[start:end], which may be empty."""
    a, b, c, d = START[0] ^ key.low, START[1] ^ key.high, START[2] ^ key.low, START[3] ^ key.high
    at, size = Word(start), Word(max(end - start, 0))
    for _ in range(size // WORD):
        word = _bytes_at(data, at, WORD)
        a, b, c, d = _round(a, b, c, d ^ word)
        a ^= word
        at += WORD
    word = (size << Word(56)) | _rest(data, at, size)
    a, b, c, d = _round(a, b, c, d ^ word)
    a, c = a ^ word, c ^ END
    for _ in range(LAST_ROUNDS):
        a, b, c, d = _round(a, b, c, d)
    return Word(a ^ b ^ c ^ d)


@inlined
def derived(key: Key, of: Word) -> Key:
    """A key derived from another key and a hash `of` something: each hash has its own key."""
    return Key(Word(key.low ^ of), key.high)
