"""`verify`: what a correction writes and what else may differ, and what the command waits for."""

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.metadata import StoreMetadata
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import ANY_LADDER, any_ladder
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import StoreTrouble
from stream_rater.contract.record import Record
from stream_rater.operations import verify
from stream_rater.operations.compare_store import Verdict, compare, same_belief
from stream_rater.operations.verify import Sample, place_of
from stream_rater.places import checks, kafka, kafka_topics
from stream_rater.places.kafka import KafkaPlace
from stream_rater.places.kafka_topics import UnfinishedRounds
from stream_rater.places.port import Beliefs as Stored
from stream_rater.rating import record
from stream_rater.rating.model import Beliefs
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.ledger import verdicts_of_log
from stream_rater.replay.log_reading import LogReader
from stream_rater.replay.sequential import Replay
from stream_rater.runtime.engine import EmbeddedEngine
from tests.builders.cases import cases
from tests.builders.commands import run
from tests.builders.lines import Line, a_correction, a_round, a_seed
from tests.builders.machines import CONFIG
from tests.builders.memory_place import MemoryPlace
from tests.builders.memory_places import put, use
from tests.rounds import day, ranked

LADDERS = any_ladder(CONFIG)
WINDOW = 100


def a_log() -> list[Line]:
    """Corrections remove cy, and with that dee, and void eve's only round. One is rejected."""
    lobbies = [["ann", "bob", "cy"], ["cy", "dee"], ["bob", "ann"], ["cy", "ann", "bob"],
               ["eve", "bob"], ["ann", "bob"]]  # fmt: skip
    rounds = [a_round(i, *names) for i, names in enumerate(lobbies)]
    removed = a_correction("player-removed", player="cy")
    voided, refused = (a_correction("round-voided", round_id=each) for each in ("r4", "no"))
    return [*rounds[:5], removed, voided, refused, rounds[5]]


REMOVED, VOIDED, REFUSED = 5, 6, 7


def records(log: Sequence[Mapping[str, Any]]) -> list[Record]:
    return list(records_of(json.dumps(each).encode() for each in log))


def replayed(log: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    read = records(log)
    replay = Replay(LADDERS, WINDOW, verdicts=verdicts_of_log(lambda: read, LADDERS, WINDOW))
    for _ in replay.run(read):
        pass
    pool = replay.pools["l"]
    return {player: pool.belief_bytes(player) for player in pool.players()}


def changed(belief: bytes, **fields: float) -> bytes:
    beliefs = record.decode([belief], 0, 0.0, 1.0)
    header = beliefs.header.copy()
    for name, value in fields.items():
        header[name] = value
    return record.encode(Beliefs(header, beliefs.factors))[0]


# --- one belief ----------------------------------------------------------------------------------

ANN = replayed(a_log())["ann"]
CORRECTED = changed(ANN, last=REMOVED, previous_mu=7.0, previous_sigma=8.0, previous_time=9)


def test_which_beliefs_are_the_same() -> None:
    """Where corrections or rebuilds write otherwise, bytes may differ. No rounds are no belief."""
    assert same_belief(ANN, ANN, ())
    assert same_belief(CORRECTED, ANN, {REMOVED})
    assert not same_belief(CORRECTED, ANN, ())
    assert not same_belief(CORRECTED, ANN, {VOIDED})
    assert not same_belief(changed(ANN, previous_mu=7.0), ANN, {REMOVED, VOIDED})
    rebuilt = changed(ANN, previous_mu=7.0, previous_sigma=8.0, untold=1)
    assert same_belief(rebuilt, ANN, {VOIDED})
    assert not same_belief(rebuilt, ANN, ())
    assert not same_belief(changed(rebuilt, mu=1.0), ANN, {VOIDED})
    assert not same_belief(changed(rebuilt, last=1), ANN, {VOIDED})
    nobody = changed(CORRECTED, rounds=0)
    assert same_belief(nobody, None, ()) and same_belief(None, nobody, ())
    assert not same_belief(CORRECTED, None, {REMOVED})
    assert not same_belief(None, ANN, {REMOVED})
    assert not same_belief(nobody, ANN, {REMOVED})


@cases("field", ["mu", "sigma", "rounds", "time", "grid", "center", "precision", "scale", "width"])
def test_what_is_believed_is_compared_bit_for_bit(field: str) -> None:
    """Of a corrected belief, too."""
    value = record.decode([ANN], 0, 0.0, 1.0).header[field][0]
    other = changed(CORRECTED, **{field: value + 1})
    assert other != CORRECTED and not same_belief(other, ANN, {REMOVED})


def test_the_performances_are_compared() -> None:
    """All of them; and what is no record is different, and ends nothing."""
    beliefs = record.decode([CORRECTED], 0, 0.0, 1.0)
    count = int(beliefs.header["count"][0])
    assert count > 1
    for i in range(count):
        factors = beliefs.factors.copy()
        factors[0, i] += 1
        other = record.encode(Beliefs(beliefs.header, factors))[0]
        assert other != CORRECTED and not same_belief(other, ANN, {REMOVED})
    fewer = beliefs.header.copy()
    fewer["count"] -= 1
    assert not same_belief(record.encode(Beliefs(fewer, beliefs.factors))[0], ANN, {REMOVED})
    for junk in (b"", b"junk", bytes([250]) + ANN[1:]):
        assert not same_belief(junk, ANN, {REMOVED})
        assert not same_belief(junk, None, {REMOVED})


# --- a whole store -------------------------------------------------------------------------------


def compared(store: Mapping[str, bytes], read_log: Callable[[], Iterable[Record]]) -> Verdict:
    stored = [(("l", player), belief) for player, belief in store.items()]
    return compare(LogReader.of(read_log), LADDERS, WINDOW, 0, lambda: [stored])


def verified(store: Mapping[str, bytes], log: Sequence[Mapping[str, Any]]) -> Verdict:
    read_log = records(log)
    return compared(store, lambda: read_log)


def corrected_store() -> dict[str, bytes]:
    """Ann and bob have played since; the others are gone, and left a belief of no rounds."""
    return replayed(a_log()) | dict.fromkeys(["cy", "dee", "eve"], changed(CORRECTED, rounds=0))


def test_a_corrected_store_is_equal() -> None:
    """Also for players who are gone, who have not played since, or are in an amended amendment."""
    verdict = verified(corrected_store(), a_log())
    assert verdict.equal, (verdict.missing, verdict.differing)
    assert (verdict.rounds, verdict.beliefs) == (6, 5)
    assert verdict.rejected == {"unknown-round": 1}
    without = {who: corrected_store()[who] for who in ("ann", "bob")}
    assert verified(without, a_log()).equal and verified(without, a_log()).beliefs == 2
    log = a_log()[:-1]
    store = {
        who: changed(each, last=VOIDED, previous_mu=1.0, previous_sigma=2.0)
        for who, each in replayed(log).items()
    }
    assert set(store) == {"ann", "bob"} and verified(store, log).equal
    for offset in (REFUSED, 3):
        bad = store | {"ann": changed(store["ann"], last=offset)}
        assert verified(bad, log).differing == [("l", "ann")]
    amended = [
        a_correction("round-amended", round_id="r5", standings=ranked([1, 2], names))
        for names in (["ann", "zoe"], ["ann", "bob"])
    ]
    log = [*a_log(), *amended]
    store = replayed(log) | {"zoe": CORRECTED}
    assert verified(store, log).surplus == [("l", "zoe")]
    assert verified(replayed(log), log).equal


@cases("forgotten", ["cy", "dee", "eve", "ann"])
def test_a_correction_that_was_forgotten_is_found(forgotten: str) -> None:
    """Of a player who should be gone, and of one who should have moved."""
    uncorrected = replayed([each for each in a_log() if "event_type" not in each])
    store = corrected_store() | {forgotten: uncorrected[forgotten]}
    verdict = verified(store, a_log())
    assert [*verdict.differing, *verdict.surplus] == [("l", forgotten)]


def test_a_log_without_corrections_is_read_once() -> None:
    log = [each for each in a_log() if "event_type" not in each]
    store, once = replayed(log), iter(records(log))
    assert len(store) == 5 and compared(store, lambda: once).equal


# --- rounds that come during it -------------------------------------------------------------------


class BusyPlace(MemoryPlace):
    """While its beliefs are read, these records come and are rated. That of `wrong` is another."""

    def __init__(self, *more: Line, wrong: str = "") -> None:
        self.engine, self._more, self._wrong = EmbeddedEngine(ANY_LADDER), more, wrong
        super().__init__(self.engine.log, self.engine.store)
        self._rate(*(a_round(i, "ann", "bob", "cy") for i in range(4)), a_seed(4, "dee"))

    def _rate(self, *more: Line) -> None:
        put(self, more)
        self.engine.settle()

    def beliefs(self) -> Stored:
        self._rate(*self._more)
        for batch in super().beliefs():
            yield [(of, changed(b, mu=1.0) if of[1] == self._wrong else b) for of, b in batch]


@cases("wrong", ["", "ann", "bob", "dee", "zed", "eve"])
def test_rounds_may_come_while_it_compares(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A belief is compared at the offset that it has. No round has come for dee."""
    more = (
        a_round(9, "ann", "zed"), a_seed(10, "eve"), a_round(11, "zed", "bob"),
        a_round(12, "bob", "cy"),
    )  # fmt: skip
    use(monkeypatch, BusyPlace(*more, wrong=wrong))
    outcome = "0 missing, 1 different, 0 that" if wrong else "all equal, bit for bit"
    assert f"6 beliefs compared: {outcome}" in run("verify").output


def test_a_correction_that_comes_during_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes what was replayed: equal or not is not known yet."""
    use(monkeypatch, BusyPlace(a_correction("round-voided", round_id="r1")))
    result = run("verify")
    assert (result.exit_code, "3 not yet known, because" in result.stderr) == (4, True)


# --- seeds ---------------------------------------------------------------------------------------


RESET = a_correction("player-reset", round_id="s4", at=day(4), player="bob", sigma=300.0)
VOID = a_correction("round-voided", round_id="s0")
SEASON = a_correction("season-started", season=1, keep=0.9, sigma=10.0)
SEEDED = [
    a_seed(0, "ann", "bob", "zed"), a_round(1, "ann", "bob"), a_seed(2, "bob", "cy", mu=1300.0),
    a_round(3, "cy", "ann"), RESET, {**RESET, "round_id": "s5", "player": "nobody"},
]  # fmt: skip
VETERANS_ROW = 2  # The offset of the seed that changes nothing for bob.


def test_a_seeded_store_is_equal() -> None:
    """A belief that a voided seed left is found. A rebuilt veteran may name an ineffective seed."""
    verdict = verified(replayed(SEEDED), SEEDED)
    assert verdict.equal and (verdict.rounds, verdict.seeds, verdict.beliefs) == (2, 4, 4)
    removed = a_correction("player-removed", player="zed", seed=True)
    for correction in (VOID, removed):
        log = [*SEEDED, correction]
        store = replayed(log)
        assert "zed" not in store and verified(store, log).equal
        left = store | {"zed": replayed(SEEDED)["zed"]}
        assert verified(left, log).surplus == [("l", "zed")]
        gone = store | {"zed": changed(left["zed"], rounds=0, last=len(SEEDED))}
        assert verified(gone, log).equal
    log = [*SEEDED[:4], SEASON]
    store = replayed(log)
    rebuilt = store | {"bob": changed(store["bob"], last=VETERANS_ROW)}
    assert verified(rebuilt, log).equal
    without = replayed(SEEDED[:4])
    rebuilt = without | {"bob": changed(without["bob"], last=VETERANS_ROW)}
    assert verified(rebuilt, SEEDED[:4]).differing == [("l", "bob")]


@cases("more", [[], [SEASON]])
@cases(("lost", "players"), [(0, ["ann", "bob", "cy", "zed"]), (2, ["ann", "cy"]), (4, ["bob"])])
def test_a_lost_seed_is_found(lost: int, players: list[str], more: list[Line]) -> None:
    """Or a lost reset, whether the ladder has corrections or not."""
    log = [*SEEDED, *more]
    another = a_seed(9, "another")
    store, without = replayed(log), replayed([*SEEDED[:lost], another, *SEEDED[lost + 1 :]])
    for player in players:
        harmed = {who: each for who, each in store.items() if who != player}
        harmed |= {player: without[player]} if player in without else {}
        verdict = verified(harmed, log)
        assert [*verdict.missing, *verdict.differing] == [("l", player)]


@cases("more", [[], [SEASON]])
def test_a_seed_that_counted_too_often_is_found(more: list[Line]) -> None:
    """After a round of its player, and once more after the own effect."""
    log = [*SEEDED, *more]
    store = replayed(log)
    after_a_round = replayed([a_seed(2, "bob", mu=1300.0)])["bob"]
    assert verified(store | {"bob": changed(after_a_round, last=2)}, log).differing == [
        ("l", "bob")
    ]
    assert verified(store | {"ann": replayed(SEEDED[:1])["ann"]}, log).differing == [("l", "ann")]


# --- the command ----------------------------------------------------------------------------------


def wait_for(looks: Sequence[tuple[int, int]], members: int = 1) -> None:
    """Wait for workers, so many in each group, which are this far behind at each look."""
    checks.wait_until_idle(iter(looks), lambda _: members, 60.0)


def a_service(layout: object) -> KafkaPlace:
    """A place on Kafka and Redis whose store has this layout."""
    place = KafkaPlace(Settings(), 1.0)
    place.__dict__["store"] = SimpleNamespace(layout=layout, close=lambda: None)
    return place


def test_what_ends_verify_before_any_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis is down, the duplicate window is another one, or a move is unfinished."""

    def down(_: int) -> int:
        raise StoreTrouble("redis: connection refused")

    use(monkeypatch, a_service(SimpleNamespace(begun_by=down)))
    result = run("verify", "--wait", "60")
    assert result.exit_code == 1
    assert result.stderr == "stream-rater: redis: connection refused\n"
    stored = {"kernel": b"11", "duplicate_window": b"7"}
    client: Any = SimpleNamespace(
        hget=lambda _, field: stored.get(field), hmget=lambda _, fields: map(stored.get, fields)
    )
    place = a_service(StoreMetadata(client, lambda call: call()))
    place.ladder_log = lambda: pytest.fail("it went on")  # type: ignore[method-assign]
    use(monkeypatch, place)
    result = run("verify")
    assert result.exit_code == 2
    assert result.stderr == (
        "stream-rater: the workers have duplicate_window = 7, here it is 100000: set what the "
        "workers have: nothing was compared\n"
    )
    stored["rebuilding"] = b"move of a.db"
    use(monkeypatch, a_service(StoreMetadata(client, lambda call: call())))
    assert "the move of a.db to this place is unfinished: use a.db on" in run("verify").stderr


def test_what_is_waited_for_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every ten seconds, if it has changed. Where nobody is behind there is no line."""
    now_s = itertools.count(100.0, 4.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(now_s))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    wait_for([(0, 0)])
    assert capsys.readouterr().err == ""
    wait_for([(3, 4), (1, 0), (1, 0), (1, 0), (0, 1), (0, 1), (0, 1), (0, 0)])
    assert capsys.readouterr().err == (
        "waiting for the workers, which are 7 records behind, for 56 s at most\n"
        "waiting for the workers, which are 1 record behind, for 44 s at most\n"
    )


def test_parts_are_looked_for_after_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is finished while it looks: its part is sent by then, and not applied. Rounds that
    come later, and their parts, are not waited for."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    sent, applied, reported = 0, 0, iter(range(1, 9))

    def left(group: str, _: str, ends: Mapping[int, int]) -> dict[int, range]:
        nonlocal sent, applied
        before, sent, applied = applied, sent + 1, sent  # by the next look, it is applied
        return {0: range(before, ends[0])}

    def look(ends: Mapping[int, int]) -> dict[int, range]:
        nonlocal sent
        assert ends == {0: 1}
        sent = 1
        return {}

    place, topics = a_service(None), Topics.of(Settings())
    admin: Any = SimpleNamespace(
        topics=topics, members=lambda _: 1, left=left, partitions_of=lambda *_: (1,),
        starts=lambda *_: [0],
        ends=lambda topic, _: [sent if topic == topics.parts else next(reported)],
    )  # fmt: skip
    place.admin = admin
    monkeypatch.setattr(kafka, "UnfinishedRounds", lambda *_: SimpleNamespace(look=look))
    with place.at_rest(60.0):
        assert applied == 2 and place.ends() == [1]
    assert place.ends() == [2]


@cases("behind, role", [((6, 0), "6 records of an estimator"), ((0, 1), "1 record of an updater")])
def test_nobody_is_waited_for_who_does_not_run(behind: tuple[int, int], role: str) -> None:
    """It says at once which roles to start. If nothing is left to do, none need run."""
    expected = f"{role}'s work left, and no worker with this role runs: start one"
    with pytest.raises(Failed, match=expected):
        wait_for([behind], members=0)
    wait_for([(0, 0)], members=0)


def test_rejections_are_shown_by_their_codes() -> None:
    """The most frequent first: duplicates are harmless, others may not be."""
    codes = Counter({"bad-time": 1, "duplicate-round": 18})
    assert verify._report(Verdict(rounds=200, rejected=codes, beliefs=7), 0) == (
        "200 rounds replayed, 19 rejected (18 duplicate-round, 1 bad-time), 7 beliefs compared: "
        "all equal, bit for bit"
    )
    assert verify._report(Verdict(rounds=1, beliefs=2), 0) == (
        "1 rounds replayed, 0 rejected, 2 beliefs compared: all equal, bit for bit"
    )


# --- the ladders that `--sample` compares ---------------------------------------------------------

NAMES = [f"ladder-{i}" for i in range(1000)]


def test_a_sample() -> None:
    """It has about its share, is part of every larger one, is equal anywhere, and is reported."""
    tenth, fifth = Sample.of(0.1, NAMES), Sample.of(0.2, NAMES)
    assert 70 < len(tenth.ladders) < 130
    assert tenth.ladders < fifth.ladders < frozenset(NAMES)
    assert Sample.of(1.0, NAMES).ladders == frozenset(NAMES)
    assert place_of("ranked-eu") == 0.37036004154313595
    assert Sample.of(0.05, NAMES) == Sample.of(0.05, reversed(NAMES))
    assert Sample.of(0.5, []).ladders == frozenset()
    one = Sample.of(1e-9, NAMES)
    assert one.ladders == {min(NAMES, key=place_of)}
    assert one.described(12, 34_567, 89_000) == (
        "This is a sample of 1e-09: 1 of 1,000 ladders, 12 of 34,567 players, in a log of 89,000 "
        "records. Nothing is proven about the others"
    )


# --- whether offsets that the workers left have a record ------------------------------------------


class FakeReader:
    """Its calls return an offset of a record or nothing, in turn. The last one reaches `end`."""

    def __init__(self, *found: int | None, end: int = -1) -> None:
        self._found, self._end = [*found], end
        self.begun: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def start_at(self, offsets: dict[int, int]) -> None:
        self.begun = offsets

    def read(self, _: float, at_most: int) -> Sequence[Record]:
        assert at_most == 1
        offset = self._found.pop(0) if self._found else None
        if not self._found and self._end >= 0:
            self.ends = {0: self._end}
        return [] if offset is None else [Record(0, offset, b"")]


@cases(("reader", "expected"), [
    (FakeReader(7), True), (FakeReader(None, None, 7), True),
    (FakeReader(9), False),  # it came later
    (FakeReader(None, end=9), False),
])  # fmt: skip
def test_a_record_is_looked_for(reader: Any, expected: bool) -> None:
    assert kafka_topics._may_have_record(reader, 0, range(5, 9)) == expected
    assert reader.begun == {0: 5}


@cases("reader", [FakeReader(None), FakeReader(None, end=8)])
def test_what_could_not_be_read_may_have_one(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over, or a replica does not reach the end yet."""
    monkeypatch.setattr(kafka_topics, "READ_S", 0.05)
    assert kafka_topics._may_have_record(reader, 0, range(5, 9))


def test_nothing_is_read_while_workers_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only at the first look, and where nothing has moved since the last one."""
    left = [range(5, 9), range(6, 9), range(7, 9), range(7, 9), range(9, 9)]
    offsets = iter(left)
    admin: Any = SimpleNamespace(
        topics=Topics.of(Settings()), left=lambda *_: {0: next(offsets), 1: range(4, 4)}
    )
    looks, read = UnfinishedRounds(Settings(), admin), list[dict[int, range]]()

    def with_records(found: dict[int, range]) -> dict[int, range]:
        read.append(found)
        return {}

    monkeypatch.setattr(looks, "_with_records", with_records)
    found = [looks.look({0: 9, 1: 4}) for _ in left]
    assert read == [{0: left[0]}, {0: left[3]}]
    assert found == [{}, {0: left[1]}, {0: left[2]}, {}, {}]
