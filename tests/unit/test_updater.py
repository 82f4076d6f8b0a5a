"""The updater by hand: takeovers, replays, refusals, bounds; and the protocol's diagrams."""

import inspect
import re
from typing import Any

import pytest

from local.tools import ROOT
from stream_rater.contract.errors import Regrouped, Resharded
from stream_rater.contract.record import Record, checksum
from stream_rater.pipeline import ports
from stream_rater.pipeline.ports import Apply, Poll, Polled, Position, Publish, ReadBeliefs, Seek
from stream_rater.pipeline.updater import updater as module
from tests.builders.cases import cases
from tests.builders.machines import NOWHERE, ByHand, Recorder, names, opened, part, record, updating
from tests.simulation import states


def gaining(observer: Recorder, shards: int = 1) -> ByHand:
    """An updater that gains all its shards."""
    hand = updating(observer, shards)
    hand.answer(Poll, Polled(0.0, gained=frozenset(range(shards))))
    return hand


def owning(hand: ByHand, position: Position = NOWHERE, committed: int | None = None) -> Seek:
    """Gain shard 0 and open it; returns where reading begins."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    opened(hand, {0: position}, {0: committed})
    return hand.answer(Seek)


def read(hand: ByHand, *records: Record, now_s: float = 0.0) -> Poll:
    return hand.answer(Poll, Polled(now_s, records=records))


def answer_beliefs(hand: ByHand, position: Position) -> str:
    """Answer that nobody asked for has a belief; returns who was."""
    asked = hand.expect(ReadBeliefs).players[0]
    hand.answer(ReadBeliefs, {0: ports.StoredShard(position, [None] * len(asked))})
    return names(asked)


def applied(hand: ByHand) -> Position:
    """The call is carried out; returns the position it leaves."""
    return hand.answer(Apply, {0: True}).applications[0].position


def reported(publish: Publish) -> list[tuple[str, int]]:
    """(player's letter, shard) of each event."""
    return [(event.key.decode()[-1], event.shard) for event in publish.events]


# --- the usual way, and takeovers ---


def test_a_poll_gathers_as_many_parts_as_shards(observer: Recorder) -> None:
    """Only open shards count: the poll does not wait for parts of the others."""
    hand = gaining(observer, 3)
    at = dict.fromkeys(range(3), NOWHERE)
    opened(hand, at | {1: Position(50)}, dict.fromkeys(at, None), end=10)
    assert hand.answer(Seek).offsets == {0: 0, 2: 0}
    assert hand.expect(Poll, enough=2).gather_s > 0.0


def test_settling_a_call(hand: ByHand) -> None:
    """Only what follows c is published, once the whole call is read, unless the store has moved."""
    position = Position(3, 0, b"\xe0")
    assert owning(hand, position, 1).offsets == {0: 0}
    read(hand, *(record(i, part((5 + i, letter))) for i, letter in enumerate("abc")))
    assert answer_beliefs(hand, position) == "abc"
    assert reported(hand.answer(Publish, offsets={0: 3})) == [("b", 0), ("c", 0)]
    hand = updating(Recorder(), 1)
    position = Position(20, 0, bytes(5))
    owning(hand, position, 0)
    for i in range(19):
        read(hand, record(i, part((5 + i, "ab"))))
        hand.expect(Poll, no_fetch=False)
    read(hand, record(19, part((30, "ab"))))
    assert answer_beliefs(hand, position) == "ab"
    assert reported(hand.answer(Publish, offsets={0: 20})) == []
    hand = updating(Recorder(), 1)
    owning(hand, Position(1, 0, b"\x80"), 0)
    read(hand, record(0, part((5, "a"))))
    answer_beliefs(hand, Position(2, 1, b"\x80"))
    opened(hand, {0: Position(2, 1, b"\x80")}, {0: 1})
    assert hand.answer(Seek).offsets == {0: 1}


def test_shards_that_were_added_end_it(observer: Recorder) -> None:
    """With the numbers of before and after."""
    hand = gaining(observer)
    with pytest.raises(Resharded, match=r"has 2 partitions and had 1"):
        opened(hand, {0: NOWHERE}, {0: None}, shards=2)


# --- refusals and bounds ---


def test_log_that_starts_after_the_store(observer: Recorder) -> None:
    """That shard is refused and tried again later; the other goes on; nothing is reset."""
    hand = gaining(observer, 2)
    positions = {0: Position(2, 1), 1: Position(2, 1)}
    opened(hand, positions, {0: 9, 1: 2}, starts={0: 3, 1: 0})
    assert hand.answer(Seek).offsets == {1: 2}
    assert observer.refused[0][0] == 0
    assert "needs offset 2 and the log starts at 3" in observer.refused[0][1]
    assert "rebuild" in observer.refused[0][1]
    assert observer.refused_at == [2]
    read(hand, record(3, part((5, "a"))), now_s=module.RECHECK_S / 2)
    hand.answer(Poll, Polled(module.REFUSED_S))
    hand.answer(ReadBeliefs, {1: ports.StoredShard(positions[1])})
    hand.expect(ReadBeliefs, players={0: (ports.REBUILT,)})


APPLIED = Position(7, 6, b"\x80", tail=1)


@cases("position, committed, log, said", [
    (Position(7, 6), 3, {"end": 6}, "offset 7 was reached and the log ends at 6"),
    (Position(3, 2), 7, {"end": 6}, "offset 7 was reached and the log ends at 6"),
    *((APPLIED, each, {"end": 12, "tails": {0: 2}},
       "^the record at offset 6 is not the one (?!.*ommit).*rebuild")
      for each in (None, 0, 3, 7, 9)),
    (Position(7, 6, b"\x80"), 0, {},
     r"last call applied \[6, 7\) and the group's committed offset is 0.*Commit 7"),
    *((Position(7, each, b"\x80"), None, {},
       r"offsets.retention.minutes\). Commit 7 for this partition") for each in (6, 0)),
])  # fmt: skip
def test_store_log_and_group_that_do_not_fit(
    position: Position, committed: int | None, log: Any, said: str
) -> None:
    """Lost parts, another record, a call after c, a forgotten offset: each has a way out."""
    hand = gaining(observer := Recorder())
    opened(hand, {0: position}, {0: committed}, **log)
    ((shard, reason),) = observer.refused
    assert shard == 0 and re.search(said, reason), reason
    hand.expect(Poll)


def test_fresh_rows_that_are_not_those_of_the_log(hand: ByHand, observer: Recorder) -> None:
    """They are refused. A record that was deleted, as old parts are, is not compared."""
    owning(hand, Position(1, 0, b"\x80\x00"), 0)
    read(hand, record(0, part((5, "a"))))
    answer_beliefs(hand, Position(1, 0, b"\x80\x00"))
    assert "has 2 bytes, 1 rows need 1." in observer.refused[0][1]
    hand.expect(Poll)
    hand = gaining(observer := Recorder())
    opened(hand, {0: APPLIED}, {0: 7}, {0: 7}, tails={0: None})
    hand.expect(Seek)
    assert observer.refused == []


def test_messages_that_are_not_understood(hand: ByHand, observer: Recorder) -> None:
    """What precedes a newer part is applied. A foreign message is ignored, and is committed."""
    owning(hand)
    read(hand, record(0, part((5, "a"))), record(1, b"\x91\x02"), record(2, part((6, "b"))))
    assert answer_beliefs(hand, Position()) == "a"
    applied(hand)
    hand.answer(Publish, offsets={0: 1})
    assert observer.refused[0][1].startswith("offset 1: part: ")
    assert observer.refused_at == [1]
    read(hand, record(3, part((7, "c"))))
    hand.expect(Poll)
    observer = Recorder()
    hand = updating(observer, 1)
    owning(hand)
    read(hand, record(0, b"hello"))
    assert applied(hand) == Position(1, 0, b"", tail=checksum(b"hello"))
    assert reported(hand.answer(Publish, offsets={0: 1})) == []
    assert observer.ignored == [(0, 0)]
    assert observer.refused == []


def test_refused_shard_goes_on_when_it_does(hand: ByHand, observer: Recorder) -> None:
    """It is reported as opened once it has read past what stopped it, not at each new attempt."""
    owning(hand)
    read(hand, record(0, b"\x91\x01"))
    for tried in range(1, 3):
        assert len(observer.refused) == tried
        hand.answer(Poll, Polled(tried * module.REFUSED_S))
        opened(hand, {0: NOWHERE}, {0: 0})
        hand.answer(Seek)
        assert observer.opened == []
        if tried == 1:
            read(hand, record(0, b"\x91\x01"), now_s=tried * module.REFUSED_S)
    read(hand, record(0, part((5, "a"))), now_s=2 * module.REFUSED_S)
    assert observer.opened == [0]


def test_record_of_another_version_in_a_call_to_be_settled(observer: Recorder) -> None:
    """The shard is refused; the worker lives."""
    hand = updating(observer, 1)
    position = Position(1, 0, b"\x80")
    owning(hand, position, 0)
    read(hand, record(0, part((5, "a"))))
    hand.answer(ReadBeliefs, {0: ports.StoredShard(position, [b"\x63" + bytes(200)])})
    assert "version 99" in observer.refused[0][1]
    hand.expect(Poll)


def test_a_shard_with_an_unknown_record_is_refused_alone(observer: Recorder) -> None:
    """Though all are computed together, and once more where one cannot be."""
    hand = gaining(observer, 3)
    opened(hand, dict.fromkeys(range(3), NOWHERE), dict.fromkeys(range(3), 0))
    hand.answer(Seek)
    read(hand, *(record(0, part((5, letter)), shard) for shard, letter in enumerate("fab")))
    unknown = ports.StoredShard(NOWHERE, [b"\x63" + bytes(200)])
    nobody = ports.StoredShard(NOWHERE, [None])
    hand.answer(ReadBeliefs, {0: nobody, 1: unknown, 2: nobody})
    assert hand.expect(Apply).applications.keys() == {0, 2}
    assert [shard for shard, _ in observer.refused] == [1]
    hand.answer(Apply, {0: True, 2: True})
    assert reported(hand.answer(Publish, offsets={0: 1, 2: 1})) == [("f", 0), ("b", 2)]


def test_reading_rests_while_many_rows_wait(hand: ByHand) -> None:
    """And goes on while some do: one shard's backlog must not starve the others."""
    owning(hand)
    position = Position()
    read(hand, *(record(i, part((5 + i, "ab"))) for i in range(33)))
    fulls = []
    for _ in range(3):
        answer_beliefs(hand, position)
        position = applied(hand)
        hand.answer(Publish)
        fulls.append(read(hand).no_fetch)
    assert fulls == [True, True, False]


# --- opened for the first time, or after a long while ---------------------------------------------


def test_first_offset_while_the_group_changes(hand: ByHand, observer: Recorder) -> None:
    """It is committed before anything is applied, so that a missing one means forgotten."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    hand.answer(ReadBeliefs, {0: ports.StoredShard(NOWHERE, [None])})
    hand.answer(ports.Committed, {0: None})
    hand.answer(ports.LogStarts, {0: 0})
    hand.answer(ports.ShardEnds, [0])
    assert len(hand.expect(Publish, offsets={0: 0}).events) == 0
    hand.fail(Publish, Regrouped("another generation"))
    hand.answer(Poll, Polled(0.0))
    opened(hand, {0: NOWHERE}, {0: None})
    hand.expect(Seek)
    assert observer.troubles == []


# --- the diagrams of the protocol -----------------------------------------------------------------


def test_the_page_shows_the_transitions() -> None:
    """No state is there that nothing leads to, or that nothing leaves."""
    page = (ROOT / "docs" / "internals" / "protocol.md").read_text()
    for kind, transitions in (
        (states.PartitionState, states.ESTIMATOR), (states.ShardState, states.UPDATER)
    ):  # fmt: skip
        assert f"```mermaid\n{states.mermaid(transitions)}```\n" in page
        assert {t.target for t in transitions} - {None} == set(kind)
        assert {t.source for t in transitions} - {None} == set(kind)


def test_an_effect_has_the_fields_that_its_handler_takes() -> None:
    """By name and in order. `Poll` is passed as a whole."""
    assert len({*ports.Effect.__subclasses__()} - {Poll}) >= 24
    for effect in ports.Effect.__subclasses__():
        taken = [*inspect.signature(getattr(ports.Handler, effect.method)).parameters][1:]
        assert taken == (["effect"] if effect.__name__ == "Poll" else [*effect.__match_args__])
