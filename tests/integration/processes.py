"""`stream-rater` as processes of their own: commands that end, workers, and what serves."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from local.processes import start_guard
from local.tools import ROOT
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from tests.integration.forks import Fork, run_fork
from tests.waits import HANGS_S, any_of, cpu_of, size_of, wait_until

THIS_RELEASE, NEXT_RELEASE = "stream_rater", "tests.integration.next_release"
LAST_RELEASE = "tests.integration.last_release"
"""The modules to run: the command of this release, of the next one, and of the last one."""

PATIENTLY = "900"  # For `verify --wait`: seconds that suffice on any machine.

Ended = subprocess.CompletedProcess[str]  # A command that has ended.

ANSWER_S = 60.0  # After so long without an answer, `get` returns status 0.


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment of a process with these settings, and no others of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return kept | variables_of(settings)


def changed(settings: Settings) -> dict[str, Any]:
    """By name, the settings that differ from the defaults."""
    given, usual = msgspec.structs.asdict(settings), msgspec.structs.asdict(Settings())
    return {name: value for name, value in given.items() if value != usual[name]}


def file_of(at: Settings, folder: Path) -> str:
    """The path of a new file with these settings, named after user and topic prefix."""
    path = folder / f"{at.kafka_sasl_username or 'owner'}-{at.topic_prefix}toml"
    path.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in changed(at).items()))
    return str(path)


def variables_of(settings: Settings) -> dict[str, str]:
    """Variables for the settings that differ from the defaults: other releases lack some."""
    assert not settings.kafka_options, "kafka_options can only be given in a TOML file"
    return {PREFIX + name.upper(): str(value) for name, value in changed(settings).items()}


def stream_rater(*arguments: str, settings: Settings, module: str = THIS_RELEASE) -> Ended:
    """Run a command to its end: this release's in a fork, another module in its own process."""
    if module == THIS_RELEASE:
        return run_fork(arguments, environment_of(settings))
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT, env=environment_of(settings), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip


def done(at: Settings, *words: object, module: str = THIS_RELEASE, quiet: bool = False) -> str:
    """What a command prints, which must succeed. `quiet`: it must not complain either."""
    ended = stream_rater(*map(str, words), settings=at, module=module)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not (quiet and complaints(ended.stderr)), ended.stderr
    return ended.stdout


def refused(at: Settings, *words: object, code: int = 0) -> str:
    """The one line of a command that fails. `code`: its exit code, if the test knows it."""
    ended = stream_rater(*map(str, words), settings=at)
    lines = [each for each in complaints(ended.stderr) if not each.startswith("{")]
    assert ended.returncode in ((code,) if code else (1, 2)), ended.stdout + ended.stderr
    assert len(lines) == 1 and lines[0].startswith("stream-rater: "), ended.stderr
    return lines[0]


PROGRESS = ("waiting for the workers", "compiling kernel", "another process compiles")
IDLE = ": waiting for messages"  # Printed by a command that follows a topic without messages.


def complaints(stderr: str) -> list[str]:
    """The lines of standard error, without those on what a command does or waits for."""
    lines = stderr.splitlines()
    return [each for each in lines if not each.startswith(PROGRESS) and IDLE not in each]


class Answering:
    """A server that answers by HTTP, with its pages and its metrics."""

    @property
    def url(self) -> str:
        """The URL; empty before it listens."""
        raise NotImplementedError

    def get(self, path: str) -> tuple[int, str]:
        """The status and the body of a page; status 0 if there is no answer."""
        if not self.url:
            return 0, ""
        try:
            with urllib.request.urlopen(self.url + path, timeout=ANSWER_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels; 0 if there are none."""
        return sum(
            value
            for found, labelled, value in samples(self.get("/metrics")[1])
            if found == name and labels.items() <= labelled.items()
        )


class WorkerProcess(Answering):
    """A running worker, whose log is in a file."""

    def __init__(
        self, settings: Settings, log: Path, role: str = "all", variables: Mapping[str, str] = {},
        module: str = THIS_RELEASE, *, command: Sequence[str] = (), forked: bool = False,
    ) -> None:  # fmt: skip
        """`command`: replaces module and role. `forked`: start a fork of this release (`forks`)."""
        self.settings = settings
        self._log = log
        self._url = ""
        # The guard ends the worker even if the tests are killed.
        self._guard = start_guard()
        needs_index = "serve" in command and not settings.index
        own = {"STREAM_RATER_INDEX": f"{log}.index"} if needs_index else {}
        environment = {**environment_of(settings), **own, **variables}
        words = command or [sys.executable, "-m", module, "run", "--role", role]
        self._process: Fork | subprocess.Popen[bytes]
        if forked and module == THIS_RELEASE and not command:
            self._process = Fork(["run", "--role", role], environment, log, log)
        else:
            with log.open("wb") as file:
                self._process = subprocess.Popen(
                    words, cwd=ROOT, env=environment,
                    stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                )  # fmt: skip
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{self.pid}\n".encode())
        self._guard.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def terminate(self) -> None:
        """Send SIGTERM: the worker finishes, commits and leaves."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Send SIGSTOP, which resembles a machine that hangs."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def moves(self) -> object:
        """What moves while it works: its log, and its time on a processor."""
        return any_of(size_of(self._log), cpu_of(self.pid))()

    def wait(self) -> int:
        wait_until(lambda: not self.running, f"process {self.pid} ends", moves=self.moves)
        return self._process.wait()

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """The log lines of this event (of all events without a name)."""
        lines = self.log().splitlines(keepends=True)
        report = [json.loads(line) for line in lines if line.startswith("{") and line[-1] == "\n"]
        return [each for each in report if name in ("", each["event"])]

    @property
    def url(self) -> str:
        """The URL of its HTTP server; empty before it listens."""
        if not self._url:
            for event in self.events("http"):
                self._url = f"http://127.0.0.1:{event['port']}"
        return self._url

    def has_a_share(self) -> bool:
        """Whether it owns a partition or shard."""
        return self.metric("stream_rater_owned") > 0

    def wait_ready(self) -> None:
        """Wait until /readyz returns 200."""

        def ready() -> bool:
            assert self.running, f"the worker ended:\n{self.log()}"
            return self.get("/readyz")[0] == 200

        try:
            wait_until(ready, "the worker is ready", moves=self.moves)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.get('/readyz')}\n{self.log()[-4000:]}") from None

    def report(self) -> str:
        counts = [
            f"{name}{labels or ''} {value:g}"
            for name, labels, value in samples(self.get("/metrics")[1])
            if name.startswith(PREFIX.lower()) and value and not name.endswith(("_bucket", "_sum"))
        ]
        return "\n".join([self.log()[-4000:], "; ".join(counts)])

    def close(self) -> None:
        if self.running:
            self.kill()
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()


def most_memory(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


Start = Callable[..., WorkerProcess]  # Starts a worker, as the fixture `worker_process` does.


def gone(settings: Settings) -> Callable[[], bool]:
    admin = Admin(settings)
    return lambda: not any(admin.members(group) for group in (ESTIMATORS, UPDATERS))


def stopped(worker: WorkerProcess) -> None:
    """End a worker, and wait until it has left its groups."""
    worker.terminate()
    assert worker.wait() == 0
    wait_until(gone(worker.settings), "it has left")


def samples(page: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """The name, labels and value of each sample on a page of metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


@contextmanager
def workers(folder: Path) -> Iterator[Start]:
    """Starts workers: `start(settings, role="all", ready=True)`. Kills them at the end."""
    numbers = itertools.count()
    with ExitStack() as stack:

        def start(
            settings: Settings, role: str = "all", *, ready: bool = True,
            module: str = THIS_RELEASE, forked: bool = False, **variables: str,
        ) -> WorkerProcess:  # fmt: skip
            log = folder / f"worker-{next(numbers)}.log"
            worker = WorkerProcess(settings, log, role, variables, module, forked=forked)
            return begun(stack, worker, ready)

        yield start


@contextmanager
def commands(folder: Path, *words: str) -> Iterator[Start]:
    """Starts a command that serves: `start(settings, ready=True)`. All are killed at the end."""
    numbers, command = itertools.count(), [sys.executable, "-m", THIS_RELEASE, *words]
    with ExitStack() as stack:

        def start(settings: Settings, *, ready: bool = True) -> WorkerProcess:
            log = folder / f"{words[0]}-{next(numbers)}.log"
            return begun(stack, WorkerProcess(settings, log, command=command), ready)

        yield start


def begun(stack: ExitStack, process: WorkerProcess, ready: bool) -> WorkerProcess:
    """A process that ends with the stack. If `ready`, wait until it is ready."""
    stack.callback(process.close)
    if ready:
        process.wait_ready()
    return process
