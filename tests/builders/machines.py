"""Parts (also as the last release sent them), pending rounds, and machines driven by hand."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.contract.errors import Trouble
from stream_rater.contract.record import Record, Trace
from stream_rater.contract.seeds import SEEDS
from stream_rater.pipeline import ports
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.observer import Observer, Published
from stream_rater.pipeline.parts import decoder, legacy, schema
from stream_rater.pipeline.parts import unpacking as at
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import Effect, Position, StoredShard
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.rating import record as belief_record
from stream_rater.rating.model import newcomers
from stream_rater.rating.parameters import EloMMR
from stream_rater.rating.stages import rule_of
from stream_rater.rounds.decoder import RoundDecoder
from tests.rounds import as_json, ranked

CONFIG = EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=1.0, history=4)
RULE = rule_of(CONFIG)

NOWHERE = Position()  # The position of a shard whose store is empty.

E = TypeVar("E", bound=Effect[Any])


class RoundInPart(NamedTuple):
    """A record of a part."""

    offset: int
    rule: int
    time: int
    round_id: str
    ladder: str
    completed_at: str
    trace: Trace | None = None


def rounds_in(part: Part) -> list[RoundInPart]:
    numbers = part.offset.tolist(), part.rule.tolist(), part.time.tolist()
    texts = part.round_id, part.ladder, part.completed_at, part.trace
    return [RoundInPart(*values) for values in zip(*numbers, *texts, strict=True)]


def columns_of(*rounds: RoundInPart) -> dict[str, Any]:
    """The columns of a part's records, by name."""
    columns: dict[str, Any] = {
        name: [getattr(each, name) for each in rounds] for name in RoundInPart._fields
    }
    return columns | {name: np.array(columns[name], np.int64) for name in RoundInPart._fields[:3]}


def with_rounds(part: Part, rounds: Iterable[RoundInPart]) -> Part:
    """The part with these rounds in place of its own."""
    return replace(part, **columns_of(*rounds))


def part(
    *rounds: tuple[int, Sequence[str]], ladder: str = "a", performance: float = 1600.0,
    shards: int = 0,
) -> Part:  # fmt: skip
    """A part of rounds given as (offset, players, one letter each), the winner's letter first. It
    is cut for this number of shards."""
    players = [player for _, names in rounds for player in names]
    return Part(
        rules=[RULE],
        **columns_of(
            *(
                RoundInPart(offset, 0, 1000 * offset, f"r{offset}", ladder, f"time {offset}")
                for offset, _ in rounds
            )
        ),
        round_index=np.repeat(np.arange(len(rounds)), [len(names) for _, names in rounds]),
        place=np.array([1 + i for _, names in rounds for i in range(len(names))], np.int32),
        evidence=np.array([[performance, 40_000.0, 1_000.0]] * len(players)).reshape(-1, 3),
        names=StringColumn.of(players),
        shards=shards,
    )


def part_in(
    message: bytes, kernel: int = KERNEL_VERSION, *, oldest: int = schema.OLDEST_KERNEL
) -> Part:
    """The part that a message was encoded from. Raises what `decoder.read` raises."""
    view = decoder.read(message, kernel, oldest=oldest)
    rows, texts = view.decoded, [(at.ID, at.ID_END), (at.LADDER, at.LADDER_END), (at.AT, at.AT_END)]
    ids, ladders, times = (StringColumn(rows.data, *rows.rounds[[*e]]).texts() for e in texts)
    traces = [rows.traces.get(r) for r in range(rows.rounds.shape[1])]
    beliefs = rows.beliefs if view.cause and view.cause not in SEEDS else None
    evidence = rows.evidence[:, : 3 if np.isnan(rows.evidence[:, 3]).all() else 4]
    return Part(
        rows.rules, rows.rounds[at.OFFSET], rows.rounds[at.RULE], rows.rounds[at.TIME], ids,
        ladders, times, traces, rows.round, rows.place.astype(np.int32), evidence,
        rows.players.names, view.shards, view.cause, view.threshold, beliefs,
    )  # fmt: skip


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

    def events_published(self, events: int, parts: Iterable[Published], *, settled: bool) -> None:
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


def as_last(part: Part) -> bytes:
    """The message by which the last release would have sent this part."""
    rounds, names = rounds_in(part), part.names.texts()
    index, place = part.round_index.astype("<i4").tobytes(), part.place.astype("<i4").tobytes()
    if part.beliefs is not None:
        ((offset, _, _, round_id, ladder, at, _),), (rule,) = rounds, part.rules
        message: tuple[object, ...] = (
            legacy.CORRECTION, rule.kernel, part.shards, offset, ladder, part.cause, round_id, at,
            rule, part.threshold, names, part.beliefs.strings(),
        )  # fmt: skip
    elif part.cause:
        records = [(each.offset, each.time, each.round_id, each.completed_at) for each in rounds]
        kinds = zip(part.evidence.T, ("<f4", "<f4", "<i4"), strict=False)
        message = (
            legacy.SEEDED, part.rules[0].kernel, part.shards, part.cause, rounds[0].ladder,
            part.rules[0], records, index, *(of.astype(kind).tobytes() for of, kind in kinds),
            names,
        )  # fmt: skip
    else:
        of = part.evidence[:, : 3 if np.isnan(part.evidence[:, 3:]).all() else 4]
        message = (
            legacy.ROUNDS, part.rules, rounds, index, place, of.astype("<f8").tobytes(), names,
            part.shards,
        )  # fmt: skip
    return msgspec.msgpack.encode(message)
