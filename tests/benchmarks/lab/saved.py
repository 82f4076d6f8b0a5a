"""Keeps the results of games as they come, so that a run that was cut off goes on. A file's name
has a digest of all that a result depends on: rounds, system, ranges, effort, kernels, our code,
packages' versions. So a result is used again only where a new run would find the same."""

import hashlib
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import stream_rater
from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.evaluation.fits import System
from tests.benchmarks.lab import peers
from tests.benchmarks.lab.forward import Fitted, Scored
from tests.benchmarks.lab.game import Game

PACKAGE = Path(stream_rater.__file__).parent
CODE = (PACKAGE / "rating", PACKAGE / "evaluation", PACKAGE / "columns", Path(__file__).parent)
"""The folders of the code that decides a result."""


class Unfinished(msgspec.Struct, frozen=True):
    """A system that did not finish a game in time."""

    system: str
    seconds: float

    def sentence(self) -> str:
        """What happened, for people."""
        return f"{self.system} did not finish within {self.seconds:g} s"


Outcome = tuple[Fitted, Scored] | Unfinished  # The result of a system on a game.


class _Stored(msgspec.Struct, frozen=True):
    fitted: Fitted | None
    scores: dict[str, tuple[int, bytes]]
    """By aim, the number of rounds, and their scores as float64."""
    unfinished: Unfinished | None = None


class Saved:
    """The folder of the results. `effort` is anything whose text says how much was tried."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, game: Game, system: System, effort: object) -> Outcome | None:
        """A result that was stored, or None. A file that cannot be read counts as none."""
        try:
            stored = msgspec.msgpack.decode(
                self._path(game, system, effort).read_bytes(), type=_Stored
            )
        except (OSError, msgspec.DecodeError):
            return None
        if stored.fitted is None:
            return stored.unfinished
        return stored.fitted, {aim: _array(*each) for aim, each in stored.scores.items()}

    def store(self, game: Game, system: System, effort: object, outcome: Outcome) -> None:
        """Store a result, whole or not at all; not without such a folder, as elsewhere."""
        path = self._path(game, system, effort)
        if not self._folder.is_dir() or path.exists():
            return
        if isinstance(outcome, Unfinished):
            stored = _Stored(None, {}, outcome)
        else:
            fitted, scores = outcome
            stored = _Stored(fitted, {aim: (len(x), x.tobytes()) for aim, x in scores.items()})
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(msgspec.msgpack.encode(stored))
        part.replace(path)

    def _path(self, game: Game, system: System, effort: object) -> Path:
        digest = hashlib.blake2b(digest_size=12)
        digest.update(digest_of(game))
        made_by = (
            system.name, system.space, effort, KERNEL_VERSION, _code(), _version(system.name)
        )  # fmt: skip
        digest.update(repr(made_by).encode())
        name = re.sub(r"[^\w+-]+", "-", f"{game.name}-{system.name}")
        return self._folder / f"{name}-{digest.hexdigest()}.msgpack"


def _array(rounds: int, data: bytes) -> Floats:
    return np.frombuffer(data, np.float64).reshape(rounds, -1).copy()


def digest_of(game: Game) -> bytes:
    """A digest of the rounds of a game, and of which of them are scored."""
    digest = hashlib.blake2b(repr((game.name, game.boundary)).encode(), digest_size=32)
    for session in game.sessions:
        digest.update(repr((session.ladder, session.players)).encode())
        for part in _columns(session):
            digest.update(repr((part.dtype.str, part.shape)).encode())
            digest.update(np.ascontiguousarray(part).view(np.uint8).data)
        for seeded in session.seeds:
            digest.update(repr(seeded).encode())
    return digest.digest()


def _columns(session: Any) -> Iterator[Any]:
    """The arrays of a session and of its rounds."""
    own = (session.rows, session.waves, session.numbers)
    rounds = (getattr(session.rounds, name) for name in session.rounds.__struct_fields__)
    yield from (each for each in (*own, *rounds) if isinstance(each, np.ndarray) and each.size)


@cache
def _code() -> str:
    """A digest of the modules that decide a result."""
    digest = hashlib.blake2b(digest_size=16)
    for folder in CODE:
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder.parent)).encode() + path.read_bytes())
    return digest.hexdigest()


def _version(system: str) -> str:
    """The version of a peer's package; empty for others."""
    if system not in peers.MODULES:
        return ""
    module = peers.peer_module(peers.MODULES[system].partition(".")[0])
    return str(getattr(module, "__version__", ""))
