"""Files of rounds, read in either way."""

import gzip
import zlib
from pathlib import Path

import pytest

from stream_rater.lab.lines import CHUNK, begin_to_read, read_lines

LINES = [b"one\n", b"x" * (2 * CHUNK) + b"\n", b"\n", b"y" * (CHUNK - 6) + b"\n", b"the last"]


@pytest.mark.parametrize("name", ["rounds.jsonl", "rounds.jsonl.gz"])
def test_lines_are_the_files(tmp_path: Path, name: str) -> None:
    """Longer than chunks or shorter, ended or not; compressed by its name."""
    path, text = tmp_path / name, b"".join(LINES)
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert list(read_lines(path)) == list(begin_to_read(path)) == LINES


@pytest.mark.parametrize("harm", ["cut", "changed", "absent"])
def test_what_cannot_be_read_is_told_to_who_reads(tmp_path: Path, harm: str) -> None:
    """By the errors that `named_failures` names."""
    path, packed = tmp_path / "rounds.jsonl.gz", bytearray(gzip.compress(b"".join(LINES)))
    packed[12] ^= 255 if harm == "changed" else 0
    if harm != "absent":
        path.write_bytes(packed[: len(packed) // 2] if harm == "cut" else packed)
    with pytest.raises((OSError, EOFError, zlib.error)):
        list(begin_to_read(path))
