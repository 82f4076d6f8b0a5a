"""`stream-rater verify`: compares ratings with a replay of the log, or the log with a mirror."""

import hashlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, takewhile, zip_longest
from typing import NamedTuple

from stream_rater import places
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import BadConfiguration, Failed, NotYetKnown, named_failures
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract import events
from stream_rater.contract.record import Record
from stream_rater.operations.compare_store import Verdict, compare, compare_ahead
from stream_rater.operations.rewriting import flagged
from stream_rater.places import checks
from stream_rater.places.port import Place
from stream_rater.replay.cores import Cores
from stream_rater.replay.edited_log import Verdicts
from stream_rater.replay.ledger import with_verdicts
from stream_rater.runtime.progress import SHOWN_LINES, counted, rejections

NOTHING = "nothing was compared"


class Sample(NamedTuple):
    """Some of the ladders that have rounds. Each ladder has a place from 0 to 1, by a hash of its
    id. A sample has the ladders whose place is below its share, so a larger sample has them,
    too."""

    share: float  # The share that was asked for.
    ladders: frozenset[str]  # The chosen ladders: at least one, if there is any.
    known: int  # The number of all ladders.

    @classmethod
    def of(cls, share: float, ladders: Iterable[str]) -> "Sample":
        """The sample of this share; if that has none, the ladder with the lowest place."""
        in_order = sorted(ladders, key=lambda ladder: (place_of(ladder), ladder))
        chosen = [each for each in in_order if place_of(each) < share] or in_order[:1]
        return cls(share, frozenset(chosen), len(in_order))

    def described(self, players: int, all_players: int, records: int) -> str:
        """What the sample has covered, and that it proves nothing else, in words. `players`: the
        number of its players. `records`: the number of records in the whole log."""
        return (
            f"This is a sample of {self.share:g}: {len(self.ladders):,} of "
            f"{counted(self.known, 'ladder')}, {players:,} of {counted(all_players, 'player')}, in "
            f"a log of {counted(records, 'record')}. Nothing is proven about the others"
        )


def place_of(ladder: str) -> float:
    """The place of a ladder, at least 0 and less than 1."""
    digest = hashlib.blake2b(ladder.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big") / 2**64


def verify(
    settings: Settings, wait_s: float, *, sample: float | None = None, cores: int | None = None
) -> str:
    """Compare the ratings with a sequential replay of the log. Returns a line with the counts.
    `wait_s`: how long to wait until the present log is rated. Raises Failed if beliefs differ,
    NotYetKnown if corrections came during it, BadConfiguration if the ladders file or the duplicate
    window is not that of the workers."""
    ladders = places.ladders_of(settings)
    with named_failures(), places.opened(settings) as place:
        place.kernel()  # fails at once where Redis is down
        place.check_settings()
        checks.agreed(place, ladders, NOTHING)
        place.check_whole()
        with place.at_rest(wait_s) as instant:
            return compared_with_replay(instant, ladders, sample=sample, cores=cores)


def compared_with_replay(
    place: Place, ladders: Ladders, *, sample: float | None = None, cores: int | None = None
) -> str:
    """Compare the beliefs of a place, all of whose log is rated, with a replay; more may be rated
    during it. `cores`: None for all. `sample`: the share of the ladders to compare. Returns a line
    with the counts. Raises as `verify`."""
    known, ends = checks.agreed(place, ladders, NOTHING), dict(enumerate(place.ends()))
    some = None if sample is None else Sample.of(sample, known.ladders)
    only, read = None if some is None else some.ladders, ends
    if only is not None:
        own = {partition_of(ladder, len(ends)) for ladder in only}
        read = {partition: end for partition, end in ends.items() if partition in own}
    terms, used = (ladders, place.settings.duplicate_window, place.partitions), Cores.of(cores)
    verdict = compare(place.log_reader(read), *terms, place.beliefs, cores=used, only=only)
    if verdict.ahead:
        now = {partition: place.stable_end(partition) for partition in read}
        compare_ahead(verdict, place.log_reader(now), *terms, read, used)
    done = _report(verdict, place.kernel())
    if some is None:
        return done
    return f"{done}. {some.described(verdict.beliefs, verdict.stored, sum(ends.values()))}"


def _report(verdict: Verdict, begun_by: int) -> str:
    """A line with the counts. Prints the first players whose beliefs are not those of the replay.
    Raises Failed if there are any, NotYetKnown if some could not be compared."""
    for name, players in (
        ("missing", verdict.missing), ("different", verdict.differing),
        ("unexplained", verdict.surplus),
    ):  # fmt: skip
        for ladder, player in players[:SHOWN_LINES]:
            print(f"{name}: ladder {ladder!r}, player {player!r}", file=sys.stderr)
    seeds = f"{counted(verdict.seeds, 'seed')} applied, " if verdict.seeds else ""
    done = (
        f"{verdict.rounds} rounds replayed, {seeds}{rejections(verdict.rejected)}, "
        f"{verdict.beliefs} beliefs compared"
    )
    if verdict.equal and verdict.ahead:
        left = f"{len(verdict.ahead)} not yet known, because their ladders were corrected during it"
        raise NotYetKnown(f"{done}: {left}: run it again")
    if verdict.equal:
        return f"{done}: all equal, bit for bit"
    others = "" if begun_by == KERNEL_VERSION else (
        f" (ratings go back to kernel version {begun_by}, this release has {KERNEL_VERSION}: "
        "`stream-rater rebuild --replace` computes all of them again)"
    )  # fmt: skip
    raise Failed(
        f"{done}: {len(verdict.missing)} missing, {len(verdict.differing)} different, "
        f"{len(verdict.surplus)} that the log does not explain{others}"
    )


# --- a mirror ------------------------------------------------------------------------------------

# Beliefs, events, the ladders file and the duplicate window refer to offsets, so each accepted
# record must have its own offset in the mirror. Records that are rejected there may differ, and so
# may gaps.


class _NoMirror(Failed):
    def __init__(self, why: str) -> None:
        super().__init__(f"{why}: it is no mirror that workers can use: copy the log by "
                         "`stream-rater move --from`, which keeps each offset")  # fmt: skip


def compare_mirror(settings: Settings, mirror: Settings) -> str:
    """Compare the log with its mirror, as far as the mirror goes; workers may run. Returns a line
    with the counts. Raises BadConfiguration, or Failed at the first record that differs."""
    if (mirror.kafka, mirror.topic_prefix) == (settings.kafka, settings.topic_prefix):
        raise BadConfiguration(
            f"MIRROR: it names the topics of {settings.topic_prefix!r} on {settings.kafka}, as the "
            f"present settings do: name the mirror's {PREFIX}KAFKA or {PREFIX}TOPIC_PREFIX in it"
        )
    ladders = places.ladders_of(settings)
    with named_failures(), ExitStack() as stack:
        copy, log = (  # the mirror is read first, so it is the older one
            _Log(stack.enter_context(places.opened(each)), ladders, settings.duplicate_window)
            for each in (mirror, settings)
        )
        if len(copy.ends) != len(log.ends):
            sizes = f"{copy.topic} has {len(copy.ends)} partitions, and {log.topic} has "
            raise _NoMirror(f"{sizes}{len(log.ends)}")
        accepted = sum(_compare(log, copy, partition) for partition in range(len(log.ends)))
        if copy.notes != log.notes[: len(copy.notes)]:
            others = f"its messages are not those of {log.notes_topic}, in their order"
            raise _NoMirror(f"{copy.notes_topic}: {others}")
    behind = sum(max(0, end - copied) for end, copied in zip(log.ends, copy.ends, strict=True))
    return (
        f"{counted(accepted, 'accepted record')} and {counted(len(copy.notes), 'note')} are equal, "
        f"offset by offset; the mirror is {counted(behind, 'record')} behind"
    )


class _Log:
    """The accepted records of the log of a place."""

    def __init__(self, place: Place, ladders: Ladders, window: int) -> None:
        self._place, self._ladders, self._window = place, ladders, window
        prefix = place.settings.topic_prefix
        self.topic = prefix + events.ROUND_COMPLETED
        self.notes_topic = prefix + events.LADDERS_NOTED
        self.ends = place.ends()
        for partition, start in enumerate(place.starts()):
            if start > 0:
                at = f"{place.name}, partition {partition}, starts at {start}"
                raise _NoMirror(f"{at}: the records before it were deleted, and so it is not "
                                "known which of the others were accepted")  # fmt: skip
        with_verdicts(self._validate, place.all_rounds, ladders, window, len(self.ends))
        self.notes = [*place.ladder_events()]

    def _validate(self, verdicts: Verdicts | None) -> None:
        """Take these verdicts, if they are all that the log needs. Raises MissingVerdicts."""
        self._verdicts = verdicts
        for _ in chain.from_iterable(map(self.accepted, range(len(self.ends)))):
            pass

    def accepted(self, partition: int) -> Iterator[Record]:
        """Yield the accepted records of a partition, in order."""
        partitions, end = len(self.ends), self.ends[partition]
        rounds = self._place.rounds(partition, end) if end else ()
        found = flagged(rounds, self._ladders, self._window, partitions, self._verdicts)
        return (record for record, is_accepted in found if is_accepted)


def _compare(log: _Log, copy: _Log, partition: int) -> int:
    """Compare the accepted records of a partition. Returns their number. Raises Failed."""
    end, count = copy.ends[partition], 0
    records = takewhile(lambda each: each.offset < end, log.accepted(partition))
    for record, copied in zip_longest(records, copy.accepted(partition)):
        if record is None:
            wrong, why = copied, f": {log.topic} has none there"
        elif copied is None or copied.offset > record.offset:
            wrong, why = record, " is missing, or is rejected there"
        elif copied.offset < record.offset:
            wrong, why = copied, ": the log has none there"
        elif _content(copied) != _content(record):
            wrong, why = record, ": it is another one"
        else:
            count += 1
            continue
        record_at = f"the accepted record at offset {wrong.offset}"
        raise _NoMirror(f"{copy.topic}, partition {partition}: {record_at}{why}")
    return count


def _content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, sorted(record.headers)
