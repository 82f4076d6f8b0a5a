"""A wave's priors and parts are as defined, and a round comes after earlier ones of its players."""

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.arrays import Ints
from stream_rater.columns.player_map import Fingerprints, fingerprints, shards_in
from stream_rater.columns.sharding import shards_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import ANY_LADDER, Ladder, Ladders
from stream_rater.contract.errors import UnratedRound
from stream_rater.pipeline.estimator import backlog, estimation
from stream_rater.pipeline.estimator.backlog import RoundGraph
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.pipeline.ports import Priors
from stream_rater.rating import record, stages
from stream_rater.rating.model import HEADER, Evidence, Wave, newcomers
from stream_rater.rating.parameters import Elo, RatingConfig
from stream_rater.rounds.decoder import RoundDecoder
from tests.builders.machines import SHARDS, part_in, pending_of, rounds_in

SIZES = st.lists(st.integers(2, 4), min_size=1, max_size=5)
LADDERS = Ladders(ladders=ANY_LADDER.ladders | {"other": Ladder(rating=Elo(learning_rate=32.0))})
_OF_PRIORS = ("mu", "sigma", "time", "season")  # What a belief remembers of its last round's prior.


def test_headers_come_in_the_order_of_the_players() -> None:
    """The order of shards does not matter. Only a shard that cannot be read is reported."""
    pending = pending_of([4, 4, 4])
    beliefs = newcomers(12, 0, 1500.0, 350.0, coded=True)
    beliefs.header["rounds"] = np.arange(12)
    stored, shards = record.encode(beliefs), shards_in(pending.fingerprints).tolist()
    assert len(set(shards)) == SHARDS

    def read(cut: Mapping[int, int]) -> tuple[list[int], set[int]]:
        """Rounds played as they are read, and who is refused, where shards lack so many bytes."""
        answered = {s: b"".join([each for each, at in zip(stored, shards, strict=True) if at == s])
                for s in set(shards)}  # fmt: skip
        priors = {s: Priors(0, data[: len(data) - cut.get(s, 0)]) for s, data in answered.items()}
        headers, unreadable = estimation.headers_of(pending, priors)
        return headers["rounds"].tolist(), set(unreadable)

    assert read({}) == (list(range(12)), set())
    assert read({1: 5}) == ([0 if s == 1 else i for i, s in enumerate(shards)], {1})
    assert read({0: 5, 1: record.HEADER_SIZE - 5}) == (
        [0 if s < 2 else i for i, s in enumerate(shards)], {0, 1}
    )  # fmt: skip


@given(SIZES, st.data())
def test_priors_are_those_before_the_round(sizes: list[int], data: st.DataObject) -> None:
    """Any one player shows that a round was sent already, or that it cannot be read yet."""
    pending = pending_of(sizes)
    players = sum(sizes)
    offset = pending.for_each_player(pending.offsets).tolist()
    ahead = data.draw(st.lists(st.sampled_from([-1, -1, 0, 0, 1]), min_size=players,
                               max_size=players))  # fmt: skip
    usable = np.array([data.draw(st.integers(0, 9)) > 0 for _ in offset])
    headers = np.zeros(players, HEADER)
    for i in range(players):
        if data.draw(st.integers(0, 3)):
            before = (i + 0.5, i + 0.25, 100 * i - 50, i + 1)
            belief = (i + 1.5, i + 2.5, 100 * i, i + 3, *before)
            names = (*_OF_PRIORS, *(f"previous_{name}" for name in _OF_PRIORS))
            headers[i]["version"], headers[i]["rounds"] = record.VERSION, i + 1
            headers[i]["last"] = offset[i] + ahead[i]
            for name, value in zip(names, belief, strict=True):
                headers[i][name] = value
    answered = headers.copy()
    ready, chosen, resumed = estimation.classified(pending, headers, usable)
    priors = headers[chosen]
    wanted, first = [], 0
    for at, size in zip(pending.offsets.tolist(), sizes, strict=True):
        rows = range(first, first + size)
        first += size
        later = any(answered[i]["version"] and answered[i]["last"] > at for i in rows)
        if not all(usable[i] for i in rows):
            assert at not in [*ready.offsets, *resumed.offsets]
        elif later:
            assert at in resumed.offsets
        else:
            assert at in ready.offsets
            for i in rows:
                prior = answered[i].copy()
                if prior["version"] and prior["last"] == at:
                    for name in _OF_PRIORS:
                        prior[name] = prior[f"previous_{name}"]
                    prior["rounds"] -= 1
                wanted.append(prior)
    assert priors.tolist() == [prior.item() for prior in wanted]


@given(SIZES, st.lists(st.booleans(), max_size=5), st.integers(1, 5))
def test_messages_hold_every_row_once(sizes: list[int], others: list[bool], most: int) -> None:
    """In its player's shard, with its own round and law, and the evidence of its round alone. A
    part names the epoch of its shard."""
    round_decoder = RoundDecoder(LADDERS)
    pending = pending_of(
        sizes, ladders=["other" if o else "x" for o in others], round_decoder=round_decoder
    )
    priors = newcomers(sum(sizes), 0, 1500.0, 350.0).header
    part = estimation.estimate(pending, priors.copy(), round_decoder.ratings, 4)
    found, epochs = [], [b"one", None, None, b"other"]
    for shard, message in schema.messages(part, *pending.by_shard, most, epochs):
        got = part_in(message)
        assert decoder.read(message).epoch == epochs[shard]
        rounds = rounds_in(got)
        assert len(got.players) <= most
        assert len(rounds) == len(set(got.round_index.tolist()))
        assert (shards_of(got.players, SHARDS) == shard).all()
        for i, name in enumerate(got.players):
            answered = rounds[got.round_index[i]]
            rule = got.rules[answered.rule].system
            found.append((answered.offset, got.place[i], name, rule, got.evidence[i].tolist()))
    wanted = []
    for r, size in enumerate(sizes):
        alone = pending.take(np.array([r]))
        seen = estimation.estimate(alone, priors[:size].copy(), round_decoder.ratings, 4).evidence
        system = str(round_decoder.ratings[alone.rounds.config_index[0]].__struct_config__.tag)
        rows = zip(alone.rounds.names.texts(), alone.rounds.place, seen.tolist(), strict=True)
        wanted += [(alone.offsets[0], place, name, system, row) for name, place, row in rows]
    assert sorted(found) == sorted(wanted)


def test_a_round_that_no_kernel_can_rate_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one of its wave, with its place; the worker ends with this line."""
    round_decoder = RoundDecoder(LADDERS)
    pending = pending_of([2, 3, 2], round_decoder=round_decoder)
    priors = newcomers(7, 0, 1500.0, 350.0).header
    estimate = stages.estimate

    def estimate_all_but_threes(config: RatingConfig, wave: Wave) -> Evidence:
        if (np.diff(wave.round_starts) == 3).any():
            raise MemoryError("too large")
        return estimate(config, wave)

    monkeypatch.setattr(stages, "estimate", estimate_all_but_threes)
    with pytest.raises(UnratedRound) as caught:
        estimation.estimate(pending, priors, round_decoder.ratings, 4)
    head, offset, partition = pending.rounds.heads[1], pending.offsets[1], pending.partitions[1]
    assert str(caught.value).startswith(
        f"round {head.round_id!r} of ladder {head.ladder!r}, at offset {offset} of partition "
        f"{partition} of round-completed, cannot be rated by system elo-mmr: MemoryError('too"
    )
    assert "\n" not in str(caught.value)


class ByTicket(RoundGraph):
    """With the players of each ticket."""

    def __init__(self) -> None:
        super().__init__()
        self._crowds: dict[int, Fingerprints] = {}

    def enter(self, *rounds: tuple[int, Fingerprints]) -> None:
        self._crowds.update(rounds)
        self.add(*self._columns([ticket for ticket, _ in rounds]))

    def _columns(self, tickets: Sequence[int]) -> tuple[Ints, Ints, Fingerprints]:
        crowds = [self._crowds[ticket] for ticket in tickets]
        sizes = [len(each) for each in crowds]
        return np.array(tickets), np.array(sizes), np.concatenate(crowds)

    def done(self, *tickets: int) -> None:
        self.finish(*self._columns(tickets))

    def free(self) -> list[int]:
        return self.candidates().tolist()


def waves_of(*rounds: str) -> ByTicket:
    """Rounds numbered from 0, a letter a player."""
    waves = ByTicket()
    half = len(rounds) // 2
    for first, some in ((0, rounds[:half]), (half, rounds[half:])):
        if some:
            waves.enter(*enumerate(map(crowd, some), first))
    return waves


def crowd(players: str) -> Fingerprints:
    """A letter a player."""
    return fingerprints(StringColumn.of(list(players)), [""], [len(players)], 2)


def test_only_a_candidate_can_be_finished() -> None:
    """To finish a round that waits is a mistake of ours."""
    with pytest.raises(AssertionError):
        waves_of("ab", "bc").done(1)


def test_memory_is_for_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished rounds take none. Two players of one fingerprint block only in different rounds."""
    monkeypatch.setattr(backlog, "COMPACT_AFTER", 3)
    waves = ByTicket()
    waves.enter((0, crowd("zy")), (1, crowd("z")))
    for ticket in range(2, 100, 2):
        waves.enter((ticket, crowd("ab")), (ticket + 1, crowd("bc")))
        waves.done(ticket)
        waves.done(ticket + 1)
        assert len(waves._tickets) <= 6
        assert len(waves._before) == len(waves._following) <= 4
    assert waves.contains(np.array([0, 1, 2, 99])).tolist() == [True, True, False, False]
    waves.done(0)
    assert waves.free() == [1]
    alike, waves = np.repeat(crowd("a"), 2), ByTicket()
    waves.enter((0, alike), (1, alike))
    for number in range(2):
        assert waves.free() == [number]
        waves.done(number)
    assert len(waves) == len(waves._latest) == 0


rounds = st.lists(st.sets(st.sampled_from("abcdefg"), min_size=1, max_size=4), max_size=25)


@given(rounds, st.integers(0, 2**32))
def test_candidates_are_those_of_the_definition(found: Sequence[set[str]], seed: int) -> None:
    """They share no player with an earlier unfinished round. A finished one leaves nothing."""
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog, "COMPACT_AFTER", rng.randint(0, 5))
        waves = waves_of(*("".join(sorted(players)) for players in found))
        left = list(range(len(found)))
        while left:
            free = [r for i, r in enumerate(left) if not any(found[r] & found[e] for e in left[:i])]
            assert waves.free() == free
            done = sorted(rng.sample(free, rng.randint(1, len(free))))
            waves.done(*done)
            left = [r for r in left if r not in done]
    assert len(waves) == len(waves._latest) == 0
    assert not waves.contains(np.arange(len(found))).any()
