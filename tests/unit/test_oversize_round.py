"""A round larger than a wave: in pieces, other rounds between them, and yet one round."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import msgspec
import pytest

from stream_rater.adapters.local_driver import estimator_worker, updater_worker
from stream_rater.adapters.memory import Log, Store
from stream_rater.columns.arrays import Floats
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.record import Record
from stream_rater.pipeline import ports
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.estimator.progress import READ_AHEAD
from stream_rater.pipeline.observer import Traced
from stream_rater.pipeline.updater.updater import Updater
from tests.builders.machines import ByHand, Recorder, part_in
from tests.rounds import as_json, ranked
from tests.unit.test_estimator import a_round, by_hand, opened, owning, parts_sent, priors, read

WAVE = 4
MANY = [f"m{i}" for i in range(2 * WAVE + 2)]  # Three pieces.
LARGE, SMALL = a_round(0, *MANY), a_round(0, "a", "b", partition=1)


@pytest.fixture
def hand() -> ByHand:
    """An estimator of waves of four, who owns two partitions."""
    hand = by_hand(Recorder(), wave_players=WAVE)
    owning(hand, 0, 1)
    return hand


def asked(effect: ports.ReadPriors) -> set[str]:
    return {player for players in effect.players.values() for _, player in players}


def sent(hand: ByHand, *ends: int) -> list[str]:
    """Acknowledge the parts in hand, each shard's so that they end there; whose they are."""
    messages = hand.expect(ports.Scatter).parts
    parts_sent(hand, *[ends[shard] - 1 for shard, _ in messages])
    return [player for _, data in messages for player in part_in(data).players]


def look(hand: ByHand, applied: int) -> None:
    """The machine, with nothing to rate, looks how far the store is."""
    assert asked(priors(hand, applied=applied)) == set()


def read_all(hand: ByHand) -> None:
    """All pieces' priors, everybody's new, up to the first thing done with them."""
    for _ in range(3):
        priors(hand)
        if isinstance(hand.effect, ports.Poll):
            read(hand)


def test_a_piece_is_read_again_that_did_not_count(hand: ByHand) -> None:
    """Because the store is behind what was seen of it."""
    read(hand, LARGE)
    priors(hand, applied=3)
    read(hand)
    assert asked(priors(hand, applied=2)) == set(MANY[WAVE : 2 * WAVE])
    read(hand)
    look(hand, 3)
    assert asked(priors(hand, applied=3)) == set(MANY[WAVE : 2 * WAVE])


def test_pieces_wait_for_the_store_and_others_do_not(hand: ByHand) -> None:
    """Two may be on their way. The round is sent only with the last one."""
    read(hand, LARGE)
    read_all(hand)
    got = sent(hand, 10, 10)
    hand.answer(
        ports.Poll, ports.Polled(0.0), timeout_s=pytest.approx(0.011)
    )  # the store has work for longer
    look(hand, 0)
    got += sent(hand, 11, 11)
    read(hand)
    look(hand, 9)
    hand.answer(ports.Poll, ports.Polled(0.0, records=[SMALL]), no_fetch=False)
    assert asked(priors(hand, applied=9)) == {"a", "b"}
    assert sorted(sent(hand, 20, 20)) == ["a", "b"]
    hand.answer(ports.CommitSource, offsets={1: 1})
    read(hand)
    look(hand, 10)
    got += sent(hand, 30, 30)
    hand.answer(ports.CommitSource, offsets={0: 1})
    assert sorted(got) == sorted(MANY)


def evidence(machine: ByHand, large: Record = LARGE) -> dict[str, Floats]:
    """Of all parts that are sent, by player."""
    found = dict[str, Floats]()
    read(machine, large)
    end = 0
    while not isinstance(machine.effect, ports.CommitSource):
        end += 10
        if isinstance(machine.effect, ports.ReadPriors):
            priors(machine, applied=end)
        elif isinstance(machine.effect, ports.Scatter):
            for _, data in machine.effect.parts:
                part = part_in(data)
                found |= dict(zip(part.players, part.evidence, strict=True))
            sent(machine, end, end)
        else:
            read(machine)
    return found


def test_a_lost_one_is_begun_again(hand: ByHand) -> None:
    """Whoever regains its partition begins it, once what was sent is applied. Others go on."""
    read(hand, LARGE)
    read_all(hand)
    sent(hand, 10, 10)
    hand.answer(ports.Poll, ports.Polled(0.0, lost=frozenset({0})))
    hand.answer(ports.Poll, ports.Polled(0.0, gained=frozenset({0})))
    opened(hand, committed={0: 0}, ends=(10, 10))
    read(hand, LARGE)
    look(hand, 9)
    read(hand)
    look(hand, 10)
    assert asked(priors(hand, applied=10)) == set(MANY[:WAVE])
    hand.answer(ports.Poll, ports.Polled(0.0, lost=frozenset({1})))
    assert asked(priors(hand, applied=10)) == set(MANY[WAVE : 2 * WAVE])


def test_reading_goes_on_behind_a_few(hand: ByHand) -> None:
    """Each counts as a wave of players. Behind too many, only the other partition is read."""
    names = [[f"{number}-{i}" for i in range(2 * WAVE)] for number in range(READ_AHEAD + 1)]
    *several, last = [a_round(number, *each) for number, each in enumerate(names)]
    read(hand, *several)
    assert asked(priors(hand)) == set(names[0][:WAVE])
    hand.answer(ports.Poll, ports.Polled(0.0, records=[last]), paused=frozenset())
    assert asked(priors(hand)) == set(names[0][WAVE:])
    hand.expect(ports.Poll, no_fetch=False, paused=frozenset([0]))


def test_it_is_watched_and_counted_once() -> None:
    """However many pieces it has, it has one span if it is traced, and counts as one round sent."""
    seen: list[object] = []

    class Watching(Recorder):
        def working_on(self, rounds: Iterable[Traced]) -> AbstractContextManager[object]:
            seen.extend(each.round_id for each in rounds)
            return nullcontext()

        def rounds_sent(self, rounds: int, players: int) -> None:
            seen.append((rounds, players))

    hand = by_hand(Watching(), wave_players=WAVE)
    owning(hand, 0, 1)
    parent = ("traceparent", f"00-{1:032x}-{1:016x}-01".encode())
    evidence(hand, msgspec.structs.replace(LARGE, headers=[parent]))
    assert seen == ["r0", (1, len(MANY))]


# --- with a store, and an updater ---

CROWD, PART_PLAYERS = 20_000, 400  # A large round is of fifty pieces.


def a_large_or_small_round(round_id: str, ladder: str, size: int) -> bytes:
    names = [f"{round_id}-{i:06d}" for i in range(size)]
    return as_json(*ranked(range(1, size + 1), names), round_id=round_id, ladder=ladder)


def test_other_ladders_do_not_wait_for_a_large_round() -> None:
    """While 20,000 players are rated, at most three pieces of them come before a lobby."""
    log, store = Log(1, 4), Store()
    estimator = Estimator(ANY_LADDER, 4, 1, wave_players=PART_PLAYERS)
    machines = []
    for group, worker, machine in (
        (log.estimators, estimator_worker(log, store), estimator.run()),
        (log.updaters, updater_worker(log, store), Updater(len(log.parts)).run()),
    ):
        group.assign([worker])
        machines.append((worker, machine, next(machine)))
    log.submit(0, a_large_or_small_round("large", "crowd", CROWD), received_s=4e9)
    rated, lobbies, waited = 0, 0, []
    reported_at: dict[str, int] = {}
    while rated < CROWD:
        for i in (*(0,) * 10, 1):
            worker, machine, effect = machines[i]
            if isinstance(effect, ports.Publish):
                rounds = [each.event_id.decode().split(":")[1] for each in effect.events]
                rated += rounds.count("large")
                waited += [rated - reported_at.pop(each) for each in {*rounds} - {"large"}]
                reported_at[name := f"s{lobbies}"] = rated
                log.submit(0, a_large_or_small_round(name, "lobbies", 5), received_s=4e9)
                lobbies += 1
            machines[i] = (worker, machine, machine.send(worker.perform(effect)))
    assert max(waited) <= 3 * PART_PLAYERS
    assert len(waited) >= CROWD / PART_PLAYERS / 2
