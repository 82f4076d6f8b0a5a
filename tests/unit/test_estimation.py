"""A wave's priors and parts, round by round as their definition has them."""

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.config import ANY_LADDER, one_ladder
from stream_rater.names import Names
from stream_rater.pipeline import estimation, parts
from stream_rater.pipeline.estimation import Cohort
from stream_rater.pipeline.marks import shards_in
from stream_rater.pipeline.ports import Priors, Record
from stream_rater.pipeline.sharding import shards_of
from stream_rater.rating import record
from stream_rater.rating.model import HEADER, newcomers
from stream_rater.rating.parameters import Elo
from stream_rater.standings import Reader
from tests.rounds import as_json, ranked

SHARDS = 3
SIZES = st.lists(st.integers(2, 4), min_size=1, max_size=5)
OTHER = one_ladder(Elo(learning_rate=32.0)).ladders


def cohort_of(sizes: Sequence[int], others: Sequence[bool] = ()) -> Cohort:
    """Rounds of so many players, nobody twice, at offsets 10, 20, ...; some are rated otherwise."""
    reader, rounds, first = Reader(ANY_LADDER), [], 0
    for i, size in enumerate(sizes):
        players = [f"p{k}" for k in range(first, first + size)]
        data = as_json(*ranked(range(1, size + 1), players), round_id=f"r{i}")
        standings, first = reader.read(data), first + size
        ladders = OTHER if i < len(others) and others[i] else ANY_LADDER.ladders
        rounds.append(
            (Record(0, 10 * i + 10, data), standings, next(iter(ladders.values())).rating)
        )
    return estimation.pending(rounds, SHARDS)


def test_headers_come_in_the_order_of_the_players() -> None:
    """Whatever order their shards come in; one that cannot be read is told, and only that one."""
    cohort = cohort_of([4, 4, 4])
    beliefs = newcomers(12, 0, 1500.0, 350.0, coded=True)
    beliefs.header["rounds"] = np.arange(12)
    held, shards = record.encode(beliefs), shards_in(cohort.fingerprints).tolist()
    assert len(set(shards)) == SHARDS

    def read(cut: Mapping[int, int]) -> tuple[list[int], set[int]]:
        """Rounds played as they are read, and who is refused, where shards lack so many bytes."""
        told = {s: b"".join([each for each, at in zip(held, shards, strict=True) if at == s])
                for s in set(shards)}  # fmt: skip
        priors = {s: Priors(0, data[: len(data) - cut.get(s, 0)]) for s, data in told.items()}
        headers, unreadable = estimation.headers_of(cohort, priors)
        return headers["rounds"].tolist(), set(unreadable)

    assert read({}) == (list(range(12)), set())
    assert read({1: 5}) == ([0 if s == 1 else i for i, s in enumerate(shards)], {1})
    assert read({0: 5, 1: record.HEADER_SIZE - 5}) == (
        [0 if s < 2 else i for i, s in enumerate(shards)], {0, 1}
    )  # fmt: skip


@given(SIZES, st.data())
def test_priors_are_those_before_the_round(sizes: list[int], data: st.DataObject) -> None:
    """And rounds scattered, or not yet to be read, are told apart by any one player."""
    cohort = cohort_of(sizes)
    players = sum(sizes)
    offset = [each.offset for each in cohort.rounds for _ in each.names.texts]
    ahead = data.draw(st.lists(st.sampled_from([-1, -1, 0, 0, 1]), min_size=players,
                               max_size=players))  # fmt: skip
    accepted = np.array([data.draw(st.integers(0, 9)) > 0 for _ in offset])
    headers = np.zeros(players, HEADER)
    for i in range(players):
        if data.draw(st.integers(0, 3)):
            belief = (i + 1.5, i + 2.5, 100 * i, i + 0.5, i + 0.25, 100 * i - 50)
            names = ("mu", "sigma", "time", "previous_mu", "previous_sigma", "previous_time")
            headers[i]["version"], headers[i]["rounds"] = 2, i + 1
            headers[i]["last"] = offset[i] + ahead[i]
            for name, value in zip(names, belief, strict=True):
                headers[i][name] = value
    told = headers.copy()
    ready, resumed, priors = estimation.classified(cohort, headers, accepted)
    wanted, first = [], 0
    for each in cohort.rounds:
        rows = range(first, first + len(each.names))
        first += len(each.names)
        later = any(told[i]["version"] and told[i]["last"] > each.offset for i in rows)
        if not all(accepted[i] for i in rows):
            assert each not in [*ready.rounds, *resumed.rounds]
        elif later:
            assert each in resumed.rounds
        else:
            assert each in ready.rounds
            for i in rows:
                prior = told[i].copy()
                if prior["version"] and prior["last"] == each.offset:
                    for name in ("mu", "sigma", "time"):
                        prior[name] = prior[f"previous_{name}"]
                    prior["rounds"] -= 1
                wanted.append(prior)
    assert priors.tolist() == [prior.item() for prior in wanted]


@given(SIZES, st.lists(st.booleans(), max_size=5), st.integers(1, 5))
def test_messages_hold_every_row_once(sizes: list[int], others: list[bool], most: int) -> None:
    """In its player's shard, with its own round and law, and the evidence of its round alone."""
    cohort = cohort_of(sizes, others)
    players = sum(sizes)
    part = estimation.estimate(cohort, newcomers(players, 0, 1500.0, 350.0).header)
    found = []
    for shard, message in estimation.messages(part, cohort, most):
        got = parts.decode(message)
        assert len(got.players) <= most
        assert len(got.rounds) == len(set(got.round_index.tolist()))
        assert (shards_of(got.players, SHARDS) == shard).all()
        for i, name in enumerate(got.players):
            told = got.rounds[got.round_index[i]]
            law = got.laws[told.law].system
            found.append((told.offset, got.place[i], name, law, got.evidence[i].tolist()))
    wanted = []
    for each in cohort.rounds:
        alone = estimation.estimate(
            Cohort([each]), newcomers(len(each.names), 0, 1500.0, 350.0).header
        )
        system = str(each.rating.__struct_config__.tag)
        rows = zip(each.names.texts, each.standings.place, alone.evidence.tolist(), strict=True)
        wanted += [(each.offset, place, name, system, found) for name, place, found in rows]
    assert sorted(found) == sorted(wanted)


def test_names_of_a_piece() -> None:
    """What a large round is cut into, as its columns say."""
    names = Names([f"p{i}" for i in range(5)])
    assert [names.some(start, start + 2).texts for start in (0, 2, 4)] == [
        ["p0", "p1"], ["p2", "p3"], ["p4"],
    ]  # fmt: skip
