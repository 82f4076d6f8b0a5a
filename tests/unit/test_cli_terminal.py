"""Progress on a terminal: how far a file is read, by its bytes."""

import gzip
import io
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.operations.compare_store import compare
from stream_rater.operations.input_file import read_records
from stream_rater.pipeline.ports import Position, StoredShard
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.files import text_size
from stream_rater.replay.log_reading import LogReader
from stream_rater.runtime.progress import advancing, counted, track_bytes
from tests.builders.logs import ListedRecords
from tests.rounds import as_json, day


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


def test_a_replay_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records that are rated of all, then the beliefs that are compared of all, and the time
    that is left."""
    screen, log = a_screen(monkeypatch), list(records_of(a_log(200)))
    reader = LogReader(ListedRecords(log, 50), {0: len(log)})
    compare(reader, ANY_LADDER, 10, 0, 1, no_beliefs)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    for bar, count in (("rounds", 200), ("beliefs", 2)):
        shown = re.findall(rf"{bar} \S+ +(\d+)/(\d+) [\d:-]+", text)
        assert shown and shown[-1] == (str(count), str(count))


def a_log(count: int) -> list[bytes]:
    return [as_json(round_id=f"r{i}", completed_at=day(i)) for i in range(count)]


def no_beliefs(asked: Mapping[int, PlayerColumn]) -> dict[int, StoredShard]:
    return {shard: StoredShard(Position(), [None] * len(who)) for shard, who in asked.items()}


def test_nobody_sees_progress_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    """Where standard error is no terminal, lines are passed on."""
    assert list(track_bytes([b"a", b"b"], "x", 2)) == [b"a", b"b"]
    with advancing("x", 2) as advance:
        advance(2)
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
