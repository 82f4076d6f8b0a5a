"""Kafka and Redis on this machine: for the demo, the tests, and by hand.

    with servers() as at:                  # both, until the block ends, however it ends
        run(at.kafka, at.redis)

    with start_redis(folder) as redis:     # one server, which can be stopped, killed and restarted
        redis.kill()
        redis.restart()

By hand: `python -m local.servers up [prometheus]|down|clean-data|status` (`make up`, `make down`,
`make clean-data`).
"""

import argparse
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from local import background
from local.kafka_node import NO_PROPERTIES, start_kafka
from local.processes import Server
from local.redis_node import NO_SETTINGS, start_redis
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, LocalServerError, given_address

__all__ = ["Addresses", "LocalServerError", "Server", "servers", "start_kafka", "start_redis"]

AGAIN_S = 0.05
"""A signal that arrived within a destructor is sent again after this time."""


@dataclass(frozen=True)
class Addresses:
    """The addresses of the two servers."""

    kafka: str
    redis: str

    def environment(self) -> dict[str, str]:
        """The variables that give a child process these addresses."""
        return {KAFKA_VARIABLE: self.kafka, REDIS_VARIABLE: self.redis}


@contextmanager
def servers(
    *,
    kafka: str | None = None,
    kafka_properties: Mapping[str, str] = NO_PROPERTIES,
    redis_settings: Mapping[str, str] = NO_SETTINGS,
) -> Iterator[Addresses]:
    """Both servers: those that the environment names, else new ones in a temporary folder. `kafka`:
    the address of a Kafka that runs already.

    Started servers are stopped and their data removed at the end of the block, also after an
    exception, Ctrl-C, SIGTERM or SIGHUP. After a SIGKILL the servers end, and their folder stays.
    """
    with ExitStack() as stack:
        stack.enter_context(signals_as_exit())
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="stream-rater-", ignore_cleanup_errors=True)
        )
        redis = given_address(REDIS_VARIABLE)
        if redis is None:
            started = start_redis(Path(folder, "redis"), settings=redis_settings)
            redis = stack.enter_context(started).address
        kafka = given_address(KAFKA_VARIABLE) or kafka
        if kafka is None:
            started = start_kafka(Path(folder, "kafka"), properties=kafka_properties)
            kafka = stack.enter_context(started).address
        yield Addresses(kafka=kafka, redis=redis)


@contextmanager
def signals_as_exit() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as an exception does, so that it can clean up. Ctrl-C
    ends it by KeyboardInterrupt, as usual. No signal is lost in a destructor.

    This holds only in the main thread, and only if no other handler is set.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        usual = {
            signal.SIGTERM: signal.SIG_DFL,
            signal.SIGHUP: signal.SIG_DFL,
            signal.SIGINT: signal.default_int_handler,
        }
        before = {n: way for n, way in usual.items() if signal.getsignal(n) is way}
    for number in before:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number, way in before.items():
            signal.signal(number, way)


def _end(number: int, frame: FrameType | None) -> None:
    if in_destructor(frame):
        again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
        return
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def in_destructor(frame: FrameType | None) -> bool:
    """Whether a signal arrived within a destructor. Python drops an exception that leaves one, so
    the signal must be handled later."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 if it failed or (status) a server does not run."""
    parser = argparse.ArgumentParser(prog="local.servers", description="Kafka and Redis by hand.")
    parser.add_argument("command", choices=("up", "down", "clean-data", "status"))
    parser.add_argument("also", nargs="*", metavar="SERVER", help="with `up`: prometheus")
    given = parser.parse_args(arguments)
    if unknown := set(given.also) - set(background.OPTIONAL):
        parser.error(f"no server to add: {', '.join(sorted(unknown))}")
    try:
        match given.command:
            case "up":
                return background.up(given.also)
            case "down":
                return background.down()
            case "clean-data":
                return background.down(delete_data=True)
            case _:
                return background.status()
    except (LocalServerError, OSError) as error:
        print(f"servers: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
