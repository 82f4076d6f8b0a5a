"""How seeds and resets are sent."""

from collections.abc import Iterator

import numpy as np
import pytest

from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.events import MOST_BYTES
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_work import (
    PartOptions,
    QueuedSeed,
    SeedWork,
    by_turn,
)
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import Scatter
from stream_rater.rating.parameters import Season
from stream_rater.rating.stages import RatingRule, rule_of
from tests.builders.cases import cases
from tests.builders.machines import CONFIG, RULE, part_in
from tests.builders.seeding import read, resetting_record, seeding_record

# --- how seeds and resets are sent ----------------------------------------------------------------

SHARDS = 3


def sent_of(
    *records: Record, rows: int = 5000, shards: int = SHARDS, rule: RatingRule = RULE
) -> tuple[list[tuple[int, Part]], dict[int, Fingerprints]]:
    """The parts of these records, each with its shard, and the players that are pending then."""
    seeds = [read(each) for each in records]
    work = SeedWork([QueuedSeed(each) for each in seeds], seeds, rule, PartOptions(shards, rows))
    found: list[dict[int, Fingerprints]] = []
    step = work.step(lambda ends, players: found.append(dict(players)), [None] * shards)
    effect = next(step)
    assert isinstance(effect, Scatter)
    assert max(len(message) for _, message in effect.parts) <= MOST_BYTES
    with pytest.raises(StopIteration) as done:
        step.send(list(range(len(effect.parts))))
    assert done.value.value is True
    (given,) = found
    return [(s, part_in(message)) for s, message in effect.parts], given


def rows_of(parts: list[tuple[int, Part]]) -> Iterator[tuple[int, str, int, float]]:
    for shard, each in parts:
        offsets = each.offset[each.round_index].tolist()
        columns = each.names.texts(), offsets, each.evidence[:, 0].tolist()
        yield from ((shard, *row) for row in zip(*columns, strict=True))


@cases("kind", ["seed", "reset"])
def test_a_player_in_several_records(kind: str) -> None:
    """Has one row in each part, in the order of the records."""

    def record(offset: int, *names: str) -> Record:
        return (
            seeding_record(offset, *names) if kind == "seed" else resetting_record(offset, *names)
        )

    parts, players = sent_of(
        record(1, "a"), record(2, "b"), record(3, "a"), record(4, "a"), shards=1
    )
    found = [[(name, at) for _, name, at, _ in rows_of([each])] for each in parts]
    assert found == [[("a", 1), ("b", 2)], [("a", 3)], [("a", 4)]]
    assert len(np.unique(players[0])) == 2


def test_parts_are_cut_by_rows_and_bytes() -> None:
    """In order; also those of a ladder with thousands of seasons, and of the longest ids."""
    parts, _ = sent_of(seeding_record(1, *"abcde"), rows=2, shards=1)
    assert ["".join(part.names.texts()) for _, part in parts] == ["ab", "cd", "e"]
    rule = rule_of(CONFIG, tuple(Season(n, 0.5, 100.0) for n in range(1, 30_000)))
    names = [f"{i:0128}" for i in range(5000)]
    parts, _ = sent_of(seeding_record(1, *names), shards=1, rule=rule)
    assert [name for _, part in parts for name in part.names.texts()] == names
    assert len(parts) > 2


def test_nothing_is_sent_where_nobody_is_left() -> None:
    """Corrections may have edited all rows away. Names have turns, each once in a turn."""
    seed = read(seeding_record(1, "a"))
    work = SeedWork([QueuedSeed(seed)], [], RULE, PartOptions(SHARDS, 10))
    with pytest.raises(StopIteration) as done:
        next(work.step(lambda ends, players: pytest.fail("nothing is pending"), [None] * SHARDS))
    assert done.value.value is True
    found = by_turn(StringColumn.of(["a", "b", "a", "c", "a", "b"]))
    assert [each.tolist() for each in found] == [[0, 1, 3], [2, 5], [4]]
    assert [each.tolist() for each in by_turn(StringColumn.of(["a", "b"]))] == [[0, 1]]
