"""One process compiles kernels while others wait and report that; or several do, for one."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from stream_rater.cli.compile_kernels import side_by_side
from stream_rater.columns import compiling
from tests.builders.commands import Terminal


class Recorder(compiling.Watcher):
    def __init__(self) -> None:
        self.events: list[str] = []

    def compiling(self, kernel: str, number: int) -> None:
        assert number >= 1
        self.events.append(f"compiling {kernel}")

    def waiting(self, kernel: str) -> None:
        self.events.append(f"waiting {kernel}")

    def compiled(self, kernel: str) -> None:
        self.events.append(f"compiled {kernel}")


class Cache:
    """As numba's, in a folder that is as it says."""

    def __init__(self, folder: Path) -> None:
        self.cache_path = str(folder / "room")
        self._file = folder / "kept"

    def load_overload(self, signature: Any, target: Any) -> Any:
        return self._file.read_text() if self._file.exists() else None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        self._file.write_text(compiled)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """The only watcher during the test."""
    monkeypatch.setattr(compiling.SharedCache, "ready", set(compiling.SharedCache.ready))
    before, found = compiling.watchers[:], Recorder()
    compiling.watchers[:] = [found]
    yield found
    compiling.watchers[:] = before


OTHER = """
import sys
from pathlib import Path
from stream_rater.columns.compiling import SharedCache
from tests.unit.test_compiling import Cache
cache = SharedCache(Cache(Path(sys.argv[1])), "k")
print(cache.load_overload((), None), flush=True)
input()
cache.save_overload((), "theirs")
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process, which compiles the kernel `k` until it gets a line."""
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path)], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "None\n"
        yield process
        process.kill()


def test_a_kernel_is_compiled_once(tmp_path: Path, recorder: Recorder) -> None:
    """Other processes then load it from the cache, silently and without a lock."""
    cache = compiling.SharedCache(Cache(tmp_path), "k")
    assert cache.load_overload((), None) is None
    cache.save_overload((), "ours")
    assert compiling.SharedCache(Cache(tmp_path), "k").load_overload((), None) == "ours"
    assert recorder.events == ["compiling k", "compiled k"]
    (there := tmp_path / "there").mkdir()
    (there / "kept").write_text("ours")
    assert compiling.SharedCache(Cache(there), "k").load_overload((), None) == "ours"
    assert recorder.events[2:] == [] and not (there / compiling.LOCK_FILE).exists()


def test_who_waits_for_another_process_loads_what_it_compiled(
    tmp_path: Path, recorder: Recorder, other: "subprocess.Popen[str]"
) -> None:
    def waiting(kernel: str) -> None:  # by then the lock is known to be taken
        recorder.events.append(f"waiting {kernel}")
        assert other.stdin is not None
        other.stdin.write("\n")
        other.stdin.flush()

    recorder.waiting = waiting  # type: ignore[method-assign]
    assert compiling.SharedCache(Cache(tmp_path), "k").load_overload((), None) == "theirs"
    assert recorder.events == ["waiting k"]


def test_a_process_that_died_holds_no_lock(
    tmp_path: Path, recorder: Recorder, other: "subprocess.Popen[str]"
) -> None:
    """Whoever waited for it compiles the kernel."""
    with patch.object(recorder, "waiting", lambda _: other.kill()):
        assert compiling.SharedCache(Cache(tmp_path), "k").load_overload((), None) is None
    assert recorder.events == ["compiling k"]


def test_kernels_of_the_package_have_such_caches(tmp_path: Path) -> None:
    """Two processes with an empty cache compile as many kernels together as one does alone."""
    code = "from stream_rater.rounds.depth import json_depth as f; f(b'[]', 0)"

    def saved(processes: int) -> int:
        folder = str(tmp_path / f"for {processes}")
        variables = os.environ | {"NUMBA_CACHE_DIR": folder, "NUMBA_DEBUG_CACHE": "1"}
        command, pipe = [sys.executable, "-c", code], subprocess.PIPE
        some = [subprocess.Popen(command, env=variables, stdout=pipe) for _ in range(processes)]
        texts = [each.communicate()[0] for each in some]
        assert [each.returncode for each in some] == [0] * processes, texts
        return sum(text.count(b"data saved") for text in texts)

    assert saved(2) == saved(1) > 0


def season(stream: io.StringIO, seconds: int) -> list[str]:
    """The printed progress while kernels are compiled, one a second for so many seconds."""
    now = iter(range(seconds + 1))
    progress = compiling.CompileProgress(stream, lambda: float(next(now)), total=12)
    for number in range(seconds):
        progress.compiling("stage", number + 1)
        progress.compiled("stage")
    return stream.getvalue().splitlines()


def test_progress_is_reported_now_and_then() -> None:
    """In lines, but on a terminal in one, which vanishes at the end. What is quick is silent."""
    assert season(io.StringIO(), 2) == []
    assert season(io.StringIO(), 14) == [
        "compiling kernel 3 of 12, once for each release: stage (2 s so far)",
        "compiling kernel 13, once for each release: stage (12 s so far)",
    ]
    season(terminal := Terminal(), 9)
    text = terminal.getvalue()
    assert "compiling kernel 9 of 12, once" in text and "\n" not in text
    assert text.endswith("\r\x1b[2K")


def test_a_notebook_shows_progress_where_it_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the present stderr, by one watcher. A command has its own; the service logs it."""
    monkeypatch.setattr(compiling, "watchers", some := list[compiling.Watcher]())
    for _ in range(2):
        compiling.in_notebook()
    assert [type(each) for each in some] == [compiling.NotebookProgress]
    for choose in (compiling.on_stderr, compiling.in_notebook):
        choose()
        assert [type(each) for each in some] == [compiling.CompileProgress]
    now = iter((0.0, 3.0))
    watcher = compiling.NotebookProgress(lambda: next(now))
    monkeypatch.setattr(sys, "stderr", cell := io.StringIO())
    watcher.compiling("stage", 1)
    monkeypatch.setattr(sys, "stderr", later := io.StringIO())
    watcher.compiling("stage", 2)
    assert (cell.getvalue(), capsys.readouterr()) == ("", ("", ""))
    said = "compiling kernel 2, once for each release: stage (3 s so far)\n"
    assert later.getvalue() == said
    logged: list[tuple[str, dict[str, Any]]] = []
    service = compiling.CompileLog(
        lambda event, **fields: logged.append((event, fields)), lambda: 1.0
    )
    service.compiling("stage", 1)
    service.compiling("stage", 2)
    assert logged == [("compiling kernels", {"number": 1})]


def part(folder: Path, name: str) -> None:
    for each in compiling.watchers:
        each.compiling(name, 1)
    (folder / name).write_text(f"{os.getpid()}")


def test_parts_are_done_by_other_processes(
    tmp_path: Path, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is done once and reported here. An error is raised; if one is killed, this goes on."""
    names = [f"kernel {number}" for number in range(5)]
    side_by_side([partial(part, tmp_path, name) for name in names], 2)
    assert sorted(each.name for each in tmp_path.iterdir()) == names
    assert str(os.getpid()) not in {each.read_text() for each in tmp_path.iterdir()}
    assert sorted(recorder.events) == [f"compiling {name}" for name in names]
    with pytest.raises(ZeroDivisionError):
        side_by_side([partial(divmod, 1, 0)], 2)
    side_by_side([killed], 2)
    said = "a process that compiles kernels was killed: compiling in one\n"
    assert capsys.readouterr().err == said


def killed() -> None:
    """End as the kernel ends a process for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
