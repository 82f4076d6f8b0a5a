"""How seeds and resets are sent."""

from collections.abc import Iterator

import numpy as np
import pytest

from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.sharding import shards_of
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.record import Record
from stream_rater.contract.sizes import MOST_BYTES
from stream_rater.pipeline.corrections.correction_work import PartOptions
from stream_rater.pipeline.corrections.seed_work import QueuedSeed, SeedWork, by_turn
from stream_rater.pipeline.parts import seed_parts
from stream_rater.pipeline.parts.seed_parts import SeedPart
from stream_rater.pipeline.ports import Scatter
from stream_rater.rating.parameters import Season
from stream_rater.rating.stages import RatingRule, rule_of
from tests.builders.cases import cases
from tests.builders.machines import CONFIG, RULE
from tests.builders.seeding import read, resetting_record, seeding_record

SHARDS = 3


def sent(
    *records: Record, rows: int = 5000, shards: int = SHARDS, rule: RatingRule = RULE
) -> tuple[list[tuple[int, SeedPart]], dict[int, Fingerprints]]:
    """The parts of these records, each with its shard, and the players that are pending then."""
    seeds = [read(each) for each in records]
    work = SeedWork([QueuedSeed(each) for each in seeds], seeds, rule, PartOptions(shards, rows))
    found: list[dict[int, Fingerprints]] = []
    step = work.step(lambda ends, players: found.append(dict(players)))
    effect = next(step)
    assert isinstance(effect, Scatter)
    assert max(len(message) for _, message in effect.parts) <= MOST_BYTES
    with pytest.raises(StopIteration) as done:
        step.send(list(range(len(effect.parts))))
    assert done.value.value is True
    (given,) = found
    return [(s, seed_parts.decode(message)) for s, message in effect.parts], given


def rows_of(parts: list[tuple[int, SeedPart]]) -> Iterator[tuple[int, str, int, float]]:
    """The shard, player, offset and mu of each row."""
    for shard, part in parts:
        columns = part.names.texts(), part.offset.tolist(), part.mu.tolist()
        yield from ((shard, *row) for row in zip(*columns, strict=True))


def test_every_row_goes_to_the_shard_of_its_player() -> None:
    """Those of adjacent records are in one part. Their players have a pending part."""
    names = [f"p{i}" for i in range(40)]
    parts, players = sent(seeding_record(3, *names[:25]), seeding_record(8, *names[25:], mu=1111.0))
    homes = shards_of(names, SHARDS).tolist()
    due = {
        (home, name, 3 if i < 25 else 8, 1700.0 if i < 25 else 1111.0)
        for i, (name, home) in enumerate(zip(names, homes, strict=True))
    }
    found = list(rows_of(parts))
    assert (set(found), len(found), len(parts)) == (due, 40, SHARDS)
    assert {shard: len(each) for shard, each in players.items()} == {
        shard: homes.count(shard) for shard in range(SHARDS)
    }
    assert all(part.shards == SHARDS for _, part in parts)


@cases("kind", ["seed", "reset"])
def test_a_player_in_several_records(kind: str) -> None:
    """Has one row in each part, in the order of the records."""

    def record(offset: int, *names: str) -> Record:
        return (
            seeding_record(offset, *names) if kind == "seed" else resetting_record(offset, *names)
        )

    parts, players = sent(record(1, "a"), record(2, "b"), record(3, "a"), record(4, "a"), shards=1)
    found = [[(name, at) for _, name, at, _ in rows_of([each])] for each in parts]
    assert found == [[("a", 1), ("b", 2)], [("a", 3)], [("a", 4)]]
    assert len(np.unique(players[0])) == 2


def test_parts_are_cut_by_rows_and_bytes() -> None:
    """In order; also those of a ladder with thousands of seasons, and players with the longest
    ids."""
    parts, _ = sent(seeding_record(1, *"abcde"), rows=2, shards=1)
    assert ["".join(part.names.texts()) for _, part in parts] == ["ab", "cd", "e"]
    rule = rule_of(CONFIG, tuple(Season(n, 0.5, 100.0) for n in range(1, 30_000)))
    names = [f"{i:0128}" for i in range(5000)]
    parts, _ = sent(seeding_record(1, *names), shards=1, rule=rule)
    assert [name for _, part in parts for name in part.names.texts()] == names
    assert len(parts) > 2


def test_nothing_is_sent_where_nobody_is_left() -> None:
    """Corrections may have edited all rows away. Names have turns, each once in a turn."""
    seed = read(seeding_record(1, "a"))
    work = SeedWork([QueuedSeed(seed)], [], RULE, PartOptions(SHARDS, 10))
    with pytest.raises(StopIteration) as done:
        next(work.step(lambda ends, players: pytest.fail("nothing is pending")))
    assert done.value.value is True
    found = by_turn(StringColumn.of(["a", "b", "a", "c", "a", "b"]))
    assert [each.tolist() for each in found] == [[0, 1, 3], [2, 5], [4]]
    assert [each.tolist() for each in by_turn(StringColumn.of(["a", "b"]))] == [[0, 1]]
