"""The demo's programs, each a process of its own that does not outlive the demo."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from local.processes import (
    LOOPBACK,
    Launch,
    Server,
    free_port,
    http_ok,
    log_tail,
    undisturbed,
)
from local.tools import ROOT
from stream_rater.config.settings import PREFIX

EXAMPLES = ROOT / "deploy" / "examples"
LADDERS = EXAMPLES / "ladders.toml"
GAME_BACKEND = (sys.executable, str(EXAMPLES / "game_backend.py"))
MATCHMAKING = (sys.executable, str(EXAMPLES / "matchmaking.py"))
STREAM_RATER = (sys.executable, "-m", "stream_rater")

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
"""The service needs at most 10 s after SIGTERM, but a busy machine may take longer."""

END_TIMEOUT_S = 30.0
TAIL_LINES = 12

Environment = Mapping[str, str]


class DemoFailed(Exception):
    """The demo failed: one line that says why, and the end of a log that may say more."""

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message)
        self.tail = log_tail(log, TAIL_LINES) if log is not None else []


def start_service(folder: Path, environment: Environment) -> Server:
    """`stream-rater run`, ready to rate."""
    return _started("service", "run", "HTTP", folder, environment)


def start_serve(folder: Path, environment: Environment) -> Server:
    """`stream-rater serve`, ready to answer."""
    return _started("serve", "serve", "SERVE", folder, environment)


def _started(
    name: str, command: str, setting: str, folder: Path, environment: Environment
) -> Server:
    """Start a command that listens on a free port, which this setting gives it."""
    port = free_port()
    return Server(
        Launch(
            name=name,
            command=(*STREAM_RATER, command),
            directory=folder,
            port=port,
            answers=ready,
            start_timeout_s=START_TIMEOUT_S,
            environment={**environment, f"{PREFIX}{setting}": f"{LOOPBACK}:{port}"},
        )
    ).start()


def ready(port: int) -> bool:
    """Whether /readyz answers 200, which it does once the process is in its consumer groups."""
    return http_ok(f"http://{LOOPBACK}:{port}/readyz")


class Program:
    """A process that ends by itself, with its output in files."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Environment
    ) -> None:
        self.name = name
        self._output, self.log = folder / f"{name}.out", folder / f"{name}.log"
        with self._output.open("wb") as output, self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=log,
                start_new_session=True,  # a Ctrl-C reaches only the demo, which ends the program
            )  # fmt: skip

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def result(self, timeout_s: float) -> str:
        """Wait for its end. Returns its output. Raises DemoFailed if it fails or is late."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"{self.name} takes over {timeout_s:g} s", self.log) from None
        if code != 0:
            raise DemoFailed(f"{self.name} ended with exit code {code}", self.log)
        return self._output.read_text(encoding="utf-8").strip()

    def end(self) -> None:
        """Stop the process if it still runs."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@contextmanager
def program(
    name: str, command: Sequence[str], folder: Path, environment: Environment
) -> Iterator[Program]:
    """A program that runs until the end of the block."""
    started = None
    try:
        with undisturbed():
            started = Program(name, command, folder, environment)
        yield started
    finally:
        if started is not None:
            started.end()


def output_of(
    name: str, command: Sequence[str], folder: Path, environment: Environment, timeout_s: float
) -> str:
    """Run a program to its end. Returns what it prints."""
    with program(name, command, folder, environment) as started:
        return started.result(timeout_s)
