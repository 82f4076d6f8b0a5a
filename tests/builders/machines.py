"""Parts (also as release 0.1.0 read them), pending rounds, and machines driven by hand."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.contract.errors import Trouble
from stream_rater.contract.record import Record
from stream_rater.pipeline import ports
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.parts import schema
from stream_rater.pipeline.parts.schema import Part, RoundInPart
from stream_rater.pipeline.ports import Effect, Position, StoredShard
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.rating import record as belief_record
from stream_rater.rating.model import newcomers
from stream_rater.rating.parameters import EloMMR
from stream_rater.rating.stages import RatingRule, rule_of
from stream_rater.rounds.decoder import RoundDecoder
from tests.rounds import as_json, ranked

CONFIG = EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=1.0, history=4)
RULE = rule_of(CONFIG)

NOWHERE = Position()  # The position of a shard whose store is empty.

E = TypeVar("E", bound=Effect[Any])


def part(
    *rounds: tuple[int, Sequence[str]], ladder: str = "a", performance: float = 1600.0,
    shards: int = 0,
) -> Part:  # fmt: skip
    """A part of rounds given as (offset, players, one letter each), the winner's letter first. It
    is cut for this number of shards."""
    players = [player for _, names in rounds for player in names]
    return Part(
        rules=[RULE],
        rounds=[
            RoundInPart(offset, 0, 1000 * offset, f"r{offset}", ladder, f"time {offset}")
            for offset, _ in rounds
        ],
        round_index=np.repeat(np.arange(len(rounds)), [len(names) for _, names in rounds]),
        place=np.array([1 + i for _, names in rounds for i in range(len(names))], np.int32),
        evidence=np.array([[performance, 40_000.0, 1_000.0]] * len(players)).reshape(-1, 3),
        names=StringColumn.of(players),
        shards=shards,
    )


def record(offset: int, of: Part | bytes | None, shard: int = 0) -> Record:
    return Record(shard, offset, schema.encode(of) if isinstance(of, Part) else of)


def a_belief(mu: float = 1500.0, **header: float) -> bytes:
    """The stored belief of one player, with these values in its header."""
    beliefs = newcomers(1, 1, mu, 80.0, coded=True)
    for name, value in header.items():
        beliefs.header[name] = value
    return belief_record.encode(beliefs)[0]


class Recorder(Observer):
    def __init__(self) -> None:
        self.troubles: list[str] = []
        self.refused: list[tuple[int, str]] = []
        self.refused_at: list[int | None] = []
        self.opened: list[int] = []
        self.missing: list[tuple[int, int, int]] = []
        self.ignored: list[tuple[int, int]] = []
        self.replayed: list[int] = []
        self.refilled: list[tuple[int, int]] = []
        self.settled: list[int] = []
        self.resumed = 0
        self.at_odds: list[tuple[str, str]] = []
        self.agreed: set[str] = set()
        self.paused: list[frozenset[int]] = []
        self.reading: set[int] = set()

    def reading_back(self, partitions: Collection[int]) -> None:
        self.reading = set(partitions)

    def shard_refilled(self, shard: int, offset: int) -> None:
        self.refilled.append((shard, offset))

    def started_over(self, trouble: Trouble) -> None:
        self.troubles.append(str(trouble))

    def shard_refused(self, shard: int, reason: str, offset: int | None = None) -> None:
        self.refused.append((shard, reason))
        self.refused_at.append(offset)

    def shard_opened(self, shard: int) -> None:
        self.opened.append(shard)

    def ladder_refused(self, ladder: str, offset: float, reason: str) -> None:
        self.at_odds.append((ladder, reason))

    def ladders_agreed(self, ladders: Iterable[str]) -> None:
        self.agreed.update(ladders)

    def rounds_missing(self, partition: int, committed: int, start: int) -> None:
        self.missing.append((partition, committed, start))

    def part_ignored(self, shard: int, offset: int, reason: str) -> None:
        self.ignored.append((shard, offset))

    def beliefs_applied(
        self, shard: int, end: int, applied: int, repeated: int, *, refilled: bool
    ) -> None:
        if refilled:
            self.replayed.append(applied)

    def events_published(self, events: int, *, settled: bool) -> None:
        if settled:
            self.settled.append(events)

    def partitions_paused(self, partitions: frozenset[int]) -> None:
        self.paused.append(partitions)

    def rounds_resumed(self, rounds: int) -> None:
        self.resumed += rounds


class ByHand:
    """A machine whose effects are answered one by one, each expected by its kind."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self.effect: Effect[Any] = next(machine)

    def _hold(self, effect: Effect[Any]) -> None:
        """Make this the effect to be answered next."""
        self.effect = effect

    def expect(self, kind: type[E], **having: Any) -> E:
        """The effect to be answered, which must be of this kind and have these attributes."""
        assert isinstance(self.effect, kind), self.effect
        for name, value in having.items():
            assert getattr(self.effect, name) == value
        return self.effect

    def answer(self, kind: type[E], outcome: Any = None, **having: Any) -> E:
        effect = self.expect(kind, **having)
        self._hold(self._machine.send(outcome))
        return effect

    def fail(self, kind: type[E], trouble: Exception) -> None:
        self.expect(kind)
        self._hold(self._machine.throw(trouble))


class Agreed(ByHand):
    """An estimator on whose ladders file all workers agree: each `Agree` is answered at once."""

    def _hold(self, effect: Effect[Any]) -> None:
        while isinstance(effect, ports.Agree):
            effect = self._machine.send(effect.histories)
        super()._hold(effect)


def names(players: Sequence[tuple[str, str]]) -> str:
    return "".join(player for _, player in players)


def updating(observer: Observer, shards: int) -> ByHand:
    """An updater among so many shards at its first poll."""
    return ByHand(Updater(shards, observer=observer, idle_s=0.1, rows_per_call=10).run())


def opened(
    hand: ByHand, positions: Mapping[int, Position], committed: Mapping[int, int | None],
    starts: Mapping[int, int] | None = None, end: int = 100, shards: int = 0,
    tails: Mapping[int, int | None] | None = None,
) -> None:  # fmt: skip
    """Answer all effects of opening shards, except the seek. `tails`: the checksums of the records
    before `applied` in the log, where they differ from those that were applied."""
    hand.answer(
        ports.ReadBeliefs, {s: StoredShard(position, [None]) for s, position in positions.items()}
    )
    hand.answer(ports.Committed, committed)
    hand.answer(ports.LogStarts, starts or dict.fromkeys(positions, 0))
    hand.answer(ports.ShardEnds, [end] * (shards or len(positions)))
    if known := {s: each.tail for s, each in positions.items() if each.tail is not None}:
        hand.answer(
            ports.PartSums, tails or known, offsets={s: positions[s].applied - 1 for s in known}
        )
    if isinstance(hand.effect, ports.Publish):
        new = hand.answer(ports.Publish).offsets
        assert new == {s: 0 for s in new if committed[s] is None and not positions[s].applied}


SHARDS = 3


def pending_of(
    sizes: Sequence[int], *, offsets: Sequence[int] | None = None, ladders: Sequence[str] = (),
    known: Ladders = ANY_LADDER, round_decoder: RoundDecoder | None = None,
) -> PendingRounds:  # fmt: skip
    """Pending rounds of these sizes, by default at offsets 10, 20, ...; no player is in two."""
    records, first = [], 0
    for i, size in enumerate(sizes):
        players = [f"p{k}" for k in range(first, first + size)]
        ladder = ladders[i] if i < len(ladders) else "ladder"
        data = as_json(*ranked(range(1, size + 1), players), round_id=f"r{i}", ladder=ladder)
        records.append(Record(0, offsets[i] if offsets else 10 * i + 10, data, received_s=4e9))
        first += size
    rounds, rejections = (round_decoder or RoundDecoder(known)).decode(records)
    assert rejections == [None] * len(records)
    return estimation.pending_rounds(records, rounds, SHARDS)


class LastRound(msgspec.Struct, frozen=True, array_like=True):
    offset: int
    rule: int
    time: int
    round_id: str
    ladder: str
    completed_at: str


class LastPart(msgspec.Struct, frozen=True, array_like=True):
    version: int
    rules: tuple[RatingRule, ...]
    rounds: tuple[LastRound, ...]
    round_index: bytes
    place: bytes
    evidence: bytes
    players: list[str]


def as_last(part: bytes) -> bytes:
    """The part as release 0.1.0 would have decoded and encoded it."""
    return msgspec.msgpack.encode(msgspec.msgpack.decode(part, type=LastPart))
