"""A wait of the tests: it goes on as long as something moves, and fails in bounded time when
nothing does."""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import waits
from tests.integration.processes import complaints
from tests.waits import HANGS_S, LEAST_LOOKS, LONGEST_S, STILL_S, StoodStill, wait_until


class Clock:
    """A clock that only sleeping moves on; a stopped machine adds to a sleep."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.delay_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + self.delay_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The clock of waits in this test."""
    found = Clock()
    monkeypatch.setattr(waits, "time", found)
    yield found


def never() -> bool:
    return False


def test_nothing_moves(clock: Clock) -> None:
    """The wait fails after STILL_S without a movement, and says what it waited for and what moved
    last, which the fact itself may know. Where each look is late, there are LEAST_LOOKS."""
    with pytest.raises(StoodStill, match=r"nothing has moved for 180 s, .* until all is rated$"):
        wait_until(never, "all is rated", every_s=1.0)
    assert clock.now_s - 1000.0 == STILL_S

    class Rated:
        moved = itertools.chain([3, 2], itertools.repeat(1))

        def __call__(self) -> bool:
            return False

        def moves(self) -> int:
            return next(self.moved)

    with pytest.raises(StoodStill, match=r"until all is rated; the last that moved: 1$"):
        wait_until(Rated(), "all is rated", every_s=1.0)
    assert clock.now_s - 1000.0 == 2 * STILL_S + 2.0
    clock.delay_s, looked = 10.0 * STILL_S, itertools.count()
    with pytest.raises(StoodStill):
        wait_until(lambda: next(looked) < 0, "it is there")
    assert next(looked) == LEAST_LOOKS


def test_what_moves_holds_it_up(clock: Clock) -> None:
    """However slowly, as long as each pause is shorter than STILL_S; but not for ever. A machine
    that was stopped for an hour between two looks has not stood still."""
    left = iter(range(4, -1, -1))
    state = [5]

    def slow() -> bool:
        if clock.now_s >= 1000.0 + (6 - state[0]) * (STILL_S - 10.0):
            state[0] = next(left)
        return state[0] == 0

    wait_until(slow, "all is rated", moves=lambda: state[0], every_s=1.0)
    assert (began_s := clock.now_s) - 1000.0 > 4 * (STILL_S - 10.0)
    with pytest.raises(StoodStill, match=r"still moving, but not within 1500 s: all is rated; "):
        wait_until(never, "all is rated", moves=itertools.count().__next__, every_s=1.0)
    assert clock.now_s - began_s == LONGEST_S
    clock.delay_s = 3600.0
    looks = iter([False, False, True])
    wait_until(lambda: next(looks), "it is there")


def test_limits_are_in_order() -> None:
    """A wait says why it failed before a program, or pytest, is ended without a reason."""
    table = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    (line,) = [each for each in table.splitlines() if each.startswith("timeout = ")]
    assert STILL_S < LONGEST_S < HANGS_S < float(line.split()[2])


def test_a_log_and_a_processor_move(tmp_path: Path) -> None:
    """A file that grows, and a process that works; one that sleeps does not move."""
    log = tmp_path / "log"
    size = waits.size_of(log)
    before = size()
    log.write_text("a line\n")
    assert size() != before
    works, sleeps = "while True: pass", "import sys; sys.stdin.read()"
    processes = [
        subprocess.Popen([sys.executable, "-c", each], stdin=subprocess.PIPE)
        for each in (works, sleeps)
    ]
    try:
        working, sleeping = (waits.cpu_of(each.pid) for each in processes)
        before, slept = working(), sleeping()
        wait_until(lambda: working() != before, "it has worked")
        assert sleeping() == slept
    finally:
        for each in processes:
            each.kill()
            each.wait()
    assert working() == -1


def test_what_a_command_waits_for_is_no_complaint() -> None:
    """On a busy machine, a command says that it waits; nothing else is left out."""
    said = "p1.rating-changed: waiting for messages (Ctrl-C ends it)\nstream-rater: no\n"
    assert complaints(said) == ["stream-rater: no"]
