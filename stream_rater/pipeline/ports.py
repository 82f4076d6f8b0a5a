"""What the state machines ask of the world: effects, their outcomes, and the two kinds of trouble.

An effect is a frozen value; `ask` yields it and returns its outcome with the right type. Effects on
several shards are atomic per shard only.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from stream_rater.contract.record import Player, Record
from stream_rater.contract.tracecontext import Trace

T = TypeVar("T")


class Trouble(Exception):
    """An effect failed, or whether it happened is unknown: forget everything and start over."""


class LogTrouble(Trouble):
    """Kafka: a delivery, commit or transaction failed, is in doubt, or was fenced."""


class Regrouped(LogTrouble):
    """The group has another generation than at the last poll. Nothing of the commit happened, and
    the producer is as good as before: whoever polls, and so learns what is still theirs, may commit
    that again."""


class StoreTrouble(Trouble):
    """Redis: a call failed, or its outcome is unknown."""


class Denied(Exception):
    """Kafka or Redis does not let us in, or not do what we need. No trouble that a machine waits
    for: the worker ends."""


class CannotGoOn(Exception):
    """Nothing that a worker may do by itself helps: it ends, with one line that says what does."""


class OffsetsForgotten(CannotGoOn):
    """Kafka has forgotten the estimators' offsets, and nothing else tells them."""

    def __init__(self, least: Mapping[int, int]) -> None:
        told = ", ".join(f"partition {p} (not below {least[p]})" for p in sorted(least))
        super().__init__(
            "the estimators' group has no committed offset of round-completed any more for "
            f"{told}: Kafka forgets them some days after the last worker left "
            "(offsets.retention.minutes). Commit the offset after the last record that was "
            "finished, which stream_rater_next_offset told, and start again"
        )


class Resharded(CannotGoOn):
    """There are not as many shards any more as when the worker started. It ends: what it would
    write, and where, is as of before."""

    def __init__(self, shards: int, found: int) -> None:
        super().__init__(
            f"performance-estimated has {found} partitions and had {shards} when this worker "
            "started: stop all workers, run `stream-rater rebuild --replace` and start them again"
        )


class Repartitioned(CannotGoOn):
    """Partitions were added to `round-completed`: a ladder has no certain one any more."""

    def __init__(self, partition: int, partitions: int) -> None:
        super().__init__(
            f"round-completed has a partition {partition} and had {partitions} when this worker "
            "started: a ladder's rounds would lie in two partitions; begin with another "
            "topic_prefix and an empty database, and submit the rounds there"
        )


@dataclass(frozen=True, slots=True)
class Effect(Generic[T]):
    """Something to be done by the driver, with an outcome of type T."""


Step = Generator[Effect[Any], Any, T]
"""Part of a state machine: yields effects, returns a T."""


def ask(effect: Effect[T]) -> Step[T]:
    """Yield the effect; return its outcome."""
    outcome: T = yield effect
    return outcome


REGROUPING_S, REGROUPINGS = 0.05, 20
"""How long a poll takes after a commit was refused as Regrouped, and how often that may be."""

C = TypeVar("C", bound=Effect[None])


def insist(commit: Callable[[], C | None], learn: Callable[[], Step[None]]) -> Step[C | None]:
    """Commit what is ours, and, where Regrouped, what still is once `learn` has told. Returns what
    was done, None if nothing was ours; raises Regrouped when that goes on."""
    left = REGROUPINGS
    while (effect := commit()) is not None:
        try:
            yield from ask(effect)
            break
        except Regrouped:
            left -= 1
            if not left:
                raise
        yield from learn()
    return effect


PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


def pause_s(troubles: int) -> float:
    """How long to rest after so many troubles in a row: not at all, then ever longer."""
    return min(LONGEST_PAUSE_S, PAUSE_S * 2 ** min(troubles - 2, 10)) if troubles > 1 else 0.0


# --- the log, as both machines read it ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Polled:
    """What came of a poll: first what was lost, then what was gained, then records."""

    now_s: float
    """Monotonic seconds."""
    lost: frozenset[int] = frozenset()
    gained: frozenset[int] = frozenset()
    """Partitions newly owned; nothing is read of them before a Seek."""
    records: Sequence[Record] = ()


POLL_RECORDS = 10_000
"""Of those that are there a poll takes so many with the first."""


@dataclass(frozen=True, slots=True)
class Poll(Effect[Polled]):
    """Wait for records of the owned partitions, or a change of ownership, or the time-out."""

    timeout_s: float
    full: bool = False
    """Membership only, no records: the machine holds as many as it wants, or rests after trouble.
    Unless ownership changes, such a poll takes its time."""
    resting: frozenset[int] = frozenset()
    """Partitions of which nothing is wanted for now."""
    gather_s: float = 0.0
    """Once there is a record, how long to wait for others that come with it."""
    enough: int = POLL_RECORDS
    """With so many it need not wait."""


@dataclass(frozen=True, slots=True)
class Committed(Effect[Mapping[int, int | None]]):
    """The group's committed offsets, with no transaction pending on them; None: never committed."""

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Remains:
    """What the log tells of committed offsets of `round-completed` that Kafka forgot."""

    after_rejected: Mapping[int, int]
    """By partition the offset after its last record that `round-rejected` holds: none was below it.
    A partition without any is left out."""
    ends: Mapping[int, int]
    """By partition where the log ends: none was above it."""
    parts_deleted: bool
    """Whether parts were deleted, so that they do not tell of all rounds that were scattered."""


@dataclass(frozen=True, slots=True)
class LookForOffsets(Effect[Remains]):
    """Of partitions without a committed offset."""

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class LogStarts(Effect[Mapping[int, int]]):
    """The first offset that the log still holds, by partition of the input topic."""

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Seek(Effect[None]):
    """Read on from these offsets, with nothing left of what was fetched before; partitions that are
    no longer owned are ignored."""

    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class NewProducer(Effect[None]):
    """Destroy the producers and start others, fencing whatever the old ones left undecided."""


# --- what the estimator asks --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShardEnds(Effect[Sequence[int]]):
    """The end offset of every partition that `performance-estimated` has now."""


def shard_ends(shards: int) -> Step[Sequence[int]]:
    """The end offset of every shard; raises Resharded if there are not so many."""
    ends = yield from ask(ShardEnds())
    if len(ends) != shards:
        raise Resharded(shards, len(ends))
    return ends


@dataclass(frozen=True, slots=True)
class Priors:
    """A shard's `applied` and the headers asked for, read at one instant."""

    applied: int
    headers: bytes
    """record.HEADER_SIZE bytes a player, zeros where there is no belief."""


@dataclass(frozen=True, slots=True)
class ReadPriors(Effect[Mapping[int, Priors]]):
    """Of each shard, `applied` and the players' headers, in one call a shard."""

    players: Mapping[int, Sequence[Player]]


@dataclass(frozen=True, slots=True)
class Agree(Effect[Mapping[str, Sequence[str]]]):
    """Note in the log how ladders are rated of which nothing is noted yet; of rival notes the first
    counts (`story`). Returns what rounds may be rated by, as of now."""

    histories: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Scatter(Effect[Sequence[int]]):
    """Append parts, as (shard, bytes); returns their offsets once all are acknowledged."""

    parts: Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record that cannot be rated, and why."""

    record: Record
    code: str
    message: str
    ladder: str = ""
    round_id: str = ""
    """As far as they could be read."""


@dataclass(frozen=True, slots=True)
class CommitSource(Effect[None]):
    """One transaction: rejections, and the committed offsets of `round-completed`.

    A transaction, too, where there are no rejections. A plain commit that timed out may reach the
    broker later and set the offsets back, and records before them would be rejected twice: nothing
    fences it while its sender is in the group. A transaction is fenced by the next producer.
    """

    offsets: Mapping[int, int]
    rejections: Sequence[Rejection] = ()


# --- what the updater asks ----------------------------------------------------------------------


UNFINISHED = -1
"""`applied` of a shard that is being rebuilt: no log begins there, so no worker goes on from it."""

REBUILT: Player = ("", "rebuilt")
"""No player: its belief, where a rebuild left one, is the offset after the mark of that rebuild."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a shard's store has come."""

    applied: int = 0
    """The next offset of its partition: the store is the fold of all before it."""
    start: int = 0
    """`applied` before the last call."""
    fresh: bytes = b""
    """Which rows of the last call changed a belief: bits, in order, high bit first."""


@dataclass(frozen=True, slots=True)
class Held:
    """A shard's position and the records asked for, read at one instant."""

    position: Position
    records: Sequence[bytes | None] = ()


@dataclass(frozen=True, slots=True)
class ReadBeliefs(Effect[Mapping[int, Held]]):
    """Of each shard, its position and the players' whole records, in one call a shard."""

    players: Mapping[int, Sequence[Player]]


@dataclass(frozen=True, slots=True)
class Application:
    """What one call writes to a shard, if `applied` is still `position.start`."""

    position: Position
    beliefs: Sequence[tuple[Player, bytes]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Apply(Effect[Mapping[int, bool]]):
    """Compare and set, by shard; False where `applied` was another, and nothing was written."""

    applications: Mapping[int, Application]
    events: "Collection[Event]" = field(default=(), repr=False)
    """What the next effect will publish if all goes well: the log may take them in meanwhile, where
    nobody sees them. What another effect follows is as if it had never been."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One `rating-changed`, ready to be sent."""

    shard: int
    key: bytes
    value: bytes
    event_id: bytes
    time: str
    """When the round was completed, as reported."""
    trace: Trace | None = None
    """The context that the round was reported in."""


@dataclass(frozen=True, slots=True)
class Publish(Effect[None]):
    """One transaction: events, and the shards' committed offsets."""

    events: Collection[Event]
    offsets: Mapping[int, int]
