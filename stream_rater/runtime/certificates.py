"""Reads the date on which a certificate expires, for an alert before that date."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
FORMATS = {UTC_TIME: "%y%m%d%H%M%SZ", GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
VERSION = 0xA0
FIELDS_BEFORE_VALIDITY = 3
"""Serial number, signature algorithm and issuer, after the optional version (RFC 5280, 4.1)."""

END = "-----END CERTIFICATE-----"


def not_after(path: str) -> float | None:
    """The Unix seconds at which the first certificate of a PEM file expires; None if it has no
    readable one.

    The client libraries report an invalid file; this only watches a valid one.
    """
    try:
        before, end, _ = Path(path).read_text("ascii").partition(END)
        return _not_after(ssl.PEM_cert_to_DER_cert(before[before.index("-----BEGIN") :] + end))
    except (OSError, ValueError, IndexError, KeyError):
        return None


def _not_after(der: bytes) -> float:
    at, _ = _inside(der, _inside(der, 0)[0])  # Certificate, TBSCertificate
    at = _end_of(der, at) if der[at] == VERSION else at
    for _ in range(FIELDS_BEFORE_VALIDITY):
        at = _end_of(der, at)
    at = _end_of(der, _inside(der, at)[0])  # Validity: notBefore, notAfter
    start, end = _inside(der, at)
    text = der[start:end].decode("ascii")
    return datetime.strptime(text, FORMATS[der[at]]).replace(tzinfo=UTC).timestamp()


def _inside(der: bytes, at: int) -> tuple[int, int]:
    """The start and the end of the content of the DER value at `at`."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(der[start : start + size], "big"), start + size
    return start, start + length


def _end_of(der: bytes, at: int) -> int:
    return _inside(der, at)[1]
