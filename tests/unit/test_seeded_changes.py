"""What seeds and resets do to a shard: records and events."""

import dataclasses
import random
from collections.abc import Sequence

import numpy as np
import pytest
import structlog
from msgspec import structs

from stream_rater.columns.strings import StringColumn
from stream_rater.contract.events import Round, joined, to_json
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import RESET, SEEDED
from stream_rater.pipeline.parts import schema
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import Position, StoredShard
from stream_rater.pipeline.updater.belief_changes import build_given_events_again, compute_given
from stream_rater.pipeline.updater.changes import Change, Disagreement
from stream_rater.pipeline.updater.shard import Shard, ShardBatch
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.rating import record
from stream_rater.rating.model import newcomers
from stream_rater.rating.parameters import Season
from stream_rater.rating.stages import RatingRule, rule_of
from stream_rater.replay.rating_changes import seed_changed
from stream_rater.runtime import log
from stream_rater.runtime.metrics import Metrics
from stream_rater.runtime.observer import ServiceObserver
from tests.builders.cases import cases
from tests.builders.machines import CONFIG, RULE, RoundInPart, columns_of, rounds_in
from tests.builders.seeding import TIME, seed_part


def batch_of(part: Part, offset: int = 0) -> ShardBatch:
    shard = Shard.at(Position(applied=offset), offset, 1)
    shard.read(Record(0, offset, schema.encode(part)))
    return ShardBatch({0: shard.cut(10)})


def applied(part: Part, *records: bytes | None) -> Change:
    """The change that a part makes to these records of its players."""
    return compute_given(batch_of(part), {0: StoredShard(Position(), list(records))})[0]


def again(part: Part, change: Change, records: Sequence[bytes | None]) -> list[bytes]:
    """The events that are built again from what a change stored."""
    written = dict(change.beliefs)
    names = [(part.ladder[0], each) for each in part.names.texts()]
    stored = [written.get(name, old) for name, old in zip(names, records, strict=True)]
    events = build_given_events_again(0, batch_of(part), StoredShard(change.position, stored), 0)
    return [each.value for each in events]


def belief(*, rounds: int = 3, last: int = 5, unannounced: int = 0, **values: float) -> bytes:
    beliefs = newcomers(1, 1, RULE.initial_mu, RULE.initial_sigma, coded=True)
    header = beliefs.header
    header["rounds"], header["last"], header["untold"] = rounds, last, unannounced
    for name, value in ({"mu": 1612.5, "sigma": 91.0, "previous_mu": 1700.0} | values).items():
        header[name] = value
    return record.encode(beliefs)[0]


def header_of(data: bytes) -> np.void:
    return record.decode([data], 0, 0.0, 1.0).header[0]


def test_who_takes_a_seed_or_a_reset() -> None:
    """A seed is for players without a round, a reset for others. The position moves anyhow."""
    stored = [None, belief(), belief(rounds=0), belief(rounds=0, last=9), belief(last=9)]
    change = applied(seed_part((9, "abcde")), *stored)
    assert [player for (_, player), _ in change.beliefs] == ["a", "c"]
    assert (change.rows, change.fresh, change.without_effect, change.absent) == (5, 2, 1, 1)
    assert [each.key for each in change.events] == [b"a:a", b"a:c"]
    assert header_of(change.beliefs[0][1])["last"] == 9
    stored = [None, belief(), belief(rounds=0), belief(last=9), belief(last=8)]
    change = applied(seed_part((9, "abcde"), kind=RESET, sigma=200.0), *stored)
    assert [player for (_, player), _ in change.beliefs] == ["b", "e"]
    assert (change.rows, change.fresh, change.without_effect, change.absent) == (5, 2, 2, 0)
    change = applied(seed_part((9, "ab")), belief(), belief(last=9))
    assert (len(change.beliefs), len(change.events), change.position.applied) == (0, 0, 1)
    assert again(seed_part((9, "ab")), change, [belief(), belief(last=9)]) == []


NAMES = ["ann", "b:b", "%", 'c"d', "ü", "e\\", "f" * 128]


def some_part(kind: str, rule: RatingRule) -> Part:
    rng = random.Random(1)
    records = columns_of(
        RoundInPart(7, 0, 1000, "r:1", "l:1", TIME), RoundInPart(12, 0, 1001, 's"2', "l:1", TIME),
        RoundInPart(10**9, 0, 1002, "%", "l:1", "2026-11-25T17:00:00.25+01:00"),
    )  # fmt: skip
    size = len(NAMES)
    single = [float(np.float32(rng.uniform(900.0, 2100.0))) for _ in NAMES]
    sigma, rounds = np.full(size, float(np.float32(77.7))), np.arange(1.0, size + 1.0)
    return Part(
        rules=[rule], **records, round_index=np.arange(size) % 3, place=np.zeros(size, np.int32),
        evidence=np.column_stack((np.array(single), sigma, rounds)),
        names=StringColumn.of(NAMES), shards=1, cause=kind,
    )  # fmt: skip


@cases("kind", [SEEDED, RESET])
@cases("rule", [
    RULE, rule_of(CONFIG, (Season(3, 0.5, 100.0),)),
    rule_of(structs.replace(CONFIG, floor=1500.0, provisional_rounds=3)),
])  # fmt: skip
def test_events_have_the_bytes_of_their_struct(kind: str, rule: RatingRule) -> None:
    """As a replay makes them, for players published before and for others; and when built again."""
    part = some_part(kind, rule)
    stored: list[bytes | None] = [belief(rounds=0 if kind == SEEDED else 3) for _ in NAMES]
    stored[1] = belief(rounds=0 if kind == SEEDED else 3, unannounced=1)
    if kind == SEEDED:
        stored[0] = None
    change = applied(part, *stored)
    found = list(change.events)
    assert [each.value for each in found] == again(part, change, stored)
    assert len(found) == len(NAMES)
    initial = rule.initial_mu, rule.initial_sigma
    for i, (event, (_, data)) in enumerate(zip(found, change.beliefs, strict=True)):
        now, head = header_of(data), rounds_in(part)[i % 3]
        shown = (1700.0, 350.0) if i == 1 else (1612.5, 91.0)
        shown = initial if stored[i] is None else shown
        values = float(now["mu"]), float(now["sigma"]), *shown
        place = Round(round_id=head.round_id, ladder="l:1", completed_at=head.completed_at)
        due = seed_changed(kind, place, NAMES[i], values, int(now["rounds"]), head.offset, rule)
        assert event.value == to_json(due)
        assert (event.event_id, event.time) == (due.event_id.encode(), head.completed_at)
        assert event.key == joined("l:1", NAMES[i]).encode()


def test_events_before_the_committed_offset_are_published() -> None:
    """They are not built again, and notes that do not fit are a disagreement."""
    part = seed_part((9, "ab"))
    change = applied(part, None, None)
    stored = StoredShard(change.position, [data for _, data in change.beliefs])
    assert not build_given_events_again(0, batch_of(part), stored, 1)
    assert len(build_given_events_again(0, batch_of(part), stored, 0)) == 2
    damaged = StoredShard(dataclasses.replace(change.position, fresh=b""), stored.records)
    with pytest.raises(Disagreement):
        build_given_events_again(0, batch_of(part), damaged, 0)


def test_rows_are_counted_by_what_they_did() -> None:
    """Applied, applied before, or without effect, which is logged. Sent seeds are counted, too."""
    metrics = Metrics()
    part, records = seed_part((9, "abcd")), [None, belief(), belief(), belief(last=9)]
    change = compute_given(batch_of(part), {0: StoredShard(Position(), records)})[0]
    with structlog.testing.capture_logs() as lines:
        updater = Updater(1, observer=ServiceObserver(metrics, "updater", log.logger("updater")))
        updater._report(0, change, refilled=False)
    value = metrics.registry.get_sample_value
    assert value("stream_rater_updates_total", {"outcome": "applied"}) == 1
    assert value("stream_rater_updates_total", {"outcome": "repeated"}) == 1
    assert value("stream_rater_seed_rows_without_effect_total") == 2
    (line,) = [each for each in lines if each["log_level"] == "warning"]
    assert (line["shard"], line["offset"], line["players"]) == (0, 1, 2)
    metrics = Metrics()
    ServiceObserver(metrics, "estimator", log.logger("estimator")).seeded("a", 0, 7, 5000)
    assert metrics.registry.get_sample_value("stream_rater_seeds_total") == 1
