"""A ladder's log of rounds and files, and its replay. The log is the truth.

A correction changes rounds before it, so the ladder must be able to read these again. The log
stores single rounds and data frames as messages. It reads a file again; the file must not have
changed. After a failed call a new replay is made from the log, so a call that raises changes
nothing.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import convert

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import any_ladder
from stream_rater.config.settings import Settings
from stream_rater.contract.events import parse_time
from stream_rater.contract.record import Record
from stream_rater.library import answers, messages, results
from stream_rater.library.learned_factor import FactorLearner
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.wins import VarianceFactor
from stream_rater.replay import edited_log
from stream_rater.replay.edits import Edits
from stream_rater.replay.files import json_lines, read_lines
from stream_rater.replay.ledger import with_verdicts
from stream_rater.replay.pool import Pool
from stream_rater.replay.sequential import Rated, Replay
from stream_rater.replay.single import PlainRounds
from stream_rater.replay.what_if import what_if
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.correction_records import decode_seed, is_seed
from stream_rater.rounds.decoder import RoundDecoder, correction_indices
from stream_rater.rounds.validation import EARLIEST, Invalid
from stream_rater.tables.reading import AS_FOUND, Reading, is_table

if TYPE_CHECKING:
    from stream_rater.tables.table import Table  # it is loaded for tables only

T = TypeVar("T")

UNNAMED = "notebook"  # The id of a ladder until a file names another one.

WINDOW = Settings().duplicate_window  # The number of records within which a round id counts once.

MOST_NAMED = 10  # The largest number of other ladders that an error names.
MOST_REJECTED_LINES = 1000  # The largest number of rejected lines of a file that are stored.


class RatedRounds:
    """Rounds that a ladder rates in one call. Reading them may raise OSError, and BadConfiguration
    with a question about the columns of a table."""

    def __init__(self, path: Path | str, table: "Table | None") -> None:
        self.path = path  # The name that messages show.
        self.lines = 0 if table is None else len(table)  # 0 until all lines were read.
        self.table = table  # The table of the rounds, while it is rated for the first time.

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "table": None}

    def records(self, first: int) -> Iterator[Record]:
        """Yield the rounds as records, with the first one at the offset `first`."""
        raise NotImplementedError


class FileRounds(RatedRounds):
    """A file of rounds, as it was when this object was made."""

    def __init__(self, path: Path, reading: Reading = AS_FOUND, ladder: str = "") -> None:
        """`reading`: of a table. `ladder`: for a table that names none; empty: by the file's
        name."""
        self._path, self._reading, self._ladder = path, reading, ladder
        self._state = _state_of(path)
        if not is_table(path) and reading.given:
            raise BadConfiguration(
                f"{path}: columns and score are for tables, whose names end in .csv, .tsv or "
                ".parquet: JSON lines name all themselves"
            )
        super().__init__(path, self._read() if is_table(path) else None)

    def records(self, first: int) -> Iterator[Record]:
        """Yield the lines as records. Raises OSError if the file cannot be read, has changed, or
        holds no JSON lines."""
        if _state_of(self._path) != self._state:
            raise OSError(
                f"{self.path}: has changed since it was rated, and is needed as it was: rate it "
                "with a new Ladder"
            )
        if is_table(self._path):
            lines = (self.table or self._read()).lines()
        else:
            lines = json_lines(read_lines(self._path), str(self.path))
        return edited_log.records_of(self._counting(lines), first)

    def _read(self) -> "Table":
        from stream_rater.tables.table import table_of_file

        table = table_of_file(self._path, partial(read_lines, self._path), self._reading)
        table.read(self._ladder)
        return table

    def _counting(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        count = 0
        for line in lines:
            yield line
            count += 1
        self.lines = count


class FrameRounds(RatedRounds):
    """The rounds of a data frame, as it was when this object was made. They stay in memory."""

    def __init__(self, frame: Any, reading: Reading, ladder: str) -> None:
        """`ladder`: that of a table that names none."""
        from stream_rater.tables.table import table_of_frame

        table = table_of_frame(frame, reading)
        table.read(ladder)
        super().__init__(table.name, table)
        self._text = b"".join(table.lines())

    def records(self, first: int) -> Iterator[Record]:
        return edited_log.records_of(io.BytesIO(self._text), first)


def _state_of(path: Path) -> tuple[int, ...]:
    """The device, inode, size and time of change of a file. A write changes one of them."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class RatedLog:
    """The sources of all rounds that were rated, each at its offset."""

    def __init__(self) -> None:
        self.end = 0  # The offset of the next record.
        self._sources: list[tuple[int, bytes | messages.Plain | RatedRounds]] = []

    def add(self, source: bytes | messages.Plain | RatedRounds) -> None:
        """Add a round that was rated, or a file that was rated to its end."""
        self._sources.append((self.end, source))
        self.end += source.lines if isinstance(source, RatedRounds) else 1

    def renamed(self, ladder: str) -> "RatedLog":
        """A log with the same rounds on this ladder. No file of this log has named a ladder."""
        copy = RatedLog()
        for _, source in self._sources:
            if not isinstance(source, RatedRounds):
                source = messages.renamed(source, ladder)
            copy.add(source)
        return copy

    def records(self) -> Iterator[Record]:
        """Yield all records, from the first one on. Raises OSError as `FileRounds.records` does."""
        for first, source in self._sources:
            if isinstance(source, RatedRounds):
                yield from source.records(first)
            else:
                yield messages.record_of(first, source)


UNORDERED = set, frozenset  # No sides and no ranks.


def _in_order(sides: Any) -> bool:
    """Whether sides, and the members of each, have an order."""
    return not (isinstance(sides, UNORDERED) or any(isinstance(e, UNORDERED) for e in sides))


class _LogReplay:
    """The replay of a ladder's log so far."""

    def __init__(
        self, ladder: str, rating: RatingConfig, verdicts: edited_log.Verdicts | None
    ) -> None:
        self.ladder = ladder
        self.edits: Edits = (verdicts or edited_log.NO_VERDICTS).of(ladder)
        self.latest_s = 0  # The time of its latest round, seed or reset, Unix seconds.
        self.begun = 0  # The number of beliefs that seeds and resets have changed.
        self._empty = Pool(rating)
        self._replay = Replay(any_ladder(rating), WINDOW, verdicts=verdicts)
        self.window = self._replay.log.validator._window_of(0)
        self.learner = FactorLearner()
        self.plain: PlainRounds | None = None  # None before the first round, or while not plain

    @property
    def pool(self) -> Pool:
        """The ladder's pool; an empty pool before the first round."""
        return self._replay.pools.get(self.ladder, self._empty)

    def feed(self, records: Sequence[Record]) -> tuple[edited_log.LogBatch, list[Rated]]:
        """Rate the rounds in these records. Returns the batch of all records, and the rated rounds
        of this ladder. Raises MissingVerdicts."""
        batch = self._replay.feed(records)
        rated = [each for each in batch.rated if each.pool is self.pool]
        for each in rated:
            self.latest_s = max(self.latest_s, int(each.rounds.time.max()))
            self.learner.add(each)
        for seeded in batch.seeded:
            if seeded.seed.ladder == self.ladder:
                self.latest_s = max(self.latest_s, seeded.seed.time)
                self.begun += len(seeded.result.chosen)
        if self.edits.change_rounds or self.pool.rule.seasons:
            self.plain = None
        elif self.plain is None and self.ladder in self._replay.pools:
            self.plain = PlainRounds(self.pool)
        return batch.log, rated


class Rater:
    """A ladder's log and replay."""

    def __init__(self, rating: RatingConfig) -> None:
        self.rating = rating
        self.ladder = UNNAMED  # The ladder's id.
        self._is_named = False
        self._log = RatedLog()
        self._current: _LogReplay | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The tables of a replay are valid only in this process.
        return {**vars(self), "_current": None}

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self._log.end

    @property
    def work(self) -> _LogReplay:
        """The replay of the whole log. It is made again if a call has failed."""
        if self._current is None:
            self._current = self._with_verdicts(partial(self._replayed, self._log, self.ladder))
        return self._current

    def _replayed(
        self, log: RatedLog, ladder: str, verdicts: edited_log.Verdicts | None
    ) -> _LogReplay:
        work = _LogReplay(ladder, self.rating, verdicts)
        for batch in edited_log.batches_of(log.records()):
            work.feed(batch)
        return work

    @property
    def pool(self) -> Pool:
        """The beliefs of the ladder's players."""
        return self.work.pool

    # --- one round ---

    def decoded(self, message: bytes) -> RoundBatch:
        """The round in this message. Raises InvalidRound if it cannot be rated."""
        record = messages.record_of(self._log.end, message)
        rounds, (rejection,) = RoundDecoder(any_ladder(self.rating)).decode([record])
        if rejection is not None:
            raise messages.argument_error(rejection)
        return rounds

    def rate(self, message: bytes) -> Rated | None:
        """Rate a round of the ladder; None if it changes no rating. Raises InvalidRound."""
        work, self._current = self.work, None
        batch, rated = work.feed([messages.record_of(self._log.end, message)])
        self._current = work
        for _, invalid in batch.rejected:
            raise messages.argument_error(invalid)
        self._log.add(message)
        return rated[0] if rated else None

    def what_if(self, message: bytes) -> Rated | None:
        """The result of rating this round; None if it would change nothing. Raises InvalidRound."""
        work = self.work
        return what_if(work.pool, work.edits, self.decoded(message))

    # --- a plain round; None is returned for what needs a look at its message ---

    def rate_plain(
        self, sides: Any, ranks: Any, weight: Any, completed_at: Any, round_id: Any
    ) -> results.RoundResult | None:
        """Rate a plain round. Raises InvalidRound if the id of the round was used before."""
        work, end = self.work, self._log.end
        plain, time_s = work.plain, work.latest_s
        if plain is None or not plain.rates or isinstance(ranks, UNORDERED):
            return None
        try:
            at = answers.text_of(time_s) if completed_at is None else messages.time_of(completed_at)
            places = () if ranks is None else ranks
            round_ = convert((sides, places, weight, self.ladder, round_id, at), messages.Plain)
            time_s = time_s if completed_at is None else parse_time(at)
        except (TypeError, ValueError, OverflowError):
            return None
        skipped = self.rating.skip_all_tied and len({*round_.ranks}) == 1
        too_few = ranks is not None and not round_.ranks
        if time_s < EARLIEST or skipped or too_few or not _in_order(sides):
            return None
        try:
            work.window.check(end, self.ladder, round_id)
        except Invalid as invalid:
            raise messages.argument_error(invalid) from None
        self._current = None
        changes, found = plain.rate(round_.sides, round_.ranks, round_.weight, time_s, end)
        work.latest_s = max(work.latest_s, time_s)
        work.learner.add_plain(changes)
        self._current = work
        self._log.add(round_)
        return results.RoundResult.later(partial(answers.of_plain, round_, found, work.pool.rule))

    def variance_factor(self, given: object) -> VarianceFactor:
        """The given factor; None: the one that is learned. Raises InvalidRound."""
        return self.work.learner.now if given is None else VarianceFactor(messages.factor_of(given))

    def predict_plain(self, sides: Any, by: VarianceFactor) -> results.Prediction | None:
        """Predict a plain round."""
        plain = self.work.plain
        if plain is None:
            return None
        try:
            given = convert((sides,), messages.Plain).sides
        except ValueError:
            return None
        if not _in_order(sides):
            return None
        found = plain.forecast(given, by.factor, by.margin(self.rating))
        fields = partial(answers.predicted, self.rating, given, found, by)
        return results.Prediction.later(fields)

    # --- seeds ---

    def seed(self, values: Iterable[bytes]) -> int:
        """Apply seeds or resets. Returns the number of players whose beliefs they changed. A seed
        or reset whose id was used before changes nothing. Raises InvalidRound."""
        work, self._current = self.work, None
        before, taken = work.begun, list[bytes]()
        for value in values:
            batch, _ = work.feed([messages.record_of(self._log.end + len(taken), value)])
            for _, invalid in batch.rejected:
                if invalid.code != "duplicate-round":
                    raise messages.argument_error(invalid)
            taken.append(value)
        self._current = work
        for value in taken:
            self._log.add(value)
        return work.begun - before

    # --- the whole log again ---

    def histories(self, players: Sequence[str]) -> list[results.History]:
        """The rounds of each of these players, who must have played, by a replay of the log."""

        def run(verdicts: edited_log.Verdicts | None) -> list[list[results.History]]:
            work = _LogReplay(self.ladder, self.rating, verdicts)
            found = [list[results.History]() for _ in players]
            for batch in edited_log.batches_of(self._log.records()):
                _, rated = work.feed(batch)
                for player, parts in zip(players, found, strict=True):
                    if (row := work.pool.find(player)) is not None:
                        parts += [answers.history_in(each, player, row) for each in rated]
            return found

        found = zip(players, self._with_verdicts(run), strict=True)
        return [answers.joined(player, parts) for player, parts in found]

    def records(self) -> Iterator[Record]:
        """Yield all records of the log. Raises OSError as `FileRounds.records` does."""
        return self._log.records()

    def _with_verdicts(self, run: Callable[[edited_log.Verdicts | None], T]) -> T:
        return with_verdicts(run, self._log.records, any_ladder(self.rating), WINDOW)

    # --- a file ---

    def rate_file(
        self, path: Path, ladder: str | None, reading: Reading = AS_FOUND
    ) -> results.FileResult:
        """Rate the rounds of a file, as its corrections edit them. `ladder`: the ladder whose
        rounds are rated; None: all rounds, which must be of one ladder. Raises OtherLadder, and
        what reading RatedRounds raises."""
        own = ladder or (self.ladder if self._is_named else "")
        return self._rate_all(FileRounds(path, reading, own), ladder)

    def rate_table(self, table: Any, ladder: str | None, reading: Reading) -> results.FileResult:
        """Rate the rounds of a data frame or a dict of columns, as `rate_file` does."""
        return self._rate_all(FrameRounds(table, reading, ladder or self.ladder), ladder)

    def _rate_all(self, file: RatedRounds, ladder: str | None) -> results.FileResult:
        name = ladder or (self.ladder if self._is_named else self._ladder_of(file))
        if self._is_named and name != self.ladder:
            raise results.OtherLadder(
                f"{file.path}: ladder {name!r}, but this one is {self.ladder!r}: make another "
                "Ladder for it"
            )
        log = self._log if name == self.ladder else self._log.renamed(name)
        first = log.end
        tally = _Tally(file, first, name, chosen=ladder is not None)

        def run(verdicts: edited_log.Verdicts | None) -> _LogReplay:
            work = self._replayed(log, name, verdicts)
            self._feed(work, file.records(first), tally)
            return work

        if first and log is self._log and not self._has_corrections(file, tally):
            work, self._current = self.work, None
            self._feed(work, file.records(first), tally)
        else:
            work = with_verdicts(
                run, lambda: chain(log.records(), file.records(first)), any_ladder(self.rating),
                WINDOW,
            )  # fmt: skip
        if not self._is_named:
            tally.check_own()
        log.add(file)
        self._log, self._current = log, work
        self.ladder, self._is_named = name, self._is_named or tally.rounds + tally.seeds > 0
        result = tally.result()
        file.table = None  # it is read again if it is needed again
        return result

    def _has_corrections(self, file: RatedRounds, tally: "_Tally") -> bool:
        """Whether a file has corrections, which change rounds before them. Raises the errors that
        rating the file would raise, so that nothing has to be undone."""
        decoder = RoundDecoder(any_ladder(self.rating))
        for batch in edited_log.batches_of(file.records(tally.first)):
            if correction_indices(batch):
                return True
            tally.check(edited_log.LoggedRounds.of(batch, *decoder.decode(batch)))
        return False

    @staticmethod
    def _feed(work: _LogReplay, records: Iterator[Record], tally: "_Tally") -> None:
        tally.begin()
        for batch in edited_log.batches_of(records):
            tally.add(*work.feed(batch))

    def _ladder_of(self, file: RatedRounds) -> str:
        """The ladder of a file's first valid round or seed; the present ladder if there is none."""
        ladders = any_ladder(self.rating)
        decoder = RoundDecoder(ladders)
        for record in file.records(0):
            if is_seed(record):
                with suppress(Invalid):
                    return decode_seed(record, ladders).ladder
            elif not correction_indices([record]) and (rounds := decoder.decode([record])[0]):
                return rounds.heads[0].ladder
        return self.ladder


class _Tally:
    """Counts the rounds, rating changes and rejected lines of a file."""

    def __init__(self, file: RatedRounds, first: int, ladder: str, *, chosen: bool) -> None:
        """`first`: the offset of the first line. `chosen`: whether other ladders' rounds are
        skipped; if not, they raise OtherLadder."""
        self.first, self._file, self._ladder, self._chosen = first, file, ladder, chosen
        self.begin()

    def begin(self) -> None:
        """Set all counts to 0, for the start of the file."""
        self.rounds = self.seeds = self._updates = self._corrections = self._others = 0
        self._other_ladders = set[str]()
        table = self._file.table
        self._rejected = 0 if table is None else table.rejected
        rows = () if table is None else table.rejections[:MOST_REJECTED_LINES]
        self._rejected_lines = [results.RefusedLine(line, why.code, str(why)) for line, why in rows]

    def check_own(self) -> None:
        """Raise OtherLadder if all rounds and seeds are of other ladders."""
        if self._other_ladders and not self.rounds + self.seeds:
            known = ", ".join(map(repr, sorted(self._other_ladders)[:MOST_NAMED]))
            raise results.OtherLadder(
                f"{self._file.path}: no round of ladder {self._ladder!r}: its ladders are {known}"
            )

    def check(self, batch: edited_log.LoggedRounds) -> None:
        """Raise OtherLadder if a round is of another ladder and no ladder was chosen."""
        heads = batch.rounds.heads
        other = next((i for i, head in enumerate(heads) if head.ladder != self._ladder), None)
        if other is not None:
            self._check_ladder(heads[other].ladder, int(batch.offset[other]), "round")

    def _check_ladder(self, ladder: str, offset: int, what: str) -> None:
        if ladder != self._ladder and not self._chosen:
            raise results.OtherLadder(
                f"{self._file.path}:{self._line(offset)}: a {what} of ladder {ladder!r} among "
                f"those of {self._ladder!r}: say which to rate, as ladder={self._ladder!r}"
            )

    def add(self, batch: edited_log.LogBatch, rated: Sequence[Rated]) -> None:
        """Count a batch of lines. `rated`: this ladder's rated rounds. Raises OtherLadder."""
        self.check(batch.rounds)
        for seed in batch.seeds:
            self._check_ladder(seed.ladder, seed.offset, "seed")
            self.seeds += seed.ladder == self._ladder
        ladders = [head.ladder for head in batch.rounds.rounds.heads]
        self.rounds += (rounds := ladders.count(self._ladder))
        if rounds < len(ladders) and len(self._other_ladders) < MOST_NAMED:
            self._other_ladders |= set(ladders) - {self._ladder}
        self._others += len(batch.rounds) - rounds
        self._updates += sum(len(each.rows) for each in rated)
        self._corrections += len(batch.corrections)
        self._rejected += len(batch.rejected)
        self._rejected_lines += [
            results.RefusedLine(self._line(record.offset), invalid.code, self._why(invalid))
            for record, invalid in batch.rejected[: MOST_REJECTED_LINES - len(self._rejected_lines)]
        ]

    def _line(self, offset: int) -> int:
        table, number = self._file.table, offset - self.first
        return number + 1 if table is None else table.line_of(number)

    def _why(self, invalid: Invalid) -> str:
        table = self._file.table
        return str(invalid if table is None else table.explained(invalid, self.first))

    def result(self) -> results.FileResult:
        table = self._file.table
        return results.FileResult(
            str(self._file.path), self._ladder, self.rounds, self._updates, self._corrections,
            self._others, self._rejected, tuple(self._rejected_lines), self.seeds,
            () if table is None else (table.layout.described(), *table.said()),
        )  # fmt: skip
