"""`stream-rater tune --from-topic`: parameters for a ladder by its rounds on Kafka, which stays as
it is. It needs the service's packages."""

import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stream_rater.adapters.kafka.ladder_events import noted_ladders
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.cli.lab import as_json, searched
from stream_rater.cli.ladder_entry import entry
from stream_rater.cli.terminal import check_writable, file_failures, rejections, unknown_ladder
from stream_rater.config.errors import Failed
from stream_rater.config.files import service_ladders
from stream_rater.config.ladders import TEMPLATE, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Record
from stream_rater.evaluation.fits import LOG_LOSS, ORDER, ORDER_OF_ALL
from stream_rater.evaluation.present import system_of
from stream_rater.evaluation.proposal import Proposal, TooFewRounds, propose
from stream_rater.evaluation.season import Session, by_name, sessions_of
from stream_rater.operations import live_log
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import RecordValidator, Verdicts
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime.failures import named_failures
from stream_rater.runtime.progress import counted

BY_FILE = "tune by a file that has them"
DAY_S = 86_400.0
TOLD = {LOG_LOSS: "log loss", ORDER: "order", ORDER_OF_ALL: "order of all players"}


class Pace:
    """Where a partition will be in a day, if it goes on as on its last day."""

    def __init__(self) -> None:
        self._received_s, self._offsets = array("d"), array("q")

    def seen(self, records: Iterable[Record]) -> Iterator[Record]:
        """All records of the partition, from the first one on, noted as they pass."""
        del self._received_s[:], self._offsets[:]
        for record in records:
            self._received_s.append(record.received_s)
            self._offsets.append(record.offset)
            yield record

    def in_a_day(self) -> int:
        """The offset. There must have been a record."""
        received_s = np.maximum.accumulate(np.array(self._received_s))
        first = int(np.searchsorted(received_s, received_s[-1] - DAY_S))
        return self.end + (self.end - self._offsets[first])

    @property
    def end(self) -> int:
        """Behind the last record. There must have been one."""
        return self._offsets[-1] + 1


class Rounds(NamedTuple):
    """One ladder's rounds, as its corrections make them."""

    sessions: Sequence[Session]
    rejected: dict[str, int]
    """By error code, how many of its records were rejected; and of those whose ladder could not be
    read."""
    end: int
    """Where the ladder's partition ends."""
    in_a_day: int
    """Where it will end in a day, about."""


def tune_live(
    settings: Settings, ladder: str, system: str | None, aim: str, out: Path | None, *,
    train: float, trials: int, workers: int,
) -> None:  # fmt: skip
    """Print parameters for a ladder as TOML, and what they gain over the present ones on stderr.

    Raises BadConfiguration if the ladders file is not that of the workers, Failed if the ladder has
    no rounds or too few.
    """
    if out is not None:
        check_writable(out)
    ladders = service_ladders(settings)
    with named_failures():
        rounds = _read(settings, ladders, ladder)
    terms = ladders.find(ladder, rounds.end)
    assert terms is not None, "it has rounds"
    system = system or system_of(terms.rating)
    count = sum(len(each.rounds) for each in rounds.sessions)
    told = f"ladder {ladder!r}: {counted(count, 'round')} read, {rejections(rounds.rejected)}"
    print(told, file=sys.stderr)
    found = _proposed(ladder, terms.rating, system, rounds.sessions, aim, train, trials, workers)
    another = system != system_of(terms.rating)
    _report(ladder, found, system, another=another)
    print(f"# {_verdict(found)}")
    named = bool(settings.ladders)
    print(entry(ladders, ladder, found.rating, rounds.in_a_day, named=named), end="")
    if out is not None:
        with file_failures():
            out.write_bytes(as_json(found.rating))


# --- the rounds ----------------------------------------------------------------------------------


def _read(settings: Settings, ladders: Ladders, ladder: str) -> Rounds:
    """What the ladder's partition holds now."""
    again, _, partitions = live_log.live_log(settings, ladders, ladder, BY_FILE)
    pace, window, rejected = Pace(), settings.duplicate_window, Counter[str]()

    def reject(_: int, invalid: Invalid) -> None:
        if invalid.ladder in (ladder, ""):
            rejected[invalid.code] += 1

    def once(verdicts: Verdicts | None) -> list[Session]:
        rejected.clear()
        validator = RecordValidator(ladders, window, partitions)
        records, terms = pace.seen(again()), ladders.find(ladder)
        named = terms is not None and by_name([terms.rating])
        return list(sessions_of(
            records, window, reject, verdicts=verdicts, validator=validator, only=ladder,
            named=named,
        ))  # fmt: skip

    sessions = with_verdicts(once, again, ladders, window, partitions)
    if not sessions:
        others = [each for each in _known(settings, ladders) if each != ladder]
        more = f"; {rejections(rejected)}" if rejected else ""
        raise Failed(f"{unknown_ladder(ladder, others)}{more}")
    return Rounds(sessions, dict(rejected), pace.end, pace.in_a_day())


def _known(settings: Settings, ladders: Ladders) -> list[str]:
    """The ladders that were rated, and those that the ladders file names."""
    noted = noted_ladders(settings, Admin(settings)).ladders
    return sorted({*noted, *ladders.ladders} - {TEMPLATE})


# --- the proposal --------------------------------------------------------------------------------


def _proposed(
    ladder: str, present: RatingConfig, system: str, sessions: Sequence[Session], aim: str,
    train: float, trials: int, workers: int,
) -> Proposal:  # fmt: skip
    try:
        return searched(
            system, trials,
            lambda tell: propose(present, system, sessions, aim, train=train, trials=trials,
                                 workers=workers, tell=tell),
        )  # fmt: skip
    except TooFewRounds as error:
        raise Failed(
            f"ladder {ladder!r}: {error}: wait for more rounds, or choose another --train than "
            f"{train:g}"
        ) from None


def _report(ladder: str, found: Proposal, system: str, *, another: bool) -> None:
    """The gain, and what to do."""
    from stream_rater.cli import lab_tables

    title = (
        f"ladder {ladder!r}, {system}: {found.first:,} rounds to tune on, {found.rest:,} to "
        "compare on"
    )
    lab_tables.report_gain(title, found.compared)
    if found.of is not None:
        print(found.of.told(), file=sys.stderr)
    if found.at_ends:
        print(lab_tables.ended(found.at_ends), file=sys.stderr)
    print(_verdict(found), file=sys.stderr)
    if another:
        print(
            f"another system is another ladder: {ladder!r} cannot change to {system}: name a new "
            "ladder, and report its rounds there",
            file=sys.stderr,
        )


def _verdict(found: Proposal) -> str:
    """What to do, and why."""
    why = ", ".join(f"{each.verdict} in {TOLD[each.measure]}" for each in found.compared)
    return f"{found.verdict}: {why}"
