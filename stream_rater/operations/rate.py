"""`stream-rater rate`: rates the rounds of a file offline."""

import base64
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
import numpy as np

from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.operations.input_file import (
    Mistakes,
    Order,
    RoundsFile,
    check_writable,
    file_failures,
)
from stream_rater.rating.seasons import seen
from stream_rater.rating.stages import ratings
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import Verdicts
from stream_rater.replay.pool import Pool
from stream_rater.replay.rating_changes import changes_of
from stream_rater.replay.sequential import Replay
from stream_rater.runtime.cautions import say_cautions
from stream_rater.tables.reading import AS_FOUND, Reading

_to_json = msgspec.json.Encoder().encode


def rate(
    path: Path, ladders: Ladders, out: Path | None, changes: Path | None, *, records: bool,
    reading: Reading = AS_FOUND, cores: int | None = None,
) -> None:  # fmt: skip
    """Rate the rounds of a file with its corrections. Writes the final ratings to `out` (None:
    standard output), and each rating change to `changes` if it is given.

    `records`: whether the lines include the bytes of each belief. `reading`: how a table is to be
    read. `cores`: how many to use; None: all. Warns on standard error of parameters whose effect
    may surprise.

    Raises BadConfiguration or Failed.
    """
    for each in filter(None, (out, changes)):
        check_writable(each, path)
    if out is not None and changes is not None:
        check_writable(out, changes)
    say_cautions(ladders, lambda text: print(f"warning: {text}", file=sys.stderr))
    with file_failures():
        rated = rate_file(path, ladders, changes, reading, Cores.of(cores))
        with _opened(out) as file:
            for ladder, pool in sorted(rated.replay.pools.items()):
                lines = rating_lines(ladder, pool, records=records)
                file.writelines(_to_json(line) + b"\n" for line in lines)
    rated.conclude()


class RatedFile(NamedTuple):
    """A file whose rounds were rated."""

    path: Path
    replay: Replay
    verdicts: Verdicts | None
    """The verdicts on its corrections; None if it has none."""
    order: Order
    mistakes: Mistakes

    def conclude(self) -> None:
        """Warn if rounds were out of order. Raises Failed if lines were rejected."""
        self.order.conclude(self.path)
        self.mistakes.conclude()


def rate_file(
    path: Path, ladders: Ladders, changes: Path | None = None, reading: Reading = AS_FOUND,
    cores: Cores = ONE_CORE,
) -> RatedFile:  # fmt: skip
    """Rate the rounds of a file with its corrections. Writes each rating change to `changes` if it
    is given.

    Raises OSError, EOFError or zlib.error if a file cannot be read or written, and BadConfiguration
    with a question about the columns of a table.
    """
    file, window = RoundsFile(path, None, reading, ladders), Settings().duplicate_window
    mistakes = file.mistakes

    def run(verdicts: Verdicts | None) -> RatedFile:
        replay, order = Replay(ladders, window, verdicts=verdicts, cores=cores), Order()
        mistakes.restart()
        with _opened(changes) if changes else nullcontext() as log:
            for batch in replay.run(file.records()):
                mistakes.add_all(batch.log)
                order.add(batch.log.rounds.rounds)
                if log is not None:
                    log.writelines(_to_json(each) + b"\n" for each in changes_of(batch))
        return RatedFile(path, replay, verdicts, order, mistakes)

    return with_verdicts(run, file.records, ladders, window)


@contextmanager
def _opened(out: Path | None) -> Iterator[IO[bytes]]:
    if out is None:
        yield sys.stdout.buffer
        return
    with out.open("wb") as file:
        yield file


class RatingLine(msgspec.Struct, omit_defaults=True):
    """A player's final rating, as `rate` writes it."""

    ladder: str
    player: str
    mu: float
    sigma: float
    rating: float
    rounds: int
    record: str | None = None
    """The bytes of the belief, in base64."""


def rating_lines(ladder: str, pool: Pool, *, records: bool) -> list[RatingLine]:
    """The final ratings of a ladder: a line for each player, the best first."""
    rows = np.arange(len(pool))
    header = pool.headers(rows)
    mu, sigma = seen(pool.rule, header)
    shown = ratings([pool.rule], np.zeros(len(pool), np.int64), mu, sigma)
    encoded: Sequence[str | None] = [None] * len(pool)
    if records:
        encoded = [base64.b64encode(each).decode() for each in pool.records(rows)]
    lines = [
        RatingLine(ladder, *columns)
        for columns in zip(
            pool.players(), mu.tolist(), sigma.tolist(), shown.tolist(),
            header["rounds"].tolist(), encoded, strict=True,
        )
    ]  # fmt: skip
    lines.sort(key=lambda line: (-line.rating, line.player))
    return lines
