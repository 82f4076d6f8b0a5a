"""When certificates are over, read from what a real authority issues."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from stream_rater.runtime.certificates import not_after


@pytest.mark.parametrize("year", [2031, 2049, 2050, 2077], ids="in {}".format)
def test_the_end_of_a_certificate(tmp_path: Path, year: int) -> None:
    """Of the first in the file; before 2050 and from then on it is written in two ways."""
    end = datetime(year, 2, 3, 4, 5, 6, tzinfo=UTC)
    issued = trustme.CA().issue_cert("kafka.test", not_after=end)
    path = tmp_path / "chain.pem"
    path.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    assert not_after(str(path)) == end.timestamp()


def test_comments_before_it_do_not_matter(tmp_path: Path) -> None:
    """As `openssl x509 -text` writes them."""
    path = tmp_path / "ca.pem"
    path.write_bytes(b"Certificate:\n  Data:\n" + trustme.CA().cert_pem.bytes())
    end = not_after(str(path))
    assert end is not None and end > datetime.now(UTC).timestamp()


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_none(tmp_path: Path, text: str) -> None:
    """No certificate has no end, a file that is not there neither."""
    path = tmp_path / "ca.pem"
    path.write_text(text)
    assert not_after(str(path)) is None
    assert not_after(str(tmp_path / "absent.pem")) is None
