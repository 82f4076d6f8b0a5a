"""`stream-rater rate`: a file's rounds, rated offline."""

import base64
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import msgspec

from stream_rater.cli.failures import named_failures
from stream_rater.cli.terminal import Mistakes, Order, check_writable, records_in
from stream_rater.config import Ladders, Settings
from stream_rater.lab.offline import Rated, Replay
from stream_rater.lab.rating_changes import changes_of
from stream_rater.lab.replay import Pool
from stream_rater.rounds.validation import Invalid

_to_json = msgspec.json.Encoder().encode


def rate(
    path: Path, ladders: Ladders, out: Path | None, changes: Path | None, *, records: bool
) -> None:
    """Rate a file's rounds and write the final ratings; each change to `changes`, too."""
    for each in filter(None, (out, changes)):
        check_writable(each)
    replay, mistakes, order = Replay(ladders, Settings().duplicate_window), Mistakes(path), Order()
    with named_failures():
        with _opened(changes) if changes else nullcontext() as log:
            for rated in _rated(replay, path, mistakes):
                order.add(rated.standings)
                if log is not None:
                    log.writelines(_to_json(each) + b"\n" for each in changes_of(rated))
        with _opened(out) as file:
            _write_ratings(replay, file, records=records)
    order.conclude(path)
    mistakes.conclude()


def _rated(replay: Replay, path: Path, mistakes: Mistakes) -> Iterator[Rated]:
    for record, found in replay.run(records_in(path)):
        if isinstance(found, Invalid):
            mistakes.add(record.offset, found)
        else:
            yield mistakes.valid(found)


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


def _rating_line(ladder: str, pool: Pool, player: str, header: Any, *, records: bool) -> RatingLine:
    mu, sigma = float(header["mu"]), float(header["sigma"])
    record = base64.b64encode(pool.belief_bytes(player)).decode() if records else None
    rating = float(pool.rule.rating(mu, sigma))
    return RatingLine(ladder, player, mu, sigma, rating, int(header["rounds"]), record)


def _write_ratings(replay: Replay, file: IO[bytes], *, records: bool) -> None:
    for ladder, pool in sorted(replay.pools.items()):
        lines = [
            _rating_line(ladder, pool, player, header, records=records) for player, header in pool
        ]
        lines.sort(key=lambda line: (-line.rating, line.player))
        file.writelines(_to_json(line) + b"\n" for line in lines)
