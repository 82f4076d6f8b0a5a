"""Commands that halt after each of their effects: what they did by then is what a kill leaves."""

import itertools
import os
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from stream_rater.adapters.sqlite.database import Database
from stream_rater.places.file import FilePlace
from tests.integration.forks import Fork, context
from tests.waits import HANGS_S


@contextmanager
def halting(
    words: Sequence[str], environment: Mapping[str, str], effects: Sequence[str], log: Path
) -> Iterator[Iterator[str]]:
    """Run a command in a fork, and yield the names of the effects that it has had, one by one. It
    continues when the next one is asked for, and is killed at the end of the block. `effects` are
    full names of functions or methods; `log` is the file for what the command prints."""
    ours, theirs = context.Pipe()
    fork = Fork(words, environment, log, log, partial(_halt_after, theirs, tuple(effects)))
    theirs.close()
    try:
        yield _halts(ours, fork)
    finally:
        fork.kill()
        fork.wait()
        ours.close()


def short(effect: str) -> str:
    """The name by which an effect is yielded: its last two words."""
    return ".".join(effect.split(".")[-2:])


def _halts(ours: Connection, fork: Fork) -> Iterator[str]:
    while wait([ours, fork.sentinel], HANGS_S) and ours.poll():
        try:
            name: str = ours.recv()
        except EOFError:  # the command has ended
            return
        yield name
        ours.send(None)


def _halt_after(theirs: Connection, effects: Sequence[str]) -> None:
    """In the fork: let each effect be reported, and wait for an answer."""

    def reporting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def reported(*given: Any, **named: Any) -> Any:
            outcome = call(*given, **named)
            theirs.send(name)
            theirs.recv()
            return outcome

        return reported

    for each in effects:
        where, _, name = each.rpartition(".")
        owner = pkgutil.resolve_name(where)
        setattr(owner, name, reporting(short(each), getattr(owner, name)))


PORT_WRITES = (
    "append", "copy_events", "note", "write_standings", "commit_rounds", "commit_parts",
    "begin_parts", "write_marks", "begin_rebuild", "apply", "end_rebuild", "begin_copy",
    "mark_moved",
)  # fmt: skip
"""The methods of a place that write."""


def dies_at(number: int, said: str) -> None:
    """For a fork: let it exit at call `number` (from 0 on) of a method of PORT_WRITES on a data
    file, or of `replace_by`, before the call has an effect. `said`: a file for the call's name."""
    left = itertools.count(number, -1)

    def dying(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(*given: Any, **named: Any) -> Any:
            if next(left) == 0:
                Path(said).write_text(name)
                os._exit(9)
            return call(*given, **named)

        return maybe

    for owner, names in ((FilePlace, PORT_WRITES), (Database, ("replace_by",))):
        for name in names:
            setattr(owner, name, dying(name, getattr(owner, name)))
