"""Files of rounds, read in either way."""

import gzip
from pathlib import Path
from random import Random

import pytest

from stream_rater.replay.files import BLOCK, BUFFER, begin_to_read, read_lines

NOISE = Random(1).randbytes(2 * BLOCK).replace(b"\n", b"")
"""It cannot be compressed, so that files have several blocks."""

LINES = [b"one\n", b"x" * (2 * BUFFER) + b"\n", b"\n", NOISE + b"\n", b"the last"]


@pytest.mark.parametrize("name", ["rounds.jsonl", "rounds.jsonl.gz"])
def test_lines_are_the_files(tmp_path: Path, name: str) -> None:
    """Longer than chunks or shorter, ended or not; compressed by its name."""
    path, text = tmp_path / name, b"".join(LINES)
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert list(read_lines(path)) == list(begin_to_read(path)) == LINES


@pytest.mark.parametrize("zeros", [0, 1, BLOCK])
def test_a_gzip_file_may_have_several_parts(tmp_path: Path, zeros: int) -> None:
    """With zeros between and after them, as tapes have."""
    path = tmp_path / "rounds.jsonl.gz"
    path.write_bytes(b"".join(gzip.compress(line) + bytes(zeros) for line in LINES))
    assert list(read_lines(path)) == list(begin_to_read(path)) == LINES
    path.write_bytes(b"")
    assert list(read_lines(path)) == []


@pytest.mark.parametrize("harm", ["cut", "changed", "end changed", "followed", "absent"])
def test_what_cannot_be_read_is_reported_to_the_reader(tmp_path: Path, harm: str) -> None:
    """By an error that names the file; nothing is taken for its end but its end."""
    path, packed = tmp_path / "rounds.jsonl.gz", bytearray(gzip.compress(b"".join(LINES)))
    packed[12] ^= 255 if harm == "changed" else 0
    packed[-8] ^= 255 if harm == "end changed" else 0
    packed += b"\0no gzip" if harm == "followed" else b""
    if harm != "absent":
        path.write_bytes(packed[: len(packed) // 2] if harm == "cut" else packed)
    with pytest.raises(OSError, match=r"rounds\.jsonl\.gz"):
        list(begin_to_read(path))
