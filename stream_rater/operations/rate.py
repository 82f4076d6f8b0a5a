"""`stream-rater rate` and `convert`: rate a file offline, and write a table as JSON lines."""

import base64
import csv
import gzip
import io
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import astuple

from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import BETTER_LADDER, Ladders, say_cautions
from stream_rater.config.settings import Settings
from stream_rater.contract.events import shown
from stream_rater.library.learned_factor import FactorLearner
from stream_rater.operations import input_file
from stream_rater.places import is_data_file
from stream_rater.rating import seasons, stages
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.replay.edited_log import EditedLog, Verdicts, batches_of, records_of
from stream_rater.replay.files import DASH
from stream_rater.replay.ledger import with_verdicts
from stream_rater.replay.pool import Pool
from stream_rater.replay.rating_changes import changes_of
from stream_rater.replay.sequential import Replay
from stream_rater.runtime.progress import counted
from stream_rater.tables.reading import AS_FOUND, SUFFIXES, Reading, is_table

_to_json = msgspec.json.Encoder().encode
Form = Literal["table", "csv", "json"]


def rate(
    path: Path, ladders: Ladders, out: Path | None, changes: Path | None, *, records: bool,
    reading: Reading = AS_FOUND, cores: int | None = None, form: Form = "json",
    database: Path | None = None,
) -> None:  # fmt: skip
    """Rate the rounds of a file with its corrections. Writes the final ratings to `out` (None:
    standard output) in this form, or as the table `ratings` into a database of SQLite, and each
    rating change to `changes` if it is given. `records`: whether the lines include the bytes of
    beliefs. `cores`: None for all. Warns of parameters whose effect may surprise. Raises
    BadConfiguration or Failed."""
    for written in filter(None, (out, changes, database)):
        input_file.check_writable(written, path)
    if out is not None and changes is not None:
        input_file.check_writable(out, changes)
    say_cautions(ladders, lambda text: print(f"warning: {text}", file=sys.stderr))
    with input_file.file_failures():
        rated = rate_file(path, ladders, changes, reading, Cores.of(cores))
        pools = sorted(rated.replay.pools.items())
        if database is not None:
            _to_sqlite(database, (line for pair in pools for line in rating_lines(*pair)))
        else:
            with input_file.output(out) as file:
                if form == "csv" and not records:
                    file.write(f"{','.join(COLUMNS)}\n".encode())
                for pair in pools:
                    file.writelines(_lines(*pair, form, records=records))
    rated.file.conclude()


COLUMNS = ("ladder", "player", "mu", "sigma", "rating", "rounds")


def _lines(ladder: str, pool: Pool, form: Form, *, records: bool) -> Iterator[bytes]:
    """The final ratings of a ladder. A table has the best players with few digits."""
    if form == "table":
        from stream_rater.library.answers import leaderboard

        yield f"ladder {shown(ladder)}, {leaderboard(pool, None)}\n".encode()
        return
    lines = rating_lines(ladder, pool, records=records)
    if form == "json":
        yield from (_to_json(line) + b"\n" for line in lines)
        return
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(astuple(line)[: len(COLUMNS)] for line in lines)
    yield text.getvalue().encode()


def _to_sqlite(path: Path, lines: Iterable["RatingLine"]) -> None:
    """Write the table `ratings` into a database, in place of the one there. Raises Failed."""
    import sqlite3

    numbers = "mu REAL, sigma REAL, rating REAL, rounds INTEGER"
    try:
        with closing(sqlite3.connect(path)) as database, database:
            if is_data_file(database):
                raise Failed(f"{path}: it is a data file of stream-rater: name another file")
            database.execute("DROP TABLE IF EXISTS ratings")
            database.execute(f"CREATE TABLE ratings (ladder TEXT, player TEXT, {numbers})")
            rows = (astuple(line)[: len(COLUMNS)] for line in lines)
            database.executemany("INSERT INTO ratings VALUES (?, ?, ?, ?, ?, ?)", rows)
    except sqlite3.Error as error:
        raise Failed(f"{path}: {error}") from None


class RatedFile(NamedTuple):
    """A file whose rounds were rated."""

    file: input_file.RoundsFile
    replay: Replay
    verdicts: Verdicts | None  # The verdicts on its corrections; None if it has none.
    learned: defaultdict[str, FactorLearner]  # How sure predictions of each ladder should be.


def rate_file(
    path: Path, ladders: Ladders, changes: Path | None = None, reading: Reading = AS_FOUND,
    cores: Cores = ONE_CORE,
) -> RatedFile:  # fmt: skip
    """Rate the rounds of a file with its corrections. Writes each rating change to `changes` if it
    is given. Raises OSError, EOFError or zlib.error if a file cannot be read or written, and
    BadConfiguration with a question about the columns of a table."""
    file, window = input_file.RoundsFile(path, None, reading, ladders), Settings().duplicate_window

    def run(verdicts: Verdicts | None) -> RatedFile:
        replay = Replay(ladders, window, verdicts=verdicts, cores=cores)
        learned = defaultdict[str, FactorLearner](FactorLearner)
        file.restart()
        with input_file.output(changes) if changes else nullcontext() as log:
            for batch in replay.run(file.records()):
                file.mistakes.add_all(batch.log)
                file.order.add(batch.log.rounds.rounds)
                for each in batch.rated:
                    learned[each.rounds.heads[0].ladder].add(each)
                if log is not None:
                    log.writelines(_to_json(each) + b"\n" for each in changes_of(batch))
        return RatedFile(file, replay, verdicts, learned)

    return with_verdicts(run, file.records, ladders, window)


class RatingLine(msgspec.Struct, omit_defaults=True):
    """A player's final rating, as `rate` writes it."""

    ladder: str
    player: str
    mu: float
    sigma: float
    rating: float
    rounds: int
    record: str | None = None  # The bytes of the belief, in base64.


def rating_lines(ladder: str, pool: Pool, *, records: bool = False) -> list[RatingLine]:
    """The final ratings of a ladder: a line for each player, the best first."""
    rows = np.arange(len(pool))
    header = pool.headers(rows)
    mu, sigma = seasons.seen(pool.rule, header)
    rating = stages.ratings([pool.rule], np.zeros(len(pool), np.int64), mu, sigma)
    encoded: Sequence[str | None] = [None] * len(pool)
    if records:
        encoded = [base64.b64encode(record).decode() for record in pool.records(rows)]
    numbers = (mu.tolist(), sigma.tolist(), rating.tolist(), header["rounds"].tolist())
    columns = zip(pool.players(), *numbers, encoded, strict=True)
    lines = [RatingLine(ladder, *row) for row in columns]
    return sorted(lines, key=lambda line: (-line.rating, line.player))


# --- convert -------------------------------------------------------------------------------------


def convert(path: Path, out: Path, reading: Reading) -> None:
    """Write the rounds of a table to `out` as JSON lines, in order of time. A name that ends in .gz
    is compressed; `-` is standard output. Raises BadConfiguration with a question about a column.
    Raises Failed if rows were rejected, here or as rounds; all others are written."""
    if not is_table(path):
        raise BadConfiguration(f"{path}: no table: its name must end in {', '.join(SUFFIXES)}")
    if is_table(out):
        raise BadConfiguration(f"{out}: it would have JSON lines: end its name in .jsonl")
    if out != DASH:
        input_file.check_writable(out, path)
    file = input_file.RoundsFile(path, None, reading)
    with input_file.file_failures():
        table, mistakes, refused = file.table(), file.mistakes, set[int]()
        log = EditedLog(BETTER_LADDER, Settings().duplicate_window)
        for batch in map(log.read, batches_of(records_of(table.lines()))):
            mistakes.add_all(batch)
            refused.update(record.offset for record, _ in batch.rejected)
        lines = (line for i, line in enumerate(table.lines()) if i not in refused)
        with input_file.output(None if out == DASH else out) as target:
            if out.name.endswith(".gz"):
                with gzip.GzipFile(fileobj=target, mode="wb", mtime=0) as packed:
                    packed.writelines(lines)
            else:
                target.writelines(lines)
    print(f"{counted(mistakes.valid_lines, 'round')} written", file=sys.stderr)
    mistakes.conclude()
