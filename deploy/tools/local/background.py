"""`make up` and `make down`: servers that outlive the command. A state file says where they are.

`.servers/state.json` has each server's address and process (its id and when it began, so that
another process with the same id is never taken for it). The data stay in `.servers/data/` from
one `up` to the next, and so do the ports when nobody has taken them.
"""

import fcntl
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final

from local.kafka_node import start_kafka
from local.processes import Server, port_is_free, start_ticks, stop_process
from local.prometheus_node import WORKER, start_prometheus
from local.redis_node import ADVISED, start_redis
from local.tools import (
    FORGET,
    KAFKA_VARIABLE,
    PROMETHEUS_VARIABLE,
    REDIS_VARIABLE,
    SERVERS,
    LocalServerError,
    given_address,
)

STATE: Final = SERVERS / "state.json"
DATA: Final = SERVERS / "data"
KEPT: Final = "the data stay for the next `make up`; `make clean-data` deletes them"
VARIABLES: Final = {"kafka": KAFKA_VARIABLE, "redis": REDIS_VARIABLE}
"""If such a variable names another server, that one is used, and none is started."""
OPTIONAL: Final = {"prometheus": PROMETHEUS_VARIABLE}
"""Servers that are started only if asked for, whatever their variables name."""
LISTPACKS: Final = {name: value for name, value in ADVISED.items() if "listpack" in name}
"""The advised settings for small hashes. How data are stored on disk is Redis' default."""
FORMS: Final = {"redis": "redis://{}", "prometheus": "http://{}"}
"""The form of exported addresses, as `redis-cli -u` and `promtool query` accept them."""


@dataclass(frozen=True)
class Running:
    """A server in the background: its address and its process; a stopped one keeps its address."""

    address: str
    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether the same process still runs."""
        return start_ticks(self.pid) == self.started

    @property
    def port(self) -> int:
        """The port in the address."""
        return int(self.address.rpartition(":")[2])


def up(also: Sequence[str] = ()) -> int:
    """Start the servers that do not run, and those in `also`. Print a line of shell for each."""
    with state_lock():
        state = load_state()
        addresses = {name: _ensure_running(name, state) for name in (*VARIABLES, *also)}
    for name, address in addresses.items():
        form = FORMS.get(name, "{}") if "://" not in address else "{}"
        print(f"export {(VARIABLES | OPTIONAL)[name]}={form.format(address)}")
    return 0


def down(*, delete_data: bool = False) -> int:
    """Stop what `up` started, by process id, and print how a shell forgets the addresses.

    The data stay, unless `delete_data`.
    """
    with state_lock():
        for name, server in load_state().items():
            if stop_process(server.pid, server.started):
                _say(f"{name} stopped (process {server.pid})")
            else:
                _say(f"{name} was not running")
        if delete_data:
            shutil.rmtree(DATA, ignore_errors=True)
    _say("the data are deleted" if delete_data else KEPT)
    _say(f"in each shell that has their addresses: {FORGET}")
    return 0


def status() -> int:
    """Print a line for each server. Returns 1 if one does not run."""
    state = load_state()
    all_run = True
    for name in (*VARIABLES, *(each for each in OPTIONAL if each in state)):
        server = state.get(name)
        if given := _given(name, server):
            print(f"{name}: {given} ({VARIABLES[name]})")
        elif server is not None and server.alive:
            print(f"{name}: {server.address} (process {server.pid})")
        else:
            print(f"{name}: not running")
            all_run = False
    return 0 if all_run else 1


def _ensure_running(name: str, state: dict[str, Running]) -> str:
    """The server's address. Starts it if neither the environment nor `state` has a running one."""
    known = state.get(name)
    if given := _given(name, known):
        _say(f"{name} at {given}, as {VARIABLES[name]} says")
        return given
    if known is not None and known.alive:
        _say(f"{name} already runs at {known.address} (process {known.pid})")
        return known.address
    port = known.port if known is not None and port_is_free(known.port) else None
    server = _start(name, port)
    ticks = start_ticks(server.pid)
    if ticks is None:
        raise LocalServerError(f"{name} ended just after its start; its log: {server.log}")
    state[name] = Running(server.address, server.pid, ticks)
    save_state(state)  # at once: a failure of the other server must not lose this one
    _say(f"{name} runs at {server.address} (process {server.pid}, log {server.log})")
    if name == "prometheus":
        _say(f"it scrapes a worker at {WORKER}; its rules and dashboard: helm/stream-rater/files")
    return server.address


def _given(name: str, known: Running | None) -> str | None:
    """The address of another server that the environment names, or None.

    A variable with our own server's address comes from what `up` printed before.
    """
    given = given_address(VARIABLES[name]) if name in VARIABLES else None
    return None if known is not None and given == known.address else given


def _start(name: str, port: int | None) -> Server:
    starters: dict[str, Callable[[], Server]] = {
        "kafka": lambda: start_kafka(DATA / "kafka", port=port, outlive=True),
        "redis": lambda: start_redis(DATA / "redis", port=port, settings=LISTPACKS, outlive=True),
        "prometheus": lambda: start_prometheus(DATA / "prometheus", port=port, outlive=True),
    }
    return starters[name]()


def load_state() -> dict[str, Running]:
    """The servers in the state file; none if there is no file."""
    try:
        raw = json.loads(STATE.read_text(encoding="utf-8"))
        return {name: Running(**fields) for name, fields in raw.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise LocalServerError(
            f"{STATE} is damaged ({error}); delete it after stopping what it was about"
        ) from error


def save_state(state: dict[str, Running]) -> None:
    """Write the state file atomically."""
    STATE.parent.mkdir(parents=True, exist_ok=True)
    fresh = STATE.with_suffix(".new")
    text = json.dumps({name: asdict(server) for name, server in state.items()}, indent=2)
    fresh.write_text(text + "\n", encoding="utf-8")
    fresh.replace(STATE)


@contextmanager
def state_lock() -> Iterator[None]:
    """Let only one `up` or `down` run at a time."""
    SERVERS.mkdir(exist_ok=True)
    with (SERVERS / "state.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
