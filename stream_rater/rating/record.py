"""The belief record: one player's posterior in bytes, as Redis holds it.

A fixed little-endian layout: `model.HEADER`, whose first byte is the version, then `count` logistic
factors of three float64 (p, a, o). Nothing is rounded, so writing and reading back changes nothing.
A record of an unknown version, or of a length its count does not explain, is refused.
"""

from collections.abc import Sequence

import numpy as np

from stream_rater.rating.model import HEADER, Beliefs, Table, newcomers

VERSION = 1
HEADER_SIZE = HEADER.itemsize
FACTOR_SIZE = 24


class UnknownRecord(ValueError):
    """Bytes that are not a belief record of this version."""


def encode(beliefs: Beliefs) -> list[bytes]:
    """One record for each belief."""
    header = beliefs.header.copy()
    header["version"] = VERSION
    heads = header.tobytes()
    counts = header["count"].tolist()
    return [
        heads[i * HEADER_SIZE : (i + 1) * HEADER_SIZE] + beliefs.factors[i, :count].tobytes()
        for i, count in enumerate(counts)
    ]


def decode(
    records: Sequence[bytes | None], capacity: int, initial_mu: float, initial_sigma: float
) -> Beliefs:
    """Beliefs with room for `capacity` factors or as many as needed; None is a newcomer."""
    counts = [(len(r) - HEADER_SIZE) // FACTOR_SIZE for r in records if r is not None]
    room = max([capacity, *(count + 1 for count in counts)])
    beliefs = newcomers(len(records), room, initial_mu, initial_sigma)
    for i, each in enumerate(records):
        if each is None:
            continue
        header = read_headers(each[:HEADER_SIZE])
        if len(header) == 0 or header["version"][0] == 0:
            raise UnknownRecord("belief record: no version")
        count = int(header["count"][0])
        if len(each) != HEADER_SIZE + count * FACTOR_SIZE:
            raise UnknownRecord(f"belief record: {len(each)} bytes for {count} factors")
        beliefs.header[i] = header[0]
        beliefs.factors[i, :count] = np.frombuffer(each, "<f8", offset=HEADER_SIZE).reshape(-1, 3)
    return beliefs


def read_headers(data: bytes) -> Table:
    """The headers of consecutive records cut to HEADER_SIZE, zeros where there is no belief.

    Raises UnknownRecord.
    """
    if len(data) % HEADER_SIZE:
        raise UnknownRecord(f"belief record: {len(data)} bytes is no whole number of headers")
    header = np.frombuffer(data, HEADER)
    unknown = np.flatnonzero((header["version"] != VERSION) & (header["version"] != 0))
    if len(unknown):
        version = int(header["version"][unknown[0]])
        raise UnknownRecord(f"belief record: version {version}, this release reads {VERSION}")
    return header
