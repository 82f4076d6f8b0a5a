"""Set-up: everything that the commands of the Makefile need.

`python -m local.setup python` makes the Python environment of the service (`make python`), and
`service` also installs Redis and Kafka (`make up`). `packages` installs all Python packages of
the lock (`make check`). Without an argument Redis, Kafka and Prometheus follow (`make bench`), and
with `all` also Chromium and the tools that Go builds (`make setup`).

Each step looks first whether it is done (a stamp says from what), so that running it again costs
a fraction of a second. Messages go to standard error: standard output belongs to the caller
(`make up` prints two lines there, `make bench` JSON).
"""

import sys

# Before the imports, which would fail on an older Python with an unhelpful error.
if sys.version_info < (3, 11):  # noqa: UP036
    found = ".".join(str(part) for part in sys.version_info[:2])
    sys.exit(f"setup: needs Python 3.11 or newer, not {found}; use: make PYTHON=python3.11 ...")

from collections.abc import Callable, Sequence

from local import go_tools, kafka_install, python_env, steps
from local.steps import say
from local.system import CHROMIUM, PROMETHEUS, REDIS, Package, ensure_packages
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, given_address

Step = Callable[[Callable[[str], None]], None]
"""A step of the set-up. Its argument is the function by which it reports."""


def main(arguments: Sequence[str] = ()) -> int:
    """Run the command. Returns 0 if all is done, 2 for an unknown argument."""
    match list(arguments):
        case []:
            return steps.run(ensure_servers)
        case ["python"]:
            return steps.run(lambda: ensure_python_only(python_env.ensure_service_packages))
        case ["packages"]:
            return steps.run(lambda: ensure_python_only(python_env.ensure_python_packages))
        case ["service"]:
            return steps.run(ensure_service)
        case ["kafka"]:
            return steps.run(ensure_kafka_only)
        case ["stores"]:
            return steps.run(ensure_stores)
        case ["all"]:
            return steps.run(ensure_everything)
    say(f"no such set-up: {' '.join(arguments)}")
    return 2


def ensure_python_only(packages: Step) -> None:
    """The Python environment with some packages, the project and its compiled kernels."""
    ensure_packages(python_env.needed_packages(), say)
    ensure_python(packages)


def ensure_service() -> None:
    """Install what the service and the demo need: Redis, Kafka, and only their Python packages."""
    ensure_system_packages()
    steps.side_by_side(ensure_kafka, lambda: ensure_python(python_env.ensure_service_packages))


def ensure_servers() -> None:
    """All Python packages, Redis, Prometheus and Kafka."""
    ensure_system_packages(PROMETHEUS)
    steps.side_by_side(ensure_kafka, ensure_python)


def ensure_kafka_only() -> None:
    """The release of Kafka that KAFKA_CHOICE names."""
    ensure_packages(kafka_install.needed_packages(), say)
    kafka_install.ensure_kafka(say)


def ensure_stores() -> None:
    """Install what ensure_servers installs, and the other stores."""
    ensure_servers()
    python_env.ensure_stores(say)


def ensure_everything() -> None:
    """Install everything: also Chromium, other stores, and the tools that Go builds."""
    ensure_system_packages(PROMETHEUS, CHROMIUM)
    steps.side_by_side(ensure_kafka, ensure_python, lambda: go_tools.ensure_tools(say))
    python_env.ensure_stores(say)


def ensure_system_packages(*more: Package) -> None:
    """Install all system packages at once, so that one line can name those that are missing."""
    own_redis = given_address(REDIS_VARIABLE) is None
    packages = [REDIS] if own_redis else []
    packages += kafka_install.needed_packages() if own_kafka() else []
    ensure_packages([*packages, *python_env.needed_packages(), *more], say)


def own_kafka() -> bool:
    """Whether the environment names no other Kafka, so that we run one."""
    return given_address(KAFKA_VARIABLE) is None


def ensure_kafka() -> None:
    """Kafka's jars and what makes it start quickly, unless a Kafka is given."""
    if own_kafka():
        kafka_install.ensure_kafka(say)


def ensure_python(packages: Step = python_env.ensure_python_packages) -> None:
    """The virtual environment, its packages, the project and the kernels, in this order."""
    python_env.ensure_venv(say)
    packages(say)
    python_env.ensure_project(say)
    python_env.ensure_warm_kernels(say)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
