"""Lines of a file, compressed or not, are read in batches and give what single records give."""

import gzip
import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.record import Record
from stream_rater.operations.input_file import Order
from stream_rater.replay import files
from stream_rater.replay.edited_log import EditedLog, RecordValidator, batches_of, records_of
from stream_rater.replay.files import BLOCK, BUFFER, begin_to_read, read_lines
from stream_rater.rounds.lines import LineReader, PlainRecords, plain_lines
from tests.rounds import as_json

WINDOW = 9
MOST_BYTES = 700
SEEDS = range(20)

NOISE = random.Random(1).randbytes(2 * BLOCK).replace(b"\n", b"")
"""It cannot be compressed, so that files have several blocks."""
LINES = [b"one\n", b"x" * (2 * BUFFER) + b"\n", b"\n", NOISE + b"\n", b"the last"]


def test_lines_are_the_files(tmp_path: Path) -> None:
    """Of any length, ended or not, compressed by name, in several parts with zeros between."""
    packed = [b"".join(gzip.compress(each) + bytes(n) for each in LINES) for n in (0, 1, BLOCK)]
    text = b"".join(LINES)
    for name, contents in (("a.jsonl", [text]), ("a.jsonl.gz", [gzip.compress(text), *packed])):
        path = tmp_path / name
        for content in contents:
            path.write_bytes(content)
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


def test_text_comes_in_small_blocks(tmp_path: Path) -> None:
    """However small it is when it is compressed; nothing of it is lost where a block ends."""
    path, text = tmp_path / "a.jsonl.gz", b"".join([bytes(1 << 23), NOISE, b"a" * (1 << 20)])
    path.write_bytes(gzip.compress(text) + gzip.compress(b"b" * (1 << 21)) + gzip.compress(b"c"))
    blocks = [*files._decompressed(iter([path.read_bytes()]))]
    assert b"".join(blocks) == text + b"b" * (1 << 21) + b"c"
    assert max(map(len, blocks)) <= 1 << 20


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_line_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One that is too long is reported with its place before it is all in memory."""
    monkeypatch.setattr(files, "MOST_LINE", 3 << 20, raising=False)
    path, short = tmp_path / name, b"x" * (1 << 20) + b"\n"
    for last, taken in ((short, True), (b"y" * (4 << 20), False)):
        text = short * 5 + last
        path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
        if taken:
            assert len([*read_lines(path)]) == 6
        else:
            with pytest.raises(OSError, match=r"a\.jsonl.*at byte 5,242,885 has more than 3 MiB"):
                [*read_lines(path)]


def test_blank_lines_are_not_collected() -> None:
    """Where the first line of a file is looked for."""
    taken = 0

    def blank() -> Iterator[bytes]:
        nonlocal taken
        while taken < 1 << 24:
            taken += 1 << 16
            yield b" " * (1 << 16) + b"\n"

    next(files.json_lines(blank(), "a.jsonl"))
    assert taken < 1 << 22


def line(number: int, ladder: str = "a") -> bytes:
    return as_json(round_id=f"r{number}", ladder=ladder) + b"\n"


def singly(lines: list[bytes], first: int = 0) -> list[Record]:
    return [*LineReader(iter(lines), first)]


def mixed(rng: random.Random, count: int) -> list[bytes]:
    """Valid rounds, some of them repeated; blank lines, corrections, and lines that are no JSON."""
    voided = b'{"event_type":"round-voided","ladder":"a","round_id":"r1"}\n'
    named = b'{"event_type":"round-completed",' + line(7)[1:]
    return [
        rng.choice([line(rng.randrange(40), rng.choice("ab"))] * 8 + [b"\n", b" \t\n", b"{\n"])
        if rng.random() < 0.9
        else rng.choice([voided, named])
        for _ in range(count)
    ]


def test_batches_hold_the_records_of_the_lines() -> None:
    """All lines are there in order, whatever is between them. A correction begins a batch."""
    for seed in SEEDS:
        rng = random.Random(seed)
        lines, first = mixed(rng, rng.randrange(400)), rng.randrange(5)
        batches = [*batches_of(records_of(lines, first), MOST_BYTES)]
        assert [each for batch in batches for each in batch] == singly(lines, first), seed
        sizes = [sum(len(each.value or b"") for each in batch) for batch in batches]
        long = [b for b, size in zip(batches, sizes, strict=True) if size > MOST_BYTES]
        assert all(len(batch) == 1 for batch in long)
        assert not any(each.headers for batch in batches for each in batch[1:])


def test_batches_are_filled() -> None:
    """Valid lines become few batches, without records and without what was read before."""
    lines = [line(i) for i in range(1000)]
    batches = [*batches_of(records_of(lines), 10**5)]
    assert all(isinstance(each, PlainRecords) for each in batches)
    assert len(batches) < 8
    reader = records_of(lines[:10])
    found = [next(reader), next(reader)]
    for batch in batches_of(reader):
        found += batch
    assert found == singly(lines[:10])


def test_long_lines_behind_short_ones_are_not_read_ahead() -> None:
    """A batch of bytes is taken, whatever the number of lines was before."""
    taken: list[int] = []

    def lines() -> Iterator[bytes]:
        for size in [10] * 5000 + [10**5] * 100:
            taken.append(size)
            yield b"x" * size + b"\n"

    for batch in LineReader(lines()).batches(10**6):
        if len(batch[0].value or b"") > 100:
            break
    assert sum(taken) < 3 * 10**6


def test_a_record_of_a_line() -> None:
    """Its offset is the line's number, and it has no time of arrival."""
    lines = plain_lines([b"a", b"b", b"c"], 5)
    assert lines[1] == Record(0, 6, b"b", received_s=math.inf)
    assert [*lines[1:]] == [*lines][1:]
    assert lines[-1].offset == 7
    with pytest.raises(IndexError):
        lines[3]


def test_lines_have_the_verdicts_of_records() -> None:
    """The same rounds are accepted, and the same are rejected for the same reasons."""
    for seed in SEEDS:
        rng = random.Random(seed)
        lines = [line(rng.randrange(30), rng.choice("ab" if seed % 2 else "a")) for _ in range(120)]
        if seed % 3 == 0:
            lines[rng.randrange(120)] = b"{\n"
        if seed % 5:
            lines = [line(i) for i in range(50)] + lines
        log, validator = EditedLog(ANY_LADDER, WINDOW), RecordValidator(ANY_LADDER, WINDOW)
        accepted, rejected = list[tuple[int, str, str]](), list[tuple[int, str]]()
        for batch in map(log.read, batches_of(records_of(lines), MOST_BYTES)):
            heads = zip(batch.rounds.offset.tolist(), batch.rounds.rounds.heads, strict=True)
            accepted += [(offset, head.ladder, head.round_id) for offset, head in heads]
            rejected += [(each.offset, str(why)) for each, why in batch.rejected]
        expected, refused = list[tuple[int, str, str]](), list[tuple[int, str]]()
        for record in singly(lines):
            rounds, (why,) = validator.decode([record])
            if why is None:
                expected.append((record.offset, rounds.heads[0].ladder, rounds.heads[0].round_id))
            else:
                refused.append((record.offset, str(why)))
        assert (accepted, rejected) == (expected, refused), seed


def test_late_rounds_are_counted_alike_in_any_batches(capsys: pytest.CaptureFixture[str]) -> None:
    """Rounds in one batch, in several, and one by one give the same warning."""
    for seed in SEEDS:
        rng, path = random.Random(seed), Path("rounds.jsonl")
        ladders = "ab" if seed % 2 else "a"
        lines = [
            as_json(
                round_id=f"r{i}", ladder=rng.choice(ladders),
                completed_at=f"2020-01-{rng.randrange(10, 20)}T00:00:00Z",
            )
            for i in range(20)
        ]  # fmt: skip
        warnings = set()
        for size in (1, 3, 20):
            order, log = Order(), EditedLog(ANY_LADDER, WINDOW)
            for first in range(0, 20, size):
                order.add(log.read(plain_lines(lines[first : first + size], first)).rounds.rounds)
            order.conclude(path)
            warnings.add(capsys.readouterr().err)
        assert len(warnings) == 1, seed
