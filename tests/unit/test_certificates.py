"""When certificates are over, read from what a real authority issues."""

from datetime import UTC, datetime
from pathlib import Path

import trustme

from stream_rater.runtime.certificates import not_after


def test_the_end_of_a_certificate(tmp_path: Path) -> None:
    """Of the first in the file; before 2050 and from then on it is written in two ways. Comments
    before it, as `openssl x509 -text` writes them, do not matter."""
    authority, path = trustme.CA(), tmp_path / "chain.pem"
    for year in (2031, 2049, 2050, 2077):
        end = datetime(year, 2, 3, 4, 5, 6, tzinfo=UTC)
        issued = authority.issue_cert("kafka.test", not_after=end)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        for before in (b"", b"Certificate:\n  Data:\n"):
            path.write_bytes(before + chain)
            assert not_after(str(path)) == end.timestamp(), (year, before)


def test_what_is_none(tmp_path: Path) -> None:
    """No certificate has no end, a file that is not there neither."""
    path = tmp_path / "ca.pem"
    damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    for text in ("", "no certificate", damaged):
        path.write_text(text)
        assert not_after(str(path)) is None, text
    assert not_after(str(tmp_path / "absent.pem")) is None
