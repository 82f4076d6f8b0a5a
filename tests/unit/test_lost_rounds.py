"""A log that lost records: how far it must be filled."""

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import any_ladder
from stream_rater.contract.record import Player, Record
from stream_rater.contract.season_ended import SeasonKept, encoded
from stream_rater.operations.corrected_rebuild import LastPublished
from stream_rater.operations.cutoff import Cutoff
from stream_rater.operations.lost_rounds import Closing, Reached, named_offsets
from stream_rater.pipeline.ladder_history import LadderLog, encode_replayed
from stream_rater.pipeline.ports import RecordedCorrection, Rejection, SourceCommit
from stream_rater.replay.checkpoint import CheckpointHead
from tests.builders.cases import cases
from tests.builders.machines import CONFIG, part, record
from tests.builders.memory_place import MemoryPlace
from tests.builders.memory_places import an_empty_place

LADDER = "a"
HOME = partition_of(LADDER, 2)


def a_place(rejected: int | None = None, season: int | None = None) -> MemoryPlace:
    """A place where rejections or standings of past seasons name the offset before this one."""
    place = an_empty_place(partitions=2)
    for partition in (0, 1):
        for _ in range(4):
            place.log.submit(partition, None)
    if rejected is not None:
        place.log.rejected.append(
            Rejection(Record(HOME, rejected - 1, b"x"), "bad-time", "late", "", "")
        )
    if season is not None:
        kept = SeasonKept(ladder=LADDER, season=1, started_at=None, ended_at="t", offset=season,
                          players=1, listed=1, pages=1)  # fmt: skip
        place.past.append(encoded(kept, kept.ended_at))
    return place


def a_head(*corrections: tuple[int, int], offset: int = 5, last: int = 4) -> CheckpointHead:
    return CheckpointHead(offset, b"", corrections, (last, 0), 0, "", 1)


def corrected(offset: int, at: int) -> LadderLog:
    log = LadderLog()
    log.corrections[LADDER] = [RecordedCorrection(offset, "round-voided", msgspec.Raw(b"{}"), at)]
    return log


def replayed(offset: int) -> LadderLog:
    log = LadderLog()
    for message in encode_replayed([offset if p == HOME else 0 for p in range(2)]):
        log.read(message)
    return log


PLAYER: Player = (LADDER, "x")


@cases(
    "evidence, reach",
    [
        ({}, 3),  # the committed offset
        ({"newest": {PLAYER: LastPublished(8, 0.0, 0.0)}}, 9), ({"notes": corrected(6, -1)}, 7),
        ({"notes": corrected(6, 9)}, 10), ({"notes": replayed(11)}, 11),
        ({"heads": [(LADDER, a_head())]}, 5), ({"heads": [(LADDER, a_head((3, 12)))]}, 13),
        ({"place": a_place(rejected=14)}, 14), ({"place": a_place(season=15)}, 16),
        ({"part": 17}, 18),
    ],
)  # fmt: skip
def test_offsets_are_known_by_whatever_names_them(evidence: dict[str, Any], reach: int) -> None:
    """The other partition is as it was."""
    committed = {HOME: SourceCommit(3), 1 - HOME: None}
    cutoff = Cutoff({}, {0: 0, 1: 0}, 1, everything=True, lost=[HOME])
    if "part" in evidence:
        cutoff.add([record(0, part((evidence.pop("part"), "x")))])
    given: dict[str, Any] = {
        "newest": {}, "notes": LadderLog(), "heads": (), "place": a_place(),
    }  # fmt: skip
    given |= evidence
    assert named_offsets(committed, cutoff, **given) == {HOME: reach, 1 - HOME: 0}


def test_a_wrong_offset_does_not_fill_a_disk() -> None:
    """An operator says how many records may be appended, if they are very many."""
    closing = Closing([HOME], a_place(), any_ladder(CONFIG), {}, {HOME: 104, 1 - HOME: 10**12})
    closing.check(100)
    with pytest.raises(Failed, match=r"names its offset 103: .* give --fill 100,"):
        closing.check(99)


@cases("lost", [{}, {0: "partition 0 lost some"}])
def test_the_warning_says_what_was_lost(lost: dict[int, str]) -> None:
    """And what becomes of it: rounds that were lost can be reported again."""
    warning = Reached({}, {}, lost, is_torn=True).warning
    assert ("Report the lost rounds again" in warning) is bool(lost)
    assert ("never published" in warning) is not bool(lost)


def test_parts_of_lost_rounds_are_no_cut_offs() -> None:
    """Nor are they in later rebuilds, as far as the first one replayed the log."""
    again = {"replayed": {0: 12}}
    for sent, options in ((12, {"everything": True, "lost": [0]}), (12, again), (0, again)):
        found = Cutoff({0: 2}, {0: sent}, 1, **options)
        found.add([record(0, part((4, "x"))), record(1, part((8, "x")))])
        event: Any = SimpleNamespace(ladder=LADDER, player="x", offset=8)
        found.add_published([event])
        assert list(found.named()) == [(LADDER, 8)]
        row = found.players.rows(PlayerColumn.of([PLAYER]))
        assert found.of(row, np.array([0])).tolist() == [11]
    found = Cutoff({0: 1}, {0: 12}, 1, replayed={0: 7})  # sent after that rebuild
    found.add([record(0, part((8, "x")))])
    assert found.of(found.players.rows(PlayerColumn.of([PLAYER])), np.array([0])).tolist() == [8]
