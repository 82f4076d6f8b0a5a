"""What commands, the API and the index need of the place of a log and of what follows from it.

There is one log, `round-completed`, and what follows from it: parts, events, rejections, notes of
ladders, standings of past seasons, and beliefs. A place has all of them. The words are those of
Kafka, and each place gives them its nearest meaning; where they differ, the method says so.

What no place can promise for another one is not here: a data file is locked for as long as it is
open to write, and one transaction holds all of it, while on Kafka and Redis only the marks of a
rebuild, the look at the groups and the order of writes keep two processes apart. So a rebuild
writes in the order of `protocol.md`, on every place.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from stream_rater.pipeline.corrections import ladder_checkpoints
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.replay.log_reading import LogReader

CHANGED, REJECTED = "changed", "rejected"  # The topics that subscribers follow.

Actions = Mapping[type, Callable[[Any], Any]]  # By the type of an effect, what performs it.
NO_CHECKPOINTS: Actions = {
    ladder_checkpoints.Checkpoints: lambda _: {},
    ladder_checkpoints.ReadPiece: lambda _: None,
    ladder_checkpoints.WritePiece: lambda _: True,
    ladder_checkpoints.KeepCheckpoint: lambda _: True,
    ladder_checkpoints.DropCheckpoint: lambda _: True,
}
"""Of a correction job that finds no checkpoint and writes none, but may believe that it does."""

Beliefs = Iterator[list[tuple[Player, bytes]]]
"""Batches of players with their encoded beliefs. A player may come twice."""
FailureHook = Callable[[str], None]  # Receives why something failed.
Standings = Iterable[tuple[season_ended.Message, str]]
"""Records of `season-ended`, with their times (RFC 3339)."""
Submitter = Sender  # Appends rounds, seeds and corrections to the log, as senders do.


class Section(NamedTuple):
    """A part of what `inspect` says about a place."""

    title: str
    columns: Mapping[str, Sequence[object]]  # By name, the value for each partition.
    rows: Sequence[int]  # The partitions that are shown.
    remarks: Sequence[str] = ()


class Cures(NamedTuple):
    """What to do after a failure of `erase`, by what it was doing."""

    copying: str
    rebuilding: str
    retiring: str


class SeasonWriter(Protocol):
    """Writes the standings of one season."""

    def begin(self) -> Mapping[int, season_ended.PageWritten]:
        """End every other writer of the season, without locks. Returns written pages by number."""

    def write(self, messages: Iterable[season_ended.Message], time_: str, /) -> None:
        """Write a page in one transaction. After a Trouble it may be written: begin again."""


def event_record(event: ports.Event, offset: int = ANY_OFFSET) -> Record:
    """An event as a record of `rating-changed`."""
    return Record(event.shard, offset, event.value, change_headers(event), key=event.key)


class Place(ABC):
    """A log and what follows from it. It is for one thread. The methods raise LogTrouble,
    StoreTrouble, Denied, TopicMismatch, LayoutMismatch or Unusable, and say where they raise more.

    What is not abstract is so of a place without servers, and without another process that
    writes."""

    settings: Settings
    name: str  # What messages call it.
    later: str  # When what is appended is rated, for the end of a message; empty if it is at once.
    notes: str  # Where its ladder events are, for the middle of a message.
    keeps_offsets: bool  # Whether events that are copied to it keep their offsets and shards.
    blame: str  # What was wrong if a replay does not compute its beliefs, in words.
    out_of_reach: str  # What an erasure here does not reach, in words.

    @property
    @abstractmethod
    def partitions(self) -> int:
        """The number of partitions of `round-completed`."""

    @property
    @abstractmethod
    def shards(self) -> int:
        """The number of partitions of the two topics by player."""

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
        """The end of a ladder's partition, as of the first call."""
        return self.ends()[partition_of(ladder, self.partitions)]

    def stable_end(self, partition: int) -> int:
        """The offset up to which the records of a partition can be read."""
        return self.ends()[partition]

    @abstractmethod
    def rounds(self, partition: int, end: int) -> Iterator[Record]:
        """Yield the records of a partition of `round-completed` before an offset, in order."""

    def all_rounds(self) -> Iterator[Record]:
        """Yield all records of `round-completed`. Those of each partition come in order."""
        for partition, end in enumerate(self.ends()):
            yield from self.rounds(partition, end)

    @abstractmethod
    def log_reader(self, ends: Mapping[int, int] | None = None) -> LogReader:
        """Reads the records of `round-completed` again and again, also in other processes.
        `ends`: the ends of the partitions that are read; None: of all, now."""

    @abstractmethod
    def read_again(self, partition: int, first: int, end: int) -> Sequence[Record]:
        """Records of `round-completed` in [first, end): at least one, if there is any."""

    @abstractmethod
    def parts(self) -> Iterator[Sequence[Record]]:
        """Yield the records of `performance-estimated` that are kept, in batches."""

    @abstractmethod
    def events(self) -> Iterator[Record]:
        """Yield the records of `rating-changed` that are kept, those of each partition in order; a
        player's may be in several."""

    @abstractmethod
    def last_events(
        self, shard: int, key: bytes, count: int, within_s: float
    ) -> tuple[list[bytes | None], int]:
        """The values of the last events of a shard with this key, at most `count`, oldest first;
        and the offset down to which the shard was searched. The search ends early after
        `within_s`."""

    @abstractmethod
    def ladder_log(self) -> LadderLog:
        """The ladder events that exist now, combined."""

    @abstractmethod
    def ladder_events(self) -> Iterable[bytes]:
        """Yield the messages of `ladders-noted`."""

    def rejected_to(self) -> Iterator[tuple[int, int]]:
        """Yield the partition and the next offset of rejections, at least of the last ones."""
        return iter(())

    @abstractmethod
    def standings(self, *, whole: bool = True) -> Standings:
        """Yield the records of `season-ended`. `whole`: raise Failed if a season is incomplete."""

    @abstractmethod
    def kept_seasons(self, ladder: str) -> Sequence[season_ended.SeasonKept]:
        """The seasons of a ladder whose standings are written."""

    @abstractmethod
    def follow(self, topic: str, *, from_start: bool) -> Iterator[Record | None]:
        """Yield the records of CHANGED or REJECTED as they come, and None where none has come for
        a while. `from_start`: whether to begin with the first record that is kept."""

    @abstractmethod
    def follow_rejections(self, positions: list[int]) -> Iterator[Sequence[RejectedRecord]]:
        """Yield rejections as they come, and nothing where none has come for a while. Nothing comes
        first, too: whatever is rejected after that will be yielded.

        `positions`: for each partition of `round-rejected`, the offset at which to begin, which
        then rises to where the next ones are. An empty list is filled: REJECTIONS_BACK offsets
        before the ends. Of a partition that is added later, all is yielded.
        """

    @abstractmethod
    def topic(self, topic: str) -> str:
        """What messages call CHANGED or REJECTED of this place."""

    @abstractmethod
    def sections(self) -> Iterator[Section]:
        """Yield what `inspect` says about the place."""

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
        """Wait until all that a ladder's partition has now is rated. Raises Failed if too long."""

    @abstractmethod
    def at_rest(self, wait_s: float) -> "AbstractContextManager[Place]":
        """Wait until all that is in the log is rated. Within the block, the yielded place is as it
        is then: a file at one instant, a log with its present ends. Raises Failed if it takes too
        long, or if nobody rates."""

    def check_idle(self) -> None:
        """Raise Failed if a worker runs. A data file has none while it is open to write."""

    @abstractmethod
    def check_finished(self) -> Sequence[int]:
        """The end of each partition of the rounds. Raises Failed unless all is rated and kept."""

    def check_unchanged(self, ends: Sequence[int]) -> None:
        """Raise Failed if a worker has started, or a record has come behind these ends."""

    # --- the beliefs ---

    def look(self) -> None:
        """Look again at the numbers of partitions and shards, and check the layout."""

    def check_layout(self) -> None:
        """Raise LayoutMismatch if the ratings are not the workers', or have other shards."""

    @abstractmethod
    def read(self, players: Mapping[int, PlayerColumn]) -> Mapping[int, ports.StoredShard]:
        """The position and the players' records of each shard, each shard at one instant."""

    @abstractmethod
    def beliefs(self) -> Beliefs:
        """Yield every belief."""

    @abstractmethod
    def count_beliefs(self, ladders: Collection[str] | None = None) -> int:
        """The number of beliefs, or of those of some ladders."""

    @abstractmethod
    def kernel(self) -> int:
        """The kernel version to which the ratings go back; this release's without any."""

    @abstractmethod
    def events_of(self, shard: int) -> str:
        """What messages call the events of a shard."""

    @abstractmethod
    def where(self, ladder: str, player: str, shard: int, size: int) -> str:
        """Where a belief of so many bytes is, in words."""

    def checkpoint_actions(self, failed: FailureHook | None) -> Actions:
        """What performs the effects of a correction job on checkpoints. `failed` receives why one
        could not be written; None: nothing is written, and the job may believe that it is."""
        return NO_CHECKPOINTS

    # --- appending ---

    @abstractmethod
    def submitter(self, *, create: bool = True) -> Submitter:
        """Appends records as a sender does. `create`: whether missing topics are created."""

    @abstractmethod
    def season_writer(self, ladder: str, season: int) -> AbstractContextManager[SeasonWriter]:
        """Writes the standings of a season."""

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
    def write_standings(self, messages: Standings) -> None:
        """Append records to `season-ended`."""

    # --- a rebuild of the beliefs ---

    @abstractmethod
    def commits(self) -> Mapping[int, ports.SourceCommit | None]:
        """By partition of the rounds, what the estimators have committed."""

    @abstractmethod
    def tails(self, offsets: Mapping[int, int]) -> Mapping[int, ports.SourceTail]:
        """By partition of the rounds, its end, and the checksum of the record before an offset."""

    def tails_before(self, offsets: Mapping[int, int]) -> ports.Tails:
        """By partition of the rounds, the checksum of the record before an offset that is not 0."""
        known = {p: offset for p, offset in offsets.items() if offset}
        return {p: each.tail for p, each in self.tails(known).items()}

    @abstractmethod
    def applied(self) -> Mapping[int, int | None]:
        """By shard, the offset that the updaters have committed."""

    @abstractmethod
    def part_bounds(self) -> tuple[Sequence[int], Sequence[int]]:
        """The first offset of each shard's parts, and the end."""

    @abstractmethod
    def commit_rounds(self, offsets: Mapping[int, int], tails: ports.Tails | None = None) -> None:
        """Commit offsets of the estimators with these checksums; None: those of the log."""

    @abstractmethod
    def commit_parts(self, offsets: Mapping[int, int]) -> None:
        """Commit offsets of the updaters."""

    @abstractmethod
    def write_marks(self) -> dict[int, int]:
        """Write a mark of a rebuild to each shard's parts, and return its offset by shard. From now
        on, workers refuse the beliefs as they were, and any copy of them."""

    @abstractmethod
    def ratings(self) -> str:
        """What messages call the ratings, if there are any; empty without."""

    @abstractmethod
    def rebuilding(self, check: Callable[["Place"], None]) -> "AbstractContextManager[Place]":
        """Within the block, the place whose beliefs a rebuild writes: this one, or a copy that
        takes its place at the end of the block. `check` is called with this one before anything is
        changed. Raises Failed if a worker runs, and LayoutMismatch or Unusable if the beliefs
        cannot be rebuilt."""

    @abstractmethod
    def begin_rebuild(self) -> bytes:
        """Mark the beliefs as unfinished, and delete them. Returns the epoch that begins here."""

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
        """Raise BadConfiguration if `source` cannot come here. `option` names another place."""

    @abstractmethod
    def successor(self, prefix: str) -> "AbstractContextManager[Place]":
        """Within the block, a new place for a copy of this log, whose ratings take the place of
        these: topics of another prefix beside the same Redis, or a new file. At the end of the
        block the new place may be used."""

    @abstractmethod
    def begin_copy(self, source: "Place") -> None:
        """Let this new place be filled from `source`. Nobody can use it until `end_rebuild`."""

    @abstractmethod
    def copy_events(self, records: Iterable[Record]) -> None:
        """Append records to `rating-changed`."""

    def begin_parts(self, source: "Place") -> None:
        """Commit offsets of the updaters behind which no part is pending."""
        self.commit_parts(dict.fromkeys(range(self.shards), 0))

    def drop_derived(self) -> None:
        """Delete what was made from the beliefs: checkpoints, and an index of an older release."""
        self.drop_checkpoints()

    def end_copy(self) -> None:
        """Note that the copy is whole: from now on a rebuild is enough to use it."""

    @abstractmethod
    def mark_moved(self, where: str) -> None:
        """Let nobody rate by this place from now on. `where`: where the log went."""

    @abstractmethod
    def cures(self, target: "Place") -> Cures:
        """What to do if `erase` fails. `target`: the successor."""

    def retire(
        self, target: "Place", keys: Iterable[tuple[int, bytes | None]], *, delete: bool
    ) -> Iterator[str]:
        """Give the old log up, of which `target` is the erased copy, and yield lines about it.
        `keys`: partition and key of each event of the player. `delete`: old topics are deleted."""
        return iter(())
