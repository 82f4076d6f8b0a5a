"""A broker whose clock jumps, by libfaketime.

The broker's clock decides when a record arrived, and so whether a round's time lies ahead of it.
It also decides when transactions and groups expire.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from local.processes import Server
from local.servers import start_kafka
from local.tools import LocalServerError
from tests.chaos.scene import AT_ONCE, Outcome, a_scene

LIBRARY = "*/faketime/libfaketimeMT.so.1"
"""Where Debian's package has it."""
JUMPS = ("-3h", "+3h", "-20d", "+2d", "+0")
"""Where the clock jumps to, from the true time. All are later than the rounds' own time, so that no
round is ahead of its arrival, and earlier than the end of what topics keep."""


@contextmanager
def kafka_with_a_clock(folder: Path, properties: Mapping[str, str] = {}) -> Iterator[list[Server]]:
    """A Kafka whose clock is as far from the true one as its file `clock` says. Clocks that only
    measure durations are the true ones."""
    library = next(Path("/usr/lib").glob(LIBRARY), None)
    if library is None:
        raise LocalServerError("no libfaketime: run `apt-get install libfaketime`")
    folder.mkdir(parents=True)
    set_clock(folder, "+0")
    ours = {
        "LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(folder / "clock"),
        "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # else waits with a time limit go wrong in the JVM
    }  # fmt: skip
    os.environ |= ours
    try:
        server = start_kafka(folder, properties=properties)
    finally:
        for name in ours:
            os.environ.pop(name)
    with server:
        yield [server]


def set_clock(folder: Path, to: str) -> None:
    """Let the clock jump, at once for all threads."""
    new = folder / "new"
    new.write_text(to)
    new.replace(folder / "clock")


def clock_jumps(name: str, folder: Path, quick: bool) -> Outcome:
    """The broker's clock jumps back and forth while rounds stream."""
    with a_scene(name, folder, quick, kafka=kafka_with_a_clock) as scene:
        for i in scene.faults(2 * len(JUMPS)):
            set_clock(scene.kafka[0].directory, JUMPS[i % len(JUMPS)])
            scene.season.play(AT_ONCE)
        set_clock(scene.kafka[0].directory, "+0")
        scene.season.play(AT_ONCE)
        return scene.outcome()
