"""Progress on a terminal: how far a file is read, by its bytes."""

import gzip
import io
import os
import re
import sys
from pathlib import Path

import pytest

from stream_rater.operations.input_file import read_records
from stream_rater.replay.files import text_size
from stream_rater.runtime.progress import counted, track_bytes
from tests.rounds import as_json


class Terminal(io.StringIO):
    """One that people look at."""

    def isatty(self) -> bool:
        return True


def a_screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error, as a terminal; made in the test itself, before which pytest sets its own."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return terminal


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_with_a_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    """In per cent, to the end; what is read is the file."""
    screen = a_screen(monkeypatch)
    lines = [as_json(round_id=f"r{i}") for i in range(5000)]
    text = b"\n".join(lines) + b"\n"
    path = tmp_path / "a.jsonl"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert text_size(path) == len(text)
    assert [(record.value or b"").strip() for record in read_records(path)] == lines
    shown = [int(each) for each in re.findall(r"(\d+)%", screen.getvalue())]
    assert shown and shown[-1] > 90 and "a.jsonl" in screen.getvalue()


def test_nobody_sees_progress_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    """Where standard error is no terminal, lines are passed on."""
    assert list(track_bytes([b"a", b"b"], "x", 2)) == [b"a", b"b"]
    assert capfd.readouterr().err == ""


def test_what_has_no_size_is_not_asked_for_one(tmp_path: Path) -> None:
    """A pipe, or what is too short for gzip."""
    os.mkfifo(tmp_path / "pipe")
    assert text_size(tmp_path / "pipe") is None
    (tmp_path / "short").write_bytes(b"\x1f\x8b")
    assert text_size(tmp_path / "short") == 2


def test_one_is_no_plural() -> None:
    """And thousands have commas."""
    assert [counted(n, "round") for n in (0, 1, 2, 4000)] == [
        "0 rounds", "1 round", "2 rounds", "4,000 rounds",
    ]  # fmt: skip
