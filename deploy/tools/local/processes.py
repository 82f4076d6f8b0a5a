"""One server process: start it and wait until it answers, stop it, kill it, start it again.

What holds:
- a server is known by its process id, never by its name;
- it has a session of its own, so a Ctrl-C in the terminal reaches only the process that started
  it, which can finish its work before it stops the server;
- it ends with the process that started it (see guard.py), unless it is meant to outlive it.
"""

import os
import random
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from local.tools import LocalServerError

LOOPBACK: Final = "127.0.0.1"
POLL_INTERVAL_S: Final = 0.01
PROBE_TIMEOUT_S: Final = 5.0
STOP_TIMEOUT_S: Final = 60.0
"""Far longer than a server needs to stop, even on a machine with much other work."""
CPU_STEP_S: Final = 5.0
"""CPU time that counts as progress: a process that only waits does not use so much."""
LOOKS_AT_LEAST: Final = 3
LOG_TAIL_LINES: Final = 15
PORT_ATTEMPTS: Final = 3
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PORTS_FROM: Final = 15_000
_PORT_TRIES: Final = 200


def http_ok(url: str, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """Whether a server answers a GET with success. Its certificate is not checked. Raises OSError
    if it does not answer at all."""
    anyone = ssl._create_unverified_context() if url.startswith("https") else None
    try:
        with urllib.request.urlopen(url, timeout=timeout_s, context=anyone):
            return True
    except urllib.error.HTTPError:
        return False


@dataclass(frozen=True)
class Launch:
    """All that is needed to start a server, and to start it again just as it was."""

    name: str
    command: tuple[str, ...]
    directory: Path
    port: int
    answers: Callable[[int], bool]  # whether it answers on a port; OSError counts as no
    start_timeout_s: float
    """The longest time without progress (log or CPU time) before it answers."""
    outlive: bool = False
    environment: Mapping[str, str] | None = None  # replaces our environment

    @property
    def log(self) -> Path:
        """Where the server's standard output and error go."""
        return self.directory / f"{self.name}.log"


class Server:
    """A server on this machine. As a context manager it is stopped at the end."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port`, the same after a restart."""
        return f"{LOOPBACK}:{self._launch.port}"

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._launch.port

    @property
    def directory(self) -> Path:
        """Where its configuration, log and data are."""
        return self._launch.directory

    @property
    def log(self) -> Path:
        """The server's log."""
        return self._launch.log

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._process is None:
            raise LocalServerError(f"{self._launch.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there (it may have crashed since it was started)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the process and return once it answers; LocalServerError if it does not."""
        if self.running:
            return self
        self._clear()
        try:
            self._spawn()
            self._wait_for_answer()
        except BaseException:  # also after Ctrl-C, a half-started process must not stay
            self.kill()
            raise
        return self

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
        """Send SIGTERM, and SIGKILL after the timeout. Returns the exit code."""
        code = None
        if self._process is not None:
            self._process.terminate()
            try:
                code = self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                code = self._process.wait()
        self._clear()
        return code

    def kill(self) -> None:
        """Send SIGKILL, as a crash, and wait until the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._clear()

    def restart(self) -> None:
        """Stop the server if it runs, then start it on the same port with the same data."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _spawn(self) -> None:
        launch = self._launch
        launch.directory.mkdir(parents=True, exist_ok=True)
        with undisturbed(), launch.log.open("ab") as log:
            self._guard = None if launch.outlive else start_guard()
            self._process = subprocess.Popen(
                launch.command,
                cwd=launch.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=launch.environment,
            )
            if self._guard is not None:
                assert self._guard.stdin is not None
                self._guard.stdin.write(f"{self._process.pid}\n".encode())
                self._guard.stdin.flush()

    def _wait_for_answer(self) -> None:
        assert self._process is not None
        launch = self._launch
        deadline_s, before, looks = 0.0, None, 0
        while looks < LOOKS_AT_LEAST or time.monotonic() < deadline_s:
            if (code := self._process.poll()) is not None:
                raise failed_start(launch, f"it ended with exit code {code}")
            with suppress(OSError):
                if launch.answers(launch.port):
                    return
            looks += 1
            if (found := progress(self._process.pid, launch.log)) != before:
                before, deadline_s, looks = found, time.monotonic() + launch.start_timeout_s, 0
            time.sleep(POLL_INTERVAL_S)
        reason = f"no answer, and no progress for {launch.start_timeout_s:g} s"
        raise failed_start(launch, reason)

    def _clear(self) -> None:
        """Forget the ended process and end its guard."""
        if self._guard is not None:
            assert self._guard.stdin is not None
            with suppress(OSError):  # the guard was killed, too
                self._guard.stdin.close()
            self._guard.wait()
        self._process = self._guard = None


def progress(pid: int, *files: Path) -> tuple[int, ...]:
    """What changes as long as a process works: the sizes of its files, and its time on a processor
    in steps of CPU_STEP_S."""
    return (*(path.stat().st_size if path.exists() else 0 for path in files), cpu_steps(pid))


def cpu_steps(pid: int) -> int:
    """A process' time on a processor, in steps of CPU_STEP_S; -1 when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1
    fields = stat.rpartition(")")[2].split()  # the name before it may have any character
    return int((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") / CPU_STEP_S)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP wait for the end of the block.

    If a signal came while a process is being started, nobody would know that process.
    """
    waiting: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled elsewhere
        return
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    for number in STOPPING:
        if callable(handlers[number]):
            signal.signal(number, lambda which, _: waiting.append(which))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, handler)
    for arrived in waiting:
        signal.raise_signal(arrived)


def start_guard() -> subprocess.Popen[bytes]:
    """A guard (guard.py) that waits for a process id on its standard input."""
    return subprocess.Popen(
        [sys.executable, "-E", "-S", str(Path(__file__).with_name("guard.py"))],
        stdin=subprocess.PIPE,
        # Not our output: whoever captures that would wait for the guard, too.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def failed_start(launch: Launch, reason: str) -> LocalServerError:
    """An error of one clear line, followed by the end of the log."""
    tail = log_tail(launch.log)
    where = f"the end of {launch.log}:" if tail else f"its log {launch.log} is empty"
    lines = [f"{launch.name} did not start on port {launch.port}: {reason}; {where}", *tail]
    return LocalServerError("\n    ".join(lines))


def log_tail(log: Path, lines: int = LOG_TAIL_LINES) -> list[str]:
    """The last lines of a log; none if it cannot be read."""
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def start_on(port: int | None, start: Callable[[int], Server]) -> Server:
    """Start on the given port, or on a free one, and on another if it is taken in between."""
    if port is not None:
        return start(port)
    for _ in range(PORT_ATTEMPTS - 1):
        try:
            return start(free_port())
        except LocalServerError as error:
            if "in use" not in str(error):
                raise
    return start(free_port())


def free_port() -> int:
    """A port of the loopback that nobody listens on, found by binding it.

    It is outside of the kernel's ephemeral range, where an outgoing connection (even a client's
    attempt to reconnect) may take the server's port while the server restarts.
    """
    first_ephemeral = _first_ephemeral_port()
    for _ in range(_PORT_TRIES if first_ephemeral > _PORTS_FROM else 0):
        port = random.randrange(_PORTS_FROM, first_ephemeral)
        if port_is_free(port):
            return port
    with closing(socket.socket()) as any_port:
        any_port.bind((LOOPBACK, 0))
        return int(any_port.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback now."""
    with closing(socket.socket()) as probe:
        # As servers do: a port with old connections in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _first_ephemeral_port() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        return int(text.split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def start_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot. With the pid, this identifies a process.

    None if there is no such process, or only a zombie.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    state, started = fields[0], int(fields[19])
    return None if state in "ZX" else started


def stop_process(pid: int, started: int, timeout_s: float = STOP_TIMEOUT_S) -> bool:
    """Stop a process that is not our child: SIGTERM, then SIGKILL. Returns False if it was gone.

    The pidfd is opened before the identity is checked, so the signal cannot reach another one.
    """
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if start_ticks(pid) != started:
            return False
        ended = select.poll()  # `select` takes no descriptor beyond 1023
        ended.register(process, select.POLLIN)
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(process, signal_number)
            if ended.poll(1000.0 * timeout_s):
                return True
    except ProcessLookupError:
        return True
    finally:
        os.close(process)
    raise LocalServerError(f"process {pid} does not end, not even by SIGKILL")
