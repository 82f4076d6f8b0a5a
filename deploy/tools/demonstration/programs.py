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
"""More than the 10 s that the service needs at most after SIGTERM: the machine may be busy."""

END_TIMEOUT_S = 30.0
TAIL_LINES = 12

Environment = Mapping[str, str]


class DemoFailed(Exception):
    """Something did not work: one line, and the end of a log that may say more."""

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
    """A command that listens on a free port, given by this setting."""
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
    """Whether /readyz says so: not while it is up, but not in its consumer groups yet."""
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
                start_new_session=True,  # a Ctrl-C is the demo's to answer
            )  # fmt: skip

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def result(self, timeout_s: float) -> str:
        """What it printed once it has ended; DemoFailed unless it ended well and in time."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"{self.name} takes over {timeout_s:g} s", self.log) from None
        if code != 0:
            raise DemoFailed(f"{self.name} ended with exit code {code}", self.log)
        return self._output.read_text(encoding="utf-8").strip()

    def end(self) -> None:
        """Stop it if it still runs."""
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
    """A program for the length of a block."""
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
    """What a program prints."""
    with program(name, command, folder, environment) as started:
        return started.result(timeout_s)
