"""`make setup`: everything that the demo, the tests and the local servers need.

Each step looks first whether it is done (a stamp says from what), so that running it again costs
a fraction of a second. What it says goes to standard error: standard output belongs to whoever
called (`make up` prints two lines there, `make bench` JSON).
"""

import sys

# Before the imports: they would fail on an older Python in a way that explains nothing.
if sys.version_info < (3, 11):  # noqa: UP036
    found = ".".join(str(part) for part in sys.version_info[:2])
    sys.exit(f"setup: needs Python 3.11 or newer, not {found}; use: make PYTHON=python3.11 ...")

import fcntl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from local import kafka_install, python_env
from local.system import PROMETHEUS, REDIS, ensure_packages
from local.tools import (
    KAFKA_VARIABLE,
    REDIS_VARIABLE,
    SERVERS,
    LocalServerError,
    given_address,
)


def main(ensure: Callable[[], None] | None = None) -> int:
    """Do what is not done; 0 when all is, 1 with one line on standard error when it cannot be."""
    try:
        with one_at_a_time():
            (ensure or ensure_everything)()
    except LocalServerError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; run it again to go on")
        return 130
    except (OSError, subprocess.SubprocessError) as error:
        say(f"failed: {error}")
        return 1
    return 0


def ensure_everything() -> None:
    """The steps in order; all of the system's packages at once, so that one line can name them."""
    own_redis = given_address(REDIS_VARIABLE) is None
    own_kafka = given_address(KAFKA_VARIABLE) is None
    packages = [PROMETHEUS, REDIS] if own_redis else [PROMETHEUS]
    packages += kafka_install.needed_packages() if own_kafka else []
    ensure_packages([*packages, *python_env.needed_packages()], say)
    if own_kafka:
        kafka_install.ensure_kafka(say)
    python_env.ensure_venv(say)
    python_env.ensure_python_packages(say)
    python_env.ensure_project(say)
    python_env.ensure_warm_kernels(say)


def say(text: str) -> None:
    """One line on standard error."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let two set-ups of the same tree wait for each other."""
    SERVERS.mkdir(exist_ok=True)
    with (SERVERS / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another setup of this tree")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
