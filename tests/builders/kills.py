"""Commands that halt after each of their effects. What they have done by then is what a kill at
this place leaves: whoever has looked at it lets the command go on, or kills it by SIGKILL, which
runs no `finally`."""

import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.integration.forks import Fork, context
from tests.waits import HANGS_S


@contextmanager
def halting(
    words: Sequence[str], environment: Mapping[str, str], effects: Sequence[str], log: Path
) -> Iterator[Iterator[str]]:
    """Run a command in a fork, and yield the names of the effects that it has had, one by one. It
    goes on when the next one is asked for, and is killed at the end of the block.

    `effects`: functions and methods by their full names. `log`: for what the command prints.
    """
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
