"""The release's test vector: every bit of a rating, on every machine."""

import pytest

from stream_rater import warm


def test_this_machine_computes_the_releases_bits() -> None:
    """What `run` checks at its start; whoever changes a bit changes KERNEL_VERSION and EXPECTED."""
    warm.check()


def test_other_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names both vectors."""
    monkeypatch.setattr(warm, "EXPECTED", "0" * 16)
    with pytest.raises(warm.OtherBits, match="expects 0000000000000000"):
        warm.check()
