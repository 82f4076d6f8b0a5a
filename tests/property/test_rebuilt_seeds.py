"""Logs with seeds: rebuilds as of each player's cut-off, on any cores; seeds in `evaluation`."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from stream_rater.columns.arrays import Ints
from stream_rater.config.ladders import ANY_LADDER, Ladders, any_ladder
from stream_rater.contract.record import Player, Record
from stream_rater.evaluation.evaluation import Contender, evaluate
from stream_rater.evaluation.season import Session, before, sessions_of
from stream_rater.operations import corrected_rebuild
from stream_rater.operations.cutoff import Cutoff
from stream_rater.operations.rebuild_store import Rebuild
from stream_rater.rating import record as belief_record
from stream_rater.rating.parameters import Elo, EloMMR, RatingConfig
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.replay.edited_log import Verdicts
from stream_rater.replay.ledger import verdicts_of_log
from stream_rater.replay.log_reading import LogReader
from stream_rater.replay.player_index import PlayerIndex
from stream_rater.replay.pool import BeliefTable, SeedOutcome
from stream_rater.replay.sequential import Replay
from tests import edited_by_hand
from tests.benchmarks.lab.game import singly
from tests.builders.cases import cases
from tests.builders.lines import Line, ListedRecords, a_correction, a_round, a_seed
from tests.builders.machines import part, record
from tests.rounds import day

from .test_corrections import WINDOW, records, some_ladders

LADDER = edited_by_hand.LADDER
CORES = {count: Cores(count) for count in (1, 2, 5)}


def replayed(
    log: Sequence[Record], ladders: Ladders, verdicts: Verdicts, cores: Cores = ONE_CORE
) -> dict[Player, bytes]:
    """The beliefs after a log, as `rate` and `verify` find them."""
    replay = Replay(ladders, WINDOW, verdicts=verdicts, cores=cores)
    for _ in replay.run(log):
        pass
    found = dict[Player, bytes]()
    for ladder, pool in replay.pools.items():
        rows = pool.played()
        names = pool.names.take(rows).texts()
        found |= zip([(ladder, each) for each in names], pool.records(rows), strict=True)
    return found


def rebuilt(
    log: Sequence[Record], ladders: Ladders, verdicts: Verdicts, cutoff: Cutoff, at_once: int,
    cores: Cores = ONE_CORE,
) -> dict[Player, bytes]:  # fmt: skip
    """The beliefs that a rebuild finds."""
    work = Rebuild(ladders, WINDOW, 1, cutoff, verdicts, cores=cores)
    work.run(LogReader(ListedRecords(log, at_once), {0: len(log)}))
    found = list(chain.from_iterable(work.beliefs()))
    assert len(dict(found)) == len(found)
    return dict(found)


def cutoff_of(until: dict[str, int], end: int) -> Cutoff:
    """Cut-offs at these offsets, each as of one part. All records of other players count."""
    g = sum(offset >= 0 for offset in until.values())
    found = Cutoff({0: g}, {0: end}, 1)
    done = [each for each in until.items() if each[1] >= 0]
    late = [each for each in until.items() if each[1] < 0]
    parts = [(offset, name) for name, offset in done] + [(0, name) for name, _ in late]
    found.add([record(at, part(each, ladder=LADDER)) for at, each in enumerate(parts)])
    return found


def a_log(rng: random.Random, size: int) -> list[Record]:
    return records(edited_by_hand.a_log(rng, size, seeds=True))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32), size=st.integers(6, 50), at_once=st.sampled_from([1, 7, 1000]),
    players=st.sampled_from([1, 20, 50_000]), cores=st.sampled_from([1, 2, 5]),
)  # fmt: skip
def test_each_player_as_of_the_own_cutoff(
    seed: int, size: int, at_once: int, players: int, cores: int
) -> None:
    """As if the replay had ended there, but edited by all corrections, however it is fed."""
    rng = random.Random(seed)
    log, (ladders, _) = a_log(rng, size), some_ladders(rng, size)
    verdicts = verdicts_of_log(lambda: iter(log), ladders, WINDOW)
    until = {name: rng.randrange(-1, len(log)) for name in rng.sample(edited_by_hand.PLAYERS, 4)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stream_rater.operations.rebuild_store.AT_ONCE", players)
        patch.setattr("stream_rater.replay.cores.LEAST_PIECE", 2)
        found = rebuilt(log, ladders, verdicts, cutoff_of(until, len(log)), at_once, CORES[cores])
    expected = replayed(log, ladders, verdicts)
    for name, offset in until.items():
        expected.pop((LADDER, name), None)
        own = replayed(log[: offset + 1], ladders, verdicts).get((LADDER, name))
        expected |= {} if own is None else {(LADDER, name): own}
    assert found == expected


NOTHING = Verdicts({}, {})
LADDERS, _ = some_ladders(random.Random(1), 10)
GIVEN = [
    a_seed(0, "a", "b"), a_round(1, "a", "c"), a_seed(2, "c", "d", mu=1600.0),
    a_round(3, "a", "d"), a_seed(4, "d", "e", mu=1300.0), a_round(5, "b", "e"),
]  # fmt: skip


def test_a_rejected_correction_leaves_nothing_in_beliefs() -> None:
    """Cy's last part is of a seed that changed nothing, and the belief still names the round."""
    log = records([*GIVEN[:4], a_correction("round-voided", round_id="nowhere")])
    cutoff = cutoff_of({"c": 2}, len(log))
    (edition,) = corrected_rebuild.editions(lambda: iter(log), LADDERS, WINDOW, 0, cutoff)
    traces = corrected_rebuild.CorrectionTraces({}, cutoff, edition, LADDERS)
    work = Rebuild(LADDERS, WINDOW, 1, cutoff, edition.verdicts, traces)
    work.feed(log)
    assert dict(chain.from_iterable(work.beliefs())) == replayed(log, LADDERS, edition.verdicts)


@cases("published", [corrected_rebuild.LastPublished(1, 1512.0, 170.0), None])
def test_a_correction_in_progress_that_reached_a_player(
    published: corrected_rebuild.LastPublished | None,
) -> None:
    """The rebuilt belief has the values that were published last, or else the initial ones."""
    voided = a_correction("round-voided", round_id="r1")
    log = records([a_round(0, "a", "b"), a_round(1, "a", "c"), voided])
    whole = verdicts_of_log(lambda: iter(log), LADDERS, WINDOW)
    player = LADDER, "a"
    corrected = replayed(log, LADDERS, whole)[player]
    cutoff = cutoff_of({}, 2)  # the correction's offset is not committed
    cutoff.corrected[player] = 2, corrected
    (edition,) = corrected_rebuild.editions(lambda: iter(log), LADDERS, WINDOW, 0, cutoff)
    assert not edition.verdicts.edits
    assert corrected_rebuild.corrected_ladders(edition.verdicts, cutoff) == {LADDER}
    traces = corrected_rebuild.CorrectionTraces(
        {} if published is None else {player: published}, cutoff, edition, LADDERS
    )
    work = Rebuild(LADDERS, WINDOW, 1, cutoff, edition.verdicts, traces)
    work.feed(log)
    found = dict(chain.from_iterable(work.beliefs()))[player]
    (now,), (sent,) = belief_record.headers_of([found]), belief_record.headers_of([corrected])
    expected = (1500.0, 350.0) if published is None else published[1:3]
    assert (now["last"], now["mu"], now["untold"]) == (2, sent["mu"], 1)
    assert (now["previous_mu"], now["previous_sigma"]) == expected


def test_a_removed_round_is_not_applied_again() -> None:
    """Its parts are deleted, and the player's last event is of the correction that removed it."""
    voided = a_correction("round-voided", round_id="r1")
    log = records([a_round(0, "a", "b"), a_round(1, "a", "c"), voided])
    cutoff = cutoff_of({}, len(log))
    (edition,) = corrected_rebuild.editions(lambda: iter(log), LADDERS, WINDOW, 0, cutoff)
    published = {(LADDER, "a"): corrected_rebuild.LastPublished(2, 1512.0, 170.0)}
    traces = corrected_rebuild.CorrectionTraces(published, cutoff, edition, LADDERS)
    work = Rebuild(LADDERS, WINDOW, 1, cutoff, edition.verdicts, traces)
    work.feed(log)
    found = dict(chain.from_iterable(work.beliefs()))
    last = {name: belief_record.headers_of([each])[0]["last"] for (_, name), each in found.items()}
    assert last == {"a": 2, "b": 0}


def test_seeds_before_and_after_a_change_are_not_applied_together() -> None:
    """A season, or another set of parameters, applies to the later seed only."""
    season = a_correction("season-started", season=1, keep=0.5, sigma=200.0)
    log = records([a_seed(0, "a"), season, a_seed(1, "b"), a_seed(2, "c")])
    rating = {"system": "elo-mmr", "weight_limit": 0.2, "sigma_limit": 80}
    changes = [{"from_offset": 3, "rating": {**rating, "initial_mu": 1400.0}}]
    table = {"ladders": {LADDER: {"rating": rating, "changes": changes}}}
    ladders = msgspec.convert(table, Ladders)
    verdicts = verdicts_of_log(lambda: iter(log), ladders, WINDOW)
    due = replayed(log, ladders, verdicts)
    assert rebuilt(log, ladders, verdicts, cutoff_of({}, len(log)), 100) == due
    headers = belief_record.decode(list(due.values()), 0, 0.0, 1.0).header
    assert headers["season"].tolist() == [0, 1, 1]
    assert headers["previous_mu"].tolist() == [1500.0, 1500.0, 1400.0]


def test_many_seeded_players_are_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Successive seeds take one call, however many. A round separates only its own players."""
    calls = list[int]()
    log = records([
        *(a_seed(i, *(f"p{i}-{k}" for k in range(40))) for i in range(10)),
        a_round(10, "p3-3", "p4-4"), a_seed(11, "p3-3", "x", "y"), a_round(12, "x", "p5-5"),
    ])  # fmt: skip
    original = BeliefTable.give

    def counted(self: BeliefTable, rule: Any, rows: Ints, *more: Any, **named: Any) -> SeedOutcome:
        calls.append(len(rows))
        return original(self, rule, rows, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(BeliefTable, "give", counted)
        found = rebuilt(log, ANY_LADDER, NOTHING, cutoff_of({}, len(log)), 100)
    assert found == replayed(log, ANY_LADDER, NOTHING)
    assert calls == [402, 1]


def test_the_first_of_two_seeds_counts() -> None:
    """Also where both are applied at once: a seed changes no player who has a rating."""
    log = records([a_seed(0, "a", "b"), a_seed(1, "b", "c")])
    found = rebuilt(log, ANY_LADDER, NOTHING, cutoff_of({}, len(log)), 100)
    assert found == replayed(log, ANY_LADDER, NOTHING)
    assert belief_record.headers_of(list(found.values()))["last"].tolist() == [0, 0, 1]


def test_a_reset_of_somebody_unknown_leaves_no_player() -> None:
    """Neither a replay nor a rebuild has the player afterwards."""
    reset = a_correction("player-reset", round_id="x", player="nobody", at=day(1), sigma=200.0)
    log = records([a_round(0, "a", "b"), reset])
    replay = Replay(LADDERS, WINDOW)
    assert list(replay.run(log)) and replay.pools[LADDER].players() == ["a", "b"]
    found = rebuilt(log, LADDERS, NOTHING, cutoff_of({}, len(log)), 100)
    assert found == replayed(log, LADDERS, NOTHING)
    assert len(found) == 2


# --- the beliefs after a log do not depend on the number of cores, to the bit ---------------------

NAMES = "lmn"


def a_log_of_three(rng: random.Random, size: int) -> list[Record]:
    """Three ladders take turns, with seeds, resets, seasons and all kinds of corrections."""
    each = [edited_by_hand.a_log(rng, size, seeds=True) for _ in NAMES]
    lines = [
        {**line, "ladder": name}
        for together in zip(*each, strict=True)
        for name, line in zip(NAMES, together, strict=True)
    ]
    return records(lines)


def three_ladders(rng: random.Random, size: int) -> Ladders:
    """Three ladders, each of any system. Some have other parameters from an offset on."""
    ladders = {}
    for name in NAMES:
        rating, other = rng.choice(edited_by_hand.SYSTEMS)
        changes = [{"from_offset": rng.randrange(1, 3 * size), "rating": other}]
        ladders[name] = {"rating": rating, "changes": changes if rng.random() < 0.6 else []}
    return msgspec.convert({"ladders": ladders}, Ladders)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(6, 40), piece=st.sampled_from([1, 2, 7]))
def test_the_same_bits_on_any_number_of_cores(seed: int, size: int, piece: int) -> None:
    """Wherever waves are cut, and whichever ladders are rated at the same time."""
    rng = random.Random(seed)
    log, ladders = a_log_of_three(rng, size), three_ladders(rng, size)
    verdicts = verdicts_of_log(lambda: iter(log), ladders, WINDOW)
    whole = Cutoff({}, {0: len(log)}, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stream_rater.replay.cores.LEAST_PIECE", piece)
        patch.setattr("stream_rater.replay.sequential.LEAST_TOGETHER", 1)
        due = replayed(log, ladders, verdicts, CORES[1])
        for cores in CORES.values():
            assert replayed(log, ladders, verdicts, cores) == due
            assert rebuilt(log, ladders, verdicts, whole, 40, cores) == due


# --- evaluation ---

CONFIG = EloMMR(weight_limit=0.2, sigma_limit=80.0, seats={"home": 45.0})


def without_seasons(rng: random.Random, size: int) -> list[Line]:
    """A log without seasons, which `evaluation` does not know."""
    log = edited_by_hand.a_log(rng, size, seeds=True)
    return [each for each in log if each.get("event_type") != "season-started"]


def sessions(log: list[Line]) -> tuple[list[Session], dict[str, PlayerIndex]]:
    """The sessions of a log as its corrections edit it, and the players of each ladder."""
    given_log, players = records(log), dict[str, PlayerIndex]()
    verdicts = verdicts_of_log(lambda: given_log, ANY_LADDER, WINDOW)
    found = sessions_of(given_log, WINDOW, lambda *_: None, players, verdicts=verdicts)
    return list(found), players


def shown(log: list[Line], config: RatingConfig) -> dict[str, tuple[float, ...]]:
    """Mu, sigma and rounds of each player after the log's last round."""
    given_log = records(log)
    verdicts = verdicts_of_log(lambda: given_log, ANY_LADDER, WINDOW)
    replay, found = Replay(any_ladder(config), WINDOW, verdicts=verdicts), {}
    for batch in replay.run(given_log):
        for rated in batch.rated:
            header = rated.pool.headers(np.arange(len(rated.pool)))
            columns = (header[name].tolist() for name in ("mu", "sigma", "rounds"))
            found = dict(zip(rated.pool.players(), zip(*columns, strict=True), strict=True))
    return found


def believed(
    found: list[Session], players: dict[str, PlayerIndex], config: RatingConfig
) -> dict[str, tuple[float, ...]]:
    """Mu, sigma and rounds of each player after these sessions."""
    contender = Contender(config)
    for _ in contender.rate(found):
        pass
    header = contender._pools[LADDER].headers(np.arange(found[-1].players))
    columns = (header[name].tolist() for name in ("mu", "sigma", "rounds"))
    names = players[LADDER].names(np.arange(found[-1].players)).texts()
    both = zip(names, zip(*columns, strict=True), strict=True)
    return {name: values for name, values in both if values[2]}


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32), size=st.integers(6, 40), block=st.sampled_from([1, 10_000]),
    config=st.sampled_from([CONFIG, Elo.sample()]),
)  # fmt: skip
def test_beliefs_are_those_of_a_replay(
    seed: int, size: int, block: int, config: RatingConfig
) -> None:
    """Whatever rounds are rated together, beliefs are a replay's, and only rounds are scored."""
    log = without_seasons(random.Random(seed), size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stream_rater.evaluation.season.BLOCK_BYTES", block)
        found, players = sessions(log)
    due = shown(log, config)
    assert believed(found, players, config) == due
    assert believed(singly(found), players, config) == due
    assert len(evaluate(found, config).scores) == sum(len(each.rounds) for each in found)


def test_the_first_round_of_a_seeded_player_is_predicted_by_the_seed() -> None:
    """By its mu, sigma and rounds, also where a system counts rounds by itself."""
    found, _ = sessions([a_seed(0, "a", mu=1700.0, sigma=90.0, rounds=7), a_round(1, "a", "b")])
    for config in (CONFIG, structs.replace(CONFIG, skip_all_tied=True)):
        ((_, _, wave),) = list(Contender(config).rate(found))
        assert wave is not None
        assert (wave.mu[0], wave.sigma[0], wave.rounds.tolist()) == (1700.0, 90.0, [7, 0])


def test_a_seed_is_cut_to_what_a_configuration_can_have() -> None:
    """A sigma above the initial one is cut, and so is a mu below the floor."""
    found, _ = sessions([a_seed(0, "a", mu=1100.0, sigma=300.0), a_round(1, "a", "b")])
    narrow = EloMMR(weight_limit=0.2, sigma_limit=80.0, initial_sigma=200.0)
    climbing = Elo(learning_rate=32.0, scale=174.0, floor=1200.0)
    configs: list[RatingConfig] = [narrow, climbing]
    due = [(1100.0, 200.0), (1200.0, climbing.initial_sigma)]
    for config, belief in zip(configs, due, strict=True):
        ((_, _, wave),) = list(Contender(config).rate(found))
        assert wave is not None and (wave.mu[0], wave.sigma[0]) == belief


def test_seeds_of_other_ladders_and_after_the_last_round_are_left_out() -> None:
    """They predict nothing. The first rounds of a season keep the seeds before them."""
    other = {**a_seed(3, "a", mu=1800.0), "ladder": "other"}
    log = [a_seed(0, "a", mu=1700.0), other, a_round(1, "a", "b"), a_round(2, "b", "a")]
    log += [a_seed(4, "a", mu=1.0)]
    found, players = sessions(log)
    assert len(found[0].seeds) == sum(len(each.seeds) for each in found) == 1
    assert before(found, 1)[0].seeds == found[0].seeds
    without = [replace(each, seeds=()) for each in found]
    assert believed(found, players, CONFIG) != believed(without, players, CONFIG)
