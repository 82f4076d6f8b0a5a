"""The interface of a place: what commands, the API and the index need of a log and its results.

There is one log, `round-completed`, and what follows from it: parts, events, rejections, ladder
events, standings of past seasons, and beliefs. A place has all of them. The names are those of
Kafka; another place has what comes closest, and its methods say where it differs.

The interface has nothing that only some places can promise. A data file is locked as long as it is
open to write, and one transaction covers all of it. On Kafka and Redis, two processes are kept
apart only by the marks of a rebuild, a look at the consumer groups, and the order of writes. So a
rebuild writes in the order of `protocol.md` on every place.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from stream_rater.adapters.kafka.envelopes import Sender, change_headers
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import Failed
from stream_rater.config.settings import Settings
from stream_rater.contract import season_ended
from stream_rater.contract.record import ANY_OFFSET, Player, Record, RejectedRecord, WorkersProgress
from stream_rater.pipeline import ports
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.replay.log_reading import LogReader

ANSWER_S = 5.0  # How long `inspect` waits for each answer about all topics, in seconds.
CHANGED, REJECTED = "changed", "rejected"  # The topics that subscribers follow.

Actions = Mapping[str, Callable[..., Any]]
"""By the method of an effect (`ports.Effect.perform`), the function that performs it."""
NO_CHECKPOINTS: Actions = {
    "checkpoints": lambda *_: {},
    "read_piece": lambda *_: None,
    **dict.fromkeys(("write_piece", "keep_checkpoint", "drop_checkpoint"), lambda *_: True),
}
"""The actions for a correction job without checkpoints: it finds none, and its writes do
nothing."""

Beliefs = Iterator[list[tuple[Player, bytes]]]
"""Batches of players with their encoded beliefs. A player may come twice."""
FailureHook = Callable[[str], None]  # Receives the reason of a failure.
Submitter = Sender  # Appends rounds, seeds and corrections to the log.


class Section(NamedTuple):
    """A part of what `inspect` says about a place."""

    title: str
    columns: Mapping[str, Sequence[object]]
    """By its title, the values of a column, one for each partition."""
    rows: Sequence[int]  # The partitions that are shown.
    remarks: Sequence[str] = ()


class Cures(NamedTuple):
    """The remedies for a failure of `erase`, by the step that failed."""

    copying: str
    rebuilding: str
    retiring: str


class SeasonWriter(Protocol):
    """Writes the standings of one season."""

    def begin(self) -> Iterator[Record]:
        """End other writers of the season, where no lock does. Returns records of `season-ended`:
        at least those marks of the season's pages that are written by now."""

    def write(self, records: Iterable[Record], /) -> None:
        """Write a page in one transaction. After a Trouble its outcome is unknown: begin again."""


def event_record(event: ports.Event, offset: int = ANY_OFFSET) -> Record:
    """An event as a record of `rating-changed`."""
    return Record(event.shard, offset, event.value, change_headers(event), key=event.key)


class Place(ABC):
    """A log and what follows from it. It is for one thread. The methods raise LogTrouble,
    StoreTrouble, Denied, TopicMismatch, LayoutMismatch or Unusable, and say where they raise more.

    The methods that are not abstract suit a place without servers to which no other process
    writes.
    """

    settings: Settings
    name: str  # What messages call it.
    later: str  # The end of a message: when appended records are rated; empty if at once.
    notes: str  # The part of a message that says where the ladder events are.
    keeps_offsets: bool  # Whether events that are copied to it keep their offsets and shards.
    blame: str  # The explanation if a replay does not compute the same beliefs.
    out_of_reach: str  # What an erasure here does not reach, in words.

    @property
    @abstractmethod
    def partitions(self) -> int:
        """The number of partitions of `round-completed`."""

    @property
    @abstractmethod
    def shards(self) -> int:
        """The number of shards: partitions of `performance-estimated` and of `rating-changed`."""

    def close(self) -> None:
        """Close the connections."""

    # --- what can be read of the log ---

    @abstractmethod
    def starts(self) -> Sequence[int]:
        """The first offset of each partition of `round-completed`."""

    @abstractmethod
    def ends(self) -> Sequence[int]:
        """The end of each partition of `round-completed`, whether transactions are open or not."""

    def end_of(self, ladder: str) -> int:
        """The end of a ladder's partition. It may be that of the first call."""
        return self.ends()[partition_of(ladder, self.partitions)]

    def stable_end(self, partition: int) -> int:
        """The offset up to which the records of a partition can be read."""
        return self.ends()[partition]

    @abstractmethod
    def rounds(self, partition: int, end: int) -> Iterator[Record]:
        """Yield the records of a partition of `round-completed` before offset `end`, in order."""

    def all_rounds(self) -> Iterator[Record]:
        """Yield all records of `round-completed`. Those of each partition come in order."""
        for partition, end in enumerate(self.ends()):
            yield from self.rounds(partition, end)

    @abstractmethod
    def log_reader(self, ends: Mapping[int, int] | None = None) -> LogReader:
        """A reader that can read `round-completed` repeatedly, also in other processes. `ends`: the
        ends of the partitions that are read; None: the present ends of all."""

    @abstractmethod
    def read_again(self, partition: int, first: int, end: int) -> Sequence[Record]:
        """Records of `round-completed` in [first, end): at least one, if there is any."""

    @abstractmethod
    def parts(self) -> Iterator[Sequence[Record]]:
        """Yield the records of `performance-estimated` that are kept, in batches."""

    @abstractmethod
    def events(self) -> Iterator[Record]:
        """Yield the records of `rating-changed` that are kept, those of each partition in order. A
        player's events may be in several partitions."""

    @abstractmethod
    def last_events(
        self, shard: int, key: bytes, count: int, within_s: float
    ) -> tuple[list[bytes | None], int]:
        """The values of the last events of a shard with this key, at most `count`, oldest first.
        Also the offset down to which the shard was searched: the search ends early after
        `within_s`."""

    @abstractmethod
    def ladder_log(self) -> LadderLog:
        """The ladder events that exist now, combined."""

    @abstractmethod
    def ladder_events(self) -> Iterable[bytes]:
        """Yield the messages of `ladders-noted`."""

    def rejected_to(self) -> Iterator[tuple[int, int]]:
        """Yield partition and `next_offset` of rejections, at least each partition's last."""
        return iter(())

    @abstractmethod
    def standings(self, ladder: str | None = None, *, marks: bool = False) -> Iterator[Record]:
        """Yield the records of `season-ended`, or at least those of a ladder. `marks`: without the
        standings themselves. `season_ended.decoded` says what each is."""

    def kept_seasons(self, ladder: str) -> Sequence[season_ended.SeasonKept]:
        """The seasons of a ladder whose standings are written."""
        found = map(season_ended.decoded, self.standings(ladder, marks=True))
        kept = (each for each in found if isinstance(each, season_ended.SeasonKept))
        return [each for each in kept if each.ladder == ladder]

    @abstractmethod
    def follow(self, topic: str, *, from_start: bool) -> Iterator[Record | None]:
        """Yield the records of CHANGED or REJECTED as they come, and None where none has come for
        a while. `from_start`: whether to begin with the first record that is kept."""

    @abstractmethod
    def follow_rejections(self, positions: list[int]) -> Iterator[Sequence[RejectedRecord]]:
        """Yield rejections as they come, and an empty sequence when none has come for a while. The
        first one is empty, too: whatever is rejected after it will be yielded.

        `positions`: for each partition of `round-rejected`, the offset at which to begin. It is
        raised to the next offset as rejections are yielded. An empty list is filled with the
        offsets REJECTIONS_BACK before the ends. A partition that is added later is read from its
        beginning.
        """

    @abstractmethod
    def topic(self, topic: str) -> str:
        """How messages name the topic CHANGED or REJECTED of this place."""

    @abstractmethod
    def sections(self) -> Iterator[Section]:
        """Yield the sections that `inspect` prints about the place."""

    # --- how far the workers are ---

    @abstractmethod
    def progress(self) -> WorkersProgress:
        """How far the workers are. Each field is read after the one before it."""

    def check_ratings(self) -> None:
        """Check that the ratings are those of this log and of these settings. Raises
        BadConfiguration, LayoutMismatch or StoreMismatch."""
        self.check_settings()

    def check_settings(self) -> None:
        """Raise BadConfiguration or LayoutMismatch if the duplicate window is not that of the
        workers, or if a move to this place is unfinished."""

    def check_complete(self) -> None:
        """Raise Failed if rounds were deleted: a replay of the others would give other ratings."""
        for partition, start in enumerate(self.starts()):
            if start > 0:
                raise Failed(
                    f"partition {partition} of the rounds starts at {start}: the rounds before it "
                    "were deleted, and ratings cannot be computed without them: restore a snapshot "
                    "of Redis, or begin with another topic_prefix and submit the rounds there"
                )

    def check_whole(self) -> None:
        """Raise Failed if rounds were deleted, or if the log has lost records."""
        self.check_complete()

    @abstractmethod
    def check_rated(self, ladder: str, wait_s: float) -> None:
        """Wait until what a ladder's partition has now is rated. Raises Failed after `wait_s`."""

    @abstractmethod
    def at_rest(self, wait_s: float) -> "AbstractContextManager[Place]":
        """Wait until all that is in the log is rated. Within the block, the yielded place stays as
        it is then: a file at one instant, a log up to its present ends. Raises Failed if it takes
        longer than `wait_s`, or if no worker rates."""

    def check_idle(self) -> None:
        """Raise Failed if a worker runs. While a data file is open to write, none can run."""

    @abstractmethod
    def check_finished(self) -> Sequence[int]:
        """The end of each partition of the rounds. Raises Failed unless all is rated and kept."""

    def check_unchanged(self, ends: Sequence[int]) -> None:
        """Raise Failed if a worker has started, or a record has arrived after these ends."""

    # --- the beliefs ---

    def look(self) -> None:
        """Look again at the numbers of partitions and shards, and check the layout."""

    def check_layout(self) -> None:
        """Raise LayoutMismatch if the workers use another store, or if it has other shards."""

    @abstractmethod
    def read(self, players: Mapping[int, PlayerColumn]) -> Mapping[int, ports.StoredShard]:
        """The position and the players' records of each shard, each shard at one instant."""

    @abstractmethod
    def beliefs(self) -> Beliefs:
        """Yield every belief."""

    @abstractmethod
    def kernel(self) -> int:
        """The kernel version of the oldest ratings; that of this release if there are none."""

    @abstractmethod
    def events_of(self, shard: int) -> str:
        """How messages name the events of a shard."""

    @abstractmethod
    def where(self, ladder: str, player: str, shard: int, size: int) -> str:
        """The location and size (in bytes) of a belief, in words."""

    def checkpoint_actions(self, failed: FailureHook | None) -> Actions:
        """The functions that perform a correction job's effects on checkpoints. `failed` receives
        why a write failed. If it is None, nothing is written, and the job does not notice."""
        return NO_CHECKPOINTS

    # --- appending ---

    @abstractmethod
    def submitter(self, *, create: bool = True) -> Submitter:
        """The object that appends records. `create`: whether missing topics are created."""

    @abstractmethod
    def season_writer(self, ladder: str, season: int) -> AbstractContextManager[SeasonWriter]:
        """A context manager that yields the writer of a season's standings."""

    @abstractmethod
    def append(self, records: Iterable[Record]) -> None:
        """Append records to `round-completed`, each at its offset, unless that is ANY_OFFSET. They
        are in the log when this returns."""

    def publish(self, events: Iterable[ports.Event]) -> None:
        """Append events to `rating-changed`."""
        self.copy_events(map(event_record, events))

    @abstractmethod
    def note(self, messages: Sequence[bytes]) -> None:
        """Append messages to `ladders-noted`."""

    @abstractmethod
    def write_standings(self, records: Iterable[Record]) -> None:
        """Append records to `season-ended`, those of whole seasons."""

    # --- a rebuild of the beliefs ---

    @abstractmethod
    def commits(self) -> Mapping[int, ports.SourceCommit | None]:
        """By partition of the rounds, what the estimators have committed; None: nothing."""

    @abstractmethod
    def tails(self, offsets: Mapping[int, int]) -> Mapping[int, ports.SourceTail]:
        """By partition of the rounds, its end, and the checksum of the record before its offset."""

    def tails_before(self, offsets: Mapping[int, int]) -> ports.Tails:
        """By partition of the rounds, the checksum of the record before an offset other than 0."""
        known = {p: offset for p, offset in offsets.items() if offset}
        return {p: each.tail for p, each in self.tails(known).items()}

    @abstractmethod
    def applied(self) -> Mapping[int, int | None]:
        """By shard, the offset that the updaters have committed; None: none."""

    @abstractmethod
    def part_bounds(self) -> tuple[Sequence[int], Sequence[int]]:
        """The first offset and the end of each shard's parts."""

    @abstractmethod
    def commit_rounds(self, offsets: Mapping[int, int], tails: ports.Tails | None = None) -> None:
        """Commit offsets of the estimators with `tails`; None: with those of `tails_before`."""

    @abstractmethod
    def commit_parts(self, offsets: Mapping[int, int]) -> None:
        """Commit offsets of the updaters."""

    @abstractmethod
    def write_marks(self, marks: Sequence[bytes]) -> dict[int, int]:
        """Write the marks of a rebuild, each to its shard's parts, and return their offsets by
        shard. From now on, workers refuse the beliefs as they were, and any copy of them."""

    @abstractmethod
    def ratings(self) -> str:
        """How messages name the ratings; empty if there are none."""

    @abstractmethod
    def rebuilding(self, check: Callable[["Place"], None]) -> "AbstractContextManager[Place]":
        """Within the block, the place whose beliefs a rebuild writes: this one, or a copy that
        takes its place at the end of the block. `check` is called with this one before anything is
        changed. Raises Failed if a worker runs, and LayoutMismatch or Unusable if the beliefs
        cannot be rebuilt."""

    @abstractmethod
    def begin_rebuild(self, epoch: bytes) -> None:
        """Mark the beliefs as unfinished, and delete them. This epoch begins: from now on, no call
        of an older one is executed."""

    @abstractmethod
    def apply(self, applications: Mapping[int, ports.Application]) -> Mapping[int, bool]:
        """Write beliefs by compare-and-set; by shard, whether they were written."""

    @abstractmethod
    def end_rebuild(self) -> None:
        """End the rebuild: workers may use the beliefs, which go back to this kernel version."""

    def drop_checkpoints(self) -> None:
        """Delete all checkpoints."""

    @abstractmethod
    def heads(self, ladder: str) -> Mapping[str, bytes]:
        """The heads of a ladder's checkpoints by name."""

    # --- a copy of the log (`operations.migrate`) ---

    def check_erasable(self, prefix: str, *, delete: bool) -> None:
        """Raise BadConfiguration if `erase` cannot copy this log to topics of this prefix, or to a
        new file without one. `delete`: whether the old topics are to be deleted."""

    @abstractmethod
    def check_new(self, option: str, source: "Place") -> None:
        """Raise BadConfiguration if `source` cannot move here. `option` chooses another place."""

    @abstractmethod
    def successor(self, prefix: str) -> "AbstractContextManager[Place]":
        """Within the block, a new place for a copy of this log: topics of another prefix beside the
        same Redis, or a new file. At the end of the block its ratings replace those of this place,
        and it may be used."""

    @abstractmethod
    def begin_copy(self, source: "Place") -> None:
        """Prepare this new place to be filled from `source`. No process may use it until
        `end_rebuild`."""

    @abstractmethod
    def copy_events(self, records: Iterable[Record]) -> None:
        """Append records to `rating-changed`."""

    def begin_parts(self, source: "Place") -> None:
        """Commit the updaters' offsets so that no part is pending."""
        self.commit_parts(dict.fromkeys(range(self.shards), 0))

    def drop_derived(self) -> None:
        """Delete what was made from beliefs: checkpoints, and an index of an earlier release."""
        self.drop_checkpoints()

    def end_copy(self) -> None:
        """Note that the copy is complete: a rebuild is all that it still needs."""

    @abstractmethod
    def mark_moved(self, where: str) -> None:
        """Let no process rate by this place from now on. `where`: where the log is now."""

    @abstractmethod
    def cures(self, target: "Place") -> Cures:
        """The remedies for a failure of `erase`. `target`: the successor."""

    def retire(
        self, target: "Place", keys: Iterable[tuple[int, bytes | None]], *, delete: bool
    ) -> Iterator[str]:
        """Give up the old log, whose erased copy is `target`, and yield lines about that. `keys`:
        partition and key of each event of the player. `delete`: whether old topics are deleted."""
        return iter(())
