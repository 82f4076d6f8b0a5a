"""A rebuild: how far each player reaches, and what is written."""

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from unittest.mock import patch

import msgspec
import numpy as np
import pytest

from stream_rater.adapters.memory import Store
from stream_rater.columns.arrays import Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import DEFAULT_RATING, any_ladder
from stream_rater.contract.record import Player, Record
from stream_rater.operations import rebuild
from stream_rater.operations.cutoff import Cutoff, Misplaced, Offsets
from stream_rater.operations.lost_rounds import reached
from stream_rater.operations.rebuild_store import Rebuild, StoreInUse, Write, fill_store, past_marks
from stream_rater.pipeline.parts import schema
from stream_rater.pipeline.parts.schema import OLDEST_KERNEL, NotAPart, Part, UnknownPart, mark
from stream_rater.pipeline.ports import (
    REBUILT,
    UNFINISHED,
    Position,
    SourceCommit,
    SourceTail,
)
from stream_rater.pipeline.updater.shard import Shard
from stream_rater.rating import stages
from stream_rater.rating.model import Evidence
from tests.builders.cases import cases
from tests.builders.lines import a_record, a_round
from tests.builders.machines import CONFIG, part, part_in, record, rounds_in
from tests.builders.memory_places import an_empty_place

LADDERS = any_ladder(CONFIG)
SENT = {0: 100, 1: 7, 2: 0}
A: Player = ("a", "a")
TOO_OLD = 1  # A kernel whose parts are read by the decoder alone.


def at_home(of: Part, shard: int) -> Part:
    """Those of its rows whose players belong to this one of three shards."""
    return of.take(np.flatnonzero(shards_of(of.players, 3) == shard))


def contents(each: Record) -> list[tuple[Player, int]]:
    """The player and the round's offset of each row of a part; nothing, if it is no part."""
    try:
        of = part_in(each.value or b"", oldest=0)
    except NotAPart:
        return []
    rounds = rounds_in(of)
    own = [rounds[i] for i in of.round_index.tolist()]
    return [((r.ladder, name), r.offset) for r, name in zip(own, of.players, strict=True)]


def of_a(cutoff: Cutoff, partition: int = 0) -> int:
    rows = cutoff.players.rows(PlayerColumn.of([A]))
    return int(cutoff.of(rows, np.array([partition]))[0])


def cutoff(g: int, *parts: tuple[int, str], sent: Offsets = SENT) -> Cutoff:
    """Of one shard with parts of one round each, as (source offset, players)."""
    found = Cutoff({0: g}, sent, 1)
    found.add([record(offset, part(each)) for offset, each in enumerate(parts)])
    return found


def test_nobody_reaches_less_than_the_least() -> None:
    """So earlier rounds need no check. Shards continue after their marks where nothing waits."""
    two = {0: 100, 1: 7}
    assert cutoff(1, (5, "b"), (9, "a"), sent=two).least() == 5
    assert cutoff(1, (8, "b"), (9, "a"), sent=two).least() == 6
    assert cutoff(0, (3, "b"), (9, "a"), sent=two).least() == 2
    assert cutoff(0, sent={0: 100}).least() == 99
    assert cutoff(0, (3, "b"), sent={0: 100, 1: 0}).least() == -1
    assert past_marks({1: 7, 2: 7}, {0: 0, 1: 7, 2: 8}) == {0: 1, 1: 8}
    found = cutoff(2, (5, "a"))
    found.add([record(1, mark(1, b"", 0)), record(2, mark(1, b"", 0))])
    assert of_a(found) == 5


def test_parts_that_cannot_be_read() -> None:
    """A foreign message is passed over, an older part is read, any other ends the rebuild."""
    found = Cutoff({}, {0: 0}, 1, kernel=1)
    found.add([record(0, b"litter")])
    with pytest.raises(UnknownPart):
        found.add([record(1, part((5, "a")))])
    Cutoff({}, {0: 0}, 1, kernel=99).add([record(1, part((5, "a")))])
    with pytest.raises(UnknownPart, match="offset 7: batch not decompressed"):
        Cutoff({}, {0: 0}, 1).add([Record(0, 7, None, unreadable="batch not decompressed")])


def by_kernel(version: int, of: Part) -> Part:
    """The same part, as a release with this kernel writes it."""
    return replace(of, rules=[msgspec.structs.replace(each, kernel=version) for each in of.rules])


OLD = by_kernel(TOO_OLD, part((8, "ah")))

IN_THREE_SHARDS = [
    record(offset, at_home(of, shard) if isinstance(of, Part) else of, shard)
    for offset, of in enumerate((
        part((5, "ab"), (6, "ck")), part((3, "ab")), b"litter", part((3, "ab"), ladder="b"), OLD,
        mark(3, b"", 0), part((9, "dh"), (2, "ei")), part((7, "fg"), ladder="b"), None,
        part((12, "abij")), part((0, "k"), (4, "a")),
    ))
    for shard in range(3)
]  # fmt: skip


@cases("at_once", [1, 5, 100])
def test_parts_read_together(at_once: int) -> None:
    """The cut-off is the largest offset before g, else what is before the smallest one from g on,
    else what was sent. It does not matter what is read with a part."""
    applied = {0: 6, 1: 4, 2: 2}
    found = Cutoff(applied, SENT, 3)
    for first in range(0, len(IN_THREE_SHARDS), at_once):
        found.add(IN_THREE_SHARDS[first : first + at_once])
    before, after = dict[Player, int](), dict[Player, int]()
    for each in IN_THREE_SHARDS:
        for player, offset in contents(each):
            if each.offset < applied[each.partition]:
                before[player] = max(offset, before.get(player, offset))
            else:
                after[player] = min(offset, after.get(player, offset))
    who = [(ladder, name) for ladder in "ab" for name in "abcdefghijk"]
    rows = found.players.rows(PlayerColumn.of(who))
    for partition, end in SENT.items():
        kept = (after.get(each, end) - 1 for each in who)
        expected = [before.get(each, most) for each, most in zip(who, kept, strict=True)]
        assert found.of(rows, np.full(len(rows), partition)).tolist() == expected
    assert before
    assert after


def test_parts_of_another_number_of_shards() -> None:
    """Applied parts show where players were. Waiting ones would be applied in the wrong place."""
    other = next(shard for shard in range(3) if shard != shards_of(["a"], 3)[0])
    found = Cutoff({other: 1}, SENT, 3)
    found.add([record(0, part((5, "a")), shard=other)])
    assert of_a(found, 2) == 5
    with pytest.raises(Misplaced, match=f"offset 1 of shard {other} waits .* among 3"):
        found.add([record(0, part((5, "a")), other), record(1, part((6, "a")), other)])


PAIRS = "ab", "bc", "ca", "ab"
ROUNDS = [a_record(i, a_round(i, *players, ladder="a")) for i, players in enumerate(PAIRS)]


EPOCH = b"word"
MARKS = {0: 0, 1: 11, 2: 3, 3: 0}  # In four shards.


def unfinished() -> Store:
    store = Store()
    store.positions = dict.fromkeys(range(4), Position(UNFINISHED, UNFINISHED, epoch=EPOCH))
    return store


@cases("batch", range(1, 8))
def test_a_store_that_goes_back_between_two_batches(batch: int) -> None:
    """Like a replica that lags, it lost beliefs within the same epoch. This is noticed."""
    store, kept = unfinished(), list[Store]()

    def batches() -> Iterator[BeliefColumn]:
        for number, each in enumerate(beliefs_of_fifty()):
            kept.append(deepcopy(store))
            if number == batch:
                store.positions, store.beliefs = kept[-2].positions, kept[-2].beliefs
            yield each

    with pytest.raises(StoreInUse, match="did Redis lose writes"):
        fill_store(batches(), {}, MARKS, {}, EPOCH, writer(store))
    mismatches = [Shard.at(each, 3, 1).mismatch(0, 10) for each in store.positions.values()]
    assert all("rebuild of the store is unfinished" in each for each in mismatches)


def beliefs_of_fifty() -> Iterator[BeliefColumn]:
    """Seven at a time."""
    beliefs = BeliefColumn.of([(("a", f"p{i}"), bytes([i])) for i in range(50)])
    return (beliefs[first : first + 7] for first in range(0, 50, 7))


def writer(store: Store) -> Write:
    return lambda calls: {s: store.apply(s, each) for s, each in calls.items()}


def filled(store: Store) -> None:
    fill_store(beliefs_of_fifty(), {0: 0, 1: 9, 2: 4}, MARKS, {1: 77}, EPOCH, writer(store))


def test_filling() -> None:
    """Beliefs are written in batches, by shard; then positions at g, and marks of the store."""
    store = unfinished()
    filled(store)
    marked = {s: stored.pop(REBUILT) for s, stored in store.beliefs.items() if REBUILT in stored}
    assert marked == {0: b"1", 1: b"12", 2: b"4", 3: b"1"}
    found = {player: shard for shard, stored in store.beliefs.items() for player in stored}
    names = [f"p{i}" for i in range(50)]
    assert found == {
        ("a", name): s for name, s in zip(names, shards_of(names, 4).tolist(), strict=True)
    }
    assert store.beliefs[found["a", "p7"]]["a", "p7"] == b"\x07"
    tails = {1: 77}
    assert store.positions == {
        s: Position(g, g, b"", EPOCH, tails.get(s)) for s, g in enumerate((0, 9, 4, 0))
    }


def test_what_was_deleted_or_forgotten_ends_it() -> None:
    """An operator has to say what to do about parts, rounds, or offsets of a group."""
    rebuild.check_parts_complete([3, 0], {0: 3, 1: 2})
    with pytest.raises(Failed, match=r"shard 1 starts at 3, .* offset 2: commit 3 .* without"):
        rebuild.check_parts_complete([3, 3], {0: 3, 1: 2})
    with pytest.raises(Failed, match=r"shard 0 .*, shard 2 starts at 9, .* 4: commit 3, 9 for"):
        rebuild.check_parts_complete([3, 3, 9], {0: 2, 1: 3, 2: 4})
    place = an_empty_place(partitions=2)
    place.check_complete()
    place.log.rounds[1].start = 3
    with pytest.raises(Failed, match=r"partition 1 of the rounds starts at 3: .* snapshot"):
        place.check_complete()
    rebuild.check_published({0: 0, 1: None}, {0})
    with pytest.raises(Failed, match=r"shard 1 has no committed offset any more .* 0 if none were"):
        rebuild.check_published({0: 0, 1: None}, {0, 1})
    rebuild.check_committed({0: None, 1: SourceCommit(4)}, [5, 5], [0, 0])
    rebuild.check_committed({0: None, 1: SourceCommit(4)}, [0, 5], [3, 0])
    with pytest.raises(Failed, match="partition 0 of the rounds has no committed offset any more"):
        rebuild.check_committed({0: None, 1: SourceCommit(4)}, [5, 5], [3, 0])


def test_a_log_that_lost_rounds() -> None:
    """All that it has counts as sent, and all parts as applied. Other partitions do not change."""
    committed = {0: SourceCommit(10, 1), 1: SourceCommit(4, 2), 2: None}
    log = {0: SourceTail(7, None), 1: SourceTail(8, 2)}
    found = reached({0: 5, 1: None}, [9, 3], committed, log)
    assert (found.applied, found.sent, found.is_torn) == ({0: 9, 1: 3}, {0: 7, 1: 4, 2: 0}, True)
    found = reached({0: 5, 1: None}, [9, 3], {1: committed[1]}, log)
    assert (found.applied, found.sent, found.is_torn) == ({0: 5, 1: 0}, {1: 4}, False)


@cases("kernel", [KERNEL_VERSION, TOO_OLD])
@cases("sent_again", [False, True])
@cases("committed", [5, 6])
def test_part_that_waits_and_was_cut_for_fewer(
    committed: int, sent_again: bool, kernel: int
) -> None:
    """Updaters ignore it. Unless its round was sent again, the rebuild is refused."""
    home = shards_of(["a"], 3)[0]
    found = Cutoff({home: 1}, {0: committed}, 3)
    found.add([record(0, part((3, "a"), shards=2), home)])
    found.add([record(1, by_kernel(kernel, part((5, "a"), shards=2)), home)])
    if sent_again:
        found.add([record(2, part((5, "a"), shards=3), home)])
    assert of_a(found) == 3
    if committed == 5 or sent_again:
        found.check()
        return
    with pytest.raises(Misplaced, match=r"offset 5 of partition 0 was cut for fewer than 3 shards"):
        found.check()


@cases("kernel", [KERNEL_VERSION, TOO_OLD])
def test_part_behind_a_mark_that_names_more_shards(kernel: int) -> None:
    """A process that the group excluded wrote it. Its rounds were sent again: no rebuild stops."""
    home = shards_of(["a"], 3)[0]
    found = Cutoff({home: 1}, {0: 6}, 3)
    found.add([record(1, mark(3, b"", 0), home)])
    found.add([record(2, by_kernel(kernel, part((5, "a"), shards=2)), home)])
    found.check()
    assert of_a(found) == 5
    found.add([record(3, part((3, "a"), shards=3), home)])
    assert of_a(found) == 2


def test_waiting_parts_are_proven() -> None:
    """By the replay. A part of other beliefs is reported, unless a right one comes first."""
    right = {offset: evidence_of(offset) for offset in (1, 2)}
    wrong = replace(right[2], evidence=right[2].evidence + 1e-9)
    for parts, g, found in (
        ([right[1], right[2]], 0, set()), ([right[1], wrong], 0, {2}),
        ([right[1], right[2], wrong], 0, set()), ([wrong, right[2]], 0, {2}),
        ([right[1], wrong], 2, set()), ([right[1], by_kernel(KERNEL_VERSION - 1, wrong)], 0, set()),
    ):  # fmt: skip
        cutoff = Cutoff({0: g}, {0: 101}, 1)
        for offset, each in enumerate(parts):
            cutoff.add([record(offset, each)])
        work = Rebuild(LADDERS, 10, 1, cutoff)
        work.feed(ROUNDS)
        list(work.beliefs())
        assert work.unproven == found
    assert re.fullmatch(
        "parts of 2 rounds, the first at offset 7, wait .* rebuild --replace` once more",
        rebuild.unproven_warning({9, 7}),
    )


def evidence_of(offset: int) -> Part:
    """The part of one of the rounds, as the replay estimates it."""
    seen, known = dict[int, Part](), Cutoff({0: 0}, {0: 101}, 1)

    def watched(rows: Ints, offsets: Ints, evidence: Evidence) -> None:
        names = [name for _, name in known.players.at(rows)]
        for at in set(offsets.tolist()):
            own = np.flatnonzero(offsets == at)
            seen[at] = replace(part((at, [names[i] for i in own])), evidence=evidence[own])

    with patch.object(known.proof, "compare", watched):
        work = Rebuild(LADDERS, 10, 1, known)
        work.feed(ROUNDS)
        list(work.beliefs())
    return seen[offset]


P: Player = ("l", "p")


def corrected_by(kernel: int) -> Part:
    """A correction part by this version of the kernels."""
    rule = msgspec.structs.replace(stages.rule_of(DEFAULT_RATING), kernel=kernel)
    names, beliefs = StringColumn.of(["p"]), StringColumn.of_bytes([b"first"])
    about = "r", "l", ""
    return Part.of_correction(rule, 5, about, names, 1, "round-voided", 0.5, beliefs)


def corrected_of(*parts: Part, waits: int = 0) -> dict[Player, tuple[int, bytes]]:
    """What the cut-off knows after these parts, of which the last ones wait to be applied."""
    cutoff = Cutoff({0: len(parts) - waits}, {0: 0}, 1)
    cutoff.add([Record(0, i, schema.encode(part)) for i, part in enumerate(parts)])
    return cutoff.corrected


def test_correction_parts_of_another_kernel() -> None:
    """Those of an older kernel are read, those of a newer one only if they were applied."""
    old = corrected_by(OLDEST_KERNEL - 1)
    assert corrected_of(old) == {P: (5, b"first")}
    newer = corrected_by(KERNEL_VERSION + 1)
    assert corrected_of(newer) == {P: (5, b"first")}
    with pytest.raises(UnknownPart, match="waits for a worker of the newer release"):
        corrected_of(newer, waits=1)
