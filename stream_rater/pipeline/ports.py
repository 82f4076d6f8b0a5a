"""The effects that the state machines ask for, and their outcomes.

An effect is a frozen value. `ask` yields it and returns its outcome with the right type. A driver
is a `Handler`: it has one method for each effect, and `effect.perform(driver)` calls the right one.
An effect on several shards is atomic for each shard alone, not for all of them together.
"""

import re
from collections.abc import Callable, Collection, Container, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from stream_rater.columns.player_column import BeliefColumn, PlayerColumn, RecordColumn
from stream_rater.contract.errors import Regrouped, Resharded
from stream_rater.contract.record import Player, Record, Trace

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class Handler(Protocol[R_co]):
    """Performs every effect: it has a method for each, which takes the fields of the effect. The
    methods return the outcome, or a generator that returns it if the driver can pause within an
    effect. mypy refuses a driver that lacks a method."""

    def poll(self, effect: "Poll", /) -> R_co: ...
    def committed(self, partitions: frozenset[int], /) -> R_co: ...
    def committed_source(self, partitions: frozenset[int], /) -> R_co: ...
    def source_tails(self, offsets: Mapping[int, int], /) -> R_co: ...
    def look_for_offsets(self, partitions: frozenset[int], /) -> R_co: ...
    def log_starts(self, partitions: frozenset[int], /) -> R_co: ...
    def seek(self, offsets: Mapping[int, int], /) -> R_co: ...
    def new_producer(self) -> R_co: ...
    def part_sums(self, offsets: Mapping[int, int], /) -> R_co: ...
    def shard_ends(self) -> R_co: ...
    def read_priors(self, players: Mapping[int, PlayerColumn], /) -> R_co: ...
    def agree(
        self, histories: Mapping[str, Sequence[str]], only_read: Container[str], /
    ) -> R_co: ...
    def scatter(self, parts: Sequence[tuple[int, bytes]], /) -> R_co: ...
    def commit_source(
        self, offsets: Mapping[int, int], rejections: "Sequence[Rejection]", tails: "Tails", /
    ) -> R_co: ...
    def read_beliefs(self, players: Mapping[int, PlayerColumn], /) -> R_co: ...
    def apply(
        self, applications: "Mapping[int, Application]", events: "Collection[Event]", /
    ) -> R_co: ...
    def publish(self, events: "Collection[Event]", offsets: Mapping[int, int], /) -> R_co: ...
    def note_corrections(self, corrections: "CorrectionsByLadder", /) -> R_co: ...
    def noted_corrections(self) -> R_co: ...
    def read_again(self, partition: int, first: int, end: int, /) -> R_co: ...
    def checkpoints(self, ladder: str, /) -> R_co: ...
    def read_piece(self, ladder: str, name: str, number: int, /) -> R_co: ...
    def write_piece(self, ladder: str, name: str, number: int, data: bytes, /) -> R_co: ...
    def keep_checkpoint(self, ladder: str, name: str, head: bytes, /) -> R_co: ...
    def drop_checkpoint(self, ladder: str, name: str, pieces: int, /) -> R_co: ...


class Effect(Generic[T]):
    """An operation that a driver performs, with an outcome of type T. The handler's method for it
    has the name of the class: that of `ReadPriors` is `read_priors`."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()
    method: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.method = re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    def perform(self, handler: Handler[R_co]) -> R_co:
        """Call the handler's method for this effect."""
        method: Callable[..., R_co] = getattr(handler, self.method)
        return method(*(getattr(self, field) for field in self.__match_args__))


Step = Generator[Effect[Any], Any, T]
"""A routine of a state machine. It yields effects and returns a T."""


def ask(effect: Effect[T]) -> Step[T]:
    """Yield the effect; return its outcome."""
    outcome: T = yield effect
    return outcome


REGROUPING_S, REGROUPINGS = 0.05, 20
"""After Regrouped, a poll lasts REGROUPING_S. A commit is attempted at most REGROUPINGS times."""

C = TypeVar("C", bound=Effect[None])


def commit_through_regrouping(
    commit: Callable[[], C | None], poll: Callable[[], Step[None]]
) -> Step[C | None]:
    """Commit. After Regrouped, poll, and commit again for the partitions that are still owned.
    `commit` returns the effect for the partitions that the worker owns now, or None if it owns none
    of them. `poll` polls. Returns the effect that succeeded, or None. Raises Regrouped after
    REGROUPINGS attempts."""
    left = REGROUPINGS
    while (effect := commit()) is not None:
        try:
            yield from ask(effect)
            break
        except Regrouped:
            left -= 1
            if not left:
                raise
        yield from poll()
    return effect


PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


def pause_s(troubles: int) -> float:
    """Seconds to wait after so many failures in a row: 0 after the first, then PAUSE_S, which
    doubles with each further one up to LONGEST_PAUSE_S."""
    return min(LONGEST_PAUSE_S, PAUSE_S * 2 ** min(troubles - 2, 10)) if troubles > 1 else 0.0


# --- the log, as both machines read it ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Polled:
    """The outcome of a poll. Handle lost partitions first, then gained ones, then records."""

    now_s: float  # The monotonic time of the poll, in seconds.
    lost: frozenset[int] = frozenset()
    gained: frozenset[int] = frozenset()
    """Newly owned partitions. No record of them is read before a Seek."""
    records: Sequence[Record] = ()


POLL_RECORDS = 10_000  # The most records that one poll returns.


@dataclass(frozen=True, slots=True)
class Poll(Effect[Polled]):
    """Wait for records of the owned partitions, for a change of ownership, or for the time-out."""

    timeout_s: float
    no_fetch: bool = False
    """Ask only for changes of ownership, and fetch no records: the machine has as many as it wants,
    or pauses after a failure. Unless ownership changes, such a poll lasts the whole time-out."""
    paused: frozenset[int] = frozenset()  # Partitions to pause.
    gather_s: float = 0.0  # Seconds to wait for more records after the first one.
    enough: int = POLL_RECORDS  # The number of records at which the poll stops waiting for more.

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.poll(self)


@dataclass(frozen=True, slots=True)
class Committed(Effect[Mapping[int, int | None]]):
    """Read the group's committed offsets once no transaction is pending. None: never committed."""

    partitions: frozenset[int]


Tails = Mapping[int, int | None]
"""By partition of `round-completed`, the checksum of the record before the committed offset, where
it is known."""
NO_TAILS: Tails = {}


@dataclass(frozen=True, slots=True)
class SourceCommit:
    """A committed offset of `round-completed`."""

    offset: int
    tail: int | None = None
    """The checksum of the record before the offset. None: unknown, because an operator, another
    command or an older release committed the offset, or nothing is before it."""


@dataclass(frozen=True, slots=True)
class CommittedSource(Effect[Mapping[int, SourceCommit | None]]):
    """Read the estimators' offsets as Committed does, with their tails. None: never committed."""

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class SourceTail:
    """The end of a partition of `round-completed`, and the checksum before an offset."""

    end: int
    tail: int | None  # None: the log has no record there, or a damaged one.
    damaged: bool = False  # Whether the record there cannot be read.


@dataclass(frozen=True, slots=True)
class SourceTails(Effect[Mapping[int, SourceTail]]):
    """Read the ends of partitions of `round-completed`, and the checksum before these offsets."""

    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class OffsetEvidence:
    """The evidence in the log about committed offsets of `round-completed` that Kafka deleted."""

    after_rejected: Mapping[int, int]
    """By partition, the largest `next_offset` of its rejections. The lost committed offset was not
    below it. Partitions without a rejection are left out."""
    ends: Mapping[int, int]
    """By partition, the end of the log. The lost committed offset was not above it."""
    parts_deleted: bool
    """Whether Kafka deleted parts. If so, the parts do not show every round that was sent."""
    rejections_deleted: bool = False
    """Whether Kafka deleted records of `round-rejected`. They may include a partition's last."""


@dataclass(frozen=True, slots=True)
class LookForOffsets(Effect[OffsetEvidence]):
    """Look for lost committed offsets of these partitions in the log."""

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class LogStarts(Effect[Mapping[int, int]]):
    """Read the first offset that the log still has in each of these input partitions."""

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Seek(Effect[None]):
    """Continue reading at these offsets, and drop records that were fetched before. Partitions that
    are no longer owned are ignored."""

    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class NewProducer(Effect[None]):
    """Replace the producers. The new transactional one fences the old and aborts what it left."""


@dataclass(frozen=True, slots=True)
class PartSums(Effect[Mapping[int, int | None]]):
    """Read the checksum of one record of `performance-estimated` for each of these shards: the
    record at the given offset. None: the log does not have it any more."""

    offsets: Mapping[int, int]


# --- the estimator's effects --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShardEnds(Effect[Sequence[int]]):
    """Read the end offset of each partition that `performance-estimated` has now."""


def shard_ends(shards: int) -> Step[Sequence[int]]:
    """Read the end offset of each shard. Raises Resharded if there are not `shards` of them."""
    ends = yield from ask(ShardEnds())
    if len(ends) != shards:
        raise Resharded(shards, len(ends))
    return ends


NO_PLAYERS = PlayerColumn.of(())
"""The empty list of players. Reading it returns a shard's position alone."""


@dataclass(frozen=True, slots=True)
class Priors:
    """A shard's `applied`, its epoch and the requested belief headers, read atomically."""

    applied: int
    headers: bytes
    """record.HEADER_SIZE bytes for each player, zeros where the player has no belief."""
    epoch: bytes = b""  # As in Position.


@dataclass(frozen=True, slots=True)
class ReadPriors(Effect[Mapping[int, Priors]]):
    """Read `applied`, the epoch and the players' belief headers of each shard, in one call for each
    shard."""

    players: Mapping[int, PlayerColumn]


@dataclass(frozen=True, slots=True)
class Agree(Effect[Mapping[str, Sequence[str]]]):
    """Write to the log how each ladder is rated, unless a ladder event says so already. If several
    workers write such an event for one ladder, the first counts (`ladder_history`). Returns, by
    ladder, the history by which rounds may be rated now."""

    histories: Mapping[str, Sequence[str]]
    only_read: Container[str] = ()  # The ladders about which nothing is written.


@dataclass(frozen=True, slots=True)
class Scatter(Effect[Sequence[int]]):
    """Send (shard, bytes) parts to the log. Returns their offsets once all are acknowledged."""

    parts: Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record that cannot be rated, and the reason."""

    record: Record
    code: str
    message: str
    ladder: str = ""
    round_id: str = ""  # The ladder and the round id, as far as they could be read.
    decided_at: int | None = None
    """The offset of the later record with which the rejection is committed: for a batched
    correction the `corrections-applied` that validated it. None: it is committed with the record's
    own offset."""

    @property
    def next_offset(self) -> int:
        """The offset after the record with which the rejection is committed."""
        return (self.record.offset if self.decided_at is None else self.decided_at) + 1


@dataclass(frozen=True, slots=True)
class CommitSource(Effect[None]):
    """Commit offsets of `round-completed`, and the rejections before them, in one transaction. A
    transaction is used even without rejections. A plain commit that timed out may reach the broker
    later and move the offsets back; records would then be rejected twice. Nothing fences a plain
    commit while its sender is in the group. A new producer fences a transaction."""

    offsets: Mapping[int, int]
    rejections: Sequence[Rejection] = ()
    tails: Tails = field(default_factory=dict)


# --- the updater's effects ----------------------------------------------------------------------

UNFINISHED = -1
"""The `applied` of a shard whose rebuild has begun. No log begins there, so no worker opens it. The
calls of the rebuild then lower it, from VANISHED - 1 on, until the last one."""

VANISHED = -2
"""The `applied` of a shard from which another program deleted beliefs: no worker opens it."""

REBUILT: Player = ("", "rebuilt")
"""A key that no player has. A rebuild stores under it the offset after the mark that it wrote."""

REBUILT_KEY = PlayerColumn.of((REBUILT,))
"""The list of REBUILT alone. Reading it returns a shard's position and its last mark."""


@dataclass(frozen=True, slots=True)
class Position:
    """The progress of a shard's store through its log."""

    applied: int = 0  # The next offset to apply: the store is the fold of all parts before it.
    start: int = 0  # The value of `applied` before the last call.
    fresh: bytes = b""
    """The notes of the last call, for step 11: one bit for each of its rows, whether it was fresh;
    the mu and sigma before each fresh row that is not its player's last one; and the last published
    mu and sigma of beliefs that were unannounced (`changes`)."""
    epoch: bytes = b""
    """A random value that the last rebuild chose; empty before the first one. A rebuild may leave
    `applied` unchanged, but what was read before the rebuild must not be written after it."""
    tail: int | None = None
    """The checksum of the last record before `applied` (`contract.record`), which shows whether the
    store and the log are of the same history. None: unknown, or an older release wrote last."""

    @property
    def is_unfinished(self) -> bool:
        """Whether a rebuild of the shard is unfinished."""
        return self.applied < 0 and self.applied != VANISHED

    def advanced(self, applied: int, fresh: bytes, tail: int | None) -> "Position":
        """The position after a call up to `applied`, whose last record has the checksum `tail`."""
        return Position(applied, self.applied, fresh, self.epoch, tail)


@dataclass(frozen=True, slots=True)
class StoredShard:
    """A shard's position and the requested records, read atomically."""

    position: Position
    records: Sequence[bytes | None] = ()

    @property
    def column(self) -> RecordColumn:
        """The records as a column."""
        return RecordColumn.of(self.records)


@dataclass(frozen=True, slots=True)
class ReadBeliefs(Effect[Mapping[int, StoredShard]]):
    """Read, in one call for each shard, its position and the whole records of the given players."""

    players: Mapping[int, PlayerColumn]


@dataclass(frozen=True, slots=True)
class Application:
    """The data that one call writes to a shard, provided that `applied` still equals
    `position.start`, and the shard's epoch still equals `position.epoch`."""

    position: Position
    beliefs: BeliefColumn = field(repr=False)
    absent: int | None = None
    """The number of these beliefs that the shard did not have when they were read at
    `position.start`; None: not counted. The number must be the same when they are written, since
    any worker that applies parts moves `applied`. If it differs, the shard becomes VANISHED."""


@dataclass(frozen=True, slots=True)
class Apply(Effect[Mapping[int, bool]]):
    """Write to each shard by compare-and-set. The outcome is False for a shard whose `applied` or
    epoch had another value, so that nothing was written to it, and for one that became VANISHED."""

    applications: Mapping[int, Application]
    events: "Collection[Event]" = field(default=(), repr=False)
    """The events that the next Publish will send if the call succeeds. The driver may begin their
    transaction while this call runs; no consumer sees them before the transaction commits. Any
    effect other than Publish aborts it."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One `rating-changed` event, encoded."""

    shard: int
    key: bytes
    value: bytes
    event_id: bytes
    time: str  # `completed_at` of the event, as the producer reported it.
    trace: Trace | None = None  # The trace context of the round's record.


@dataclass(frozen=True, slots=True)
class Publish(Effect[None]):
    """Publish events and commit the shards' offsets in one transaction. If a driver began a
    transaction with the events of an Apply, it goes on with that transaction only if these events
    are equal (`Events.__eq__`: the same calls of the same shards). Otherwise it aborts it."""

    events: Collection[Event]
    offsets: Mapping[int, int]


# --- corrections, as both machines see them -----------------------------------------------------


class RecordedCorrection(msgspec.Struct, frozen=True):
    """A correction that was accepted, or one that waits for `corrections-applied`."""

    offset: int  # The offset of the correction's record.
    event_type: str
    correction: msgspec.Raw
    """The correction as JSON. Texts of unlimited length, such as its reason, are left out, and so
    is the new content of an amended round. Ladder events of older releases contain the reason."""
    at: int = -1
    """The offset at which the correction was applied; -1: it waits for `corrections-applied`."""

    @property
    def place(self) -> tuple[int, int]:
        """The correction's offset and that of its application. The pair is unique in its ladder."""
        return self.offset, self.at


CorrectionsByLadder = Mapping[str, Sequence[RecordedCorrection]]
"""The corrections in the ladder events of each ladder, in the order of the events."""


@dataclass(frozen=True, slots=True)
class NoteCorrections(Effect[None]):
    """Write the ladder events of corrections. They are in `ladders-noted` when this returns. An
    event that exists already stays as it is. It is written before a later round of the ladder is
    rated, so that a worker that takes the partition over knows for which players later rounds
    count."""

    corrections: CorrectionsByLadder


@dataclass(frozen=True, slots=True)
class NotedCorrections(Effect[CorrectionsByLadder]):
    """Read all ladder events of corrections that exist now."""


@dataclass(frozen=True, slots=True)
class ReadAgain(Effect[Sequence[Record]]):
    """Read records of a partition of `round-completed` from `first` to before `end`, in order: as
    many as one fetch delivers, and at least one if there is any."""

    partition: int
    first: int
    end: int
