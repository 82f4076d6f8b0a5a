"""A rebuild: how far each player reaches, and what is written."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

import msgspec
import numpy as np
import pytest

from stream_rater.adapters.memory import Store
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import any_ladder
from stream_rater.contract.record import Player, Record
from stream_rater.operations.cutoff import Cutoff, Misplaced, Offsets
from stream_rater.operations.rebuild import (
    check_committed,
    check_parts_complete,
    check_published,
    check_rounds_complete,
)
from stream_rater.operations.rebuild_store import Rebuild, StoreInUse, Write, fill_store, past_marks
from stream_rater.pipeline.parts import schema
from stream_rater.pipeline.parts.schema import NotAPart, Part, UnknownPart, mark
from stream_rater.pipeline.ports import (
    NO_BELIEFS,
    REBUILT,
    UNFINISHED,
    Application,
    Position,
    SourceCommit,
)
from stream_rater.pipeline.updater.shard import Shard
from stream_rater.replay.sequential import Replay
from tests.builders.cases import cases
from tests.builders.machines import CONFIG, part, record
from tests.rounds import as_json, ranked

LADDERS = any_ladder(CONFIG)
SENT = {0: 100, 1: 7, 2: 0}
A: Player = ("a", "a")
TOO_OLD = 1
"""A kernel whose parts are read by the decoder alone."""


def at_home(of: Part, shard: int) -> Part:
    """Those of its rows whose players belong to this one of three shards."""
    return of.take(np.flatnonzero(shards_of(of.players, 3) == shard))


def contents(each: Record) -> list[tuple[Player, int]]:
    """The player and the round's offset of each row of a part; nothing, if it is no part."""
    try:
        of = schema.decode(each.value or b"", oldest=0)
    except NotAPart:
        return []
    rounds = [of.rounds[i] for i in of.round_index.tolist()]
    return [((r.ladder, name), r.offset) for r, name in zip(rounds, of.players, strict=True)]


def of_a(cutoff: Cutoff, partition: int = 0) -> int:
    """How far A's rounds reach, if they are in this partition."""
    rows = cutoff.players.rows(PlayerColumn.of([A]))
    return int(cutoff.of(rows, np.array([partition]))[0])


def cutoff(g: int, *parts: tuple[int, str], sent: Offsets = SENT) -> Cutoff:
    """Of one shard with parts of one round each, as (source offset, players)."""
    found = Cutoff({0: g}, sent, 1)
    found.add([record(offset, part(each)) for offset, each in enumerate(parts)])
    return found


def test_the_last_round_with_a_part_before_g() -> None:
    """Whatever was sent again afterwards."""
    assert of_a(cutoff(3, (5, "a"), (9, "a"), (5, "a"), (11, "a"))) == 9
    assert of_a(cutoff(2, (5, "ab"), (9, "b"), (5, "a"))) == 5


def test_before_the_first_round_with_a_part_after_g() -> None:
    """Where those before g are not kept, or never were."""
    assert of_a(cutoff(1, (5, "b"), (9, "a"), (12, "a"))) == 8
    assert of_a(cutoff(0, (0, "a"))) == -1


def test_all_that_was_sent() -> None:
    """Where no part is kept, by the partition of the player's rounds."""
    assert of_a(cutoff(1, (5, "b"))) == 99
    assert of_a(cutoff(1, (5, "b")), 1) == 6
    assert of_a(cutoff(1, (5, "b")), 2) == -1


def test_nobody_reaches_less_than_the_least() -> None:
    """So that earlier rounds need no look at who plays."""
    two = {0: 100, 1: 7}
    assert cutoff(1, (5, "b"), (9, "a"), sent=two).least() == 5
    assert cutoff(1, (8, "b"), (9, "a"), sent=two).least() == 6
    assert cutoff(0, (3, "b"), (9, "a"), sent=two).least() == 2
    assert cutoff(0, sent={0: 100}).least() == 99
    assert cutoff(0, (3, "b"), sent={0: 100, 1: 0}).least() == -1


def test_parts_that_cannot_be_read() -> None:
    """A foreigner's is passed over; a newer release's is refused, an older one's read."""
    found = Cutoff({}, {0: 0}, 1, kernel=1)
    found.add([record(0, b"litter")])
    with pytest.raises(UnknownPart):
        found.add([record(1, part((5, "a")))])
    Cutoff({}, {0: 0}, 1, kernel=99).add([record(1, part((5, "a")))])


def by_kernel(version: int, of: Part) -> Part:
    """The same part, as a release with this kernel writes it."""
    return replace(of, rules=[msgspec.structs.replace(each, kernel=version) for each in of.rules])


OLD = by_kernel(TOO_OLD, part((8, "ah")))

IN_THREE_SHARDS = [
    record(offset, at_home(of, shard) if isinstance(of, Part) else of, shard)
    for offset, of in enumerate((
        part((5, "ab"), (6, "ca")), b"litter", part((3, "ab"), ladder="b"), OLD, mark(3),
        part((9, "dh"), (2, "ei")), part((7, "fg"), ladder="b"), None, part((12, "abij")),
    ))
    for shard in range(3)
]  # fmt: skip


@cases("at_once", [1, 5, 100])
def test_parts_read_together(at_once: int) -> None:
    """The cut-off is the largest offset before g, else what is before the smallest one from g on,
    else what was sent. It does not matter what is read with a part."""
    applied, sent = {0: 6, 1: 4, 2: 2}, {0: 100, 1: 7}
    found = Cutoff(applied, sent, 3)
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
    for partition, end in sent.items():
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


def test_parts_deleted_before_those_of_fewer_shards() -> None:
    """What came after a player had moved to another shard counts, though only older parts of its
    old shard are kept."""
    home = shards_of(["a"], 3)[0]
    other = (home + 1) % 3
    found = Cutoff({other: 2, home: 1}, SENT, 3)
    found.add([record(1, part((5, "a")), shard=other)])
    assert of_a(found) == 99
    assert of_a(found, 2) == 5
    found.add([record(1, part((70, "a")), shard=home)])
    assert of_a(found) == 69
    found.add([record(0, part((60, "a")), shard=home)])
    assert of_a(found) == 60


def test_shards_go_on_behind_their_marks() -> None:
    """Where nothing waits: in shard 0, which is new, and in 1; in 2 a part does. A mark of an
    earlier rebuild is no part."""
    assert past_marks({1: 7, 2: 7}, {0: 0, 1: 7, 2: 8}) == {0: 1, 1: 8}
    found = cutoff(2, (5, "a"))
    found.add([record(1, mark(1)), record(2, mark(1))])
    assert of_a(found) == 5


def a_round(offset: int, *players: str) -> Record:
    value = as_json(*ranked(range(1, len(players) + 1), players), round_id=f"r{offset}", ladder="a")
    return Record(0, offset, value, received_s=4e9)


ROUNDS = [a_round(0, "a", "b"), a_round(1, "b", "c"), a_round(2, "c", "a"), a_round(3, "a", "b")]


def after(count: int) -> Mapping[Player, bytes]:
    """Beliefs after so many rounds, by the sequential replay."""
    replay = Replay(LADDERS, 10)
    for each in ROUNDS[:count]:
        replay.feed([each])
    pools = replay.pools.items()
    return {(name, p): pool.belief_bytes(p) for name, pool in pools for p, _ in pool}


def until(**contents: int) -> Cutoff:
    """Each given player's cut-off, by one part each. All rounds of other players count."""
    g = len(contents)
    found = Cutoff({0: g}, {0: 101}, 1)
    found.add([
        record(at if offset >= 0 else g, part((max(offset, 0), player)))
        for at, (player, offset) in enumerate(contents.items())
    ])  # fmt: skip
    return found


def rebuilt(cutoff: Cutoff) -> dict[Player, bytes]:
    work = Rebuild(LADDERS, 10, 1, cutoff)
    work.feed([*ROUNDS, Record(0, 4, b"junk"), a_round(3, "x", "y"), a_round(5, "z", "a", "z")])
    assert work.rounds == len(ROUNDS)
    found = list(chain.from_iterable(work.beliefs()))
    assert work.written == len(found)
    assert len(dict(found)) == len(found)
    return dict(found)


@cases("batch", [1, 2, 10_000])
def test_each_player_at_their_own_cutoff(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """As if the replay had ended there, though it went on for others."""
    monkeypatch.setattr("stream_rater.operations.rebuild_store.BATCH", batch)
    assert rebuilt(until()) == after(4)
    assert rebuilt(until(a=2)) == {**after(4), A: after(3)[A]}
    assert rebuilt(until(a=0, c=1)) == {
        A: after(1)[A], ("a", "b"): after(4)["a", "b"], ("a", "c"): after(2)["a", "c"],
    }  # fmt: skip


def test_who_reaches_nothing_is_not_written() -> None:
    """A belief of no rounds does not exist."""
    assert A not in rebuilt(until(a=-1))


EPOCH = b"word"
MARKS = {0: 0, 1: 11, 2: 3, 3: 0}
"""In four shards."""


def unfinished() -> Store:
    """Of four shards."""
    store = Store()
    position = Position(UNFINISHED, UNFINISHED, epoch=EPOCH)
    store.positions = dict.fromkeys(range(4), position)
    return store


def test_a_rebuild_that_was_given_up() -> None:
    """Leaves no shard that a worker would go on from, however far it came."""
    for calls in range(8):
        store = unfinished()
        with pytest.raises(InterruptedError):
            fill_store(beliefs_of_fifty(), {}, MARKS, {}, EPOCH, giving_up(store, calls))
        for position in store.positions.values():
            mismatch = Shard.at(position, 3, 1).mismatch(0, 10)
            assert "rebuild of the store is unfinished" in mismatch


def beliefs_of_fifty() -> Iterator[BeliefColumn]:
    """Seven at a time."""
    beliefs = BeliefColumn.of([(("a", f"p{i}"), bytes([i])) for i in range(50)])
    return (beliefs[first : first + 7] for first in range(0, 50, 7))


def giving_up(store: Store, after: int) -> Write:
    """Writes to the store so many times, and then no more."""
    left = [after]

    def write(calls: Mapping[int, Application]) -> dict[int, bool]:
        if left[0] == 0:
            raise InterruptedError
        left[0] -= 1
        return {s: store.apply(s, each) for s, each in calls.items()}

    return write


def filled(store: Store) -> None:
    fill_store(
        beliefs_of_fifty(), {0: 0, 1: 9, 2: 4}, MARKS, {1: 77}, EPOCH,
        lambda calls: {s: store.apply(s, each) for s, each in calls.items()},
    )  # fmt: skip


def test_filling() -> None:
    """Beliefs in batches, each in its shard; then positions at g, with nothing to be settled, and
    which mark is the store's own where it is not past it."""
    store = unfinished()
    filled(store)
    marked = {s: stored.pop(REBUILT) for s, stored in store.beliefs.items() if REBUILT in stored}
    assert marked == {0: b"1", 1: b"12", 3: b"1"}
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


def test_a_store_that_somebody_writes_to() -> None:
    """Is given up."""
    store = unfinished()
    application = Application(Position(3, UNFINISHED, epoch=EPOCH), NO_BELIEFS)
    store.apply(1, application)
    with pytest.raises(StoreInUse):
        filled(store)


def test_parts_deleted_before_they_were_applied() -> None:
    """Their events are lost: an operator has to say so, by committing what is there."""
    check_parts_complete([3, 0], {0: 3, 1: 2})
    with pytest.raises(Failed, match=r"shard 1 starts at 3, .* offset 2: commit 3 .* without"):
        check_parts_complete([3, 3], {0: 3, 1: 2})


def test_part_that_cannot_be_decompressed_ends_the_rebuild() -> None:
    """Nobody knows whose rounds it has."""
    with pytest.raises(UnknownPart, match="offset 7: batch not decompressed"):
        Cutoff({}, {0: 0}, 1).add([Record(0, 7, None, unreadable="batch not decompressed")])


def test_part_that_updaters_ignore_counts_for_nothing() -> None:
    """It was cut for fewer shards than the mark before it names; one before the mark counts."""
    home = shards_of(["a"], 3)[0]
    found = Cutoff({home: 9}, SENT, 3)
    values: list[Part | bytes]
    values = [part((5, "a"), shards=2), mark(3), part((8, "a"), shards=2)]
    for offset, each in enumerate(values):
        found.add([record(offset, each, home)])
        assert of_a(found) == 5
    found.add([record(3, part((7, "a"), shards=3), home)])
    assert of_a(found) == 7


@cases("kernel", [KERNEL_VERSION, TOO_OLD])
@cases("sent_again", [False, True])
@cases("committed", [5, 6])
def test_part_that_waits_and_was_cut_for_fewer(
    committed: int, sent_again: bool, kernel: int
) -> None:
    """Updaters ignore it, mark or no mark, whichever release wrote it. Nobody sends a round again
    that is committed: unless it was, the rebuild is refused."""
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
    """A process wrote it that the group had excluded. Its rounds were sent again, and those parts
    may be applied and deleted: it stops no rebuild."""
    home = shards_of(["a"], 3)[0]
    found = Cutoff({home: 1}, {0: 6}, 3)
    found.add([record(1, mark(3), home)])
    found.add([record(2, by_kernel(kernel, part((5, "a"), shards=2)), home)])
    found.check()
    assert of_a(found) == 5
    found.add([record(3, part((3, "a"), shards=3), home)])
    assert of_a(found) == 2


def test_rounds_that_were_deleted() -> None:
    """A replay of those that are left would give other ratings: nothing is rebuilt."""
    check_rounds_complete([0, 0])
    with pytest.raises(Failed, match=r"partition 1 of the rounds starts at 3: .* snapshot"):
        check_rounds_complete([0, 3])


def test_offsets_of_events_that_were_forgotten() -> None:
    """What was published would be published again; a shard without parts is new."""
    check_published({0: 0, 1: None}, {0})
    with pytest.raises(Failed, match=r"shard 1 has no committed offset any more .* 0 if none were"):
        check_published({0: 0, 1: None}, {0, 1})


def test_offsets_that_were_forgotten() -> None:
    """Where parts are deleted, the offsets alone show which rounds were rated."""
    check_committed({0: None, 1: SourceCommit(4)}, [5, 5], [0, 0])
    check_committed({0: None, 1: SourceCommit(4)}, [0, 5], [3, 0])
    with pytest.raises(Failed, match="partition 0 of the rounds has no committed offset any more"):
        check_committed({0: None, 1: SourceCommit(4)}, [5, 5], [3, 0])
