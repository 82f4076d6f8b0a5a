"""`verify` on a log with corrections: what a correction writes, and what else may differ."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.config.ladders import any_ladder
from stream_rater.contract.record import Player, Record
from stream_rater.operations.compare_store import Verdict, compare, same_belief
from stream_rater.rating import record
from stream_rater.rating.model import Beliefs
from stream_rater.replay.corrected import verdicts_of_log
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.log_reading import LogReader
from stream_rater.replay.sequential import Replay
from tests.builders.cases import cases
from tests.builders.machines import CONFIG
from tests.rounds import day, event, ranked

LADDERS = any_ladder(CONFIG)
WINDOW, SHARDS = 100, 3


def a_log() -> list[dict[str, Any]]:
    """Cy and dee are removed; dee is only in one round with cy. A round of eve's is voided, and one
    correction is rejected."""
    lobbies = [["ann", "bob", "cy"], ["cy", "dee"], ["bob", "ann"], ["cy", "ann", "bob"],
               ["eve", "bob"], ["ann", "bob"]]  # fmt: skip
    rounds: list[dict[str, Any]] = [
        event(*ranked(range(1, len(names) + 1), names), round_id=f"r{i}", ladder="l",
              completed_at=day(i))
        for i, names in enumerate(lobbies)
    ]  # fmt: skip
    removed = {"event_type": "player-removed", "ladder": "l", "player": "cy"}
    voided = {"event_type": "round-voided", "ladder": "l", "round_id": "r4"}
    refused = {"event_type": "round-voided", "ladder": "l", "round_id": "no"}
    return [*rounds[:5], removed, voided, refused, rounds[5]]


REMOVED, VOIDED, REFUSED = 5, 6, 7


def records(log: Sequence[Mapping[str, Any]]) -> list[Record]:
    return list(records_of(json.dumps(each).encode() for each in log))


def replayed(log: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """By player, the record after the edited log."""
    read = records(log)
    replay = Replay(LADDERS, WINDOW, verdicts=verdicts_of_log(lambda: read, LADDERS, WINDOW))
    for _ in replay.run(read):
        pass
    pool = replay.pools["l"]
    return {player: pool.belief_bytes(player) for player in pool.players()}


def changed(belief: bytes, **fields: float) -> bytes:
    """The record with other values in its header."""
    beliefs = record.decode([belief], 0, 0.0, 1.0)
    header = beliefs.header.copy()
    for name, value in fields.items():
        header[name] = value
    return record.encode(Beliefs(header, beliefs.factors))[0]


# --- one belief ----------------------------------------------------------------------------------

ANN = replayed(a_log())["ann"]
CORRECTED = changed(ANN, last=REMOVED, previous_mu=7.0, previous_sigma=8.0, previous_time=9)


def test_a_corrected_belief_stores_the_past_in_its_own_way() -> None:
    """Where a correction of its ladder has written it last, and nowhere else."""
    assert same_belief(ANN, ANN, ())
    assert same_belief(CORRECTED, ANN, {REMOVED})
    assert not same_belief(CORRECTED, ANN, ())
    assert not same_belief(CORRECTED, ANN, {VOIDED})
    assert not same_belief(changed(ANN, previous_mu=7.0), ANN, {REMOVED, VOIDED})


def test_a_rebuilt_belief_may_have_something_unannounced() -> None:
    """Only on a ladder with corrections."""
    rebuilt = changed(ANN, previous_mu=7.0, previous_sigma=8.0, untold=1)
    assert same_belief(rebuilt, ANN, {VOIDED})
    assert not same_belief(rebuilt, ANN, ())
    assert not same_belief(changed(rebuilt, mu=1.0), ANN, {VOIDED})
    assert not same_belief(changed(rebuilt, last=1), ANN, {VOIDED})


@cases("field", ["mu", "sigma", "rounds", "time", "grid", "center", "precision", "scale", "width"])
def test_what_is_believed_is_compared_bit_for_bit(field: str) -> None:
    """Of a corrected belief, too."""
    value = record.decode([ANN], 0, 0.0, 1.0).header[field][0]
    other = changed(CORRECTED, **{field: value + 1})
    assert other != CORRECTED and not same_belief(other, ANN, {REMOVED})


def test_the_performances_are_compared() -> None:
    """All of them."""
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


def test_a_belief_of_no_rounds_is_none() -> None:
    """Whoever wrote it; one of some rounds is not."""
    nobody = changed(CORRECTED, rounds=0)
    assert same_belief(nobody, None, ()) and same_belief(None, nobody, ())
    assert not same_belief(CORRECTED, None, {REMOVED})
    assert not same_belief(None, ANN, {REMOVED})
    assert not same_belief(nobody, ANN, {REMOVED})


@cases("junk", [b"", b"junk", bytes([250]) + ANN[1:]])
def test_what_is_no_record_is_different(junk: bytes) -> None:
    """And ends nothing."""
    assert not same_belief(junk, ANN, {REMOVED})
    assert not same_belief(junk, None, {REMOVED})


# --- a whole store -------------------------------------------------------------------------------


class StoredRecords(NamedTuple):
    records: Sequence[bytes | None]


def verified(store: Mapping[str, bytes], log: Sequence[Mapping[str, Any]]) -> Verdict:
    """The verdict on a store of ladder `l`."""
    read_log = records(log)

    def read(wanted: Mapping[int, PlayerColumn]) -> Any:
        return {
            shard: StoredRecords([_of(store, player) for player in players])
            for shard, players in wanted.items()
        }

    return compare(LogReader.of(lambda: iter(read_log)), LADDERS, WINDOW, 0, SHARDS, read)


def _of(store: Mapping[str, bytes], player: Player) -> bytes | None:
    ladder, name = player
    return store.get(name) if ladder == "l" else None


def corrected_store() -> dict[str, bytes]:
    """As the service has it: ann and bob have played since; the others are gone, and left a belief
    of no rounds."""
    store = replayed(a_log())
    nobody = changed(CORRECTED, rounds=0)
    return store | dict.fromkeys(["cy", "dee", "eve"], nobody)


def test_a_corrected_store_is_equal() -> None:
    """Of those who are gone each record counts as explained; refused corrections are counted."""
    verdict = verified(corrected_store(), a_log())
    assert verdict.equal, (verdict.missing, verdict.differing)
    assert (verdict.rounds, verdict.beliefs) == (6, 5)
    assert verdict.rejected == {"unknown-round": 1}
    without = {who: corrected_store()[who] for who in ("ann", "bob")}
    assert verified(without, a_log()).equal and verified(without, a_log()).beliefs == 2


def test_a_belief_that_a_correction_wrote_is_equal() -> None:
    """As long as its player has not played since."""
    log = a_log()[:-1]
    store = {
        who: changed(each, last=VOIDED, previous_mu=1.0, previous_sigma=2.0)
        for who, each in replayed(log).items()
    }
    assert set(store) == {"ann", "bob"} and verified(store, log).equal
    for offset in (REFUSED, 3):
        bad = store | {"ann": changed(store["ann"], last=offset)}
        assert verified(bad, log).differing == [("l", "ann")]


@cases("forgotten", ["cy", "dee", "eve", "ann"])
def test_a_correction_that_was_forgotten_is_found(forgotten: str) -> None:
    """Of a player who should be gone, and of one who should have moved."""
    uncorrected = replayed([each for each in a_log() if "event_type" not in each])
    store = corrected_store() | {forgotten: uncorrected[forgotten]}
    assert verified(store, a_log()).differing == [("l", forgotten)]


def test_players_of_an_amendment_that_was_amended_are_looked_for() -> None:
    """They stand in no round that was reported."""
    amended = [
        {"event_type": "round-amended", "ladder": "l", "round_id": "r5",
         "standings": ranked([1, 2], names)}
        for names in (["ann", "zoe"], ["ann", "bob"])
    ]  # fmt: skip
    log = [*a_log(), *amended]
    store = replayed(log) | {"zoe": CORRECTED}
    assert verified(store, log).differing == [("l", "zoe")]
    assert verified(replayed(log), log).equal


def test_a_log_without_corrections_is_read_once() -> None:
    """As it was before there were any."""
    log = [each for each in a_log() if "event_type" not in each]
    store, reads = replayed(log), []

    def again() -> Any:
        reads.append(1)
        return iter(records(log))

    def read(wanted: Mapping[int, PlayerColumn]) -> Any:
        return {s: StoredRecords([_of(store, who) for who in some]) for s, some in wanted.items()}

    assert compare(LogReader.of(again), LADDERS, WINDOW, 0, SHARDS, read).equal
    assert len(reads) == 1
    assert np.all([len(each) > 0 for each in store.values()])


# --- seeds ---------------------------------------------------------------------------------------


def a_seed(number: int, *players: str, mu: float = 1700.0) -> dict[str, Any]:
    rows = [{"player": each, "mu": mu, "sigma": 100.0} for each in players]
    return {
        "event_type": "players-seeded", "ladder": "l", "round_id": f"s{number}", "at": day(number),
        "players": rows,
    }  # fmt: skip


def a_lobby(number: int, *players: str) -> dict[str, Any]:
    places = range(1, len(players) + 1)
    return event(*ranked(places, players), round_id=f"r{number}", ladder="l",
                 completed_at=day(number))  # fmt: skip


RESET = {
    "event_type": "player-reset", "ladder": "l", "round_id": "s4", "at": day(4), "player": "bob",
    "sigma": 300.0,
}  # fmt: skip
SEEDED = [
    a_seed(0, "ann", "bob", "zed"), a_lobby(1, "ann", "bob"), a_seed(2, "bob", "cy", mu=1300.0),
    a_lobby(3, "cy", "ann"), RESET, {**RESET, "round_id": "s5", "player": "nobody"},
]  # fmt: skip
VOID = {"event_type": "round-voided", "ladder": "l", "round_id": "s0"}
SEASON = {"event_type": "season-started", "ladder": "l", "season": 1, "keep": 0.9, "sigma": 10.0}
VETERANS_ROW = 2
"""The offset of the seed that changes nothing for bob."""


def test_a_seeded_store_is_equal() -> None:
    """Seeds need no second reading of the log. A reset of somebody unknown leaves nothing."""
    verdict = verified(replayed(SEEDED), SEEDED)
    assert verdict.equal and (verdict.rounds, verdict.seeds, verdict.beliefs) == (2, 4, 4)


@cases("more", [[], [SEASON]])
@cases(("lost", "players"), [(0, ["ann", "bob", "cy", "zed"]), (2, ["ann", "cy"]), (4, ["bob"])])
def test_a_lost_seed_is_found(lost: int, players: list[str], more: list[dict[str, Any]]) -> None:
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
def test_a_seed_that_counted_too_often_is_found(more: list[dict[str, Any]]) -> None:
    """After a round of its player, and once more after the own effect."""
    log = [*SEEDED, *more]
    store = replayed(log)
    after_a_round = replayed([a_seed(2, "bob", mu=1300.0)])["bob"]
    assert verified(store | {"bob": changed(after_a_round, last=2)}, log).differing == [
        ("l", "bob")
    ]
    once_more = replayed(SEEDED[:1])["ann"]
    assert verified(store | {"ann": once_more}, log).differing == [("l", "ann")]


def test_a_belief_that_a_voided_seed_left_is_found() -> None:
    """Its player is in no round. The same holds for one who was removed from a seed."""
    removed = {"event_type": "player-removed", "ladder": "l", "player": "zed", "seed": True}
    for correction in (VOID, removed):
        log = [*SEEDED, correction]
        store = replayed(log)
        assert "zed" not in store and verified(store, log).equal
        left = store | {"zed": replayed(SEEDED)["zed"]}
        assert verified(left, log).differing == [("l", "zed")]
        gone = store | {"zed": changed(left["zed"], rounds=0, last=len(SEEDED))}
        assert verified(gone, log).equal


def test_a_rebuilt_veteran_may_name_a_seed() -> None:
    """A rebuild of a ladder with corrections sets the last offset to that of the last part, which
    may be of a seed that changed nothing."""
    log = [*SEEDED[:4], SEASON]
    store = replayed(log)
    rebuilt = store | {"bob": changed(store["bob"], last=VETERANS_ROW)}
    assert verified(rebuilt, log).equal
    without = replayed(SEEDED[:4])
    rebuilt = without | {"bob": changed(without["bob"], last=VETERANS_ROW)}
    assert verified(rebuilt, SEEDED[:4]).differing == [("l", "bob")]
