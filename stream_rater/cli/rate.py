"""`stream-rater rate`: a file's rounds, rated offline."""

import base64
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
import numpy as np

from stream_rater.cli.rounds_file import RoundsFile
from stream_rater.cli.terminal import Mistakes, Order, check_writable, file_failures
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.rating.seasons import seen
from stream_rater.rating.stages import ratings
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import Verdicts
from stream_rater.replay.pool import Pool
from stream_rater.replay.rating_changes import changes_of
from stream_rater.replay.sequential import Replay
from stream_rater.runtime.cautions import cautions_of

_to_json = msgspec.json.Encoder().encode


def rate(
    path: Path, ladders: Ladders, out: Path | None, changes: Path | None, *, records: bool
) -> None:
    """Rate a file's rounds, as its corrections make them, and write the final ratings; each change
    to `changes`, too."""
    for each in filter(None, (out, changes)):
        check_writable(each)
    for told in cautions_of(ladders):
        print(f"warning: {told}", file=sys.stderr)
    with file_failures():
        found = replayed(path, ladders, changes)
        with _opened(out) as written:
            _write_ratings(found.replay, written, records=records)
    found.conclude()


class Replayed(NamedTuple):
    """A file that was rated."""

    path: Path
    replay: Replay
    verdicts: Verdicts | None
    """On its corrections; None if it has none."""
    order: Order
    mistakes: Mistakes

    def conclude(self) -> None:
        """Warn of rounds out of order. Raises Failed if lines were refused."""
        self.order.conclude(self.path)
        self.mistakes.conclude()


def replayed(path: Path, ladders: Ladders, changes: Path | None = None) -> Replayed:
    """Rate a file's rounds, as its corrections make them; each change is written to `changes`."""
    file, mistakes, window = RoundsFile(path), Mistakes(path), Settings().duplicate_window

    def run(verdicts: Verdicts | None) -> Replayed:
        replay, order = Replay(ladders, window, verdicts=verdicts), Order()
        mistakes.begin_again()
        _run(replay, file, changes, mistakes, order)
        return Replayed(path, replay, verdicts, order, mistakes)

    return with_verdicts(run, file.records, ladders, window)


def _run(
    replay: Replay, file: RoundsFile, changes: Path | None, mistakes: Mistakes, order: Order
) -> None:
    """Rate the file's rounds; what they change is written to `changes`."""
    with _opened(changes) if changes else nullcontext() as log:
        for batch in replay.run(file.records()):
            mistakes.note(batch.log)
            order.add(batch.log.rounds.rounds)
            if log is not None:
                log.writelines(_to_json(each) + b"\n" for each in changes_of(batch))


@contextmanager
def _opened(out: Path | None) -> Iterator[IO[bytes]]:
    if out is None:
        yield sys.stdout.buffer
        return
    with out.open("wb") as file:
        yield file


class RatingLine(msgspec.Struct, omit_defaults=True):
    """One player's final rating, as `rate` writes it."""

    ladder: str
    player: str
    mu: float
    sigma: float
    rating: float
    rounds: int
    record: str | None = None
    """The belief's bytes, base64."""


def rating_lines(ladder: str, pool: Pool, *, records: bool) -> list[RatingLine]:
    """A line for each player of a ladder, the best first."""
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


def _write_ratings(replay: Replay, file: IO[bytes], *, records: bool) -> None:
    for ladder, pool in sorted(replay.pools.items()):
        lines = rating_lines(ladder, pool, records=records)
        file.writelines(_to_json(line) + b"\n" for line in lines)
