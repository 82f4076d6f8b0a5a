"""`stream-rater tune`: searches parameters for the rounds of a file, or of a ladder on Kafka. It
changes nothing on Kafka. Only `tune_topic` needs the packages of the service."""

import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from stream_rater.config import errors
from stream_rater.config.ladders import TEMPLATE, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Record
from stream_rater.evaluation import fits, tuning
from stream_rater.evaluation.proposal import TooFewRounds, TuningProposal, propose
from stream_rater.evaluation.season import Session, by_name, sessions_of
from stream_rater.operations.evaluate import SeasonFile
from stream_rater.operations.input_file import RoundsFile, check_writable, file_failures
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.edited_log import RecordValidator, Verdicts
from stream_rater.replay.ledger import with_verdicts
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime import progress
from stream_rater.runtime.trials import Where, trials_on
from stream_rater.tables.reading import AS_FOUND, Reading

CURE = "tune by a file that has them"  # The cure if the log on Kafka lacks rounds.
DAY_S = 86_400.0


# --- a file --------------------------------------------------------------------------------------


class TunedFile(NamedTuple):
    """Parameters that were tuned on the first part of a file."""

    proposal: TuningProposal
    file: RoundsFile


def tune_file(
    path: Path, system: str, measure: str, out: Path | None, *, train: float, trials: int,
    where: Where, reading: Reading = AS_FOUND, present: RatingConfig | None = None,
) -> TunedFile:  # fmt: skip
    """Search the parameters of a system that are best by a measure on the first part of a file, and
    compare them with the `present` ones (None: the system's first guess) on the rest. `train`: the
    size of the first part, as a fraction of all rounds. Raises BadConfiguration or Failed."""
    if out is not None:
        check_writable(out, path)
    season = SeasonFile(path, named=present is not None and by_name([present]), reading=reading)
    with trials_on(where) as executor:
        with file_failures():
            sessions = season.play(list)
        found = _proposed(
            str(path), present, system, sessions, measure, train, trials, executor,
            "give a file with more rounds",
        )  # fmt: skip
    return TunedFile(found, season.file)


def as_json(config: RatingConfig) -> bytes:
    """A configuration as JSON in several lines, as `--out` writes it."""
    return msgspec.json.format(msgspec.json.encode(tuning.without_defaults(config))) + b"\n"


def write_rating(found: TuningProposal, out: Path | None) -> None:
    """Write the configuration to the file, if there is one. Raises Failed."""
    if out is not None:
        with file_failures():
            out.write_bytes(as_json(found.rating))


# --- a ladder on Kafka ---------------------------------------------------------------------------


class TunedLadder(NamedTuple):
    """Parameters for a ladder, by its rounds on Kafka."""

    ladders: Ladders
    proposal: TuningProposal
    system: str
    another: bool  # Whether `system` differs from the system that the ladder has now.
    offset: int  # The expected end of the partition in a day: parameters can change from there.


def tune_topic(
    settings: Settings, ladder: str, system: str | None, measure: str, out: Path | None, *,
    train: float, trials: int, where: Where,
) -> TunedLadder:  # fmt: skip
    """Search parameters for a ladder on the first part of its rounds on Kafka. `system`: the rating
    system; None: the ladder's present one. `train`: the size of the first part, as a fraction of
    all rounds. Raises BadConfiguration if the ladders file is not that of the workers, and Failed
    if there are too few rounds or no trials."""
    from stream_rater import places

    if out is not None:
        check_writable(out, *settings.files)
    with trials_on(where) as executor:
        ladders = places.ladders_of(settings)
        sessions, rejected, growth = _read(settings, ladders, ladder)
        terms = ladders.find(ladder, growth.end)
        assert terms is not None, "it has rounds"
        present = fits.system_of(terms.rating)
        count = progress.counted(sum(len(session.rounds) for session in sessions), "round")
        print(f"ladder {ladder!r}: {count} read, {progress.rejections(rejected)}", file=sys.stderr)
        proposal = _proposed(
            f"ladder {ladder!r}", terms.rating, system or present, sessions, measure, train, trials,
            executor, "wait for more rounds",
        )  # fmt: skip
    another = system not in (None, present)
    return TunedLadder(ladders, proposal, system or present, another, growth.in_a_day())


def _read(
    settings: Settings, ladders: Ladders, ladder: str
) -> tuple[list[Session], Mapping[str, int], "GrowthForecast"]:
    """The ladder's rounds, the numbers of its rejected records by error code (those of unknown
    ladders included), and the growth of its partition. Raises BadConfiguration or Failed."""
    from stream_rater import places
    from stream_rater.operations import ladder_replay

    growth, window, rejected = GrowthForecast(), settings.duplicate_window, Counter[str]()

    def reject(_: int, invalid: Invalid) -> None:
        if invalid.ladder in (ladder, ""):
            rejected[invalid.code] += 1

    def once(verdicts: Verdicts | None) -> list[Session]:
        rejected.clear()
        validator = RecordValidator(ladders, window, place.partitions)
        records, terms = growth.watch(read_log()), ladders.find(ladder)
        named = terms is not None and by_name([terms.rating])
        return list(sessions_of(
            records, window, reject, verdicts=verdicts, validator=validator, only=ladder,
            named=named,
        ))  # fmt: skip

    with errors.named_failures(), places.opened(settings) as place:
        read_log, _ = ladder_replay.live_log(place, ladders, ladder, CURE)
        sessions = with_verdicts(once, read_log, ladders, window, place.partitions)
        if not sessions:
            known = {*place.ladder_log().ladders, *ladders.ladders}
            others = sorted(known - {TEMPLATE, ladder})
            more = f"; {progress.rejections(rejected)}" if rejected else ""
            raise errors.Failed(f"{progress.unknown_ladder(ladder, others)}{more}")
    return sessions, rejected, growth


class GrowthForecast:
    """Predicts the end offset of a partition in a day, if it grows as it did on its last day."""

    def __init__(self) -> None:
        self._received_s, self._offsets = array("d"), array("q")

    def watch(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield all records of the partition, from the first one on, and store their times."""
        del self._received_s[:], self._offsets[:]
        for record in records:
            self._received_s.append(record.received_s)
            self._offsets.append(record.offset)
            yield record

    def in_a_day(self) -> int:
        """The predicted end offset in a day. At least one record must have been read."""
        received_s = np.maximum.accumulate(np.array(self._received_s))
        first = int(np.searchsorted(received_s, received_s[-1] - DAY_S))
        return self.end + (self.end - self._offsets[first])

    @property
    def end(self) -> int:
        """The offset after the last record. At least one record must have been read."""
        return self._offsets[-1] + 1


def _proposed(
    what: str, present: RatingConfig | None, system: str, sessions: Sequence[Session], measure: str,
    train: float, trials: int, executor: Executor | None, cure: str,
) -> TuningProposal:  # fmt: skip
    """The proposal, with a progress bar. Raises Failed, with a cure, for too few rounds."""
    with progress.progress() as bar:
        task = bar.add_task(f"tuning {system}", total=trials)
        try:
            return propose(
                present, system, sessions, measure, train=train, trials=trials, executor=executor,
                on_trial=lambda: bar.advance(task),
            )  # fmt: skip
        except TooFewRounds as error:
            raise errors.Failed(
                f"{what}: {error}: {cure}, or choose another --train than {train:g}"
            ) from None
