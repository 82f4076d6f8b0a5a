"""Kernels are compiled by several processes, which report to one."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from stream_rater.cli.compile_kernels import parts_for, side_by_side
from stream_rater.columns.compiling import SharedCache, Watcher, watchers
from stream_rater.runtime import selfcheck


class Recorder(Watcher):
    """Remembers."""

    def __init__(self) -> None:
        self.kernels: list[str] = []

    def compiling(self, kernel: str, number: int, most: int) -> None:
        assert 1 <= number <= most
        self.kernels.append(kernel)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """The only watcher during the test."""
    before, found = watchers[:], Recorder()
    watchers[:] = [found]
    yield found
    watchers[:] = before


def part(folder: Path, name: str) -> None:
    """A part of the work, which says that it compiles something."""
    for each in watchers:
        each.compiling(name, 1, SharedCache.declared)
    (folder / name).write_text(f"{os.getpid()}")


def test_all_parts_are_done_by_other_processes(tmp_path: Path, recorder: Recorder) -> None:
    """Each once, and this process reports what they compile."""
    names = [f"kernel {number}" for number in range(5)]
    side_by_side([partial(part, tmp_path, name) for name in names], 2)
    assert sorted(each.name for each in tmp_path.iterdir()) == names
    assert str(os.getpid()) not in {each.read_text() for each in tmp_path.iterdir()}
    assert sorted(recorder.kernels) == names


def test_a_killed_process_is_reported(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The work goes on in this one: a machine may have memory for no other."""
    side_by_side([killed], 2)
    assert capsys.readouterr().err == (
        "a process that compiles kernels was killed: compiling in one\n"
    )


def killed() -> None:
    """End as the kernel ends a process for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_error_is_raised(recorder: Recorder) -> None:
    """It would be the same in this process."""
    with pytest.raises(ZeroDivisionError):
        side_by_side([partial(divmod, 1, 0)], 2)


def test_every_part_is_warm_afterwards(recorder: Recorder) -> None:
    """What is compiled for the first system is all that its parts need: once in the cache, no
    process compiles it again."""
    parts = list(parts_for(selfcheck.SYSTEMS[:1]))
    for each in parts:
        each()
    recorder.kernels.clear()
    side_by_side(parts, 2)
    assert recorder.kernels == []
